"""Where actors are placed, over a cluster that is a table here. Real placement groups: tests/ray/test_placement.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray._private.state

import actors.placement
from actors.addresses import only_node
from actors.placement import (
    Bundle,
    Node,
    NoPlace,
    ResourceRequest,
    actor_name,
    check,
    free_nodes,
    has_place,
    pack_bundles,
    place,
    shortage,
    while_placed,
)
from rlsys.errors import RunFailed
from rlsys.system import supervisor

RANK = ResourceRequest(what="learner rank", cpus=1, gpus=1, lower="learner.ranks", gathers=True)
JUDGE = ResourceRequest(what="judge", cpus=2)


@dataclass
class Cluster:
    nodes: list[dict[str, Any]] = field(default_factory=list)
    free: dict[str, dict[str, float]] = field(default_factory=dict)
    groups: list[Any] = field(default_factory=list)
    removed: list[Any] = field(default_factory=list)
    ready: bool = True
    table: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, cpus: float, gpus: float = 0, *, alive: bool = True) -> None:
        has = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
        self.nodes.append({"NodeID": name, "NodeManagerAddress": f"10.{name}", "Alive": alive, "Resources": has})
        self.free[name] = has


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    fake_cluster = Cluster()

    def placement_group(bundles: Any, *, strategy: str, name: str) -> Any:
        async def ready() -> None:
            if not fake_cluster.ready:
                await asyncio.Event().wait()

        fake_cluster.groups.append((bundles, strategy, name))
        return SimpleNamespace(ready=ready)

    strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda **options: SimpleNamespace(**options))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)  # type: ignore[arg-type]
    monkeypatch.setitem(
        sys.modules,
        "ray.util.placement_group",
        SimpleNamespace(
            placement_group=placement_group,
            remove_placement_group=fake_cluster.removed.append,
            placement_group_table=lambda group: fake_cluster.table,
        ),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(ray, "nodes", lambda: fake_cluster.nodes)
    monkeypatch.setattr(ray._private.state, "available_resources_per_node", lambda: fake_cluster.free)
    yield fake_cluster


def test_actors_have_names_and_a_restarted_one_says_which_it_is() -> None:
    assert actor_name("r", "rollout:3") == "rlsys:r:rollout:3"
    assert actor_name("r", "rollout:3", 1) == "rlsys:r:rollout:3#1"
    assert actor_name("", "rollout:3", 1) is None


def test_each_actor_has_its_bundle_and_ranks_share_theirs(cluster: Cluster) -> None:
    cluster.add("a", 8, 2)
    places = asyncio.run(place([RANK, RANK, JUDGE, JUDGE], timeout_s=5, run="r"))
    assert cluster.groups == [([{"CPU": 2, "GPU": 2}, {"CPU": 2}, {"CPU": 2}], "PACK", "rlsys:r")]
    assert [strategy.placement_group_bundle_index for strategy in places] == [0, 0, 1, 2]
    assert not any(strategy.placement_group_capture_child_tasks for strategy in places) and not cluster.removed
    asyncio.run(place([JUDGE], timeout_s=5))
    assert cluster.groups[1] == ([{"CPU": 2}], "PACK", "")


def test_what_finds_no_place_in_time_is_given_back_and_says_what_lacks(cluster: Cluster) -> None:
    cluster.add("a", 8, 2)
    cluster.add("b", 1, 0)
    cluster.free["a"] = {"CPU": 8, "GPU": 1}
    cluster.ready = False
    with pytest.raises(RunFailed, match=r"within 0\.01 s .*no node has room for 2 x learner rank .*lacks 1 GPU"):
        asyncio.run(place([RANK, RANK], timeout_s=0.01))
    assert len(cluster.removed) == 1
    with pytest.raises(RunFailed, match="Ray did not say why"):
        asyncio.run(place([JUDGE], timeout_s=0.01))


def test_a_cluster_that_is_too_small_even_idle_is_refused(cluster: Cluster) -> None:
    cluster.add("a", 8, 2)
    cluster.add("gone", 64, 64, alive=False)
    cluster.free = {}
    check([RANK, RANK])
    assert [(node.address, node.cpus, node.gpus) for node in free_nodes()] == [("10.a", 0, 0)]
    with pytest.raises(RunFailed, match=r"too small: no node has room for learner rank .*10\.a .*lacks 1 GPU next to"):
        check([RANK, RANK, RANK])


def test_an_actor_has_a_place_while_the_node_of_its_bundle_lives(cluster: Cluster) -> None:
    cluster.add("a", 8)
    cluster.add("gone", 8, alive=False)
    where = SimpleNamespace(placement_group="group", placement_group_bundle_index=1)
    for nodes, state, present in (
        ({0: "gone", 1: "a"}, "CREATED", True),
        ({0: "a", 1: "gone"}, "CREATED", False),
        ({0: "a", 1: None}, "RESCHEDULING", False),
        ({0: "a"}, "RESCHEDULING", False),
        ({0: "a", 1: "a"}, "REMOVED", False),
    ):
        cluster.table = {"state": state, "bundles_to_node_id": nodes}
        assert has_place(where) is present
    assert has_place("DEFAULT")


def test_who_waits_for_an_actor_hears_that_its_place_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.001)
    looks = [True, True, False]
    monkeypatch.setattr(actors.placement, "has_place", lambda where: looks.pop(0))
    cancelled: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async def story() -> None:
        with pytest.raises(NoPlace, match="w0 starting: its node is gone"):
            await while_placed(work(), "there", "w0 starting")
        await asyncio.sleep(0)
        assert not looks and cancelled == [True]
        assert await while_placed(asyncio.sleep(0, "done"), "there", "w0") == "done"

    asyncio.run(story())


def test_loopback_reaches_everybody_on_the_only_node_there_ever_was(cluster: Cluster) -> None:
    cluster.add("a", 8)
    assert only_node()
    cluster.add("gone", 8, alive=False)
    assert not only_node()


def ranks(count: int, cpus: float = 1) -> list[ResourceRequest]:
    return [ResourceRequest(what="learner rank", cpus=cpus, gpus=1, lower="learner.ranks", gathers=True)] * count


def engines(count: int, gpus: int = 1) -> list[ResourceRequest]:
    return [ResourceRequest(what="rollout worker", cpus=8, gpus=gpus, lower="rollout.workers")] * count


def free(*gpus: float, cpus: float = 96) -> list[Node]:
    return [Node(address=f"10.0.0.{number}", cpus=cpus, gpus=count) for number, count in enumerate(gpus, 1)]


def gpus(bundles: list[Bundle]) -> list[float]:
    return [bundle.gpus for bundle in bundles]


def test_ranks_share_a_bundle_for_each_node_and_each_engine_has_its_own() -> None:
    bundles = pack_bundles(ranks(12) + engines(2, gpus=2), free(8, 8))
    assert gpus(bundles) == [8, 4, 2, 2]
    assert [bundle.actors for bundle in bundles] == [8, 4, 1, 1]
    assert bundles[0] == Bundle(what="8 x learner rank", actors=8, cpus=8, gpus=8, lower="learner.ranks")
    assert sum(bundle.actors for bundle in bundles) == 14


def test_ranks_are_divided_further_where_the_nodes_are_partly_taken() -> None:
    assert gpus(pack_bundles(ranks(8), free(6, 2), free(8, 8))) == [6, 2]
    assert gpus(pack_bundles(ranks(8), free(4, 4), free(8, 8))) == [4, 4]
    assert gpus(pack_bundles(ranks(8), free(3, 2), free(8, 8))) == [8]  # when others end
    assert gpus(pack_bundles(ranks(2), free(1, 1), free(2))) == [1, 1]


def test_cpus_can_be_what_divides_the_ranks() -> None:
    on_cpus = [ResourceRequest(what="learner rank", cpus=2, gathers=True)] * 2
    nodes = free(0, 0, cpus=3)
    assert [bundle.cpus for bundle in pack_bundles(on_cpus, nodes)] == [2, 2]
    assert [bundle.cpus for bundle in pack_bundles(on_cpus, free(0, cpus=4))] == [4]


def test_what_takes_nothing_of_a_node_is_one_bundle() -> None:
    idle = [ResourceRequest(what="learner rank", cpus=0, gathers=True)] * 3
    assert [bundle.actors for bundle in pack_bundles(idle, free(8))] == [3]


def test_where_no_node_has_a_gpu_yet_a_usual_one_is_waited_for() -> None:
    bundles = pack_bundles(ranks(12), free(0), free(0))
    assert gpus(bundles) == [8, 4]
    assert shortage(bundles, free(0)).startswith("no node has room for 8 x learner rank (8 GPUs and 8 CPUs): ")


def test_two_halves_of_a_node_are_no_node() -> None:
    bundles = pack_bundles(engines(1, gpus=8), free(4, 5))
    assert shortage(bundles, free(4, 5)) == (
        "no node has room for rollout worker (8 GPUs and 8 CPUs): 10.0.0.2 comes closest and lacks 3 GPUs next to the "
        "other actors; lower rollout.workers, or wait for other jobs"
    )
    assert shortage(bundles, free(4, 8)) == ""


def test_what_is_lacking_is_counted_with_the_rest_of_the_run() -> None:
    bundles = pack_bundles(ranks(4) + engines(5), free(8))
    assert "for rollout worker (1 GPU and 8 CPUs): 10.0.0.1 comes closest and lacks 1 GPU next to" in shortage(
        bundles, free(8)
    )
    assert not shortage(bundles, free(9))
    assert "lacks 4 CPUs next to" in shortage(bundles, free(9, cpus=40))


def test_what_needs_no_gpu_leaves_the_nodes_that_have_some() -> None:
    service = [ResourceRequest(what="retriever", cpus=4)]
    nodes = [*free(8, cpus=64), Node(address="10.0.0.9", cpus=4, gpus=0)]
    assert not shortage(pack_bundles(ranks(0) + engines(8) + service, nodes), nodes)


def test_a_cluster_without_a_node() -> None:
    assert shortage(pack_bundles(engines(1), []), []).endswith("(1 GPU and 8 CPUs): no node is alive")
