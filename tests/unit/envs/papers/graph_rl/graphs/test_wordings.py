"""Graphs of Graph-RL: wordings, targets, oracle and files, by hand and on the slices of NLGift where at hand."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.papers.graph_rl.graphs.encodings import ENCODINGS, Encoding, label, wording
from envs.papers.graph_rl.graphs.problem import (
    Kind,
    Problem,
    all_shortest_paths,
    from_record,
    is_connected,
    shortest_length,
    shortest_path,
    to_record,
    truth,
)
from envs.papers.graph_rl.graphs.read import read_problems, read_record
from envs.papers.graph_rl.graphs.solution import edge_steps, solve
from rlsys.errors import BadInput
from tests.paths import DATA, needs_data

RING = Problem(kind=Kind.CONNECTIVITY, num_nodes=12, edges=((2, 10), (0, 2), (10, 11)), source=0, target=11)
# NLGift's first test problem: 0,3,2 of length 4 is the only optimum.
ROADS = Problem(
    kind=Kind.SHORTEST_PATH,
    num_nodes=5,
    edges=((0, 4), (0, 3), (0, 1), (1, 4), (4, 2), (2, 3), (4, 3)),
    weights=(4, 3, 3, 4, 2, 1, 1),
    source=0,
    target=2,
)


def test_incident_sorts_nodes_as_texts_and_leaves_out_isolated_ones() -> None:
    assert wording(RING) == (
        "The following text describes an undirected graph. Determine if there is a path between two nodes in the graph."
        "\nNode 0 is connected to 2.\nNode 10 is connected to 11, 2.\nNode 11 is connected to 10."
        "\nNode 2 is connected to 0, 10.\nQ: Is there a path between node 0 and node 11?\nA:"
    )


def test_a_request_stands_between_question_and_answer() -> None:
    assert wording(RING, "adjacency", "Be brief.").endswith("\n(2,10) (0,2) (10,11)\nQ: Is there a path between "
                                                           "node 0 and node 11? Be brief.\nA:")  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "edge", "question"),
    [
        ("incident", "Node 3 is connected to node 0 with weight 3, node 2 with weight 1, node 4 with weight 1.", "0"),
        ("adjacency", "an edge between node 4 and node 2 has weight 2, an edge between node 2 and node 3", "0"),
        ("friendship", "Evan and Christian are friends, and they live 4 miles apart.\nEvan and Thomas", "Evan"),
        ("graph-expert", "\nA -> E with weight 4, A -> D with weight 3, ", "A"),
        ("letters", "Node D is connected to node A with weight 3, node C with weight 1, node E with weight 1.", "A"),
    ],
)
def test_shortest_path_wordings(encoding: Encoding, edge: str, question: str) -> None:
    text = wording(ROADS, encoding)
    assert edge in text
    assert f"\nQ: What is the shortest path between node {question} and node {label(2, encoding)}, and what" in text


def test_labels_go_on_after_the_alphabet_and_after_the_names() -> None:
    assert [label(node, "graph-expert") for node in (0, 25, 26, 52, 701, 702)] == ["A", "Z", "AA", "BA", "ZZ", "AAA"]
    assert [label(node, "letters") for node in (0, 25, 26)] == ["A", "Z", "AA"]
    assert [label(node, "friendship") for node in (0, 28, 29)] == ["Evan", "Wanda", "Evan2"]
    for encoding in ENCODINGS:
        assert len({label(node, encoding) for node in range(1000)}) == 1000


def test_the_oracle_on_worked_graphs() -> None:
    assert (is_connected(RING), truth(RING)) == (True, "yes")
    assert (shortest_length(ROADS), truth(ROADS)) == (4, "4")
    assert list(all_shortest_paths(ROADS)) == [(0, 3, 2)] == [shortest_path(ROADS)]


def test_an_isolated_node_is_a_node_that_nothing_reaches() -> None:
    alone = Problem(kind=Kind.CONNECTIVITY, num_nodes=3, edges=((0, 1),), source=0, target=2)
    assert (truth(alone), edge_steps(alone, "incident")) == ("no", "")
    assert "2" not in wording(alone).split("Q:")[0]
    assert solve(alone, "incident", random.Random(0)).text() == (
        "<think>Node 0 is connected to 1. Is 2 there? No. Node 1 is connected to 0. Is 2 there? No.</think>"
        "<response></response><answer>The answer is no.</answer>"
    )
    lonely = replace(alone, source=2, target=0)
    assert solve(lonely, "incident", random.Random(0)).think == "Node 2 is connected to none. Is 0 there? No."


def test_a_search_looks_rows_up_as_they_stand_in_the_question() -> None:
    thought = solve(RING, "incident", random.Random(0)).think
    rows = thought.split(" Is 11 there? ")
    assert rows[-1] == "Yes." and all(row.removeprefix("No. ") in wording(RING) for row in rows[:-1])
    ends = solve(ROADS, "incident", random.Random(0)).think
    assert [row for row in wording(ROADS).split("\n") if row in ends] == [
        row for row in wording(ROADS).split("\n") if row.startswith(("Node 0 ", "Node 2 "))
    ]


def test_targets_are_nlgifts_sentences() -> None:
    assert edge_steps(RING, "incident") == "0 is connected to 2. 2 is connected to 10. 10 is connected to 11."
    solution = solve(ROADS, "incident", random.Random(0))
    lines = solution.steps.split("\n")
    assert lines[0] == "Some possible paths from node 0 to node 2 are:"
    assert "0 -> 3 -> 2 with a total weight of 3 + 1 = 4." in lines
    assert "0 -> 4 -> 2 with a total weight of 4 + 2 = 6." in lines
    assert solution.answer == "The shortest path is 0->3->2. The length of shortest path is 4."


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any graph, with or without a path between the two nodes."""
    kind = draw(st.sampled_from(Kind))
    num_nodes = draw(st.integers(2, 12))
    nodes = st.integers(0, num_nodes - 1)
    pairs = st.tuples(nodes, nodes).filter(lambda pair: pair[0] != pair[1])
    edges = draw(st.lists(pairs, unique_by=frozenset, max_size=20))
    weights = tuple(draw(st.integers(1, 9)) for _ in edges) if kind is Kind.SHORTEST_PATH else ()
    source, target = draw(pairs)
    return Problem(
        kind=kind, num_nodes=num_nodes, edges=tuple(edges), weights=weights, source=source, target=target
    )  # fmt: skip


