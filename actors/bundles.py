"""What the actors of a run ask of its nodes: bundles of one placement group, and which of them has no place. No Ray.

Each engine and each service is a bundle of its own. Learner ranks talk to each other most, so those that one node can
hold share a bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

USUAL_NODE = 8  # GPUs of a node, as long as none is there to be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """What one actor asks for. ResourceRequest(what="rollout worker", cpus=8, gpus=2, lower="rollout.workers")"""

    what: str
    cpus: float
    gpus: float = 0
    lower: str = ""  # the keys that make it less
    gathers: bool = False  # shares a bundle with its like, as far as a node holds them


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """That lies on one node. Bundle(what="4 x learner rank", actors=4, cpus=4, gpus=4, lower="learner.ranks")"""

    what: str
    actors: int
    cpus: float
    gpus: float
    lower: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the cluster, and what is free on it."""

    address: str
    cpus: float
    gpus: float


def pack_bundles(needs: Sequence[ResourceRequest], *nodes: Sequence[Node]) -> list[Bundle]:
    """The bundles of `needs`, in their order: the fewest that find room on the first of `nodes` where any do.

    nodes: the same machines as they are now, as they are when nobody else computes there, ...
    """
    sizes = range(_most(needs, (node for each in nodes for node in each)), 0, -1)
    for each in nodes:
        for size in sizes:
            found = list(_cut(needs, size))
            if not shortage(found, each):
                return found
    return list(_cut(needs, sizes[0]))


def _most(needs: Sequence[ResourceRequest], nodes: Iterable[Node]) -> int:
    """How many of those that gather the largest node holds."""
    gathering = [need for need in needs if need.gathers]
    if not gathering:
        return 1
    need, held = gathering[0], 0
    for node in nodes:
        asked = [(node.cpus, need.cpus), (node.gpus, need.gpus)]
        held = max(held, int(min((has // wants for has, wants in asked if wants), default=len(gathering))))
    return min(held or USUAL_NODE, len(gathering))


def _cut(needs: Sequence[ResourceRequest], size: int) -> Iterator[Bundle]:
    for need, group in groupby(needs):
        count, most = len(list(group)), size if need.gathers else 1
        for first in range(0, count, most):
            actors = min(most, count - first)
            what = need.what if actors == 1 else f"{actors} x {need.what}"
            yield Bundle(what=what, actors=actors, cpus=actors * need.cpus, gpus=actors * need.gpus, lower=need.lower)


def shortage(bundles: Sequence[Bundle], nodes: Sequence[Node]) -> str:
    """Which bundle has no place, on which node it nearly has one, and what to change; empty where all have theirs.

    The largest first, each where it leaves least: nodes with GPUs stay free for what needs them.
    """
    left = list(nodes)
    for bundle in sorted(bundles, key=lambda bundle: (bundle.gpus, bundle.cpus), reverse=True):
        fitting = [node for node in left if node.gpus >= bundle.gpus and node.cpus >= bundle.cpus]
        if not fitting:
            return f"no node has room for {bundle.what} ({_amount(bundle.gpus, bundle.cpus)}): {_nearest(bundle, left)}"
        best = min(fitting, key=lambda node: (node.gpus, node.cpus))
        rest = replace(best, gpus=best.gpus - bundle.gpus, cpus=best.cpus - bundle.cpus)
        left[left.index(best)] = rest
    return ""


def _nearest(bundle: Bundle, left: Sequence[Node]) -> str:
    lower = f"; lower {bundle.lower}, or wait for other jobs" if bundle.lower else ""
    if not left:
        return "no node is alive"
    lacks = {node: (max(0, bundle.gpus - node.gpus), max(0, bundle.cpus - node.cpus)) for node in left}
    nearest = min(left, key=lacks.__getitem__)
    return f"{nearest.address} comes closest and lacks {_amount(*lacks[nearest])} beside the other actors{lower}"


def _amount(gpus: float, cpus: float) -> str:
    """2 GPUs and 1 CPU"""
    parts = [(gpus, "GPU"), (cpus, "CPU")]
    return " and ".join(f"{count:g} {name}{'s' if count != 1 else ''}" for count, name in parts if count) or "nothing"
