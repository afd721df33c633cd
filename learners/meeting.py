"""Where the ranks of a group meet, how long one waits for the others, and how fast they reach each other."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlsys.system.device import Device

if TYPE_CHECKING:
    import torch

LOOPBACK = "127.0.0.1"
# A collective that hangs has to end before the call that it hangs in: then it is named, and the ranks can be restarted.
MARGIN_S = 60.0
VARIABLES = "NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME (NCCL_DEBUG=INFO in cluster.env shows what is used)"
MEASURED_MB = {"cuda": 1024, "cpu": 4}  # large enough that a link's rate shows, and over in a second
# GB/s of an all-reduce (bytes that each rank moves) below which something is wrong: PCIe without peer access, and a
# network of 25 Gbit/s, are above.
SLOW_GBPS = {"one node": 3.0, "several nodes": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """Who this rank is and where its group meets."""

    rank: int
    world_size: int
    master_addr: str
    master_port: int
    device: Device
    dtype: str
    gradient_checkpointing: bool
    seed: int
    fp32_head: bool = False
    collective_timeout_s: float = 3600.0  # of one collective: how long a rank waits for the others in it

    @property
    def held_dtype(self) -> str:
        """Of the weights that this rank trains; `dtype` is of those that it sends and saves."""
        return self.device.held_dtype or self.dtype


def open_store(address: str) -> Any:
    """torch's store of the group, on this address alone: torch itself would listen on every interface.

    `init_process_group` finds it by its port, so no other process can take that in between.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listening.bind((address, 0))
    listening.listen(1024)
    port = listening.getsockname()[1]
    descriptor = listening.detach()  # the store's own from here on
    return TCPStore(
        address, port, is_master=True, wait_for_workers=False, multi_tenant=True, master_listen_fd=descriptor
    )


def collective_timeout_s(call_s: float) -> float:
    """How long a rank waits for the others within one collective: less than the deadline of the call around it."""
    return call_s - min(MARGIN_S, call_s / 4)


def measure_gbps(device: torch.device) -> float:
    """GB/s that each rank moves in an all-reduce over all ranks (2 (n-1)/n of the buffer), after one to warm up."""
    import torch
    import torch.distributed as dist

    buffer = torch.ones(MEASURED_MB[device.type] << 18, dtype=torch.float32, device=device)
    for _ in range(2):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(buffer)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - started
    ranks = dist.get_world_size()
    return 2 * (ranks - 1) / ranks * buffer.numel() * 4 / seconds / 1e9


def describe_links(gbps: float, nodes: Sequence[str], *, on_gpus: bool) -> tuple[str, bool]:
    """What is said of a measurement, and whether it is a warning."""
    where = "one node" if len(set(nodes)) == 1 else "several nodes"
    text = f"{len(nodes)} learner ranks on {where}: an all-reduce moves {gbps:.3g} GB/s"
    if on_gpus and gbps < SLOW_GBPS[where]:
        return f"{text}, which is slow (below {SLOW_GBPS[where]:g}): look at {VARIABLES}", True
    return text, False


def is_timeout(error: BaseException | None) -> bool:
    """Whether a collective ended because another rank did not come to it, in gloo's words or in torch's."""
    text = str(error)
    return isinstance(error, RuntimeError) and ("Timed out waiting" in text or "imeout" in text and "ollective" in text)
