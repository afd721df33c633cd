"""What a set of `eval.sets` is: its environment, reward, tasks and sampling, and what is refused."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.config.compose import compose, to_yaml
from launch.driver.evaluation.sets import Play, plays_of, recipes_of, sets_of, values_by_field
from launch.driver.stages.train import check_stage
from rlsys.config.evaluation import EvalConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.config.rollout import RolloutConfig
from rlsys.errors import BadInput, differences
from rlsys.types import Task
from tests.makers.made import jsonl
from tests.refused import refused

HEAD = """
name: many
env: {name: calculator, train_tasks: 16, held_out_tasks: 40, instruction: ""}
reward: {name: answer, format: 0.2}
eval:
  tasks: 30
  samples: 2
  sets:
    small: {tasks: 5, seeds: 3, temperature: 0.7, top_p: 0.95, max_turn_tokens: 8, paper: {accuracy: 0.5}}
    short: {env: {max_turns: 2}, greedy: false, split: train}
    other: {env: {name: questions, held_out_tasks: 7}, reward: {name: multiple_choice}, samples: 0}
stages: [{name: rl, kind: rl, steps: 1}]
"""


def recipe(tmp_path: Path, *overrides: str, text: str = HEAD) -> RecipeConfig:
    path = tmp_path / "many.yaml"
    path.write_text(text)
    return compose(str(path), list(overrides)).stages[0].config


def test_each_set_has_its_own_environment_reward_and_sampling(tmp_path: Path) -> None:
    small, short, other = sets_of(recipe(tmp_path))
    assert (small.recipe.env.max_turns, short.recipe.env.max_turns) == (None, 2)
    assert short.recipe.env.instruction == ""  # else as the stage's
    assert (other.recipe.env.name, other.recipe.env.held_out_tasks, other.recipe.reward.name) == (
        "questions",
        7,
        "multiple_choice",
    )
    assert small.recipe.reward.format == 0.2
    assert [len(eval_set.tasks) for eval_set in (small, short, other)] == [5, 16, 7]
    plays = plays_of(recipe(tmp_path))
    assert list(plays) == ["small/greedy", "small/sampled", "short/sampled", "other/greedy"]
    plan = plays["small/sampled"].plan()
    assert (plan.purpose, plan.group_size, plan.temperature, plan.top_p) == ("eval-small-sampled", 6, 0.7, 0.95)
    assert (plan.max_turn_tokens, plays["small/greedy"].plan().top_p) == (8, 1.0)
    assert [config.env.name for config in recipes_of(recipe(tmp_path))] == ["calculator"] * 3 + ["questions"]


def test_the_tasks_of_a_set_are_drawn_by_seed_and_more_of_them_continue_fewer(tmp_path: Path) -> None:
    def drawn(*overrides: str) -> list[str]:
        return [task.task_id for task in sets_of(recipe(tmp_path, *overrides))[0].tasks]

    five, ten = drawn(), drawn("eval.sets.small.tasks=10")
    assert ten[:5] == five and len(set(ten)) == 10
    assert drawn("eval.seed=1") != five == drawn()
    alone = sets_of(recipe(tmp_path, text=HEAD.split("  sets:")[0] + "stages: [{kind: rl, steps: 1}]"))[0]
    world = [task.task_id for task in alone.tasks]
    assert (alone.name, len(world)) == ("", 30) and five != world[:5]


def test_a_field_that_results_are_shown_by_is_one_that_tasks_have() -> None:
    world: Any = SimpleNamespace(level=lambda task: f"{len(task.question)} letters")
    tasks = [Task(task_id=f"{n}", question="q" * n, record={"hops": n % 2, "parts": ["a"] * n}) for n in range(50)]
    assert values_by_field(tasks, "hops", world)["3"] == "1" and values_by_field(tasks[:9], "parts", world)["3"] == "3"
    assert values_by_field(tasks[:9], "level", world)["3"] == "3 letters"
    lacks = [*tasks[:2], Task(task_id="x", question="q")]
    assert values_by_field(lacks, "hops", world)["x"] == "none"
    with refused("eval.by", found="hop", says="did you mean 'hops'"):
        values_by_field(tasks, "hop", world)
    with refused("eval.by", found="parts"):
        values_by_field(tasks, "parts", world)


def test_a_set_has_a_field_of_its_own(tmp_path: Path) -> None:
    small, short, _ = sets_of(recipe(tmp_path, "eval.by=level", "eval.sets.short.by=nothing"))
    assert set(small.values) == {task.task_id for task in small.tasks} and set(small.values.values()) <= set("123")
    with refused("eval.by", found="nothing"):
        _ = short.tasks


def test_a_judge_is_given_once_for_all_sets_that_ask_one(tmp_path: Path) -> None:
    reward = "reward: {name: judged, answer: message}"
    own = "reward: {name: judged, judge: {endpoint: http://127.0.0.1:2/v1, model: own}}"
    text = HEAD.replace("{max_turns: 2}, ", "{max_turns: 2}, group: g, " + reward + ", ").replace(
        "reward: {name: multiple_choice}", own
    )
    keys = ("eval.judge.endpoint=http://127.0.0.1:1/v1", "eval.judge.model=m", "eval.sets.short.steps_of=small")
    small, short, other = sets_of(recipe(tmp_path, *keys, text=text))
    assert not hasattr(small.recipe.reward, "judge")
    assert (short.recipe.reward.judge.model, short.recipe.reward.answer, short.group) == ("m", "message", "g")
    assert other.recipe.reward.judge.model == "own"
    with refused("eval.sets.short.steps_of", says="has no field 'parent'"):
        _ = short.tasks
    with refused("eval.sets.short.steps_of", found="smal"):
        recipe(tmp_path, "eval.sets.short.steps_of=smal", text=text)
    with refused("eval.sets.short.steps_of", found="short"):
        recipe(tmp_path, "eval.sets.short.steps_of=short", text=text)
    with refused("eval.judge", says="no reward of eval.sets asks a"):
        recipe(tmp_path, "eval.judge.modell=m")  # nobody would have read it
    with refused("eval.judge", expected="nothing without eval.sets"):
        recipe(tmp_path, *keys[:2], text=text.split("  sets:")[0] + "stages: [{kind: rl, steps: 1}]")


def test_what_a_set_lacks_is_said_before_a_run(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(HEAD)
    config = compose(str(tmp_path / "many.yaml"), ["eval.sets.small.by=hops"])
    with refused("eval.by", found="hops"):
        check_stage(config, config.stages[-1])


def test_two_evaluations_are_of_the_same_prompts_or_are_not(tmp_path: Path) -> None:
    def digest(*overrides: str) -> str:
        return plays_of(recipe(tmp_path, *overrides))["small/greedy"].digest()

    assert digest() == digest("learner.lr=1", "eval.concurrency=3", "eval.sets.short.tasks=2")
    for other in ("env.max_turns=3", "eval.sets.small.tasks=6", "eval.seed=2", "reward.format=0.1", "seed=1"):
        assert digest(other) != digest()


DRAWS = ("seed=1", "eval.seed=2", "env.seed=3", "eval.sets.small.tasks=6", "eval.sets.small.seeds=1", "eval.samples=9")
WAYS = {
    "env.template_args={enable_thinking: false}": "env.template_args",
    "env.system=Be brief.": "env.system",
    "env.max_turns=3": "env.max_turns",
    "reward.format=0.1": "reward.format",
    "eval.sets.small.temperature=0.9": "eval.temperature",
    "eval.sets.small.max_turn_tokens=9": "eval.max_turn_tokens",
    "engine.max_model_len=99": "engine.max_model_len",
}


def test_which_tasks_and_seeds_are_drawn_is_no_other_way(tmp_path: Path) -> None:
    def play(*overrides: str) -> Play:
        return plays_of(recipe(tmp_path, *overrides))["small/sampled"]

    first = play()
    for key in DRAWS:
        assert play(key).way() == first.way() and play(key).digest() != first.digest(), key
    for key, other in WAYS.items():
        way = play(key).way()
        assert [name for name in {**way, **first.way()} if way.get(name) != first.way().get(name)] == [other]
        assert play(key).digest() != first.digest()
    assert plays_of(recipe(tmp_path, "eval.sets.small.temperature=0.9"))["small/greedy"].way()["eval.temperature"] == 0
    alone = replace(first.of.recipe, rollout=RolloutConfig(top_p=0.5), eval=EvalConfig())
    assert replace(first, of=replace(first.of, recipe=alone)).way()["eval.top_p"] == 0.5


def test_the_prompts_are_what_the_tasks_ask_and_not_the_files_name(tmp_path: Path) -> None:
    def identity(folder: str, answer: str) -> dict[str, Any]:
        (tmp_path / folder).mkdir(exist_ok=True)
        path = jsonl(tmp_path / folder / "tasks.jsonl", [{"question": "q?", "answers": [answer]}])
        keys = (f"eval.sets.other.env.data={path}", "eval.sets.other.split=all", "eval.sets.other.reward.name=answer")
        return plays_of(recipe(tmp_path, *keys))["other/greedy"].identity()

    first = identity("a", "1")
    assert identity("moved", "1") == first  # a world is made once for each path
    assert differences(first, identity("other", "2")).startswith("what the tasks ask=")  # as --resume says it


def test_a_resolved_recipe_reads_back_to_the_same_sets(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(HEAD)
    config = compose(str(tmp_path / "many.yaml"), ["eval.sets.small.tasks=6"])
    (tmp_path / "again.yaml").write_text(to_yaml(config))
    assert compose(str(tmp_path / "again.yaml"), []) == config


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("eval.sets.small.task=3", "eval.sets.small.task: unknown key"),
        ("eval.sets.small=3", "eval.sets.small=3: expected keys and values"),
        ("eval.sets.small.env.max_turn=3", "eval.sets.small.env: max_turn: unknown key (did you mean 'max_turns'?)"),
        ("eval.sets.small.env.max_turns=none", "eval.sets.small.env: "),
        ("eval.sets.small.env.name=maze", "eval.sets.small.env: env.name='maze': expected one of"),
        ("eval.sets.small.top_p=2", "top_p=2"),
        ("eval.samples=-1", "eval.samples=-1: expected 0 or more"),
        ("eval.greedy=false eval.samples=0", "eval.samples=0: expected at least 1 without eval.greedy"),
        ("checkpoint.best=small/greedily/accuracy", "such as small/greedy/accuracy"),
        ("eval.sets.a.b/c={}", "unknown key"),
    ],
)
def test_what_is_refused_is_one_line(override: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        recipe(tmp_path, *override.split())
    assert line in str(caught.value) and "\n" not in str(caught.value)


STAGED = HEAD.replace(
    "kind: rl, steps: 1}]", "kind: rl, steps: 1}, {name: test, kind: eval, eval.sets.long: {tasks: 9}}]"
)
LEFT_OUT = (
    (("eval.sets.short=null",), ["small", "other"], ["small", "other", "long"]),
    (("eval.sets.long=null",), ["small", "short", "other"], ["small", "short", "other"]),
    (("stages.test.eval.sets.small=null",), ["small", "short", "other"], ["short", "other", "long"]),
    (("eval.sets.small=null", "stages.test.eval.sets.long=null"), ["short", "other"], ["short", "other"]),
)


@pytest.mark.parametrize(("overrides", "rl", "test"), LEFT_OUT)
def test_a_set_is_left_out_by_null(tmp_path: Path, overrides: tuple[str, ...], rl: list[str], test: list[str]) -> None:
    path = tmp_path / "many.yaml"
    path.write_text(STAGED)
    config = compose(str(path), list(overrides))
    assert [list(stage.config.eval.sets) for stage in config.stages] == [rl, test]
    written = tmp_path / "config.yaml"
    written.write_text(to_yaml(config))  # a run that is continued leaves it out too
    again = compose(str(written), [], saved=True)
    assert [set(stage.config.eval.sets) for stage in again.stages] == [set(rl), set(test)]


def test_a_file_leaves_out_sets_of_the_one_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(STAGED)
    stages = "stages: {test: {eval.sets.long: null, eval.sets.short: null}}"
    text = f"extends: base.yaml\neval: {{sets: {{other: null}}}}\n{stages}\n"
    assert list(recipe(tmp_path, text=text).eval.sets) == ["small", "short"]
    assert list(compose(str(tmp_path / "many.yaml"), []).stages[1].config.eval.sets) == ["small"]
    with refused("eval.sets.smal", where="many.yaml", says="did you mean 'small'"):
        recipe(tmp_path, text="extends: base.yaml\neval: {sets: {smal: null}}\n")
    with refused("eval.sets.smal", where="stages.test", says="did you mean 'small'"):
        recipe(tmp_path, text="extends: base.yaml\nstages: {test: {eval: {sets: {smal: null}}}}\n")


def test_a_set_that_is_left_out_has_to_be_there(tmp_path: Path) -> None:
    for key in ("eval.sets.smal", "stages.rl.eval.sets.smal"):
        with refused("eval.sets.smal", where="command line", says="did you mean 'small'"):
            recipe(tmp_path, f"{key}=null")
