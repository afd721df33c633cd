"""What a response says, read without trusting it: the three parts, the sentences, the claims that they make.

Everything is linear in the length of the text, and nothing raises. Offsets count characters of the response.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from envs.papers.graph_rl.graphs.encodings import LETTERED, NAMES, Encoding, label
from envs.papers.graph_rl.protocol import is_well_formed

MAX_SENTENCE = 4000  # characters; a longer one is unreadable
MAX_ADDENDS = 400  # tokens that a length in front of a path is read from
UNKNOWN = -1  # stands for a node that the graph does not have

_ARROW = re.compile(r"-{1,2}>|→|\\(?:rightarrow|to)\b")  # as people and LaTeX write it
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_TOKEN = re.compile(rf"{_ARROW.pattern}|{_NUMBER}|[A-Za-z]+[0-9]*|\S")
# Over tokens with a space between them. `float` takes any run of digits, and calls a huge one infinite.
_SUM = re.compile(rf"(?<!\S)(?:(-) )?({_NUMBER}(?: \+ {_NUMBER})*)(?: = ({_NUMBER}))?")
_CONNECTED = re.compile(r"(?:node )?+(\S+) is connected to (.+?)(?: \.)?", re.IGNORECASE)
_AND = re.compile(r"(?: (?:,|and))+ ", re.IGNORECASE)
_NEIGHBOUR = re.compile(rf"(?!node$)(?:node )?+(\S+)(?: with weight ({_NUMBER}))?", re.IGNORECASE)
_MARKER = re.compile(
    r"[ \t]*(?:[-*•][ \t]+|[0-9]{1,3}[.)][ \t]+|step[ \t]+[0-9]{1,3}[ \t]*[:.)])?[ \t]*", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"\.(?=\s|$)")
_FRAME = re.compile(
    rf"\**+the answer is[ \t]*+:?[ \t]*+\**+(?:yes|no|{_NUMBER})"
    # A reason that names an edge is no frame: what it makes up counts.
    r"(?:[ \t]*+,?[ \t]*+(?:since|because|as)\b(?:(?!connected|edge|--?>|→|\\to\b|\\rightarrow).)*+)?[ \t]*\.?\**|"
    r"some possible paths from (?:node )?\w{1,24} to (?:node )?\w{1,24} are[ \t]*[:.]?",
    re.IGNORECASE,
)
# Numbers that are no lengths, over tokens with a space between them.
_NO_LENGTH = re.compile(
    r"\b(?:between|from) (?:node )?\S+ (?:and|to) (?:node )?\S+|\bnode \S+|(?<!\S)\S+ (?:nodes|edges|steps|hops)\b",
    re.IGNORECASE,
)
_QUOTES = frozenset("\"'`$")  # NLGift's template has "->" in quotes, LaTeX its dollars
_LENGTH = frozenset(("length", "distance", "weight", "cost"))
_TOTAL = frozenset(("length", "distance", "cost", "total", "sum"))  # a weight may be that of one edge
_OR = frozenset(("or", "and", "to", "either", "maybe", "perhaps", "possibly", "but", "also", "could", "be", "not"))
_LISTED = re.compile(r"^[ \t]*([0-9]{1,2})\.[ \t]+|(?<!\S)([0-9]{1,2})\)[ \t]+", re.MULTILINE)
_NO_NAMES = frozenset(("He", "It", "She", "That", "There", "They", "This", "Which", "Who"))  # a capital is no name

Sum = tuple[list[float], float | None]  # the addends, and what they are said to add up to


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """text[start:end]"""

    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the parts stand. A part may be there although the format is not kept."""

    well_formed: bool  # each of the six tags once, in order; text outside of them is allowed
    response: Span | None
    answer: Span | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a sentence says about the graph: edges, their weights, and what these add up to.

    `0 -> 4 -> 2 with a total weight of 4 + 2 = 6` is
    Claim(edges=((0, 4), (4, 2)), weights=(4.0, 2.0), total=6.0, aligned=True)
    """

    edges: tuple[tuple[int, int], ...]  # [E] a node that the graph does not have is UNKNOWN
    weights: tuple[float | None, ...]  # [E] None where none was said
    total: float | None  # the stated sum, or length
    aligned: bool  # False when as many addends as edges were expected, and others were there
    several: bool = False  # an answer's lengths, of which none is the answer

    @property
    def nodes(self) -> tuple[int, ...]:
        """Of a path."""
        return (self.edges[0][0], *(edge[1] for edge in self.edges))


@dataclass(frozen=True, slots=True)
class Labels:
    """The names of the nodes 0 .. num_nodes-1 in an encoding."""

    encoding: Encoding
    nodes: dict[str, int]

    def find(self, token: str) -> int | None:
        """A node, UNKNOWN for what looks like the name of one, None for any other word."""
        if token in self.nodes:
            return self.nodes[token]
        if not token.isascii():
            return None
        if self.encoding == "friendship":
            is_name = token.isalpha() and token.istitle() and token not in _NO_NAMES
            looks = is_name or token.rstrip("0123456789") in NAMES
        elif self.encoding in LETTERED:
            looks = token.isalpha() and token.isupper() and len(token) <= 3
        else:
            looks = token.isdigit()
        return UNKNOWN if looks else None


def labels(num_nodes: int, encoding: Encoding) -> Labels:
    return Labels(encoding, {label(node, encoding): node for node in range(num_nodes)})


def split_parts(text: str) -> Parts:
    """Of several complete parts of one name, the last counts."""
    return Parts(
        well_formed=is_well_formed(text),
        response=_last_part(text, "<response>", "</response>"),
        answer=_last_part(text, "<answer>", "</answer>"),
    )


def _last_part(text: str, opening: str, closing: str) -> Span | None:
    end = text.rfind(closing)
    start = text.rfind(opening, 0, end) if end >= 0 else -1
    return Span(start=start + len(opening), end=end) if start >= 0 else None


def sentences(text: str, part: Span) -> Iterator[Span]:
    """The lines of a part, without bullets and numbers in front, cut at full stops; blank ones are left out."""
    start = part.start
    for line in part.of(text).split("\n"):
        end = start + len(line)
        marker = _MARKER.match(text, start, end)
        cut = marker.end() if marker else start
        for stop in (*(match.end() for match in _SENTENCE_END.finditer(text, cut, end)), end):
            piece = text[cut:stop]
            if stripped := piece.strip():
                begin = cut + len(piece) - len(piece.lstrip())
                yield Span(start=begin, end=begin + len(stripped))
            cut = stop
        start = end + 1


def is_frame(sentence: str) -> bool:
    """Whether a sentence only surrounds the steps: NLGift's first and last line, and nothing else in them."""
    return _FRAME.fullmatch(sentence) is not None


