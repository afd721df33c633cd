"""What is evaluated: the sets of a recipe, the tasks that each draws, and how they are played.

A set is a recipe like any other, with its own environment, reward and sampling. Without `eval.sets` there is
one, which has no name: the held-out tasks of the recipe's own environment, from the first. Of a recipe with several
environments each has such a set, with its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, cast

from envs import REWARDS, WORLDS, make_world
from envs.base import World
from envs.rewards import judge_config_of
from launch.driver.run.playing import rollout_plan
from launch.run_dir.played import content_of
from rlsys.choices import Table, choose
from rlsys.config.evaluation import EvalConfig, EvalSet
from rlsys.config.identity import config_key, identity_of
from rlsys.config.mappings import clear
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, nearest, require
from rlsys.rollout import RolloutPlan
from rlsys.seeds import derive_seed
from rlsys.types import Task
from rlsys.untrusted import visible

# Keys of a set that stand in the place of the same ones of `eval`.
SAMPLING = ("tasks", "greedy", "samples", "seeds", "temperature", "top_p", "max_turn_tokens", "max_response_tokens")

DIGEST_VERSION = 3  # one more whenever `Play.identity` says other things of the same evaluation
FILES = ("env.data", "env.eval_data")  # what is read from them counts, wherever they lie
# Keys of an environment that say which tasks there are, and nothing of how one of them is played.
DRAWN = (
    *FILES, "env.data_split", "env.data_tasks", "env.eval_split", "env.train_tasks", "env.held_out_tasks", "env.seed",
)  # fmt: skip
LEVEL = "level"  # `eval.by` of a task without such a field: what its environment says of it
MOST_VALUES = 40  # of `eval.by`; a number for each would say nothing
ASK = "what the tasks ask"
WITHOUT = "none"  # of a task that lacks the field of `eval.by`


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    """TaskSet(name="hotpotqa", recipe=..., split="held_out", drawn=True)"""

    name: str  # of `eval.sets`, or of one of several environments; "" for the held-out tasks of the only one
    recipe: RecipeConfig  # its `env`, `reward`, and the sampling in its `eval` are those of the set
    split: str
    drawn: bool  # at random; else from the first
    paper: Mapping[str, float]
    group: str = ""
    steps_of: str | None = None  # the set whose tasks these are the single steps of

    @property
    def tasks(self) -> Sequence[Task]:
        """Those that are played, in an order that more of them only continue."""
        return self._read[0]

    @property
    def values(self) -> Mapping[str, str]:
        """By task_id, what the task has in the field `eval.by`; {} where none is asked for."""
        return self._read[1]

    @property
    def parents(self) -> Mapping[str, str]:
        """By task_id of a single step, that of its task."""
        return {task.task_id: str(task.record["parent"]) for task in self.tasks}

    @cached_property
    def contents(self) -> str:
        """A digest of what the tasks ask, in their order."""
        contents = "".join(f"{task.task_id}\n{content_of(task)}\n" for task in self.tasks)
        return hashlib.blake2b(contents.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    @cached_property
    def _read(self) -> tuple[Sequence[Task], Mapping[str, str]]:
        try:
            tasks, values = self._draw()
        except BadInput as error:
            raise BadInput(error, where=f"eval.sets.{self.name}") if self.name else error from error
        lacking = next((task for task in tasks if self.steps_of is not None and "parent" not in task.record), None)
        if lacking is not None:
            raise BadInput(f"task {lacking.task_id} has no field 'parent'", key=f"eval.sets.{self.name}.steps_of")
        return tasks, values

    def _draw(self) -> tuple[Sequence[Task], Mapping[str, str]]:
        config, world = self.recipe.eval, make_world(self.recipe.env)
        split = world.tasks(self.split)
        if self.drawn:
            seed = config.seed
            split = sorted(split, key=lambda task: (derive_seed(seed, task.task_id, task.question), task.task_id))
        tasks = split[: config.tasks]
        return tasks, values_by_field(tasks, config.by, world) if config.by is not None else {}

    def plays(self) -> dict[str, Play]:
        """By what their numbers are called: "greedy", or "hotpotqa/greedy"."""
        config, before = self.recipe.eval, f"{self.name}/" if self.name else ""
        plays = [Play(self, "greedy", 1, 1, 0.0)] if config.greedy else []
        if config.samples:
            plays.append(Play(self, "sampled", config.samples, config.seeds, config.temperature))
        return {f"{before}{play.name}": play for play in plays}


@dataclass(frozen=True, slots=True)
class Play:
    """One way of playing a set: Play(set, "sampled", samples=4, seeds=3, temperature=0.7)."""

    of: TaskSet
    name: str
    samples: int  # per task and seed
    seeds: int  # episode s of a task belongs to seed s // samples
    temperature: float

    def plan(self) -> RolloutPlan:
        """Seeds of what is sampled follow the recipe's seed, the set, the task's number and the sample alone."""
        recipe, config, name = self.of.recipe, self.of.recipe.eval, "-".join(filter(None, (self.of.name, self.name)))
        plan = rollout_plan(
            recipe,
            f"eval-{name}",
            group_size=self.samples * self.seeds,
            temperature=self.temperature,
            turn_tokens=config.max_turn_tokens,
            response_tokens=config.max_response_tokens,
        )
        top_p = config.top_p if config.top_p is not None and self.temperature else plan.top_p
        return replace(plan, top_p=top_p, priority=True)

    def way(self) -> dict[str, Any]:
        """How an episode is played and graded, whichever tasks and seeds are drawn. As JSON has it."""
        plan = self.plan()
        keys = ("temperature", "top_p", "max_turn_tokens", "max_response_tokens")
        limits = {f"eval.{key}": getattr(plan, key) for key in keys}
        parts = {key: value for key, value in self._parts().items() if key not in DRAWN}
        way: dict[str, Any] = limits | {"engine.max_model_len": plan.max_context} | parts
        return cast(dict[str, Any], json.loads(json.dumps(way, default=str)))

    def identity(self) -> dict[str, Any]:
        """What must be the same for two evaluations to have played the same prompts in the same way: the way, and what
        was drawn."""
        recipe, config = self.of.recipe, self.of.recipe.eval
        draw = {key: value for key, value in self._parts().items() if key in DRAWN and key not in FILES}
        draw |= {"seed": recipe.seed, "split": self.of.split, "drawn": self.of.drawn}
        draw |= {f"eval.{key}": getattr(config, key) for key in ("tasks", "seed")}
        return self.way() | draw | {"eval.samples": self.samples, "eval.seeds": self.seeds} | {ASK: self.of.contents}

    def _parts(self) -> dict[str, Any]:
        return identity_of("env", self.of.recipe.env) | identity_of("reward", self.of.recipe.reward)

    def digest(self) -> str:
        """Of two with one version before the colon: equal where `identity` is. Before there were versions: no colon."""
        identity = repr(sorted(self.identity().items())).encode()
        return f"{DIGEST_VERSION}:{hashlib.blake2b(identity, digest_size=8).hexdigest()}"


def values_by_field(tasks: Sequence[Task], field: str, world: World) -> dict[str, str]:
    """By task_id the value of `field`, in words. Of a list or an object it is how many it has.

    Raises BadInput for a field that no task has, and for one with more than `MOST_VALUES` values.
    """
    values = {task.task_id: _value(task, field, world) for task in tasks}
    if tasks and all(value == WITHOUT for value in values.values()):
        field_names = [LEVEL, *tasks[0].record]
        raise BadInput(f"no task has this field{nearest(field, field_names)}", key="eval.by", found=field)
    different = set(values.values())
    if len(different) > MOST_VALUES:
        raise BadInput(
            f"{len(different)} values", key="eval.by", found=field, expected=f"a field with at most {MOST_VALUES}"
        )
    return values


def _value(task: Task, field: str, world: World) -> str:
    value = task.record.get(field)
    if value is None:
        return world.level(task) if field == LEVEL else WITHOUT
    many = isinstance(value, Sequence | Mapping) and not isinstance(value, str)
    return str(len(value)) if many else visible(str(value))


def sets_of(recipe: RecipeConfig) -> tuple[TaskSet, ...]:
    """The sets of a stage's recipe. Raises BadInput for one that has no environment, or none that can be made."""
    config = recipe.eval
    if not config.sets:
        paper = {} if recipe.envs else _check_paper_figures(config.paper)
        envs = recipe.by_env.items()
        return tuple(TaskSet(name=name, recipe=part, split="held_out", drawn=False, paper=paper) for name, part in envs)
    return tuple(_make_set(name, spec, recipe) for name, spec in config.sets.items())


