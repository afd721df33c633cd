"""What an answer is made of: lists, sets, tuples, intervals, unions, matrices and vectors, ratios; and relations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from envs.rewards.maths.quantity import parse_quantity
from envs.rewards.maths.text import flatten, is_prose, split_name

_MATRIX = re.compile(r"\\begin\s?\{[pbBv]?(?:small)?matrix\}(.*)\\end\s?\{([pbBv]?)(?:small)?matrix\}", re.DOTALL)
_CASES = re.compile(r"(?:[A-Za-z](?:\([a-z]\))?\s?=\s?)?\\begin\s?\{cases\}(.*)\\end\s?\{cases\}", re.DOTALL)
_CONDITION = re.compile(
    r"&\s?(?:\\text\s?\{\s?(?:if|for|when|where)\s?\}|(?:if|for|when)\s)?|\\text\s?\{\s?(?:if|for|when)\s?\}"
)
_WHEN = re.compile(r"\s?\b(?:if|for|when|where)\s|\s(?=otherwise|else)")
_DEFINED = re.compile(r"^[A-Za-z](?:\([a-z]\))?\s?=\s?")
_UNIT_VECTOR = re.compile(r"\\unitvector\{([ijk])\}")
_POINT = re.compile(r"[A-Z]\s?(?=\([^(),]*[0-9][^(),]*,)")  # P(1,2)
_TRANSPOSED = re.compile(
    r"(?P<body>.*[)\]}])\s?\^\s?\{?\s?(?:\\text\s?\{\s?)?(?:\\(?:top|intercal)|T|t)\s?\}?\s?\}?", re.DOTALL
)
_IDENTITY = re.compile(r"(?:I|E)_\s?\{?\s?(?P<size>[1-9])\s?\}?|(?:I|E)")
_DIAGONAL = re.compile(r"(?:\\text\s?\{\s?diag\s?\}|\\?diag)\s?\((?P<cells>[^()]*)\)")
_LABEL = re.compile(
    r"(?:^|(?<=[\s,.}\\]))(?:\\text\s?\{)?\s?(?:[Pp]art\s)?(?:\(\s?(?P<a>[a-h]|[ivx]{1,4}|[1-9])\s?\)|(?P<b>[a-h]|[1-9])\)"
    r"|(?<=[Pp]art )(?P<c>[a-hA-H]|[1-9])\s?:)\s?:?\s?\}?\s?"
)
_SERIES = ("abcdefgh", "12345678", ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii"))
_BRACKETS = {"(": ")", "[": "]"}
_OPEN, _CLOSE = "([{", ")]}"
_OPERATOR = re.compile(r"\\(?:le|ge|ne|approx)(?![a-zA-Z])|[<>=]")
_MARK = re.compile(_OPERATOR.pattern + r"|[()\[\]{},]")
MAX_SIDES = 8  # of a chain such as a = b = c
_VARIABLE = re.compile(r"\\?[A-Za-z]|\\(?:theta|alpha|beta|phi|lambda|mu|sigma)|[A-Za-z]_\{?\w{1,3}\}?")
_TURNED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
REALS = r"\mathbb{R}"
_INFINITY = {r"\infty": 1, r"+\infty": 1, r"-\infty": -1, r"- \infty": -1}


@dataclass(frozen=True, slots=True)
class Collection:
    # "()", "(]", "[)", "[]" in order; "set", "list", "union" in any; "ratio"; "parts"; "matrix 2x3", row by row;
    # "cases", value and condition by turns
    kind: str
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """`1 < x \\le 2`: Relation(sides=("1", "x", "2"), operators=("<", "\\le"))"""

    sides: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What it takes to compare it: "=", "\\approx", or "<" for everything with an inequality."""
        kinds = set(self.operators)
        return "=" if kinds == {"="} else r"\approx" if kinds <= {"=", r"\approx"} else "<"


