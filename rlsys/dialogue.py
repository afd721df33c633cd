"""What was said in an episode, as the tree that it is.

Most episodes are one conversation: each message of the model continues the last one. Where the environment says so
(`Step.after`, `Step.reset_context`), a message continues an earlier one, or begins a conversation of its own, as an
agent does that asks twice with one history, lets another agent work, or shortens what it remembers. Then the episode
has several branches, and each is training samples of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from rlsys.types import Completion, Ints, Message, SampleBegin, ToolCall, Turn

NOTHING: Ints = np.empty(0, np.int32)


@dataclass(slots=True)
class Dialogue:
    """`hear` what the world says, then `say` what the model answers, turn by turn."""

    turns: list[Turn] = field(default_factory=list)  # in the order in which they were sampled
    said: list[Message] = field(default_factory=list)  # by the model in each, as it sees it later
    _call_ids: set[str] = field(default_factory=set)
    _after: list[int | None] = field(default_factory=list)  # which turn each continues
    _heard: list[tuple[Message, ...]] = field(default_factory=list)  # what the world said before each
    _branches: list[int] = field(default_factory=list)
    _tips: dict[int, int] = field(default_factory=dict)  # by branch, its last turn
    _next: tuple[int | None, tuple[Message, ...]] = (None, ())  # of the turn that is not sampled yet
    _last: Ints = field(default_factory=lambda: NOTHING)  # context and completion of the last turn

    def hear(self, messages: Sequence[Message], *, after: int | None) -> None:
        """after: the turn that they answer; None: they begin a conversation."""
        self._next = after, tuple(messages)
        if after is not None and self.turns[after].reply is None:
            reply = "\n".join(message.content for message in messages)
            self.turns[after] = replace(self.turns[after], reply=reply)

    def say(self, context: Ints, completion: Completion) -> None:
        """What was sampled behind `context`, which has the messages heard last at its end."""
        after, heard = self._next
        branch = len(self._tips)  # a new one, but for what continues the last turn of one
        if after is not None and self._tips[self._branches[after]] == after:
            branch = self._branches[after]
        is_new = branch not in self._tips
        turn = turn_after(NOTHING if is_new else self.seen(after), context, completion)
        begins = _sample_begin(heard, after, is_new) if turn.starts_sample else None
        self._tips[branch] = len(self.turns)
        self.turns.append(replace(turn, number=len(self.turns), after=after, begins=begins))
        said = completion.said or Message(role="assistant", content=completion.text)
        self.said.append(replace(said, calls=self.number(said.calls)))
        self._after.append(after)
        self._heard.append(heard)
        self._branches.append(branch)
        self._last = np.concatenate([context, completion.token_ids])
        self._next = None, ()

    def number(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """With ids that no other call of the episode has: its own where a call has one, else its number."""
        numbered = []
        for call in calls:
            own_id = call.call_id if call.call_id not in self._call_ids else ""
            numbers = (f"{number:09d}" for number in count(len(self._call_ids)))  # as every chat template takes them
            call_id = own_id or next(number for number in numbers if number not in self._call_ids)
            self._call_ids.add(call_id)
            numbered.append(replace(call, call_id=call_id))
        return tuple(numbered)

    def seen(self, at: int | None) -> Ints:
        """Context and completion of a turn."""
        if at == len(self.turns) - 1:
            return self._last
        parts: list[Ints] = []
        while at is not None:
            turn = self.turns[at]
            parts += [turn.completion.token_ids, turn.added_ids]
            at = None if turn.starts_sample else self._after[at]
        return np.concatenate(parts[::-1]) if parts else NOTHING

    def context(self, at: int) -> Ints:
        """What the model saw before it wrote the message of a turn."""
        return self.seen(at)[: -len(self.turns[at].completion.token_ids) or None]

    def conversation(self, at: int | None = None) -> tuple[Message, ...]:
        """The messages up to and with that of a turn, as the model was given them; None: those that it answers next."""
        parts: list[tuple[Message, ...]] = []
        if at is None:
            at, heard = self._next
            parts.append(heard)
        while at is not None:
            parts.append((*self._heard[at], self.said[at]))
            at = self._after[at]
        return tuple(message for part in parts[::-1] for message in part)

    def lay_out(self) -> tuple[tuple[Turn, ...], tuple[Message, ...], int]:
        """(turns, messages, how many of these are the prompt). The prompt is what was heard first. Then branch by
        branch, the one that was used last at the end: a sample's turns stand together, and the last message is the last
        one that was said.

        A message of the assistant's that was not sampled is the world's where it does not belong to the prompt.
        """
        lines: dict[int, list[int]] = {}
        for at, branch in enumerate(self._branches):
            lines[branch] = [*lines.pop(branch, []), at]
        after, heard = self._next
        if heard and self.turns:
            unanswered = self._branches[after] if after is not None else len(self._tips)
            lines[unanswered] = lines.pop(unanswered, [])  # to the end
        order = [at for line in lines.values() for at in line]
        prompt = self._heard[0] if order else heard
        messages = list(prompt)
        for at in order:
            messages += map(_without_token_data, self._heard[at] if at else ())
            messages.append(Message(role="assistant", content=self.turns[at].completion.text))
        messages += map(_without_token_data, heard if order else ())
        return tuple(self.turns[at] for at in order), tuple(messages), len(prompt)


def _sample_begin(heard: Sequence[Message], after: int | None, is_new: bool) -> SampleBegin:
    """Why a sample begins. is_new: whether it is a branch of its own."""
    if after is not None:
        return SampleBegin.AGAIN if is_new else SampleBegin.REWRITTEN
    retold = any(message.role == "assistant" for message in heard)
    return SampleBegin.RETOLD if retold else SampleBegin.CONVERSATION


def _without_token_data(message: Message) -> Message:
    if message.role != "assistant":
        return message
    return replace(message, role="user", content=f"(the assistant's, as it was sent) {message.content}", calls=())


def turn_after(previous_ids: Ints, context: Ints, completion: Completion) -> Turn:
    """The turn in which the model saw `context`. previous_ids: context and completion of the turn before, if any."""
    starts = len(previous_ids) == 0 or not np.array_equal(context[: len(previous_ids)], previous_ids)
    added = context if starts else context[len(previous_ids) :].copy()  # a view would keep the whole context
    return Turn(added_ids=added, starts_sample=starts, completion=completion, reply=None)
