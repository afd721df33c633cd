"""Placement on a real Ray cluster, whose GPUs are what it is told: who has a place, who waits, who sees which GPU."""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from actors.placement import NoPlace, ResourceRequest, all_nodes, check, free_nodes, has_place, place, while_placed
from rlsys.errors import RunFailed
from rlsys.system.device import gpu_env

pytestmark = pytest.mark.ray

ENGINE = ResourceRequest(what="rollout worker", cpus=1, gpus=2, lower="rollout.workers")
RANK = ResourceRequest(what="learner rank", cpus=1, gpus=1, lower="learner.ranks", gathers=True)
SERVICE = ResourceRequest(what="retriever", cpus=1)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Four GPUs, as far as Ray is told."""
    ray.init(address="local", num_cpus=8, num_gpus=4, include_dashboard=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


class Seen:
    def gpus(self) -> tuple[str | None, list[int]]:
        return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids()


def placed(needs: list[ResourceRequest], *, timeout_s: float = 60.0) -> list[Any]:
    return asyncio.run(place(needs, timeout_s=timeout_s))


def release(places: list[Any]) -> None:
    for group in {where.placement_group.id: where.placement_group for where in places}.values():
        ray.util.remove_placement_group(group)


def test_each_actor_sees_the_gpus_of_its_bundle_and_a_service_none() -> None:
    needs = [RANK, RANK, ENGINE, SERVICE]
    places = placed(needs)
    assert [where.placement_group_bundle_index for where in places] == [0, 0, 1, 2]
    assert all(map(has_place, places))
    assert [(node.cpus, node.gpus) for node in all_nodes()] == [(8, 4)]
    actors = [
        ray.remote(Seen)
        .options(
            num_cpus=need.cpus,
            num_gpus=need.gpus,
            scheduling_strategy=where,
            runtime_env={"env_vars": gpu_env(need.gpus)},
        )
        .remote()
        for need, where in zip(needs, places, strict=True)
    ]
    visible = ray.get([actor.gpus.remote() for actor in actors])
    assert [len(ids) for _, ids in visible] == [1, 1, 2, 0]
    assert sorted(number for _, ids in visible for number in ids) == [0, 1, 2, 3]
    assert [names for names, ids in visible[:3]] == [",".join(map(str, ids)) for _, ids in visible[:3]]
    assert visible[3][0] == ""
    release(places)


def test_what_never_fits_is_refused_and_what_is_taken_is_waited_for() -> None:
    with pytest.raises(RunFailed, match=r"too small: no node has room for learner rank .*lacks 1 GPU next to"):
        check([RANK, ENGINE, ENGINE])
    check([ENGINE, ENGINE])
    places = placed([ENGINE, ENGINE])
    assert [node.gpus for node in free_nodes()] == [0]
    with pytest.raises(RunFailed, match=r"0\.5 s \(cluster\.placement_timeout_s\): no node has room for 2 x learner"):
        placed([RANK, RANK, SERVICE], timeout_s=0.5)
    release(places)
    release(placed([RANK, RANK, SERVICE]))


def test_what_waits_for_an_actor_hears_that_its_place_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlsys.system.supervisor.PING_EVERY_S", 0.1)
    (where,) = placed([SERVICE])

    async def story() -> None:
        waiting = asyncio.ensure_future(while_placed(asyncio.sleep(60), where, "rollout:3 starting its engine"))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        release([where])
        with pytest.raises(NoPlace, match="^rollout:3 starting its engine: its node is gone$"):
            await waiting
        assert await while_placed(asyncio.sleep(0, "done"), "DEFAULT", "rollout:4") == "done"

    asyncio.run(asyncio.wait_for(story(), 60))
