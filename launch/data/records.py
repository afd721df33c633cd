"""What a public set is, and what a recipe wants of it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from envs.tasks.conversation import turns_before
from envs.tasks.files import Located
from envs.tasks.formats import recognise
from rlsys.errors import BadInput

Row = dict[str, Any]  # one line of a task file
Passage = tuple[str, str]  # title, text
Progress = Callable[[str, int, int | None], None]  # what, done, of how many
IDS = ("id", "_id", "qid", "unique_id", "question_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """One split of a set: Files(hub=("openai/gsm8k:main",), split="train", names=("gsm8k_train*",), count=7473)"""

    names: tuple[str, ...]  # how its files are called, below any folder; the first pattern that is met counts
    hub: tuple[str, ...] = ()  # owner/name or owner/name:config; empty where no hub has it
    split: str | None = None  # on the hub
    count: int | None = None  # records, as a paper or the publisher says; None: unknown


def by_question(row: Row) -> str:
    return plain(row["question"])


def plain(words: object) -> str:
    """Without what sources differ in: case, white space, the mark at the end. Signs stay: `2 + 3` is not `2 - 3`."""
    text = unicodedata.normalize("NFKC", str(words)).casefold()
    return " ".join(text.split()).rstrip(" ?.")


def questions(*keep: str) -> Callable[[Located], Iterable[Row]]:
    """Rows of question and answers, by the format that the record is in, with the fields `keep` where it has them."""

    def rows(record: Located) -> Iterable[Row]:
        fields, task = with_metadata(record.lower), recognise(record).read(record)
        if turns_before(task):
            raise BadInput(
                "messages before the question, which the rows that are made have no place for", where=record.where
            )
        row: Row = {"id": identity(record), "question": task.question, "answers": list(task.answers)}
        if "options" in task.record:
            row["options"] = task.record["options"]
        yield row | {key: fields[key] for key in keep if fields.get(key) is not None and key not in row}

    return rows


def no_passages(record: Located) -> Iterable[Passage]:
    raise BadInput("no paragraphs are known in such records", where=record.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSet:
    """Its functions raise BadInput naming the record."""

    name: str
    title: str
    licence: str  # as its publisher says; of the data, not of a paper
    page: str  # where it is described
    splits: Mapping[str, Files]
    rows: Callable[[Located], Iterable[Row]] = field(default_factory=questions)
    passages: Callable[[Located], Iterable[Passage]] = no_passages
    same: Callable[[Row], str] = by_question  # equal for two rows of which only one side of a split may have one
    twin: Callable[[Row], str] | None = None  # equal for two rows of which one is too many; None: as `same`
    text: Callable[[Row], str] | None = by_question  # of which near-duplicates are looked for; None: no words
    style: str = ""  # in `envs.protocols.styles.STYLES`: how an answer is written where it is shown
    prompt: str | None = None  # `env.prompt` of a question that is shown; None: the style's own


class Role(StrEnum):
    TRAIN = "train"  # without what an evaluation file of the recipe has
    EVAL = "eval"
    CORPUS = "corpus"
    SHOWN = "shown"  # prompts with the right answers, for an sft stage
    STEPS = "steps"  # single steps of an evaluation's tasks

    @property
    def of_files(self) -> bool:
        """Whether its sources are other files of the recipe, and no splits."""
        return self in (Role.SHOWN, Role.STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of a recipe: Part("eval/bamboogle.jsonl", ("bamboogle.test",), Role.EVAL)"""

    file: str
    sources: tuple[str, ...]  # set.split; of a SHOWN or STEPS part, other files of the recipe
    role: Role
    take: int | None = None  # so many of them; None: all
    each: bool = False  # `take` of each source
    first: bool = False  # in the order of the source; else drawn by the seed
    stratify: str | None = None  # in the shares that the values of this field have in the whole
    where: tuple[str, tuple[str, ...]] | None = None  # of these values of a field only
    rest: str | None = None  # the EVAL file that was drawn from the same sources: this is what remains
    expect: int | None = None  # rows there must be to take from, where a paper says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    name: str
    parts: tuple[Part, ...]
    missing: str = ""  # what of the paper's data is not made here, and why
    own: Mapping[str, str] = field(default_factory=dict)  # by file that another command makes: how that begins


def with_metadata(fields: Mapping[str, Any]) -> dict[str, Any]:
    """FlashRAG keeps the original's other fields in "metadata"."""
    inside = fields.get("metadata")
    return {**(inside if isinstance(inside, Mapping) else {}), **fields}


def identity(record: Located) -> str:
    fields = record.lower
    return str(next((fields[key] for key in IDS if isinstance(fields.get(key), str | int)), record.task_id))


def paragraphs(record: Located) -> Iterable[Passage]:
    """The paragraphs of a multi-hop record, in each of the forms that HotpotQA, 2Wiki and MuSiQue are published in.

    {"title": [..], "sentences" or "content": [[..], ..]} (parquet, FlashRAG), [[title, [..]], ..] (the authors' JSON),
    and MuSiQue's [{"title", "paragraph_text"}, ..].
    """
    fields = with_metadata(record.lower)
    context, listed = fields.get("context"), fields.get("paragraphs")
    if isinstance(context, str):  # 2WikiMultiHopQA's parquet
        context = _json_list(context)
    if isinstance(context, Mapping):
        texts = context.get("sentences", context.get("content"))
        pairs: Any = zip(context.get("title") or (), texts or (), strict=False)
    elif isinstance(context, list):
        pairs = (pair for pair in context if isinstance(pair, list | tuple) and len(pair) == 2)
    elif isinstance(listed, list):
        pairs = ((entry.get("title"), entry.get("paragraph_text")) for entry in listed if isinstance(entry, Mapping))
    else:
        raise BadInput('no "context" and no "paragraphs": a copy of the set without its paragraphs', where=record.where)
    for title, text in pairs:
        joined = "".join(map(str, text)) if isinstance(text, list | tuple) else str(text or "")
        if isinstance(title, str) and joined.strip():
            yield title.strip(), re.sub(r"\s+", " ", joined).strip()


def _json_list(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return None
