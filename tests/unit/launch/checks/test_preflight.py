"""What a node holds of the weights is counted before anything starts."""

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from envs.worlds.prompts import PromptsConfig
from launch.checks import cpu_memory, model_size, preflight
from learners.algorithms.grpo import GRPOConfig
from learners.algorithms.sft import SFTConfig
from rlsys.config.cluster import ClusterConfig
from rlsys.config.evaluation import EvalSet
from rlsys.config.model import LoraConfig, ModelConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES
from tests.makers.made import trained
from tests.refused import refused


def recipe(path: Path) -> RecipeConfig:
    return RecipeConfig(model=ModelConfig(path=str(path)), algorithm=SFTConfig())


@pytest.mark.parametrize(("tied", "numbers"), [(False, 1000), (True, 1000 + 10 * 5)])
def test_two_versions_are_counted_with_a_tied_head_in_each(
    tied: bool, numbers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_size, "parameters", lambda _: 1000)
    config = {"tie_word_embeddings": tied, "vocab_size": 10, "hidden_size": 5, "architectures": ["Qwen3ForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "qwen3"}))
    assert model_size.weights_bytes(recipe(tmp_path), DEVICES["cpu"]) == 2 * 4 * numbers
    assert model_size.weights_bytes(recipe(tmp_path), DEVICES["cuda"]) == 2 * 2 * numbers


def test_a_hub_name_is_counted_and_rays_store_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    free = {"bytes": 10**12}

    def room(root: Path | None, needed: int) -> str:
        sizes.append(needed)
        return "" if needed <= free["bytes"] else "too little"

    monkeypatch.setattr(preflight.memory, "describe_no_room", room)
    plan, gpu = recipe(Path("Qwen/Qwen2.5-7B")), DEVICES["cuda"]
    assert model_size.parameters(plan) == pytest.approx(7_615_616_512, rel=1e-4)
    versions = model_size.weights_bytes(plan, gpu)
    assert versions == pytest.approx(2 * 2 * 7_615_616_512, rel=1e-4)
    preflight.check_weights_room(plan, gpu)
    assert sizes[-1] == versions + 8192 * 2**20
    free["bytes"] = 32 * 10**9  # for the versions, and not for both
    with refused(says="too little"):
        preflight.check_weights_room(plan, gpu)
    preflight.check_weights_room(replace(plan, cluster=ClusterConfig(weights_dir="/scratch")), gpu)
    free["bytes"] = 64 * 10**6  # Docker's: there Ray's store goes elsewhere, and so do small weights
    with refused(says="too little"):
        preflight.check_weights_room(plan, gpu)
    assert sizes[-1] == versions
    preflight.check_room(None, 6 * 10**6, 256 * 2**20)


def test_learner_ranks_have_to_fit_into_the_ram_of_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    preflight.check_host(total / 2)
    with refused(says="learner.offload=none"):
        preflight.check_host(2 * total)


def test_a_place_without_room_for_them_is_one_line(tmp_path: Path) -> None:
    preflight.check_room(str(tmp_path), 1)
    with refused(says="docker run --shm-size"):
        preflight.check_room(None, 10**18)
    with refused("cluster.weights_dir", expected="a whole path"):
        ClusterConfig(weights_dir="here")


def test_a_rank_on_cpus_holds_an_adapters_moments_and_not_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen2.5-7B: 4 bytes of each parameter, and 16 of each of the 80,740,352 of its adapter."""
    plan = recipe(Path("Qwen/Qwen2.5-7B"))
    adapted = replace(plan, model=replace(plan.model, lora=LoraConfig(rank=32)))
    later = replace(plan, model=replace(plan.model, lora=LoraConfig(rank=32, begins="rl")))
    scratch = replace(adapted, model=replace(adapted.model, path=None))
    count = model_size.parameters(plan)
    assert count == pytest.approx(7_615_616_512, rel=1e-4)
    parts = [dict(cpu_memory.rank_parts(config, count)) for config in (plan, adapted, later)]
    assert [part["weights"] for part in parts] == [4.0 * count] * 3
    trained = 80_740_352
    assert [part["optimizer"] for part in parts] == [12.0 * count, 12.0 * trained, 12.0 * count]
    own = [dict(cpu_memory.rank_parts(scratch, 1000)), dict(cpu_memory.rank_parts(plan, 1000))]
    assert own[0]["optimizer"] == own[1]["optimizer"] == 12_000
    whole, small = (cpu_memory.memory_of_parts(config, count)[1] for config in (plan, adapted))
    sums = [cpu_memory.memory_plan(config, learner=True)[1] for config in (plan, adapted)]
    assert sums[0] - sums[1] == whole - small


def test_a_rank_on_cpus_holds_a_row_and_the_reference_of_its_fullest_stage() -> None:
    plan = recipe(Path("Qwen/Qwen2.5-7B"))
    engine = replace(plan.engine, max_model_len=100)
    loop = replace(plan.loop, groups_per_step=8, group_size=8)
    rollout = replace(plan.rollout, max_turn_tokens=20)
    env = PromptsConfig(data="tasks.jsonl")
    rl = replace(plan, engine=engine, loop=loop, rollout=rollout, env=env, algorithm=GRPOConfig(kl_coef=0.1))
    parts = dict(cpu_memory.rank_parts(rl, 10**9, [trained(rl)]))
    assert parts["reference"] == 4 * 10**9
    # half of 4,096 tokens of 100 a sample, of which 20 are an answer's and an eighth of 80 a shared prompt's
    row = "activations of a row of 615 tokens"
    lean = replace(rl, model=replace(rl.model, gradient_checkpointing=True))
    assert dict(cpu_memory.rank_parts(lean, 10**9, [trained(lean)]))[row] < parts[row]
    stages = [trained(plan, "sft"), trained(replace(rl, algorithm=GRPOConfig()))]
    assert "activations of a row of 2048 tokens" in dict(cpu_memory.rank_parts(plan, 10**9, stages))


def test_too_little_memory_names_the_largest_part_and_the_keys_that_free_enough() -> None:
    available = psutil.virtual_memory().available // 2**20
    parts = (("small", 2.0**20), ("large", 2.0**40))
    with pytest.raises(BadInput) as error:
        preflight.check_memory(2 * available, parts, [("a.key=1", 1), ("b.key=2", 2 * available)])
    line = str(error.value)
    assert line.index("large") < line.index("small") and "a.key=1" in line and "b.key" not in line


def test_the_driver_holds_one_group_and_the_texts_of_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 tasks of 16 samples and a greedy one, of 32k tokens each; a group that is written is of 16 answers."""
    plan = recipe(Path("Qwen/Qwen2.5-7B"))
    plan = replace(
        plan,
        engine=replace(plan.engine, max_model_len=40_000),
        rollout=replace(plan.rollout, max_response_tokens=32_768, max_turn_tokens=32_768),
        eval=replace(plan.eval, tasks=500, samples=16),
    )
    expected = (40 * 16 * 32_768 + 5 * 500 * 17 * 32_768) // 2**20
    assert cpu_memory.episodes_mb(plan) == expected > 1000
    (driver,) = [row for row in cpu_memory.memory_plan(plan, learner=True)[0] if row.name == "driver"]
    assert dict(driver.parts)["episodes"] == expected * 2**20
    sets = {"a": EvalSet(), "b": EvalSet(tasks=100, samples=1, greedy=False, max_response_tokens=1_000)}
    more = replace(plan, eval=replace(plan.eval, sets=sets))
    assert cpu_memory.episodes_mb(more) == (40 * 16 * 32_768 + 5 * (500 * 17 * 32_768 + 100 * 1_000)) // 2**20


def test_a_file_that_hides_a_module_of_pythons_own_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.py").touch()
    (tmp_path / "random").mkdir()  # no package
    preflight.check_names(tmp_path)
    (tmp_path / "cmd.py").touch()
    with pytest.raises(BadInput, match=r"cmd.py: hides Python's own module 'cmd'.*another name"):
        preflight.check_names(tmp_path)
