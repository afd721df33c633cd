"""The truth about a graph problem, from NetworkX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx

from envs.problems.graphs.problem import Kind, Problem, Weight
from rlsys.errors import BadInput


def graph_of(problem: Problem) -> networkx.Graph[Any]:
    """All nodes, isolated ones too; edges in their order, each with its `weight` (1 without)."""
    graph = networkx.Graph()
    graph.add_nodes_from(range(problem.num_nodes))
    weights = problem.weights or (1,) * len(problem.edges)
    graph.add_weighted_edges_from((*edge, weight) for edge, weight in zip(problem.edges, weights, strict=True))
    return graph


def connected(problem: Problem) -> bool:
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
        return "yes" if connected(problem) else "no"
    length = shortest_length(problem)
    if length is None:
        raise BadInput(f"no path between node {problem.source} and node {problem.target}: nothing to find")
    return str(length)


def total(length: Weight) -> Weight:
    """A sum of weights, without the rounding errors of fractions."""
    return length if isinstance(length, int) else round(length, 6)
