"""The JSON of trajectories, rewards and lines to score: what is written is read again, and a bad line names its key."""

import json
from typing import Any

import pytest

from rlsys.errors import BadInput
from rlsys.examples import read_answer
from rlsys.jsonl import json_line, json_object
from rlsys.records import GroupRecord, Tokens, make_record, read_group, read_trajectory, score_json, to_json
from rlsys.rollout import EpisodeBroken, failure_of
from rlsys.transcripts import read_transcript
from rlsys.types import EpisodeEnd, Failure, FailureKind, Group, Message, Reward, Task, Timings, TokenStream
from tests.makers.made import group, ticket, trajectory, turn
from tests.makers.report_example import agent_episode
from tests.refused import refused

TASK = {"question": "Capital of France?", "answers": ["Paris"]}


def line(**fields: Any) -> bytes:
    return json.dumps({"task": TASK, "response": "r", **fields}).encode()


def whole(response: str) -> tuple[Message, ...]:
    return (Message(role="assistant", content=response),)


def test_every_field_of_the_contract_arrives() -> None:
    read = read_transcript(
        line(truncated=True, num_tokens=7, token_ids=[1, 2], correct=False, judgements=["GOOD", "so BAD"]), whole
    )
    assert read.task.question == "Capital of France?" and read.task.answers == ("Paris",)
    assert read.task.record == TASK
    assert read.messages == (Message(role="assistant", content="r"),)
    assert (read.truncated, read.num_tokens, read.token_ids, read.correct) == (True, 7, (1, 2), False)
    assert read.judgements == ("GOOD", "so BAD")


def test_what_is_absent_or_null_is_not_given() -> None:
    for fields in ({}, {"truncated": None, "num_tokens": None, "token_ids": None, "correct": None, "messages": None}):
        read = read_transcript(line(**fields), whole)
        assert (read.truncated, read.num_tokens, read.token_ids, read.correct) == (False, None, None, None)


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
        read_transcript(text, whole)
    assert part in str(bad.value)
    assert "\n" not in str(bad.value) and len(str(bad.value)) < 200


def test_what_is_written_has_exactly_the_keys_of_the_contract() -> None:
    streams = (TokenStream(name="repetition", values=(0.0, -0.05), discount=0.99),)
    value = 2 / 3
    written = score_json(Reward(value=value, parts={"f1": value}, streams=streams), 3)
    assert written == {
        "status": "scored",
        "reward": value,
        "parts": {"f1": value},
        "token_rewards": {"repetition": [0.0, -0.05]},
    }
    assert json.loads(json.dumps(written))["reward"] == value  # full precision
    assert score_json(failure_of(BadInput("no"), "score"), 7) == {
        "status": "failure",
        "kind": "data",
        "line": 7,
        "detail": "no",
    }


# -- trajectories -----------------------------------------------------------------------------------------------------

BROKEN = Failure(kind=FailureKind.INFRA, where="engine", detail="it died")
NO_KEY = Failure(kind=FailureKind.DATA, where="reward", detail="no answers")


def played_once(**changes: Any) -> Group:
    task = Task(task_id="t:1", question="2 + 3?", answers=("5",), record={"source": "hand", "answers": 5})
    messages = (
        Message(role="user", content="2 + 3?"),
        Message(role="assistant", content="call \ud800"),
        Message(role="tool", content="5", inline=True),
        Message(role="assistant", content="5"),
    )
    options: dict[str, Any] = {
        "reward": Reward(value=0.1 + 0.2, parts={"a": 0.1, "b": 0.2}),
        "timings": Timings(generate_s=0.5, tool_s=0.25, score_s=0.12345678),
    }
    turns = turn((1, 2), (5, 6), version=(3, 4)), turn((1, 2), (7, 8, 9), version=(3, 4, 4))
    played = trajectory(*turns, task=task, sibling=1, messages=messages, num_prompt=1, **options | changes)
    return group(ticket(7, task=task), played, worker="rollout:0")


def written(**changes: Any) -> bytes:
    played = played_once(**changes)
    return json_line(to_json(make_record(played.trajectories[0], played)))


def test_a_trajectory_stands_in_a_line_with_all_that_scoring_needs() -> None:
    assert json_object(written(metrics={"errors": 2.0}, state={"place": [1, 2]}), "here") == {
        "task": {"source": "hand", "task_id": "t:1", "question": "2 + 3?", "answers": ["5"]},
        "sequence": 7,
        "sibling": 1,
        "attempt": 0,
        "worker": "rollout:0",
        "prompt": [{"role": "user", "content": "2 + 3?"}],
        "messages": [
            {"role": "assistant", "content": "call \ud800"},
            {"role": "tool", "content": "5", "inline": True},
            {"role": "assistant", "content": "5"},
        ],
        "end": "answered",
        "truncated": False,
        "reward": 0.1 + 0.2,
        "parts": {"a": 0.1, "b": 0.2},
        "advantage": None,
        "num_tokens": 5,
        "token_ids": [[5, 6], [7, 8, 9]],
        "weight_versions": [[[3, 0, 1], [4, 1, 2]], [[3, 0, 1], [4, 1, 3]]],
        "metrics": {"errors": 2.0},
        "state": {"place": [1, 2]},
        "seconds": {"generate": 0.5, "tool": 0.25, "score": 0.1235},
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reward": Reward(value=0.0, parts={}, correct=False, judgements=("BAD", "GOOD"))},
        {"reward": BROKEN, "end": EpisodeEnd.FAILED},
        {"state": {"place": [1, 2], "open": {"door": True}}},
        {"reward": NO_KEY, "end": EpisodeEnd.FAILED, "ended": EpisodeEnd.TOKEN_LIMIT, "metrics": {"errors": 1.0}},
    ],
)
def test_a_group_is_read_as_it_was_written(changes: dict[str, Any]) -> None:
    played = played_once(**changes)
    samples = (Tokens(token_ids=(1, 2, 5, 6), sampled=((2, 4),)),)
    records = [
        make_record(episode, played, advantage=0.5, tokenizer="v", samples=samples) for episode in played.trajectories
    ]
    records += [make_record(episode, played) for episode in played.trajectories]
    whole_group = GroupRecord(sequence=7, task_id="t:1", trajectories=tuple(records))
    assert read_group(json_object(json_line(to_json(whole_group)), "here"), "here") == whole_group


