"""envs.papers.graph_rl.summary: what an answer comes to, by rules and by a judge's summary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from envs.papers.graph_rl.summary import WAYS, SummaryReward, SummaryRewardConfig
from envs.rewards.asks import resolve_requests
from envs.rewards.qa import answer_metrics
from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import Judged, JudgeRequest
from envs.services.judge.templates import Prompts
from envs.tasks.prompts import Prompt
from rlsys.types import Message, Task, Transcript
from tests.makers.real_sets import GOAL, PLAN, PUZZLE, SCRIPT, START
from tests.refused import refused

JUDGE = JudgeConfig(endpoint="http://127.0.0.1:1/v1", model="m")
BLOCK = {"initial": START, "goal": GOAL}
TASKS = {
    "strategyqa": Task(task_id="s", question="Is one odd?", answers=("yes",)),
    "crosswords": Task(task_id="c", question="q", answers=("B",), record=PUZZLE),
    "wikidyk": Task(task_id="w", question="Who?", answers=("Ann Lee",)),
    "true_false": Task(task_id="t", question="q", answers=("false",)),
    "stance": Task(task_id="e", question="q", answers=("counter",)),
    "proscript": Task(task_id="p", question="q", record=SCRIPT),
    "blocks_plan": Task(task_id="b", question="q", record=BLOCK),
    "blocks_verify": Task(task_id="v", question="q", answers=("valid",), record=BLOCK | {"plan": PLAN}),
    "facts": Task(task_id="f", question="q", answers=("x",), record={"facts": ["Ann is odd.", "Bo is even."]}),
    "yes_no": Task(task_id="y", question="q", answers=("yes",)),
}


def said(kind: str, text: str, *judgements: str) -> Transcript:
    messages = (Message(role="assistant", content=text),)
    return Transcript(task=TASKS[kind], messages=messages, judgements=judgements or None)


def reward(kind: Any, judge: JudgeConfig | None = None) -> SummaryReward:
    return SummaryReward(SummaryRewardConfig(kind=kind, judge=judge or JudgeConfig()))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (
            "strategyqa",
            ["So the answer is yes.", "No evidence. Yes", "<answer>Yes</answer>"],
            ["no.", "", "yes or no?"],
        ),
        ("crosswords", ["The answer is B."], ["The answer is A.", "A or B"]),
        ("wikidyk", ["It was ann lee."], ["It was Ann."]),
        (
            "true_false",
            ["That is not true.", "The statement is false.", "It is not true but false."],
            ["True.", "true or false", "It is so.", "This is not false.", "It is not false but true."],
        ),
        (
            "stance",
            ["They counter each other.", "It does not support it."],
            ["support", "supporting it", "It does not counter it."],
        ),
        ("proscript", ["step1 -> step0"], ["step0->step1", "open, then pour"]),
        ("blocks_plan", [PLAN], ["pick up the red block"]),
        ("blocks_verify", ["The plan is valid."], ["The plan is invalid."]),
        ("yes_no", ["Yes, it is."], ["No."]),
    ],
)
def test_without_a_judge_rules_read_the_answer(kind: str, right: list[str], wrong: list[str]) -> None:
    scored = [reward(kind)(said(kind, text)).value for text in (*right, *wrong)]
    assert scored == [1.0] * len(right) + [0.0] * len(wrong)


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("strategyqa", "YES", "UNKNOWN"),
        ("crosswords", "**B**", "**UNKNOWN**"),
        ("wikidyk", "YES", "NO"),
        ("proscript", "step1->step0", "UNKNOWN"),
        ("blocks_plan", "VALID", "INVALID"),
        ("blocks_verify", "VALID", "hm"),
        ("facts", "YES", "NO"),
    ],
)
def test_a_summary_decides_where_there_is_one(kind: str, right: str, wrong: str) -> None:
    judged = reward(kind, JUDGE)
    (request,) = judged.judging(said(kind, "an answer"))
    assert request.kind == WAYS[kind].asks and "an answer" in Prompts("graph_rl").render(request)
    assert judged.judging(said(kind, "an answer", right)) == judged.judging(said(kind, "")) == ()
    assert [judged(said(kind, "an answer", summary)).value for summary in (right, wrong)] == [1.0, 0.0]


def test_a_summary_goes_the_way_of_every_judgement() -> None:
    requests: list[JudgeRequest] = []

    class Scripted:
        async def ask(self, request: JudgeRequest, seed: int = 0) -> Judged:
            requests.append(request)
            text = "NO, or rather YES"
            return Judged(verdict=KINDS[request.kind].read(text), text=text, cached=False)

    judged = reward("strategyqa", JUDGE)
    transcript = asyncio.run(resolve_requests(judged, said("strategyqa", "Hm."), None, lambda config: Scripted()))  # type: ignore
    assert judged(transcript).value == 1.0 and requests[0].fields["question"] == "Is one odd?"
    metrics = answer_metrics(judged, transcript)
    assert metrics["by_rules"].value == 0.0  # the rules cannot tell
    assert "by_rules" not in answer_metrics(reward("strategyqa"), said("strategyqa", "yes"))


def test_proscript_is_pooled_and_single_facts_need_a_judge() -> None:
    pooled = answer_metrics(reward("proscript"), said("proscript", "step1->step0"))["constraints_pooled"]
    assert (pooled.total, pooled.weight) == (1.0, 1.0)
    with refused("reward.kind", where="task f", found="facts"):
        reward("facts")(said("facts", "Ann"))
    assert reward("facts").always_judged and not reward("stance").always_judged


def test_proscript_is_pooled_over_constraints_and_not_over_tasks() -> None:
    script = {"steps": {f"step{n}": "x" for n in range(4)}}
    script |= {"constraints": [["step1", "step0"], ["step2", "step0"], ["step3", "step0"]]}  # type: ignore[dict-item]
    task = Task(task_id="p", question="q", record=script)
    answer = Message(role="assistant", content="step1->step0->step2->step3")
    pooled = answer_metrics(reward("proscript"), Transcript(task=task, messages=(answer,)))["constraints_pooled"]
    assert (pooled.total, pooled.weight) == (1.0, 3.0)


@pytest.mark.parametrize("facts", [None, [], "Ann is odd."])
def test_a_task_without_facts_says_so(facts: Any) -> None:
    task = Task(task_id="f", question="q", answers=("x",), record={} if facts is None else {"facts": facts})
    answered = Transcript(task=task, messages=(Message(role="assistant", content="Ann"),))
    with refused('"facts"', where="task f"):
        reward("facts", JUDGE).judging(answered)


def test_a_prompt_file_shows_fields_of_the_task(tmp_path: Any) -> None:
    own = tmp_path / "own.md"
    own.write_text("<!-- mine -->\nQ: {question} {steps} {constraints}{choices}\n")
    task = Task(task_id="t", question="why?", record={"steps": {"step0": "a"}, "constraints": [1, 2]})
    assert Prompt(str(own)).fill(task, choices="!") == "Q: why? step0: a 1, 2!"
    with refused(where="task t", says="no field 'constraints', which"):
        Prompt(str(own)).fill(Task(task_id="t", question="why?", record={"steps": "x"}), choices="!")
    with refused("env.prompt", found="graph_rl/strategqa"):
        Prompt("graph_rl/strategqa")
    own.write_text("nothing")
    with refused("env.prompt", says="no {question} and no other field"):
        Prompt(str(own))
