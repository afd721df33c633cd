"""envs.papers.graph_rl.graphs.parse and verify: what a response says, and whether the graph agrees."""

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.papers.graph_rl.graphs.encodings import ENCODINGS, Encoding
from envs.papers.graph_rl.graphs.generate import generate
from envs.papers.graph_rl.graphs.parse import labels, read_path_answer, read_step, read_yes_no, sentences, split_parts
from envs.papers.graph_rl.graphs.problem import Kind, Problem
from envs.papers.graph_rl.graphs.solution import solve, spoil
from envs.papers.graph_rl.graphs.verify import Verdict, check

LINKS = Problem(kind=Kind.CONNECTIVITY, num_nodes=7, edges=((0, 4), (1, 4), (4, 5), (2, 3)), source=0, target=5)
APART = replace(LINKS, target=2)
ROADS = Problem(
    kind=Kind.SHORTEST_PATH,
    num_nodes=6,  # node 5 has no edge
    edges=((0, 4), (0, 3), (0, 1), (1, 4), (4, 2), (2, 3), (4, 3)),
    weights=(4, 3, 3, 4, 2, 1, 1),
    source=0,
    target=2,
)
MIX = {"shortest_path_share": 0.5, "connectivity_nodes": (4, 12), "path_nodes": (4, 12)}


def reply(steps: str, answer: str) -> str:
    return f"<think>...</think><response>{steps}</response><answer>{answer}</answer>"


def verdict(problem: Problem, step: str, encoding: Encoding = "incident") -> Verdict:
    (checked,) = check(problem, reply(step, ""), encoding).steps
    return checked.verdict


def answered(problem: Problem, answer: str, encoding: Encoding = "incident") -> Verdict:
    return check(problem, reply("", answer), encoding).answer.verdict


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("0 is connected to 4.", Verdict.CORRECT),
        ("4 is connected to 0", Verdict.CORRECT),  # (e) the order of endpoints does not matter
        ("Node 0 is connected to node 4.", Verdict.CORRECT),
        ("NODE 4 Is Connected To 0, 1 and 5.", Verdict.CORRECT),
        ("- 0 is connected to 4.", Verdict.CORRECT),
        ("Step 3: 0 is connected to 4.", Verdict.CORRECT),
        ("0 -> 4 → 5.", Verdict.CORRECT),
        ("Path: node 0 -> node 4", Verdict.CORRECT),
        ("0 is connected to 5.", Verdict.HALLUCINATED_EDGE),  # there is a path, but no edge
        ("4 is connected to 0, 2.", Verdict.HALLUCINATED_EDGE),
        ("0 is connected to 6.", Verdict.HALLUCINATED_EDGE),  # (f) node 6 is alone, and is a node
        ("0 is connected to 7.", Verdict.HALLUCINATED_NODE),
        ("99999999999999999999999 is connected to 0.", Verdict.HALLUCINATED_NODE),
        ("0 -> 4 -> 9", Verdict.HALLUCINATED_NODE),
        ("0 is connected to node 4 with weight 2.", Verdict.HALLUCINATED_WEIGHT),  # the graph has none
        ("0 is connected to 4 in length 2.", Verdict.UNREADABLE),
        ("0 is not connected to 4.", Verdict.UNREADABLE),
        ("There is no path 0 -> 2.", Verdict.UNREADABLE),
        ("It is connected to 4.", Verdict.UNREADABLE),
        ("0 is connected to", Verdict.UNREADABLE),
        ("0 is connected to 4 5.", Verdict.UNREADABLE),
        ("0 ->", Verdict.UNREADABLE),
        ("-> 0", Verdict.UNREADABLE),
        ("0 -> 4, 4 -> 5", Verdict.UNREADABLE),  # one claim in a step
        ("So there is a path.", Verdict.UNREADABLE),
        ("A is connected to B.", Verdict.UNREADABLE),
        ("٠ is connected to 4.", Verdict.UNREADABLE),
    ],
)
def test_steps_of_connectivity(step: str, expected: Verdict) -> None:
    assert verdict(LINKS, step) is expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("0 -> 4 -> 2 with a total weight of 4 + 2 = 6.", Verdict.CORRECT),
        ("0 -> 4 -> 2 with a total weight of 4.0 + 2 = 6.0.", Verdict.CORRECT),
        ("0 -> 4 -> 2 with a total weight of 6.", Verdict.CORRECT),
        ("0 -> 4 -> 2", Verdict.CORRECT),
        ("0 -> 4 with a total weight of 4 = 4.", Verdict.CORRECT),
        ("2 -> 4 -> 0 with a total weight of 2 + 4 = 6.", Verdict.CORRECT),  # true, if of no use
        ("Node 0 is connected to node 4 with weight 4, node 3 with weight 3.", Verdict.CORRECT),
        ("0 -> 4 -> 2 with a total weight of 4 + 2 = 7.", Verdict.INCORRECT),  # (c) a slip
        ("0 -> 4 -> 2 with a total weight of 7.", Verdict.INCORRECT),
        ("0 -> 4 -> 2 with a total weight of 4 + 2 + 1 = 7.", Verdict.INCORRECT),
        ("0 -> 4 -> 2 with a total weight of 4 + 3 = 7.", Verdict.HALLUCINATED_WEIGHT),  # (b)
        ("0 -> 4 with a total weight of 3.", Verdict.HALLUCINATED_WEIGHT),
        ("0 is connected to 4 with weight 5.", Verdict.HALLUCINATED_WEIGHT),
        ("0 -> 2 with a total weight of 4 = 4.", Verdict.HALLUCINATED_EDGE),
        ("0 -> 5 with a total weight of 4 = 4.", Verdict.HALLUCINATED_EDGE),
        ("0 -> 6 -> 2 with a total weight of 4 + 2 = 6.", Verdict.HALLUCINATED_NODE),
        ("0 -> 4 with a weight of 4, that is 4 less than 8.", Verdict.UNREADABLE),
    ],
)
def test_steps_of_shortest_paths(step: str, expected: Verdict) -> None:
    assert verdict(ROADS, step) is expected


