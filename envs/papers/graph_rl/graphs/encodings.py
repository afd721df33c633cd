"""NLGift's four ways of putting a graph problem into words (arXiv 2406.15992, "semantic patterns"), and one of ours.

NLGift's wordings are its own, to the letter, so that a model can be compared with the published ones. `letters` is its
`incident` with letters as the names of the nodes: one token each, where the numbers from 10 on are two.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import Literal, get_args

from envs.papers.graph_rl.graphs.problem import Kind, Problem

Encoding = Literal["incident", "adjacency", "friendship", "graph-expert", "letters"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)

# Node i of the friendship encoding, as in NLGift's files, which go up to node 28.
NAMES = (
    *("Evan", "Willow", "Gillian", "Thomas", "Christian", "Daisy", "Caleb", "Charles", "Timothy", "Pamela"),
    *("Ethan", "Kevin", "Isabel", "Jacob", "Kyle", "Harry", "Danielle", "Amber", "Natalie", "Isaac"),
    *("Wayne", "Martin", "Gail", "Alice", "Chloe", "Virginia", "Todd", "Jack", "Wanda"),
)

HEADINGS: dict[tuple[Kind, Encoding], str] = {
    (Kind.CONNECTIVITY, "incident"): "The following text describes an undirected graph. "
    "Determine if there is a path between two nodes in the graph.",
    (Kind.CONNECTIVITY, "adjacency"): "Determine if there is a path between two nodes in the graph. "
    "Note that (i,j) means that node i and node j are connected with an undirected edge.",
    (Kind.CONNECTIVITY, "friendship"): "G describes a friendship graph among the following people. "
    "We have the following edges in G:",
    (Kind.CONNECTIVITY, "graph-expert"): "You are a graph analyst and you have been given a graph G. "
    "G has the following undirected edges:",
    (Kind.SHORTEST_PATH, "incident"): "The following paragraph describes an undirected graph with weights.",
    (Kind.SHORTEST_PATH, "adjacency"): "The following paragraph describes the edges in an undirected graph "
    "with weights.",
    (Kind.SHORTEST_PATH, "friendship"): "G describes a friendship graph with distance as weight "
    "among the following people. We have the following weighted edges in G:",
    (Kind.SHORTEST_PATH, "graph-expert"): "You are a graph analyst and you have been given a graph G. "
    "G has the following weighted undirected edges:",
}
HEADINGS |= {(kind, "letters"): HEADINGS[kind, "incident"] for kind in Kind}
LETTERED: tuple[Encoding, ...] = ("graph-expert", "letters")


# An edge, and what stands between two of them: without weights, and with.
_EDGES = {
    "adjacency": (("({},{})", " "), ("an edge between node {} and node {} has weight {}", ", ")),
    "friendship": (("{} and {} are friends.", "\n"), ("{} and {} are friends, and they live {} miles apart.", "\n")),
    "graph-expert": (("{} -> {}", ", "), ("{} -> {} with weight {}", ", ")),
}


def label(node: int, encoding: Encoding) -> str:
    """How the encoding writes node 27: `27`, `27`, `Jack`, `AB`, `AB`."""
    if encoding == "friendship":
        rounds, index = divmod(node, len(NAMES))
        return f"{NAMES[index]}{rounds + 1}" if rounds else NAMES[index]
    return _letters(node) if encoding in LETTERED else str(node)


def wording(problem: Problem, encoding: Encoding = "incident", request: str = "") -> str:
    """The whole user message: the graph, `Q: ...?`, then `request` where NLGift puts its own, then `A:`."""
    source, target = label(problem.source, encoding), label(problem.target, encoding)
    if problem.kind is Kind.CONNECTIVITY:
        question = f"Is there a path between node {source} and node {target}?"
    else:
        question = (
            f"What is the shortest path between node {source} and node {target}, "
            "and what is the length of the shortest path?"
        )
    request = f" {request}" if request else ""
    return f"{HEADINGS[problem.kind, encoding]}\n{describe(problem, encoding)}\nQ: {question}{request}\nA:"


def describe(problem: Problem, encoding: Encoding) -> str:
    """The edges in words. A node without edges is never named, except by the numbers around it."""
    if encoding in ("incident", "letters"):
        nodes = {node for edge in problem.edges for node in edge}
        in_order = sorted(nodes, key=lambda node: label(node, encoding))
        return "\n".join(incident_row(problem, encoding, node) for node in in_order)
    weighted = problem.kind is Kind.SHORTEST_PATH
    form, between = _EDGES[encoding][weighted]
    weights = problem.weights or (0,) * len(problem.edges)
    pairs = [(label(a, encoding), label(b, encoding)) for a, b in problem.edges]
    edges = between.join(form.format(*pair, weight) for pair, weight in zip(pairs, weights, strict=True))
    return f"{edges}." if weighted and encoding == "adjacency" else edges


def incident_row(problem: Problem, encoding: Encoding, node: int) -> str:
    """`Node 4 is connected to 1, 5.`, with weights `Node 4 is connected to node 1 with weight 3.`; neighbours are
    sorted as texts: 0, 1, 10, 2. `Node 4 is connected to none.` where there are none, which NLGift never writes."""
    weights = problem.weights or (0,) * len(problem.edges)
    neighbours = sorted(
        (label(edge[edge[0] == node], encoding), weight)
        for edge, weight in zip(problem.edges, weights, strict=True)
        if node in edge
    )
    form = "{}" if problem.kind is Kind.CONNECTIVITY else "node {} with weight {}"
    listed = ", ".join(form.format(neighbour, weight) for neighbour, weight in neighbours)
    return f"Node {label(node, encoding)} is connected to {listed or 'none'}."


def _letters(node: int) -> str:
    """A .. Z, AA .. AZ, BA ..."""
    before, last = divmod(node, 26)
    return (_letters(before - 1) if before else "") + ascii_uppercase[last]
