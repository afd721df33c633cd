"""Every key that a stage accepts is read by its kind; what its kind does not read is refused in it."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from launch.config.compose import compose, to_yaml
from launch.config.scope import RUN_KEYS, check_reads
from launch.driver.evaluation.sets import plays_of
from launch.driver.run.playing import rollout_plan
from launch.driver.stages import STAGES
from launch.driver.stages.base import StageKeys, stage_of
from launch.driver.stages.generate import plan_of
from launch.driver.stages.reads import holds
from rlsys.config.recipe import RecipeConfig, StageConfig
from rlsys.errors import BadInput
from tests.refused import refused
from tests.unit.launch.config.test_scope import KEYS as WITHOUT_CHOICES
from tests.unit.launch.config.test_scope import ROOT, of_run, watched

KEYS = [*WITHOUT_CHOICES, "eval.sets", "env.name", "reward.name", "algorithm.name"]
OWN = [key for key in KEYS if not of_run(key)]
TRAINED = (
    "learners/*.py",
    "launch/driver/run/saving.py",
    "launch/driver/checkpoints/beginning.py",
    "launch/driver/stages/base.py",
)
PLAYED = (
    *("launch/driver/run/wire.py", "launch/driver/run/playing.py", "launch/driver/run/episodes.py"),
    *("launch/driver/evaluation/[!b]*.py", "launch/driver/stages/base.py", "launch/checks/deadlines.py"),
)
GIVEN = (
    "launch/driver/stages/supervised.py",
    "launch/driver/stages/datasets.py",
    "envs/papers/swirl/reward.py",
    "rlsys/seeds.py",
)
LOOP = ("launch/driver/stages/rl*.py", "launch/driver/evaluation/background.py", "rlsys/config/*.py")
FILES = {
    "sft": (*TRAINED, *PLAYED, *GIVEN, "launch/driver/stages/sft.py"),
    "dpo": (*TRAINED, *PLAYED, *GIVEN, "launch/driver/stages/dpo.py"),
    "rl": (*TRAINED, *PLAYED, *LOOP, "rlsys/curriculum.py"),
    "stepwise": (*TRAINED, *PLAYED, *LOOP, *GIVEN, "launch/driver/stages/stepwise.py"),
    "generate": (*TRAINED, *PLAYED, "launch/driver/stages/generate.py", "launch/driver/stages/trajectories.py",
                 "actors/teacher.py", "envs/services/teacher.py", "envs/services/guard.py", "rlsys/config/generate.py",
                 "launch/driver/stages/addresses.py"),
    "judge": (*TRAINED, "launch/driver/stages/judge.py"),
    "eval": (*TRAINED, *PLAYED),
}  # fmt: skip


def nested(key: str, value: Any) -> dict[str, Any]:
    return reduce(lambda inner, part: {part: inner}, reversed(key.split(".")), value)


def accepts(head: StageKeys, key: str) -> bool:
    try:
        check_reads("x", nested(key, 1), head, RECIPE, [head])
    except BadInput:
        return False
    return True


RECIPE = compose("quickstart", []).recipe
HEADS = [StageKeys(kind=kind) for kind in STAGES] + [StageKeys(kind="sft", data="answers.jsonl")]


def test_every_key_is_of_the_whole_run_or_read_by_a_kind() -> None:
    assert [key for key in OWN if not any(accepts(head, key) for head in HEADS)] == []


@pytest.mark.parametrize("kind", STAGES)
def test_a_kind_names_keys_that_there_are_and_none_of_the_whole_run(kind: str) -> None:
    named = stage_of(kind).reads
    known = [*KEYS, *(key.rpartition(".")[0] for key in KEYS), *(key.partition(".")[0] for key in KEYS)]
    assert [key for key in named if key not in known] == []
    assert [key for key in RUN_KEYS if holds(named, key)] == []


@pytest.mark.parametrize("kind", STAGES)
def test_what_a_kind_says_that_it_reads_stands_in_its_files(kind: str) -> None:
    text = "\n".join(path.read_text() for pattern in FILES[kind] for path in sorted(ROOT.glob(pattern)))
    claimed = [key for key in OWN if holds(stage_of(kind).reads, key) and not key.endswith(".name")]
    assert [key for key in claimed if not re.search(rf"\.{key.rpartition('.')[2]}\b", text)] == []


def read_by(kind: str, tmp_path: Path) -> set[str]:
    """What the checks, the dry run, the identities and the plans of such a stage read."""
    read: set[str] = set()
    length = ", steps: 2" * stage_of(kind).has_length
    (tmp_path / "recipe.yaml").write_text(f"{SUMS}\nstages: [{{name: own, kind: {kind}{length}}}]")
    whole = compose(str(tmp_path / "recipe.yaml"), [])
    seen: RecipeConfig = watched(whole.stages[0].config, "", read)
    stage, own = stage_of(kind), StageConfig(name="own", kind=kind, steps=2, config=seen)
    stage.check("x", StageKeys(kind=kind), seen)
    stage.identity(own), stage.midway(own), stage.arithmetic(whole, own)
    if kind == "generate":
        plan_of(seen, "x")
        read.discard("rollout.top_p")  # `generate.top_p` stands in its place
    elif stage.plays:
        rollout_plan(seen, "x", group_size=2, temperature=1.0)
        for play in plays_of(seen).values():
            play.plan()
    return {key for key in read if key in OWN}


SUMS = "env: {name: calculator, train_tasks: 8}\neval: {tasks: 2}"


@pytest.mark.parametrize("kind", ["sft", "rl", "generate", "eval"])
def test_what_a_stage_reads_of_its_recipe_is_accepted_in_it(kind: str, tmp_path: Path) -> None:
    read = read_by(kind, tmp_path)
    assert read
    assert {key for key in read if not accepts(StageKeys(kind=kind), key)} == set()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("stages.sft.curriculum.name=difficulty", r"stages\.sft: curriculum\.name .* kind sft, .* stages\.rl\.curric"),
        ("stages.sft.eval.share=0.3", r"eval\.share has no effect .* kind sft without data, .* kind sft or dpo"),
        ("stages.rl.generate.samples=3", r"stages\.rl: generate\.samples .* kind rl, .* kind generate$"),
        ("stages.rl.verdicts.keep=both", r"verdicts\.keep has no effect .* expected it in a stage of kind"),
        ("stages.sft.rollout.temperature=0.5", r"expected stages\.rl\.rollout\.temperature$"),
    ],
)
def test_a_key_without_effect_is_refused_with_the_place_where_it_has_one(given: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        compose("quickstart", [given])


def test_outside_of_stages_it_speaks_to_those_that_read_it() -> None:
    sft, rl = compose("quickstart", ["loop.oversample=2"]).stages
    assert rl.config.loop.oversample == 2


def test_a_file_of_ones_own_is_held_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("stages: [{name: a, kind: sft, steps: 1, loop: {group_size: 4}}]")
    with refused(says="loop.group_size has no effect in a"):
        compose(str(tmp_path / "recipe.yaml"), [])
    assert compose(str(tmp_path / "recipe.yaml"), [], saved=True).stages  # the file of an older run


def test_what_a_file_says_to_another_kind_than_the_command_line_is_let_through() -> None:
    """`stages.swirl.kind=sft` compares two kinds on one stage of a file, whose keys are the first one's."""
    assert compose("swirl/tiny", ["stages.swirl.kind=sft"]).stages[-2].kind == "sft"
    with refused(says="has no effect in a stage of kind"):
        compose("swirl/tiny", ["stages.swirl.kind=sft", "stages.swirl.loop.group_size=4"])


@pytest.mark.parametrize("name", ["quickstart", "long_cot/tiny", "swirl/tiny"])
def test_a_runs_config_is_a_recipe_again(name: str, tmp_path: Path) -> None:
    whole = compose(name, [])
    (tmp_path / "config.yaml").write_text(to_yaml(whole))
    assert compose(str(tmp_path / "config.yaml"), []).stages == whole.stages