@pytest.mark.parametrize(
    ("encoding", "step", "expected"),
    [
        ("graph-expert", "A is connected to E.", Verdict.CORRECT),
        ("graph-expert", "A is connected to F.", Verdict.HALLUCINATED_EDGE),
        ("graph-expert", "A is connected to Z.", Verdict.HALLUCINATED_NODE),
        ("graph-expert", "0 is connected to 4.", Verdict.UNREADABLE),
        ("friendship", "Evan is connected to Christian.", Verdict.CORRECT),
        ("friendship", "Evan is connected to Daisy.", Verdict.HALLUCINATED_EDGE),
        ("friendship", "Evan is connected to Wanda.", Verdict.HALLUCINATED_NODE),
        ("friendship", "Evan is connected to Mozart.", Verdict.HALLUCINATED_NODE),
        ("friendship", "It is connected to Evan.", Verdict.UNREADABLE),
        ("adjacency", "0 is connected to 4.", Verdict.CORRECT),
    ],
)
def test_steps_in_other_encodings(encoding: Encoding, step: str, expected: Verdict) -> None:
    assert verdict(LINKS, step, encoding) is expected


@pytest.mark.parametrize(
    "answer", ["yes", "Yes.", "YES", "The answer is yes.", "**Yes**", "Yes, there is a path: yes!"]
)
def test_yes_in_any_form(answer: str) -> None:
    assert answered(LINKS, answer) is Verdict.CORRECT


