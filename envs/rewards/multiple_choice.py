"""Multiple choice (Knowledge Crosswords in arXiv 2506.00845): 1 for the right letter, read off the text by rules.

The paper lets a language model say which letter a response ends in; these rules are the same for everyone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from envs.rewards import RIGHT
from envs.rewards.findings import Finding, Span, found, total
from envs.rewards.qa import normalize_answer
from envs.rewards.transcript import Piece, answers, last_pair, written
from envs.text.boxed import last_boxed_span
from rlsys.errors import BadInput
from rlsys.types import Reward, Task, Transcript

PARTS = ("correct",)
LAST_WORDS = 400  # characters of the last line that are read as the last sentence

_BOLD = re.compile(r"\*\*\s{0,3}\(?([A-Z])\)?[.:)]?\s{0,3}\*\*")
_ANSWER_IS = re.compile(r"(?i:\banswer)(?i:\s{1,3}is\s{0,3}:?|\s{0,3}[:=])\s{0,3}(?i:option\s{1,3})?\(?([A-Z])\b(?!')")
_ALONE = re.compile(r"(?<![\w'])([A-Z])(?![\w'])")
_ARTICLE = re.compile(r"\s+(?!(?:is|was|or|and|nor)\b)[a-z]")
_OR = re.compile(r"[\s*)(.]{0,6}(?:or|and|/|,)[\s*(]{1,6}([A-Z])\b(?!')")
_WHOLE = re.compile(r"(?i:option\s{1,3})?\(?([A-Za-z])\)?(?:\s{0,3}[.:)].*)?", re.DOTALL)
_MARKS = re.compile(r"\\text\{|[*{}$]")


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceRewardConfig:
    name: str = "multiple_choice"


class MultipleChoiceReward:
    """`correct`: 1.0 when the letter that the model ends on is one of the task's answers."""

    solved_by: ClassVar[Mapping[str, float]] = {"correct": RIGHT}

    inline = None

    def __init__(self, config: MultipleChoiceRewardConfig) -> None:
        pass

    def __call__(self, transcript: Transcript) -> Reward:
        """Raises BadInput for a task whose options or answers cannot be used."""
        return total(self.findings(transcript), PARTS)

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        options = _options(transcript.task)
        golds = answers(transcript.task)
        for gold in golds:
            if gold not in options:
                known = ", ".join(options)
                raise BadInput(f"task {transcript.task.task_id}: answer {gold!r}: expected one of {known}")
        letter, span = chosen(written(transcript), options)
        rule = f"chose {letter}" if letter else "no choice could be read"
        right = letter in golds if transcript.correct is None else transcript.correct
        return (found("correct", rule, float(right), transcript.messages, span),)


def chosen(pieces: Sequence[Piece], options: Mapping[str, str]) -> tuple[str | None, Span | None]:
    """The letter that a response ends on and where it stands.

    The first of these that is there decides, and says nothing when it names no option, or two: the last answer tag, the
    last box, the last **B**, the last "answer is B", the only letter in the last sentence.
    """
    tag = last_pair(pieces, "<answer>", "</answer>")
    if tag is not None:
        text = next(piece.text for piece in pieces if piece.message == tag.message)
        return named(text[tag.start : tag.end], options), tag
    for piece in reversed(pieces):
        if piece.text.strip():
            return _in_text(piece, options)
    return None, None


def named(content: str, options: Mapping[str, str]) -> str | None:
    """The option that a short text names: `B`, `(b)`, `B. Paris`, or `Paris` where just one option says so."""
    content = content.strip()
    whole = _WHOLE.fullmatch(_MARKS.sub("", content[:LAST_WORDS]).strip())
    if whole and whole[1].upper() in options:
        return whole[1].upper()
    key = normalize_answer(content)
    same = [letter for letter, text in options.items() if key and normalize_answer(text) == key]
    return same[0] if len(same) == 1 else None


def _in_text(piece: Piece, options: Mapping[str, str]) -> tuple[str | None, Span | None]:
    box = last_boxed_span(piece.text)
    if box is not None:
        return named(piece.text[box[0] : box[1]], options), Span(message=piece.message, start=box[0], end=box[1])
    for pattern in (_BOLD, _ANSWER_IS):
        matches = [each for each in pattern.finditer(piece.text) if each[1] in options and not _is_article(each)]
        if matches:
            at = Span(message=piece.message, start=matches[-1].start(1), end=matches[-1].end(1))
            hedged = any(_names_another(match, options) for match in matches[-2:])
            return None if hedged else matches[-1][1], at
    alone = list(_last_letters(piece.text, options))
    if len({match[1] for match in alone}) != 1:
        return None, None
    return alone[-1][1], Span(message=piece.message, start=alone[-1].start(1), end=alone[-1].end(1))


def _names_another(match: re.Match[str], options: Mapping[str, str]) -> bool:
    """Whether it goes on like `A or B`."""
    other = _OR.match(match.string, match.end(1))
    return other is not None and other[1] in options and other[1] != match[1]


def _last_letters(text: str, options: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """Letters of options that stand alone in the last sentence; an A before a small word is an article."""
    end = len(text.rstrip())
    start = max(text.rfind("\n", 0, end) + 1, end - LAST_WORDS)
    for mark in (". ", "! ", "? "):
        stop = text.rfind(mark, start, end)
        if text[start : max(start, stop)].strip("*( ") not in options:  # the line `B. Paris` is one sentence
            start = max(start, stop + 1)
    for match in _ALONE.finditer(text, start, end):
        if match[1] in options and not _is_article(match):
            yield match


def _is_article(match: re.Match[str]) -> bool:
    return match[1] == "A" and _ARTICLE.match(match.string, match.end(1)) is not None


def _options(task: Task) -> Mapping[str, str]:
    """Letters with their texts. Raises BadInput."""
    options = task.record.get("options")
    if not isinstance(options, Mapping) or not options:
        raise BadInput(f'task {task.task_id}: "options" is missing or empty, expected {{"A": ..., "B": ...}}')
    for letter, text in options.items():
        if not (isinstance(letter, str) and len(letter) == 1 and "A" <= letter <= "Z" and isinstance(text, str)):
            raise BadInput(f"task {task.task_id}: option {letter!r}: expected a capital letter with a text")
    return options
