"""A run that serves its own judge, and where its secrets go. What a cluster does with it is in tests/ray."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs.papers.swirl.reward import SwirlRewardConfig
from envs.services.judge.config import JudgeConfig
from envs.tools.search import SearchConfig
from envs.worlds.calculator import CalculatorConfig
from envs.worlds.search_config import SearchQAConfig
from launch.checks.gpu_plan import VLLM_SHARE
from launch.config import compose
from launch.driver.run import nodes, wire
from rlsys.config.cluster import ClusterConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.system.device import DEVICES, resolve, resolve_run
from rlsys.system.weight_folder import WeightFolder
from tests.refused import refused

KEY = "sk-very-secret-key"


def recipe(**judge: Any) -> RecipeConfig:
    plain = compose.compose("quickstart", []).recipe
    return replace(plain, env=CalculatorConfig(), reward=SwirlRewardConfig(judge=JudgeConfig(**judge)))


def test_a_reward_that_names_a_model_alone_gets_a_server_of_the_run() -> None:
    own, again, other = recipe(model="m"), recipe(model="m", outage_s=9.0), recipe(model="n")
    services = wire.services([own, again, other])
    assert list(services.restarts) == ["judge m", "judge n"]
    assert [need.gpus for need in services.needs(on_gpus=True)] == [1, 1]
    judges = [config.reward.judge.server for config in (own, again, other)]  # by which its worlds find it
    assert judges == ["judge m", "judge m", "judge n"]


@pytest.mark.parametrize("judge", [{}, {"endpoint": "https://host/v1", "model": "m"}, {"service": "http://[::1]:8100"}])
def test_a_judge_elsewhere_or_none_is_not_served(judge: dict[str, str]) -> None:
    services = wire.services([recipe(**judge)])
    assert not services.needs(on_gpus=False) and recipe(**judge).reward.judge.server == ""


def test_two_prompt_folders_are_two_judges(tmp_path: Path) -> None:
    services = wire.services([recipe(model="m"), recipe(model="m", prompts=str(tmp_path))])
    assert list(services.restarts) == ["judge m", f"judge m prompts={tmp_path}"]


def test_secrets_stand_in_no_runtime_environment_and_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray writes runtime environments into its logs."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    config = recipe(endpoint="https://host/v1", model="m", key_env="JUDGE_KEY")
    services = wire.services([config])
    pool = wire.pool(
        resolve(config, DEVICES["cpu"]), DEVICES["cpu"], "model", services.token, wire.secrets_of([config])
    )
    (spec,) = [worker.spec for worker in pool.workers]
    assert dict(spec.secrets) == {"JUDGE_KEY": KEY, SERVICE_TOKEN: services.token}
    assert services.secrets == {"JUDGE_KEY": KEY}
    text = f"{pool.options} {spec} {services} {services.env_vars}"
    assert KEY not in text and services.token not in text


def test_the_token_of_a_retriever_elsewhere_travels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", KEY)
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    elsewhere = SearchConfig(url="https://host", token_env="SEARCH_TOKEN")
    config = recipe(endpoint="https://host/v1", model="m", key_env="JUDGE_KEY")
    assert wire.secrets_of([config, replace(config, env=SearchQAConfig(retriever=elsewhere))]) == {"SEARCH_TOKEN": KEY}


def test_a_judge_that_cannot_be_served_is_said_before_anything_starts(tmp_path: Path) -> None:
    patient = {"outage_s": 1.0}
    with refused("reward.judge.model", found="./nothing"):
        nodes.check_rollouts(recipe(model="./nothing", **patient))
    (tmp_path / "proces.md").write_text("{question}")
    with refused(says="did you mean 'process'"):
        nodes.check_rollouts(recipe(model="some/hub-name", prompts=str(tmp_path), **patient))
    with refused("reward.name", found="swirl"):
        nodes.check_rollouts(recipe())
    with pytest.raises(BadInput, match=r"reward\.judge\.outage_s=9000"):
        nodes.check_rollouts(recipe(model="some/hub-name", outage_s=9000.0))
    nodes.check_rollouts(recipe(model="some/hub-name", **patient))
    assert not os.path.exists("some")


def test_what_blocks_is_found_before_the_deadlines_of_the_episodes_that_wait_for_it() -> None:
    def limit(*overrides: str) -> float:
        run = resolve_run(compose.compose("quickstart", list(overrides)), DEVICES["cpu"])
        playing = [stage.config for stage in run.stages if stage.kind == "rl"]
        pool = wire.pool(run.recipe, DEVICES["cpu"], "model", "token", {}, playing=playing)
        return pool.workers[0].spec.block_s

    assert limit() == 30.0
    assert limit("rollout.block_timeout_s=5") == 5.0
    assert limit("rollout.episode_timeout_s=20") == 10.0
    assert limit("stages.rl.rollout.episode_timeout_s=8") == 4.0  # the workers are the run's, the deadlines a stage's
    assert limit("rollout.episode_timeout_s=20", "stages.rl.rollout.episode_timeout_s=900") == 30.0


def test_an_engine_takes_a_gpu_for_each_of_its_partitions_and_the_run_says_what_becomes_of_running_caches() -> None:
    overrides = ["engine.tensor_parallel=4", "rollout.workers=2", "loop.running_kv=recompute"]
    config = compose.compose("quickstart", overrides).recipe
    devices = (DEVICES["cuda"], DEVICES["cpu"])
    gpu, cpu = (wire.pool(resolve(config, device), device, "m", "token", {}) for device in devices)
    assert (gpu.options.gpus, cpu.options.gpus) == (4, 0)
    assert "CUDA_VISIBLE_DEVICES" not in gpu.options.env_vars
    assert cpu.options.env_vars["CUDA_VISIBLE_DEVICES"] == ""
    spec = gpu.workers[0].spec.engine
    assert (spec.tensor_parallel, spec.running_kv) == (4, "recompute")


def test_what_a_run_on_gpus_asks_of_its_nodes() -> None:
    overrides = ["engine.tensor_parallel=4", "rollout.workers=2", "learner.ranks=3"]
    judged = SwirlRewardConfig(judge=JudgeConfig(model="m", gpus=2))
    config = replace(compose.compose("quickstart", overrides).recipe, reward=judged)
    services = wire.services([config])
    needs = wire.rank_needs(config, DEVICES["cuda"]) + wire.engine_needs(config, services, DEVICES["cuda"])
    assert [(need.cpus, need.gpus) for need in needs] == [(1, 1)] * 3 + [(8, 4)] * 2 + [(8, 2)]
    on_cpus = wire.rank_needs(config, DEVICES["cpu"]) + wire.engine_needs(config, services, DEVICES["cpu"])
    assert [(need.cpus, need.gpus) for need in on_cpus] == [(1, 0)] * 6


def test_a_retriever_takes_gpus_only_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpus(**options: Any) -> list[float]:
        config = replace(recipe(), env=SearchQAConfig(retriever=SearchConfig(**options)))
        return [need.gpus for need in wire.services([config]).needs(on_gpus=True)]

    assert gpus(kind="dense") == [0] and gpus(kind="dense", gpus=2) == [2]
    with refused(says="env.retriever.gpus=1: no effect"):
        compose.compose("worlds/search", ["env.retriever.gpus=1"])


def test_a_service_takes_the_cpus_that_its_key_says() -> None:
    def cpus(on_gpus: bool, judge: JudgeConfig, **options: Any) -> list[float]:
        config = replace(
            recipe(), env=SearchQAConfig(retriever=SearchConfig(**options)), reward=SwirlRewardConfig(judge=judge)
        )
        return [need.cpus for need in wire.services([config]).needs(on_gpus=on_gpus)]

    own = JudgeConfig(model="m", threads=6)
    assert cpus(True, own, kind="dense", threads=16) == cpus(False, own, kind="dense", threads=16) == [16, 6]
    plain = JudgeConfig(model="m")
    assert cpus(True, plain, kind="dense") == [8, 8] and cpus(False, plain, kind="dense") == [1, 1]
    assert cpus(True, plain, kind="bm25") == [1, 8]  # its sums take one thread
    with refused(says="env.retriever.threads=4: no effect"):
        compose.compose("worlds/search", ["env.retriever.threads=4"])


def test_what_the_user_says_of_the_network_reaches_every_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"NCCL_IB_HCA": "mlx5", "GLOO_SOCKET_IFNAME": "ib0", "PYTORCH_ALLOC_CONF": "backend:native"}
    monkeypatch.setenv("HF_TOKEN", KEY)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config, device = compose.compose("quickstart", []).recipe, DEVICES["cuda"]
    pool = wire.pool(resolve(config, device), device, "m", "token", wire.secrets_of([config]))
    group, services = wire.learner(resolve(config, device), device), wire.services([config])
    for env_vars in (pool.options.env_vars, group.options.env_vars, services.env_vars):
        assert variables.items() <= env_vars.items() and KEY not in env_vars.values()
    for secrets in (pool.workers[0].spec.secrets, group.secrets, services.secrets):
        assert secrets["HF_TOKEN"] == KEY


def test_variables_of_the_configuration_reach_every_actor_and_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    monkeypatch.setenv("HF_HUB_CACHE", "/cache")
    overrides = ["cluster.env={VLLM_LOGGING_LEVEL: INFO, NCCL_SOCKET_IFNAME: ib0}", "learner.ranks=2"]
    config, device = compose.compose("quickstart", overrides).recipe, DEVICES["cpu"]
    pool = wire.pool(resolve(config, device), device, "m", "token", {})
    group, services = wire.learner(resolve(config, device), device), wire.services([config])
    for env_vars in (pool.options.env_vars, group.options.env_vars, services.env_vars):
        assert env_vars["VLLM_LOGGING_LEVEL"] == "INFO" and env_vars["NCCL_SOCKET_IFNAME"] == "ib0"
        assert env_vars["HF_HUB_CACHE"] == "/cache" and KEY not in env_vars.values()


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("JUDGE_API_KEY", "writes these into its logs"),
        ("hf_token", "writes these into its logs"),
        ("WANDB_PASS", "writes these into its logs"),
        ("DB_PWD", "writes these into its logs"),
        ("CUDA_VISIBLE_DEVICES", "sets it"),
        ("RLSYS_OWNER", "sets it"),
        ("A-B", "no name"),
    ],
)
def test_variables_that_no_configuration_may_hold(variable: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        ClusterConfig(env={variable: "hidden value"})
    assert "hidden value" not in str(refused.value)


def test_what_only_sounds_like_a_secret_is_taken_and_an_address_with_a_password_is_not() -> None:
    ClusterConfig(env={"TOKENIZERS_PARALLELISM": "true", "VLLM_KEEP": "1", "HTTPS_PROXY": "http://proxy:3128"})
    with refused("cluster.env.HTTPS_PROXY", says="not shown"):
        ClusterConfig(env={"HTTPS_PROXY": "http://me:word@proxy:3128"})


def test_a_path_of_the_users_stands_beside_that_of_his_own_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "custom_folders", lambda: ["/home/me/worlds"])
    path = wire.environment(ClusterConfig(env={"PYTHONPATH": "/opt/site"}), {})["PYTHONPATH"].split(os.pathsep)
    assert path[0] == "/opt/site" and "/home/me/worlds" in path


def test_dumps_of_nccl_lie_in_the_run_directory_and_a_collective_ends_before_its_call(tmp_path: Path) -> None:
    overrides = ["learner.ranks=2", "learner.update_timeout_s=900", "learner.start_timeout_s=600"]
    config, device = compose.compose("quickstart", overrides).recipe, DEVICES["cuda"]
    group = wire.learner(resolve(config, device), device, tmp_path / "nccl")
    env_vars = group.options.env_vars
    assert Path(env_vars["TORCH_FR_DUMP_TEMP_FILE"]).parent == tmp_path / "nccl" and (tmp_path / "nccl").is_dir()
    assert env_vars["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert [spec.collective_timeout_s for spec in group.specs] == [840.0, 840.0]  # and not those of a start


def test_ranks_on_gpus_grow_their_segments_unless_the_user_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    config = compose.compose("quickstart", []).recipe.learner
    assert wire.learner_environment(replace(config, ranks=10**6), DEVICES["cpu"])["OMP_NUM_THREADS"] == "1"
    assert wire.learner_environment(config, DEVICES["cuda"])["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert "PYTORCH_ALLOC_CONF" not in wire.learner_environment(config, DEVICES["cpu"])
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    assert "PYTORCH_ALLOC_CONF" not in wire.learner_environment(config, DEVICES["cuda"])


@pytest.mark.parametrize("prefix", ["sk-proj-", "hf_", "ghp_"])
def test_a_value_that_looks_like_a_key_is_refused_and_not_shown(prefix: str) -> None:
    value = prefix + "a1B2c3D4e5F6g7H8"
    with refused("cluster.env.EXTRA", says="writes these into its logs") as caught:
        compose.compose("quickstart", [f"cluster.env={{EXTRA: {value}}}"])
    assert value not in str(caught.value)
    compose.compose("quickstart", ["cluster.env={EXTRA: task-12, MODEL: hf_cache}"])


def test_a_teacher_that_is_served_is_a_service_of_training_alone() -> None:
    keys = ["algorithm.name=opd", "learner.reference=/teacher", "learner.serve_reference=true"]
    trained = compose.compose("quickstart", [*keys, "learner.reference_gpus=2"]).stages[-1].config
    (server,) = wire.services([trained], [trained]).servers
    assert (server.name, server.gpus, server.config.model) == ("reference", 2, "/teacher")
    (need,) = wire.services([trained], [trained]).needs(on_gpus=True)
    assert need.gpus == 2 and "learner.reference_gpus" in need.lower
    assert server.config.max_model_len == trained.engine.max_model_len
    assert server.config.engine.gpu_memory_utilization == VLLM_SHARE  # of GPUs of its own, whatever a rollout's has
    assert wire.services([trained]).servers == []  # as of an evaluation
    loaded = replace(trained, learner=replace(trained.learner, serve_reference=False, reference_gpus=1))
    assert wire.services([trained], [loaded]).servers == []


@pytest.mark.parametrize(
    ("teacher", "more", "share"),
    [
        ("Qwen/Qwen2.5-7B", [], 0.92),
        ("google/gemma-2-9b-it", [], 0.91),
        ("google/gemma-2-9b-it", ["engine.vllm={max_num_batched_tokens: 8192}"], 0.71),
        ("google/gemma-2-9b-it", ["engine.vllm={max_num_batched_tokens: 8192}", "engine.max_model_len=1024"], 0.92),
    ],
)
def test_a_served_teacher_is_started_with_the_share_that_its_vocabulary_leaves(
    teacher: str, more: list[str], share: float
) -> None:
    keys = ["algorithm.name=opd", f"learner.reference={teacher}", "learner.serve_reference=true"]
    overrides = [*keys, "cluster.gpu_memory_gb=80", "engine.max_model_len=8192", *more]
    trained = compose.compose("quickstart", overrides).stages[-1].config
    (server,) = wire.services([trained], [trained]).servers
    assert server.config.engine.gpu_memory_utilization == share


SLEEP = ["cluster.placement=sleep", "learner.ranks=4", "rollout.workers=4", "rollout.threads=8"]


def test_who_takes_turns_gets_a_bundle_for_each_gpu_and_two_places_in_it() -> None:
    config, device = compose.compose("quickstart", SLEEP).recipe, DEVICES["cuda"]
    services = wire.services([recipe(model="m")])
    services.on_gpus = True
    needs = wire.needs_of_run(config, services, device)
    assert [(need.gpus, need.cpus, need.gathers) for need in needs[:4]] == [(1, 9, False)] * 4
    assert [need.what for need in needs[4:]] == [need.what for need in services.needs(on_gpus=True)]
    places = wire.places_of_run(config, ["a", "b", "c", "d", "judge"])
    assert places == ["a", "b", "c", "d", "a", "b", "c", "d", "judge"]  # ranks, workers, services
    assert {need.gpus for need in wire.needs_of_run(config, None, device)} == {1}
    assert wire.gpus_each(config, device) == 0.5


def test_who_does_not_has_a_place_of_its_own() -> None:
    config, device = compose.compose("quickstart", ["learner.ranks=2", "rollout.workers=3"]).recipe, DEVICES["cuda"]
    needs = wire.needs_of_run(config, wire.services([config]), device)
    assert [need.gpus for need in needs] == [1] * 5
    assert wire.places_of_run(config, list("abcde")) == list("abcde")


def test_an_engine_that_shares_its_gpu_in_turn_can_sleep_and_recomputes_what_it_forgot(tmp_path: Path) -> None:
    config = compose.compose("quickstart", SLEEP).recipe
    for device, sleeps in ((DEVICES["cuda"], True), (DEVICES["cpu"], False)):
        full = resolve(config, device)
        pool = wire.pool(full, device, "model", "", {}, WeightFolder(tmp_path))
        assert {worker.spec.engine.sleeps for worker in pool.workers} == {sleeps}
        assert {worker.spec.engine.running_kv for worker in pool.workers} == {"recompute"}