def parse_collection(text: str) -> Collection | None:
    """What a cleaned text holds, where it is a list, a set, a tuple or interval, a union, a matrix or cases."""
    if r"{cases}" in text:
        return _parse_cases(text)
    if "matrix}" in text or "[" in text or r"\unitvector" in text or "^" in text[-12:]:
        matrix = _parse_matrix(text) or _parse_components(text)
        if matrix is not None:
            return matrix
    parts = parse_labelled(text)
    if parts is not None:
        return Collection("parts", parts)
    if r"\cup" in text:
        parts = split_outside_brackets(text, r"\cup")
        if len(parts) > 1:
            return Collection("union", parts)
    if "," in text:
        parts = split_outside_brackets(text, ",")
        if len(parts) > 1:
            return Collection("list", _expand_members(parts))
    if text.startswith(r"\{") and text.endswith(r"\}") and _find_closing(text, 1) == len(text) - 1:
        inside = text[2:-2].strip()
        return Collection("set", _expand_members(split_outside_brackets(inside, ",")) if inside else ())
    if text == r"\emptyset":
        return Collection("set", ())
    if text.count(r"\pm") == 1:
        return Collection("list", _expand_members([text]))
    if ":" in text and not is_prose(text) and r"\text" not in text:
        parts = split_outside_brackets(text, ":")
        if len(parts) > 1 and all(parts):
            return Collection("ratio", parts)
    label = _POINT.match(text)
    text = text[label.end() :] if label is not None else text
    if text[:1] in _BRACKETS and text[-1:] in (")", "]") and _find_closing(text, 0) == len(text) - 1:
        return Collection(text[0] + text[-1], split_outside_brackets(text[1:-1], ","))
    return None


def _parse_cases(text: str) -> Collection | None:
    """`\\begin{cases} x & x > 0 \\\\ ...`, in any order; a list where the rows are equations without conditions."""
    match = _CASES.fullmatch(text)
    if match is None:
        return None
    rows = [row.strip(" ,.") for row in match[1].split(r"\\") if row.strip(" ,.")]
    cells = [_CONDITION.split(row, maxsplit=1) for row in rows]
    if all(len(row) == 2 for row in cells):
        return Collection("cases", tuple(cell.strip(" ,.") for row in cells for cell in row))
    return Collection("list", tuple(row.replace("&", "") for row in rows)) if all(map(parse_relation, rows)) else None


def write_cases(text: str) -> str:
    """`1 if x > 0, -1 otherwise` and `1, x > 0, -1, x \\le 0` as `cases`; any other text as it is."""
    if r"{cases}" in text:
        return text
    parts = split_outside_brackets(_DEFINED.sub("", flatten(text)).replace(r"\cap", ","), ",")
    rows = [_WHEN.split(part, maxsplit=1) for part in parts]
    if len(parts) % 2 == 0 and not any(len(row) == 2 for row in rows) and all(map(parse_relation, parts[1::2])):
        rows = [list(row) for row in zip(parts[::2], parts[1::2], strict=True)]
    if len(rows) < 2 or not all(len(row) == 2 for row in rows):
        return text
    cells = r" \\ ".join(" & ".join(row) for row in rows)
    return rf"\begin{{cases}}{cells}\end{{cases}}"


def _parse_matrix(text: str) -> Collection | None:
    """Of `\\begin{pmatrix}..` in any brackets but those of a determinant, or of `[[1,2],[3,4]]`."""
    if text[:1] in _BRACKETS and _find_closing(text, 0) == len(text) - 1:
        inside = text[1:-1].strip()
        if text[0] == "[" and inside.startswith("["):
            nested = [parse_collection(part) for part in split_outside_brackets(inside, ",")]
            rows = [list(row.elements) for row in nested if row is not None and row.kind == "[]"]
            return _make_matrix(rows) if len(rows) == len(nested) else None
        text = inside
    turned = _TRANSPOSED.fullmatch(text) if "^" in text else None
    if turned is not None:
        return _transpose(turned["body"].strip())
    matrix = _MATRIX.fullmatch(text)
    if matrix is None or matrix[2] == "v":
        return None
    return _make_matrix([row.split("&") for row in matrix[1].strip().removesuffix(r"\\").split(r"\\")])


def _transpose(body: str) -> Collection | None:
    """Of a matrix, and of a row such as `(1, 2, 3)`, which becomes a column."""
    grid = parse_collection(body)
    if grid is None or not ((grid.kind in ("()", "[]") and len(grid.elements) > 1) or grid.kind.startswith("matrix")):
        return None
    if grid.kind in ("()", "[]"):
        return _make_matrix([[element] for element in grid.elements])
    columns = int(grid.kind.rpartition("x")[2])
    return _make_matrix([list(grid.elements[at::columns]) for at in range(columns)])


