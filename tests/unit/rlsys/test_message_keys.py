"""A key of a message is read, changes nothing, or is refused by its name."""

from typing import Any

import pytest

from envs.tasks import conversation
from rlsys import records
from rlsys.message_keys import HARMLESS, READ, refuse_other_keys, refuse_packed
from tests.refused import refused

ANSWER = {"role": "assistant", "content": "5"}


@pytest.mark.parametrize(
    "extra",
    [
        {"reasoning_content": "2 and 3"},
        {"thinking": "2 and 3"},
        {"weight": 0},
        {"weight": 0.5},
        {"train": False},
        {"training": False},
        {"weight": False},
        {"eot": False},
        {"function_call": {"name": "add"}},
        {"prefix": True},
        {"audio": {"id": "a"}},
        {"images": ["a.png"]},
    ],
)
def test_what_would_change_what_is_learned_is_refused_by_every_reader(extra: dict[str, Any]) -> None:
    ((key, _),) = extra.items()
    with refused(f'"{key}"', where="line 7"):
        records.read_messages([ANSWER | extra], "line 7", records.ROLES)
    with refused(f'"{key}"', where="line 7"):
        conversation.read_messages([ANSWER | extra], "line 7", "messages")


@pytest.mark.parametrize(
    "extra",
    [{"weight": 1}, {"reasoning_content": None}, {"thinking": ""}, {"audio": None}, {"prefix": False}, {"images": []}],
)
def test_what_says_nothing_is_no_key(extra: dict[str, Any]) -> None:
    refuse_other_keys(ANSWER | extra, "line 7")
    assert [message.content for message in conversation.read_messages([ANSWER | extra], "line 7", "messages")] == ["5"]


def test_a_harmless_key_may_hold_anything() -> None:
    assert not READ & HARMLESS
    refuse_other_keys(ANSWER | dict.fromkeys(HARMLESS, "x"), "line 7")


def called(**message: Any) -> Any:
    (read,) = records.read_messages([{"role": "assistant", "content": "", **message}], "line 7", records.ROLES)
    return read.calls


@pytest.mark.parametrize("key", ["parameters", "args", "input", "kwargs"])
def test_a_call_has_no_other_keys_than_its_name_and_arguments(key: str) -> None:
    for call in ({"name": "add", key: {"a": 1}}, {"type": "function", "function": {"name": "add", key: {"a": 1}}}):
        with refused(f'"tool_calls.{key}"', where="line 7"):
            called(tool_calls=[call])


def test_what_a_file_of_columns_adds_to_a_call_is_no_argument() -> None:
    arguments = {"a": 1, "b": None, "c": {"d": None, "e": [{"f": None}]}}
    (of_columns,) = called(tool_calls=[{"id": None, "function": {"name": "add", "arguments": arguments}}], calls=None)
    assert of_columns.arguments == {"a": 1, "c": {"e": [{}]}}
    (of_text,) = called(tool_calls=[{"function": {"name": "add", "arguments": '{"a": null}'}}])
    (ours,) = called(tool_calls=None, calls=[{"name": "add", "arguments": {"a": None}}])
    assert of_text.arguments == ours.arguments == {"a": None}


def test_a_null_hides_no_name_and_a_number_is_an_id() -> None:
    result = {"role": "tool", "content": "5", "tool": None, "name": "add", "call_id": None, "tool_call_id": 7}
    (read,) = records.read_messages([result], "line 7", records.ROLES)
    assert (read.tool, read.call_id) == ("add", "7")
    (call,) = called(tool_calls=[{"id": 7, "function": {"name": "add", "arguments": {}}}])
    assert call.call_id == "7"


@pytest.mark.parametrize("extra", [{"toxic": False, "redacted": False}, {"train": True}, {"weight": 1}, {"eot": True}])
def test_what_holds_without_a_key_is_passed_over(extra: dict[str, Any]) -> None:
    assert records.read_messages([ANSWER | extra], "line 7", records.ROLES) == records.read_messages(
        [ANSWER], "line 7", records.ROLES
    )


def test_an_answer_that_is_an_object_of_its_own_is_no_message() -> None:
    refuse_packed('{"role": "Engineer", "content": "builds"}', "line 7", "response")
    refuse_packed("{{'role': 'user', 'content': 'a'}}", "line 7", "response")  # no Python either
    with refused('"response"', where="line 7"):
        refuse_packed('{"role": "user", "content": "builds"}', "line 7", "response")


def test_a_weight_of_the_user_s_message_changes_nothing() -> None:
    for weight in (0, 1):
        refuse_other_keys({"role": "user", "content": "2 + 3?", "weight": weight}, "line 7")
