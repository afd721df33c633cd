"""What a model at an address wrote becomes a message of the policy: where it ends, and what its thought is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from actors.chat import PROBE_OFFER
from actors.playing_here import completion_of, question_of
from actors.renderer import ChatRenderer
from envs.protocols import PROTOCOLS
from envs.protocols.families.tagged import HERMES
from envs.services.endpoint import Choice
from rlsys.rollout import EpisodeBroken, TurnRequest
from rlsys.types import Completion, Message, ToolCall, TurnStop
from tests.makers.played import tokenizer_in


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
    answers = [completion("abc", asks(max_tokens=most)) for most in (4, 3, 2)]
    assert [(answer.text, answer.stop, len(answer.token_ids)) for answer in answers] == [
        ("abc", TurnStop.EOS, 4),
        ("abc", TurnStop.LENGTH, 3),  # there was no room for its end
        ("ab", TurnStop.LENGTH, 2),
    ]
    ended = completion("abc</s>", asks("</s>", max_tokens=6))
    assert (ended.text, ended.stop) == ("abc</s", TurnStop.LENGTH)


def test_an_answer_ends_where_an_engine_would_have_ended_it() -> None:
    answers = [
        completion("a</s>b", asks("</s>", "b"), truncated=True),
        completion("ab", asks(), truncated=True),
        completion("ab", asks("</s>")),
    ]
    assert [(answer.text, answer.stop) for answer in answers] == [
        ("a</s>", TurnStop.STOP),
        ("ab", TurnStop.LENGTH),
        ("ab", TurnStop.EOS),
    ]
    assert [answer.token_ids.tolist()[-1] for answer in answers] == [ord(">"), ord("b"), 0]  # its end counts as a token


@pytest.mark.parametrize("protocol", ["research", "icrl", "swirl", "o2_searcher", "retool", "ircot"])
def test_what_a_thought_mentions_ends_nothing_and_is_no_call(protocol: str) -> None:
    rules = PROTOCOLS[protocol]
    call, answer = rules.write_call("2 + 3"), rules.write_answer("5")
    thought = f"I could write {rules.write_call('7')} or {rules.write_answer('7')}, or open {rules.tags[2]}. </think>"
    request = asks(*rules.stop, max_tokens=999)
    for text in (call, answer, "neither"):
        plain, thinking = (completion(f"So: {text}", request, thought=prefix) for prefix in ("", thought))
        assert rules.parse(thinking.text) == rules.parse(plain.text)
        assert (thinking.stop, thinking.text.endswith(plain.text)) == (plain.stop, True)


CALLED = (ToolCall(name="add", arguments={"a": 2, "b": [None, "x"]}), ToolCall(name="add"))


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    texts = ["Let me add. a b x null", HERMES.write("Let me add.", CALLED)]
    return ChatRenderer(str(tokenizer_in(tmp_path_factory.mktemp("model"), texts, HERMES.tags)))


def test_calls_are_counted_as_the_policy_would_have_made_them_and_a_cut_leaves_none(renderer: ChatRenderer) -> None:
    def ask(most: int, **more: Any) -> Completion:
        request = replace(asks("!", max_tokens=most), offer=PROBE_OFFER)
        return completion_of(renderer, Choice(text="Let me add.", calls=CALLED, **more), request)

    message = Message(role="assistant", content="Let me add.", calls=CALLED)
    ids, mask = renderer.demonstration([Message(role="user", content="a"), message], 1, (), offer=PROBE_OFFER)
    whole = ask(999)
    assert whole.token_ids.tolist() == [token for token, learned in zip(ids, mask, strict=True) if learned]
    assert (whole.said, whole.stop, whole.text) == (message, TurnStop.EOS, HERMES.write("Let me add.", CALLED))
    cut = ask(8)
    assert cut.said == Message(role="assistant", content=cut.text) and cut.text.startswith("Let me")
    assert (cut.stop, len(cut.token_ids)) == (TurnStop.LENGTH, 8)
    problem = replace(CALLED[1], problem="it is none")
    request = replace(asks(max_tokens=99), offer=PROBE_OFFER)
    plain = completion_of(renderer, Choice(text="Let"), request)
    broken = completion_of(renderer, Choice(text="Let", calls=(problem,)), request)
    assert broken.token_ids.tolist() == plain.token_ids.tolist() and broken.text == "Let"
    assert (
        broken.said is not None and plain.said is not None and (broken.said.calls, plain.said.calls) == ((problem,), ())
    )


def test_nothing_follows_a_stop_string_and_no_call_is_read_that_was_not_offered(renderer: ChatRenderer) -> None:
    choice, hermes = Choice(text="Let! me", calls=CALLED), replace(PROBE_OFFER, form="hermes")
    requests = [replace(asks(stop, max_tokens=99), offer=offer) for stop, offer in (("!", PROBE_OFFER), ("?", hermes))]
    answers = [completion_of(renderer, choice, request) for request in (*requests, asks("?", max_tokens=99))]
    stopped = Message(role="assistant", content="Let!")
    words = 'Let! me\nadd({"a": 2, "b": [null, "x"]})\nadd({})'  # of tools that it was not shown
    assert [(answer.text, answer.said) for answer in answers] == [("Let!", stopped), (words, None), (words, None)]
    assert [question_of(request).tools for request in requests] == [PROBE_OFFER.schemas, ()]


def test_log_probabilities_are_refused_by_name_before_the_model_is_asked() -> None:
    with pytest.raises(EpisodeBroken, match="logprobs"):
        question_of(replace(asks(), logprobs=True))


def test_a_thought_that_came_apart_stands_before_the_answer() -> None:
    answer = completion("5</s>6", asks("</s>", max_tokens=99), thought="two\n</s> and <s> vector<int>\n")
    assert answer.text == "<think>\ntwo\n[/s] and [s] vector<int>\n</think>\n\n5</s>"
    assert completion("5", asks("</think>", max_tokens=99), thought="two").text == "5"  # it would end the message
