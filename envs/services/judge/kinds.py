"""The prompt kinds: which fields a prompt has, how each is cut and fenced, and how the answer is read.

Over HTTP and in `rlsys judge-errors` every kind can be asked. No reward asks `summary_*` yet: that of graph problems
will, where a model's summary of an answer is compared. Nor `outcome_*` and `extract`: filters of answers will.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from envs.services.judge import parse
from envs.services.judge.request import Verdict

MAX_CHARS = 20_000  # of a field: what is longer loses its beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    hostile: bool = False  # a model wrote it: it is fenced, and chat marks in it are broken
    last_lines: int | None = None
    max_chars: int = MAX_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    fields: Mapping[str, Field]
    parse: parse.Parse  # of the judge's text; None without a verdict
    values: tuple[str, ...] = ()  # every verdict, where there are only so many; a label must be one of them
    unparsable: Literal["wrong", "fail"]  # what becomes of an answer without a verdict, unless the config says
    max_tokens: int
    judges: Literal["step", "answer", "text"]  # text: it decides nothing, it rewrites

    def read(self, text: str) -> Verdict | None:
        return self.parse(parse.answer_of(text))


TEXT, SAID = Field(), Field(hostile=True)
GOALS = {"current_goal": SAID, "solution": SAID}
YES_NO, VALID = ("YES", "NO", "UNKNOWN"), ("VALID", "INVALID", "UNKNOWN")


def _answer(parser: parse.Parse, values: tuple[str, ...], fields: Mapping[str, Field]) -> Kind:
    return Kind(fields=fields, parse=parser, values=values, unparsable="wrong", max_tokens=1024, judges="answer")


def _text(parser: parse.Parse, max_tokens: int, fields: Mapping[str, Field], values: tuple[str, ...] = ()) -> Kind:
    return Kind(fields=fields, parse=parser, values=values, unparsable="fail", max_tokens=max_tokens, judges="text")


KEY = {"question": TEXT, "answers": TEXT, "answer": SAID}

KINDS: dict[str, Kind] = {
    # SWiRL, appendix A. No verdict counts against the step.
    "process": Kind(
        fields={"question": TEXT, "conversation": SAID},
        parse=parse.process,
        values=("GOOD", "BAD"),
        unparsable="wrong",
        max_tokens=1024,
        judges="step",
    ),
    "outcome_search": _answer(parse.outcome, ("YES", "NO"), KEY),
    "outcome_math": _answer(parse.outcome, ("YES", "NO"), KEY),
    # ReSearch, appendix A. Its authors count only the answers that they could read.
    "research": Kind(
        fields=KEY,
        parse=parse.research,
        values=("correct", "incorrect"),
        unparsable="fail",
        max_tokens=1024,
        judges="answer",
    ),
    # Long CoT, K.6 and K.7. Only a readable "correct" counts for the answer.
    "reference": _answer(
        parse.reference,
        ("correct", "wrong", "not_found"),
        {"response": Field(hostile=True, last_lines=20), "reference": TEXT},
    ),
    "extract": _text(parse.extract, 512, {"problem": TEXT, "solution": TEXT}),
    # Graph-RL, table 4.
    "summary_strategyqa": _text(parse.words(YES_NO), 512, {"question": TEXT, "response": SAID}, YES_NO),
    "summary_crosswords": _text(
        parse.starred, 512, {"question": TEXT, "response": SAID}, ("A", "B", "C", "D", "UNKNOWN")
    ),
    "summary_wikidyk": _text(parse.words(YES_NO), 512, {"response": SAID, "word": TEXT}, YES_NO),
    "summary_proscript": _text(parse.order, 512, {"response": SAID}),
    "summary_blocks_plan": _text(parse.words(VALID), 1024, {"problem": TEXT, "response": SAID}, VALID),
    "summary_blocks_verify": _text(parse.words(VALID), 512, {"response": SAID}, VALID),
    # Long CoT, K.8: the states of action prompting.
    "action_clarify": _text(parse.clarify, 1024, {"goal": TEXT}),
    "action_decompose": _text(parse.decompose, 1024, GOALS | {"parent_goal": SAID}),
    "action_solution_step": _text(parse.plain, 1024, GOALS | {"prior_step": SAID}),
    "action_reflection": _text(parse.reflection, 1024, GOALS | {"parent_goal": SAID, "goals": SAID}),
    "action_answer": _text(parse.plain, 512, {"solution": SAID, "format": TEXT}),
}
