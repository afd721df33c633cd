"""The tree of what was said: every sampled token stands behind exactly what it was sampled behind."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.dialogue import Dialogue
from rlsys.samples import sample_trajectory
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Message,
    Reward,
    SampleBegin,
    Task,
    Timings,
    ToolCall,
    Trajectory,
    TurnStop,
    VersionSpan,
)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def ids(text: str) -> list[int]:
    return list(map(ord, text))


def spoken(text: str) -> Completion:
    spans = (VersionSpan(version=0, start=0, end=len(text)),)
    return Completion(token_ids=ids(text), logprobs=[-1.0] * len(text), spans=spans, stop=TurnStop.EOS, text=text)  # type: ignore[arg-type]


def say(dialogue: Dialogue, text: str, *, after: int | None, heard: Sequence[Message]) -> None:
    """A token is a character."""
    before = list(dialogue.seen(after)) if after is not None else []
    dialogue.hear(heard, after=after)
    context = np.asarray(before + ids("".join(message.content for message in heard)), np.int32)
    dialogue.say(context, spoken(text))


def samples_of(dialogue: Dialogue) -> list[tuple[str, str]]:
    """(tokens, which of them are trained) of each sample."""
    turns, messages, num_prompt = dialogue.lay_out()
    trajectory = Trajectory(
        task=Task(task_id="t", question="q"),
        sibling=0,
        turns=turns,
        messages=messages,
        end=EpisodeEnd.ANSWERED,
        reward=Reward(value=1.0, parts={}),
        timings=Timings(generate_s=0.0, tool_s=0.0, score_s=0.0),
        num_prompt=num_prompt,
    )
    samples = sample_trajectory(trajectory, 1.0)
    return [
        (
            "".join(map(chr, sample.token_ids.tolist())),
            "".join("x" if mask else "." for mask in sample.loss_mask.tolist()),
        )
        for sample in samples
    ]


def test_an_agent_that_lets_another_work_goes_on_where_it_was() -> None:
    dialogue = Dialogue()
    say(dialogue, "AB", after=None, heard=[user("main?")])
    say(dialogue, "cd", after=None, heard=[user("sub?")])
    say(dialogue, "ef", after=1, heard=[user("more")])
    say(dialogue, "GH", after=0, heard=[user("done")])
    assert samples_of(dialogue) == [("sub?cdmoreef", "....xx....xx"), ("main?ABdoneGH", ".....xx....xx")]
    turns, messages, num_prompt = dialogue.lay_out()
    assert [message.content for message in messages] == ["main?", "sub?", "cd", "more", "ef", "AB", "done", "GH"]
    assert [turn.reply for turn in turns] == ["more", None, "done", None]
    assert [(turn.number, turn.after, turn.begins) for turn in turns] == [
        *((1, None, SampleBegin.CONVERSATION), (2, 1, None), (0, None, SampleBegin.CONVERSATION), (3, 0, None)),
    ]
    assert num_prompt == 1


def test_two_answers_to_one_history_are_two_samples_with_the_same_tokens_before() -> None:
    dialogue = Dialogue()
    say(dialogue, "AB", after=None, heard=[user("q")])
    say(dialogue, "C", after=0, heard=[user("r")])
    say(dialogue, "DE", after=0, heard=[user("s")])
    assert samples_of(dialogue) == [("qABrC", ".xx.x"), ("qABsDE", "....xx")]
    assert [message.content for message in dialogue.conversation(2)] == ["q", "AB", "s", "DE"]
    assert [turn.begins for turn in dialogue.turns] == [SampleBegin.CONVERSATION, None, SampleBegin.AGAIN]
    dialogue.hear([user("t")], after=2)
    dialogue.say(np.asarray(ids("in other tokens"), np.int32), spoken("F"))
    assert (dialogue.turns[-1].after, dialogue.turns[-1].begins) == (2, SampleBegin.REWRITTEN)


def test_what_an_agent_puts_into_the_mouth_of_the_assistant_is_not_the_models() -> None:
    dialogue = Dialogue()
    say(dialogue, "A", after=None, heard=[user("q"), Message(role="assistant", content="example"), user("p")])
    say(dialogue, "B", after=None, heard=[user("q"), Message(role="assistant", content="short"), user("r")])
    turns, messages, num_prompt = dialogue.lay_out()
    assert [turn.begins for turn in turns] == [SampleBegin.RETOLD] * 2
    assert [message.role for message in messages[:num_prompt]] == ["user", "assistant", "user"]
    assert [message.role for message in messages[num_prompt:]] == ["assistant", "user", "user", "user", "assistant"]
    assert [message.role for message in dialogue.conversation(1)] == ["user", "assistant", "user", "assistant"]


def test_what_is_heard_and_not_answered_stands_at_the_end() -> None:
    dialogue = Dialogue()
    dialogue.hear([user("q")], after=None)
    assert dialogue.lay_out() == ((), (user("q"),), 1)
    dialogue.say(np.asarray(ids("q"), np.int32), spoken("A"))
    say(dialogue, "B", after=None, heard=[user("other")])
    dialogue.hear([user("late")], after=0)
    assert [message.content for message in dialogue.lay_out()[1]] == ["q", "other", "B", "A", "late"]


def test_no_two_calls_of_an_episode_have_one_id_whatever_the_policy_writes() -> None:
    dialogue, plain = Dialogue(), ToolCall(name="add")
    own = replace(plain, call_id="000000003")
    calls = [
        call.call_id for calls in ((own, plain), (plain, own, plain), (own, plain)) for call in dialogue.number(calls)
    ]
    assert len(set(calls)) == len(calls) == 7 and calls[0] == "000000003" and {*map(len, calls)} == {9}


def test_calls_that_a_model_said_apart_are_apart_where_it_goes_on_and_in_the_text_of_the_episode() -> None:
    dialogue, apart = Dialogue(), Message(role="assistant", content="A", calls=(ToolCall(name="add"),))
    for after, completion in ((None, replace(spoken("A<add>"), said=apart)), (0, spoken("B"))):
        dialogue.hear([user("q")], after=after)
        dialogue.say(np.asarray(ids("q"), np.int32), completion)
    numbered = replace(apart, calls=(ToolCall(name="add", call_id="000000000"),))
    assert dialogue.conversation(0) == (user("q"), numbered)
    assert [(message.content, message.calls) for message in dialogue.lay_out()[1][1::2]] == [("A<add>", ()), ("B", ())]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 12), st.text("abc", min_size=1, max_size=3), st.text("xyz", max_size=3))))
def test_each_sampled_token_is_trained_once_behind_all_that_it_saw(steps: list[tuple[int, str, str]]) -> None:
    dialogue, lines = Dialogue(), dict[int, str]()
    for number, (place, reply, heard) in enumerate(steps):
        after = None if place < 0 or not number else place % number
        heard = heard or "?"
        lines[number] = (lines[after] if after is not None else "") + heard + reply
        say(dialogue, reply, after=after, heard=[user(heard)])
        assert "".join(map(chr, dialogue.seen(number).tolist())) == lines[number]
        assert "".join(message.content for message in dialogue.conversation(number)) == lines[number]
    samples = samples_of(dialogue)
    assert sum(mask.count("x") for _, mask in samples) == sum(len(reply) for _, reply, _ in steps)
    assert {text for text, _ in samples} <= set(lines.values())
    ends = {text[: mask.rindex("x") + 1] for text, mask in samples}
    assert ends == {text for text, _ in samples}  # what follows the last sampled token is in none
    turns, messages, _ = dialogue.lay_out()
    assert all(turn.starts_sample == (turn.begins is not None) for turn in turns)
    roles = [message.content for message in messages if message.role == "assistant"]
    assert roles == [turn.completion.text for turn in turns]
