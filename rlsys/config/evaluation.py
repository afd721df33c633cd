"""What is evaluated, how it is sampled, and what an evaluation within training may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from rlsys.errors import BadInput, require, require_bounds


@dataclass(frozen=True, kw_only=True)
class EvalSet:
    """One of `eval.sets`. A key that is null is as in `eval`."""

    env: dict[str, Any] = field(default_factory=dict)
    """What differs from the stage's `env`: its data, a limit, a prompt. Another `name` makes it an environment of its
    own."""
    reward: dict[str, Any] = field(default_factory=dict)
    """What differs from the stage's `reward`; another `name` makes it a reward of its own."""
    split: Literal["held_out", "train", "all"] = "held_out"
    """Of the tasks of that environment."""
    tasks: Optional[int] = None
    """How many of them: drawn at random by `eval.seed`, the first 100 of 500 the same as 100."""
    greedy: Optional[bool] = None
    """Whether each task is played greedily too."""
    samples: Optional[int] = None
    """Sampled answers per task and seed."""
    seeds: Optional[int] = None
    """How often that is done."""
    temperature: Optional[float] = None
    """Of the sampled answers."""
    top_p: Optional[float] = None
    """Of the sampled answers."""
    max_turn_tokens: Optional[int] = None
    """In the place of `rollout.max_turn_tokens`."""
    max_response_tokens: Optional[int] = None
    """In the place of `rollout.max_response_tokens`."""
    group: str = ""
    """Sets of one group also have a mean, and against another evaluation an average increase."""
    steps_of: Optional[str] = None
    """Another set, of whose tasks these are the single steps: the field `parent` of each names its task. How often who
    can do the steps can do the task is shown."""
    by: Optional[str] = None
    """A field of its tasks: the number for each of its values too."""
    paper: dict[str, Optional[float]] = field(default_factory=dict)
    """A paper's figures, shown beside ours: `exact_match: 0.4057`, or of one play `greedy/exact_match`. null takes one
    back that another file gives."""

    def __post_init__(self) -> None:
        _check(self, "eval.sets: ")


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Held-out tasks, or named sets of tasks: played before and after the stages that play, every so many steps of
    them, and by `rlsys eval`; held-out loss within the other stages."""

    tasks: int = 200
    """Held-out tasks to play, at most."""
    greedy: bool = True
    """Whether each task is played greedily."""
    samples: int = 1
    """Sampled answers per task, beside the greedy one. 0: none."""
    seeds: int = 1
    """How often the sampled answers are drawn anew: their spread is over these seeds."""
    temperature: float = 1.0
    """Temperature of the sampled answers."""
    top_p: Optional[float] = None
    """The sampled answers take only from the most likely tokens that together have this probability. null is
    `rollout.top_p`. In an rl stage too it may be below 1: nothing is trained on these answers."""
    max_turn_tokens: Optional[int] = None
    """In the place of `rollout.max_turn_tokens`, in evaluations. null is the same."""
    max_response_tokens: Optional[int] = None
    """In the place of `rollout.max_response_tokens`, in evaluations. null is the same."""
    sets: dict[str, EvalSet] = field(default_factory=dict)
    """Named sets of tasks, played in the place of the held-out ones. Without any, the held-out tasks are played, from
    the first."""
    judge: dict[str, Any] = field(default_factory=dict)
    """In the place of `reward.judge`, for every set whose reward asks one and that names none itself: who summarises or
    judges its answers."""
    by: Optional[str] = None
    """A field of the tasks, such as `plan_length`: the number is also shown for each of its values (of a list, for each
    length). `level` is also what the environment says of a task."""
    seed: int = 0
    """Which tasks a set draws. Results with different ones are of different tasks."""
    concurrency: int = 256
    """Episodes that are played at the same time."""
    every: int = 0
    """An rl stage plays every so many steps, beside training; an sft or dpo stage measures its held-out loss. 0:
    never."""
    deadline_s: float = 900.0
    """Seconds that such an evaluation beside training may take. Then it ends with what it has, and is called partial.
    One that is due while another is under way is left out."""
    budget_tokens: Optional[int] = None
    """Tokens that one of them may sample: no further episode begins once it has. null sets no limit."""
    hold_weights: bool = False
    """Whether new weights wait for it to end, so that its numbers are of one version. Training then waits too, once its
    slots are full. false: the versions that sampled it are recorded."""
    share: float = 0.1
    """Share of the prompts in a stage's `data` that is held out for the loss: at least one prompt, at most `tasks`."""
    paper: dict[str, Optional[float]] = field(default_factory=dict)
    """A paper's figures for the held-out tasks, shown beside ours: `exact_match: 0.4057`, or of one play
    `greedy/exact_match`."""

    def __post_init__(self) -> None:
        _check(self, "eval.")
        require_bounds(self, "eval.", "at least 1", "concurrency")
        require_bounds(self, "eval.", "at least 1, or null", "budget_tokens")
        require_bounds(self, "eval.", "0 or more", "every")
        require_bounds(self, "eval.", "above 0", "deadline_s")
        require(0 < self.share < 1, "eval.share", self.share, "between 0 and 1")
        require(self.greedy or self.samples > 0, "eval.samples", 0, "at least 1 without eval.greedy")
        require(not self.judge or bool(self.sets), "eval.judge", dict(self.judge), "nothing without eval.sets")
        for name in self.sets:
            plain = bool(name) and all(letter.isalnum() or letter in "-_" for letter in name)
            require(plain, "eval.sets", name, "names of letters, digits, - and _ : they name files")


def _check(config: EvalConfig | EvalSet, prefix: str) -> None:
    or_null = ", or null" if isinstance(config, EvalSet) else ""
    require_bounds(config, prefix, f"at least 1{or_null}", "tasks", "seeds")
    require_bounds(config, prefix, "at least 1, or null", "max_turn_tokens", "max_response_tokens")
    require_bounds(config, prefix, f"0 or more{or_null}", "samples")
    require_bounds(config, prefix, f"above 0 and at most 2{or_null}", "temperature")
    require_bounds(config, prefix, "above 0 and at most 1, or null", "top_p")
    given = [value for value in config.paper.values() if value is not None]
    if any(not isinstance(value, float | int) or isinstance(value, bool) for value in given):
        raise BadInput(f"{prefix}paper={dict(config.paper)!r}: expected a number for each metric")