@settings(max_examples=50)
@given(problems())
def test_records_keep_everything(problem: Problem) -> None:
    assert from_record(json.loads(json.dumps(to_record(problem))), "here") == problem


@settings(max_examples=50)
@given(problems(), st.randoms())
def test_the_digest_is_the_graphs_alone(problem: Problem, rng: random.Random) -> None:
    record = to_record(problem)
    rng.shuffle(record["edges"])
    record["edges"] = [[b, a, *weight] for a, b, *weight in record["edges"]]
    record["source"], record["target"] = record["target"], record["source"]
    assert from_record(record, "here").digest == problem.digest


GOOD: dict[str, Any] = {
    "kind": "shortest_path",
    "num_nodes": 3,
    "edges": [[0, 1, 2], [1, 2, 1]],
    "source": 0,
    "target": 2,
}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "flow"}, "one of connectivity, shortest_path"),
        ({"edges": "0 1"}, "\"edges\" is '0 1'"),
        ({"edges": [[0, 1]]}, r"\[a, b, weight\]"),
        ({"edges": [[0, 3, 1]]}, r"edge \[0, 3, 1\]: nodes are 0 to 2"),
        ({"edges": [[0, 1, 0]]}, "a number above 0"),
        ({"edges": [[0, 1, True]]}, "weight True"),
        ({"edges": [[0, 1, float("nan")]]}, "weight nan"),
        ({"edges": [[1, 1, 1]]}, "the same node twice"),
        ({"edges": [[0, 1, 2], [1, 0, 3]]}, "listed before with weight 2"),
        ({"num_nodes": None}, '"num_nodes" is None'),
        ({"num_nodes": 10**9}, "1000000000 nodes"),
        ({"target": 0}, r"question \[0, 0\]: the same node twice"),
        ({"target": 2.0}, '"target" is 2.0'),
    ],
)
def test_a_broken_record_says_where_and_why(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=f"f.jsonl line 3: .*{complaint}"):
        from_record(GOOD | change, "f.jsonl line 3")