def parse_named_matrix(text: str, kind: str) -> Collection | None:
    """`I_2`, `I` and `\\text{diag}(1, 2)`, where a matrix of the kind is expected."""
    identity, diagonal = _IDENTITY.fullmatch(text), _DIAGONAL.fullmatch(text)
    if identity is None and diagonal is None:
        return None
    cells = (
        split_outside_brackets(diagonal["cells"], ",")
        if diagonal is not None
        else ("1",) * int((identity and identity["size"]) or kind.rpartition("x")[2])
    )
    return _make_matrix([[cell if at == row else "0" for at in range(len(cells))] for row, cell in enumerate(cells)])


def parse_labelled(text: str) -> tuple[str, ...] | None:
    """What stands behind `(a)`, `(b)` and so on, in order, each once; None where the labels are no such series."""
    if ")" not in text and ":" not in text:
        return None
    marks = list(_LABEL.finditer(text))
    names = [(mark["a"] or mark["b"] or mark["c"]).lower() for mark in marks]
    if len(marks) < 2 or marks[0].start() != 0 or not any(list(series[: len(names)]) == names for series in _SERIES):
        return None
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    parts = tuple(text[mark.end() : end].strip(" ,.\\") for mark, end in zip(marks, ends, strict=True))
    return parts if all(parts) else None


def _make_matrix(rows: list[list[str]]) -> Collection | None:
    if len({len(row) for row in rows}) != 1:
        return None
    return Collection(f"matrix {len(rows)}x{len(rows[0])}", tuple(cell.strip() for row in rows for cell in row))


def _parse_components(text: str) -> Collection | None:
    """`i + 2j` in bold or with hats: the vector (1, 2)."""
    cells = {"i": "0", "j": "0"}
    start = 0
    for unit in _UNIT_VECTOR.finditer(text):
        factor = text[start : unit.start()].strip()
        start = unit.end()
        cells[unit[1]] = f"{factor}1" if factor in ("", "+", "-") else factor.removeprefix("+").strip()
    if start == 0 or text[start:].strip():
        return None
    return Collection(f"matrix {len(cells)}x1", tuple(cells.values()))


def as_tuple(group: Collection, kind: str) -> Collection:
    """A vector as a tuple, and `x = 1, y = 2` as the tuple (1, 2), where `kind` is "()"; else as it is.

    A list, tuple or vector is in the order of the parts where `kind` is "parts". `[2, 3, 5]` can be no interval,
    and `[2, 3]`, which can, is no list: its ends have an order.
    """
    if group.kind == "[]" and len(group.elements) > 2 and kind in ("()", "set", "list", "parts", "ratio"):
        group = Collection("list" if kind in ("set", "list") else "()", group.elements)
    if kind == "parts" and group.kind in ("list", "()"):
        return Collection("parts", group.elements)
    if kind in ("()", "[]") and group.kind.startswith("matrix") and (group.kind.endswith("x1") or " 1x" in group.kind):
        return Collection(kind, group.elements)
    if kind != "()":
        return group
    if group.kind == "list":
        pairs = sorted(split_name(element) for element in group.elements)
        names = [name for name, _ in pairs]
        if all(len(name) == 1 for name in names) and len(set(names)) == len(names):
            return Collection("()", tuple(value for _, value in pairs))
        if len(group.elements) > 2 and not any(names):  # two could be an interval's
            return Collection("()", group.elements)
    return group


def _expand_members(parts: Iterable[str]) -> tuple[str, ...]:
    """With `\\pm` written out: `\\pm 1, 3` holds 1, -1 and 3."""
    signs = ("+", "-")
    spelled = ([part.replace(r"\pm", sign) for sign in signs] if part.count(r"\pm") == 1 else [part] for part in parts)
    return tuple(member for members in spelled for member in members)


def split_outside_brackets(text: str, separator: str) -> tuple[str, ...]:
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


def _find_closing(text: str, opening: int) -> int:
    """Where the bracket at `opening` is closed, by any closing bracket: (1, 2] is an interval. -1 where it is not."""
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] in _OPEN) - (text[at] in _CLOSE)
        if depth == 0:
            return at
    return -1


