"""Configuration: precedence, and one clear line for everything that cannot be used."""

from pathlib import Path

import pytest

from launch.config.compose import compose, to_yaml
from launch.config.layers import CONFIGS
from learners.algorithms.grpo import GRPOConfig
from learners.algorithms.sft import SFTConfig
from rlsys.errors import BadInput
from tests.refused import refused

RECIPES = [path for path in sorted(CONFIGS.rglob("*.yaml")) if path.parent.name != "ablations"]  # those: tests/e2e


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_recipe_loads(path: Path) -> None:
    assert compose(str(path), []).stages


def test_a_value_of_the_wrong_kind_is_named_with_its_layer_whatever_else_is_wrong() -> None:
    with refused(where="command line", says="wandb.mode='zzz': expected"):
        compose("quickstart", ["rollout.workers=0", "wandb.mode=zzz"])


def write(tmp_path: Path, text: str, name: str = "recipe.yaml") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


STAGES = "stages: [{name: a, kind: sft, steps: 2, learner: {lr: 0.5}}, {name: b, kind: rl, steps: 3}]\n"


def test_precedence_is_defaults_base_file_stage_command_line(tmp_path: Path) -> None:
    write(tmp_path, "seed: 1\nlearner: {lr: 0.1, warmup_steps: 7}\n" + STAGES, "base.yaml")
    config = write(tmp_path, "extends: base.yaml\nseed: 2\nlearner: {lr: 0.2}\n")
    sft, rl = compose(config, []).stages
    assert (sft.config.seed, sft.config.learner.warmup_steps) == (2, 7)
    assert (sft.config.learner.lr, rl.config.learner.lr) == (0.5, 0.2)
    sft, rl = compose(config, ["learner.lr=0.3", "stages.b.learner.lr=0.4", "stages.0.steps=9"]).stages
    assert (sft.config.learner.lr, rl.config.learner.lr, sft.steps) == (0.3, 0.4, 9)


def test_two_recipes_share_no_part_that_is_somebody_elses_class(tmp_path: Path) -> None:
    config = write(tmp_path, STAGES)
    first, second = compose(config, []).recipe, compose(config, []).recipe
    assert (first.env, first.reward) == (second.env, second.reward)
    assert first.env is not second.env
    assert first.reward is not second.reward


def test_scientific_notation_is_a_number_in_files_and_on_the_command_line(tmp_path: Path) -> None:
    assert compose(write(tmp_path, "learner: {lr: 1e-6}\n" + STAGES), []).recipe.learner.lr == 1e-6
    assert compose(write(tmp_path, STAGES), ["learner.lr=2e-6"]).recipe.learner.lr == 2e-6


def test_nothing_behind_the_sign_is_the_empty_text_and_null_is_null(tmp_path: Path) -> None:
    config = write(tmp_path, "env: {name: questions, data: x, style: answer_tag}\n" + STAGES)
    given = ["env.instruction=", "stages.a.env.instruction=null", "stages.b.env.template_args.mood=  "]
    recipe, (sft, rl) = (run := compose(config, given)).recipe, run.stages
    assert (recipe.env.instruction, sft.config.env.instruction, rl.config.env.instruction) == ("", None, "")
    assert rl.config.env.template_args == {"mood": ""}
    assert compose(config, []).recipe.env.instruction is None


def test_each_kind_of_stage_has_its_algorithm_and_keys_go_to_the_one_they_fit(tmp_path: Path) -> None:
    config = write(tmp_path, "algorithm: {name: grpo, clip_low: 0.1}\n" + STAGES)
    sft, rl = compose(config, ["algorithm.clip_high=0.5"]).stages
    assert isinstance(sft.config.algorithm, SFTConfig)
    assert isinstance(rl.config.algorithm, GRPOConfig)
    assert (rl.config.algorithm.clip_low, rl.config.algorithm.clip_high) == (0.1, 0.5)


def test_epochs_become_steps(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        "env: {name: calculator, train_tasks: 100}\n"
        "stages: [{name: a, kind: rl, epochs: 1.5, loop: {groups_per_step: 8}}]\n",
    )
    assert compose(config, []).stages[0].steps == 19  # 150 / 8, rounded up


