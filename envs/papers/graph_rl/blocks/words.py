"""PlanBench's sentences, read and written.

What a model wrote is hostile: every reader here is linear in the text, and answers with a problem where it cannot read.
What a task file says is the user's: a sentence that cannot be read is BadInput.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from envs.papers.graph_rl.blocks.execute import (
    HAND_EMPTY,
    Action,
    Execution,
    Fact,
    Kind,
    Plan,
    State,
    Verb,
    execute,
    unmet_facts,
)
from rlsys.errors import BadInput

STATEMENT, PLAN, PLAN_END, VERIFICATION = "[STATEMENT]", "[PLAN]", "[PLAN END]", "[VERIFICATION]"
INITIAL_PREFIX, GOAL_PREFIX = "As initial conditions I have that, ", "My goal is to have that "
NO_ACTION = "no action"  # what is wrong with an answer that has none
MAX_STATEMENT = 100_000  # characters of the words of a state or a goal: thousands of blocks
MAX_LINE = 200  # a longer line is no action

_NAME = r"([a-z0-9][a-z0-9_-]{0,31})"
_FACTS = {
    Kind.CLEAR: "the {} block is clear",
    Kind.TABLE: "the {} block is on the table",
    Kind.ON: "the {} block is on top of the {} block",
    Kind.HAND_EMPTY: "the hand is empty",
    Kind.HOLDING: "the hand is currently holding {} block",
}
_ACTIONS = {
    Verb.PICK_UP: "pick up the {} block",
    Verb.PUT_DOWN: "put down the {} block",
    Verb.STACK: "stack the {} block on top of the {} block",
    Verb.UNSTACK: "unstack the {} block from on top of the {} block",
}
_READ_FACTS = {kind: re.compile(form.format(_NAME, _NAME)) for kind, form in _FACTS.items()}
_READ_FACTS[Kind.HOLDING] = re.compile(rf"the hand is currently holding (?:the )?{_NAME} block")
_READ_ACTIONS = {verb: re.compile(form.format(_NAME, _NAME)) for verb, form in _ACTIONS.items()}
_NUMBERING = re.compile(r"(?:(?:step )?[0-9]{1,4}[.):] ?|[-*] )")
_PDDL = re.compile(rf"\((?:(pick-up|put-down) {_NAME}|(stack|unstack) {_NAME} {_NAME})\)")
_VERDICT = re.compile(r"\b(in-?)?valid\b", re.IGNORECASE)
# A word of NO before it turns it round, a word of MAYBE takes it back; words of FILLER may stand between them.
_NO = re.compile(r"not|cannot|never|no|neither|nor|nothing|hardly|far|fail(?:s|ed)?|\w+n't")
_MAYBE = re.compile(r"would|could|might|may|if|whether")
_FILLER = re.compile(
    r"|an?|the|this|it|plan|above|is|be|been|being|have|to|as|called|considered|deemed|said"
    r"|about|from|longer|believe|say|see|that|think"
    r"|actually|completely|entirely|fully|necessarily|really|strictly"
)
_OR_BEFORE = re.compile(r"valid\W{0,4}(?:/|\bor)\W{0,4}$", re.IGNORECASE)
# What follows it: `: no`, `? No.`; `or not`, `/INVALID`, `if ...`.
_NO_AFTER = re.compile(r"\W{0,4}[:=?]\W{0,4}(?:no|false)\b[*_\"'` ]{0,4}(?:[.,;:!)\n]|$)", re.IGNORECASE)
_MAYBE_AFTER = re.compile(r"\W{0,4}(?:(?:only )?(?:if|unless)|(?:/|or)\W{0,4}(?:not|(?:in-?)?valid))\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.,;:!?\n]")
_NEAR = 80  # characters that are read before it and after it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanText:
    """A plan as it was written: its actions with their places in the text, or why it cannot be read."""

    actions: Plan = ()
    spans: tuple[tuple[int, int], ...] = ()  # of each action's line
    problem: str | None = None
    problem_span: tuple[int, int] | None = None


def fact_words(fact: Fact) -> str:
    return _FACTS[fact.kind].format(fact.block, fact.under)


def facts_words(facts: Sequence[Fact]) -> str:
    """`a, b and c`."""
    words = [fact_words(fact) for fact in facts]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def statement(initial: Sequence[Fact], goal: Sequence[Fact]) -> str:
    """An instance as PlanBench says it, in two lines."""
    return f"{INITIAL_PREFIX}{facts_words(initial)}.\n{GOAL_PREFIX}{facts_words(goal)}."


def sort_facts(state: State, blocks: Sequence[str]) -> list[Fact]:
    """The facts of a state in PlanBench's order: clear blocks, the hand, blocks on blocks, blocks on the table."""
    order = {block: index for index, block in enumerate(blocks)}
    return sorted(state, key=lambda fact: (tuple(Kind).index(fact.kind), order.get(fact.block, -1)))


def action_words(action: Action) -> str:
    return _ACTIONS[action.verb].format(action.block, action.under)


def plan_words(plan: Sequence[Action]) -> str:
    """One action per line, without marks."""
    return "\n".join(action_words(action) for action in plan)


def read_facts(text: str, where: str) -> tuple[Fact, ...]:
    """The facts of `the red block is clear, the hand is empty and …`, with or without PlanBench's opening words.

    Raises BadInput naming the piece that is no fact: `line 7: "goal": 'the red block flies' is no fact, expected …`.
    """
    if len(text) > MAX_STATEMENT:
        raise BadInput(f"{len(text)} characters", where=where, expected=f"at most {MAX_STATEMENT}")
    plain = " ".join(text.split()).strip(" .").casefold()
    for prefix in (INITIAL_PREFIX, GOAL_PREFIX):
        plain = plain.removeprefix(prefix.strip(" ,").casefold()).lstrip(" ,")
    pieces = [piece.strip() for part in plain.split(",") for piece in part.split(" and ")]
    return tuple(_read_fact(piece, where) for piece in pieces if piece)


