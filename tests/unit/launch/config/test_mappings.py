"""A mapping with names of the user's own: given as a whole it stands in the place of the one before it, a dotted key
adds, changes or leaves out one of its entries. A section goes on key by key."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from envs.rewards.answer import AnswerReward
from launch.config.compose import compose, last_recipe, to_yaml
from launch.driver.evaluation.sets import sets_of
from launch.run_dir.runs import read_config
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput
from tests.refused import refused

HERE = "tests.unit.launch.config.test_mappings"
DIGITS, NEW, MORE = (f"{HERE}.{name}" for name in ("digits", "new", "more"))


def digits(completions: list[Any], **columns: Any) -> list[float]:
    return [0.0 for _ in completions]


new = more = digits

BASE = f"""
name: base
env: {{name: reasoning_gym, families: {{chain_sum: {{weight: 2}}, gcd: {{}}}}, template_args: {{thinking: true}}}}
reward: {{name: functions, functions: {{{DIGITS}: 1.0}}}}
curriculum: {{name: mixed, weights: {{chain_sum: 1.0}}}}
engine: {{vllm: {{max_logprobs: 3, compilation_config: {{level: 3}}}}}}
eval: {{tasks: 7, sets: {{one: {{tasks: 5, env: {{instruction: ""}}, paper: {{accuracy: 0.5}}}}, two: {{}}}}}}
cluster: {{env: {{A: "1"}}}}
stages: [{{name: rl, kind: rl, steps: 1}}]
"""
# What a mapping is given anew, what it then is, and one of its entries with a dotted key.
GIVEN = {
    "reward.functions": ({NEW: 1.0}, {DIGITS: 2.0}),
    "curriculum.weights": ({"gcd": 2.0}, {"chain_sum": 3.0}),
    "env.families": ({"lcm": {"weight": 3.0}}, {"gcd": {"weight": 4.0}}),
    "env.template_args": ({"effort": "low"}, {"thinking": None}),
    "engine.vllm": ({"max_num_batched_tokens": 8}, {"max_logprobs": 4}),
    "eval.sets": ({"three": {"tasks": 9}}, {"two": {"tasks": 4}}),
    "cluster.env": ({"B": "2"}, {"A": "3"}),
}


def run(folder: Path, *overrides: str, text: str | None = None) -> RunConfig:
    (folder / "base.yaml").write_text(BASE)
    (folder / "own.yaml").write_text(f"extends: base.yaml\n{text or ''}")
    return compose(str(folder / "own.yaml"), list(overrides))


def value(config: RunConfig, key: str) -> Any:
    section: Any = config.stages[0].config
    for part in key.split("."):
        section = getattr(section, part)
    return section


def names(given: Any) -> list[str]:
    return list(given)


def flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()


def layers(key: str, value: Any, *, dotted: bool) -> list[dict[str, Any]]:
    """The ways to say it: on the command line, in a file that extends, in a stage, for a stage on the command line."""
    pairs = {f"{key}.{name}": entry for name, entry in value.items()} if dotted else {key: value}
    nested: Any = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    in_file = pairs if dotted else nested
    return [
        {"overrides": [f"{name}={flow(entry)}" for name, entry in pairs.items()]},
        {"overrides": [f"stages.rl.{name}={flow(entry)}" for name, entry in pairs.items() if stage_may(key)]},
        {"text": flow_lines(in_file)},
        {"text": flow_lines({"stages": {"rl": in_file}}) if stage_may(key) else flow_lines(in_file)},
    ]


def stage_may(key: str) -> bool:
    return not key.startswith(("engine.", "cluster."))


def flow_lines(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, default_flow_style=False, sort_keys=False)


@pytest.mark.parametrize("key", GIVEN)
def test_a_mapping_given_anew_stands_in_the_place_of_the_one_before(key: str, tmp_path: Path) -> None:
    whole, _ = GIVEN[key]
    for way in layers(key, whole, dotted=False):
        if way.get("overrides") != []:
            assert names(value(run(tmp_path, *way.get("overrides", ()), text=way.get("text")), key)) == names(whole), (
                way
            )


@pytest.mark.parametrize("key", GIVEN)
def test_a_dotted_key_changes_one_entry(key: str, tmp_path: Path) -> None:
    _, change = GIVEN[key]
    before = value(run(tmp_path), key)
    for way in layers(key, change, dotted=True):
        if way.get("overrides") == []:
            continue
        after = value(run(tmp_path, *way.get("overrides", ()), text=way.get("text")), key)
        assert names(after) == names(before), way
        assert [name for name in after if after[name] != before[name]] == names(change), way


@pytest.mark.parametrize("key", [key for key in GIVEN if key != "reward.functions"])  # of which there must be one
def test_an_empty_mapping_empties(key: str, tmp_path: Path) -> None:
    needless = ["curriculum.name=uniform"] * (key == "curriculum.weights")  # mixed needs some
    assert names(value(run(tmp_path, f"{key}={{}}", *needless), key)) == []


def test_a_section_goes_on_key_by_key(tmp_path: Path) -> None:
    config = run(tmp_path, "eval={samples: 3}", "eval.sets.one={samples: 2}", text="eval: {greedy: false}\n")
    section = value(config, "eval")
    assert (section.tasks, section.samples, section.greedy, list(section.sets)) == (7, 3, False, ["one", "two"])
    assert (section.sets["one"].tasks, section.sets["one"].samples) == (5, 2)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([f"reward.functions.{NEW}=1"], {DIGITS: 1.0, NEW: 1.0}),
        ([f"reward.functions.{DIGITS}=null", f"reward.functions.{NEW}=1"], {NEW: 1.0}),
        ([f"reward.functions={{{NEW}: 1}}", f"reward.functions.{MORE}=2"], {NEW: 1.0, MORE: 2.0}),
        ([f"reward.functions.{MORE}=2", f"reward.functions={{{NEW}: 1}}"], {NEW: 1.0}),
        ([f"reward.functions={{{MORE}: 1}}", f"reward.functions={{{NEW}: 1}}"], {NEW: 1.0}),
        ([f"reward={{name: functions, functions: {{{NEW}: 1}}}}"], {NEW: 1.0}),
        ([f"reward.functions.{MORE}=1", f"reward.functions={{{DIGITS}: null}}"], {MORE: 1.0}),
    ],
)
def test_the_functions_of_a_command_line(overrides: list[str], expected: dict[str, float], tmp_path: Path) -> None:
    assert value(run(tmp_path, *overrides), "reward.functions") == expected
    assert last_recipe(str(tmp_path / "own.yaml"), overrides).reward.functions == expected


def test_a_later_section_of_the_command_line_keeps_the_keys_before_it(tmp_path: Path) -> None:
    config = run(tmp_path, "learner.lr=0.5", "learner={clip_grad: 2}", "learner={warmup_steps: 3}")
    learner = value(config, "learner")
    assert (learner.lr, learner.clip_grad, learner.warmup_steps) == (0.5, 2.0, 3)


def test_null_is_a_value_where_it_may_be_one_and_else_leaves_an_entry_out(tmp_path: Path) -> None:
    config = run(
        tmp_path, "env.template_args.thinking=null", "env.families.gcd=null", "eval.sets.one.paper.accuracy=null"
    )
    assert value(config, "env.template_args") == {"thinking": None}
    assert names(value(config, "env.families")) == ["chain_sum"]
    assert value(config, "eval.sets")["one"].paper == {"accuracy": None}


@pytest.mark.parametrize(
    ("override", "key", "says"),
    [
        (f"reward.functions.{HERE}.digit=null", f"reward.functions.{HERE}.digit", f"did you mean '{DIGITS}'"),
        (f"stages.rl.reward.functions.{HERE}.digit=null", f"reward.functions.{HERE}.digit", "did you mean"),
        ("env.families.lcm=null", "env.families.lcm", "to leave out"),
        (f"reward.functions={{{NEW}: 1, {DIGITS}: null}}", f"reward.functions.{DIGITS}", "null leaves out"),
    ],
)
def test_what_leaves_out_nothing_is_refused(override: str, key: str, says: str, tmp_path: Path) -> None:
    with refused(key, where="command line", says=says):
        run(tmp_path, override)


def test_an_entry_of_one_stage_is_left_out_for_all(tmp_path: Path) -> None:
    config = run(tmp_path, f"reward.functions.{MORE}=null", text=f"stages: {{rl: {{reward.functions.{MORE}: 1}}}}\n")
    assert value(config, "reward.functions") == {DIGITS: 1.0}


IN_A_SET = [  # of the set `one`: overrides, families, functions
    ([], ["chain_sum", "gcd"], [DIGITS]),
    (["eval.sets.one.env.families.lcm.weight=3"], ["chain_sum", "gcd", "lcm"], [DIGITS]),
    (["eval.sets.one.env.families.gcd.weight=3"], ["chain_sum", "gcd"], [DIGITS]),
    (["eval.sets.one.env.families={lcm: {}}"], ["lcm"], [DIGITS]),
    (["eval.sets.one.env.families={lcm: {}}", "eval.sets.one.env.families.gcd={}"], ["gcd", "lcm"], [DIGITS]),
    (["eval.sets.one.env.families.gcd=null"], ["chain_sum"], [DIGITS]),
    (["eval.sets.one.env.families.lcm={}", "env.families.gcd=null"], ["chain_sum", "lcm"], [DIGITS]),
    (["eval.sets.one.env={families: {gcd: {}}}"], ["gcd"], [DIGITS]),
    (
        ["eval.sets.one.reward.timeout_s=9", f"eval.sets.one.reward.functions.{NEW}=1"],
        ["chain_sum", "gcd"],
        [DIGITS, NEW],
    ),
    ([f"eval.sets.one.reward.functions={{{NEW}: 1}}"], ["chain_sum", "gcd"], [NEW]),
    ([f"stages.rl.eval.sets.one.reward.functions.{NEW}=1"], ["chain_sum", "gcd"], [DIGITS, NEW]),
]


@pytest.mark.parametrize(("overrides", "families", "functions"), IN_A_SET)
def test_a_dotted_key_in_an_evaluation_set_changes_what_the_recipe_has(
    overrides: list[str], families: list[str], functions: list[str], tmp_path: Path
) -> None:
    config = run(tmp_path, *overrides)
    (tmp_path / "written.yaml").write_text(to_yaml(config))
    for run_config in (config, compose(str(tmp_path / "written.yaml"), [], saved=True)):
        one, two = (eval_set.recipe for eval_set in sets_of(run_config.stages[0].config))
        assert sorted(one.env.families) == families and sorted(one.reward.functions) == sorted(functions)
        assert two.env.families == value(config, "env.families")
        assert two.reward.functions == value(config, "reward.functions")


def test_in_an_evaluation_set_too_nothing_is_left_out_of_nothing(tmp_path: Path) -> None:
    with refused("eval.sets.one.env.families.lcm", where="command line", says="to leave out"):
        run(tmp_path, "eval.sets.one.env.families.lcm=null")


def test_a_key_beside_its_section_in_a_file(tmp_path: Path) -> None:
    text = f"reward.functions.{MORE}: 1\nreward: {{timeout_s: 9}}\nloop.group_size: 3\nloop: {{groups_per_step: 5}}\n"
    config = run(tmp_path, text=text)
    assert value(config, "reward.functions") == {DIGITS: 1.0, MORE: 1.0}
    assert (value(config, "reward.timeout_s"), value(config, "loop.group_size")) == (9.0, 3)
    assert value(config, "loop.groups_per_step") == 5
    with refused("learner.lrr", where="own.yaml", says="did you mean 'learner.lr'"):
        run(tmp_path, text="learner.lrr: 1\n")


@dataclass(frozen=True, kw_only=True)
class OwnRewardConfig:
    name: str = f"{HERE}.OwnReward"
    table: dict[str, float] = field(default_factory=lambda: {"a": 1.0})


class OwnReward(AnswerReward):
    def __init__(self, config: OwnRewardConfig) -> None: ...


def test_the_entries_of_a_default_are_replaced_too(tmp_path: Path) -> None:
    name = f"reward.name={OwnRewardConfig.name}"
    assert value(run(tmp_path, name), "reward.table") == {"a": 1.0}
    assert value(run(tmp_path, name, "reward.table={b: 2}"), "reward.table") == {"b": 2.0}
    assert value(run(tmp_path, name, "reward.table.b=2"), "reward.table") == {"a": 1.0, "b": 2.0}
    assert value(run(tmp_path, name, "reward.table.a=null"), "reward.table") == {}


def test_a_mapping_in_a_set_stands_in_the_place_of_the_stages(tmp_path: Path) -> None:
    config = run(
        tmp_path, f"eval.sets={{one: {{env: {{families: {{lcm: {{}}}}}}, reward: {{functions: {{{NEW}: 1}}}}}}}}"
    )
    (eval_set,) = sets_of(config.stages[0].config)
    assert (list(eval_set.recipe.env.families), eval_set.recipe.reward.functions) == (["lcm"], {NEW: 1.0})


@pytest.mark.parametrize(
    "stage",
    [
        f"reward.functions={{{NEW}: 1}}",
        f"reward.functions.{NEW}=1",
        "env.families={lcm: {}}",
        "env.template_args={}",
        "eval.sets={two: {tasks: 3}}",
        "eval.sets.one=null",
    ],
)
def test_a_run_reads_its_own_configuration_back(stage: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(BASE.replace("]", ", {name: last, kind: rl, steps: 1}]"))
    config = compose(str(tmp_path / "own.yaml"), [f"stages.last.{stage}"])
    saved = tmp_path / "config.yaml"
    saved.write_text(to_yaml(config))
    assert compose(str(saved), [], saved=True) == config
    assert compose(str(saved), ["stages.last.steps=1"]) == config


def test_a_configuration_of_an_earlier_run_says_the_entries_that_differ(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(BASE)
    written = yaml.safe_load(to_yaml(compose(str(tmp_path / "own.yaml"), [])))
    written["stages"][0] |= {"reward": {"functions": {MORE: 2.0}}, "eval": {"sets": {"two": None}}}
    saved = tmp_path / "config.yaml"
    saved.write_text(yaml.safe_dump(written))
    config = compose(str(saved), [], saved=True)
    assert value(config, "reward.functions") == {DIGITS: 1.0, MORE: 2.0}
    assert names(value(config, "eval.sets")) == ["one"]


def test_a_mixture_has_mappings_of_its_own(tmp_path: Path) -> None:
    text = BASE.replace("env: {name: reasoning_gym, ", "envs: [{name: questions}, {name: reasoning_gym, label: gym, ")
    text = text.replace("template_args: {thinking: true}}", "template_args: {thinking: true}}]")
    (tmp_path / "own.yaml").write_text(text.replace("one: {tasks: 5, env: {instruction: }", "gym: {tasks: 5"))

    plain = ("eval.sets={}", "curriculum={name: uniform, weights: {}}")

    def families(*overrides: str) -> list[str]:
        config = compose(str(tmp_path / "own.yaml"), [*plain, *overrides])
        return list(config.stages[0].config.envs["gym"].env.families)

    assert families() == ["chain_sum", "gcd"]
    assert families("envs.gym.families={lcm: {}}") == ["lcm"]
    assert families("envs.gym.families.lcm.weight=2") == ["chain_sum", "gcd", "lcm"]
    assert families("envs.gym={families: {lcm: {}}}") == ["lcm"]
    with pytest.raises(BadInput, match="to leave out"):
        families("envs.gym.families.lcm=null")


def test_what_reads_a_runs_configuration_as_yaml_sees_the_mappings_of_a_stage(tmp_path: Path) -> None:
    sets = "stages.last.eval.sets={two: {tasks: 3, paper: {accuracy: 0.25}}}"
    (tmp_path / "own.yaml").write_text(BASE.replace("]", ", {name: last, kind: rl, steps: 1}]"))
    config = compose(str(tmp_path / "own.yaml"), [sets, f"stages.last.reward.functions={{{NEW}: 1}}"])
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    (_, last) = read_config(tmp_path)["stages"]
    assert list(last["eval"]["sets"]) == ["two"] and last["eval"]["sets"]["two"]["paper"] == {"accuracy": 0.25}
    assert last["reward"]["functions"] == {NEW: 1.0}