def test_an_edge_listed_twice_counts_once() -> None:
    assert from_record(GOOD | {"edges": [[0, 1, 2], [1, 0, 2]]}, "here").edges == ((0, 1),)


def test_three_formats_are_read(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": wording(ROADS)}, {"role": "assistant", "content": "The answer is 4."}]
    pair = [{"role": "user", "content": wording(RING)}]
    raw = {"node_number": 5, "graph": "0 4 4,0 3 3,0 1 3,1 4 4,4 2 2,2 3 1,4 3 1", "question": "0 2", "answer": 4}
    empty = {"node_number": 4, "graph": "", "question": "0 2", "answer": "no"}
    fractions = {"node_number": 3, "graph": "0 1 0.1,1 2 0.2", "question": "0 2", "answer": 0.3}
    file = tmp_path / "mixed.jsonl"
    joined = {"kind": None, "messages": None} | raw | {"node_number": 5.0, "answer": 4.0}  # of a file of columns
    records = [to_record(ROADS), raw, {"messages": chat}, {"messages": pair}, empty, fractions, joined]
    file.write_text("\n".join(map(json.dumps, records)))
    read = [problem for _, problem in read_problems(str(file))]
    assert read[0] == read[1] == read[6] == ROADS
    assert (read[2].digest, read[2].source, read[2].target) == (ROADS.digest, 0, 2)
    assert (read[3].digest, wording(read[3])) == (RING.digest, wording(RING))
    assert (read[4].edges, read[4].num_nodes) == ((), 4)
    assert (read[5].weights, truth(read[5])) == ((0.1, 0.2), "0.3")


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"question": "?"}, 'no "kind"'),
        ({"node_number": 3, "graph": "(0,1)", "question": "0 1", "answer": "no"}, "the answer is 'no', but"),
        ({"node_number": 3, "graph": "(0;1)", "question": "0 1", "answer": "no"}, '"graph" holds \''),
        ({"node_number": 3, "graph": "0 1 4", "question": "0", "answer": 4}, "\"question\" is '0'"),
        ({"node_number": 3, "graph": "0 1 4", "question": "0 2", "answer": 4}, "no path between node 0 and node 2"),
        ({"node_number": "3", "graph": "0 1 4", "question": "0 1", "answer": 4}, "\"node_number\" is '3'"),
        ({"messages": [{"role": "user", "content": "Hello"}]}, "no graph problem in the incident"),
        ({"messages": "?"}, "list of objects"),
    ],
)
def test_a_bad_line_names_itself(record: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(json.dumps(to_record(RING)) + "\n" + json.dumps(record))
    with pytest.raises(BadInput, match=f"bad.jsonl line 2: .*{complaint}"):
        read_problems(str(file))


def told(problem: Problem, rng: random.Random) -> str:
    solution = solve(problem, "incident", rng)
    if problem.kind is Kind.CONNECTIVITY:
        return f"{solution.steps} {solution.answer}".lstrip()
    return f"{solution.steps}\nThe answer is {truth(problem)}."


@needs_data
@pytest.mark.parametrize("kind", ["connectivity", "shortest_path"])
def test_nlgifts_wordings_and_targets_are_reproduced_and_its_answers_are_the_oracles(kind: str) -> None:
    raw = read_problems(str(DATA / f"nlgift_{kind}_train.jsonl"))  # raises where an answer is not the oracle's
    assert len(raw) == 500
    with open(DATA / f"nlgift_{kind}_train_incident_200.jsonl", encoding="utf-8") as file:
        chats = [json.loads(line) for line in file]
    assert len(chats) == 200
    for (_, problem), chat in zip(raw, chats, strict=False):
        rng = random.Random(0)  # as there: seeded for each problem, and 277 names shuffled before the paths are
        rng.shuffle(list(range(277)))
        _, user, assistant = chat["messages"]
        assert wording(problem) == user["content"]
        assert told(problem, rng) == assistant["content"]
        again, stored = read_record(chat, "here")
        assert (wording(again), truth(again)) == (user["content"], stored)
