"""The machines that a plan is made for: 2x8xA100-80G, 1x2cpu-24G."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

import psutil

from launch.checks.gpu_memory import GIGA
from launch.checks.gpu_plan import GPUS_OF_A_NODE, card_gb
from launch.checks.machine import first_card, local_gpus
from rlsys.config.cluster import ClusterConfig
from rlsys.errors import BadInput
from rlsys.system.datasheets import CARDS, Card, card_of, find_card

WHOLE, SIZE = r"[0-9]{1,6}", r"[0-9]{1,9}(?:\.[0-9]{1,9})?"  # short enough to be finite
FORM = re.compile(
    rf"(?P<count>{WHOLE})x(?:(?P<cores>{WHOLE})cpu-(?P<ram>{SIZE})G"
    rf"|(?P<gpus>{WHOLE})x(?P<card>[\w-]+?)(?::(?P<host>{SIZE})G)?)"
)
EXAMPLES = "2x8xA100-80G (nodes x cards x card), 2x8xA100-80G:1000G (with the RAM of a node), or 1x2cpu-24G"
MOST = 4096  # nodes, cores of a node
MOST_CARDS = 64  # of a node
MOST_GPUS = 16_384  # of all nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Equal machines."""

    count: int
    card: Card | None = None  # None on CPUs
    gpus: int = 0  # of a node
    cores: int | None = None  # of a node
    ram: float | None = None  # bytes of a node; None where that is not known
    assumed: bool = False  # it was not given

    @property
    def all_gpus(self) -> int:
        return self.count * self.gpus

    def describe(self) -> str:
        ram = "" if self.ram is None else f"{self.ram / GIGA:.0f}G"
        if self.card is None:
            return f"{self.count}x{self.cores}cpu-{ram}"
        return f"{self.count}x{self.gpus}x{self.card.name}" + (f":{ram}" if ram else "")


def parse_nodes(text: str) -> Nodes:
    """Raises BadInput."""
    match = FORM.fullmatch(text)
    numbers = [int(match[key]) for key in ("count", "gpus", "cores") if match[key]] if match else []
    sizes = [float(match[key]) for key in ("ram", "host") if match[key]] if match else []
    if match is None or not all(0 < number <= MOST for number in numbers) or not all(size > 0 for size in sizes):
        raise BadInput(key="--nodes", found=text, expected=EXAMPLES)
    count, gpus = int(match["count"]), int(match["gpus"] or 0)
    if gpus > MOST_CARDS or count * gpus > MOST_GPUS:
        limit = f"at most {MOST_CARDS} cards of a node, and {MOST_GPUS:,} together"
        raise BadInput(key="--nodes", found=text, expected=limit)
    if match["cores"]:
        return Nodes(count=count, cores=int(match["cores"]), ram=float(match["ram"]) * GIGA)
    ram = float(match["host"]) * GIGA if match["host"] else None
    return Nodes(count=count, gpus=gpus, card=find_card(match["card"]), ram=ram)


def assumed_nodes(cluster: ClusterConfig, gpus: int) -> Nodes:
    """Without --nodes: this machine, or as many usual nodes as the run's GPUs take. gpus: 0 on CPUs."""
    ram = float(psutil.virtual_memory().total)
    if not gpus:
        return Nodes(count=1, cores=os.cpu_count(), ram=ram)
    local_count = local_gpus()
    if local_count:
        name, _ = first_card() or ("GPU", 0)
        return Nodes(count=1, gpus=local_count, card=card_of(name, card_gb(cluster)), ram=ram)
    memory = card_gb(cluster)
    usual = next((card for card in CARDS.values() if card.memory_gb == memory), None)
    card = usual or Card(name=f"{memory:g}G", memory_gb=memory, flops=None, bandwidth=None)
    per_node = min(gpus, GPUS_OF_A_NODE)
    return Nodes(count=math.ceil(gpus / per_node), gpus=per_node, card=card, assumed=True)
