"""What a judge's answer says: pure, linear in the text, and None where it says nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from envs.services.judge.request import Verdict
from envs.text.words import answer_start, last_boxed, outcome_verdict, step_verdict

Parse = Callable[[str], Verdict | None]

_FIRST_JUDGEMENT = re.compile(r"Judgement:\s+(correct|wrong|not_found)", re.IGNORECASE)
# The form itself, `Judgement: correct/wrong/not_found`, is no verdict; `correct or equivalent` is one.
_JUDGEMENT = re.compile(
    r"\bJudgement(?:\*\*)?:(?:\*\*)?\s*[*`\"'<]{0,3}(correct|wrong|not_found)\b"
    r"(?![*`\"'>]{0,3}\s?(?:[/|,]|or\b)\s?[*`\"'<]{0,3}(?:(?:in)?correct|wrong|not_found)\b)",
    re.IGNORECASE,
)
_RESEARCH = re.compile(r'"judgement"\s*:\s*"(correct|incorrect)"', re.IGNORECASE)
_STARRED = re.compile(r"\*\*[ \t]?([A-D]|UNKNOWN)[ \t]?\*\*")
_ORDER = re.compile(r"step\d{1,3}(?: ?-> ?step\d{1,3})+|\bUNKNOWN\b")
_AROUND = " \t\r\n.!*\"'`"


def without_reasoning(text: str) -> str:
    """Without what a reasoning model thought before; nothing while it has not stopped thinking."""
    return text[answer_start(text) :]


def _make_verdict(value: str | None, accepting: str) -> Verdict | None:
    return None if value is None else Verdict(value=value, accepted=value == accepting)


def process(text: str) -> Verdict | None:
    """SWiRL: the last whole word GOOD or BAD."""
    return _make_verdict(step_verdict(text), "GOOD")


def outcome(text: str) -> Verdict | None:
    """SWiRL: the last whole word YES or NO."""
    return _make_verdict(outcome_verdict(text), "YES")


def research(text: str) -> Verdict | None:
    """ReSearch: `judgement` of a JSON object, correct or incorrect.

    LaTeX in the rationale makes bad JSON often: then the last `"judgement": "..."` of the text counts.
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        record = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        record = None
    value = record.get("judgement") if isinstance(record, dict) else None
    if not isinstance(value, str):
        value = (_RESEARCH.findall(text) or [""])[-1]
    value = value.strip().lower()
    return _make_verdict(value if value in ("correct", "incorrect") else None, "correct")


def reference(text: str) -> Verdict | None:
    """Long CoT: the last `Judgement: correct|wrong|not_found` in any case; only correct counts for the answer.

    The prompt asks for this line at the end: the judge's reasoning, and a form that it repeats, come before it.
    """
    matches = _JUDGEMENT.findall(text)
    return _make_verdict(matches[-1].lower() if matches else None, "correct")


def first_reference(text: str) -> Verdict | None:
    """The first one, by the authors' pattern: of answers to their own wording."""
    match = _FIRST_JUDGEMENT.search(text)
    return _make_verdict(match and match[1].lower(), "correct")


def extract(text: str) -> Verdict | None:
    """Long CoT: what stands in the last box. An empty box: the question has no short answer."""
    value = last_boxed(text)
    return None if value is None else Verdict(value=value)


def last_word_parser(values: Sequence[str]) -> Parse:
    """Graph-RL's summaries: the last of `values` as a whole word in capitals; in any case where it stands alone."""
    pattern = re.compile(r"\b(?:" + "|".join(values) + r")\b")

    def parse(text: str) -> Verdict | None:
        alone = text.strip(_AROUND).upper()
        matches = [alone] if alone in values else pattern.findall(text)
        return Verdict(value=matches[-1]) if matches else None

    return parse


def parse_starred(text: str) -> Verdict | None:
    """Graph-RL, Knowledge Crosswords: the last **A**, .. **D** or **UNKNOWN**; without asterisks where it is alone."""
    alone = text.strip(_AROUND)
    matches = [alone] if alone in ("A", "B", "C", "D", "UNKNOWN") else _STARRED.findall(text)
    return Verdict(value=matches[-1]) if matches else None


def step_order(text: str) -> Verdict | None:
    """Graph-RL, ProScript: the last chain `step3->step0->step1`, or UNKNOWN."""
    matches = _ORDER.findall(text)
    return Verdict(value=matches[-1].replace(" ", "")) if matches else None


# -- action prompting (Long CoT, appendix K.8) ----------------------------------------------------------------------


def clarify(text: str) -> Verdict | None:
    thought, goal = parse_tagged(text, "clarification"), parse_tagged(text, "goal")
    return _parse_thought(thought[0], goal=goal[0]) if thought and goal else None


def decompose(text: str) -> Verdict | None:
    """The thought is all proposals, the goal the first of them."""
    sentences = parse_tagged(text, "sentence")
    return _parse_thought(" ".join(sentences), goal=sentences[0]) if sentences else None


def any_text(text: str) -> Verdict | None:
    """Any text: a step of the solution, or the final answer."""
    return _parse_thought(text.strip()) if text.strip() else None


def reflection(text: str) -> Verdict | None:
    """`solved` (the parent goal), `achieved` (the current one) or `missed`; `goal` is what to try instead, or ""."""
    thought, new_goal = parse_tagged(text, "verification"), parse_tagged(text, "new_goal")
    current, parent = (
        _parse_true_or_false(text, "current_goal_achieved"),
        _parse_true_or_false(text, "parent_goal_achieved"),
    )
    if not thought or current is None or parent is None:
        return None
    value = "solved" if parent else "achieved" if current else "missed"
    return Verdict(value=value, parts={"thought": thought[0], "goal": new_goal[0] if new_goal else ""})


def parse_tagged(text: str, tag: str) -> list[str]:
    """What stands in each `<tag>..</tag>`, on one line, without the empty ones."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    contents: list[str] = []
    start = text.find(opening)
    while start >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        contents.append(" ".join(text[start + len(opening) : end].split()))
        start = text.find(opening, end)
    return [content for content in contents if content]


def _parse_true_or_false(text: str, tag: str) -> bool | None:
    tagged = parse_tagged(text, tag)
    word = tagged[0].lower() if tagged else ""
    return True if word.startswith("true") else False if word.startswith("false") else None


def _parse_thought(text: str, **parts: str) -> Verdict:
    return Verdict(value="thought", parts={"thought": text, **parts})
