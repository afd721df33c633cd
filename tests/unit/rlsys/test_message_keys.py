"""A key of a message is read, changes nothing, or is refused by its name."""

from typing import Any

import pytest

from envs.tasks import conversation
from rlsys import records
from rlsys.message_keys import HARMLESS, READ, refuse_other_keys
from tests.refused import refused

ANSWER = {"role": "assistant", "content": "5"}


@pytest.mark.parametrize(
    "extra",
    [
        {"reasoning_content": "2 and 3"},
        {"thinking": "2 and 3"},
        {"weight": 0},
        {"weight": 0.5},
        {"train": True},
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
    assert [each.content for each in conversation.read_messages([ANSWER | extra], "line 7", "messages")] == ["5"]


def test_a_harmless_key_may_hold_anything() -> None:
    assert not READ & HARMLESS
    refuse_other_keys(ANSWER | dict.fromkeys(HARMLESS, "x"), "line 7")
