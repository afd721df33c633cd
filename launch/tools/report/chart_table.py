"""The charts of a report: which numbers each draws, and how. `driver/observe/meanings.py` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Source = Literal["rows", "held_out", "derived"]
Form = Literal["line", "area", "dots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSpec:
    """keys: label -> key of the rows; a * is a series for each key that fits, called after what it stands for."""

    title: str
    unit: str
    keys: Mapping[str, str]
    about: str = ""  # in place of the meaning of the first key
    source: Source = "rows"
    form: Form = "line"
    log: bool = False
    stacked: bool = False
    limit: str = ""  # the key of the configuration whose value is drawn
    band: tuple[str, str] | None = None  # keys of a band around the first series


def _single_key_chart(title: str, unit: str, key: str, **more: object) -> ChartSpec:
    return ChartSpec(title=title, unit=unit, keys={"": key}, **more)  # type: ignore[arg-type]


TOKENS, SHARE, SECONDS = "tokens", "share", "s"
CHARTS: Mapping[str, ChartSpec] = {
    "held_out": _single_key_chart(
        "Held-out results", "", "", source="held_out", form="dots",
        about="each evaluation on held-out tasks, with its 95 % interval over tasks",
    ),
    "reward": _single_key_chart("Reward", "reward", "reward/mean", band=("reward/min", "reward/max")),
    "right": ChartSpec(
        title="Right answers", unit=SHARE, keys={"training": "right"}, source="derived",
        about="share of right answers in the training episodes of a step; dots are held-out tasks with their intervals",
    ),
    "env_reward": ChartSpec(title="Reward by environment", unit="reward", keys={"*": "by_env/*/reward/mean"}),
    "signal": _single_key_chart(
        "Groups without signal", SHARE, "signal", source="derived",
        about="share of a step's groups whose rewards are all equal: they teach nothing",
    ),
    "entropy": _single_key_chart("Entropy", "nats per token", "entropy/mean"),
    "gap": ChartSpec(
        title="Engine against learner", unit="nats per token", log=True,
        keys={
            "after a delivery, mean": "mismatch/probe_mean", "its limit": "mismatch/probe_limit",
            "trained tokens, mean": "mismatch/mean",
        },
    ),
    "seconds": ChartSpec(
        title="Seconds of a step", unit=SECONDS, keys={"*": "time/*"}, form="area", stacked=True,
        about="where the wall time of a step went; the areas add up to the step",
    ),
    "parts": ChartSpec(title="Parts of the reward", unit="reward", keys={"*": "reward/part/*"}),
    "streams": ChartSpec(title="Rewards per token", unit="sum", keys={"*": "reward/stream/*"}),
    "spread": _single_key_chart("Spread of the reward", "reward", "reward/std"),
    "groups": ChartSpec(
        title="Groups of a step", unit="groups", form="area", stacked=True,
        keys={"trained": "groups/trained", "without signal": "groups/filtered", "failed": "groups/failed"},
    ),
    "oversampled": _single_key_chart("Groups replaced", "groups", "groups/oversampled"),
    "curriculum": ChartSpec(title="What the curriculum draws", unit=SHARE, keys={"*": "curriculum/share/*"}),
    "env_curriculum": ChartSpec(
        title="What the curriculum of each environment draws", unit=SHARE, keys={"*": "by_env/*/curriculum/share/*"}
    ),
    "kl": ChartSpec(
        title="KL", unit="nats per token",
        keys={"from the reference": "kl/reference", "from the policy that sampled": "kl/behavior"},
    ),
    "clip": ChartSpec(
        title="Clipped tokens", unit=SHARE, keys={"low": "clip/low", "high": "clip/high", "dual": "clip/dual"}
    ),
    "ratio": ChartSpec(title="Ratio", unit="", keys={"mean": "ratio/mean", "outside 0.9 to 1.1": "ratio/outside_0.1"}),
    "grad_norm": ChartSpec(
        title="Gradient norm", unit="", log=True, limit="learner.clip_grad",
        keys={"policy": "learner/grad_norm", "critic": "critic/grad_norm"},
    ),
    "lr": ChartSpec(title="Learning rate", unit="", keys={"policy": "learner/lr", "critic": "critic/lr"}),
    "loss": ChartSpec(title="Loss", unit="", keys={"*": "loss/*"}),
    "supervised": ChartSpec(
        title="Loss of examples", unit="nats per token",
        keys={"of the step": "loss/nll", "pairs of the step": "loss/dpo", "held-out": "eval/loss"},
    ),
    "preference": ChartSpec(
        title="Pairs in the right order", unit=SHARE, keys={"of the step": "dpo/accuracy", "held-out": "eval/accuracy"}
    ),
    "value": ChartSpec(
        title="Critic", unit="", keys={"explained variance": "value/explained_variance", "error": "value/error"}
    ),
    "skipped": ChartSpec(
        title="Optimizer steps skipped", unit="steps",
        keys={"skipped": "learner/skipped", "not finite": "learner/not_finite"},
    ),
    "lag": ChartSpec(
        title="Policy lag", unit="versions", keys={"most": "lag/max", "mean": "lag/mean"}, limit="loop.max_policy_lag"
    ),
    "mixed": _single_key_chart("Trajectories of several versions", SHARE, "lag/mixed_versions"),
    "gap_depth": ChartSpec(
        title="Gap by depth of context", unit="nats per token", log=True, keys={"*": "mismatch/depth_*"}
    ),
    "gap_turn": ChartSpec(
        title="Gap by message", unit="nats per token", log=True, keys={"*": "mismatch/turn_*"}
    ),
    "stale": _single_key_chart("Tokens too old to train", TOKENS, "tokens/stale"),
    "length": ChartSpec(
        title="Length of an episode", unit=TOKENS,
        keys={"sampled": "episode/tokens", "with replies": "episode/response_tokens"},
    ),
    "env_length": ChartSpec(
        title="Length of an episode by environment", unit=TOKENS, keys={"*": "by_env/*/episode/tokens"}
    ),
    "turns": _single_key_chart("Messages of the model", "per episode", "episode/turns"),
    "calls": ChartSpec(
        title="Tool calls", unit="per episode",
        keys={"made": "episode/calls", "carried out": "episode/valid_calls", "repeated": "episode/repeated_calls"},
    ),
    "ends": ChartSpec(
        title="How episodes end", unit=SHARE,
        keys={
            "answered": "episode/answered", "malformed": "episode/malformed", "limit of messages": "episode/turn_limit",
            "limit of tokens": "episode/token_limit", "raised": "episode/raised",
        },
    ),
    "env": ChartSpec(title="Of the environment", unit="per episode", keys={"*": "env/*"}),
    "failures": ChartSpec(
        title="Failures", unit="episodes",
        keys={
            "infra": "failures/infra", "timeout": "failures/timeout", "data": "failures/data",
            "tried again": "failures/retried",
        },
    ),
    "restarts": ChartSpec(
        title="Parts restarted and lost", unit="since the start",
        keys={"workers restarted": "engine/restarts", "workers lost": "engine/lost", "worlds ended": "worlds/ended"},
    ),
    "tools": ChartSpec(title="Errors of tools", unit="since the start", keys={"*": "tool/*/errors"}),
    "tool_latency": ChartSpec(title="Latency of tools, p95", unit="ms", keys={"*": "tool/*/latency_p95_ms"}),
    "busy": ChartSpec(
        title="Busy", unit=SHARE, keys={"engines": "engine_busy", "learner": "learner_busy"}, source="derived",
        about="share of a step's seconds in which the engines generate, and in which the learner updates",
    ),
    "tokens": ChartSpec(
        title="Sampled tokens", unit=TOKENS, form="area", stacked=True,
        keys={
            "trained groups": "tokens/in_trained_groups", "without signal": "tokens/in_filtered_groups",
            "failed": "tokens/in_failed_groups",
        },
    ),
    "speed": ChartSpec(
        title="Tokens per second", unit="tokens/s",
        keys={"sampled": "tokens/generated_per_s", "trained": "tokens/trained_per_s", "packed": "tokens/packed_per_s"},
    ),
    "useful": _single_key_chart("Useful tokens of the learner", SHARE, "tokens/useful_share"),
    "delivery": ChartSpec(
        title="Delivery of weights", unit=SECONDS,
        keys={"whole": "weights/publish_s", "pause": "weights/pause_s", "comparison": "weights/probe_s"},
    ),
    "blocked": _single_key_chart("Driver blocked, longest", SECONDS, "driver/longest_block_s"),
    "memory": ChartSpec(
        title="Memory", unit="MiB",
        keys={
            "engines": "engine/rss_mb", "largest rank": "memory/learner_rss_peak_mb", "driver": "memory/driver_rss_mb",
            "GPU of a rank": "memory/learner_gpu_peak_mb",
        },
    ),
    "kv": _single_key_chart("Fullest KV cache", SHARE, "engine/kv_usage"),
    "queue": ChartSpec(title="Requests", unit="", keys={"running": "engine/running", "waiting": "engine/waiting"}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    id: str
    question: str
    charts: Sequence[str] = ()
    tables: Sequence[str] = ()
    open: bool = False


SECTIONS: Sequence[Section] = (
    Section("first", "", ("reward", "right", "signal", "entropy", "gap", "seconds"), ("last_events",), open=True),
    Section("learn", "Did it learn?", ("held_out", "supervised", "preference"), ("evaluations", "paired"), open=True),
    Section("run", "What was run?", (), ("run", "attempts", "machines", "data")),
    Section("advice", "What should I do?", (), ("advice",)),
    Section(
        "reward", "What did the reward pay for?", ("env_reward", "parts", "streams", "spread"),
        ("environments", "paid"), open=True,
    ),
    Section(
        "signal", "Where did the signal come from?",
        ("groups", "oversampled", "curriculum", "env_curriculum"), ("signal",),
    ),
    Section(
        "update", "Is the update healthy?",
        ("kl", "clip", "ratio", "grad_norm", "lr", "loss", "value", "skipped"),
    ),
    Section("policy", "Is it on policy?", ("lag", "mixed", "gap_depth", "gap_turn", "stale")),
    Section(
        "behaviour", "How does it behave?",
        ("length", "env_length", "turns", "calls", "ends", "env"), ("ends",), open=True,
    ),
    Section(
        "broke", "What broke?", ("failures", "restarts", "tools", "tool_latency"), ("incidents", "failures", "damage")
    ),
    Section(
        "time", "Where did time and tokens go?", ("busy", "tokens", "speed", "useful", "delivery", "blocked"),
        ("time", "tokens"),
    ),
    Section("hold", "Does it hold?", ("memory", "kv", "queue"), ("memory",)),
    Section("cost", "What did it cost?", (), ("cost",)),
)  # fmt: skip