def plays_of(recipe: RecipeConfig) -> dict[str, Play]:
    """Of all sets of a recipe."""
    return {name: play for task_set in sets_of(recipe) for name, play in task_set.plays().items()}


def split_number(number: str, plays: Iterable[str]) -> tuple[str, str] | None:
    """split_number("greedy/part/correct", ["greedy"]) is ("greedy", "part/correct"). None where it is of no play."""
    return next(((name, number.removeprefix(f"{name}/")) for name in plays if number.startswith(f"{name}/")), None)


def recipes_played(plays: Mapping[str, Play]) -> list[RecipeConfig]:
    """Those of the sets."""
    return [play.of.recipe for play in plays.values()]


def episodes_of(plays: Mapping[str, Play]) -> int:
    return sum(len(play.of.tasks) * play.samples * play.seeds for play in plays.values())


def recipes_of(recipe: RecipeConfig) -> list[RecipeConfig]:
    """A stage's recipe, for each environment, and those of its sets: whose tools and judges an evaluation asks."""
    return [*recipe.by_env.values(), *(task_set.recipe for task_set in sets_of(recipe) if recipe.eval.sets)]


def check_sets(where: str, recipe: RecipeConfig) -> None:
    """Raises BadInput for a set that cannot be made, and for `checkpoint.best` that names no number of theirs."""
    try:
        plays = plays_of(recipe)
    except BadInput as error:
        raise BadInput(error, where=where) from error
    judge = {key: value for key, value in recipe.eval.judge.items() if value is not None}  # null takes a key back
    if judge and not any(judge_config_of(play.of.recipe.reward) for play in plays.values()):
        raise BadInput("no reward of eval.sets asks a judge", where=where, key="eval.judge", found=judge)
    best = recipe.checkpoint.best
    if best is not None and split_number(best, plays) is None:
        numbers = ", ".join(f"{name}/accuracy" for name in plays)
        raise BadInput(
            where=where, key="checkpoint.best", found=best, expected=f"a number of an evaluation, such as {numbers}"
        )


