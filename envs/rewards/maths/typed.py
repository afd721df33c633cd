"""Mathematics as it is typed or dressed, in LaTeX: `sin(x)`, `2**10`, `0.(27)`, `C(10,3)`, `]2,5]`, `\\underline{5}`.

One table of rewritings, each linear in a text that is bounded by MAX_ANSWER.
"""

from __future__ import annotations

import re
from fractions import Fraction

_TRIGONOMETRY = "sin|cos|tan|cot|sec|csc"
_INVERSE = re.compile(rf"\\?(?<![A-Za-z])a(?:rc)?({_TRIGONOMETRY})(?![A-Za-z])")
# With brackets these are functions; the names of _BARE also without.
_CALLED = "exp|det|gcd|lcm|max|min|sec|zeta|Gamma|delta"
_BARE = rf"arc(?:{_TRIGONOMETRY})|(?:sin|cos|tan)h?|cot|csc|ln|lg|log"
_GREEK = "alpha|beta|theta|lambda|omega|phi"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DOTS = r"(?:\.\.\.|\\[lc]?dots(?![a-zA-Z]))"
_END = r"\s?([^\s,()\[\]][^,()\[\]]*),([^,()\[\]]*[^\s,()\[\]])\s?"


def compile_rules(*rules: tuple[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), by) for pattern, by in rules)