def read_step(sentence: str, names: Labels) -> Claim | None:
    """`[node] 0 is connected to [node] 4[, node 1 with weight 3]` or a path in arrows; None for anything else."""
    tokens = _tokens(sentence)
    return _read_edges(tokens, names) or _read_path(tokens, names, strict=True)


def read_path_answer(answer: str, names: Labels) -> Claim | None:
    """A path in arrows and its length: what is called one, else the number or sum after it. None without exactly one
    path. Where several lengths are named, `several`: an answer is one."""
    return _read_path(_tokens(_strip_item_numbers(answer)), names, strict=False)


def read_yes_no(answer: str) -> str | None:
    """`yes` or `no` when exactly one of these words occurs, in any case: `Yes.` is `yes`."""
    words = {token.lower() for token in _tokens(answer)} & {"yes", "no"}
    return words.pop() if len(words) == 1 else None


def _strip_item_numbers(answer: str) -> str:
    """Without the numbers of a list's items, where it begins as one: `1. Path: 0->3->2` and `2. Length: 4`."""
    item = 0

    def strip(marker: re.Match[str]) -> str:
        nonlocal item
        if int(marker[1] or marker[2]) != item + 1 or (item == 0 and marker.start() > 0):
            return marker.group()
        item += 1
        return " "

    return _LISTED.sub(strip, answer.strip())


def _tokens(sentence: str) -> list[str]:
    """Every arrow is `->`; quotes are left out."""
    tokens = _TOKEN.findall(sentence) if len(sentence) <= MAX_SENTENCE else []
    return ["->" if _ARROW.fullmatch(token) else token for token in tokens if token not in _QUOTES]


def _read_edges(tokens: list[str], names: Labels) -> Claim | None:
    claim = _CONNECTED.fullmatch(" ".join(tokens))
    subject = names.find(claim[1]) if claim else None
    if claim is None or subject is None:
        return None
    edges: list[tuple[int, int]] = []
    weights: list[float | None] = []
    for piece in _AND.split(claim[2]):
        end = _NEIGHBOUR.fullmatch(piece)
        neighbour = names.find(end[1]) if end else None
        if end is None or neighbour is None:
            return None
        edges.append((subject, neighbour))
        weights.append(float(end[2]) if end[2] else None)
    return Claim(edges=tuple(edges), weights=tuple(weights), total=None, aligned=True)


