"""What an answer has to have done: arithmetic that is left to do, or a question that was copied, is no answer.

Judged by the looks of cleaned texts, and by the key's own form.
"""

from __future__ import annotations

import re

from envs.rewards.maths.quantity import parse_quantity
from envs.rewards.maths.structure import is_variable, parse_named_interval, parse_relation, split_outside_brackets
from envs.rewards.maths.text import clean, split_name
from envs.rewards.maths.typed import compile_rules

_D = r"(?:d(?![a-z])|d(?=[a-zA-Z]\s?\})|\\partial|\\text\s?\{\s?d\s?\})"
# Each kind of work with what asks for it: of an answer, where its key has none.
_WORK = {
    "sum": r"\\sum|\\prod|\+\s?(?:\\[lc]?dots|\.\.\.)",
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
        r"[0-9)}%]\s?(?:\\cdot|\\times|\\div|\*|/(?=\s?[0-9.]+\s?[*\\]))\s?(?=[{(]?\s?-?[0-9]|\\frac|\\sqrt)"
        r"|\)\s?\(\s?-?[0-9.]+\s?\)",
        r"(?:\\frac[^a-z]*|/[^+\-/]*)(?:\\frac|/)|\\frac\s?\{[^{}/]*/|\\frac\s?\{[^{}]*\}\s?\{[^{}/]*/",
    )
]
_EXPONENT = re.compile(r"\^\s?\{[^{}]*\}")
_NOT_IMAGINARY = re.compile(r"(?<=[0-9}])\s?[+-]\s?0\s?i(?![a-z])")
_COMMAND = re.compile(r"\\(?:begin|end)\s?\{[a-z]*\}|\\(?!theta|alpha|beta|gamma|phi|omega|lambda|mu|sigma)[A-Za-z]+")
_CONSTANTS = re.compile(r"\\pi(?![a-z])|(?<![A-Za-z\\])[ei](?![A-Za-z])")
# What changes the looks of a formula and nothing else, once it is written with one kind of brackets and without spaces.
_SPELLED = compile_rules(
    (r"\\(?:cdot|times)(?![a-z])", "*"),
    (r"[\s$~]|\\(?:left|right|[bB]igg?[lr]?|quad|[,;:!])(?![a-z])", ""),
    (r"[{\[]", "("),
    (r"[}\]]", ")"),
)
_NEUTRAL = compile_rules(
    (r"(?<![0-9.])([0-9]{1,9})\.0{1,9}(?![0-9])", r"\1"),
    (r"\\[dtc]?frac\(([0-9A-Za-z]{1,4})\)\(\1\)", "1"),
    (r"\*?(?:(?<![0-9A-Za-z\\])[0-9]{1,4}|(?<![A-Za-z\\])[a-z])\^(?:0|\(0\))(?![0-9.A-Za-z])", "*1"),
    (r"(?<=[+*/(-])\(([01])\)", r"\1"),
    (r"^([0-9]{1,4})\*?(\(.*)/\1$|^\\[dtc]?frac\(([0-9]{1,4})\*?(.*)\)\(\3\)$", r"\2\4"),
    (r"^\\[dtc]?frac\((.*)\)\(1\)$", r"\1"),
    (
        r"[+-]0(?:\*?[a-z](?:\^\(?[0-9]\)?)?|\*[0-9])?(?![0-9.A-Za-z^*/(\\])"
        r"|(?<![0-9.A-Za-z)^*/_\\])0(?:\*?[a-z]|\*[0-9])?(?=[+-])",
        "",
    ),
    (r"[*^](?:1|\(1\))(?![0-9.A-Za-z!^/])|(?<=[)0-9])\(1\)|/(?:1|\(1\))(?![0-9.A-Za-z!^/(])", ""),
    (r"(?<![0-9.A-Za-z)^*/_\\])1(?:\*|(?=[(A-Za-z]))", ""),
    (r"\*\(?([0-9A-Za-z]{1,4})/\1(?![0-9.A-Za-z^*])\)?", ""),
    (r"\+([0-9A-Za-z]{1,4})-\1(?![0-9.A-Za-z^*/(!])|-([0-9A-Za-z]{1,4})\+\2(?![0-9.A-Za-z^*/(!])", ""),
)
_SIGNS = compile_rules((r"--|\+\+", "+"), (r"\+-|-\+", "-"))
# What a formula may be set with or without.
_SET = re.compile(r"(?<=\\)[dt](?=binom)|[()*]|\.$|\\(?:displaystyle|text|mathrm|overline)(?![a-z])")
_FRACTION = re.compile(r"\\[dtc]?frac(?![a-z])")
_POWERS = {
    ord(sign): f"^{at}" for at, sign in enumerate("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
}
MAX_SIDES = 4  # of a copied formula that is said to be itself
_CODE = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_FORMULA = re.compile(r"(?<=\$)[^$]{1,400}(?=\$)|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]", re.DOTALL)
_REWRITE = re.compile(
    r"convert|simplif|reduce|express|write|lowest|mixed|improper|decimal|fraction|per\s?cent|notation|round|approximat",
    re.IGNORECASE,
)


def is_unevaluated(answer: str, gold: str) -> bool:
    """Whether `answer` leaves arithmetic to others, or a sum, an integral, ..: `17 \\times 23` for 391."""
    if any(kind.search(answer) and not kind.search(gold) for kind in _KINDS):
        return True
    if parse_quantity(gold) is None:
        return False
    answer = _NOT_IMAGINARY.sub("", _EXPONENT.sub("^1", answer))
    return any(pattern.search(answer) for pattern in _ARITHMETIC)


def is_copied(answer: str, question: str) -> bool:
    """Whether the formula that is given stands in the question, however it is set; not a part of a longer number."""
    sides = answer.split("=")
    if 1 < len(sides) <= MAX_SIDES and all(side.strip() and is_copied(side, question) for side in sides):
        return True
    squashed_question = _canonical_formula(_CODE.sub(" ", question))
    texts = {_canonical_formula(text).lstrip("+") for text in (answer, split_name(clean(answer))[1])} - {""}
    if any(_occurs_in_question(text, squashed_question) for text in texts):
        return True
    signs = [_sort_signs(answer), _sort_signs(split_name(clean(answer))[1])]
    formulas = (formula[1] or formula[2] or formula[0] for formula in _FORMULA.finditer(question))
    return any(_sort_signs(formula) in signs for formula in formulas)


def _occurs_in_question(text: str, question: str) -> bool:
    at = question.find(text)
    while at >= 0:
        end = at + len(text)
        before, after = at > 0 and question[at - 1].isdigit(), end < len(question) and question[end].isdigit()
        if not ((before and text[0].isdigit()) or (after and text[-1].isdigit())):
            return True
        at = question.find(text, at + 1)
    return False


def is_rewritten(answer: str, gold: str, question: str) -> bool:
    """Whether two texts that are equal without algebra differ by what the question asks for: a quotient worked out, a
    fraction reduced, a number converted or rounded, a region as an interval; no other order, spelling or unit."""
    text, key = split_name(clean(answer))[1], split_name(clean(gold))[1]
    if r"\approx" in key:
        return r"\approx" not in text
    asks = _REWRITE.search(question) is not None
    ours, theirs = parse_quantity(text), parse_quantity(key)
    if ours is None or theirs is None:
        return asks and (parse_relation(text) is None) is not (parse_relation(key) is None)
    if ours.decimals is None and (theirs.decimals is None or theirs.value.denominator == 1):
        return re.findall("[0-9]+", text) != re.findall("[0-9]+", key)
    return asks and (ours.value != theirs.value or (ours.decimals is None) != (theirs.decimals is None))


def is_reordered(answer: str, gold: str) -> bool:
    """Whether they are the same signs in another order or notation: x + 1 and 1 + x, a/b and a fraction."""
    ours, theirs = (_canonical_formula(split_name(clean(text))[1]) for text in (answer, gold))
    return sorted(_with_sign(ours)) == sorted(_with_sign(theirs))


def _with_sign(text: str) -> str:
    return text if text[:1] in ("+", "-") else f"+{text}"


def _sort_signs(text: str) -> list[str]:
    """The signs of a formula, for which the order of terms and factors does not matter: `-x + 1` has no `+` less."""
    return sorted(_canonical_formula(text).replace("+", ""))


def _canonical_formula(text: str) -> str:
    """What the same formula has in common however it is set, `+0`, `\\cdot 1` and `-(-` included."""
    text = _apply_rules(_NEUTRAL, _apply_rules(_SPELLED, text.translate(_POWERS)))
    return _apply_rules(_SIGNS, _SET.sub("", _FRACTION.sub("/", text)))


def _apply_rules(rules: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str:
    for pattern, by in rules:
        text = pattern.sub(by, text)
    return text


def is_solved(text: str) -> bool:
    """Whether an equation, an inequality or a set of numbers says what the unknown is: `x = 5`, `1 < x < 2`, (1, 2).

    A curve `y = 2x + 1` is no solution: any equation of it will do.
    """
    for part in re.split(r"\\cup|\\cap|\\setminus", text):
        for member in split_outside_brackets(part.strip(), ","):
            claim = parse_relation(member)
            if claim is None:
                continue
            if claim.kind == "<":
                interval = parse_named_interval(member)
                if interval is None or not all(_is_constant(end) for end in interval[1].elements if "," not in end):
                    return False
            elif not _is_explicit(claim.sides):
                return False
    return True


def _is_explicit(sides: tuple[str, ...]) -> bool:
    """`r = d / t`, on either side; y of x is a curve."""
    for name, value in (sides, sides[::-1]) if len(sides) == 2 else ():
        letters = set(_list_letters(value))
        if is_variable(name) and name not in letters and not (name in "xyz" and letters & set("xyz")):
            return True
    return False


def _is_constant(text: str) -> bool:
    return not _list_letters(_CONSTANTS.sub(" ", text))


def _list_letters(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]", _COMMAND.sub(" ", text))
