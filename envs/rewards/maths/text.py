"""Mathematics as people write it: one spelling for each thing.

Nothing here evaluates anything. Texts are bounded by MAX_ANSWER before they come here.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from envs.rewards.maths.chinese import spell_out
from envs.rewards.maths.numerals import write_in_digits
from envs.rewards.maths.typed import compile_rules, join_lines, write_latex, write_roots
from envs.text.words import last_boxed

_CHARACTERS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u00d7": r"\times ", "\u00b7": r"\cdot ", "\u22c5": r"\cdot ", "\u00f7": "/",
        "\u03c0": r"\pi ", "\u221a": r"\sqrt ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ",
        "\u2260": r"\ne ", "\u00b0": r"^\circ ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ",
        "\u00b1": r"\pm ", "\u2248": r"\approx ", "\u2205": r"\emptyset ", "\u211d": r"\mathbb{R}", "\u2044": "/",
        "\u2032": "'", "\u2033": "''", "\u27e8": r"\langle ", "\u27e9": r"\rangle ", "\u2a7d": r"\le ",
        "\u2a7e": r"\ge ", "\u03b8": r"\theta ", "\u2061": "", "\u200b": "", "\u2019": "'",
        "\u00a2": " cents", "\u3002": ".", "\u3001": ", ", "\u03a9": r"\Omega ", "\u2126": r"\Omega ",
        "\u2014": "-", "\u2234": r"\therefore ", "\u21d2": r"\implies ", "\u00b5": r"\mu ", "\u03bc": r"\mu ",
        "\u2261": r"\equiv ",
    }
)  # fmt: skip
_SUPERSCRIPT = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "⁻": "-", "⁺": "+"}
_SUBSCRIPT = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_RAISED, _LOWERED = (re.compile(f"[{''.join(marks)}]+") for marks in (_SUPERSCRIPT, _SUBSCRIPT))

_DELIMITERS = ((r"\(", r"\)"), (r"\[", r"\]"), *((mark, mark) for mark in ("$$", "$", "**", "__", "*", "_", "`")))
MAX_DELIMITERS = 4  # pairs around each other

_COMMANDS = compile_rules(
    (r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\s?\.?", ""),
    (r"(?<!\\)\\!|\\(?:(?:display|text|script)style|[lL]arge|LARGE|[hH]uge|small|limits)(?![a-zA-Z])", ""),
    (r"(?<!\\)\\[,;:> ]|\\q?quad(?![a-zA-Z])", " "),
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\(?:mathbf|vec|hat|boldsymbol)\s?\{\s?(?:\\hat\s?\{?)?\s?\\?([ijk])(?:math)?\s?\}+", r"\\unitvector{\1}"),
    (r"\\(?:mathrm|text|operatorname)\s?\{([ei])\}", r" \1"),
    (r"\\(?:math(?:rm|bf|it|sf)|text(?:bf|it|rm|sf|normal)|operatorname|mbox|emph)(?![a-zA-Z])", r"\\text"),
    (r"\\text\s?\{([^{}a-zA-Z\\\u3400-\u9fff]*)\}", r" \1 "),
    (r"(\\text\s?\{[^{}]*)\^\s?\{([23])\}([^{}]*\})", r"\1^\2\3"),
    (r"\^\s?(?:\\circ(?![a-zA-Z])|\{\s?\\circ\s?\})|\\degree(?![a-zA-Z])", r"^\\circ "),
    (r"\^\\circ\s+(?:\\text\s?\{\s?)?([CF])\s?\}?$", r"\\text{ degrees \1}"),
    (r"\\(le|ge|ne)(?:q|qslant)?(?![a-zA-Z])", r"\\\1 "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\(?:simeq|sim|doteq|approxeq)(?![a-zA-Z])", r"\\approx "),
    (r"\\varnothing(?![a-zA-Z])", r"\\emptyset "),
    (r"^(\\\{[^:|]*?)\s?(?::|\\colon)\s?([^:]*\\\})$", r"\1|\2"),
    (r"\\lbrace(?![a-zA-Z])", r"\\{"),
    (r"\\rbrace(?![a-zA-Z])", r"\\}"),
    (r"\\langle(?![a-zA-Z])", "("),
    (r"\\rangle(?![a-zA-Z])", ")"),
    (r"\\[lr]vert(?![a-zA-Z])|\\mid(?![a-zA-Z])", "|"),
    (r"\\(?:lor|vee)(?![a-zA-Z])", " or "),
    (r"\\(?:land|wedge)(?![a-zA-Z])", " and "),
    (r"\\begin\s?\{array\}\s?\{[lcr| ]*\}", r"\\begin{matrix}"),
    (r"\\end\s?\{array\}", r"\\end{matrix}"),
    (r"\\%", "%"),
    (r"\\(?:text)?(?:pounds|sterling)(?![a-zA-Z])\s?", "\u00a3"),
    (r"\\(?:text)?euro(?![a-zA-Z])\s?", "\u20ac"),
    (r"\\(?:text)?yen(?![a-zA-Z])\s?", "\u00a5"),
    (r"\\(?:textdollar|dollar)(?![a-zA-Z])\s?", "\u00a4"),
    (r"\\mathbb\s?([A-Z])", r"\\mathbb{\1}"),
    (r"\\frac\s?([0-9])\s?([0-9])", r"\\frac{\1}{\2}"),
    (r"\\frac\s?([0-9])\s?(?=\{)", r"\\frac{\1}"),
    (r"\\frac(\s?\{[^{}]*\}\s?)([0-9])", r"\\frac\1{\2}"),
    (r"(?:\\\\\s*)+$", ""),
)
_SIZES = "hundred|thousand|million|billion|trillion|dozen|lakh|crore|gross|score|mn|bn"
_ASKED = r"(?:(?:[Tt]he|[Mm]y|[Ff]inal|[Cc]orrect)\s)*[Aa]nswer"
_SAYS = r"\s?(?:is(?!\s?no)\s?:?|:|=)\s?"
_ANSWER = _ASKED + _SAYS
_MARKED_ANSWER = re.compile(rf"^(\*\*|__){_ASKED}(?:{_SAYS}\1|\1{_SAYS})\s?|^{_ANSWER}(?=\*\*|__|[$\\])")
_DEGREES = r"(?:\s?(?:\^\\circ|degrees?))?\s?(?:(?:\\text\s?\{\s?)?[CF])?"
_PLAIN_WORDS = compile_rules(
    (rf"^\\text\s?\{{\s?{_ANSWER}\s?\}}\s?", ""),
    (rf"^(\\text\s?\{{\s?)?{_ANSWER}", r"\1"),
    (r"^(?:[Aa]bout|[Aa]pproximately|[Aa]pprox\.?|[Rr]oughly|[Aa]round)\s(?=[-+$0-9\\.\u00a4])", r"\\approx "),
    (r"\s?\((?:approximately|approx\.?|about|rounded)\)$", ""),
    (r"\s?\\text\s?\{\s?(?:per ?cent|pct)\.?\s?\}|(?<=[0-9.}])\s?(?:per ?cent|pct)\b\.?", "%"),
    (
        rf"^([0-9.]+)({_DEGREES})\s(?:\\text\s?\{{\s?)?below (?:zero|freezing)\s?\}}?$",
        r"-\1\2",
    ),
    (r"(?<=[0-9]%)\s?(?:\\text\s?\{\s?)?of (?:the|an?|all|his|her|its|their)\s[A-Za-z ]{1,60}\}?$", ""),
    (r"^(-?\s?\u00a4\s?[0-9.]+)\s?[kK]$", r"\1\\cdot 10^{3}"),
    (r"^(-?\s?\u00a4\s?[0-9.]+)\s?[mM]$", r"\1\\cdot 10^{6}"),
    (r"^(-?\s?\u00a4\s?[0-9.]+)\s?[bB]$", r"\1\\cdot 10^{9}"),
    (r"^EUR\s?(?=[0-9])", "\u20ac"),
    (r"^GBP\s?(?=[0-9])", "\u00a3"),
    (r"(?<=[0-9])(\s?(?:\\text\s?\{\s?)?)(?:US|U\.S\.) (?=dollar)", r"\1"),
    (r"(?:^(?=[A-Z]|[^,]*,)|(?<=, ))([A-Za-z]{2,20})\s?:\s?(?=[-0-9\\\u00a4])", r"\1 = "),
    (r"(?<=[0-9A-Za-z)}])\s{1,2}(?:is equal to|equals)\s{1,2}(?=[-0-9A-Za-z(\\])", " = "),
    (
        r"(?:\s?,)?\s(?:\\text\s?\{\s?)?for (?:all|any|every|each)(?: real(?: numbers?)?)?\s?\}?\s{0,2}[a-z]"
        r"(?:\s?\\in\s?\\mathbb\{R\})?\s?$",
        "",
    ),
    (r"(?<=^[A-Za-z])\s{1,2}is\s{1,2}(?=[-0-9\\])", " = "),
    (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
    (r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty "),
    (r"(?<![A-Za-z\\])sqrt(?![A-Za-z])", r"\\sqrt"),
    (r"^(?:USD|US\u00a4|[CA]\u00a4)\s?(?=[0-9.])", "\u00a4"),
    (r"^[Rr]s\.?\s?(?=[0-9])|^\\text\s?\{\s?[Rr]s\.?\s?\}\s?(?=[0-9])", "\u20b9"),
    (rf"(?<=[0-9}}])\s?\\text\s?\{{\s?({_SIZES})s?\s?\}}", r" \1"),
    (rf"(?<=[0-9}}])\s?\\text\s?\{{\s?({_SIZES})s?\s", r" \1 \\text{"),
    (r"(?<=[0-9}])\s?(?:\\text\s?\{\s?to\s?\}|to)\s?(?=[0-9\\])", ":"),
)
_CLOCK = re.compile(r"(?<=[0-9])\s?(?:\\text\s?\{\s?)?([apAP])\.?\s?[mM]\.?\s?\}?$")
_POWERS_OF_TEN = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "lakh": 5, "crore": 7}
_POWERS_OF_TEN |= {"mn": 6, "bn": 9}
_COUNTED = {"dozen": 12, "gross": 144, "score": 20}
_DOZENS = re.compile(
    r"(?<![0-9.,/}])([0-9]{1,9}(?:,[0-9]{3})*(?:\.[0-9]{1,9}|/[0-9]{1,9})?|\\frac\s?\{[0-9]{1,9}\}\s?\{[0-9]{1,9}\})"
    r"\s(dozen|gross|score)s?(?![a-zA-Z])"
)
_SIZE = re.compile(rf"(?<=[0-9}}])\s({_SIZES})s?(?![a-zA-Z])")
_AND_OR = re.compile(
    r"(?:\s?,)?\s?\\text\s?\{\s?(and|or)\s?\}\s?|(?:\s?,)?\s(and|or)\s|(?<=[)0-9}])(and|or)(?=[(0-9\\])"
)
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])")
_OPERATORS = compile_rules((r">=", r"\\ge "), (r"<=", r"\\le "), (r"!=", r"\\ne "))
_SETS = compile_rules(  # {x | x > 3} is x > 3
    (r"^\\\{\s?([A-Za-z])\s?(?:\\in\s?\\mathbb\{R\}\s?)?[|:]\s?([^{}]*)\\\}$", r"\2"),
)
_CIS = re.compile(
    r"(?:\\text\s?\{\s?cis\s?\}|(?<![A-Za-z\\])\\?cis)\s{0,2}"
    r"(?:\(([^()]*)\)|(\\frac\s?\{[^{}]*\}\s?\{[^{}]*\}|[0-9.]{1,9}\s?\^\\circ|[0-9]{0,3}\\pi(?:/[0-9]{1,3})?|\\?[a-z]{1,9}))"
)
_ROOT = re.compile(r"\\sqrt\s?\(([^()]*)\)")
_EXPONENT = re.compile(r"\^\s?(-[0-9]+|[0-9]{2,})(?![0-9.])")
_ALL_TEXT = re.compile(r"\\text\s?\{\s?([0-9.\u00a4-][^{}]*|[^{}]{0,20}\([^{}]*\)\s?)\}")
_MIXED_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:[A-Za-z]{2}|[apAP]\.\s?[mM]|[kKmMbB]$)|[\u3400-\u9fff]"
)  # a word that is no command
_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), by)
    for pattern, by in (
        (r"(?:there (?:is|are) )?no (?:real |possible |valid )?(?:solutions?|roots?)(?: exists?)?|none", r"\emptyset"),
        (r"(?:the )?(?:empty|null) set", r"\emptyset"),
        (r"(?:all|any|every) (?:real numbers?|reals)(?: [a-z])?", r"\mathbb{R}"),
        (r"(?:all|any|every) integers?(?: [a-z])?", r"\mathbb{Z}"),
        ("\u65e0\u89e3|\u65e0\u5b9e\u6570?[\u89e3\u6839]|\u7a7a\u96c6", r"\emptyset"),
        ("(?:\u4efb\u610f|\u5168\u4f53|\u6240\u6709|\u4e00\u5207)\u5b9e\u6570", r"\mathbb{R}"),
        (r"infinite(?:ly many)?(?: solutions)?", "infinitely many"),
        (r"(?:it |the limit )?does(?: not|n't) exist|dne|\u4e0d\u5b58\u5728", "does not exist"),
    )
)
_REALS_BUT = re.compile(
    r"(?:all|any|every) (?:real (?:numbers?|values)|reals)(?: (?:of )?[a-z])?,? "
    r"(?:(?:such that|where|with|for which)(?P<holds> .+)"
    r"|(?:except|but|other than|excluding)(?: for)? (?:[a-z] ?= ?)?(?P<but>.+))",
    re.IGNORECASE,
)
_TEXT = re.compile(r"\\text\s?\{([^{}]*)\}")
_SPACE = re.compile(r"(?<!\w) | (?!\w)")
_NAME = re.compile(
    r"\s*(?P<name>\\?[A-Za-z](?:[A-Za-z]{0,9}\([A-Za-z]\)|_\{?\w{1,8}\}?)?|\\(?:theta|alpha|beta|phi|lambda|mu|sigma)"
    r"|\\vec\s?\{?\s?[A-Za-z]{1,2}\s?\}?|\\text\s?\{[A-Za-z]\}|\([A-Za-z](?:\s?,\s?[A-Za-z]){1,3}\))\s?(?:=|\\in(?![a-z]))(?!=)"
)
_DECIMAL_COMMA = re.compile(  # 1.500,00 and, of euros, 12,50
    r"(?<![0-9.,])[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]{1,2}(?![0-9,])|(?<=^\u20ac)[0-9]{1,3},[0-9]{2}$|^[0-9]{1,3},[0-9]{2}(?=\s?\u20ac$)"
)
# 10 000, but 1 200/300 is a mixed number.
_THOUSANDS = re.compile(r"(?<![0-9.,}])[0-9]{1,3}(?: [0-9]{3})+(?![0-9]|\s?/)")
# Runs of letters that are mathematics without a backslash.
FUNCTIONS = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan")
    + ("log", "exp", "det", "gcd", "lcm", "max", "min", "mod")
)
_COMMAND = re.compile(r"\\(?:begin|end)\s?\{[a-z]+\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}|[\u3400-\u9fff]+")


@lru_cache(maxsize=1024)  # siblings of one group share the gold, and often the answer
def clean(text: str) -> str:
    """One spelling: no delimiters, no spacing commands, no boxes, single spaces, ASCII where LaTeX has a command."""
    text = text.strip()
    if "####" in text:  # GSM8K's own mark
        text = text.rpartition("####")[2].strip() or text
    if "boxed" in text or "fbox" in text:
        text = last_boxed(text) or text
    text = _MARKED_ANSWER.sub("", text)
    if not text.isascii():
        text = _to_ascii(write_roots(spell_out(text)))
    text = (
        write_latex(join_lines(_strip_delimiters(text)))
        .replace(r"\$", "\u00a4")
        .replace("$", "\u00a4")
        .replace("~", " ")
        .replace(";", ",")
    )
    text = text.replace("{,}", ",").replace("{:}", ":").replace(r"\colon", ":")
    if "," in text and ("." in text or "\u20ac" in text):
        text = _DECIMAL_COMMA.sub(lambda number: number.group().replace(".", "").replace(",", "."), text)
    if "\\" in text:
        for pattern, by in _COMMANDS:
            text = pattern.sub(by, text)
    if _INEQUALITY.search(text) or "!" in text:
        for pattern, by in (*_OPERATORS, *_SETS):
            text = pattern.sub(by, text)
    if _MIXED_WORDS.search(text):
        text = _replace_words(text)
    if "^" in text:
        text = _EXPONENT.sub(r"^{\1}", text)
    if r"\mp" in text and r"\pm" not in text:
        text = text.replace(r"\mp", r"\pm")
    if "cis" in text:
        text = _CIS.sub(r"(\\cos(\1\2)+i\\sin(\1\2))", text)
    text = " ".join(_ROOT.sub(r"\\sqrt{\1}", text).split())
    text = _THOUSANDS.sub(lambda match: match.group().replace(" ", ""), text)
    text = text.strip().rstrip(".,").strip()
    while text[:1] == "{" and text.find("}") == len(text) - text.count("}"):  # {{5}}
        text = text[1:-1].strip()
    return text


def _to_ascii(text: str) -> str:
    """Digits of any script, full-width letters, raised and lowered digits, and the signs that LaTeX has a name for."""
    text = _RAISED.sub(lambda marks: "^{" + "".join(map(_SUPERSCRIPT.__getitem__, marks.group())) + "}", text)
    text = _LOWERED.sub(lambda marks: "_{" + "".join(map(_SUBSCRIPT.__getitem__, marks.group())) + "}", text)
    return "".join(letter if letter < "\x80" else _letter_to_ascii(letter) for letter in text.translate(_CHARACTERS))


def _letter_to_ascii(letter: str) -> str:
    kind = unicodedata.category(letter)
    if kind == "Nd":
        return str(unicodedata.decimal(letter))
    if kind == "Zs":
        return " "
    plain = unicodedata.normalize("NFKC", letter)
    if kind == "No" and "\u2044" in plain:  # one half is 1, a fraction slash, 2
        above, _, below = plain.partition("\u2044")
        return rf"\frac{{{above}}}{{{below}}}"
    return plain if plain.isascii() and kind != "No" else letter


def _strip_delimiters(text: str) -> str:
    """Without the marks of mathematics or Markdown around the whole: `$5$`, `**5**`; in `$5$ and $6$` without each."""
    for _ in range(MAX_DELIMITERS):
        bare = text.removesuffix(".").strip()
        for opening, closing in _DELIMITERS:
            inside = bare[len(opening) : -len(closing)]
            if bare.startswith(opening) and bare.endswith(closing) and inside and opening not in inside:
                text = inside.strip()
                break
        else:
            text = re.sub(r"(?<!\\)\\[()]", " ", text)
            return re.sub(r"(?<!\\)\$([^$]*[^$\\])\$", r" \1 ", text) if "$" in text else text
    return text


def _replace_words(text: str) -> str:
    """With the words that mean a sign or a number written as such."""
    phrase = flatten(text)
    number = write_in_digits(phrase)
    if number != phrase:
        text = number
    for pattern, by in _PLAIN_WORDS:
        text = pattern.sub(by, text)
    text = _CLOCK.sub(
        lambda match: rf" \text{{{match[1].lower()}m}}",
        _SIZE.sub(_write_power_of_ten, _DOZENS.sub(_multiply_count, text)),
    )
    joins = {"and": r" \cap ", "or": r" \cup "} if _INEQUALITY.search(text) else {"and": ", ", "or": ", "}
    text = _AND_OR.sub(lambda match: joins[match[1] or match[2] or match[3]], text)
    text_match = _ALL_TEXT.fullmatch(text.strip())
    if text_match is not None:
        text = text_match[1]
    if len(text) < 60:
        phrase = flatten(text).rstrip(".!")
        for pattern, by in _PHRASES:
            if pattern.fullmatch(phrase):
                return by
        reals = _REALS_BUT.fullmatch(phrase)
        if reals is not None:
            return reals["holds"] or rf"\mathbb{{R}} \setminus \{{{reals['but']}\}}"
    return text


def _multiply_count(match: re.Match[str]) -> str:
    try:
        number = re.sub(r"\\frac\s?\{(.*)\}\s?\{(.*)\}", r"\1/\2", match[1]).replace(",", "")
        return str(Fraction(number) * _COUNTED[match[2]])
    except ZeroDivisionError:
        return match[0]


def _write_power_of_ten(match: re.Match[str]) -> str:
    if match[1] in _COUNTED:
        return rf"\cdot {_COUNTED[match[1]]}"
    return rf"\cdot 10^{{{_POWERS_OF_TEN[match[1]]}}}"


def flatten(text: str) -> str:
    """A cleaned text without `\\text` and without spaces that separate nothing: what equal texts are compared by."""
    if r"\text" in text:
        text = _TEXT.sub(r" \1 ", text)
    return _SPACE.sub("", " ".join(text.split()))


def split_name(text: str) -> tuple[str, str]:
    """`x = 5` gives ("x", "5"), `x \\in [1,2]` ("x", "[1,2]"); without a name, or with more equal signs, ("", text)."""
    match = _NAME.match(text)
    if match is None or "=" in text[match.end() :] or not text[match.end() :].strip():
        return "", text
    return match["name"], text[match.end() :].strip()


def is_prose(text: str) -> bool:
    """Whether it holds words that no mathematics is made of: such a text is right only as a text."""
    plain = _COMMAND.sub(" ", _TEXT.sub(r" \1 ", text))
    return plain.casefold().strip() == "no" or any(word.lower() not in FUNCTIONS for word in _WORD.findall(plain))
