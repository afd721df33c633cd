"""ProScript as Graph-RL scores it (arXiv 2506.00845, appendix E.1): satisfied constraints out of all constraints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from envs.rewards import WHOLE
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.transcript import Piece, answer_pieces, last_span_between, lower_ascii
from rlsys.errors import BadInput
from rlsys.types import Task, Transcript

_STEP = re.compile(r"step\s{0,2}([0-9]{1,6})(?![0-9])")
_ARROW = re.compile(r"\s*(?:-{1,3}>|={1,2}>|\u2192|\u27f6|\$?\\(?:rightarrow|to)\$?)\s*")
MAX_ARROW = 40  # characters between two steps of one chain


@dataclass(frozen=True, kw_only=True)
class ProscriptRewardConfig:
    name: str = "proscript"


class ProscriptReward(SumOfFindings):
    """`constraints`: the share of the task's (earlier, later) pairs that the order `step3 -> step1 -> step2` keeps.

    A step that is missing or named twice satisfies nothing. The order is the last chain of arrows in the answer tag,
    or without one in the last message with such a chain.
    """

    parts = ("constraints",)
    solved_by: ClassVar[Mapping[str, float]] = {"constraints": WHOLE}

    def __init__(self, config: ProscriptRewardConfig) -> None:
        pass

    def pooled(self, transcript: Transcript) -> Mapping[str, tuple[float, float]]:
        """Satisfied out of all constraints: the paper's number is pooled over all tasks of a set."""
        total = len(_constraints(transcript.task))
        return {"constraints_pooled": (round(self(transcript).value * total), total)}

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        constraints = _constraints(transcript.task)
        chain, span = _find_answer_chain(lower_ascii(answer_pieces(transcript)))
        if span is None:
            return (Finding(part="constraints", rule="no order: expected step3 -> step1 -> step2"),)
        places = {step: place for place, step in enumerate(chain)}
        counts = Counter(chain)
        findings = []
        for before, after in constraints:
            wrong = _why_violated(before, after, places, counts)
            rule = f"{before} before {after}" + (f": {wrong}" if wrong else "")
            value = 0.0 if wrong else 1 / len(constraints)
            findings.append(make_finding("constraints", rule, value, transcript.messages, span))
        return tuple(findings)


def _why_violated(before: str, after: str, places: Mapping[str, int], counts: Mapping[str, int]) -> str:
    """Why a constraint is not satisfied; "" when it is."""
    for step in (before, after):
        if step not in places:
            return f"{step} is missing"
        if counts[step] > 1:
            return f"{step} is named twice"
    return "" if places[before] < places[after] else "in the other order"


def _constraints(task: Task) -> list[tuple[str, str]]:
    """(earlier, later) by canonical step names. Raises BadInput."""
    record, where = task.record, f"task {task.task_id}"
    steps, raw = record.get("steps"), record.get("constraints")
    if not isinstance(steps, (list, tuple, Mapping)) or not steps:
        raise BadInput("is missing or empty", where=where, key='"steps"', expected="a list of texts")
    if not isinstance(raw, (list, tuple)) or not raw:
        raise BadInput("is missing or empty", where=where, key='"constraints"', expected='[["step0", "step3"], ...]')
    names = {_step_name(str(step)) or f"step{index}" for index, step in enumerate(steps)}
    pairs = []
    for pair in raw:
        if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(step, str) for step in pair)):
            raise BadInput(f"constraint {pair!r}", where=where, expected='a pair such as ["step0", "step3"]')
        before, after = (_step_name(step) or step for step in pair)
        for step in (before, after):
            if step not in names:
                raise BadInput(f"constraint {pair!r}: no {step!r} among its {len(names)} steps", where=where)
        pairs.append((before, after))
    return pairs


def _step_name(text: str) -> str | None:
    """`Step 3: open the door` gives `step3`."""
    match = _STEP.match(text.strip().lower())
    return f"step{int(match[1])}" if match else None


def _find_answer_chain(pieces: Sequence[Piece]) -> tuple[list[str], Span | None]:
    answer = last_span_between(pieces, "<answer>", "</answer>")
    if answer is not None:
        text = next(piece.text for piece in pieces if piece.message == answer.message)
        return _find_last_chain(text[: answer.end], answer.message, answer.start)
    for piece in reversed(pieces):
        chain, span = _find_last_chain(piece.text, piece.message, 0)
        if span is not None:
            return chain, span
    return [], None


def _find_last_chain(text: str, message: int, begin: int) -> tuple[list[str], Span | None]:
    """The last steps, two at least, with nothing but arrows between them."""
    chain: list[str] = []
    last: tuple[list[str], Span | None] = ([], None)
    start = end = begin
    for match in _STEP.finditer(text, begin):
        linked = bool(chain) and match.start() - end <= MAX_ARROW and _ARROW.fullmatch(text, end, match.start())
        if not linked:
            chain, start = [], match.start()
        chain.append(f"step{int(match[1])}")
        end = match.end()
        if len(chain) > 1:
            last = (chain, Span(message=message, start=start, end=end))
    return last
