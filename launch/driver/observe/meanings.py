"""What each number of metrics.jsonl means: the one table that docs/run-directory.md and the pages of a report show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Meaning:
    """keys: * stands for any name. says: Markdown, as in the page."""

    keys: tuple[str, ...]
    says: str

    @property
    def plain(self) -> str:
        """Without marks of Markdown."""
        return LINK.sub(r"\1", self.says).replace("`", "")

    def row(self) -> str:
        """Of a table in Markdown."""
        return f"| {', '.join(f'`{key}`' for key in self.keys)} | {self.says} |"


STEP: Sequence[Meaning] = (  # of a step, in every kind of stage that has them
    Meaning(
        ("reward/mean", "reward/part/*", "reward/solved"),
        "over the step's graded trajectories; failures are left out, never zeros. `reward/solved`: the share that "
        "solved their task, where the reward says when (`solved_by`), as an evaluation's accuracy",
    ),
    Meaning(
        ("reward/stream/*",),
        "of a reward per token: its sum over a trajectory, as a mean over trajectories",
    ),
    Meaning(
        ("reward/std", "reward/min", "reward/max"),
        "over the same trajectories: the standard deviation (of the step, not within its groups), the lowest "
        "and the highest",
    ),
    Meaning(
        ("episode/tokens", "episode/response_tokens", "episode/reply_tokens", "episode/tokens_max"),
        "length of an episode in tokens: sampled by the model; with tool results and chat tokens; these alone; and the "
        "longest of the step",
    ),
    Meaning(
        ("episode/calls", "episode/valid_calls", "episode/repeated_calls"),
        "tool calls in an episode (searches per rollout), those that were carried out (no empty call, no "
        "error), those that repeat an earlier call",
    ),
    Meaning(
        ("episode/count",),
        "episodes of the step, failed ones among them",
    ),
    Meaning(
        ("episode/turns", "episode/answered_by_*"),
        "messages of the model; the share of the episodes that had answered with message N or before",
    ),
    Meaning(
        ("env/*",),
        "`env/NAME`: the environment's own metrics (`Step.metrics`): summed over an episode's steps, the mean"
        " over the step's trajectories",
    ),
    Meaning(
        ("lag/max", "lag/mean"),
        "versions between a trajectory's oldest token and the weights it trains; never above `loop.max_policy_lag`",
    ),
    Meaning(
        ("lag/bound",),
        "`loop.max_policy_lag` as it was in this step: a run may be continued with another one",
    ),
    Meaning(
        ("lag/mixed_versions",),
        "share of trajectories that an update caught in flight",
    ),
    Meaning(
        ("mismatch/probe_max", "mismatch/probe_mean"),
        "engine against learner, log-probability of the same tokens under the same weights, after each delivery",
    ),
    Meaning(
        ("mismatch/probe_limit",),
        "limit of `mismatch/probe_mean`: `loop.mismatch_limit`, or twice what rounding moves the learner's numbers by",
    ),
    Meaning(
        ("mismatch/mean", "mismatch/max", "mismatch/outside_0.1"),
        "the same on training tokens sampled by the very version being trained",
    ),
    Meaning(
        ("mismatch/depth_*",),
        "`mismatch/mean` by the number of tokens before each token in its context (`depth_0_1k`, "
        "`depth_1k_2k` to `depth_64k_up`): a mean hides what grows with the length. Depths without tokens are"
        " absent",
    ),
    Meaning(
        ("mismatch/turn_*",),
        "the same by the model's messages in a trajectory (`turn_1` to `turn_8`, `turn_9_up`); those without "
        "tokens are not counted",
    ),
    Meaning(
        ("mismatch/mixed_versions", "mismatch/one_version"),
        "the same in samples that older weights began, and in the others: the price of "
        "`loop.running_kv=keep`, which `recompute` does not pay",
    ),
    Meaning(
        ("weights/publish_s", "weights/pause_s", "weights/probe_s"),
        "seconds of a delivery: until the last engine has loaded it, the longest pause of an engine, the "
        "longest comparison with the learner",
    ),
    Meaning(
        ("weights/carried_mb", "weights/carry_s"),
        "MB that crossed the network, to all nodes together, and the seconds until the last of them; 0 on one node",
    ),
    Meaning(
        ("placement/change_s",),
        "with `cluster.placement=sleep`: seconds since the last row in which the GPUs went from one side to the other",
    ),
    Meaning(
        ("groups/trained", "groups/filtered", "groups/failed"),
        "filtered: all rewards equal, so no signal; failed: nothing could be graded",
    ),
    Meaning(
        ("groups/oversampled",),
        "groups without signal in addition to `groups_per_step`, which were replaced by others (`loop.oversample`)",
    ),
    Meaning(
        ("curriculum/*",),
        "the draws of the curriculum and their reasons ([curriculum.md](curriculum.md))",
    ),
    Meaning(
        (
            "tokens/generated",
            "tokens/in_trained_groups",
            "tokens/in_filtered_groups",
            "tokens/in_failed_groups",
            "tokens/generated_per_s",
        ),
        "sampled tokens; those in groups that were trained, filtered and failed, which add up to them; and sampled "
        "tokens per second of the step",
    ),
    Meaning(
        ("tokens/trained", "tokens/trained_per_s"),
        "the model's own tokens in the loss, in every kind of stage",
    ),
    Meaning(
        ("tokens/packed", "tokens/packed_per_s"),
        "all tokens that went through the learner, including prompts and tool results",
    ),
    Meaning(
        ("time/*",),
        "where the step's wall time went; with `time/other` they add up to `time/step`; "
        "`time/publish_previous` is the wait for the delivery of the last step's weights, and after "
        "the update for its row (`time/episode_*` are averages per episode, `time/learner_*` the phases within "
        "`time/update`)",
    ),
    Meaning(
        ("failures/infra", "failures/timeout", "failures/data"),
        "typed failures of this step, after their retries",
    ),
    Meaning(
        ("tokens/stale",),
        "sampled tokens that are masked out of the loss for their age (`loop.max_token_lag`); a group with "
        "only such tokens counts as filtered",
    ),
    Meaning(
        ("tokens/truncated",),
        "sampled tokens that are left out of the loss because a limit of tokens or time cut their episode off "
        "(`algorithm.truncated`), in groups that are trained",
    ),
    Meaning(
        ("tokens/ungraded", "tokens/without_signal"),
        "sampled tokens of failed episodes in groups that are trained, and of groups whose rewards are all equal; "
        "with `tokens/trained`, `tokens/stale`, `tokens/truncated` and `tokens/in_failed_groups` they are all that "
        "were sampled",
    ),
    Meaning(
        ("episode/raised",),
        "the share of the episodes in which environment, reward, task or chat template raised an error "
        "(`data`), whether they were played again or not, or an agent ended with one (`env/agent_errors`)",
    ),
    Meaning(
        ("env/agent_errors",),
        "of `env.name=agent`: the share of the episodes whose agent raised an error, or ended with a code that is not "
        "0, after a message of the policy's: `malformed`, with the reward that it is given, and trained",
    ),
    Meaning(
        ("failures/retried", "tokens/discarded"),
        "failures after which an episode was played or scored again, and the tokens that were lost with them",
    ),
    Meaning(
        ("tool/*",),
        "`tool/NAME/*`: calls, errors by kind, retries, hit rate of the cache, latency, state of the circuit,"
        " answers with nothing in them (`empty`);"
        " since the workers' start. `tool/judge/*` is the judge, `tool/grader/*` the grader of mathematics, "
        "whose `errors_hopeless` are answers that are wrong because they cannot be graded",
    ),
    Meaning(
        ("loss/nll", "loss/dpo", "dpo/margin", "dpo/accuracy", "dpo/chosen_reward", "dpo/rejected_reward"),
        "of sft and dpo stages: on the step's own examples, before its update",
    ),
    Meaning(
        ("eval/seconds",),
        "seconds since the last row in which an evaluation ran in parallel with training",
    ),
    Meaning(
        ("eval/loss", "eval/margin", "eval/accuracy"),
        "of held-out examples, after the update, every `eval.every` steps",
    ),
    Meaning(
        ("data/too_long",),
        "examples left out of the step: longer than `engine.max_model_len`",
    ),
    Meaning(
        ("driver/longest_block_s",),
        "the longest time that the driver's event loop was blocked since the last row: workers, ranks and "
        "services waited for as long. It stays below a second with up to 16,000 open episodes (`python "
        "benchmarks/driver.py`), and came to 1.3 s with 64,000 on two busy cores: a larger value means that the "
        "host has too few cores for the driver",
    ),
    Meaning(
        ("engine/running", "engine/waiting", "engine/kv_usage"),
        "requests in the batch, and episodes that wait for a seat at a worker, over all engines; the fullest KV cache",
    ),
    Meaning(
        ("engine/restarts", "engine/lost"),
        "restarts of rollout workers since the start; workers whose node is gone and that wait for another "
        "([cluster.md](cluster.md))",
    ),
    Meaning(
        ("worlds/ended",),
        "environment processes that an environment blocked or crashed, since the workers' start",
    ),
    Meaning(
        ("engine/busy_s", "engine/alive_s"),
        "cumulative: their ratio is the engine's busy share",
    ),
    Meaning(
        ("engine/cpu_s", "rollout/cpu_s"),
        "cumulative seconds of processor time, of the engines' processes and of the rollout workers' own, since "
        "the engines were up; the processes of the environments are in neither",
    ),
    Meaning(
        ("episode/answered", "episode/malformed", "episode/turn_limit", "episode/token_limit", "episode/time_limit"),
        "share of the episodes that ended with an answer, in a message that the environment cannot parse, at the limit "
        "of messages, or cut off at a limit of tokens or when their time ended (`rollout.episode_timeout_s`)",
    ),
    Meaning(
        ("learner/idle_share",), "share of the step in which the learner did not update: it waited, packed or exported"
    ),
    Meaning(
        ("engine/rss_mb", "memory/driver_rss_mb"),
        "resident memory in MiB, of all rollout workers with their engines, and of the driver",
    ),
)
UPDATE: Sequence[Meaning] = (  # of an update of the learner
    Meaning(
        ("loss/policy", "loss/kl", "loss/entropy", "loss/value", "loss/total", "loss/critic_total"),
        "what the update minimises and its terms; the loss of a policy gradient says little by itself",
    ),
    Meaning(
        ("entropy/mean",),
        "entropy of the policy's distribution over its sampled tokens, in nats per token: near 0 all answers to a task "
        "are the same",
    ),
    Meaning(
        ("kl/reference",), "estimated KL from the reference model, in nats per token (k3): how far the policy has moved"
    ),
    Meaning(
        ("kl/behavior",),
        "estimated KL from the policy that sampled, in nats per token: old weights and the engine's rounding show here",
    ),
    Meaning(
        ("clip/low", "clip/high", "clip/dual"),
        "share of the sampled tokens that got no gradient, or the bounded one, since their probability moved too far",
    ),
    Meaning(
        ("ratio/mean", "ratio/outside_0.1"),
        "probability of the sampled tokens now over that when they were sampled; share of them below 0.9 or above 1.1",
    ),
    Meaning(
        ("correction/weight", "correction/stopped"),
        "mean importance weight of the sampled tokens (`algorithm.is_correction`); share of them that it stopped",
    ),
    Meaning(("advantage/mean", "advantage/std"), "advantages of the trained tokens: their mean and standard deviation"),
    Meaning(
        ("value/mean", "value/error", "value/clipped", "value/explained_variance"),
        "of a critic: its mean prediction, its squared error, the share of clipped predictions, and the share of the "
        "variance of the returns that it explains",
    ),
    Meaning(
        ("learner/grad_norm", "critic/grad_norm"),
        "norm of the whole gradient before clipping, mean over the optimizer steps of the update",
    ),
    Meaning(("learner/lr", "critic/lr"), "learning rate of the update"),
    Meaning(
        ("learner/steps", "learner/skipped", "critic/skipped", "learner/not_finite"),
        "optimizer steps of the update; those that were skipped since their gradient was not finite; and how many "
        "gradients were not",
    ),
    Meaning(
        ("tokens/useful_share",),
        "sampled tokens that were trained, as a share of all tokens that went through the learner",
    ),
    Meaning(
        ("learner/tokens", "learner/rows", "learner/padding_rows", "learner/tokens_shared"),
        "tokens that went through the learner, packed rows, rows that only keep ranks equal, and tokens of common "
        "prefixes that were computed once",
    ),
    Meaning(
        ("learner/tokens_per_s", "learner/flops_per_s", "learner/mfu", "learner/mfu_datasheet"),
        "speed of the update's own forward and backward passes; `mfu` is the share of the card's measured peak in "
        "products of matrices, `mfu_datasheet` that of the peak in bfloat16 that its data sheet names",
    ),
    Meaning(
        ("memory/learner_rss_peak_mb", "memory/learner_gpu_peak_mb"),
        "the most memory that a rank has held so far, in MiB: of its process, and of its GPU",
    ),
)
ENVS: Sequence[Meaning] = (  # of a stage with several environments
    Meaning(
        ("by_env/*",),
        "a number of the step's episodes, or of the curriculum, of one environment alone: `by_env/sums/reward/mean`",
    ),
)
OWN: Sequence[Meaning] = (  # that every row has, and what places it in time
    Meaning(("version",), "version of the weights after the step"),
    Meaning(("wall_s",), "seconds since the run began, without the time between two attempts"),
    Meaning(("time",), "when the row was written, in Unix seconds"),
)


@cache
def meaning_of(key: str) -> str:
    """In plain words; empty of a key that no row of the tables names."""
    table = (*STEP, *UPDATE, *ENVS, *OWN)
    exact = next((entry for entry in table if key in entry.keys), None)
    match = exact or next((entry for entry in table if any(fnmatchcase(key, pattern) for pattern in entry.keys)), None)
    return "" if match is None else match.plain
