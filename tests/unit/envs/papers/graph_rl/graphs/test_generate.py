"""envs.papers.graph_rl.graphs.generate: NLGift's kind of graphs, balanced, repeatable, and apart."""

from collections import Counter
from typing import Any

import networkx
import pytest

from envs.papers.graph_rl.graphs.encodings import wording
from envs.papers.graph_rl.graphs.generate import generate, relabel
from envs.papers.graph_rl.graphs.problem import Kind, graph_of, truth
from tests.refused import refused

NLGIFT: dict[str, Any] = {"shortest_path_share": 0.5, "connectivity_nodes": (5, 35), "path_nodes": (5, 20)}
TINY: dict[str, Any] = {"shortest_path_share": 0.5, "connectivity_nodes": (4, 8), "path_nodes": (4, 8)}


def test_kinds_and_verdicts_are_balanced() -> None:
    problems = generate(400, 0, **TINY)
    kinds = Counter(problem.kind for problem in problems)
    assert kinds == {Kind.CONNECTIVITY: 200, Kind.SHORTEST_PATH: 200}
    verdicts = Counter(truth(problem) for problem in problems if problem.kind is Kind.CONNECTIVITY)
    assert verdicts == {"yes": 100, "no": 100}


@pytest.mark.parametrize(("share", "paths"), [(0.0, 0), (0.25, 25), (1.0, 100)])
def test_the_share_of_paths_is_kept(share: float, paths: int) -> None:
    problems = generate(100, 3, **(TINY | {"shortest_path_share": share}))
    assert sum(problem.kind is Kind.SHORTEST_PATH for problem in problems) == paths


def test_sizes_weights_and_structure_are_nlgifts() -> None:
    for problem in generate(200, 0, **NLGIFT):
        graph = graph_of(problem)
        assert len(problem.edges) == graph.number_of_edges()
        parts = networkx.number_connected_components(graph)
        if problem.kind is Kind.CONNECTIVITY:
            assert 5 <= problem.num_nodes <= 35 and parts >= 2 and not problem.weights
            assert all(a < b for a, b in problem.edges)
        else:
            assert 5 <= problem.num_nodes <= 20 and parts == 1
            assert set(problem.weights) <= set(range(1, 5 if problem.num_nodes <= 10 else 11))
            hops = networkx.shortest_path_length(graph, problem.source, problem.target)
            assert hops == 2 if problem.num_nodes <= 10 else 2 <= hops <= 6


def test_a_seed_gives_the_same_problems_and_a_larger_count_extends_them() -> None:
    assert generate(50, 5, **TINY) == generate(80, 5, **TINY)[:50]
    assert generate(50, 5, **TINY) != generate(50, 6, **TINY)


def test_no_question_comes_twice_and_the_sides_share_no_graph() -> None:
    train, held_out = (generate(300, 0, **TINY, held_out=side) for side in (False, True))
    questions = {(problem.kind, problem.digest, frozenset((problem.source, problem.target))) for problem in train}
    assert len(questions) == 300
    assert not {problem.digest for problem in train} & {problem.digest for problem in held_out}


def test_a_node_without_edges_makes_no_other_graph() -> None:
    """It is never named: two graphs that differ in one have the same words, so they are one question."""
    sizes: dict[str, Any] = {"shortest_path_share": 0.0, "connectivity_nodes": (3, 5), "path_nodes": (4, 8)}
    train, held_out = (generate(count, 0, **sizes, held_out=side) for count, side in ((300, False), (60, True)))
    assert len({wording(problem) for problem in train}) == 300
    edges, others = ({frozenset(problem.edges) for problem in problems} for problems in (train, held_out))
    assert not edges & others


def test_labels_are_drawn_for_each_graph_and_leave_it_as_it_is() -> None:
    plain, drawn = (generate(60, 2, **TINY, labels=labels) for labels in (None, 26))
    assert {problem.num_nodes for problem in drawn} == {26}
    used = [{node for edge in problem.edges for node in edge} for problem in drawn]
    assert set().union(*used) == set(range(26)) and max(map(len, used)) <= 8
    assert Counter(map(truth, drawn))["yes"] == Counter(map(truth, plain))["yes"] == 15
    renamed = relabel(plain[1], [3, 25, 7, 0, 11, 12, 13, 14][: plain[1].num_nodes], 26)
    assert truth(renamed) == truth(plain[1]) and len(renamed.edges) == len(plain[1].edges)


def test_no_edge_joins_nodes_that_are_to_be_some_apart() -> None:
    for problem in generate(60, 0, **(TINY | {"shortest_path_share": 0.0}), min_hops=2):
        graph = graph_of(problem)
        assert truth(problem) == "no" or networkx.shortest_path_length(graph, problem.source, problem.target) >= 2


def test_two_ways_lead_through_a_triangle_and_either_may_be_the_shorter() -> None:
    paths = {"shortest_path_share": 1.0, "connectivity_nodes": (3, 3), "path_nodes": (3, 3)}
    problems = generate(300, 0, **paths, path_hops=1, labels=26)  # type: ignore[arg-type]
    by_edge = 0
    for problem in problems:
        ends, weights = {problem.source, problem.target}, dict(zip(problem.edges, problem.weights, strict=True))
        (direct,) = [weight for edge, weight in weights.items() if {*edge} == ends]
        around = [weight for edge, weight in weights.items() if {*edge} != ends]
        assert len(around) == 2 and set(around) <= {1, 2, 3, 4} and 2 <= direct <= 8
        assert truth(problem) == str(min(direct, sum(around)))
        by_edge += direct < sum(around)
    assert 0.3 < by_edge / len(problems) < 0.6  # 106 of 256 draws; 44 are ties


def test_asking_for_more_than_there_are_is_bad_input() -> None:
    with refused(says="5000 graph problems asked for"):
        generate(5000, 0, shortest_path_share=0, connectivity_nodes=(3, 3), path_nodes=(3, 3))
