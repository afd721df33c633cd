"""`model.lora`: which stages train an adapter, what does not go with one, and what `--dry-run` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.checks.model_size import describe_adapter, parameters, trained_parameters
from launch.checks.preflight import check_model
from launch.config.compose import compose, to_yaml
from launch.driver.checkpoints.beginning import begins_adapter, initial_weights_of, learner_config_of
from launch.driver.checkpoints.disk_space import room_for
from rlsys.adapters import BASES, Adapter
from rlsys.system.device import DEVICES
from tests.refused import refused

LORA = "model.lora.rank=16"


def test_a_policy_from_nothing_is_taught_whole_and_gets_its_adapter_after_that() -> None:
    config = compose("quickstart", [LORA])
    assert [stage.config.model.lora.rank for stage in config.stages] == [0, 16]
    assert [begins_adapter(stage) for stage in config.stages] == [False, True]
    assert [learner_config_of(stage).lr for stage in config.stages] == [2e-3, pytest.approx(5e-3)]
    assert config.recipe.model.lora.rank == 16  # engines make room for it


def test_a_saved_configuration_says_the_same(tmp_path: Path) -> None:
    config = compose("quickstart", [LORA])
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert compose(str(tmp_path / "config.yaml"), [], saved=True) == config


def test_a_model_that_is_given_has_its_adapter_from_the_first_stage_on_or_as_asked() -> None:
    keys = ["model.path=Qwen/Qwen3-1.7B", LORA]
    assert [stage.config.model.lora.rank for stage in compose("quickstart", keys).stages] == [16, 16]
    later = compose("quickstart", [*keys, "model.lora.begins=rl"])
    assert [stage.config.model.lora.rank for stage in later.stages] == [0, 16]
    assert [stage.config.model.lora.rank for stage in compose("quickstart", []).stages] == [0, 0]


def test_the_first_adapter_is_that_of_a_stage_that_trains(tmp_path: Path) -> None:
    """One that only evaluates leaves the weights as they are, and no adapter to begin the next with."""
    path = tmp_path / "recipe.yaml"
    stages = "[{name: sft, kind: sft, steps: 5}, {name: look, kind: eval}, {name: rl, kind: rl, steps: 5}]"
    path.write_text(f"extends: quickstart\nstages: {stages}\n")
    for keys in ([LORA], ["model.path=m", LORA, "model.lora.begins=rl"]):
        config = compose(str(path), keys)
        assert [stage.config.model.lora.rank for stage in config.stages] == [0, 0, 16]
        assert [begins_adapter(stage) for stage in config.stages] == [False, False, True]
    with refused("learner.optimizer", says="trains all weights, and this one an adapter"):
        compose(str(path), [LORA, "stages.rl.learner.optimizer=run"])
    with refused("model.lora.begins", says="a stage that trains (sft, rl)"):
        compose(str(path), [LORA, "model.lora.begins=look"])


@pytest.mark.parametrize(
    ("overrides", "key", "says"),
    [
        (["stages.rl.learner.zero_stage=3"], "learner.zero_stage", "ZeRO-3 with frozen weights is not supported"),
        (["algorithm.name=ppo"], "algorithm.name", "without a critic"),
        (["learner.optimizer=run"], "learner.optimizer", "trains all weights, and this one an adapter"),
        (["model.lora.begins=rll"], "model.lora.begins", "did you mean 'rl'"),
        (["model.lora.rank=513"], "model.lora.rank", "512"),
        (["model.lora.targets=[lm_head]"], "model.lora.targets", "neither head nor embedding"),
        (["model.lora.alpha=0"], "model.lora.alpha", "above 0"),
        (["engine.vllm.enable_lora=true"], "engine.vllm.enable_lora", "say model.lora.rank"),
    ],
)
def test_what_does_not_go_with_an_adapter_is_refused(overrides: list[str], key: str, says: str) -> None:
    with refused(key, says=says):
        compose("quickstart", [LORA, *overrides])


def test_a_dry_run_says_how_large_it_is() -> None:
    """Of width 128 and 384 inside: (256 + 192 + 192 + 256 + 3 x 512) x 16 for each of three layers."""
    config = compose("quickstart", [LORA])
    count = parameters(config.recipe)
    assert count == 721_984
    assert trained_parameters(config.stages[1].config, count) == 2432 * 16 * 3 == 116_736
    first, second = describe_adapter(config, count, DEVICES["cpu"])
    assert "116,736 parameters (16.2%), 466.9 kB a version instead of 2.9 MB" in first
    assert second == "alpha / rank = 2; learning rate = learner.lr x 10 = 0.005"
    assert describe_adapter(compose("quickstart", []), count, DEVICES["cpu"]) == []
    whole, adapted = (room_for(compose("quickstart", keys), DEVICES["cpu"]) for keys in ([], [LORA]))
    assert whole is not None and adapted is not None
    assert adapted.extra == whole.extra + 4 * count  # what the sft stage has made stays, under the adapter


def test_what_a_stage_begins_with(tmp_path: Path) -> None:
    """The first adapter stands on a copy of the checkpoint before it, which outlives the checkpoint."""
    sft, rl = compose("quickstart", [LORA]).stages
    saved = tmp_path / "checkpoints" / "step-000200" / "hf"
    saved.mkdir(parents=True)
    (saved / "config.json").write_text("{}")
    (saved.parent / "driver.json").write_text("{}")
    first = str(tmp_path / "model")
    assert initial_weights_of(tmp_path, sft, first, first) == (first, None)
    model, start = initial_weights_of(tmp_path, rl, str(saved), first)
    assert start is not None and start.folder is None and start.adapter.base == model
    assert Path(model).parent == tmp_path / BASES and (Path(model) / "config.json").is_file()
    assert initial_weights_of(tmp_path, rl, str(saved), first)[0] == model
    assert initial_weights_of(tmp_path, rl, first, first)[0] == first
    later = tmp_path / "checkpoints" / "step-000220" / "hf"
    later.mkdir(parents=True)
    start.adapter.write(later)
    continued = initial_weights_of(tmp_path, rl, str(later), first)
    assert continued[0] == model and continued[1] is not None and continued[1].folder == str(later)
    with refused(says="another model.lora"):
        initial_weights_of(tmp_path, compose("quickstart", ["model.lora.rank=8"]).stages[1], str(later), first)
    with refused(says="trains no adapter"):
        initial_weights_of(tmp_path, sft, str(later), first)


def test_an_adapter_is_no_model_to_train_and_is_played_only_with_its_base(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    Adapter(base="/nowhere/base", rank=4, alpha=8.0, targets=("q_proj",)).write(tmp_path)
    with refused("model.path", says="rlsys merge"):
        check_model(str(tmp_path), learner=True)
    with refused("--checkpoint", says="/nowhere/base, which is not there"):
        check_model(str(tmp_path), learner=False, key="--checkpoint")


def test_one_gpu_is_for_one_rank_and_one_engine() -> None:
    shared = "cluster.placement=shared"
    assert compose("quickstart", [shared]).recipe.cluster.placement == "shared"
    for key in ("learner.ranks", "rollout.workers", "engine.tensor_parallel"):
        with refused(key, says="one rank and one engine on one GPU"):
            compose("quickstart", [shared, f"{key}=2"])


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["rollout.workers=2"], "rollout.workers"),
        (["engine.tensor_parallel=2"], "engine.tensor_parallel"),
        (["learner.zero_stage=3"], "learner.zero_stage"),
        (["learner.offload=optimizer"], "learner.offload"),
        (["model.lora.rank=8"], "model.lora.rank"),
        (["loop.running_kv=keep"], "loop.running_kv"),
    ],
)
def test_what_cannot_leave_a_gpu_takes_no_turns_on_it(overrides: list[str], key: str) -> None:
    with refused(key, says="with cluster.placement=sleep"):
        compose("quickstart", ["cluster.placement=sleep", *overrides])


def test_no_stage_has_what_cannot_leave_a_gpu() -> None:
    for override in ("stages.rl.learner.zero_stage=3", "stages.sft.learner.zero_stage=1"):
        with refused("learner.zero_stage", says="with cluster.placement=sleep"):
            compose("quickstart", ["cluster.placement=sleep", override])
