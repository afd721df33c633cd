"""Are two mathematical answers the same? Numbers exactly, lists and sets and intervals and matrices by what they hold.

`decided` is pure, quick and bounded: it says True, False, or None where algebra is needed. `equivalent` then asks
Math-Verify and SymPy, without a deadline: text that a model wrote goes there only inside `envs.rewards.maths.grader`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from envs.rewards.maths.text import Quantity, clean, flat, is_prose, quantity, split_name, split_unit

MAX_ANSWER = 2000  # characters; a longer answer is right only when it is the gold, letter by letter
MAX_ELEMENTS = 64
MAX_DEPTH = 8
ROUNDED_FROM = 6  # decimals from which a rounded decimal stands for a number that has no finite one

Verdict = bool | None
Leaf = Callable[[str, str], Verdict]  # of two cleaned texts without structure: given, gold

_MATRIX = re.compile(r"\\begin\s?\{[pbBv]?(?:small)?matrix\}(.*)\\end\s?\{([pbBv]?)(?:small)?matrix\}", re.DOTALL)
_BRACKETS = {"(": ")", "[": "]"}
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Collection:
    kind: str  # brackets "()", "(]", "[)", "[]"; "set" and "union" without order; "matrix 2x3", row by row
    elements: tuple[str, ...]


def decided(given: str, golds: Sequence[str]) -> Verdict:
    """Whether `given` is one of `golds`; None where only algebra can tell. Raises nothing."""
    return _any(_compare(given, gold, _plain) for gold in golds)


def equivalent(given: str, gold: str) -> bool:
    """Whether `given` answers a question whose answer is `gold`. Not symmetric: `x = 5` is given for 5, `5 cm` for 5.

    May take for ever, or all memory, on a hostile text.
    """
    return bool(_compare(given, gold, _algebra))


def _compare(given: str, gold: str, leaf: Leaf) -> Verdict:
    if given.strip() == gold.strip():
        return bool(gold.strip())
    if len(given) > MAX_ANSWER or len(gold) > MAX_ANSWER:
        return False
    given, gold = clean(given), clean(gold)
    if not given or not gold:
        return False
    given_name, given_value = split_name(given)
    gold_name, gold_value = split_name(gold)
    if given_name == gold_name or not (given_name and gold_name):
        given, gold = given_value, gold_value
    return _same(given, gold, leaf, MAX_DEPTH)


def _same(given: str, gold: str, leaf: Leaf, depth: int) -> Verdict:
    a, b = flat(given), flat(gold)
    if a == b:
        return bool(a)
    if depth == 0:
        return False
    if quantity(given) is None or quantity(gold) is None:  # 1,000 is a number, not a list
        ours, theirs = collection(given), collection(gold)
        if ours is not None and theirs is not None:
            return _same_collection(ours, theirs, leaf, depth - 1)
        for mine, other in ((ours, gold), (theirs, given)):
            if mine is not None and len(mine.elements) == 1 and mine.kind == "()":
                inside = mine.elements[0]
                return _same(inside, other, leaf, depth - 1) if mine is ours else _same(other, inside, leaf, depth - 1)
        (given, given_unit), (gold, gold_unit) = split_unit(given), split_unit(gold)
        if given_unit and gold_unit and given_unit != gold_unit:
            return False
        if not given or not gold or flat(given) == flat(gold):
            return bool(given and gold)
    return leaf(given, gold)


def _same_collection(given: Collection, gold: Collection, leaf: Leaf, depth: int) -> Verdict:
    if given.kind != gold.kind or max(len(given.elements), len(gold.elements)) > MAX_ELEMENTS:
        return False
    if gold.kind in ("set", "union"):
        return _all(
            _any(_named(*((each, other) if mine is given else (other, each)), leaf, depth) for other in others.elements)
            for mine, others in ((given, gold), (gold, given))
            for each in mine.elements
        )
    if len(given.elements) != len(gold.elements):
        return False
    pairs = zip(given.elements, gold.elements, strict=True)
    return _all(_same(_unnamed(ours), _unnamed(theirs), leaf, depth) for ours, theirs in pairs)


def _named(given: str, gold: str, leaf: Leaf, depth: int) -> Verdict:
    """Two members of a list: `x = 1` is 1 and is `x_1 = 1`, but not `y = 1`."""
    (name, given), (key, gold) = split_name(given), split_name(gold)
    if name and key and name.partition("_")[0] != key.partition("_")[0]:
        return False
    return _same(given, gold, leaf, depth)


def _unnamed(text: str) -> str:
    return split_name(text)[1]


def collection(text: str) -> Collection | None:
    """What a cleaned text holds, where it is a list, a set, a tuple or interval, a union, or a matrix."""
    matrix = _MATRIX.fullmatch(text)
    if matrix is not None and matrix[2] != "v":
        rows = [row.split("&") for row in matrix[1].strip().removesuffix(r"\\").split(r"\\")]
        if len({len(row) for row in rows}) == 1:
            cells = tuple(cell.strip() for row in rows for cell in row)
            return Collection(f"matrix {len(rows)}x{len(rows[0])}", cells)
        return None
    parts = _split(text, r"\cup")
    if len(parts) > 1:
        return Collection("union", parts)
    parts = _split(text, ",")
    if len(parts) > 1:
        return Collection("set", _members(parts))
    if text.startswith(r"\{") and text.endswith(r"\}") and _closes(text, 1) == len(text) - 1:
        inside = text[2:-2].strip()
        return Collection("set", _members(_split(inside, ",")) if inside else ())
    if text == r"\emptyset":
        return Collection("set", ())
    if text.count(r"\pm") == 1:
        return Collection("set", _members([text]))
    if text[:1] in _BRACKETS and text[-1:] in (")", "]") and _closes(text, 0) == len(text) - 1:
        return Collection(text[0] + text[-1], _split(text[1:-1], ","))
    return None


def _members(parts: Iterable[str]) -> tuple[str, ...]:
    """With `\\pm` written out: `\\pm 1, 3` holds 1, -1 and 3."""
    signs = ("+", "-")
    spelled = ([part.replace(r"\pm", sign) for sign in signs] if part.count(r"\pm") == 1 else [part] for part in parts)
    return tuple(member for members in spelled for member in members)


def _split(text: str, separator: str) -> tuple[str, ...]:
    """The stretches between separators that stand in no bracket, stripped."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif depth == 0 and text.startswith(separator, at):
            parts.append(text[start:at].strip())
            start = at + len(separator)
    return (*parts, text[start:].strip())


