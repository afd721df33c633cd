"""A made-up world of people, towns and guilds: questions for search on a laptop, made for very small models.

Every fact is a passage of one sentence in Search-R1's form. Names are three syllables out of a dozen, so that a
vocabulary of 512 tokens spells them and a small policy can copy them; no fact follows from another, so that the only
way to an answer is to read it.

    What is the ruler of the birthplace of Zokami?       two hops: search, read the town, search, read the answer
    "Zokami"\\nThe birthplace of Zokami is Lutera.
    "Lutera"\\nThe ruler of Lutera is Bikano.

Worked episodes show right searches and typical mistakes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from envs.protocols import Answer, Protocol
from envs.services.retriever.corpus import Document, contents
from envs.tasks.prompts import MAX_EXAMPLES
from envs.tasks.splits import is_held_out, make_generated_task
from rlsys.errors import require
from rlsys.seeds import derive_seed
from rlsys.types import Message, Task

Search = Callable[[str], Sequence[Document]]
SYLLABLES = ("ba", "di", "fo", "ka", "lu", "mi", "no", "pe", "ra", "su", "te", "zo")
# By kind of thing: each relation and the kind of what it leads to, so that any relation can follow any other.
RELATIONS: Mapping[str, Mapping[str, str]] = {
    "person": {"birthplace": "town", "teacher": "person", "guild": "guild"},
    "town": {"ruler": "person", "twin": "town", "guard": "guild"},
    "guild": {"founder": "person", "seat": "town", "rival": "guild"},
}


@dataclass(frozen=True, kw_only=True)
class KnowledgeConfig:
    entities: int = 300
    """Number of made-up people, towns and guilds, a third each. Each has three facts, and is the start of nine
    questions of two hops."""
    hops: int = 2
    """Number of passages that an answer needs: 1 to 3."""

    def __post_init__(self) -> None:
        # Three of a kind at least, or a name would have no other to be mistaken for.
        fits = 9 <= self.entities <= len(SYLLABLES) ** 3
        require(fits, "env.knowledge.entities", self.entities, f"9 to {len(SYLLABLES) ** 3}")
        require(self.hops in (1, 2, 3), "env.knowledge.hops", self.hops, "1 to 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Question(start="Zokami", relations=("birthplace", "ruler"), answer="Bikano")"""

    start: str
    relations: tuple[str, ...]  # in the order they are searched
    answer: str

    @property
    def text(self) -> str:
        chain = " of ".join(f"the {relation}" for relation in reversed(self.relations))
        return f"What is {chain} of {self.start}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeBase:
    kinds: Mapping[str, str]  # name -> person, town or guild
    facts: Mapping[tuple[str, str], str]  # (name, relation) -> name
    documents: tuple[Document, ...]  # one a fact


def knowledge_base(config: KnowledgeConfig, seed: int) -> KnowledgeBase:
    """The same for the same arguments."""
    rng = random.Random(derive_seed("knowledge", seed, config.entities))
    spelled = ["".join(parts).capitalize() for parts in itertools.product(SYLLABLES, repeat=3)]
    names = rng.sample(spelled, config.entities)
    kinds = {name: tuple(RELATIONS)[at % len(RELATIONS)] for at, name in enumerate(names)}
    by_kind = {kind: [name for name in names if kinds[name] == kind] for kind in RELATIONS}
    facts: dict[tuple[str, str], str] = {}
    for name in names:
        for relation, target in RELATIONS[kinds[name]].items():
            facts[name, relation] = rng.choice([candidate for candidate in by_kind[target] if candidate != name])
    documents = tuple(
        Document(id=str(at), contents=contents(name, sentence(relation, name, value)))
        for at, ((name, relation), value) in enumerate(facts.items())
    )
    return KnowledgeBase(kinds=kinds, facts=facts, documents=documents)


def questions(base: KnowledgeBase, hops: int, seed: int) -> list[Question]:
    """Every question of so many hops, shuffled, but those whose way leads back to where it began."""
    all_questions = [question for name in base.kinds for question in _chains(base, name, hops)]
    random.Random(derive_seed("questions", seed)).shuffle(all_questions)
    return all_questions


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp:
    """A base and its questions, in the same order every time. No question is in two of the three."""

    base: KnowledgeBase
    examples: tuple[Question, ...]  # for prompts
    train: tuple[Question, ...]
    held_out: tuple[Question, ...]


def generate_questions(config: KnowledgeConfig, seed: int) -> MadeUp:
    base = knowledge_base(config, seed)
    all_questions = questions(base, config.hops, seed)
    train = [question for question in all_questions if not is_held_out(question.text)]
    held_out = tuple(question for question in all_questions if is_held_out(question.text))
    examples, train = tuple(train[:MAX_EXAMPLES]), train[MAX_EXAMPLES:]
    return MadeUp(base=base, examples=examples, train=tuple(train), held_out=held_out)


def to_task(question: Question) -> Task:
    record = {"start": question.start, "relations": list(question.relations)}
    return make_generated_task("made-up", question.text, question.answer, record)


def question_of_task(task: Task) -> Question:
    record = task.record
    return Question(start=str(record["start"]), relations=tuple(map(str, record["relations"])), answer=task.answers[0])


