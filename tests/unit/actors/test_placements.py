"""Every actor has a place of its own: one place too few or too many is a mistake of the caller's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.services import Services, ServiceSpec
from rlsys.system.parts import of_part
from tests.fakes.fake_ray import FakeRay
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import Script, make_pool


@pytest.mark.parametrize("places", [["a"], ["a", "b", "c"]])
def test_places_are_as_many_as_actors(fake_ray: FakeRay, places: list[str]) -> None:
    specs = [ServiceSpec(name=name, config=None, start=lambda *_: None) for name in ("judge", "retriever")]  # type: ignore[arg-type,return-value]
    parts: list[Any] = [Services(specs, env_vars={}, start_timeout_s=5), make_pool(Script(), workers=2)]
    for part in parts:
        with pytest.raises(ValueError, match="shorter|longer"):
            asyncio.run(part.start(places))
    assert not fake_ray.handles


def test_a_worker_is_started_where_it_is_placed_with_its_share_of_the_machine(fake_ray: FakeRay) -> None:
    async def story() -> None:
        pool = make_pool(Script(), workers=2, cpus=3, gpus=0.5, env_vars={"A": "b"}, run="r")
        await pool.start(["here", "there"])
        await asyncio.sleep(0)  # its watch begins
        await pool.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
    workers = [fake_ray.options[f"rlsys:r:w{number}"] for number in range(2)]
    assert [options["scheduling_strategy"] for options in workers] == ["here", "there"]
    assert (workers[0]["num_cpus"], workers[0]["num_gpus"], workers[0]["max_restarts"]) == (3, 0.5, 0)
    assert (
        workers[0]["runtime_env"] == {"env_vars": {"A": "b"} | of_part("w0")} and workers[0]["max_concurrency"] >= 1000
    )
