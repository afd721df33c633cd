"""`envs`: several environments in one stage, each a recipe of its own; what contradicts itself is one line."""

from pathlib import Path

import pytest
import yaml

from envs.mixture import MixtureConfig
from launch.commands.config import format_changes
from launch.config.compose import compose, last_recipe, to_yaml
from launch.driver.evaluation.sets import sets_of
from launch.driver.observe.trackers.base import flatten_config
from launch.run_dir.settings import flatten
from launch.tools.plan.answers import assume_answers
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from tests.refused import refused

ENVS = """
reward: {name: answer}
curriculum: {name: difficulty}
envs:
  - name: questions
    label: sums
    weight: 3
    curriculum: {name: uniform}
    reward: {name: long_cot, max_length: 64, repetition_penalty: 0}
  - {name: calculator, max_turns: 4}
"""
STAGES = "stages: [{name: sft, kind: sft, steps: 1}, {name: rl, kind: rl, steps: 1}]\n"


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(ENVS + STAGES)
    return str(path)


def rl(config: str, *overrides: str) -> RecipeConfig:
    return compose(config, overrides).stages[-1].config


def test_each_environment_is_a_recipe_with_its_own_keys_reward_and_curriculum(config: str) -> None:
    recipe = rl(config)
    assert isinstance(recipe.env, MixtureConfig)
    assert {name: share.weight for name, share in recipe.envs.items()} == {"sums": 3, "calculator": 1}
    sums, words = recipe.by_env["sums"], recipe.by_env["calculator"]
    assert (sums.env.name, sums.reward.name, sums.curriculum.name) == ("questions", "long_cot", "uniform")
    assert (words.env.max_turns, words.reward.name, words.curriculum.name) == (4, "answer", "difficulty")
    assert sums.envs == words.envs == {} and sums.by_env == {"": sums}


def test_a_run_reads_its_own_file_again(config: str, tmp_path: Path) -> None:
    begun = compose(config, ["stages.sft.envs=sums", "stages.rl.envs.sums.weight=5"])
    saved = tmp_path / "config.yaml"
    saved.write_text(to_yaml(begun))
    assert compose(str(saved), [], saved=True) == begun == compose(str(saved), [])
    written = yaml.safe_load(saved.read_text())
    assert (written["env"], written["reward"]) == (None, None)
    assert [entry["label"] for entry in written["envs"]] == ["sums", "calculator"]


def test_a_recipe_with_one_environment_writes_nothing_of_several() -> None:
    assert "envs" not in yaml.safe_load(to_yaml(compose("quickstart", [])))


def test_one_of_them_is_a_recipe_as_if_there_were_no_others(config: str, tmp_path: Path) -> None:
    alone = tmp_path / "alone.yaml"
    alone.write_text(
        "reward: {name: answer}\ncurriculum: {name: difficulty}\nenv: {name: calculator, max_turns: 4}\n" + STAGES
    )
    assert compose(config, ["envs=calculator"]) == compose(str(alone), [])
    assert compose(config, ["envs.sums=null"]) == compose(str(alone), [])
    assert last_recipe(config, ["envs=sums"]).env.name == "questions"


def test_the_command_line_changes_entries_by_their_names(config: str) -> None:
    recipe = rl(config, "envs.sums.sums.max_terms=2", "envs.sums.reward.margin=8", "envs.calculator.weight=0.5")
    assert recipe.by_env["sums"].env.sums.max_terms == 2
    assert recipe.by_env["sums"].reward.margin == 8
    assert recipe.envs["calculator"].weight == 0.5


def test_a_set_called_as_an_environment_changes_what_that_one_has(tmp_path: Path) -> None:
    entries = [
        f"{{name: reasoning_gym, label: {family}, families: {{{family}: {{}}}}, reward: {{name: reasoning_gym}}}}"
        for family in ("gcd", "lcm")
    ]
    path = tmp_path / "mine.yaml"
    path.write_text(f"envs: [{', '.join(entries)}]\neval: {{sets: {{gcd: {{}}, lcm: {{}}}}}}\n" + STAGES)
    recipe = rl(str(path), "eval.sets.lcm.env.families.chain_sum={}")
    assert [list(eval_set.recipe.env.families) for eval_set in sets_of(recipe)] == [["gcd"], ["lcm", "chain_sum"]]


def test_a_named_environment_takes_the_place_of_several(config: str) -> None:
    stages = compose(config, ["stages.sft.env.name=calculator"]).stages
    assert (stages[0].config.env.name, stages[0].config.envs) == ("calculator", {})
    assert len(stages[1].config.envs) == 2


