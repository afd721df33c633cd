"""An object of Ray's that nobody has any more."""

import time
from typing import Any

import ray
from ray.exceptions import RayError


def lost(value: Any) -> Any:
    """A reference to what is gone with the process that owned it."""

    class Owner:
        def hold(self) -> list[Any]:
            return [ray.put(value)]

    owner = ray.remote(Owner).options(num_cpus=0).remote()
    (ref,) = ray.get(owner.hold.remote())
    ray.kill(owner)
    while True:
        try:
            ray.get(ref)
            time.sleep(0.05)
        except RayError:
            return ref
