"""What an answer has to have done: a question copied is no answer, though algebra could work it out.

Judged by the looks of two cleaned texts, and by the key's own form alone. Where the key is a number, no operation may
be left; where it has no sum, integral or logarithm, neither may the answer; where it is solved, factored or expanded,
so is the answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from envs.rewards.maths.quantity import quantity
from envs.rewards.maths.structure import is_variable, named_interval, relation, split

# Each kind of work with what asks for it. Those of _OF_NUMBERS are work where the key is a constant without them.
_WORK = {
    "sum": r"\\sum|\\prod|\\[lc]?dots|\.\.\.",
    "integral": r"\\i{1,3}nt|\\oint",
    "limit": r"\\lim",
    "derivative": r"\\frac\s?\{\s?(?:\\text\s?\{\s?)?(?:d|\\partial)\b|\\nabla",
    "determinant": r"\\det(?![a-z])|\\begin\s?\{vmatrix\}",
    "residue": r"\\?[pb]?mod(?![a-z])",
    "divisor": r"\\?(?:gcd|lcm)(?![a-z])",
    "extreme": r"\\(?:max|min|sup|inf)(?![a-z])",
    "rounding": r"\\[lr](?:floor|ceil)",
    "matrix": r"\\begin",
}
_OF_NUMBERS = {
    "count": r"\\[dt]?binom|\\choose|!",
    "logarithm": r"\\(?:ln|log)(?![a-z])",
    "trigonometry": r"\\(?:sin|cos|tan|cot|sec|csc)h?(?![a-z])(?!\s?\^\s?\{?\s?-)",
    "inverse": r"\\arc|\\(?:sin|cos|tan)\s?\^\s?\{?\s?-\s?1",
    "size": r"\||\\[lr]?vert",
    "root": r"\\sqrt",
    "exponential": r"\\exp|(?<![A-Za-z\\])e(?![A-Za-z])",
}
_KINDS, _NUMBER_KINDS = (
    {kind: re.compile(pattern) for kind, pattern in table.items()} for table in (_WORK, _OF_NUMBERS)
)
_COMMAND = re.compile(r"\\(?:begin|end)\s?\{[a-z]*\}|\\(?!theta|alpha|beta|gamma|phi|omega|lambda|mu|sigma)[A-Za-z]+")
_CONSTANTS = re.compile(r"\\pi(?![a-z])|(?<![A-Za-z\\])[ei](?![A-Za-z])")
_POWER = re.compile(r"-?\s?[0-9]{1,9}\s?\^\s?(?:[0-9]|\{\s?-?[0-9]{1,9}\s?\})")
_AROUND = re.compile(r"^([+-]?)[+-]?\s?(?:[(\[]\s?)?(.*?)\s?(?:[)\]]|_\s?\{\s?\})?$")
_PRODUCT = re.compile(
    r"[0-9}]\s?(?:\\cdot|\\times|\*|/(?=\s?[0-9.]+\s?[*\\]))\s?(?=[0-9(]|\\frac)|\)\s?\(\s?-?[0-9.]+\s?\)"
)
_RADICAND = re.compile(r"\\sqrt\s?(?:\[\s?([2-9])\s?\])?\s?\{?\s?([0-9]{1,6})")
_PLUS = re.compile(r"(?<=[0-9A-Za-z)}\]|!'])\s?[+-](?!\s?\\?infty)")
_EXPONENT = re.compile(r"\^\s?\{[^{}]*\}")
_FACTOR = re.compile(r"\((?=[^()]*[0-9A-Za-z})]\s?[+-])[^()]*\)")
_BELOW = re.compile(r"(?:\}\s?\{|/\s?\()(?=[^{}()]*[0-9A-Za-z})]\s?[+-])")


def is_unfinished(given: str, gold: str) -> bool:
    """Whether work is left in `given` that the key has done: `17 \\times 23` for 391, `(x+1)^2` for `x^2 + 2x + 1`."""
    if any(kind.search(given) and not kind.search(gold) for kind in _KINDS.values()):
        return True
    if quantity(gold) is not None:
        return _POWER.fullmatch(given) is None and quantity(_AROUND.sub(r"\1\2", given, count=1)) is None
    kinds = [name for name, kind in _NUMBER_KINDS.items() if kind.search(gold)]
    if _is_constant(gold) and not set(kinds) - {"root"}:
        if any(kind.search(given) for name, kind in _NUMBER_KINDS.items() if name not in kinds):
            return True
        if _terms(given) > _terms(gold) or len(_BELOW.findall(given)) > len(_BELOW.findall(gold)):
            return True
    if len(_PRODUCT.findall(given)) > len(_PRODUCT.findall(gold)) or (_holds_power(given) and not _holds_power(gold)):
        return True
    ours, theirs = _factors(given), _factors(gold)
    if (ours > 1 and theirs == 0 and _terms(gold) > 1 and r"\frac" not in gold) or (
        theirs > 1 and ours == 0 and not _is_sum(gold)
    ):
        return True
    factored = ours > theirs and r"\frac" in gold  # (x - 1)(x + 1) below, for x^2 - 1
    return not factored and not set(kinds) - {"root"} and _is_longer(given, gold)


def _is_longer(given: str, gold: str) -> bool:
    """Whether terms or factors that the key has in one are apart: `2x + 3x`, `x^2 x^3`, roots of roots."""
    terms, letters = _terms(gold), Counter(_letters(gold))
    if _terms(given) > terms or given.count(r"\sqrt") > max(terms, gold.count(r"\sqrt")):
        return True
    most = max(terms, 1 + given.count(r"\sqrt"))  # x\sqrt{x} is x^{3/2}
    return any(count > max(letters[letter], most) for letter, count in Counter(_letters(given)).items())


def _holds_power(text: str) -> bool:
    """Whether a factor can come out of a root: `\\sqrt{72}`."""
    for root in _RADICAND.finditer(text):
        index, value = int(root[1] or 2), int(root[2])
        if any(value % base**index == 0 for base in range(2, 1 + math.isqrt(value)) if base**index <= value):
            return True
    return False


def _letters(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]", _COMMAND.sub(" ", text))


def _is_sum(text: str) -> bool:
    """Whether something is added outside of all brackets."""
    outside, depth = [], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        outside.append("1" if depth else letter)
    return _PLUS.search("".join(outside)) is not None


def is_solved(text: str) -> bool:
    """Whether an equation, an inequality or a set of numbers says what the unknown is: `x = 5`, `1 < x < 2`, (1, 2).

    A curve `y = 2x + 1` is no solution: any equation of it will do.
    """
    for part in re.split(r"\\cup|\\cap|\\setminus", text):
        for member in split(part.strip(), ","):
            found = relation(member)
            if found is None:
                continue
            if found.kind == "<":
                named = named_interval(member)
                if named is None or not all(_is_constant(end) for end in named[1].elements if "," not in end):
                    return False
            elif not _is_explicit(found.sides):
                return False
    return True


def _is_explicit(sides: tuple[str, ...]) -> bool:
    """`r = d / t`, on either side; y of x is a curve."""
    for name, value in (sides, sides[::-1]) if len(sides) == 2 else ():
        letters = set(_letters(value))
        if is_variable(name) and name not in letters and not (name in "xyz" and letters & set("xyz")):
            return True
    return False


def _is_constant(text: str) -> bool:
    return not _letters(_CONSTANTS.sub(" ", text))


def _terms(text: str) -> int:
    return 1 + len(_PLUS.findall(_EXPONENT.sub("^1", text)))


def _factors(text: str) -> int:
    """Brackets around sums that are multiplied or raised; a square counts twice."""
    count = 0
    for bracket in _FACTOR.finditer(text):
        before, after = text[: bracket.start()].rstrip(), text[bracket.end() :].lstrip()
        power = re.match(r"\^\s?\{?\s?[2-9n]", after) is not None
        times = re.search(r"[0-9A-Za-z)}*]$|\\cdot$", before) is not None and not re.search(r"\\[a-zA-Z]+$", before)
        count += 2 * power or bool(times or re.match(r"[0-9A-Za-z(*]|\\(?!cup)", after))
    return count
