"""Every key that a stage accepts is read there; what actors are made from is refused in a stage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from launch.config.compose import compose
from launch.config.keys import recipe_keys, values_of
from launch.config.scope import RUN_KEYS
from launch.driver.run import wire
from rlsys.config.recipe import RecipeConfig
from rlsys.system.device import DEVICES, resolve
from tests.refused import refused

ROOT = Path(__file__).parents[4]
KEYS = [key.name for key in recipe_keys() if not key.name.startswith("eval.sets.")]
# The plan of a group has them, and the time of an episode follows from the latter.
PLANNED = ("rollout.episode_timeout_s", "rollout.infra_retries", "rollout.data_retries")
FOLLOWED = ("envs", "rollout.max_turn_tokens", "rollout.max_response_tokens")


def of_run(key: str) -> bool:
    return any(key == run_key or key.startswith(f"{run_key}.") for run_key in RUN_KEYS)


def watched(part: Any, prefix: str, read: set[str]) -> Any:
    """The same dataclass, noting which keys are read."""

    def get(self: Any, name: str) -> Any:
        if name in names:
            read.add(prefix + name)
        return object.__getattribute__(self, name)

    inner = {field.name: getattr(part, field.name) for field in fields(part)}
    names = {name for name, value in inner.items() if not is_dataclass(value)}
    seen: Any = object.__new__(type(type(part).__name__, (type(part),), {"__getattribute__": get}))
    chosen = ("env", "reward", "algorithm")
    for name, value in inner.items():
        section = is_dataclass(value) and name not in chosen
        seen.__dict__[name] = watched(value, f"{prefix}{name}.", read) if section else value
    return seen


def test_what_the_actors_of_a_run_are_made_from_is_refused_in_a_stage() -> None:
    read: set[str] = set()
    device = DEVICES["cpu"]
    recipe = watched(resolve(compose("quickstart", []).recipe, device), "", read)
    wire.pool(recipe, device, "model", "", {})
    wire.learner(recipe, device)
    wire.rank_needs(recipe, device)
    wire.services([recipe])
    wire.resolved_model_path(recipe)
    read -= {*PLANNED, *FOLLOWED}
    assert {"rollout.block_timeout_s", "learner.ping_timeout_s"} <= read
    assert {key for key in read if not of_run(key)} == set()


def sources() -> Iterator[str]:
    for package in ("rlsys", "envs", "actors", "learners", "launch"):
        for path in (ROOT / package).rglob("*.py"):
            if not path.name.endswith("config.py") and path.parent != ROOT / "rlsys" / "config":
                yield path.read_text()


def test_what_a_run_reads_outside_of_its_stages_is_refused_in_a_stage() -> None:
    """`run.config.recipe.loop.mismatch_limit`: written like this wherever a run reads a key of its own."""
    text = "\n".join(path.read_text() for path in (ROOT / "launch" / "driver" / "run").glob("*.py"))
    read = {match for match in re.findall(r"\bconfig\.recipe\.(\w+\.\w+)", text)}
    assert "loop.mismatch_limit" in read
    assert {key for key in read if key in KEYS and not of_run(key)} == set()


def test_every_key_has_a_reader() -> None:
    derived = (ROOT / "rlsys" / "config" / f"{name}.py" for name in ("loop", "learner"))  # their properties are readers
    whole = "\n".join([*sources(), *(path.read_text() for path in derived)])
    unread = [key for key in KEYS if not re.search(rf"\.{key.rpartition('.')[2]}\b", whole)]
    assert unread == []


@pytest.mark.parametrize("key", [key for key in KEYS if of_run(key) and key != "name"])
def test_a_key_of_the_whole_run_is_refused_in_a_stage(key: str) -> None:
    with refused(where="stages.rl", says="holds for the whole run"):
        compose("quickstart", [f"stages.rl.{key}={plain(key)}"])


def plain(key: str) -> str:
    value: Any = reduce(getattr, key.split("."), RecipeConfig())
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value or "x")


def test_a_run_that_has_such_a_key_in_a_stage_can_be_continued(tmp_path: Path) -> None:
    """A rule that is younger than a run refuses no file of that run."""
    saved = tmp_path / "config.yaml"
    saved.write_text("stages: [{name: rl, kind: rl, steps: 2, rollout: {block_timeout_s: 900}}]")
    assert compose(str(saved), [], saved=True).stages
    with refused(says="block_timeout_s holds for the whole run"):
        compose(str(saved), [])


def test_the_walk_sees_every_section() -> None:
    sections = {field.name for field in fields(RecipeConfig)} - {"env", "reward", "algorithm"}
    assert {key.partition(".")[0] for key in KEYS} == sections
    assert {name for name, *_ in values_of(RecipeConfig()) if "." in name and "eval.sets" not in name} <= set(KEYS)
