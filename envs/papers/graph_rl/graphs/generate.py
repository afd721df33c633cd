"""Graph problems like NLGift's, generated. Its generator is not published; these figures are measured on its files.

Connectivity: 5-35 nodes; never one connected graph: nearly always two or three blocks of random sizes, joined inside
with a probability from 0.3 to 1 (0.25 to 0.7 above 25 nodes), so that some nodes stay alone; half of the answers are
yes.
Shortest path: 5-20 nodes, always connected. Up to 10 nodes: weights 1-4, 40-98 % of all possible edges, two edges
between source and target. Above: weights 1-10, 14-30 % of all edges, source and target 2-6 edges apart, evenly.
Smaller graphs, for very small models, follow the same rules.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import networkx

from envs.papers.graph_rl.graphs.problem import Kind, Problem
from envs.tasks.splits import is_held_out
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed

_SMALL_PATH, _SMALL_BLOCKS = 10, 25  # nodes
_Edges = list[tuple[int, int]]


def generate(
    count: int,
    seed: int,
    *,
    shortest_path_share: float,
    connectivity_nodes: tuple[int, int],
    path_nodes: tuple[int, int],
    min_hops: int = 1,
    path_hops: int | None = None,
    labels: int | None = None,
    held_out: bool | None = None,
) -> list[Problem]:
    """`count` problems without a question twice, the same for the same arguments; nodes are inclusive bounds.

    min_hops: the fewest edges between the two nodes of a connectivity problem whose answer is yes.
    path_hops: the edges of the shortest way, by their number, between the two nodes of a shortest path; None: NLGift's.
    labels: each graph draws its nodes' numbers from so many; None: they are 0 .. nodes - 1.

    Shares are kept exactly (to one problem), yes and no alternate. `held_out` keeps only one side of a split that the
    graph alone decides. Raises BadInput when there are not that many different ones.
    """
    rng = random.Random(derive_seed("graphs", seed))
    unique: dict[tuple[object, ...], Problem] = {}
    num_paths = 0
    for index in range(count):
        wants_path = int((index + 1) * shortest_path_share + 1e-9) > num_paths
        yes = (index - num_paths) % 2 == 0
        num_paths += wants_path
        for _ in range(2000):
            if wants_path:
                problem = shortest_path(rng, rng.randint(*path_nodes), path_hops)
            else:
                problem = connectivity(rng, rng.randint(*connectivity_nodes), connected=yes, min_hops=min_hops)
            if problem is not None and labels is not None:
                problem = relabel(problem, rng.sample(range(labels), problem.num_nodes), labels)
            if problem is None or (held_out is not None and is_held_out(problem.digest.hex()) != held_out):
                continue
            question = (problem.kind, problem.digest, frozenset((problem.source, problem.target)))
            if question not in unique:
                unique[question] = problem
                break
        else:
            raise BadInput(f"{count} graph problems asked for: there are about {len(unique)} different ones this small")
    return list(unique.values())


def connectivity(rng: random.Random, num_nodes: int, *, connected: bool, min_hops: int = 1) -> Problem | None:
    """Two nodes of a graph that has several parts; None when the draw has no such two."""
    nodes = rng.sample(range(num_nodes), num_nodes)
    num_blocks = min(rng.choice((2, 2, 3)), num_nodes)
    cuts = sorted(rng.sample(range(1, num_nodes), num_blocks - 1))
    density = rng.uniform(*((0.3, 1.0) if num_nodes <= _SMALL_BLOCKS else (0.25, 0.7)))
    block_of = {node: sum(place >= cut for cut in cuts) for place, node in enumerate(nodes)}
    pairs = [(a, b) for a, b in combinations(range(num_nodes), 2) if block_of[a] == block_of[b]]
    edges = [pair for pair in pairs if rng.random() < density]
    hops = dict(networkx.all_pairs_shortest_path_length(_graph(num_nodes, edges)))  # without those that no path joins
    near = min_hops if connected else 1
    candidates = [
        (a, b)
        for a, b in combinations(range(num_nodes), 2)
        if (b in hops[a]) == connected and hops[a].get(b, near) >= near
    ]
    if not candidates:
        return None
    source, target = rng.sample(rng.choice(candidates), 2)
    listed = tuple(_list_edges(rng, num_nodes, edges))
    return Problem(kind=Kind.CONNECTIVITY, num_nodes=num_nodes, edges=listed, source=source, target=target)


def shortest_path(rng: random.Random, num_nodes: int, hops: int | None = None) -> Problem | None:
    """Two nodes of a connected weighted graph, `hops` edges apart; None when no draw has such two.

    hops: None is never an edge between them: 2, above 10 nodes 2 to 6. 1: an edge, and a way around it.
    """
    small = num_nodes <= _SMALL_PATH
    hops = hops or (2 if small else rng.randint(2, 6))
    for _ in range(200):  # so that far-off nodes, which few graphs have, are as frequent as near ones
        density = rng.uniform(*((0.4, 0.98) if small else (0.14, 0.3)))
        edges = [pair for pair in combinations(range(num_nodes), 2) if rng.random() < density]
        graph = _graph(num_nodes, edges)
        if not networkx.is_connected(graph):
            continue
        distances = dict(networkx.all_pairs_shortest_path_length(graph, cutoff=hops))
        candidates = [(a, b) for a, b in combinations(range(num_nodes), 2) if distances[a].get(b) == hops]
        if hops == 1:
            bridges = set(networkx.bridges(graph))
            candidates = [(a, b) for a, b in candidates if not {(a, b), (b, a)} & bridges]
        if candidates:
            break
    else:
        return None
    source, target = rng.sample(rng.choice(candidates), 2)
    turned = [rng.sample(edge, 2) for edge in _list_edges(rng, num_nodes, edges)]
    most = 4 if small else 10
    # Between the two nodes themselves as heavy as a way around: otherwise that edge is nearly always the shortest path.
    draws = [1 + ({source, target} == {*edge}) for edge in turned]
    return Problem(
        kind=Kind.SHORTEST_PATH,
        num_nodes=num_nodes,
        edges=tuple((a, b) for a, b in turned),
        weights=tuple(sum(rng.randint(1, most) for _ in range(count)) for count in draws),
        source=source,
        target=target,
    )


def relabel(problem: Problem, numbers: list[int], labels: int) -> Problem:
    """The same graph with node i called numbers[i], out of 0 .. labels - 1; those not drawn have no edges."""
    renamed = tuple((numbers[a], numbers[b]) for a, b in problem.edges)
    source, target = numbers[problem.source], numbers[problem.target]
    return replace(problem, num_nodes=labels, edges=renamed, source=source, target=target)


def _list_edges(rng: random.Random, num_nodes: int, edges: _Edges) -> _Edges:
    """NLGift's order: by the smaller node; the other ends in one order that is drawn for the graph."""
    order = rng.sample(range(num_nodes), num_nodes)
    return sorted(edges, key=lambda edge: (edge[0], order.index(edge[1])))


def _graph(num_nodes: int, edges: _Edges) -> networkx.Graph:
    graph = networkx.empty_graph(num_nodes)
    graph.add_edges_from(edges)
    return graph
