"""envs.papers.graph_rl.reward: the worked cases of the paper's two algorithms, in both presets."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.papers.graph_rl.reward import GraphRLReward, GraphRLRewardConfig
from rlsys.errors import BadInput
from rlsys.types import Task
from tests.makers.made import transcript
from tests.refused import refused

LINKS = Task(
    task_id="links",
    question="",
    record={"kind": "connectivity", "num_nodes": 6, "edges": [[0, 4], [1, 4], [2, 4]], "source": 0, "target": 2},
)
APART = Task(task_id="apart", question="", record=dict(LINKS.record) | {"target": 5})
# NLGift's first test problem: 0,3,2 of length 4 is the only optimum.
ROADS = Task(
    task_id="roads",
    question="",
    record={
        "kind": "shortest_path",
        "num_nodes": 5,
        "edges": [[0, 4, 4], [0, 3, 3], [0, 1, 3], [1, 4, 4], [4, 2, 2], [2, 3, 1], [4, 3, 1]],
        "source": 0,
        "target": 2,
    },
)
NEAR = Task(task_id="near", question="", record=dict(ROADS.record) | {"source": 4, "target": 3})
THREE = "0 is connected to 4. 4 is connected to 2. 1 is connected to 4."
INVENTED = "0 is connected to 2."
TWO_PATHS = "0 -> 4 -> 2 with a total weight of 4 + 2 = 6.\n0 -> 3 -> 2 with a total weight of 3 + 1 = 4."


def reply(steps: str, answer: str) -> str:
    return f"<think>...</think>\n<response>{steps}</response>\n<answer>{answer}</answer>"


def values(task: Task, text: str) -> list[float]:
    """Solution and process in the appendix's preset, then in the text's."""
    kinds: tuple[Any, ...] = ("solution", "process")
    presets: tuple[Any, ...] = ("appendix", "text")
    rewards = (GraphRLReward(GraphRLRewardConfig(kind=kind, preset=preset)) for preset in presets for kind in kinds)
    return [round(reward(transcript(text, task=task)).value, 10) for reward in rewards]


def test_invented_steps_are_counted_whichever_reward_is_paid() -> None:
    conversation = transcript(reply(f"0 is connected to 4. {INVENTED}", "yes"), task=LINKS)
    for kind in ("solution", "process"):
        reward = GraphRLReward(GraphRLRewardConfig(kind=kind))  # type: ignore[arg-type]
        assert reward.pooled(conversation) == {"right_by_real_steps": (0.0, 1.0), "hallucinated_steps": (1.0, 2.0)}
        assert reward.pooled(transcript(reply("", "no"), task=APART)) == {"right_by_real_steps": (1.0, 1.0)}


CASES = {
    "C1: three correct steps, right": (LINKS, reply(THREE, "yes"), [1.1, 1.15, 1.2, 1.35]),
    "C2: one of two steps invented, right": (
        LINKS,
        reply(f"0 is connected to 4. {INVENTED}", "yes"),
        [1.1, 0.125, 1.2, 0.325],
    ),
    "three correct steps, wrong": (LINKS, reply(THREE, "no"), [0.1, 0.15, 0.2, 0.35]),
    "one of two steps unreadable, right": (LINKS, reply(f"{THREE[:20]} So it is.", "yes"), [1.1, 1.125, 1.2, 1.325]),
    "C5: no think, the rest parses, right": (
        LINKS,
        f"<response>{THREE}</response><answer>yes</answer>",
        [1.0, 1.05, 1.0, 1.05],
    ),
    "answer tag twice, right": (LINKS, reply(THREE, "yes") + "<answer>yes</answer>", [1.0, 1.05, 1.0, 1.05]),
    "no answer": (LINKS, f"<think></think><response>{THREE}</response>", [0.0, 0.05, 0.0, 0.05]),
    "an answer without tags": (LINKS, f"{THREE} The answer is yes.", [0.0, 0.0, 0.0, 0.0]),
    "empty": (LINKS, "", [0.0, 0.0, 0.0, 0.0]),
    "C7: a single step, invented, right": (LINKS, reply(INVENTED, "yes"), [1.1, -0.9, 1.2, -0.7]),
    "(a) no steps, right no": (APART, reply("", "The answer is no."), [1.1, 1.1, 1.2, 1.3]),
    "(a) no steps but NLGift's sentence": (APART, reply("The answer is no.", "No."), [1.1, 1.1, 1.2, 1.3]),
    "(f) an isolated node is in the graph, its edge is not": (
        APART,
        reply("0 is connected to 5.", "yes"),
        [0.1, -1.9, 0.2, -1.7],
    ),
    "(h) YES": (LINKS, reply(THREE, "YES"), [1.1, 1.15, 1.2, 1.35]),
    "P1: the optimum": (ROADS, reply(TWO_PATHS, "0->3->2, length 4"), [1.1, 1.15, 1.2, 1.35]),
    "P2: real but longer": (ROADS, reply(TWO_PATHS, "0->4->2, length 6"), [0.1, 0.15, 0.2, 0.35]),
    "P8: one edge with another length": (NEAR, reply("", "4->3, length 4"), [0.1, 0.1, 0.2, 0.3]),
    "one edge with its length": (NEAR, reply("", "4->3, length 1"), [1.1, 1.1, 1.2, 1.3]),
    "P4: no such edge": (ROADS, reply(TWO_PATHS, "0->2, length 4"), [-1.9, -1.85, -1.8, -1.65]),
    "no such node": (ROADS, reply(TWO_PATHS, "0->7->2, length 4"), [-1.9, -1.85, -1.8, -1.65]),
    "P6: the length only": (ROADS, reply(TWO_PATHS, "4"), [0.1, 0.15, 0.2, 0.35]),
    "P6 outside of the format": (ROADS, "<answer>4</answer>", [0.0, 0.0, 0.0, 0.0]),
    "the path only": (ROADS, reply(TWO_PATHS, "0->3->2"), [0.1, 0.15, 0.2, 0.35]),
    "the right path with another length": (ROADS, reply(TWO_PATHS, "0->3->2, length 5"), [0.1, 0.15, 0.2, 0.35]),
    "a longer path with the right length": (ROADS, reply(TWO_PATHS, "0->4->2, length 4"), [0.1, 0.15, 0.2, 0.35]),
    "(d) from the target to the source": (ROADS, reply(TWO_PATHS, "2->3->0, length 4"), [0.1, 0.15, 0.2, 0.35]),
    "(b) a wrong weight in a step": (
        ROADS,
        reply("0 -> 3 -> 2 with a total weight of 3 + 2 = 5.", "0->3->2, length 4"),
        [1.1, -0.9, 1.2, -0.7],
    ),
    "(c) a slip in a step": (
        ROADS,
        reply("0 -> 3 -> 2 with a total weight of 3 + 1 = 5.", "0->3->2, length 4"),
        [1.1, 1.1, 1.2, 1.3],
    ),
    "(e) endpoints the other way round": (
        ROADS,
        reply("2 -> 3 -> 0 with a total weight of 1 + 3 = 4.", "0->3->2, length 4"),
        [1.1, 1.15, 1.2, 1.35],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_worked_cases(case: str) -> None:
    task, text, expected = CASES[case]
    assert values(task, text) == expected


def test_one_invention_in_n_steps_costs_about_two_nths_and_the_findings_say_n() -> None:
    reward = GraphRLReward(GraphRLRewardConfig())
    true = ["0 is connected to 4.", "4 -> 2", "1 is connected to 4.", "0 -> 4 -> 1", "4 is connected to 1, 2."]
    for count in (1, 2, 6):
        conversation = transcript(
            reply(" ".join([INVENTED, *(f"{step}\n" for step in true[: count - 1])]), "yes"), task=LINKS
        )
        assert reward(conversation).parts["steps"] == pytest.approx(0.05 - 2.05 / count)
        steps = [finding for finding in reward.findings(conversation) if finding.part == "steps"]
        assert steps[0].rule == f"hallucinated edge step 1 of {count}: no edge 0-2"
        assert steps[0].text == INVENTED


@pytest.mark.parametrize(
    "padding",
    [
        "0 is connected to 4. ",
        "4 is connected to 0. ",
        "0 -> 4 -> 0 -> 4. ",
        "Let me think. ",
    ],
)
def test_a_claim_that_is_made_again_pays_for_nothing(padding: str) -> None:
    reward = GraphRLReward(GraphRLRewardConfig())
    once, often = (transcript(reply(f"{INVENTED} 0 -> 4. {padding * n}", "yes"), task=LINKS) for n in (1, 50))
    assert reward(once) == reward(often) and reward(often).value < 0.5
    invented = transcript(reply(f"{INVENTED} {INVENTED} 0 -> 4.", "yes"), task=LINKS)
    assert reward(invented).parts["steps"] == pytest.approx((2 * -2 + 0.05) / 3)  # what is made up counts each time


def test_findings_point_at_what_they_judge() -> None:
    text = reply(f"0 is connected to 4. {INVENTED}", "YES")
    findings = GraphRLReward(GraphRLRewardConfig()).findings(transcript(text, task=LINKS))
    pointed = [text[finding.span.start : finding.span.end] for finding in findings if finding.span]
    assert pointed == ["0 is connected to 4.", INVENTED, "YES"]
    assert [finding.part for finding in findings] == ["format", "process_format", "steps", "steps", "answer"]


def test_own_numbers_replace_the_presets() -> None:
    config = GraphRLRewardConfig(preset="text", hallucination=-1.0, correct=3.0, format=0.0)
    parts = GraphRLReward(config)(transcript(reply(INVENTED, "yes"), task=LINKS)).parts
    assert parts == {"format": 0.0, "process_format": 0.1, "steps": -1.0, "answer": 3.0}
    with refused("reward.hallucination", says="=nan"):
        GraphRLRewardConfig(hallucination=math.nan)


def test_a_given_verdict_stands_in_for_the_oracle_but_not_for_a_hallucination() -> None:
    reward = GraphRLReward(GraphRLRewardConfig(kind="solution"))
    for text, correct, expected in (
        (reply("", "no"), True, 1.1),
        (reply("", "yes"), False, 0.1),
        (reply("", "yes"), True, 1.1),
    ):
        assert reward(transcript(text, task=LINKS, correct=correct)).value == pytest.approx(expected)
    invented = transcript(reply("", "0->2, length 4"), task=ROADS, correct=True)
    assert reward(invented).value == pytest.approx(-1.9)


def test_the_last_message_of_the_model_counts_and_nobody_elses() -> None:
    messages = ("Hm.", ("user", reply(THREE, "no")), reply(THREE, "yes"), ("tool", reply(INVENTED, "no")))
    reward = GraphRLReward(GraphRLRewardConfig())
    assert reward(transcript(*messages, task=LINKS)).value == pytest.approx(1.15)
    assert reward(transcript(task=LINKS)).value == 0


def test_another_encoding_is_named_by_the_task() -> None:
    task = Task(task_id="named", question="", record=dict(LINKS.record) | {"encoding": "friendship"})
    steps = "Evan is connected to Christian. Christian is connected to Gillian."
    assert values(task, reply(steps, "yes")) == [1.1, 1.15, 1.2, 1.35]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"encoding": "morse"}, "\"encoding\" is 'morse'"),
        ({"edges": None}, '"edges" is None'),
        ({"kind": "shortest_path", "edges": [[0, 1, 2]]}, "no path between node 0 and node 2"),
    ],
)
def test_a_broken_task_is_bad_input(change: dict[str, Any], complaint: str) -> None:
    task = Task(task_id="broken", question="", record=dict(LINKS.record) | change)
    with pytest.raises(BadInput, match=complaint):
        GraphRLReward(GraphRLRewardConfig())(transcript(reply("", "yes"), task=task))


@settings(max_examples=100)
@given(st.text(), st.booleans())
def test_any_text_is_scored_and_its_parts_sum_to_the_value(text: str, truncated: bool) -> None:
    reward = GraphRLReward(GraphRLRewardConfig(preset="text"))
    for task in (LINKS, ROADS):
        for message in (text, reply(text, text)):
            scored = reward(transcript(message, task=task, truncated=truncated))
            assert scored.value == pytest.approx(math.fsum(scored.parts.values()))
            assert -4 <= scored.value <= 1.35