def _chains(base: KnowledgeBase, start: str, hops: int) -> Iterator[Question]:
    ways: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), (start,))]  # relations taken, names passed
    for _ in range(hops):
        ways = [
            ((*relations, relation), (*names, base.facts[names[-1], relation]))
            for relations, names in ways
            for relation in RELATIONS[base.kinds[names[-1]]]
        ]
    for relations, names in ways:
        if len(set(names)) == len(names):
            yield Question(start=start, relations=relations, answer=names[-1])


def query(relation: str, name: str) -> str:
    """What to search for."""
    return f"{relation} of {name}"


def sentence(relation: str, name: str, value: str) -> str:
    return f"The {relation} of {name} is {value}."


def read_value(documents: Sequence[Document], relation: str, name: str) -> str | None:
    """What the documents say about a relation of a name; None where they do not say it."""
    begin, _, end = sentence(relation, name, "\0").partition("\0")
    for document in documents:
        if document.text.startswith(begin) and document.text.endswith(end):
            return document.text[len(begin) : len(document.text) - len(end)]
    return None


def read_anything(documents: Sequence[Document]) -> str | None:
    """What a careless reader takes for the answer: the last word of the first document."""
    words = documents[0].text.rstrip(".").split(" ") if documents else []
    return words[-1] if words else None


KINDS = ("relation", "name", "early", "malformed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What goes wrong at a hop: Mistake(kind="relation", hop=0, instead="teacher")"""

    kind: Literal["relation", "name", "early", "malformed"]
    hop: int
    instead: str = ""  # the relation or the name that is searched for


def episode(question: Question, protocol: Protocol, search: Search, mistake: Mistake | None) -> list[Message]:
    """The messages after the prompt. Results are true, and the answer is what was read in the last of them.

    `relation` and `name` search for something else, `early` answers before its hop, `malformed` leaves a call's tag
    open: the episode ends there, or, where the protocol allows it, continues without a mistake.
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
        search_query = query(relation, name)
        call = _thinking(protocol, thought) + protocol.write_call(search_query)
        if slip is not None and slip.kind == "malformed":
            messages.append(Message(role="assistant", content=call.removesuffix(protocol.stop[0]).rstrip()))
            if protocol.malformed is None:
                return messages
            messages.append(protocol.malformed)
        documents = search(search_query)
        messages.append(Message(role="assistant", content=call))
        messages.append(protocol.reply(search_query, protocol.show(documents)))
        name = read_value(documents, relation, name) or read_anything(documents) or name
        thought = f"It is {name}."
    messages.append(Message(role="assistant", content=_thinking(protocol, thought) + protocol.write_answer(name)))
    return messages


def write_direct_answer(
    question: Question, base: KnowledgeBase, protocol: Protocol, guess: random.Random | None
) -> list[Message]:
    """The answer without a search; with `guess`, another name of its kind."""
    answer, kind = question.answer, base.kinds[question.answer]
    if guess is not None:
        answer = guess.choice([name for name in base.kinds if base.kinds[name] == kind and name != answer])
    thought = f"I need the {question.relations[0]} of {question.start}."
    return [Message(role="assistant", content=_thinking(protocol, thought) + protocol.write_answer(answer))]


def _thinking(protocol: Protocol, thought: str) -> str:
    return f"<think> {thought} </think> " if protocol.thinks else ""


def mistakes(question: Question, base: KnowledgeBase, rng: random.Random) -> list[Mistake]:
    """One of each kind at each hop, shuffled; the first kinds are as likely as each other."""
    slips = [Mistake(kind="early", hop=hop) for hop in range(1, len(question.relations))]
    name = question.start
    for hop, relation in enumerate(question.relations):
        kind = base.kinds[name]
        relations = [candidate for candidate in RELATIONS[kind] if candidate != relation]
        names = [candidate for candidate in base.kinds if base.kinds[candidate] == kind and candidate != name]
        slips += [
            Mistake(kind="relation", hop=hop, instead=rng.choice(relations)),
            Mistake(kind="name", hop=hop, instead=rng.choice(names)),
            Mistake(kind="malformed", hop=hop),
        ]
        name = base.facts[name, relation]
    kinds = sorted({mistake.kind for mistake in slips})
    rng.shuffle(kinds)
    rng.shuffle(slips)
    return sorted(slips, key=lambda mistake: kinds.index(mistake.kind))


def from_memory(question: Question, base: KnowledgeBase, protocol: Protocol) -> list[Message]:
    """The only message of a protocol without calls: the facts in turn where it thinks, and the right answer."""
    name, facts = question.start, []
    for relation in question.relations:
        value = base.facts[name, relation]
        facts.append(sentence(relation, name, value))
        name = value
    return [Message(role="assistant", content=_thinking(protocol, " ".join(facts)) + protocol.write_answer(name))]


def write_flawed(
    question: Question,
    base: KnowledgeBase,
    protocol: Protocol,
    search: Search,
    rng: random.Random,
    kinds: Sequence[str] = KINDS,
) -> list[Message]:
    """An episode with a mistake in it: it ends in a wrong answer or, after a malformed call, as the protocol has it."""
    right = protocol.write_answer(question.answer)
    for mistake in (candidate for candidate in mistakes(question, base, rng) if candidate.kind in kinds):
        messages = episode(question, protocol, search, mistake)
        parsed = protocol.parse(messages[-1].content)
        if mistake.kind == "malformed" or (isinstance(parsed, Answer) and not messages[-1].content.endswith(right)):
            return messages
    raise AssertionError("a malformed call is always possible, and so is an early answer to several hops")
