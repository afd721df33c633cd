"""A driver that hides its cards from itself: Ray counts them all the same, and gives each actor its own.

Two cards are made up where Ray asks NVIDIA's library for their number; nothing here touches one.
"""

import os
from collections.abc import Iterator

import pytest
import ray
from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager

from launch.driver.run import cluster
from rlsys.config.cluster import ClusterConfig
from rlsys.system import cards
from rlsys.system.device import gpu_env

GIVEN = "3,5"  # by a user, on a machine of eight


@pytest.fixture(scope="module", autouse=True)
def cluster_of_driver() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in (cluster.cleanup.VARIABLE, "RAY_ADDRESS", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
            patch.setenv(name, "")
            patch.delenv(name)
        patch.setenv(cards.VISIBLE, GIVEN)
        patch.setattr(cards, "found_before", None)
        patch.setattr(NvidiaGPUAcceleratorManager, "get_current_node_num_accelerators", staticmethod(lambda: 8))
        patch.setattr(NvidiaGPUAcceleratorManager, "get_current_node_accelerator_type", staticmethod(lambda: "H100"))
        patch.setattr(cluster.machine, "check_cuda", lambda: None)
        ray.shutdown()  # the one that these tests share
        cards.hide_cards()
        cluster.connect(ClusterConfig(device="cuda", object_store_mb=100), lambda _: [])
        yield
        ray.shutdown()


class Part:
    def sees(self) -> str | None:
        return os.environ.get(cards.VISIBLE)


def sees(gpus: float, count: int) -> set[str | None]:
    options = {"num_gpus": gpus, "runtime_env": {"env_vars": gpu_env(gpus)}}
    parts = [ray.remote(Part).options(**options).remote() for _ in range(count)]
    visible = set(ray.get([part.sees.remote() for part in parts], timeout=120))
    for part in parts:
        ray.kill(part)
    return visible


def test_ray_counts_what_the_driver_was_given_and_the_driver_sees_none() -> None:
    assert ray.cluster_resources()["GPU"] == 2
    assert os.environ[cards.VISIBLE] == ""


def test_each_actor_gets_its_own_card_and_one_without_gets_none() -> None:
    assert sees(1, 2) == {"3", "5"}
    assert sees(0, 1) == {""}
    assert sees(0.5, 1) <= {"3", "5"}