def test_which_turn_a_turn_continues_is_written_and_read() -> None:
    line = agent_episode()
    assert [(turn["number"], turn.get("after"), turn.get("begins")) for turn in line["turns"]] == [
        *((2, 0, "again"), (3, None, "retold"), (4, None, "conversation"), (5, 4, None)),
        *((0, None, "conversation"), (1, 0, None), (6, 1, None)),
    ]
    assert json_line(to_json(read_trajectory(line, "here"))) == json_line(line)


def test_what_an_earlier_version_has_generated_is_read() -> None:
    old = {
        "task": {"task_id": "t:1", "question": "q", "answers": ["5"]},
        "sequence": 7,
        "sibling": 2,
        "prompt": [{"role": "user", "content": "q"}],
        "messages": [{"role": "assistant", "content": "5"}],
        "end": "answered",
        "truncated": False,
        "num_tokens": 2,
        "weight_versions": [[[1, 0, 2]]],
    }
    graded = {"reward": 1.0, "parts": {"correct": 1.0}, "tokenizer": "v"}
    graded["samples"] = [{"token_ids": [1, 2, 5, 6], "sampled": [[2, 4]]}]
    failed = {"failure": {"kind": "timeout", "where": "episode", "detail": "late"}}
    lines = {"sequence": 7, "task_id": "t:1", "trajectories": [old | graded, old | failed]}
    record, other = read_group(lines, "here").trajectories
    assert (record.reward, record.samples[0].sampled, record.weight_versions) == (1.0, ((2, 4),), (((1, 0, 2),),))
    assert other.failure == Failure(kind=FailureKind.TIMEOUT, where="episode", detail="late") and other.reward is None
    assert read_transcript(json_line(old | graded), whole).token_ids == (5, 6)


def test_what_was_sampled_is_scored_by_its_tokens_and_the_verdicts_that_were_given() -> None:
    judged = Reward(value=0.0, parts={}, correct=False, judgements=("BAD", "GOOD"))
    read = read_transcript(written(reward=judged, end=EpisodeEnd.TOKEN_LIMIT), whole)
    assert (read.token_ids, read.num_tokens, read.truncated) == ((5, 6, 7, 8, 9), 5, True)
    assert (read.correct, read.judgements) == (False, ("BAD", "GOOD"))
    assert [message.role for message in read.messages] == ["assistant", "tool", "assistant"]
    assert read.task.answers == ("5",)


def test_the_final_state_is_read_again() -> None:
    state = {"place": [1, 2], "share": 0.1 + 0.2, "said": "caf\u00e9 \ud800"}
    assert read_transcript(written(state=state), whole).state == state
    assert read_transcript(written(), whole).state is None
    with refused('"state"', found="a list"):
        read_transcript(line(state=[1]), whole)


def test_half_a_conversation_is_not_scored_and_one_whose_scoring_failed_is() -> None:
    with pytest.raises(EpisodeBroken) as broken:
        read_transcript(written(reward=BROKEN, end=EpisodeEnd.FAILED), whole)
    assert broken.value.failure == BROKEN
    again = written(reward=NO_KEY, end=EpisodeEnd.FAILED, ended=EpisodeEnd.TOKEN_LIMIT)
    assert read_transcript(again, whole).truncated
    assert read_transcript(line(failure="somebody else's"), whole).messages == whole("r")


def answered(**samples: Any) -> dict[str, Any]:
    return {"prompt": "q", "response": "r", "tokenizer": "v", "samples": [{"token_ids": [1, 2, 3, 4], **samples}]}


def test_sampled_tokens_begin_behind_the_first_and_spans_ascend() -> None:
    for spans in ([[1, 2]], [[1, 4]], [[1, 2], [2, 4]]):
        (sample,) = read_answer(answered(sampled=spans), "here").answers[0].samples
        assert sample == Tokens(token_ids=(1, 2, 3, 4), sampled=tuple(map(tuple, spans)))
    for bad in ([[0, 2]], [[1, 5]], [[2, 2]], [[1, 3], [2, 4]], [[2, 4], [1, 2]], [[1, 2, 3]], [[1.0, 2]], [], None):
        with refused('"sampled"', where="here", says='"samples"'):
            read_answer(answered(sampled=bad), "here")


@pytest.mark.parametrize("samples", [[1], {}, {"a": 1}, "text", [{"token_ids": [1, -2], "sampled": [[1, 2]]}]])
def test_samples_are_a_list_of_objects_with_tokens(samples: Any) -> None:
    with refused(where="here", says='"samples"'):
        read_answer(answered() | {"samples": samples}, "here")