def _closes(text: str, opening: int) -> int:
    """Where the bracket at `opening` is closed, by any closing bracket: (1, 2] is an interval. -1 where it is not."""
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] in _OPEN) - (text[at] in _CLOSE)
        if depth == 0:
            return at
    return -1


def _plain(given: str, gold: str) -> Verdict:
    """Two texts without structure, as numbers or as words."""
    ours, theirs = quantity(given), quantity(gold)
    if ours is not None and theirs is not None:
        return _same_quantity(ours, theirs)
    if is_prose(given) or is_prose(gold):
        return flat(given).casefold() == flat(gold).casefold()
    return None


def _algebra(given: str, gold: str) -> Verdict:
    verdict = _plain(given, gold)
    if verdict is None:
        from envs.rewards.maths.algebra import same_expression

        verdict = same_expression(given, gold)
    return verdict


def _same_quantity(given: Quantity, gold: Quantity) -> bool:
    if "%" in (given.unit, gold.unit) and given.unit != gold.unit:
        percent, plain = (given, gold) if given.unit == "%" else (gold, given)
        if plain.unit:
            return False
        if percent.value / 100 == plain.value:
            return True
        # A unit may be left out, or added: 50 for 50%, and 50% for 50. But 0.5% is not 0.5: there the sign is a factor.
        return percent.value == plain.value and (percent is gold or plain.value > 1)
    if given.unit and gold.unit and given.unit != gold.unit:
        return False
    return given.value == gold.value or _rounded(given, gold) or _rounded(gold, given)


def _rounded(decimal: Quantity, exact: Quantity) -> bool:
    """Whether 0.333333 is written for 1/3: correctly rounded, and only where no finite decimal would be exact."""
    if decimal.decimals is None or decimal.decimals < ROUNDED_FROM or exact.decimals is not None:
        return False
    rest = exact.value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest > 1 and abs(decimal.value - exact.value) <= Fraction(1, 2 * 10**decimal.decimals)


def _any(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued or: True wins over None, None over False."""
    unknown = False
    for verdict in verdicts:
        if verdict:
            return True
        unknown = unknown or verdict is None
    return None if unknown else False


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued and: False wins over None, None over True."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True
