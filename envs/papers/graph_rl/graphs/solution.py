"""How NLGift writes a solution, right or with a mistake."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Literal

import networkx

from envs.papers.graph_rl.graphs.encodings import Encoding, incident_row, label
from envs.papers.graph_rl.graphs.problem import Kind, Problem, Weight, graph_of, is_connected, shortest_path, total
from envs.papers.graph_rl.protocol import write_parts
from rlsys.errors import BadInput

VERDICTS = {True: "The answer is yes.", False: "The answer is no."}
Mistakes = Literal["all", "shortcut", "unused", "misread"]
NLGIFT_PATHS = 5  # NLGift lists the optimum and looks at four simple paths more


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The three parts of a response."""

    think: str
    steps: str
    answer: str

    def text(self) -> str:
        return write_parts(self.think, self.steps, self.answer)


def solve(problem: Problem, encoding: Encoding, rng: random.Random, *, num_paths: int = NLGIFT_PATHS) -> Solution:
    """A right solution: NLGift's steps, and its answer sentences. `rng` shuffles the paths and chooses nothing else.

    Raises BadInput for a shortest path between nodes that are not connected.
    """
    if problem.kind is Kind.CONNECTIVITY:
        steps = edge_steps(problem, encoding)
        return Solution(think=_search(problem, encoding), steps=steps, answer=VERDICTS[is_connected(problem)])
    best = shortest_path(problem)
    if best is None:
        raise BadInput(f"no path between node {problem.source} and node {problem.target}: nothing to show")
    paths = [best, *_other_paths(problem, best, num_paths - 1)]
    rng.shuffle(paths)
    return _path_solution(problem, encoding, paths, best, weigh(problem, best))


def spoil(
    problem: Problem,
    encoding: Encoding,
    rng: random.Random,
    *,
    num_paths: int = NLGIFT_PATHS,
    mistakes: Mistakes = "all",
) -> Solution:
    """A solution with one mistake, drawn from those that the graph allows: the answer is wrong, or a step is invented.

    Connectivity: the wrong verdict, or the shortcut, an edge between the two nodes that does not exist, which makes
    a yes right that nothing shows. Shortest path: a longer path; a wrong sum; a wrong weight; the shortcut. mistakes:
    `shortcut` is always that, unless such an edge exists; `unused` puts it before the right steps, and the answer stays
    right; `misread` lists a longer path with one weight too low, and the answer is right unless that makes it the
    shortest. Raises BadInput as `solve` does.
    """
    good = solve(problem, encoding, rng, num_paths=num_paths)
    direct = {problem.source, problem.target} in [set(edge) for edge in problem.edges]
    if mistakes == "unused" and not direct:
        return replace(good, steps=_add_shortcut(problem, encoding, rng, good.steps))
    if problem.kind is Kind.CONNECTIVITY:
        # Without a path the shortcut is the only way to a yes; with one of several edges it is half of the mistakes.
        if not is_connected(problem) or (not direct and (mistakes == "shortcut" or rng.random() < 0.5)):
            return replace(good, steps=_add_shortcut(problem, encoding, rng, ""), answer=VERDICTS[True])
        return replace(good, steps="", answer=VERDICTS[False])
    best = shortest_path(problem)
    assert best is not None
    if mistakes == "misread":
        return _misread(problem, encoding, rng, good, [best, *_other_paths(problem, best, num_paths - 1)])
    longer = _other_paths(problem, best, NLGIFT_PATHS)
    kinds = ["sum", "weight"] + ["edge"] * (not direct) + ["longer"] * bool(longer)
    mistake = "edge" if mistakes == "shortcut" and not direct else rng.choice(kinds)
    if mistake == "longer":
        path = rng.choice(longer)
        return _path_solution(problem, encoding, [path], path, weigh(problem, path))
    if mistake == "edge":
        path, weights = (problem.source, problem.target), [rng.choice(problem.weights)]
        return _path_solution(problem, encoding, [path], path, weights)
    weights = weigh(problem, best)
    slip = rng.choice((-1, 1)) if total(sum(weights)) > 1 else 1
    if mistake == "weight":
        weights[rng.randrange(len(weights))] += 1
        slip = 0
    return _path_solution(problem, encoding, [best], best, weights, slip=slip)


def _add_shortcut(problem: Problem, encoding: Encoding, rng: random.Random, steps: str) -> str:
    """The steps, and before them an edge between the two nodes that does not exist."""
    if problem.kind is Kind.CONNECTIVITY:
        invented = f"{label(problem.source, encoding)} is connected to {label(problem.target, encoding)}."
        return f"{invented} {steps}".rstrip()
    heading, right = steps.split("\n", 1)
    invented = path_step((problem.source, problem.target), [rng.choice(problem.weights)], encoding)
    return f"{heading}\n{invented}\n{right}"