def _read_path(tokens: list[str], names: Labels, *, strict: bool) -> Claim | None:
    """The first chain of arrows; no second one may follow. `strict`: at most one sum, and no `not` in front."""
    first = next((index for index, token in enumerate(tokens) if token == "->"), 0)
    if first == 0:
        return None
    start = names.find(tokens[first - 1])
    if start is None or (strict and any(token.lower() in ("no", "not") for token in tokens[:first])):
        return None
    nodes, at = [start], first
    while at < len(tokens) and tokens[at] == "->":
        node, at = _node(tokens, at + 1, names)
        if node is None:
            return None
        nodes.append(node)
    tail = tokens[at:]
    if "->" in tail:
        return None
    sums, several = _sums(tail), False
    if strict and len(sums) > 1:
        return None
    if not strict:
        lengths, several = _choose(_lengths_before(tokens[: first - 1]) + _lengths_after(tail), len(nodes) - 1)
        sums = [] if several else [_as_length(length) for length in lengths]
    addends, total = sums[-1] if sums else ([], None)
    edges = tuple(pairwise(nodes))
    if len(addends) == len(edges):
        weights: tuple[float | None, ...] = tuple(addends)
    else:
        weights = (None,) * len(edges)
    # A number alone is a length; in a step, after one edge, it is the edge's weight too.
    aligned = len(addends) in (0, 1, len(edges))
    return Claim(edges=edges, weights=weights, total=total, aligned=aligned, several=several)


def _choose(candidates: list[tuple[Sum, bool]], edges: int) -> tuple[list[Sum], bool]:
    """The lengths, and whether they differ. Where some are called one, other lone numbers are none."""
    called = any(is_called for _, is_called in candidates)
    lengths = [length for length, is_called in candidates if is_called or not called or len(length[0]) > 1]
    differ = len({round(total or 0.0, 6) for _, total in lengths}) > 1
    return lengths, differ and not _adds_up(lengths, edges)


def _is_total(words: list[str], before: bool) -> bool:
    """Whether the last name in front of a number is a length's; without a name, what it was before."""
    last_name = next((word for word in reversed(words) if word in _TOTAL or word in ("weight", "weights")), None)
    return before if last_name is None else last_name in _TOTAL or (last_name == "weight" and "total" in words)


def _lengths_after(tokens: list[str]) -> list[tuple[Sum, bool]]:
    """Each number or sum behind a path, and whether it is called a length: in `length 4 or 5` both are."""
    text = _NO_LENGTH.sub(" ", " ".join(tokens))
    lengths: list[tuple[Sum, bool]] = []
    called, end = False, 0
    for match in _SUM.finditer(text):
        words = text[end : match.start()].lower().split()
        if any(word == "." or (word[0].isalpha() and word not in _OR) for word in words):
            called = called and not lengths
        called, end = _is_total(words, called), match.end()
        lengths += [(length, called) for length in _sums([match.group()])]
    return lengths


def _as_length(stated_sum: Sum) -> Sum:
    """In an answer a lone number is a length, and no weight: of a path of one edge it would be both."""
    addends, total = stated_sum
    return ([], total) if addends == [total] else stated_sum


def _adds_up(lengths: list[Sum], edges: int) -> bool:
    """`weights 3 and 1, length 4`: one number for each edge, and at last their sum."""
    *weights, (_, length) = lengths
    stated = [total or 0.0 for _, total in weights]
    return len(stated) == edges and length is not None and math.isclose(math.fsum(stated), length, abs_tol=1e-6)


def _lengths_before(head: list[str]) -> list[tuple[Sum, bool]]:
    """`length 4: 0->3->2`: in front of a path numbers are nodes too, so a length has to be called one."""
    lengths: list[tuple[Sum, bool]] = []
    lowered = [token.lower() for token in head]
    keyword_at = next((at for at, token in enumerate(lowered) if token in _LENGTH), len(head))
    for at in range(keyword_at + 1, len(head)):
        # What says how long stands right before the number: `the length between 0 and 2 is 4`.
        if head[at][0].isdigit() and (lowered[at - 1] in _LENGTH or lowered[at - 1] in ("is", "of", "=", ":")):
            called = _is_total(lowered[max(0, at - MAX_ADDENDS) : at], before=False)
            lengths += [(length, called) for length in _sums(head[at : at + MAX_ADDENDS])[:1]]
    return lengths


def _sums(tokens: list[str]) -> list[Sum]:
    """Every `4`, `4 + 2`, `4 + 2 = 6` among the tokens: the addends and the stated result, by default their sum."""
    sums: list[Sum] = []
    for minus, added, result in _SUM.findall(" ".join(tokens)):
        addends = [float(number) for number in f"{minus}{added}".split(" + ")]
        sums.append((addends, float(result) if result else sum(addends)))
    return sums


def _node(tokens: list[str], at: int, names: Labels) -> tuple[int | None, int]:
    """The node at a place, with or without the word `node` before it, and the place after it."""
    if tokens[at : at + 1] and tokens[at].lower() == "node":
        at += 1
    return (names.find(tokens[at]) if at < len(tokens) else None), at + 1