def test_no_is_wrong_and_neither_or_both_is_missing() -> None:
    assert answered(LINKS, "The answer is no.") is Verdict.INCORRECT
    for answer in ("", "yes or no", "maybe", "yesterday", "north"):
        assert answered(LINKS, answer) is Verdict.MISSING


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The shortest path is 0->3->2. The length of shortest path is 4.", Verdict.CORRECT),
        ("0->3->2, length 4", Verdict.CORRECT),
        ("The shortest path from node 0 to node 2 is node 0 -> node 3 -> node 2 with 3 + 1 = 4", Verdict.CORRECT),
        ("0->3->2. The length of the shortest path between node 0 and node 2 is 4 (3 + 1)", Verdict.CORRECT),
        # The length may come first, where it is called one.
        ("The shortest path has length 4: 0->3->2", Verdict.CORRECT),
        ("The length of the shortest path between node 0 and node 2 is 4. The path is 0 -> 3 -> 2.", Verdict.CORRECT),
        ("Total weight: 3 + 1 = 4; path 0->3->2", Verdict.CORRECT),
        ("length 5, path 0->3->2", Verdict.INCORRECT),
        ("4: 0->3->2", Verdict.MISSING),
        ("The length of the path from node 0 to node 4 is what 0->3->2 adds up to", Verdict.MISSING),
        ("0->4->2, length 6", Verdict.INCORRECT),  # P2: real, but longer
        ("0->4->2, length 4", Verdict.INCORRECT),
        ("0->3->2, length 5", Verdict.INCORRECT),
        ("2->3->0, length 4", Verdict.INCORRECT),  # (d) starts at the source
        ("0->3->2->3->2, length 6", Verdict.INCORRECT),
        ("0->2, length 4", Verdict.HALLUCINATED_EDGE),  # P4
        ("0->9->2, length 4", Verdict.HALLUCINATED_NODE),
        ("0->3->2 with 2 + 2 = 4", Verdict.HALLUCINATED_WEIGHT),
        ("4", Verdict.MISSING),  # P6
        ("0->3->2", Verdict.MISSING),
        ("0->2", Verdict.MISSING),  # missing comes before hallucinated
        ("0->3->2, length 4; or 0->4->2, length 6", Verdict.MISSING),
        ("0,3,2 length 4", Verdict.MISSING),
        ("0->banana->2, length 4", Verdict.MISSING),
        # One length is an answer, a choice of them is none.
        ("0->3->2, length 6 or 5 or 4", Verdict.MISSING),
        ("0->3->2, length 4 or 5", Verdict.MISSING),
        ("0->3->2, length 4, 5", Verdict.MISSING),
        ("length 5 or length 4: 0->3->2", Verdict.MISSING),
        ("length 5: 0->3->2, length 4", Verdict.MISSING),
        ("0->2, length 4 or 5", Verdict.HALLUCINATED_EDGE),
        ("0->9, length 4 or 5", Verdict.HALLUCINATED_NODE),
        ("1. Path: 0->3->2\n2. Length: 4", Verdict.CORRECT),
        ("1) 0->3->2 2) 4", Verdict.CORRECT),
        ("1) 0->3->2 2) 5", Verdict.INCORRECT),
        ("0->3->2, the weight of 0-3 is 3 and 3-2 is 1, length 4", Verdict.CORRECT),
        ("edges of weight 3 and 1 : 0->3->2 , length 4", Verdict.CORRECT),
        ("0->3->2, passing 1 intermediate node, length 4", Verdict.CORRECT),
        ("0->3->2, length 4, passing 1 intermediate node", Verdict.CORRECT),
        ("0->3->2, passing 4 nodes I think, length 5", Verdict.INCORRECT),
        ("0->3->2, length 4, total 5", Verdict.MISSING),
        ("length 4: 0->3->2 with 3 + 1 = 4", Verdict.CORRECT),
        ("length 4: 0->3->2 with 2 + 2 = 4", Verdict.HALLUCINATED_WEIGHT),
        ("0->3->2 with weights 3 and 1, length 4", Verdict.CORRECT),
        ("0->3->2. It leads from 0 to 2 over 3 nodes and 2 edges, and its length is 4.", Verdict.CORRECT),
    ],
)
def test_answers_of_shortest_paths(answer: str, expected: Verdict) -> None:
    assert answered(ROADS, answer) is expected


def test_every_optimum_is_right() -> None:
    tie = Problem(
        kind=Kind.SHORTEST_PATH,
        num_nodes=4,
        edges=((0, 1), (1, 3), (0, 2), (2, 3)),
        weights=(1, 2, 2, 1),
        source=0,
        target=3,
    )
    assert answered(tie, "0->1->3, length 3") is answered(tie, "0->2->3, length 3") is Verdict.CORRECT


