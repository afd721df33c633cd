"""One line to its reward, as `rlsys score` does it: every reward, what others are asked for, and what breaks."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import REWARDS, make_reward
from envs.papers.icrl.protocol import INFORMATION
from envs.papers.research.protocol import RESULT
from envs.protocols import Inline
from envs.rewards.asks import needs_awaiting, resolve_requests
from envs.rewards.transcript import split_inline
from launch.tools.score.scorer import outcome
from rlsys.choices import choose
from rlsys.errors import BadInput
from rlsys.records import score_json
from rlsys.rollout import EpisodeBroken
from rlsys.transcripts import read_transcript
from rlsys.types import Failure, FailureKind, Reward, Transcript

TASK = {"question": "Capital of France?", "answers": ["Paris"]}


def line(**fields: Any) -> bytes:
    return json.dumps({"task": TASK, "response": "r", **fields}).encode()


def reward_of(name: str) -> Any:
    return make_reward(choose("reward", REWARDS, name).schema())


def read_line(text: bytes, inline: Inline | None) -> Transcript:
    return read_transcript(text, partial(split_inline, inline=inline))


def test_a_response_is_split_by_the_recipes_tags_and_messages_stand_as_given() -> None:
    text = "<search>q</search><result>d</result><answer>a</answer>"
    roles = [message.role for message in read_line(line(response=text), RESULT).messages]
    assert roles == ["assistant", "tool", "assistant"]
    messages = [
        {"role": "assistant", "content": text},
        {"role": "user", "content": "u"},
        {"role": "tool", "content": ""},
    ]
    read = read_line(json.dumps({"task": TASK, "messages": messages}).encode(), RESULT)
    assert [(message.role, message.content) for message in read.messages] == [
        (message["role"], message["content"]) for message in messages
    ]


NEEDED = [
    ("research", '"answers"'),
    ("icrl", '"answers"'),
    ("answer", '"answers"'),
    ("graph_rl", '"kind"'),
    ("blocksworld", '"initial"'),
    ("proscript", '"steps"'),
    ("multiple_choice", '"options"'),
    ("swirl", "judgements"),
    ("long_cot", "num_tokens"),
]


@pytest.mark.parametrize(("name", "key"), NEEDED)
def test_a_task_that_does_not_fit_the_reward_is_a_data_failure_that_names_the_key(name: str, key: str) -> None:
    result = outcome(reward_of(name), read_line(line(task={}), None))
    assert isinstance(result, Failure) and result.kind is FailureKind.DATA
    assert key.strip('"') in result.detail


FORMS = [  # (reward, task, response, value)
    ("answer", {"answers": ["24"]}, "<answer>24.0</answer>", 1.1),
    ("multiple_choice", {"options": {"A": "x", "B": "y"}, "answers": ["B"]}, "So **B**.", 1.0),
    (
        "proscript",
        {"goal": "g", "steps": ["a", "b", "c"], "constraints": [["step0", "step1"], ["step2", "step1"]]},
        "step0 -> step1 -> step2",
        0.5,
    ),
    (
        "blocksworld",
        {
            "initial": "the red block is clear, the blue block is clear, the hand is empty, the red block is on the "
            "table and the blue block is on the table",
            "goal": "the red block is on top of the blue block",
        },
        "[PLAN]\npick up the red block\nstack the red block on top of the blue block\n[PLAN END]",
        1.0,
    ),
    (
        "blocksworld",
        {
            "initial": "the red block is clear, the hand is empty and the red block is on the table",
            "goal": "the red block is on the table",
            "plan": "pick up the red block",
        },
        "The plan is invalid.",
        1.0,
    ),
]


@pytest.mark.parametrize(("name", "task", "response", "value"), FORMS)
def test_every_form_of_a_task_meets_its_reward(name: str, task: Any, response: str, value: float) -> None:
    result = outcome(reward_of(name), read_line(line(task=task, response=response), None))
    assert isinstance(result, Reward) and result.value == pytest.approx(value, abs=1e-12)


def test_only_what_needs_algebra_asks_and_the_graders_verdict_counts() -> None:
    class Says:
        def __init__(self, verdict: bool) -> None:
            self.verdict = verdict

        async def grade_any(self, given: str, golds: Any) -> bool:
            return self.verdict

    def nobody(_: Any) -> Any:
        raise AssertionError("no judge is asked")

    reward = reward_of("long_cot")

    def read(answer: str, **fields: Any) -> Transcript:
        task = {"answers": ["\\sqrt{8}"]}
        return read_line(line(task=task, response=f"\\boxed{{{answer}}}", num_tokens=0, **fields), None)

    assert not needs_awaiting(reward, read("\\sqrt{8}")) and not needs_awaiting(
        reward, read("2\\sqrt{2}", correct=False)
    )
    assert not needs_awaiting(reward_of("research"), read("2\\sqrt{2}"))
    open_one = read("2\\sqrt{2}")
    assert needs_awaiting(reward, open_one)
    for verdict, value in ((True, 2.0), (False, -10.0)):
        result = outcome(reward, asyncio.run(resolve_requests(reward, open_one, Says(verdict), nobody)))
        assert isinstance(result, Reward) and result.value == value


def test_what_breaks_is_typed_and_never_a_zero() -> None:
    read = read_line(line(), None)

    def raises(error: Exception) -> Any:
        def reward(_: Transcript) -> Reward:
            raise error

        return outcome(reward, read)

    broken = Failure(kind=FailureKind.INFRA, where="grader", detail="a worker died")
    assert raises(EpisodeBroken(broken)) is broken
    assert raises(BadInput("no key")).detail == "no key"
    assert raises(TimeoutError("late")).kind is FailureKind.TIMEOUT
    raised = raises(KeyError("x"))
    assert (raised.kind, raised.where) == (FailureKind.DATA, "score") and raised.detail.startswith(
        "KeyError: 'x' (test_"
    )
    for value in (float("nan"), float("inf")):
        result = outcome(lambda _, value=value: Reward(value=value, parts={"a": value}), read)  # type: ignore[misc]
        assert isinstance(result, Failure) and result.kind is FailureKind.DATA


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["task", "response", "messages", "truncated", "num_tokens", "token_ids", "correct", "judgements", "other"]
)
TASKS = st.dictionaries(
    st.sampled_from(["question", "answers", "kind", "edges", "num_nodes", "initial", "goal", "options", "steps"]), JSON
)
RECORDS = st.dictionaries(KEYS, JSON).flatmap(
    lambda record: st.builds(lambda task: {"response": "x", **record, "task": task}, TASKS) | st.just(record)
)


@settings(max_examples=150, deadline=None)
@given(RECORDS.map(lambda record: json.dumps(record).encode()) | st.binary(max_size=60))
def test_no_line_raises_anything_but_bad_input_and_every_result_can_be_written(text: bytes) -> None:
    try:
        read = read_line(text, INFORMATION)
    except BadInput:
        return
    for name in REWARDS.keys() - {"functions"}:  # it has functions of a user's own, and none by itself
        written = score_json(outcome(reward_of(name), read), 1)
        json.dumps(written, allow_nan=False)
        if written["status"] == "failure":  # a bad record says so itself: nothing was stumbled over
            assert not written["detail"].split(":")[0].endswith("Error"), (name, written)
