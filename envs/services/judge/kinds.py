"""The prompt kinds: which fields a prompt has, how each is cut and fenced, and how the answer is read.

Over HTTP and in `rlsys judge-errors` every kind can be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from envs.services.judge import parse
from envs.services.judge.parse import Parse
from envs.services.judge.request import Verdict

MAX_CHARS = 20_000  # of a field: what is longer loses its beginning
MAX_CONVERSATION = 100_000  # of one that is cut message by message before, to what a reward's key says


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    hostile: bool = False  # a model wrote it: it is fenced, and chat marks in it are broken
    last_lines: int | None = None
    max_chars: int = MAX_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    fields: Mapping[str, Field]
    parse: Parse  # of the judge's text; None without a verdict
    values: tuple[str, ...] = ()  # every verdict, where there are only so many; a label must be one of them
    against: str = "UNKNOWN"  # an answer that speaks against what was judged
    unparsable: Literal["wrong", "fail"] = "fail"  # an answer without a verdict, unless the config says
    max_tokens: int = 1024
    judges: Literal["step", "answer", "text"] = "text"  # text: it decides nothing, it rewrites
    parse_first: Parse | None = None  # as a paper reads the answers to its own wording, where that differs
    papers_wording: str = ""  # by which a person's own prompt is known as the paper's

    def read(self, text: str, *, first: bool = False) -> Verdict | None:
        read = self.parse_first if first and self.parse_first is not None else self.parse
        return read(parse.without_reasoning(text))


TEXT, SAID = Field(), Field(hostile=True)
GOALS = {"current_goal": SAID, "solution": SAID}
YES_NO, VALID = ("YES", "NO", "UNKNOWN"), ("VALID", "INVALID", "UNKNOWN")
ASKED = {"question": TEXT, "response": SAID}
KEY = {"question": TEXT, "answers": TEXT, "answer": SAID}

STEP = Kind(
    judges="step",
    fields={"question": TEXT, "conversation": Field(hostile=True, max_chars=MAX_CONVERSATION)},
    parse=parse.process,
    values=("GOOD", "BAD"),
    against="BAD",
    unparsable="wrong",
)
OUTCOME = Kind(
    judges="answer",
    fields=KEY,
    parse=parse.outcome,
    values=("YES", "NO"),
    against="NO",
    unparsable="wrong",
)

KINDS: dict[str, Kind] = {
    # SWiRL, appendix A, which prints that of searches: envs/papers/swirl/judge_prompts/process.md has its words, and
    # envs/services/judge/prompts/process.md ours. No verdict counts against the step.
    "process": STEP,
    "process_math": STEP,
    "outcome_search": OUTCOME,
    "outcome_math": OUTCOME,
    # ReSearch, appendix A. Its authors count only the answers that they could read.
    "research": Kind(
        judges="answer",
        fields=KEY,
        parse=parse.research,
        values=("correct", "incorrect"),
        against='{"judgement": "incorrect"}',
    ),
    # Long CoT, K.6 and K.7. Only a readable "correct" counts for the answer.
    "reference": Kind(
        judges="answer",
        fields={"response": Field(hostile=True, last_lines=20), "reference": TEXT},
        parse=parse.reference,
        parse_first=parse.first_reference,
        papers_wording="step-by-step before responding with `Judgement: <correct/wrong/not_found>`",
        values=("correct", "wrong", "not_found"),
        against="Judgement: wrong",
        unparsable="wrong",
    ),
    "extract": Kind(fields={"problem": TEXT, "solution": TEXT}, parse=parse.extract, max_tokens=512),
    # Graph-RL, table 4.
    "summary_strategyqa": Kind(fields=ASKED, parse=parse.last_word_parser(YES_NO), values=YES_NO, max_tokens=512),
    "summary_crosswords": Kind(
        fields=ASKED, parse=parse.parse_starred, values=("A", "B", "C", "D", "UNKNOWN"), max_tokens=512
    ),
    "summary_wikidyk": Kind(
        fields={"response": SAID, "word": TEXT}, parse=parse.last_word_parser(YES_NO), values=YES_NO, max_tokens=512
    ),
    "summary_proscript": Kind(fields={"response": SAID}, parse=parse.step_order, max_tokens=512),
    "summary_blocks_plan": Kind(
        fields={"problem": TEXT, "response": SAID}, parse=parse.last_word_parser(VALID), values=VALID
    ),
    "in_facts": Kind(  # appendix E.2; not printed
        fields={"question": TEXT, "facts": TEXT, "response": SAID},
        parse=parse.last_word_parser(YES_NO),
        values=YES_NO,
        max_tokens=512,
    ),
    "summary_blocks_verify": Kind(
        fields={"response": SAID}, parse=parse.last_word_parser(VALID), values=VALID, max_tokens=512
    ),
    # Long CoT, K.8: the states of action prompting.
    "action_clarify": Kind(fields={"goal": TEXT}, parse=parse.clarify),
    "action_decompose": Kind(fields=GOALS | {"parent_goal": SAID}, parse=parse.decompose),
    "action_solution_step": Kind(fields=GOALS | {"prior_step": SAID}, parse=parse.any_text),
    "action_reflection": Kind(fields=GOALS | {"parent_goal": SAID, "goals": SAID}, parse=parse.reflection),
    "action_answer": Kind(fields={"solution": SAID, "format": TEXT}, parse=parse.any_text, max_tokens=512),
}
