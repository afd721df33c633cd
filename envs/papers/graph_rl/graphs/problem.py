"""A graph problem, its JSON form, and the truth about it, from NetworkX."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import networkx

from rlsys.errors import BadInput

MAX_NODES = 10_000
Weight = int | float


class Kind(StrEnum):
    CONNECTIVITY = "connectivity"
    SHORTEST_PATH = "shortest_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An undirected graph without loops or double edges, and two of its nodes.

    Problem(kind=Kind.SHORTEST_PATH, num_nodes=3, edges=((0, 2), (1, 2)), weights=(4, 1), source=0, target=1)
    """

    kind: Kind
    num_nodes: int  # nodes are 0 .. num_nodes-1; one without edges is a node too
    edges: tuple[tuple[int, int], ...]  # [E] in the order in which the wording lists them
    weights: tuple[Weight, ...] = ()  # [E] above 0; empty for connectivity
    source: int
    target: int

    @property
    def digest(self) -> bytes:
        """Of the graph alone: the same for every question about it, every order of its edges, and any number of nodes
        without edges, which no wording names."""
        weights = self.weights or (0,) * len(self.edges)
        edges = sorted((*sorted(edge), float(weight)) for edge, weight in zip(self.edges, weights, strict=True))
        return hashlib.blake2b(repr(edges).encode(), digest_size=16).digest()


def to_record(problem: Problem) -> dict[str, Any]:
    """`{"kind": "connectivity", "num_nodes": 5, "edges": [[0, 4], [1, 4]], "source": 0, "target": 4}`"""
    edges: list[list[Weight]] = [list(edge) for edge in problem.edges]
    if problem.weights:
        edges = [[*edge, weight] for edge, weight in zip(edges, problem.weights, strict=True)]
    return {
        "kind": str(problem.kind),
        "num_nodes": problem.num_nodes,
        "edges": edges,
        "source": problem.source,
        "target": problem.target,
    }


def from_record(record: Mapping[str, Any], where: str) -> Problem:
    """The inverse of `to_record`; other keys are ignored. Raises BadInput that starts with `where`."""
    kind = record.get("kind")
    if kind not in tuple(Kind):
        raise BadInput(where=where, key='"kind"', found=_shorten(kind), expected=f"one of {', '.join(Kind)}")
    rows = record.get("edges")
    if not isinstance(rows, (list, tuple)):
        raise BadInput(where=where, key='"edges"', found=_shorten(rows), expected="a list")
    num_nodes = require_int(record.get("num_nodes"), f'{where}: "num_nodes"')
    source, target = (require_int(record.get(key), f'{where}: "{key}"') for key in ("source", "target"))
    return make_problem(Kind(kind), num_nodes, rows, source, target, where)


def make_problem(kind: Kind, num_nodes: int, rows: Any, source: int, target: int, where: str) -> Problem:
    """Check and build. `rows` are `[a, b]`, or `[a, b, weight]` for shortest paths; a repeated edge is dropped.

    Raises BadInput for what is no such graph.
    """
    if not 2 <= num_nodes <= MAX_NODES:
        raise BadInput(f"{num_nodes} nodes", where=where, expected=f"2 to {MAX_NODES}")
    width = 3 if kind is Kind.SHORTEST_PATH else 2
    edge_weights: dict[tuple[int, int], Weight] = {}
    edges: list[tuple[int, int]] = []
    for row in rows:
        if wrong := _wrong_row(row, width, num_nodes):
            raise BadInput(f"edge {_shorten(row)}: {wrong}", where=where)
        a, b = row[:2]
        key, weight = (a, b) if a < b else (b, a), row[2] if width == 3 else 0
        if key not in edge_weights:
            edge_weights[key] = weight
            edges.append((a, b))
        elif edge_weights[key] != weight:
            raise BadInput(f"edge {_shorten(row)}: listed before with weight {edge_weights[key]}", where=where)
    if wrong := _wrong_nodes(source, target, num_nodes):
        raise BadInput(f"question {_shorten([source, target])}: {wrong}", where=where)
    weights = tuple(edge_weights.values()) if width == 3 else ()
    return Problem(kind=kind, num_nodes=num_nodes, edges=tuple(edges), weights=weights, source=source, target=target)


def _wrong_row(row: Any, width: int, num_nodes: int) -> str:
    """What is wrong with an edge; "" for nothing."""
    if not isinstance(row, (list, tuple)) or len(row) != width:
        return "expected [a, b, weight]" if width == 3 else "expected [a, b]"
    if width == 3:
        weight = row[2]
        if type(weight) not in (int, float) or not 0 < weight < 1e12:  # also refuses nan, and true
            return f"weight {_shorten(weight)}, expected a number above 0"
    return _wrong_nodes(row[0], row[1], num_nodes)


def _wrong_nodes(a: Any, b: Any, num_nodes: int) -> str:
    if type(a) is not int or type(b) is not int or not (0 <= a < num_nodes and 0 <= b < num_nodes):
        return f"nodes are 0 to {num_nodes - 1}"
    return "the same node twice" if a == b else ""


def require_int(value: Any, subject: str) -> int:
    if type(value) is not int:
        raise BadInput(f"{subject} is {_shorten(value)}", expected="a whole number")
    return value


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def graph_of(problem: Problem) -> networkx.Graph[Any]:
    """All nodes, isolated ones too; edges in their order, each with its `weight` (1 without)."""
    graph = networkx.Graph()
    graph.add_nodes_from(range(problem.num_nodes))
    weights = problem.weights or (1,) * len(problem.edges)
    graph.add_weighted_edges_from((*edge, weight) for edge, weight in zip(problem.edges, weights, strict=True))
    return graph


def is_connected(problem: Problem) -> bool:
    return bool(networkx.has_path(graph_of(problem), problem.source, problem.target))


def shortest_length(problem: Problem) -> Weight | None:
    """None without a path. Sums of fractions are rounded to six places."""
    try:
        return total(networkx.dijkstra_path_length(graph_of(problem), problem.source, problem.target))
    except networkx.NetworkXNoPath:
        return None


def shortest_path(problem: Problem) -> tuple[int, ...] | None:
    """One of the shortest paths: by weight, or by number of edges where there are none; None without a path.

    Of several, the one that NLGift's targets show.
    """
    if not problem.weights:
        return next(all_shortest_paths(problem), None)
    try:
        return tuple(networkx.shortest_path(graph_of(problem), problem.source, problem.target, weight="weight"))
    except networkx.NetworkXNoPath:
        return None


def all_shortest_paths(problem: Problem) -> Iterator[tuple[int, ...]]:
    """None at all when the nodes are not connected. There may be very many."""
    weight = "weight" if problem.weights else None
    try:
        for path in networkx.all_shortest_paths(graph_of(problem), problem.source, problem.target, weight=weight):
            yield tuple(path)
    except networkx.NetworkXNoPath:
        return


def truth(problem: Problem) -> str:
    """`yes`, `no`, or the length of the shortest path. Raises BadInput for a shortest path that does not exist."""
    if problem.kind is Kind.CONNECTIVITY:
        return "yes" if is_connected(problem) else "no"
    length = shortest_length(problem)
    if length is None:
        raise BadInput(f"no path between node {problem.source} and node {problem.target}: nothing to find")
    return str(length)


def total(length: Weight) -> Weight:
    """A sum of weights, without the rounding errors of fractions."""
    return length if isinstance(length, int) else round(length, 6)
