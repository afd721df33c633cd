"""What is looked at on every node of a cluster; two real nodes are in tests/e2e/test_services_on_nodes.py."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import launch.driver.run.nodes
from actors.services import ServiceSpec, check_world, start_world
from envs import make_world, new_player
from envs.papers.swirl.reward import SwirlRewardConfig
from envs.services.judge.config import JudgeConfig
from envs.tools.search import SearchConfig
from envs.worlds.calculator import CalculatorConfig
from envs.worlds.questions import QuestionsConfig
from envs.worlds.search_config import SearchQAConfig
from launch.checks import hardware, machine
from launch.checks.preflight import check_output
from launch.driver.run.engines import scratch_folder
from launch.driver.run.nodes import (
    NodeRequirements,
    Probe,
    cache_folders,
    check_node,
    check_nodes,
    check_rollouts,
    name_node,
    needs_by_part,
)
from launch.driver.run.record import place_parts
from launch.driver.run.rundir import open_locked
from launch.driver.run.shared_folders import answer_probe, check_answers, mark_folders
from rlsys import VERSION
from rlsys.config.cluster import ClusterConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.config.rollout import RolloutConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.system.card_memory import Card, Holder
from rlsys.system.device import DEVICES
from tests.refused import refused

RECIPE = RecipeConfig(rollout=RolloutConfig(workers=2), env=CalculatorConfig(train_tasks=8, held_out_tasks=2))
MODEL = ("model.path", "/shared/model")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.driver.run.shared_folders.SEEN_S", 0.0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def corpus(path: str) -> SearchQAConfig:
    return SearchQAConfig(data="questions.jsonl", retriever=SearchConfig(corpus=path))


def test_parts_stand_in_the_order_in_which_they_are_placed() -> None:
    server = ServiceSpec(name="s", config=None, start=start_world)
    rank, engine, other, service = needs_by_part(RECIPE, [RECIPE], [server], DEVICES["cpu"], MODEL, ranks=1)
    assert engine == other and engine.playing == (RECIPE,) and rank.playing == () and service.models == ()
    # 721,984 parameters in float32: 8 bytes in an engine (weights and a packed copy); a rank's row is most of it
    assert engine.memory_mb == 2100 + RECIPE.engine.kv_cache_mb + 5 and rank.memory_mb == 500 + 900 + 103
    together = rank + engine + other + service
    assert together == NodeRequirements(
        models=(MODEL,),
        playing=(RECIPE,),
        serving=(server,),
        memory_mb=rank.memory_mb + 2 * engine.memory_mb,
        weights=(None, 2 * 4 * 721_984, 256 << 20),  # two versions, and a CPU's store
    )
    taught = ("learner.reference", "/teacher")  # no engine loads it
    of_rank, of_engine, *_ = needs_by_part(RECIPE, [], [], DEVICES["cpu"], MODEL, ranks=1, teachers=[taught])
    assert (of_rank.models, of_engine.models) == ((MODEL, taught), (MODEL,))
    on_gpus = needs_by_part(RECIPE, [], [], DEVICES["cuda"], MODEL, ranks=1)
    assert [need.memory_mb for need in on_gpus] == [0, 0, 0]
    assert all(need.gpus for need in on_gpus) and not together.gpus
    played = needs_by_part(RECIPE, [RECIPE], [], DEVICES["cpu"], MODEL, ranks=0)
    assert [need.weights for need in played] == [None, None]  # a checkpoint, which nobody sends


def test_a_node_whose_gpus_cannot_be_used_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_unusable", lambda: "no CUDA: NVIDIA driver 535 knows CUDA up to 12.2")
    with refused(says="driver 535"):
        check_node(NodeRequirements() + NodeRequirements(gpus=True), (), make_world)
    check_node(NodeRequirements(), (), make_world)


def test_a_shared_folder_is_told_from_one_of_the_same_name(tmp_path: Path) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    shared.mkdir()
    other.mkdir()
    with mark_folders([("--run-dir d", shared)]) as (mark,):
        own = replace(mark, file=f"{mark.file} 10.0.0.2")
        answer_probe(own)
        assert Path(own.file).read_text() == mark.nonce
        check_answers([mark], ["10.0.0.2"])
        with refused(says="node 10.0.0.3: --run-dir d: what"):
            check_answers([mark], ["10.0.0.3"])
        elsewhere = replace(own, file=str(other / Path(own.file).name))
        with pytest.raises(BadInput, match="^--run-dir d: not the driver's folder there, expected one that all nodes"):
            answer_probe(elsewhere)
    assert not [*shared.iterdir(), *other.iterdir()]
    with (
        pytest.raises(BadInput, match="^key: .*/nothing cannot be written"),
        mark_folders([("key", tmp_path / "nothing")]),
    ):
        pass


def test_versions_in_a_folder_on_a_disk_take_no_ram(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[float] = []
    monkeypatch.setattr(launch.driver.run.nodes.preflight, "check_host", sizes.append)
    monkeypatch.setattr(launch.driver.run.nodes.preflight, "check_room", lambda *_: None)
    for folder in (None, "/local/weights"):
        check_node(NodeRequirements(host_bytes=100.0, weights=(folder, 20, 0)), (), make_world)
    assert sizes == [120.0, 100.0]


def test_what_a_node_lacks_is_named_by_its_key(tmp_path: Path) -> None:
    def problem(holds: NodeRequirements) -> str:
        with pytest.raises(BadInput) as error:
            check_node(holds, (), make_world)
        return str(error.value)

    assert (
        problem(NodeRequirements(models=(("model.path", "/nothing/there"),)))
        == "model.path='/nothing/there': no such folder"
    )
    missing = str(tmp_path / "corpus.jsonl")
    serving = ServiceSpec(name="s", config=corpus(missing), start=start_world, check=check_world)
    assert problem(NodeRequirements(serving=(serving,))) == f"env.retriever.corpus={missing!r}: no such file or folder"
    assert "too little memory" in problem(NodeRequirements(memory_mb=10**9))
    away = replace(RECIPE, env=SearchQAConfig(retriever=SearchConfig(url="http://127.0.0.1:9")))
    assert "no server answers there" in problem(NodeRequirements(playing=(away,)))
    assert "set cluster.weights_dir" in problem(NodeRequirements(weights=("/nothing/there", 0, 0)))
    ranks = NodeRequirements(host_bytes=10.0**17) + NodeRequirements(host_bytes=9 * 10.0**17)
    assert "its learner ranks keep about 1,000,000,000 GB in RAM" in problem(ranks)
    assert "free, two versions of the weights" in problem(NodeRequirements(weights=(str(tmp_path), 10**18, 0)))
    check_node(NodeRequirements(), (), make_world)


def test_who_plays_needs_no_data(tmp_path: Path) -> None:
    config = QuestionsConfig(data=str(tmp_path / "of the driver's.jsonl"))
    with refused(says="cannot be read"):
        make_world(config)
    player = new_player(config)
    assert player.max_turns == 1
    with refused(says="cannot be read"):
        player.tasks("train")


def test_a_probes_error_names_the_node() -> None:
    bad = type("TaskError", (Exception,), {"cause": BadInput("env.sandbox: no walls")})("...")
    assert str(name_node("node 10.0.0.2", bad)) == "node 10.0.0.2: env.sandbox: no walls"
    other = name_node(
        "node 10.0.0.2", RuntimeError("The actor failed to import:\nModuleNotFoundError: No module named 'launch'")
    )
    assert isinstance(other, BadInput)
    assert str(other).startswith(
        "node 10.0.0.2: no module 'launch' there: install it there in the same place, or send it"
    )
    assert isinstance(name_node("node 10.0.0.2", RuntimeError("out of memory")), RunFailed)


def test_answers_of_a_judge_are_not_kept_where_they_are_lost_with_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def recipe(file: str | None) -> RecipeConfig:
        judge = JudgeConfig(model="some/hub-name", cache_file=file, outage_s=1.0)
        return replace(RECIPE, reward=SwirlRewardConfig(judge=judge))

    config = recipe("/shared/judge.sqlite")
    assert cache_folders([config, config, recipe(None), RECIPE]) == [
        ("reward.judge.cache_file='/shared/judge.sqlite'", Path("/shared"))
    ]
    check_rollouts(recipe("judge.sqlite"))  # on this machine alone it is not lost
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with refused("reward.judge.cache_file", found="judge.sqlite"):
        check_rollouts(recipe("judge.sqlite"))


def test_what_a_command_builds_for_all_nodes_lies_where_they_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scratch_folder(ClusterConfig(), None) is None
    elsewhere = ClusterConfig(address="10.0.0.1:6379")
    assert scratch_folder(elsewhere, str(tmp_path / "out.jsonl")) == tmp_path
    assert scratch_folder(replace(elsewhere, scratch_dir=str(tmp_path)), None) == tmp_path
    with refused("cluster.scratch_dir", found=None):
        scratch_folder(elsewhere, None)
    with refused("cluster.scratch_dir", found="/nothing"):
        scratch_folder(ClusterConfig(scratch_dir="/nothing"), None)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with refused("--output", found="out.json", expected="an absolute path"):
        check_output("out.json")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (11, "another process"),  # EWOULDBLOCK
        (37, r"its file system cannot lock files \(No locks available\).*-o flock"),  # ENOLCK
        (95, "its file system cannot lock files"),  # EOPNOTSUPP
    ],
)
def test_a_file_system_without_locks_is_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    import os

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(BadInput, match=f"^--run-dir d: {said}"):
        open_locked(tmp_path / ".lock", "wb", "--run-dir d", "another process is running in it")


@pytest.mark.parametrize("device, said", [("cpu", []), ("cuda", ["GPU 1"])])
def test_a_card_of_this_machine_that_others_fill_is_named_before_anything_starts_on_it(
    device: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [Card("0", "a", "H100", 81008, 500), Card("1", "b", "H100", 81008, 60000, (Holder(4321, "jax", 59000),))]
    looks: list[str] = []
    monkeypatch.setattr(hardware, "cards_of_machine", lambda: looks.append("smi") or cards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    none: Any = SimpleNamespace(servers=[])
    nodes = asyncio.run(check_nodes([], RECIPE, [], none, DEVICES[device], model=MODEL, shared=[]))
    assert [line.partition(" (")[0] for line in nodes.held] == said
    (here,) = place_parts(["learner rank 0"], nodes.placed, nodes.machines)
    assert here["gpus"]["count"] == 2 and looks == ["smi"]  # which the record of the run has from the same look


def test_a_probe_tells_which_cards_of_its_node_others_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "check_cuda", lambda: None)
    full = Card("0", "a", "H100", 81008, 60000)
    monkeypatch.setattr(hardware, "cards_of_machine", lambda: [full])
    look = Probe({}).look(VERSION, NodeRequirements(gpus=True), [])
    assert len(look.held) == 1 and "GPU 0" in look.held[0] and look.machine.cards == (full,)
    assert Probe({}).look(VERSION, NodeRequirements(), []).held == ()
