"""What a model at an address wrote becomes a message of the policy: where it ends, and what its thought is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from actors.playing_here import completion_of
from envs.protocols import PROTOCOLS
from envs.services.endpoint import Choice
from rlsys.rollout import TurnRequest
from rlsys.types import Completion, TurnStop


class Letters:
    """A token for each letter, and one for the end."""

    turn_end = 0

    def text_ids(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))


def asks(*stop: str, max_tokens: int = 9) -> TurnRequest:
    return TurnRequest(max_tokens=max_tokens, temperature=1.0, top_p=1.0, seed=0, stop=stop)


def completion(text: str, request: TurnRequest, **more: Any) -> Completion:
    return completion_of(Letters(), Choice(text=text, **more), request)  # type: ignore[arg-type]


def test_an_answer_is_no_longer_than_the_policy_could_write_it() -> None:
    """However many tokens it was written in: a constructed chain of thought is as long as its actions make it."""
    found = [completion("abc", asks(max_tokens=most)) for most in (4, 3, 2)]
    assert [(each.text, each.stop, len(each.token_ids)) for each in found] == [
        ("abc", TurnStop.EOS, 4),
        ("abc", TurnStop.LENGTH, 3),  # there was no room for its end
        ("ab", TurnStop.LENGTH, 2),
    ]
    ended = completion("abc</s>", asks("</s>", max_tokens=6))
    assert (ended.text, ended.stop) == ("abc</s", TurnStop.LENGTH)


def test_an_answer_ends_where_an_engine_would_have_ended_it() -> None:
    found = [
        completion("a</s>b", asks("</s>", "b"), truncated=True),
        completion("ab", asks(), truncated=True),
        completion("ab", asks("</s>")),
    ]
    assert [(each.text, each.stop) for each in found] == [
        ("a</s>", TurnStop.STOP),
        ("ab", TurnStop.LENGTH),
        ("ab", TurnStop.EOS),
    ]
    assert [each.token_ids.tolist()[-1] for each in found] == [ord(">"), ord("b"), 0]  # its end counts as a token


@pytest.mark.parametrize("protocol", ["research", "icrl", "swirl", "o2_searcher", "retool", "ircot"])
def test_what_a_thought_mentions_ends_nothing_and_is_no_call(protocol: str) -> None:
    rules = PROTOCOLS[protocol]
    call, answer = rules.write_call("2 + 3"), rules.write_answer("5")
    thought = f"I could write {rules.write_call('7')} or {rules.write_answer('7')}, or open {rules.tags[2]}. </think>"
    request = asks(*rules.stop, max_tokens=999)
    for said in (call, answer, "neither"):
        plain, thinking = (completion(f"So: {said}", request, thought=each) for each in ("", thought))
        assert rules.parse(thinking.text) == rules.parse(plain.text)
        assert (thinking.stop, thinking.text.endswith(plain.text)) == (plain.stop, True)


def test_a_thought_that_came_apart_stands_before_the_answer() -> None:
    found = completion("5</s>6", asks("</s>", max_tokens=99), thought="two\n</s> and <s> vector<int>\n")
    assert found.text == "<think>\ntwo\n[/s] and [s] vector<int>\n</think>\n\n5</s>"
    assert completion("5", asks("</think>", max_tokens=99), thought="two").text == "5"  # it would end the message