def _make_set(name: str, spec: EvalSet, recipe: RecipeConfig) -> TaskSet:
    where, config = f"eval.sets.{name}", recipe.eval
    overrides = {key: getattr(spec, key) for key in (*SAMPLING, "by") if getattr(spec, key) is not None}
    recipe = _recipe_of_set(where, name, spec, recipe)
    env = _changed_section(f"{where}.env", "env", WORLDS, recipe.env, spec.env)
    reward = _changed_section(f"{where}.reward", "reward", REWARDS, recipe.reward, spec.reward)
    try:
        sampling: EvalConfig = replace(config, sets={}, judge={}, **overrides)
    except BadInput as error:
        raise BadInput(error, where=where) from error
    if config.judge and judge_config_of(reward) and "judge" not in spec.reward:
        reward = _changed_section("eval", "reward", REWARDS, reward, {"judge": config.judge})
    if spec.steps_of is not None:
        require(
            spec.steps_of in config.sets.keys() - {name}, f"{where}.steps_of", spec.steps_of, "another of eval.sets"
        )
    set_recipe = replace(recipe, env=env, reward=reward, eval=sampling)
    return TaskSet(
        name=name,
        recipe=set_recipe,
        split=spec.split,
        drawn=True,
        paper=_check_paper_figures(spec.paper),
        group=spec.group,
        steps_of=spec.steps_of,
    )


def _recipe_of_set(where: str, name: str, spec: EvalSet, recipe: RecipeConfig) -> RecipeConfig:
    """What a set changes: of several environments the one with its name, else one that both its names replace."""
    if not recipe.envs or name in recipe.envs:
        return recipe.by_env.get(name, recipe)
    for key, part in (("env", spec.env), ("reward", spec.reward)):
        if "name" not in part:
            expected = f"it, or a set called as one of the environments: {', '.join(recipe.envs)}"
            raise BadInput("no name, and there are several environments", key=f"{where}.{key}", expected=expected)
    return replace(recipe, env=None, reward=None, envs={})


def _check_paper_figures(paper: Mapping[str, float | None]) -> dict[str, float]:
    return {key: value for key, value in paper.items() if value is not None}


# Each stage has the same sets again, and building one takes as long as a stage itself.
_known: dict[tuple[str, str], Any] = {}


def _merge_section(start: Any, changes: Mapping[str, Any]) -> Any:
    from omegaconf import OmegaConf

    key = config_key(start), config_key(changes)
    if key not in _known:
        schema = OmegaConf.structured(start)
        OmegaConf.set_readonly(schema, False)
        clear(schema, dict(changes), type(start), {})
        _known[key] = OmegaConf.to_object(OmegaConf.merge(schema, dict(changes)))
    return _known[key]


def _changed_section(where: str, key: str, table: Table, base: Any, changes: Mapping[str, Any]) -> Any:
    """A config with these keys changed; of another `name`, the defaults of that one with them."""
    from omegaconf.errors import OmegaConfBaseException

    if not changes:
        return base
    try:
        base_name = getattr(base, "name", None)
        schema = choose(key, table, changes.get("name", base_name)).schema
        unknown = [name for name in changes if name not in {field.name for field in fields(schema)}]
        if unknown:
            raise BadInput(
                f"unknown key{nearest(unknown[0], [field.name for field in fields(schema)])}", key=unknown[0]
            )
        return _merge_section(base if changes.get("name", base_name) == base_name else schema, changes)
    except BadInput as error:
        raise BadInput(error, where=where) from error
    except (OmegaConfBaseException, TypeError) as error:  # TypeError: a list in the place of keys
        cause = error.__cause__
        reason = str(cause) if isinstance(cause, BadInput) else str(error).split("\n")[0]
        raise BadInput(reason, where=where) from error
