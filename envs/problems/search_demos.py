"""Worked episodes on made-up questions: how somebody searches who knows how, and how somebody errs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from envs.problems.knowledge import RELATIONS, KnowledgeBase, Question, query, read_anything, read_value
from envs.protocols import Answer, Protocol
from envs.services.retriever.documents import Document
from rlsys.types import Message

Search = Callable[[str], Sequence[Document]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What goes wrong at a hop: Mistake(kind="relation", hop=0, instead="teacher")"""

    kind: Literal["relation", "name", "early", "malformed"]
    hop: int
    instead: str = ""  # the relation or the name that is searched for


def episode(question: Question, protocol: Protocol, search: Search, mistake: Mistake | None) -> list[Message]:
    """The messages after the prompt. Results are true, and the answer is what was read in the last of them.

    `relation` and `name` search for something else, `early` answers one hop too soon, `malformed` leaves a call's tag
    open: the episode ends there, or where the protocol allows it goes on rightly.
    """
    messages: list[Message] = []
    name = question.start
    thought = f"I need the {question.relations[0]} of {name}."
    for hop, relation in enumerate(question.relations):
        slip = mistake if mistake is not None and mistake.hop == hop else None
        if slip is not None and slip.kind == "early":
            break
        if slip is not None and slip.kind == "relation":
            relation = slip.instead
        if slip is not None and slip.kind == "name":
            name = slip.instead
        asked = query(relation, name)
        call = _thinking(protocol, thought) + protocol.write_call(asked)
        if slip is not None and slip.kind == "malformed":
            messages.append(Message(role="assistant", content=call.removesuffix(protocol.stop[0]).rstrip()))
            if protocol.malformed is None:
                return messages
            messages.append(protocol.malformed)
        found = search(asked)
        messages.append(Message(role="assistant", content=call))
        messages.append(protocol.reply(asked, protocol.show(found)))
        name = read_value(found, relation, name) or read_anything(found) or name
        thought = f"It is {name}."
    messages.append(Message(role="assistant", content=_thinking(protocol, thought) + protocol.write_answer(name)))
    return messages


def _thinking(protocol: Protocol, thought: str) -> str:
    return f"<think> {thought} </think> " if protocol.thinks else ""


def mistakes(question: Question, base: KnowledgeBase, rng: random.Random) -> list[Mistake]:
    """One of each kind at each hop, shuffled; the first kinds are as likely as each other."""
    found: list[Mistake] = (
        [Mistake(kind="early", hop=len(question.relations) - 1)] if len(question.relations) > 1 else []
    )
    name = question.start
    for hop, relation in enumerate(question.relations):
        kind = base.kinds[name]
        relations = [other for other in RELATIONS[kind] if other != relation]
        names = [other for other in base.kinds if base.kinds[other] == kind and other != name]
        found += [
            Mistake(kind="relation", hop=hop, instead=rng.choice(relations)),
            Mistake(kind="name", hop=hop, instead=rng.choice(names)),
            Mistake(kind="malformed", hop=hop),
        ]
        name = base.facts[name, relation]
    kinds = sorted({mistake.kind for mistake in found})
    rng.shuffle(kinds)
    rng.shuffle(found)
    return sorted(found, key=lambda mistake: kinds.index(mistake.kind))


def flawed(
    question: Question, base: KnowledgeBase, protocol: Protocol, search: Search, rng: random.Random
) -> list[Message]:
    """An episode with a mistake in it: it ends in a wrong answer or, after a malformed call, as the protocol has it."""
    right = protocol.write_answer(question.answer)
    for mistake in mistakes(question, base, rng):
        messages = episode(question, protocol, search, mistake)
        parsed = protocol.parse(messages[-1].content)
        if mistake.kind == "malformed" or (isinstance(parsed, Answer) and not messages[-1].content.endswith(right)):
            return messages
    raise AssertionError("a malformed call is always possible")