def parse_relation(text: str) -> Relation | None:
    """The sides and operators of a cleaned text that is one relation; None for a list of them and for none."""
    if _OPERATOR.search(text) is None or r"\cup" in text or r"\cap" in text:
        return None
    sides: list[str] = []
    operators: list[str] = []
    start = depth = 0
    for mark in _MARK.finditer(text):
        symbol = mark.group()
        if symbol in _OPEN or symbol in _CLOSE:
            depth += 1 if symbol in _OPEN else -1
        elif depth == 0:
            if symbol == "," or len(operators) == MAX_SIDES:
                return None
            sides.append(text[start : mark.start()].strip())
            operators.append(symbol)
            start = mark.end()
    sides.append(text[start:].strip())
    if not operators or not all(sides[1:]) or not (sides[0] or operators == [r"\approx"]):
        return None
    return Relation(tuple(sides), tuple(operators))


def is_variable(text: str) -> bool:
    return _VARIABLE.fullmatch(text) is not None


def parse_named_interval(text: str) -> tuple[str, Collection] | None:
    """`x > 3` is ("x", the interval (3, oo)), `1 < x \\le 2` ("x", (1, 2]), `x \\ne 3` a union; None where it takes
    algebra to tell."""
    claim = parse_relation(text)
    if claim is None or claim.kind != "<":
        return None
    sides, operators = claim.sides, claim.operators
    if len(sides) == 2:
        left, right, operator = sides[0], sides[1], operators[0]
        if not is_variable(left) or (is_variable(right) and right < left):
            left, right, operator = right, left, _TURNED[operator]
        if not is_variable(left) or left in right:
            return None
        low, high = (r"-\infty", right) if operator in ("<", r"\le") else (right, r"\infty")
        if operator == r"\ne":
            return left, Collection("union", (rf"(-\infty, {right})", rf"({right}, \infty)"))
        first, last = "[" if operator == r"\ge" else "(", "]" if operator == r"\le" else ")"
        return left, Collection(first + last, (low, high))
    if len(sides) != 3 or not is_variable(sides[1]) or sides[1] in sides[0] + sides[2]:
        return None
    if set(operators) <= {">", r"\ge"}:
        sides, operators = sides[::-1], tuple(_TURNED[operator] for operator in operators[::-1])
    if not set(operators) <= {"<", r"\le"}:
        return None
    first, last = "(" if operators[0] == "<" else "[", ")" if operators[1] == "<" else "]"
    return sides[1], Collection(first + last, (sides[0], sides[2]))


Span = tuple[Fraction | float, bool, Fraction | float, bool]  # from, with it, to, with it


def parse_spans(text: str) -> tuple[Span, ...] | None:
    """The set of numbers that `[0,1] \\cup [1,2]` or `x \\ne 3` is, as disjoint intervals in order; None where its ends
    are no plain numbers, or it is no such set."""
    text = split_name(text)[1]
    if text == REALS:
        return ((float("-inf"), False, float("inf"), False),)
    interval = parse_named_interval(text)
    container = interval[1] if interval is not None else parse_collection(text)
    if container is None:
        return None
    if container.kind == "union":
        parts = [parse_spans(part) for part in container.elements]
        return (
            None if any(part is None for part in parts) else _merge_spans(span for part in parts for span in part or ())
        )
    if container.kind not in ("()", "(]", "[)", "[]", "set"):
        return None
    ends = [_parse_end(element) for element in container.elements]
    numbers = [end for end in ends if end is not None]
    if len(numbers) != len(ends):
        return None
    if container.kind == "set":
        return _merge_spans((point, True, point, True) for point in numbers)
    if len(numbers) != 2 or not numbers[0] < numbers[1]:
        return None
    return ((numbers[0], container.kind[0] == "[", numbers[1], container.kind[1] == "]"),)


def _parse_end(text: str) -> Fraction | float | None:
    if text in _INFINITY:
        return float("inf") * _INFINITY[text]
    number = parse_quantity(text)
    return number.value if number is not None and not number.unit else None


def _merge_spans(parts: Iterable[Span]) -> tuple[Span, ...]:
    """[0, 1] and (1, 2] are [0, 2]; [0, 1) and (1, 2] stay two."""
    merged: list[Span] = []
    for span in sorted(parts, key=lambda span: (span[0], not span[1])):
        if merged and (span[0] < merged[-1][2] or (span[0] == merged[-1][2] and (span[1] or merged[-1][3]))):
            low, closed, high, with_it = merged[-1]
            further = max((high, with_it), (span[2], span[3]))
            merged[-1] = (low, closed, *further)
        else:
            merged.append(span)
    return tuple(merged)