def test_the_resolved_config_reads_back_to_the_same(tmp_path: Path) -> None:
    first = compose("quickstart", ["seed=3", "stages.rl.steps=4", "learner.betas=[0.8,0.9]"])
    again = compose(write(tmp_path, to_yaml(first), "resolved.yaml"), [])
    assert again == first


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("learner.lrr=1", "command line: learner.lrr: unknown key (did you mean 'learner.lr'?)"),
        ("learner.lr=abc", "command line: learner.lr='abc': expected a number"),
        ("learner.zero_stage=5", "command line: learner.zero_stage=5: expected one of 1, 2, 3"),
        ("learner.betas=[1,x]", "command line: learner.betas=[1, 'x']: expected a list of numbers, 2 of them"),
        ("curriculum.weights=[1]", "command line: curriculum.weights=[1]: expected keys, each with a number"),
        ("eval.sets=[nq]", "command line: eval.sets=['nq']: expected keys and values"),
        ("eval.sets={nq: {reward: {name: functions, functions: [f]}}}", "eval.sets.nq.reward: "),
        ("learner.betas.0=0.8", "command line: learner.betas.0: an entry of a list is not set alone"),
        ("model.lora.targets.0=q_proj", "expected model.lora.targets=[..]"),
        ("name.x=3", "command line: name={'x': 3}: expected a text"),
        ("algorithm.dual_clip=much", "command line: algorithm.dual_clip='much': expected a number or null"),
        ("env.sandbox=3", "command line: env.sandbox: unknown key"),
        ("env.train_task=4", "command line: env.train_task: unknown key (did you mean 'env.train_tasks'?)"),
        (
            "env.name=calculater",
            "command line: env.name='calculater': expected one of calculator",
        ),
        ("algorithm.clip_lo=1", "command line: algorithm.clip_lo: unknown key (did you mean 'algorithm.clip_low'?)"),
        ("loop.group_size=0", "config: loop.group_size=0: expected at least 1"),
        ("stages.rll.steps=3", "command line: no stage 'rll': the stages are sft, rl"),
        ("stages.rl.seed=3", "quickstart: stages.rl: seed holds for the whole run: give it outside of stages"),
        ("stages.rl.steps=few", "quickstart: stages.rl.steps='few': expected a whole number, 0 or more"),
        ("rollout.top_p=0.8", "rollout.top_p=0.8: expected 1 in an rl stage"),
        ("eval.samples=-1", "config: eval.samples=-1: expected 0 or more"),
        ("env.name=[1]", "command line: env.name=[1]: expected one of calculator"),
        ("learner.lr=", "command line: learner.lr='': expected a number"),
        ("algorithm.dual_clip=", "command line: algorithm.dual_clip='': expected a number or null"),
        ("learner.betas=", "command line: learner.betas='': expected a list of numbers, 2 of them"),
        ("eval.sets.mine=", "command line: eval.sets.mine='': expected keys and values, or null to leave it out"),
        ("learner=", "command line: learner='': expected keys and values"),
        ("stages.rl=", "stages.NAME=null to leave a stage out"),
        ("stages.rl.stpes=5", "stpes: unknown key (did you mean 'steps'?)"),
        ("name=a/b", "config: name='a/b': expected letters"),
        ("learner=3", "command line: learner=3: expected keys and values"),
        ("lonely", "command line: 'lonely', expected key=value"),
        ("env.data=/no/such/file.jsonl", "/no/such/file.jsonl: cannot be read (No such file or directory)"),
    ],
)
def test_bad_input_is_one_clear_line(override: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        config = compose("quickstart", [override])
        from envs import make_world

        make_world(config.recipe.env)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_config_are_named(tmp_path: Path) -> None:
    for text, part in (
        ("a: [1", "not readable as YAML"),
        ("seed: 1\nname: x\nlearner: {lr: 1\n", "line 3: not readable as YAML"),
        ("- 1\n", "expected keys and values"),
        ("seed: 1\nseed: 2\n", "not readable as YAML"),
        ("seed: 1\n", "no stages"),
    ):
        with pytest.raises(BadInput, match=part) as caught:
            compose(write(tmp_path, text), [])
        assert "recipe.yaml" in str(caught.value)
    with refused(says="did you mean 'quickstart'"):
        compose("quickstar", [])
    with refused(says="extends itself"):
        compose(write(tmp_path, "extends: recipe.yaml\n"), [])


def test_a_stage_is_left_out_from_the_command_line(tmp_path: Path) -> None:
    config = write(tmp_path, STAGES)
    (rl,) = compose(config, ["stages.a=null", "stages.1.steps=7"]).stages
    assert (rl.name, rl.steps) == ("b", 7)
    (sft,) = compose(config, ["stages.1=null"]).stages
    assert sft.name == "a"
    for overrides, part in (
        (["stages=null"], "stages.NAME=null to leave a stage out"),
        (["stages.c=null"], "no stage 'c': the stages are a, b"),
        (["stages.a=3"], "expected stages.NAME.key=value"),
        (["stages.a=null", "stages.a.steps=3"], "'stages.a.steps=3': stage a was left out"),
        (["stages.a=null", "stages.b=null"], "no stages"),
    ):
        with pytest.raises(BadInput, match=part):
            compose(config, overrides)


def test_a_window_sets_what_has_to_agree_and_refuses_what_does_not(tmp_path: Path) -> None:
    config = write(tmp_path, "extends: worlds/sums\nwindow: {tokens: 640, prompt: 128}\nstages: {sft: null}\n")
    line = "stages.rl: {}: expected {}, as window.tokens=640 and window.prompt=128 say"
    with pytest.raises(BadInput) as refused:  # worlds/sums has numbers of its own
        compose(config, [])
    assert str(refused.value).endswith(line.format("engine.max_model_len=320", "at least 640"))
    fitting = ["engine.max_model_len=700", "rollout.max_turn_tokens=512", "reward.max_length=512"]
    (rl,) = compose(config, fitting).stages
    assert (rl.config.rollout.max_response_tokens, rl.config.window.response) == (512, 512)
    for override, expected in (
        ("rollout.max_turn_tokens=513", "at most 512"),
        ("rollout.max_response_tokens=500", "512"),
        ("reward.max_length=160", "512"),
    ):
        with pytest.raises(BadInput) as refused:
            compose(config, [*fitting, override])
        assert str(refused.value).endswith(line.format(override, expected))
    bare = write(tmp_path, "window: {tokens: 640, prompt: 128}\nreward: {name: long_cot}\n" + SUMS, "bare.yaml")
    recipe = compose(bare, []).stages[0].config
    assert (recipe.engine.max_model_len, recipe.rollout.max_turn_tokens, recipe.reward.max_length) == (640, 512, 512)
    plain = write(tmp_path, "window: {tokens: 640, prompt: 128}\nreward: {name: answer}\n" + PPO, "plain.yaml")
    assert compose(plain, []).stages[0].config.reward.max_length is None  # it has one beside a buffer only


PPO = "algorithm: {name: ppo}\nstages: [{name: a, kind: rl, steps: 2}]\n"
SUMS = "env: {name: questions, sums: {max_terms: 3}}\n" + PPO


def test_a_file_changes_some_stages_of_the_one_that_it_extends(tmp_path: Path) -> None:
    write(tmp_path, STAGES, "base.yaml")
    config = write(tmp_path, "extends: base.yaml\nstages: {a: null, b: {steps: 9, loop: {group_size: 4}}}\n")
    (only,) = compose(config, []).stages
    assert (only.name, only.kind, only.steps, only.config.loop.group_size) == ("b", "rl", 9, 4)
    for stages, line in (
        ("{c: {steps: 1}}", "stages.c: the stages that it extends are a, b"),
        ("{a: 3}", "stages.a=3: expected keys and values, or null to leave it out"),
    ):
        with pytest.raises(BadInput) as refused:
            compose(write(tmp_path, f"extends: base.yaml\nstages: {stages}\n"), [])
        assert str(refused.value).endswith(line)