def read_action(line: str) -> Action | None:
    """An action in PlanBench's words, in any case, with a number or a bullet before it and a . , or ; after it."""
    if len(line) > MAX_LINE:
        return None
    plain = " ".join(line.split()).casefold()
    numbering = _NUMBERING.match(plain)
    plain = plain[numbering.end() :] if numbering else plain
    if plain[-1:] in (".", ",", ";"):
        plain = plain[:-1]
    for verb, pattern in _READ_ACTIONS.items():
        if match := pattern.fullmatch(plain):
            return Action(verb, *match.groups())
    return None


def read_plan(text: str) -> PlanText:
    """The plan in a model's text: every line between the marks is an action, or the plan cannot be read.

    It ends at the first `[PLAN END]`, where the environment stops the model, or else at the text's end. It begins after
    the last `[PLAN]` before that, or else at the text's beginning, for the prompt itself ends in `[PLAN]`.
    """
    end = text.find(PLAN_END)
    end = len(text) if end < 0 else end
    start = text.rfind(PLAN, 0, end)
    start = 0 if start < 0 else start + len(PLAN)
    actions: list[Action] = []
    spans: list[tuple[int, int]] = []
    at = start
    for raw_line in text[start:end].split("\n"):
        line = raw_line.strip()
        span = (at + raw_line.find(line), at + raw_line.find(line) + len(line))
        at += len(raw_line) + 1
        if not line:
            continue
        action = read_action(line)
        if action is None:
            excerpt = line if len(line) <= 60 else line[:60] + "..."
            return PlanText(problem=f"{excerpt!r} is no action", problem_span=span)
        actions.append(action)
        spans.append(span)
    if not actions:
        return PlanText(problem=NO_ACTION, problem_span=(start, end))
    return PlanText(actions=tuple(actions), spans=tuple(spans))


def read_pddl_plan(text: str, where: str) -> Plan:
    """PlanBench's stored plans: one `(unstack yellow orange)` per line. Raises BadInput."""
    actions: list[Action] = []
    for line in filter(str.strip, text.splitlines()):
        match = _PDDL.fullmatch(line.strip().casefold())
        if match is None:
            raise BadInput(f"{line.strip()[:60]!r} is no action", where=where, expected="one like (stack red blue)")
        verb, *blocks = filter(None, match.groups())
        actions.append(Action(Verb(verb), *blocks))
    return tuple(actions)


def verdict_words(state: State, goal: Sequence[Fact], plan: Sequence[Action]) -> str:
    """PlanBench's verdict on a plan, with the reason. The stored ones differ from it in white space only."""
    execution = execute(state, plan)
    reason, unmet = reason_words(plan, execution), unmet_facts(execution.final, goal)
    if not reason and unmet:
        opening = "These are the unmet goal conditions" if len(unmet) > 1 else "This is the unmet goal condition"
        reason = f"{opening}:\n{facts_words(unmet)}"
    return f"The above plan is invalid. {reason}" if reason else "The above plan is valid."


def reason_words(plan: Sequence[Action], execution: Execution) -> str:
    """Which step fails and why; "" where none does."""
    if execution.failed is None:
        return ""
    several = len(execution.unmet) > 1
    return (
        f"The following action at step {execution.failed + 1} has "
        f"{'unmet preconditions' if several else 'an unmet precondition'}:\n{action_words(plan[execution.failed])}\n"
        f"The unmet {'preconditions are' if several else 'precondition is'}:\n{facts_words(execution.unmet)}"
    )


def _read_fact(piece: str, where: str) -> Fact:
    for kind, pattern in _READ_FACTS.items():
        if match := pattern.fullmatch(piece):
            return HAND_EMPTY if kind is Kind.HAND_EMPTY else Fact(kind, *match.groups())
    raise BadInput(
        f"{piece[:60]!r} is no fact", where=where, expected="one like 'the red block is on top of the blue block'"
    )


def read_verdict(text: str) -> tuple[bool, tuple[int, int]] | None:
    """Whether a text calls the plan valid, and where: the last whole word `valid` or `invalid` that says so.

    `cannot be valid`, `isn't a valid plan` and `valid: no` are invalid. `valid or invalid`, `would be valid` and
    `valid if` say nothing. What stands after a `[STATEMENT]`, where the environment stops the model, does not count.
    """
    last = None
    for match in _VERDICT.finditer(text.partition(STATEMENT)[0]):
        stated = _verdict_of_word(match)
        last = last if stated is None else (stated, match.span())
    return last


def _verdict_of_word(match: re.Match[str]) -> bool | None:
    """What one of the words says in its sentence; None where it is taken back."""
    text, (start, end) = match.string, match.span()
    before, after = text[max(0, start - _NEAR) : start], text[end : end + _NEAR]
    words = [word.strip("*_\"'`()") for word in _SENTENCE.split(before)[-1].lower().replace("’", "'").split()]
    while words and _FILLER.fullmatch(words[-1]):
        words.pop()
    word = words[-1] if words else ""
    if _MAYBE.fullmatch(word) or _OR_BEFORE.search(before) or _MAYBE_AFTER.match(after):
        return None
    if _NO.fullmatch(word) and words[-2:-1] in (["may"], ["might"]):
        return None
    turned = bool(_NO.fullmatch(word)) != bool(_NO_AFTER.match(after))
    return (match[1] is None) != turned
