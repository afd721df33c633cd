"""What an answer has to have done: arithmetic that is left to do, or a question that was copied, is no answer.

Judged by the looks of cleaned texts, and by the key's own form.
"""

from __future__ import annotations

import re

from envs.rewards.maths.quantity import quantity
from envs.rewards.maths.structure import is_variable, named_interval, relation, split
from envs.rewards.maths.text import clean, split_name

_D = r"(?:d(?![a-z])|d(?=[a-zA-Z]\s?\})|\\partial|\\text\s?\{\s?d\s?\})"
# Each kind of work with what asks for it: of an answer, where its key has none.
_WORK = {
    "sum": r"\\sum|\\prod|\\[lc]?dots|\.\.\.",
    "integral": r"\\i{1,3}nt|\\oint",
    "limit": r"\\lim",
    "derivative": rf"\\frac\s?\{{\s?{_D}[^{{}}]*\}}\s?\{{\s?{_D}\s?[A-Za-z]|\\nabla",
    "determinant": r"\\det(?![a-z])|\\begin\s?\{vmatrix\}",
    "residue": r"\\?[pb]?mod(?![a-z])",
    "divisor": r"\\?(?:gcd|lcm)(?![a-z])",
    "extreme": r"\\(?:max|min|sup|inf)(?![a-z])",
    "rounding": r"\\[lr](?:floor|ceil)",
    "matrix": r"\\begin",
}
_KINDS = [re.compile(pattern) for pattern in _WORK.values()]
# Where the key is a plain number, what is more than one fraction, power, root or function.
_ARITHMETIC = [
    re.compile(pattern)
    for pattern in (
        r"(?<=[0-9A-Za-z)}\]|!'])\s?[+-](?!\s?\\?infty)",
        r"[0-9}%]\s?(?:\\cdot|\\times|\\div|\*|/(?=\s?[0-9.]+\s?[*\\]))\s?(?=[0-9(]|\\frac)|\)\s?\(\s?-?[0-9.]+\s?\)",
        r"(?:\\frac[^a-z]*|/[^+\-/]*)(?:\\frac|/)|\\frac\s?\{[^{}/]*/|\\frac\s?\{[^{}]*\}\s?\{[^{}/]*/",
    )
]
_EXPONENT = re.compile(r"\^\s?\{[^{}]*\}")
_COMMAND = re.compile(r"\\(?:begin|end)\s?\{[a-z]*\}|\\(?!theta|alpha|beta|gamma|phi|omega|lambda|mu|sigma)[A-Za-z]+")
_CONSTANTS = re.compile(r"\\pi(?![a-z])|(?<![A-Za-z\\])[ei](?![A-Za-z])")
_SET = re.compile(r"(?<=\\)[dt](?=frac|binom)|[\s${}()]|\\(?:left|right|displaystyle|text|mathrm|[,;:!\[\]()])(?![a-z])")


def is_unevaluated(given: str, gold: str) -> bool:
    """Whether `given` leaves arithmetic to others, or a sum, an integral, ..: `17 \\times 23` for 391."""
    if any(kind.search(given) and not kind.search(gold) for kind in _KINDS):
        return True
    if quantity(gold) is None:
        return False
    return any(left.search(_EXPONENT.sub("^1", given)) for left in _ARITHMETIC)


def is_copied(given: str, question: str) -> bool:
    """Whether `given`, as it was written, stands in the question; not a digit of a longer number."""
    text = _squash(given)
    for match in re.finditer(re.escape(text), _squash(question)) if text else ():
        before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
        if not ((text[0].isdigit() and before.isdigit()) or (text[-1].isdigit() and after.isdigit())):
            return True
    return False


def is_rewritten(given: str, gold: str) -> bool:
    """Whether two texts that are equal without algebra differ by what a question may ask for: a number reduced,
    converted or rounded, and no other order, spelling or unit."""
    text, key = split_name(clean(given))[1], split_name(clean(gold))[1]
    if r"\approx" in key:
        return r"\approx" not in text
    ours, theirs = quantity(text), quantity(key)
    if ours is None or theirs is None:
        return False
    if ours.value != theirs.value or "%" in (ours.unit, theirs.unit) and ours.unit != theirs.unit:
        return True
    exact = ours.decimals is None, theirs.decimals is None
    return exact[0] != exact[1] or (exact[0] and re.findall("[0-9]+", text) != re.findall("[0-9]+", key))


def is_reordered(given: str, gold: str) -> bool:
    """Whether they are the same signs in another order, such as x + 1 and 1 + x."""
    return sorted(_squash(split_name(given)[1])) == sorted(_squash(split_name(gold)[1]))


def _squash(text: str) -> str:
    """What the same formula has in common however it is set."""
    return _SET.sub("", text)


def is_solved(text: str) -> bool:
    """Whether an equation, an inequality or a set of numbers says what the unknown is: `x = 5`, `1 < x < 2`, (1, 2).

    A curve `y = 2x + 1` is no solution: any equation of it will do.
    """
    for part in re.split(r"\\cup|\\cap|\\setminus", text):
        for member in split(part.strip(), ","):
            held = relation(member)
            if held is None:
                continue
            if held.kind == "<":
                named = named_interval(member)
                if named is None or not all(_is_constant(end) for end in named[1].elements if "," not in end):
                    return False
            elif not _is_explicit(held.sides):
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


def _letters(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]", _COMMAND.sub(" ", text))
