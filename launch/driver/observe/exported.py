"""What a run exports to Prometheus through Ray: the one table of metrics, and which key of a row each is.

Ray writes the names as `ray_rlsys_step`, and `_total` behind those of counters. docs/reference/metrics.md and the board
in deploy/grafana are made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MIB = 2.0**20
RUN = "run"  # the label of every metric: the name of the run directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Metric(name="clip_share", label="side", keys={"low": "clip/low", "high": "clip/high"}, ...)"""

    name: str  # without Ray's `ray_` and ours, `rlsys_`
    about: str  # a phrase with its unit
    keys: Mapping[str, str] = field(default_factory=dict)  # value of the label, or "" without one: key of the row
    kind: Literal["gauge", "counter"] = "gauge"
    label: str | None = None  # besides `run`
    pattern: str | None = None  # in place of `keys`: its group is the label's value
    most: int = 1  # values that the label may have, where the pattern decides: the first ones that come
    scale: float = 1.0
    cumulative: bool = False  # of a counter: the row has the total so far, not what this step adds
    counts: bool = False  # of a counter: each row that has the key adds one

    @property
    def series(self) -> int:
        """How many a run has, at most."""
        return self.most if self.pattern else len(self.keys)

    @property
    def exported(self) -> str:
        """Its name in Prometheus."""
        return f"ray_rlsys_{self.name}{'_total' if self.kind == 'counter' else ''}"

    def read(self, row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """(value of the label, number) of everything of it in a row."""
        if self.pattern is None:
            pairs = ((value, row.get(key)) for value, key in self.keys.items())
        else:
            matches = ((re.fullmatch(self.pattern, key), number) for key, number in row.items())
            pairs = ((match[1], number) for match, number in matches if match)
        for value, number in pairs:
            if isinstance(number, int | float):
                yield value, number * self.scale


def plain(name: str, key: str, about: str, **more: Any) -> Metric:
    return Metric(name=name, keys={"": key}, about=about, **more)


EXPORTED: tuple[Metric, ...] = (
    plain("step", "step", "Training steps taken, over all stages."),
    plain("steps_planned", "run/steps_planned", "Training steps of all stages, as far as they are known."),
    plain("last_step_timestamp_seconds", "time", "When the newest step ended, or the run's start; unix seconds."),
    plain("step_seconds", "time/step", "Seconds of the newest step."),
    Metric(
        name="reward_mean", label="stage", pattern=r"reward/mean in (.+)", most=4,
        about="Mean reward of the newest step's graded trajectories, by stage; a stage that has ended keeps its last.",
    ),
    Metric(
        name="reward_part", label="part", pattern=r"reward/part/(.+)", most=8,
        about="Mean of a part of the reward over the same trajectories; the first eight parts.",
    ),
    plain("solved", "reward/solved",
        "Share of the newest step's graded trajectories that solved their task, where the reward says when."),
    Metric(
        name="held_out", label="play", pattern=r"held_out/(.+)", most=4,
        about="Accuracy in the newest evaluation, or the mean reward where the reward does not define "
        "when a task is solved; by kind of decoding and set; the first four.",
    ),
    plain("entropy_mean", "entropy/mean", "Entropy of the policy at the sampled tokens, in nats."),
    Metric(
        name="kl", label="of", keys={"behavior": "kl/behavior", "reference": "kl/reference"},
        about="KL divergence in nats a token: from the policy that sampled, and from the reference model of a "
        "stage that has one.",
    ),
    Metric(
        name="clip_share", label="side", keys={"low": "clip/low", "high": "clip/high"},
        about="Share of the sampled tokens whose gradient was clipped, 0 to 1.",
    ),
    plain("lag_max", "lag/max", "Versions between the oldest token of the step and the weights that it trains."),
    plain("mismatch_probe_max", "mismatch/probe_max",
        "Largest difference of log-probabilities between engine and learner after a delivery, in nats."),
    plain("response_tokens", "episode/response_tokens", "Mean length of an episode with tool results, in tokens."),
    plain("turns", "episode/turns", "Mean number of the model's messages in an episode."),
    plain("truncated_share", "episode/token_limit", "Share of the episodes that a token limit cut off, 0 to 1."),
    plain("engine_kv_usage", "engine/kv_usage", "Share of the fullest engine's KV cache in use, 0 to 1."),
    plain("engine_running", "engine/running", "Requests in the batches of all engines."),
    plain("engine_waiting", "engine/waiting", "Requests that wait, over all engines."),
    plain("engines_lost", "engine/lost", "Rollout workers whose node is gone and that wait for another."),
    Metric(
        name="resident_bytes", label="role", scale=MIB,
        keys={"driver": "memory/driver_rss_mb", "engines": "engine/rss_mb", "learner": "memory/learner_rss_peak_mb"},
        about="Resident memory in bytes: of the driver, of all engines together, the peak of the largest learner rank.",
    ),
    plain("tokens_generated_per_second", "tokens/generated_per_s", "Tokens sampled per second of the newest step."),
    plain("tokens_trained_per_second", "tokens/trained_per_s", "Tokens in the loss per second of the newest step."),
    Metric(
        name="groups", kind="counter", label="outcome",
        keys={outcome: f"groups/{outcome}" for outcome in ("trained", "filtered", "failed")},
        about="Groups of episodes by outcome: trained, filtered (no signal), failed (nothing could be graded).",
    ),
    plain("episodes", "episode/count", "Episodes of the steps.", kind="counter"),
    Metric(
        name="failures", kind="counter", label="kind",
        keys={kind: f"failures/{kind}" for kind in ("infra", "timeout", "data")},
        about="Episodes that failed after their retries, by kind.",
    ),
    Metric(
        name="tokens", kind="counter", label="fate",
        keys={
            "trained": "tokens/trained", "filtered": "tokens/in_filtered_groups", "failed": "tokens/in_failed_groups",
            "stale": "tokens/stale", "discarded": "tokens/discarded",
        },
        about="The model's own tokens by what became of them: in the loss; in groups without signal or that failed; "
        "masked out for their age; lost with failed attempts.",
    ),
    Metric(
        name="phase_seconds", kind="counter", label="phase", most=10,
        pattern=r"time/(?!episode_|learner_|step$)(.+)",
        about="Seconds of the training steps by phase: they add up to the steps' wall time.",
    ),
    plain("engine_busy_seconds", "engine/busy_s", "Seconds in which an engine had a request, over all engines.",
        kind="counter", cumulative=True),
    plain("engine_alive_seconds", "engine/alive_s", "Seconds since the start of the engines, over all of them.",
        kind="counter", cumulative=True),
    Metric(
        name="restarts", kind="counter", label="role", cumulative=True,
        keys={role: f"restarts/{role}" for role in ("engine", "service", "learner")},
        about="Restarts since the start of this process, by role.",
    ),
    plain("deliveries", "weights/publish_s", "Deliveries of weights to the engines.", kind="counter", counts=True),
    plain("delivery_seconds", "weights/publish_s",
        "Seconds of the deliveries, each until the last engine has loaded it.", kind="counter"),
)  # fmt: skip