_TYPED = compile_rules(
    (r"^(?:(?:\\(?:therefore|implies|Rightarrow|Longrightarrow|rightarrow|to)(?![a-zA-Z])|=(?!=))\s?)+", ""),
    (r"\\(?:text)?color(?:box)?\s?\{[^{}]*\}(?!\s?$)|\\(?:underline|underbar|bm|uline)(?=\s?\{)", ""),
    (r"(?<=[0-9A-Za-z)}])(\s?)\*\*\1(?=[0-9A-Za-z({\\-])", "^"),
    (r"\^\s?\(([^()]*)\)", r"^{\1}"),
    (r"\bplus(?: or |/|-)minus\b\s?|\+\s?/\s?-|(?<![0-9A-Za-z)}])(?<![0-9A-Za-z)}]\s)\+-", r"\\pm "),
    (r"^(-?[0-9]*\.[0-9]*)\(([0-9]+)\)$", r"\1\\overline{\2}"),  # 0.2(50) = 10 is a product
    (r"\.([0-9]*)\\dot\s?\{?([0-9])\}?([0-9]*)\\dot\s?\{?([0-9])\}?", r".\1\\overline{\2\3\4}"),
    (rf"(\.[0-9]{{0,12}}?)(?:([0-9])\2{{2,30}}|([0-9]{{2,9}}?)\3{{1,9}})\s?{_DOTS}", r"\1\\overline{\2\3}"),
    (r"\.([0-9]{1,30})\s(?:repeating|recurring)$", r".\\overline{\1}"),
    (r"\{\s?([^{}]*?)\s?\\over(?![a-zA-Z])\s?([^{}]*)\}", r"\\frac{\1}{\2}"),
    (r"\{\s?([^{}]*?)\s?\\choose(?![a-zA-Z])\s?([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"(?<![A-Za-z\\])(?:cbrt\s?\(([^()]*)\)|\\cbrt\s?\{([^{}]*)\})", r"\\sqrt[3]{\1\2}"),
    (r"(?<![A-Za-z\\])abs\s?\(([^()]*)\)", r"|\1|"),
    # 3/4 x and 4/3pi are read from the left, and are no mixed number 2 1/2.
    (r"(?<![0-9A-Za-z.,^_/)}])(?<![0-9]\s)([0-9]{1,9})\s?/\s?([0-9]{1,9})(?=\s?[A-Za-z\\(])", r"\\frac{\1}{\2}"),
    (r"(?<=[)}])\s?/\s?([0-9]{1,9})(?=\s[A-Za-z\\(]|i(?![a-z]))", r"\\cdot \\frac{1}{\1}"),
    (rf"(?<![A-Za-z\\])sqrt\s?({_NUMBER})", r"\\sqrt{\1}"),
    (r"(?<![A-Za-z\\])log_?\{?([0-9]+)\}?\s?\(([^()]*)\)", r"\\log_{\1}(\2)"),
    (rf"(?<![A-Za-z\\])({_GREEK})(?=\)|\s?[-+*/^=<>)]|$)", r"\\\1 "),
    (rf"(?<![A-Za-z\\])({_BARE})(?=\s?(?:[({{^_|\\0-9]|[A-Za-z](?![A-Za-z])))\s?", r"\\\1 "),  # no `tan shirt`
    (rf"(?<![A-Za-z\\])(?<![0-9]\s)({_CALLED})(?=\(|\^[^()]*\()", r"\\\1"),  # nor `5 min (approx)`
    (r"\\l(?:n|og_\s?(?:e(?![a-z])|\{\s?e\s?\}))(?![a-zA-Z])", r"\\ln "),
    (r"\\lg(?![a-zA-Z])", r"\\log_{10}"),
    (rf"(\\(?:{_BARE})\s{{0,2}}(?:[0-9]{{1,9}}|[a-z]))\s?/\s?(?=\\(?:{_BARE})(?![a-z]))", r"(\1)/"),  # ln 7/ln 3
    (r"(?<![0-9A-Za-z)])\]" + _END + r"(?=[\]\[])", r"(\1,\2"),  # ]2,5]
    (r"([(\[]" + _END + r")\[", r"\1)"),
    (r"(?<=[)\]}])\s?U\s?(?=[(\[{\\])", r"\\cup "),
    (r"(?<![\\^_A-Za-z}])\{([^{}]*)\}(?=\s?\\cup)|(?<=\\cup )\{([^{}]*)\}", r"\\{\1\2\\}"),
    (r"^<([^<>=]*,[^<>=]*)>$", r"(\1)"),
    (r"^\{\s?\}$", r"\\emptyset "),
    (r"\\ln\s?\^\s?\{?([2-9])\}?\s?(\([^()]*\)|[0-9]{1,9}|[a-z](?![a-z]))", r"(\\ln \2)^{\1}"),
    (r"(?<![A-Za-z\\])d([a-z])\s?/\s?d([a-z])(?![a-z])", r"\\frac{d\1}{d\2}"),
    (r"(?<![A-Za-z\\])floor\s?\(([^()]*)\)", r"\\lfloor \1\\rfloor "),
    (r"(?<![A-Za-z\\])ceil(?:ing)?\s?\(([^()]*)\)", r"\\lceil \1\\rceil "),
    (r"^C\s?\(\s?([0-9]?[nm](?:[+-][0-9])?)\s?,\s?([0-9nmkr])\s?\)$", r"\\binom{\1}{\2}"),
    (r"(?<![0-9A-Za-z.\\])([0-9]{1,4}|[0-9]?[nm]) choose ([0-9]{1,4}|[nmkr])(?![0-9A-Za-z])", r"\\binom{\1}{\2}"),
    (r"(?<=,)\s?(?:\\[lc]?dots(?![a-zA-Z])|\.\.\.)", r"\\dots "),
    (r"\b([0-9]+)\s?h(?:ours?|rs?)?(?:\s?and)?\s?([0-9]+)\s?m(?:in(?:ute)?s?)?\.?$", r"\1 h \2 min"),
    (r"(?<=[0-9])\s?\\q?quad(?![a-zA-Z])\s?(?=-?[0-9]|[a-z]\s?=)", ", "),
)
_CHOICES = [
    re.compile(pattern)
    for pattern in (
        r"^C\s?\(\s?([0-9]{1,4})\s?,\s?([0-9]{1,4})\s?\)$",  # with others it is a point
        r"(?<![0-9A-Za-z)}])(?:\{\})?[_^]\s?\{?([0-9]{1,4})\}?\s?C\s?_\s?\{?([0-9]{1,4})\}?",
        r"(?<![0-9A-Za-z.])([0-9]{1,4})C([0-9]{1,4})(?![0-9A-Za-z_]|\s?_)",
    )
]
_LIKELY = re.compile(r"[*(\[\\^<{]|d/d|\.\.|[a-z]{2}|[0-9}]\s?[CUh]|^[=\]]|\+-|\+\s?/|/\s?[0-9]")
_RESIDUE = re.compile(r"\s?\(?\s?\\?(?:p?mod|bmod)\s?\{?\s?([0-9]{1,9})\s?\}?\s?\)?$")
_CONGRUENT = re.compile(r"^\\?[A-Za-z]\s?\\equiv(?![a-zA-Z])\s?")
_MINUTES = re.compile(
    rf"(?<![0-9.])({_NUMBER})\s?\^\s?\{{?\\circ\s?\}}?\s?({_NUMBER})\s?(?:'|\^\s?\{{?\\prime\s?\}}?)(?!')"
    rf"(?:\s?({_NUMBER})\s?(?:''|\"|\^\s?\{{?\\prime\s?\\prime\s?\}}?))?"
)
_ROOTS = {"\u221a": r"\sqrt", "\u221b": r"\sqrt[3]", "\u221c": r"\sqrt[4]"}
_ROOT = re.compile(rf"([\u221a\u221b\u221c])\s?(?:\(([^()]*)\)|({_NUMBER}|[A-Za-z]))")
_LINE = re.compile(
    r"-?[0-9](?:[0-9./,\s{}-]|\\frac|\\sqrt|\\pi)*|[A-Za-z](?:_\s?\{?[0-9]\}?)?\s?[=<>](?!.*[-+*/=<>]$).*"
)


def write_roots(text: str) -> str:
    """The signs of roots, with what they stand before, as `\\sqrt{18}`."""
    return _ROOT.sub(lambda root: rf"{_ROOTS[root[1]]}{{{root[2] or root[3]}}}", text)


def join_lines(text: str) -> str:
    """Several lines of numbers or solutions, or `2 \\\\ 3`, as a list; no expression that is broken over lines."""
    if r"\begin" in text or not ("\n" in text or r"\\" in text):
        return text
    lines = [line.strip(" ,;") for line in re.split(r"\n|\\\\(?![a-zA-Z%])", text) if line.strip(" ,;")]
    return ", ".join(lines) if len(lines) > 1 and all(map(_LINE.fullmatch, lines)) else text


def write_latex(text: str) -> str:
    if _LIKELY.search(text) is None:
        return text
    text = _INVERSE.sub(r"\\arc\1", text)
    for pattern, by in _TYPED:
        text = pattern.sub(by, text)
    for pattern in _CHOICES:
        text = pattern.sub(_write_binomial, text)
    return _MINUTES.sub(_write_degrees, text) if r"\circ" in text else text


def _write_binomial(match: re.Match[str]) -> str:
    """`C(10,3)`, `10C3`; C(2, 3) is a point, and 1C2 a number in base 16."""
    return rf"\binom{{{match[1]}}}{{{match[2]}}}" if int(match[1]) >= int(match[2]) else match[0]


def _write_degrees(angle: re.Match[str]) -> str:
    degrees, minutes, seconds = (Fraction(part or 0) for part in angle.groups())
    value = degrees + minutes / 60 + seconds / 3600
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}^\circ "


def split_modulus(text: str) -> tuple[str, str]:
    """`x \\equiv 3 \\pmod{7}` gives ("3", "7"), a text without a modulus (text, "")."""
    residue = _RESIDUE.search(text) if "mod" in text else None
    if residue is None or not text[: residue.start()].strip():
        return text, ""
    return _CONGRUENT.sub("", text[: residue.start()]).strip(), residue[1]