def _misread(
    problem: Problem, encoding: Encoding, rng: random.Random, good: Solution, paths: list[tuple[int, ...]]
) -> Solution:
    """One weight of an edge that the first path, the shortest, has not is written 1 to 3 too low; the rest follows."""
    edges_of, written = [{frozenset(pair) for pair in pairwise(path)} for path in paths], list(problem.weights)
    edges = [at for at, edge in enumerate(problem.edges) if frozenset(edge) in set().union(*edges_of) - edges_of[0]]
    edges = [at for at in edges if written[at] > 1]
    if not edges:  # nothing to misread
        return good
    at = rng.choice(edges)
    written[at] = max(1, written[at] - rng.randint(1, 3))
    misread = replace(problem, weights=tuple(written))
    best = min(paths, key=lambda path: total(sum(weigh(misread, path))))
    shuffled = rng.sample(paths, len(paths))
    return replace(_path_solution(misread, encoding, shuffled, best, weigh(misread, best)), think=good.think)


def edge_steps(problem: Problem, encoding: Encoding) -> str:
    """`1 is connected to 0. 0 is connected to 2.` along a shortest path; "" without one."""
    path = shortest_path(problem) or ()
    names = [label(node, encoding) for node in path]
    return " ".join(f"{a} is connected to {b}." for a, b in pairwise(names))


def path_step(path: tuple[int, ...], weights: list[Weight], encoding: Encoding, *, slip: Weight = 0) -> str:
    """`0 -> 4 -> 2 with a total weight of 4 + 2 = 6.`; `slip` is added to the sum."""
    arrows = " -> ".join(label(node, encoding) for node in path)
    added = " + ".join(str(weight) for weight in weights)
    return f"{arrows} with a total weight of {added} = {total(sum(weights) + slip)}."


def weigh(problem: Problem, path: tuple[int, ...]) -> list[Weight]:
    """The weight of each edge of a path. Raises KeyError for an edge that does not exist."""
    weights = {frozenset(edge): weight for edge, weight in zip(problem.edges, problem.weights, strict=True)}
    return [weights[frozenset(pair)] for pair in pairwise(path)]


def _path_solution(
    problem: Problem,
    encoding: Encoding,
    paths: list[tuple[int, ...]],
    chosen_path: tuple[int, ...],
    weights: list[Weight],
    *,
    slip: Weight = 0,
) -> Solution:
    """`weights` and `slip` hold for the chosen path; the other paths are written with their true weights."""
    source, target = label(problem.source, encoding), label(problem.target, encoding)
    lines = [f"Some possible paths from node {source} to node {target} are:"]
    for path in paths:
        written, wrong_by = (weights, slip) if path == chosen_path else (weigh(problem, path), 0)
        lines.append(path_step(path, written, encoding, slip=wrong_by))
    arrows = "->".join(label(node, encoding) for node in chosen_path)
    length = total(sum(weights) + slip)
    # The rows of both ends: a path of two edges goes through a node that stands in both.
    think = " ".join(incident_row(problem, encoding, node) for node in (problem.source, problem.target))
    answer = f"The shortest path is {arrows}. The length of shortest path is {length}."
    return Solution(think=think, steps="\n".join(lines), answer=answer)


def _other_paths(problem: Problem, best: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """Of the first `count` simple paths with at most one edge more than the optimum, those that are longer than it."""
    if count <= 0:
        return []
    graph, optimum = graph_of(problem), total(sum(weigh(problem, best)))
    simple = networkx.all_simple_paths(graph, problem.source, problem.target, cutoff=len(best))
    paths = [tuple(path) for path in islice(simple, count)]
    return [path for path in paths if total(sum(weigh(problem, path))) != optimum]


def _search(problem: Problem, encoding: Encoding) -> str:
    """A breadth-first search, written row by row until one holds the target: each step is only a look-up."""
    graph = graph_of(problem)
    target = label(problem.target, encoding)
    queue, rows = [problem.source], []
    for node in queue:
        reached = problem.target in graph[node]
        rows.append(f"{incident_row(problem, encoding, node)} Is {target} there? {'Yes' if reached else 'No'}.")
        if reached:
            break
        queue += [neighbour for neighbour in sorted(graph[node]) if neighbour not in queue]
    return " ".join(rows)
