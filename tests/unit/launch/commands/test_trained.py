"""A saved model is played with the template arguments that it was trained with, unless somebody gives others."""

import json
from pathlib import Path
from typing import Any

import pytest

from launch.commands.trained import with_trained_args
from launch.config.compose import compose
from launch.driver.checkpoints.model_card import write_training_facts
from launch.driver.evaluation.sets import sets_of
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.rollout import template_args_of

TRAINED = {"enable_thinking": False}
SHORT = {"effort": "low"}
MIXED = "envs=[{name: questions, label: sums, style: answer_tag}, {name: calculator}]"
OTHER = "other: {env: {name: questions}, reward: {name: multiple_choice}}"


def saved(folder: Path, *overrides: str) -> str:
    config = compose("quickstart", list(overrides))
    write_training_facts(folder, config, config.stages[-1], None)
    return str(folder)


def play(model: str | None, *overrides: str) -> tuple[RecipeConfig, list[str]]:
    lines: list[str] = []
    recipe = compose("quickstart", list(overrides)).stages[-1].config
    return with_trained_args(recipe, overrides, model, lines.append), lines


def flow(value: Any) -> str:
    return json.dumps(value)


@pytest.mark.parametrize(
    ("overrides", "args", "lines"),
    [
        ([], TRAINED, 1),
        ([f"env.template_args={flow(TRAINED)}"], TRAINED, 0),
        ([f"env.template_args={flow(SHORT)}"], SHORT, 1),
        (["env.template_args={}"], {}, 1),
        (["stages.rl.env.template_args={}"], {}, 1),
    ],
)
def test_arguments_that_nobody_gives_are_the_models(
    overrides: list[str], args: dict[str, Any], lines: int, tmp_path: Path
) -> None:
    recipe, notes = play(saved(tmp_path, f"env.template_args={flow(TRAINED)}"), *overrides)
    assert template_args_of(recipe.env) == args
    assert len(notes) == lines and all(flow(TRAINED) in line for line in notes)


def test_a_model_that_was_trained_without_any_is_played_without(tmp_path: Path) -> None:
    model = saved(tmp_path)
    assert play(model)[1] == []
    recipe, (line,) = play(model, f"env.template_args={flow(SHORT)}")
    assert template_args_of(recipe.env) == SHORT and "trained with {}" in line


@pytest.mark.parametrize("about", [None, {}, {"template_args": None}])
def test_a_model_of_which_nothing_is_known_changes_nothing(about: dict[str, Any] | None, tmp_path: Path) -> None:
    if about is not None:
        (tmp_path / "rlsys.json").write_text(json.dumps(about))
    for model in (str(tmp_path), None):
        recipe, notes = play(model)
        assert recipe == compose("quickstart", []).stages[-1].config and notes == []


def test_sets_with_an_environment_of_their_own_have_them_too(tmp_path: Path) -> None:
    recipe, _ = play(saved(tmp_path, f"env.template_args={flow(TRAINED)}"), f"eval.sets={{own: {{}}, {OTHER}}}")
    assert [template_args_of(eval_set.recipe.env) for eval_set in sets_of(recipe)] == [TRAINED] * 2


def test_each_environment_of_several_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    shared = saved(tmp_path / "shared", f"env.template_args={flow(TRAINED)}")
    apart = saved(tmp_path, MIXED.replace("sums", f"sums, template_args: {flow(TRAINED)}"))
    for model, expected in ((shared, [TRAINED, TRAINED]), (apart, [TRAINED, {}])):
        recipe, notes = play(model, MIXED)
        assert [template_args_of(part.env) for part in recipe.by_env.values()] == expected
        assert [template_args_of(part) for part in recipe.env.parts.values()] == expected
        assert len(notes) == sum(map(bool, expected))
    recipe, _ = play(apart, "env.name=calculator")
    assert template_args_of(recipe.env) == {}


@pytest.mark.parametrize("text", ["{", '{"template_args": 3}', "[1]"])
def test_a_file_that_is_none_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "rlsys.json").write_text(text)
    with pytest.raises(BadInput, match=r"rlsys\.json"):
        play(str(tmp_path))
