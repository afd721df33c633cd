"""What is evaluated, how it is sampled, and what an evaluation within training may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from rlsys.errors import BadInput, require, require_bounds


@dataclass(frozen=True, kw_only=True)
class EvalSet:
    """One named set of tasks in `eval.sets`. A key that is null is taken from `eval`."""

    env: dict[str, Any] = field(default_factory=dict)
    """Changes to the stage's `env` for this set: its data, a limit, a prompt. Another `name` selects another
    environment, with its own defaults."""
    reward: dict[str, Any] = field(default_factory=dict)
    """Changes to the stage's `reward` for this set. Another `name` selects another reward, with its own defaults."""
    split: Literal["held_out", "train", "all"] = "held_out"
    """Split of the environment's tasks that the set draws from."""
    tasks: Optional[int] = None
    """Number of tasks in the set, at most. They are drawn at random with `eval.seed`; the first 100 of 500 are the same
    as a draw of 100."""
    greedy: Optional[bool] = None
    """Whether each task is also played with greedy decoding. null: as `eval.greedy`."""
    samples: Optional[int] = None
    """Number of sampled answers per task and seed. null: as `eval.samples`."""
    seeds: Optional[int] = None
    """Number of seeds, each with its own sampled answers. null: as `eval.seeds`."""
    temperature: Optional[float] = None
    """Sampling temperature of the sampled answers. null: as `eval.temperature`."""
    top_p: Optional[float] = None
    """Nucleus (top-p) limit of the sampled answers. null: as `eval.top_p`."""
    max_turn_tokens: Optional[int] = None
    """Limit of one message in tokens, in place of `rollout.max_turn_tokens`. null: as `eval.max_turn_tokens`."""
    max_response_tokens: Optional[int] = None
    """Limit of a whole response in tokens, in place of `rollout.max_response_tokens`. null: as
    `eval.max_response_tokens`."""
    group: str = ""
    """Name of a group of sets. The sets of one group also get a mean, and an average increase when they are compared
    with another evaluation."""
    steps_of: Optional[str] = None
    """Name of another set whose tasks this one splits into single steps: the field `parent` of each task here names its
    task there. The report then shows how often a policy that can do the steps can do the task."""
    by: Optional[str] = None
    """Field of the tasks by whose values the results are also broken down. null: as `eval.by`."""
    paper: dict[str, Optional[float]] = field(default_factory=dict)
    """Figures of a paper for this set, shown next to the measured ones: `exact_match: 0.4057`, or for one kind of
    decoding `greedy/exact_match`. null removes a figure that another file gives. A command line that changes the model,
    the data, `env`, `reward` or `algorithm` removes all that the files give, and says so."""

    def __post_init__(self) -> None:
        _check_bounds(self, "eval.sets: ")


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Evaluation on held-out tasks or on named sets of tasks: before and after each stage that plays episodes, at
    intervals within it, and by `rlsys eval`. Other stages measure a held-out loss."""

    tasks: int = 200
    """Number of held-out tasks to play, at most."""
    greedy: bool = True
    """Whether each task is played with greedy decoding."""
    samples: int = 1
    """Number of sampled answers per task and seed, in addition to the greedy one. 0: none."""
    seeds: int = 1
    """Number of seeds, each with its own sampled answers. The reported spread is over these seeds."""
    temperature: float = 1.0
    """Sampling temperature of the sampled answers."""
    top_p: Optional[float] = None
    """Nucleus (top-p) limit of the sampled answers: only the most likely tokens that together have this probability are
    sampled. null: as `rollout.top_p`. It may be below 1 in an rl stage too, because these answers are not trained
    on."""
    max_turn_tokens: Optional[int] = None
    """Limit of one message in tokens, in evaluations. null: as `rollout.max_turn_tokens`."""
    max_response_tokens: Optional[int] = None
    """Limit of a whole response in tokens, in evaluations. null: as `rollout.max_response_tokens`."""
    sets: dict[str, EvalSet] = field(default_factory=dict)
    """Named sets of tasks that are played instead of the held-out ones. null in the place of a set leaves it out. {}:
    the held-out tasks are played, from the first."""
    judge: dict[str, Any] = field(default_factory=dict)
    """Judge configuration in place of `reward.judge`, for every set whose reward uses a judge and that does not set one
    itself: it summarises or judges the answers of the set."""
    by: Optional[str] = None
    """Field of the tasks, such as `plan_length`, by whose values (for a list: lengths) the results are also broken
    down. `level` is also the level that the environment gives a task. null: no breakdown."""
    seed: int = 0
    """Seed of the draw of a set's tasks. Results with different seeds are results on different tasks."""
    concurrency: Optional[int] = None
    """Number of episodes that are played at the same time. null: what fills every engine, `rollout.workers` times
    `engine.max_num_seqs`, and a quarter more where episodes have several messages; 256 with --endpoint."""
    every: int = 0
    """Number of training steps between evaluations: in an rl stage held-out tasks in parallel with training, in an sft
    or dpo stage the held-out loss. 0: never."""
    deadline_s: Optional[float] = None
    """Time limit of an evaluation in parallel with training, in seconds. At the limit it ends with the results it has
    and is marked partial. An evaluation that is due while another one runs is skipped. null:
    `rollout.episode_timeout_s` for each `concurrency` of its episodes, and once more for those under way."""
    budget_tokens: Optional[int] = None
    """Number of tokens that one evaluation in parallel with training may sample: after that no further episode begins.
    null: no limit."""
    hold_weights: bool = False
    """Whether the engines get new weights only after the running evaluation ends, so that its results come from one
    version. Training then waits too, once its slots are full. false: the results record the versions that sampled
    them."""
    share: float = 0.1
    """Share of the prompts in a stage's `data` that is held out for the held-out loss: at least one prompt, at most
    `tasks`."""
    paper: dict[str, Optional[float]] = field(default_factory=dict)
    """Figures of a paper for the held-out tasks, shown next to the measured ones: `exact_match: 0.4057`, or for one
    kind of decoding `greedy/exact_match`."""

    def __post_init__(self) -> None:
        _check_bounds(self, "eval.")
        require_bounds(self, "eval.", "at least 1, or null", "budget_tokens", "concurrency")
        require_bounds(self, "eval.", "0 or more", "every")
        require_bounds(self, "eval.", "above 0, or null", "deadline_s")
        require(0 < self.share < 1, "eval.share", self.share, "between 0 and 1")
        require(self.greedy or self.samples > 0, "eval.samples", 0, "at least 1 without eval.greedy")
        require(not self.judge or bool(self.sets), "eval.judge", dict(self.judge), "nothing without eval.sets")
        for name in self.sets:
            plain = bool(name) and all(letter.isalnum() or letter in "-_" for letter in name)
            require(plain, "eval.sets", name, "names of letters, digits, - and _ : they name files")


def _check_bounds(config: EvalConfig | EvalSet, prefix: str) -> None:
    or_null = ", or null" if isinstance(config, EvalSet) else ""
    require_bounds(config, prefix, f"at least 1{or_null}", "tasks", "seeds")
    require_bounds(config, prefix, "at least 1, or null", "max_turn_tokens", "max_response_tokens")
    require_bounds(config, prefix, f"0 or more{or_null}", "samples")
    require_bounds(config, prefix, f"above 0 and at most 2{or_null}", "temperature")
    require_bounds(config, prefix, "above 0 and at most 1, or null", "top_p")
    scores = [value for value in config.paper.values() if value is not None]
    if any(not isinstance(value, float | int) or isinstance(value, bool) for value in scores):
        raise BadInput(key=f"{prefix}paper", found=dict(config.paper), expected="a number for each metric")
