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
from actors.bundles import ResourceRequest
from actors.placement import NoPlace, actor_name, check, free_nodes, has_place, place, while_placed
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
    made = Cluster()

    def placement_group(bundles: Any, *, strategy: str, name: str) -> Any:
        async def ready() -> None:
            if not made.ready:
                await asyncio.Event().wait()

        made.groups.append((bundles, strategy, name))
        return SimpleNamespace(ready=ready)

    strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda **given: SimpleNamespace(**given))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)  # type: ignore[arg-type]
    monkeypatch.setitem(
        sys.modules,
        "ray.util.placement_group",
        SimpleNamespace(
            placement_group=placement_group,
            remove_placement_group=made.removed.append,
            placement_group_table=lambda group: made.table,
        ),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(ray, "nodes", lambda: made.nodes)
    monkeypatch.setattr(ray._private.state, "available_resources_per_node", lambda: made.free)
    yield made


def test_actors_have_names_and_a_restarted_one_says_which_it_is() -> None:
    assert actor_name("r", "rollout:3") == "rlsys:r:rollout:3"
    assert actor_name("r", "rollout:3", 1) == "rlsys:r:rollout:3#1"
    assert actor_name("", "rollout:3", 1) is None


def test_each_actor_has_its_bundle_and_ranks_share_theirs(cluster: Cluster) -> None:
    cluster.add("a", 8, 2)
    places = asyncio.run(place([RANK, RANK, JUDGE, JUDGE], timeout_s=5, run="r"))
    assert cluster.groups == [([{"CPU": 2, "GPU": 2}, {"CPU": 2}, {"CPU": 2}], "PACK", "rlsys:r")]
    assert [each.placement_group_bundle_index for each in places] == [0, 0, 1, 2]
    assert not any(each.placement_group_capture_child_tasks for each in places) and not cluster.removed
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
    with pytest.raises(RunFailed, match=r"too small: no node has room for learner rank .*10\.a .*lacks 1 GPU beside"):
        check([RANK, RANK, RANK])


def test_an_actor_has_a_place_while_the_node_of_its_bundle_lives(cluster: Cluster) -> None:
    cluster.add("a", 8)
    cluster.add("gone", 8, alive=False)
    where = SimpleNamespace(placement_group="group", placement_group_bundle_index=1)
    for nodes, state, found in (
        ({0: "gone", 1: "a"}, "CREATED", True),
        ({0: "a", 1: "gone"}, "CREATED", False),
        ({0: "a", 1: None}, "RESCHEDULING", False),
        ({0: "a"}, "RESCHEDULING", False),
        ({0: "a", 1: "a"}, "REMOVED", False),
    ):
        cluster.table = {"state": state, "bundles_to_node_id": nodes}
        assert has_place(where) is found
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