def test_weights_with_fractions_add_up() -> None:
    tenths = Problem(
        kind=Kind.SHORTEST_PATH, num_nodes=3, edges=((0, 1), (1, 2)), weights=(0.1, 0.2), source=0, target=2
    )
    assert verdict(tenths, "0 -> 1 -> 2 with a total weight of 0.1 + 0.2 = 0.3.") is Verdict.CORRECT
    assert answered(tenths, "0->1->2, length 0.3") is Verdict.CORRECT
    assert answered(tenths, "length 0.3: 0->1->2 with 0.1 + 0.2") is Verdict.CORRECT


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think></think><response></response><answer></answer>", True),
        ("Well.\n<think>a</think>\n<response>b</response>\n<answer>c</answer>", True),
        ("<response></response><answer></answer>", False),
        ("<think></think><answer></answer><response></response>", False),
        ("<think></think><response></response><answer></answer><answer></answer>", False),
        ("<think><response></think></response><answer></answer>", False),
        ("<think></think><response></response><answer>", False),
        ("<THINK></THINK><response></response><answer></answer>", False),
    ],
)
def test_the_format_is_each_tag_once_in_order(text: str, kept: bool) -> None:
    assert split_parts(text).well_formed is kept


def test_evaluation_goes_on_after_a_format_error_with_the_last_parts() -> None:
    text = "<answer>no</answer><response>0 is connected to 4.</response><answer>yes</answer>"
    report = check(LINKS, text)
    assert not report.well_formed
    assert [step.verdict for step in report.steps] == [report.answer.verdict] == [Verdict.CORRECT]


def test_spans_are_the_sentences_of_the_response() -> None:
    text = reply("1. 0 is connected to 4. 4 is connected to 2.\n\n * So what", "The answer is yes.")
    report = check(LINKS, text)
    spans = [step.span.of(text) for step in report.steps if step.span]
    assert spans == ["0 is connected to 4.", "4 is connected to 2.", "So what"]
    assert [step.detail for step in report.steps] == ["", "no edge 4-2", "not in the format of a step"]
    assert report.answer.span and report.answer.span.of(text) == "The answer is yes."


@pytest.mark.parametrize(
    ("sentence", "framing"),
    [
        ("The answer is yes.", True),
        ("the answer is No", True),
        ("The answer is 4.5.", True),
        ("Some possible paths from node 0 to node 2 are:", True),
        ("Some possible paths from Evan to Daisy are:", True),
        ("The answer is: yes.", True),
        ("**The answer is yes.**", True),
        ("The answer is yes, since there is a path between them.", True),
        ("The answer is yes, since 0 is connected to 9.", False),
        ("The answer is yes, because 0 -> 9", False),
        ("The answer is that 0 -> 9.", False),
        ("The answer is 4 since 0 is connected to 9.", False),
        ("Some possible paths from node 0 to node 2 are: 0 is connected to 2.", False),
        ("Some possible paths from 0 over 9 to 2 are:", False),
    ],
)
def test_only_nlgifts_whole_sentences_frame(sentence: str, framing: bool) -> None:
    assert len(check(ROADS, reply(sentence, "")).steps) == (not framing)


@pytest.mark.parametrize(
    ("problem", "steps", "answer", "right"),
    [
        (LINKS, "0 is connected to 4. 4 is connected to 5.", "yes", True),
        (LINKS, "5 -> 4 -> 0. 1 is connected to 4.", "yes", True),  # also backwards, and with a step too many
        (LINKS, "0 is connected to 4. 4 is connected to 5.", "no", False),
        (LINKS, "0 is connected to 5.", "yes", False),  # the shortcut
        (LINKS, "0 is connected to 4. 4 is connected to 5. 0 is connected to 5.", "yes", False),
        (LINKS, "0 is connected to 4. 2 is connected to 3.", "yes", False),  # they exist, and lead nowhere
        (LINKS, "", "yes", False),
        (APART, "", "no", True),
        (APART, "0 is connected to 4.", "no", True),
        (APART, "0 is connected to 2.", "no", False),
        (ROADS, "", "The shortest path is 0->3->2. The length of shortest path is 4.", True),
        (ROADS, "0 -> 2 with a total weight of 4.", "The shortest path is 0->3->2. The length is 4.", False),
        (ROADS, "", "The shortest path is 0->4->2. The length of shortest path is 6.", False),
    ],
)
def test_an_answer_is_right_by_real_steps(problem: Problem, steps: str, answer: str, right: bool) -> None:
    assert check(problem, reply(steps, answer)).right_by_real_steps == right


