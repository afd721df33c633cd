"""A tool that says whether an answer about a graph is right: `graph_verifier` in a list of tools."""

from __future__ import annotations

from envs.papers.graph_rl.graphs.problem import Kind, make_problem
from envs.papers.graph_rl.graphs.verify import check
from envs.tools.result import Result, ToolError
from rlsys.errors import BadInput

MOST_NODES = 100  # of a graph that a model writes


def verify_graph_answer(num_nodes: int, edges: list[list[float]], source: int, target: int, answer: str) -> Result:
    """Check an answer about an undirected graph: whether two nodes are connected, or their shortest path.

    Args:
        num_nodes: Number of nodes; they are called 0, 1, 2 and so on.
        edges: [a, b] for each edge, or [a, b, weight] for a shortest path.
        source: The first node.
        target: The second node.
        answer: yes or no; or a path with its length, such as 5->1->6. The length is 5.
    """
    if num_nodes > MOST_NODES or len(edges) > MOST_NODES**2:
        return ToolError(f"error: more than {MOST_NODES} nodes")
    kind = Kind.SHORTEST_PATH if edges and len(edges[0]) == 3 else Kind.CONNECTIVITY
    rows = [[int(node) for node in row[:2]] + row[2:] for row in edges]
    try:
        problem = make_problem(kind, num_nodes, rows, source, target, "graph")
        checked = check(problem, f"<answer>{answer}</answer>").answer
    except BadInput as error:
        return ToolError(f"error: {error}")
    return f"{checked.verdict.value}: {checked.detail}" if checked.detail else checked.verdict.value
