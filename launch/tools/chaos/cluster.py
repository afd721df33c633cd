"""The nodes of the Ray cluster that a run joins: each that is not this one has a hand on it, which is an actor."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from launch.driver.run.cluster import reachable
from launch.tools.chaos.faults import DRIVER, NODE, PLACES, Fault
from launch.tools.chaos.hand import Hand
from launch.tools.chaos.machines import Machines
from rlsys.errors import BadInput, describe_error

ANSWER_S = 30.0  # for a hand on another node, its start among it


class Cluster(Machines):
    """Nodes are numbered as they are at the start: the one of this process is the first, the others by address."""

    def __init__(self, address: str) -> None:
        """Raises BadInput where nothing answers at the address."""
        super().__init__()
        silent = f"no Ray cluster answers at {address}"
        if not reachable(address):
            raise BadInput(silent)
        root = str(Path(__file__).resolve().parents[3])
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            ray.init(address=address, runtime_env={"env_vars": {"PYTHONPATH": root}}, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BadInput(silent) from error
        self._own = str(ray.get_runtime_context().get_node_id())
        self._hands: dict[str, Any] = {}  # on the other nodes, by what Ray calls them
        addresses = sorted(address for node, address in self._alive() if node != self._own)
        self._addresses = dict(enumerate(addresses, start=2))

    def check(self, faults: Sequence[Fault]) -> None:
        for fault in (fault for fault in faults if fault.kind == "cut"):
            address = self._addresses.get(_number(fault))
            if address is None:
                choices = ", ".join(f"node:{number} ({at})" for number, at in self._addresses.items())
                expected = f"a node without the driver: {choices or 'there is none'}"
                raise BadInput(key="--cut", found=fault.target, expected=expected)
            (node,) = [node for node, at in self._alive() if at == address]
            try:
                why = ray.get(self._hand(node).why_no_cut.remote(address), timeout=ANSWER_S)
            except RayError as error:  # no answer in time is one
                why = describe_error(error)
            if why:
                raise BadInput(f"the link of {address} cannot be taken down: {why}", key="--cut", found=fault.target)

    def disturb(self, owner: str, fault: Fault, run_dir: Path) -> int:
        if fault.kind == "cut":
            address = self._addresses[_number(fault)]
            refs = [self._hand(node).cut.remote(address, fault.lasts_s) for node, at in self._alive() if at == address]
            answered = ray.wait(refs, num_returns=len(refs), timeout=ANSWER_S)[0] if refs else []
            return sum(_answer(ref) for ref in answered)
        hit = super().disturb(owner, fault, run_dir)
        if hit or fault.target == DRIVER or fault.target in PLACES.values():
            return hit
        futures = [self._hand(node).disturb.remote(owner, fault) for node, _ in self._alive() if node != self._own]
        answered = ray.wait(futures, num_returns=len(futures), timeout=ANSWER_S)[0] if futures else []
        return sum(_answer(ref) for ref in answered)

    def end(self) -> None:
        super().end()
        futures = [hand.end.remote() for hand in self._hands.values()]
        if futures:
            ray.wait(futures, num_returns=len(futures), timeout=ANSWER_S)
        ray.shutdown()

    def _alive(self) -> list[tuple[str, str]]:
        """What Ray calls each node, and its address."""
        return [(node["NodeID"], node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]]

    def _hand(self, node: str) -> Any:
        if node not in self._hands:
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            actor_class = ray.remote(Hand).options(num_cpus=0, scheduling_strategy=strategy)
            self._hands[node] = actor_class.remote()
        return self._hands[node]


def _answer(ref: Any) -> int:
    """Nothing was hit where the node of the hand is gone."""
    with suppress(RayError):
        return int(ray.get(ref))
    return 0


def _number(fault: Fault) -> int:
    name, _, number = fault.target.partition(":")
    assert name == NODE
    return int(number or 0)