def test_half_of_the_mistakes_about_nodes_some_edges_apart_are_the_shortcut() -> None:
    def texts(problem: Problem) -> list[str]:
        return [spoil(problem, "incident", random.Random(seed)).text().split("</think>")[1] for seed in range(200)]

    shortcut = "<response>0 is connected to 5.</response><answer>The answer is yes.</answer>"
    silent = "<response></response><answer>The answer is no.</answer>"
    far = texts(LINKS)
    assert set(far) == {shortcut, silent} and 80 <= far.count(shortcut) <= 120
    assert set(texts(replace(LINKS, target=4))) == {silent}  # an edge joins these, so it is no mistake to say so
    assert set(texts(APART)) == {shortcut.replace("5", "2")}


def test_all_mistakes_may_be_the_shortcut() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        assert spoil(LINKS, "incident", rng, mistakes="shortcut").steps == "0 is connected to 5."
        path = spoil(ROADS, "incident", rng, mistakes="shortcut").answer
        assert path.startswith("The shortest path is 0->2. ")
        direct = replace(LINKS, target=4)  # an edge joins these
        assert spoil(direct, "incident", rng, mistakes="shortcut").answer == "The answer is no."


def test_an_unused_mistake_is_seen_in_the_steps_and_not_in_the_answer() -> None:
    for problem in (LINKS, APART, ROADS):
        report = check(problem, spoil(problem, "incident", random.Random(0), mistakes="unused").text())
        first, *others = [step.verdict for step in report.steps]
        assert first is Verdict.HALLUCINATED_EDGE and set(others) <= {Verdict.CORRECT}
        assert report.answer.verdict is Verdict.CORRECT and report.shown and not report.right_by_real_steps
    direct = replace(LINKS, target=4)  # an edge joins these, so it is no mistake to say so
    assert spoil(direct, "incident", random.Random(0), mistakes="unused").answer == "The answer is no."


TRIANGLE = Problem(
    kind=Kind.SHORTEST_PATH, num_nodes=3, edges=((0, 1), (0, 2), (1, 2)), weights=(2, 5, 2), source=0, target=2
)


def test_a_misread_weight_makes_the_answer_wrong_where_it_makes_a_path_the_shortest() -> None:
    """Of 0-1-2 and 0-2, 4 and 5, only 5 can be misread: as 4, which is no less than 4, or as 3 or 2."""
    texts = [spoil(TRIANGLE, "incident", random.Random(seed), mistakes="misread").text() for seed in range(300)]
    wrong = 0
    for text in texts:
        report = check(TRIANGLE, text)
        assert sorted(step.verdict for step in report.steps) == [Verdict.CORRECT, Verdict.HALLUCINATED_WEIGHT]
        assert "Node 0 is connected to node 1 with weight 2, node 2 with weight 5" in text  # the row was read rightly
        read = int(re.findall(r"0 -> 2 with a total weight of (\d) =", text)[0])
        assert read in (2, 3, 4) and (report.answer.verdict is Verdict.CORRECT) == (read == 4)
        assert f"path is {'0->1->2' if read == 4 else '0->2'}. The length of shortest path is {min(read, 4)}" in text
        wrong += read != 4
    assert wrong / len(texts) == pytest.approx(2 / 3, abs=0.09)
    light = replace(TRIANGLE, weights=(1, 1, 1))  # no weight can be lower than 1
    assert check(light, spoil(light, "incident", random.Random(0), mistakes="misread").text()).right_by_real_steps


