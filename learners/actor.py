"""A learner rank as a Ray actor: a thin skin over `LearnerRank`, which also runs without Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import ray
import ray.util
from ray.exceptions import RayError

from learners.algorithms import make_algorithm
from learners.leaving import RowGate, UpdateLeft
from learners.meeting import LOOPBACK, RankSpec, open_store
from learners.snapshot import Snapshot
from rlsys.batch import Batch, UpdateReport, build_batch
from rlsys.config.learner import LearnerConfig
from rlsys.plan import BatchPlan
from rlsys.probe import Probe, ProbeValues
from rlsys.system import stack_signal
from rlsys.system.card_memory import naming_holders
from rlsys.system.served import ReferenceAddress
from rlsys.system.weight_folder import WeightFolder, WeightManifest
from rlsys.types import Group, Sample

if TYPE_CHECKING:
    from learners.rank import LearnerRank

# Calls that an actor answers on other threads than its work: the ping, and writing a checkpoint that was copied.
PINGS, WRITING = "pings", "writing"


class RankPlacement(NamedTuple):
    """RankPlacement(node="10.0.0.2", gpus="3", node_id="5e3c0f5a...")"""

    node: str
    gpus: str
    node_id: str = ""  # Ray's


class LearnerActor:
    """One rank. Its methods are called by `learners.group`, on all ranks at once."""

    rank: LearnerRank  # from `start` on

    def __init__(self, number: int, secrets: Mapping[str, str]) -> None:
        stack_signal.answer()
        os.environ.update(secrets)
        self._number = number
        self.built: Batch | None = None
        self.gate = RowGate()  # of the update that `build` has prepared

    def __repr__(self) -> str:
        """What Ray's dashboard calls it."""
        return f"learner rank {self._number}"

    @ray.method(concurrency_group=PINGS)
    def ping(self) -> tuple[int, int]:
        """(rows that the update has begun, in all). Answered on another thread, while the actor works."""
        return self.gate.rows

    @ray.method(concurrency_group=PINGS)
    def hold(self, ping_timeout_s: float) -> int | None:
        """As `RowGate.hold`."""
        return self.gate.hold(ping_timeout_s)

    @ray.method(concurrency_group=PINGS)
    def resume(self, stop_after: int | None) -> None:
        """As `RowGate.resume`."""
        self.gate.resume(stop_after)

    def place(self) -> RankPlacement:
        """Where it runs."""
        return RankPlacement(ray.util.get_node_ip_address(), ",".join(map(str, ray.get_gpu_ids())), node_id())

    def open_store(self, alone: bool) -> tuple[str, int]:
        """(address, port) where the ranks meet: asked of rank 0, which listens there from now on.

        alone: all ranks are on this node, so that no other one needs to reach it.
        """
        address = LOOPBACK if alone else ray.util.get_node_ip_address()
        self._store = open_store(address)
        return address, self._store.port

    @naming_holders()
    def start(self, spec: RankSpec, address: tuple[str, int]) -> int:
        """Join the process group. Returns the process id."""
        from learners.rank import LearnerRank  # transformers behind it: the driver goes without

        # Else gloo takes what the host name stands for, which may be an address that no other node reaches.
        interface = interface_of(LOOPBACK if address[0] == LOOPBACK else ray.util.get_node_ip_address())
        if interface:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        self.rank = LearnerRank(replace(spec, master_addr=address[0], master_port=address[1]))
        return os.getpid()

    def measure_gbps(self) -> float:
        return self.rank.measure_gbps()

    @naming_holders()
    def begin(self, model_path: str, learner: LearnerConfig, algorithm: Any, **stage: Any) -> None:
        """As `LearnerRank.begin`, with the algorithm's configuration."""
        self.rank.begin(model_path, learner, make_algorithm(algorithm), **stage)

    def build(self, plan: BatchPlan) -> frozenset[int]:
        """Fetch what the rows of `plan` are made of, and make them. Returns the groups that are lost."""
        sources, lost = fetch(plan.sources)
        self.built = None if lost else build_batch(plan, sources)
        self.gate = RowGate()
        return lost

    @ray.method(concurrency_group=PINGS)
    def connect(self, served: ReferenceAddress) -> None:
        """As `LearnerRank.connect`, during an update that waits for the reference too."""
        if hasattr(self, "rank"):
            self.rank.connect(served)

    @naming_holders()
    def update(self) -> UpdateReport | None:
        """On the rows that `build` has made. None where it was left before its first optimizer step."""
        batch, self.built = self.built, None
        assert batch is not None, "no rows were built"
        try:
            return self.rank.update(batch, self.gate)
        except UpdateLeft:
            return None

    @naming_holders()
    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return self.rank.logprobs([list(ids) for ids in token_ids])

    @naming_holders()
    def measure(self, probe: Probe) -> ProbeValues:
        return self.rank.measure(probe)

    @naming_holders()
    def export(self, folder: WeightFolder, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        return self.rank.export(folder.on_node(node_id()), version, probe)

    @naming_holders()
    def snapshot(self, folder: str, tokenizer_from: str) -> None:
        """Copy what goes into `folder`/learner for resuming, and into `folder`/hf, with the tokenizer of
        `tokenizer_from`, for everybody else."""
        self._snapshot = Snapshot()
        self.rank.save(Path(folder) / "learner", self._snapshot)
        self.rank.save_hf(Path(folder) / "hf", tokenizer_from, self._snapshot)
        self._snapshot.wait_copied()

    @naming_holders()
    def leave_card(self) -> None:
        """As `LearnerRank.leave_card`; one that has not started has nothing there."""
        if hasattr(self, "rank"):
            self.rank.leave_card()

    @naming_holders()
    def return_to_card(self) -> None:
        if hasattr(self, "rank"):
            self.rank.return_to_card()

    @ray.method(concurrency_group=WRITING)
    def write(self) -> None:
        """Write what was copied, during the next updates."""
        self._snapshot.write()

    @naming_holders()
    def load(self, folder: str, optimizers_alone: bool) -> None:
        self.rank.load(Path(folder) / "learner", optimizers_alone=optimizers_alone)


def fetch(sources: Mapping[int, Any]) -> tuple[dict[int, Group | Sample], frozenset[int]]:
    """What lies at the sources of a plan, and the groups that are gone with the node that held them."""
    local = {group_id: source for group_id, source in sources.items() if isinstance(source, (Group, Sample))}
    refs = {group_id: source for group_id, source in sources.items() if group_id not in local}
    try:
        return local | dict(zip(refs, ray.get(list(refs.values())), strict=True)), frozenset()
    except RayError:
        lost = frozenset(group_id for group_id, ref in refs.items() if not _is_available(ref))
        if not lost:
            raise
        return local, lost


def _is_available(ref: Any) -> bool:
    try:
        ray.get(ref)
    except RayError:
        return False
    return True


def node_id() -> str:
    """What Ray calls the node of this actor."""
    node: str = ray.get_runtime_context().get_node_id()
    return node


def interface_of(address: str) -> str:
    """The network interface that has this address; empty when none has, as behind a translation of addresses."""
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, has in interfaces if any(entry.address == address for entry in has)), "")
