"""Whom the faults of a run reach: the machine that this process is on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launch.tools.chaos.faults import DISK, Fault
from launch.tools.chaos.hand import Hand
from rlsys.errors import BadInput


class Machines:
    """Of a run that starts its own Ray: this machine alone."""

    def __init__(self) -> None:
        self._here = Hand()

    def check(self, faults: Sequence[Fault]) -> None:
        """Raises BadInput for a node that cannot be cut off."""
        for fault in faults:
            if fault.kind == "cut":
                raise BadInput(
                    "the run starts a Ray of its own, on this machine alone", key="--cut", found=fault.target,
                    expected="cluster.address or RAY_ADDRESS",
                )  # fmt: skip

    def disturb(self, owner: str, fault: Fault, run_dir: Path) -> int:
        """How many processes were hit, or nodes, or disks. owner: how the tag of the run's driver begins."""
        if fault.target == DISK:
            return self._here.fill(run_dir, fault.lasts_s or 0.0)
        return self._here.disturb(owner, fault)

    def end(self) -> None:
        self._here.end()