def test_nlgifts_frame_is_no_step() -> None:
    step = "0 -> 3 -> 2 with a total weight of 3 + 1 = 4."
    framed = f"Some possible paths from node 0 to node 2 are:\n{step}\nThe answer is 4."
    assert len(check(ROADS, reply(framed, "")).steps) == 1
    assert check(ROADS, reply("The answer is 4.", "")).steps == ()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_mistake_states_a_weight_that_no_graph_has(encoding: Encoding) -> None:
    """A weight of 0 or less would give away which solutions were spoilt."""
    for problem in generate(60, 1, **MIX):  # type: ignore[arg-type]
        for seed in range(4):
            steps = spoil(problem, encoding, random.Random(seed)).steps
            stated = re.findall(r"total weight of ([0-9+ -]+)=", steps)
            assert all(int(weight) >= 1 for added in stated for weight in added.split("+"))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_right_solutions_pass_and_spoilt_ones_do_not(encoding: Encoding) -> None:
    seen: set[Verdict] = set()
    for problem in generate(60, 1, **MIX):  # type: ignore[arg-type]
        rng = random.Random(7)
        good = check(problem, solve(problem, encoding, rng).text(), encoding)
        assert good.well_formed
        assert {step.verdict for step in good.steps} | {good.answer.verdict} == {Verdict.CORRECT}
        bad = check(problem, spoil(problem, encoding, rng).text(), encoding)
        assert bad.well_formed
        verdicts = {step.verdict for step in bad.steps} | {bad.answer.verdict}
        assert verdicts - {Verdict.CORRECT}
        seen |= verdicts
    assert seen >= {Verdict.INCORRECT, Verdict.HALLUCINATED_EDGE, Verdict.HALLUCINATED_WEIGHT}


PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<response>",
        "</response>",
        "<answer>",
        "</answer>",
        "0",
        "4",
        "->",
        " ",
        "is connected to",
    ]
    + ["with weight", "+", "=", ".", ",", "and", "node", "\n", "9" * 400, "1.5", "-", "yes", "\ud800", "\0", "²", "٣"]
)


@settings(max_examples=150)
@given(st.one_of(st.text(), st.lists(PIECES).map(" ".join)), st.sampled_from(ENCODINGS))
def test_any_text_gets_a_report_with_spans_inside_of_it(text: str, encoding: Encoding) -> None:
    for problem in (LINKS, ROADS):
        for response in (text, reply(text, text)):
            report = check(problem, response, encoding)
            for checked in (*report.steps, report.answer):
                assert checked.span is None or 0 <= checked.span.start <= checked.span.end <= len(response)
    names = labels(5, encoding)
    read_step(text, names), read_path_answer(text, names), read_yes_no(text)


@given(
    st.lists(st.sampled_from(["a. ", "a\n", "- a. ", "1. a\n", "a.a ", " ", "\n", "-", "1"]), min_size=6).map("".join)
)
def test_sentences_follow_each_other_and_leave_out_no_word(text: str) -> None:
    part = split_parts(f"<response>{text}</response>").response
    assert part
    whole = f"<response>{text}</response>"
    spans = list(sentences(whole, part))
    assert len(spans) >= min(2, text.count("a. ") + text.count("a\n"))
    assert all(a.end <= b.start for a, b in zip(spans, spans[1:], strict=False))
    assert "".join(span.of(whole) for span in spans).count("a") == text.count("a")


@pytest.mark.cpu_seconds(5)
@pytest.mark.parametrize(
    "piece",
    ["0 -> ", "0 is connected to 4. ", "\n", " ", "- ", "1 + ", "<response>", "</answer>", "."]
    + [
        "1) ",
        "or 4 ",
        "The answer is yes since" + " " * 50_000 + "connected\n",
        "The answer is" + " " * 99_000 + "x\n",
    ],
)
def test_a_long_text_is_read_in_one_pass(piece: str) -> None:
    text = piece * (200_000 // len(piece))  # quadratic time would show as a timeout
    check(ROADS, reply(text, text))
    check(LINKS, text)


@pytest.mark.parametrize("arrow", ["->", "-->", "→", r"\rightarrow", r"\to", '"->"', " $\\to$ "])
def test_arrows_as_people_write_them(arrow: str) -> None:
    path = f" {arrow} ".join("032")
    assert answered(ROADS, f"The path is {path}, length 4.") is Verdict.CORRECT
    assert answered(ROADS, f"The path is {path}, length -4.") is Verdict.INCORRECT
