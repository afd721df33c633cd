"""Sentences of a corpus that are nearly one of some phrases: where long chains of thought may come from (Long CoT,
appendix F).

Nearness is the Jaccard index of word triples, as in `launch.data.selection`. The paper estimates it by MinHash; a few
hundred phrases are compared exactly, over an index of their triples.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from envs.tasks.files import read_records
from launch.data.build import write
from launch.data.records import Progress
from launch.data.selection import shingles
from rlsys.errors import BadInput
from rlsys.jsonl import json_line

FIELDS = ("text", "contents", "content")  # of a document; the first that it has
USUAL = Path(__file__).with_name("aha.txt")

_BETWEEN = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    document: str  # "corpus.jsonl:7"
    sentence: str
    phrase: str
    jaccard: float


class Phrases:
    def __init__(self, phrases: Iterable[str]) -> None:
        """Raises BadInput without one."""
        self._sets = {phrase: frozenset(shingles(phrase)) for phrase in phrases if phrase.strip()}
        self._with: dict[bytes, list[str]] = defaultdict(list)
        for phrase, triples in self._sets.items():
            for triple in triples:
                self._with[triple].append(phrase)
        if not self._with:
            raise BadInput("no phrase in it", key="--phrases", expected="one a line")

    def nearest(self, sentence: str, threshold: float) -> tuple[str, float] | None:
        """The phrase that a sentence is nearest to, if that is near enough; of two as near, the first."""
        triples = frozenset(shingles(sentence))
        shared = Counter(phrase for triple in triples for phrase in self._with.get(triple, ()))
        scores = {phrase: overlap / len(triples | self._sets[phrase]) for phrase, overlap in shared.items()}
        best = max(scores, key=lambda phrase: scores[phrase], default=None)
        return (best, scores[best]) if best is not None and scores[best] >= threshold else None


def read_phrases(path: Path) -> list[str]:
    """One a line; lines that begin with # are none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read as text ({error})", key="--phrases", found=path) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def search(corpus: str, phrases: Phrases, threshold: float, show: Progress) -> Iterator[Hit]:
    """In the order of the corpus. Raises BadInput for one that cannot be read."""
    for number, record in enumerate(read_records(corpus), start=1):
        text = next((record.fields[key] for key in FIELDS if isinstance(record.fields.get(key), str)), None)
        if text is None:
            raise BadInput(where=record.where, expected=f"a text in one of {', '.join(FIELDS)}")
        for sentence in filter(str.strip, _BETWEEN.split(text)):
            near = phrases.nearest(sentence, threshold)
            if near is not None:
                yield Hit(document=record.task_id, sentence=sentence.strip(), phrase=near[0], jaccard=round(near[1], 4))
        show("documents", number, None)


def write_hits(hits: Iterable[Hit], output: Path | None) -> Mapping[str, int]:
    """How many sentences each phrase has found; the sentences themselves go to `output`, one a line, when all are."""
    counts: Counter[str] = Counter()

    def counted() -> Iterator[bytes]:
        for hit in hits:
            counts[hit.phrase] += 1
            yield json_line(asdict(hit))

    if output is None:
        deque(counted(), maxlen=0)
    else:
        write(output, counted())
    return counts


def table(counts: Mapping[str, int]) -> Sequence[str]:
    return [f"{count:>9,}  {phrase}" for phrase, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
