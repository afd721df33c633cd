"""envs.rewards.scoring: a line of JSON to a transcript, and a result to a line."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import REWARDS, make_reward
from envs.protocols.icrl import INFORMATION
from envs.protocols.research import RESULT
from envs.protocols.retool import INTERPRETER
from envs.rewards.scoring import asks, decided, failure_of, inline_of, outcome, read_transcript, to_record
from envs.worlds.calculator import CalculatorConfig
from envs.worlds.python import PythonMathConfig
from envs.worlds.search import SearchQAConfig
from rlsys.choices import choose
from rlsys.errors import BadInput
from rlsys.rollout import EpisodeBroken
from rlsys.types import Failure, FailureKind, Message, Reward, TokenStream, Transcript

TASK = {"question": "Capital of France?", "answers": ["Paris"]}


def line(**fields: Any) -> bytes:
    return json.dumps({"task": TASK, "response": "r", **fields}).encode()


def reward_of(name: str) -> Any:
    return make_reward(choose("reward", REWARDS, name).schema())


def test_every_field_of_the_contract_arrives() -> None:
    read = read_transcript(
        line(truncated=True, num_tokens=7, token_ids=[1, 2], correct=False, judgements=["GOOD", "so BAD"]), None
    )
    assert read.task.question == "Capital of France?" and read.task.answers == ("Paris",)
    assert read.task.record == TASK
    assert read.messages == (Message(role="assistant", content="r"),)
    assert (read.truncated, read.num_tokens, read.token_ids, read.correct) == (True, 7, (1, 2), False)
    assert read.judgements == ("GOOD", "so BAD")


def test_what_is_absent_or_null_is_not_given() -> None:
    for fields in ({}, {"truncated": None, "num_tokens": None, "token_ids": None, "correct": None, "messages": None}):
        read = read_transcript(line(**fields), None)
        assert (read.truncated, read.num_tokens, read.token_ids, read.correct) == (False, None, None, None)


def test_a_response_is_split_by_the_recipes_tags_and_messages_stand_as_given() -> None:
    text = "<search>q</search><result>d</result><answer>a</answer>"
    roles = [message.role for message in read_transcript(line(response=text), RESULT).messages]
    assert roles == ["assistant", "tool", "assistant"]
    said = [{"role": "assistant", "content": text}, {"role": "user", "content": "u"}, {"role": "tool", "content": ""}]
    read = read_transcript(json.dumps({"task": TASK, "messages": said}).encode(), RESULT)
    assert [(message.role, message.content) for message in read.messages] == [
        (message["role"], message["content"]) for message in said
    ]


def test_the_tags_are_the_environments_else_the_rewards() -> None:
    research, icrl, answer = (reward_of(name) for name in ("research", "icrl", "answer"))
    assert inline_of(SearchQAConfig(protocol="research"), answer) is RESULT
    assert inline_of(SearchQAConfig(protocol="icrl"), research) is INFORMATION
    assert inline_of(PythonMathConfig(), answer) is INTERPRETER
    assert inline_of(CalculatorConfig(), icrl) is INFORMATION
    assert inline_of(SearchQAConfig(protocol="swirl"), answer) is None


BAD: list[tuple[bytes, str]] = [
    (b"nope", "not JSON"),
    (b"\xff", "not UTF-8"),
    (b"[1]", "a list, expected a JSON object"),
    (b"9" * 5000, "not usable JSON"),
    (b"[" * 100_000, "not usable JSON"),
    (b'{"response": "r"}', 'no "task"'),
    (line(task=[1]), '"task" is a list'),
    (line(task={"question": 3}), '"task.question" is 3, expected a text'),
    (line(task={"answers": "Paris"}), "\"task.answers\" is 'Paris', expected a list of texts"),
    (line(task={"answers": ["a", 3]}), '"task.answers" is a list with a number, expected a list of texts'),
    (line(response=None), 'neither "response" nor "messages"'),
    (line(messages=[]), '"response" and "messages", expected one'),
    (line(response=["r"]), '"response" is a list, expected a text'),
    (line(response=None, messages={}), '"messages" is {}, expected a list'),
    (line(response=None, messages=["hi"]), "messages[0] is a text, expected an object"),
    (line(response=None, messages=[{"role": "system", "content": ""}]), "messages[0].role is 'system'"),
    (line(response=None, messages=[{"role": ["tool"], "content": ""}]), "messages[0].role is a list"),
    (line(response=None, messages=[{"role": "tool", "content": None}]), "messages[0].content is null"),
    (line(truncated="no"), "\"truncated\" is 'no', expected true or false"),
    (line(truncated=0), '"truncated" is 0'),
    (line(num_tokens=-1), '"num_tokens" is -1, expected a whole number'),
    (line(num_tokens=True), '"num_tokens" is True'),
    (line(num_tokens=1.5), '"num_tokens" is 1.5'),
    (line().replace(b"{", b'{"num_tokens": 1e999, ', 1), '"num_tokens" is inf'),
    (line(token_ids=[1, "2"]), '"token_ids" is a list with a text'),
    (line(token_ids=[1, -2]), '"token_ids" is a list, expected a list of whole numbers, 0 or more'),
    (line(correct=1), '"correct" is 1, expected true or false'),
    (line(judgements="GOOD"), "\"judgements\" is 'GOOD', expected a list of texts"),
    (line(judgements=[None]), '"judgements" is a list, expected a list of texts'),
]


@pytest.mark.parametrize(("text", "part"), BAD)
def test_a_bad_line_says_what_was_found_and_expected(text: bytes, part: str) -> None:
    with pytest.raises(BadInput) as bad:
        read_transcript(text, None)
    assert part in str(bad.value)
    assert "\n" not in str(bad.value) and len(str(bad.value)) < 200


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
    result = outcome(reward_of(name), read_transcript(line(task={}), None))
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
    result = outcome(reward_of(name), read_transcript(line(task=task, response=response), None))
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
        return read_transcript(line(task=task, response=f"\\boxed{{{answer}}}", num_tokens=0, **fields), None)

    assert not asks(reward, read("\\sqrt{8}")) and not asks(reward, read("2\\sqrt{2}", correct=False))
    assert not asks(reward_of("research"), read("2\\sqrt{2}"))
    open_one = read("2\\sqrt{2}")
    assert asks(reward, open_one)
    for verdict, value in ((True, 2.0), (False, -10.0)):
        result = outcome(reward, asyncio.run(decided(reward, open_one, Says(verdict), nobody)))
        assert isinstance(result, Reward) and result.value == value


def test_what_breaks_is_typed_and_never_a_zero() -> None:
    read = read_transcript(line(), None)

    def raises(error: Exception) -> Any:
        def reward(_: Transcript) -> Reward:
            raise error

        return outcome(reward, read)

    broken = Failure(kind=FailureKind.INFRA, where="grader", detail="a worker died")
    assert raises(EpisodeBroken(broken)) is broken
    assert raises(BadInput("no key")).detail == "no key"
    assert raises(TimeoutError("late")).kind is FailureKind.TIMEOUT
    assert raises(KeyError("x")) == Failure(kind=FailureKind.DATA, where="score", detail="KeyError: 'x'")
    for value in (float("nan"), float("inf")):
        result = outcome(lambda _, value=value: Reward(value=value, parts={"a": value}), read)  # type: ignore[misc]
        assert isinstance(result, Failure) and result.kind is FailureKind.DATA


def test_what_is_written_has_exactly_the_keys_of_the_contract() -> None:
    streams = (TokenStream(name="repetition", values=(0.0, -0.05), discount=0.99),)
    value = 2 / 3
    written = to_record(Reward(value=value, parts={"f1": value}, streams=streams), 3)
    assert written == {
        "status": "scored",
        "reward": value,
        "parts": {"f1": value},
        "token_rewards": {"repetition": [0.0, -0.05]},
    }
    assert json.loads(json.dumps(written))["reward"] == value  # full precision
    assert to_record(failure_of(BadInput("no")), 7) == {
        "status": "failure",
        "kind": "data",
        "line": 7,
        "detail": "no",
    }


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
        read = read_transcript(text, INFORMATION)
    except BadInput:
        return
    for name in REWARDS:
        written = to_record(outcome(reward_of(name), read), 1)
        json.dumps(written, allow_nan=False)
        if written["status"] == "failure":  # a bad record says so itself: nothing was stumbled over
            assert not written["detail"].split(":")[0].endswith("Error"), (name, written)