def test_a_stage_has_several_where_the_recipe_has_one(tmp_path: Path) -> None:
    path = tmp_path / "staged.yaml"
    path.write_text(
        "env: {name: calculator, seed: 7}\nreward: {name: answer}\nstages:\n- {name: sft, kind: sft, steps: 1}\n"
        "- {name: rl, kind: rl, steps: 1, envs: [{name: calculator}, {name: questions, style: answer_tag}]}\n"
    )
    config = compose(str(path), [])
    assert config.stages[0].config.env.seed == 7
    assert config.stages[1].config.by_env["calculator"].env.seed == 0  # `env` is another choice
    saved = tmp_path / "config.yaml"
    saved.write_text(to_yaml(config))
    assert compose(str(saved), [], saved=True) == config


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["env.seed=3"], "env.seed: there are several environments, expected envs.sums.seed or envs.calculator.seed"),
        (["envs.sum.weight=3"], "envs: no environment 'sum' (did you mean 'sums'?)"),
        (["envs=words"], "envs: no environment 'words' (known: sums, calculator)"),
        (["envs.sums.weight=0"], "envs.sums: weight=0.0: expected a number above 0"),
        (["envs.sums.weight=many"], "envs.sums: weight='many': expected a number above 0"),
        (["envs.sums.max_turns=2"], "unknown key"),
        (["envs.calculator.reward.name=answer"], "reward: no environment reads it: each has its own"),
        (["envs.sums.label=plus"], "envs.sums.label: it has its name, expected it in the list"),
        (["envs=3"], "envs=3: expected a list of environments"),
        (["envs=[]"], "envs: it is empty, expected at least one environment, or env"),
        (["envs=[{weight: 1}]"], "envs.0: no name"),
        (["envs=[{name: graph, label: a/b}]"], "envs.0.label='a/b': expected letters"),
        (["envs=[{name: graph}, {name: graph}]"], "envs: two are called 'graph', expected a label for one of them"),
        (["envs=[{name: grap}, {name: graph}]"], "envs.grap: env.name='grap': expected one of"),
        (["env.name=graph", "envs=sums"], "env and envs: one environment and several are given"),
        (["envs.sums.style=answer_tag"], "envs.sums: reward.name='long_cot' reads an answer in"),
        (["stages.rl.kind=generate", "stages.rl.steps=null"], "a stage of kind generate has one environment"),
        (
            [
                "stages.sft=null",
                "algorithm.name=ppo",
                "curriculum.name=uniform",
                "envs.sums.reward.repetition_penalty=-1",
            ],
            "the reward of sums has the token stream 'repetition', and the rewards differ",
        ),
        (["stages.sft.data=a.jsonl"], "a stage of kind sft with data has one environment"),
        (["eval.sets={other: {tasks: 3}}"], "eval.sets.other.env: no name, and there are several environments"),
        (["checkpoint.best=greedy/accuracy"], "such as sums/greedy/accuracy"),
    ],
)
def test_a_contradiction_is_one_line(config: str, overrides: list[str], line: str) -> None:
    with refused(says=line):
        compose(config, overrides)


def test_a_list_to_change_must_be_there() -> None:
    with pytest.raises(BadInput, match="no list of environments"):
        compose("quickstart", ["envs.calculator.weight=2"])


def test_commands_about_one_environment_ask_which(config: str) -> None:
    with pytest.raises(BadInput, match="envs=sums or envs=calculator"):
        last_recipe(config, [])


def test_rlsys_config_shows_the_keys_of_each(config: str) -> None:
    lines = format_changes(rl(config))
    assert {"envs.sums.weight = 3", "envs.calculator.weight = 1", "envs.calculator.reward.name = answer"} <= {*lines}
    assert "envs.calculator.max_turns = 4 (default null)" in lines
    assert not any(line.startswith(("env.", "envs =")) for line in lines)


def test_a_plan_assumes_as_many_answers_of_each_as_its_share(config: str) -> None:
    """Three groups of one message of 64 tokens, and one of four messages."""
    answers = assume_answers(rl(config, "loop.groups_per_step=4"), None)
    assert answers.mean_tokens == answers.packed == (3 * 64 + 4 * 64) / 4
    shorter = assume_answers(rl(config, "loop.groups_per_step=4"), 50)
    assert shorter.packed == 50 and shorter.mean_tokens == pytest.approx(50, rel=0.02)


def test_keys_of_a_file_are_named_by_the_environment(config: str) -> None:
    values = yaml.safe_load(to_yaml(compose(config, [])))
    assert dict(flatten(values))["envs.sums.weight"] == 3.0
    assert flatten_config(to_yaml(compose(config, [])))["envs"]["calculator"]["max_turns"] == 4
