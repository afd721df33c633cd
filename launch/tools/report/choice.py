"""Trajectories by name and by what they are: the names and the conditions of the page's links."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from launch.tools.report.kept import NONE, Listed
from rlsys.errors import BadInput

NAME = re.compile(r"(?P<file>[^:]+):(?P<sequence>\d+)(?:\.(?P<sibling>\d+))?")
RANGE = re.compile(r"(?P<low>-?[\d.]+)(?:[:-](?P<high>-?[\d.]+))?")
WORDS = {"task": "task_id", "end": "end", "failed": "failure", "play": "play"}
ANY, NO = "any", "none"
STEP = "step-"  # how a file of a step begins
MOST_SPANS = 8  # in an error


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float


def read_range(text: str, key: str) -> Range:
    """ "3", "201-245", "-1:0": both ends belong to it. Raises BadInput."""
    match = RANGE.fullmatch(text)
    try:
        low = float(match["low"]) if match else float("nan")
        found = Range(low, float(match["high"]) if match and match["high"] else low)
    except ValueError:
        found = Range(1.0, 0.0)
    if not found.low <= found.high:
        raise BadInput(key=key, found=text, expected="a number, or a range such as 201-245 or -1:0")
    return found


def name_of(episodes: Listed, row: int) -> str:
    """ "step-000240:1248.5": the file, the group in it, the sibling."""
    columns = episodes.columns
    file = episodes.texts["file"][int(columns["file"][row])]
    return f"{stem(file)}:{columns['sequence'][row]}.{columns['sibling'][row]}"


def stem(file: str) -> str:
    return file.removesuffix(".gz").removesuffix(".jsonl")


def find_named(episodes: Listed, name: str) -> list[int]:
    """The row of a trajectory, or those of a group. Raises BadInput for a name that none has, with what there is."""
    match = NAME.fullmatch(name)
    file = match["file"] if match is not None else name
    stems = [stem(each) for each in episodes.texts["file"]]
    if file not in stems:
        raise BadInput(key="ID", found=name, expected=f"a file of the run: {_files(stems)}")
    columns = episodes.columns
    chosen = columns["file"] == stems.index(file)
    groups = np.unique(columns["sequence"][chosen]).tolist()
    if match is None or int(match["sequence"]) not in groups:
        such = f"such as {name_of(episodes, int(np.flatnonzero(chosen)[0]))}"
        raise BadInput(key="ID", found=name, expected=f"a group of {file}: it has {_spans(groups)}, {such}")
    chosen &= columns["sequence"] == int(match["sequence"])
    siblings = columns["sibling"][chosen].tolist()
    if match["sibling"] is not None:
        chosen &= columns["sibling"] == int(match["sibling"])
    if not chosen.any():
        raise BadInput(key="ID", found=name, expected=f"a sibling of that group: it has {_spans(siblings)}")
    rows: list[int] = np.flatnonzero(chosen).tolist()
    return rows


def _files(stems: Sequence[str]) -> str:
    """ "step-000201 to step-000245, eval-rl-before-greedy"."""
    numbers = [int(each.removeprefix(STEP)) for each in stems if each.startswith(STEP)]
    others = [each for each in stems if not each.startswith(STEP)]
    steps = [_spans(numbers, lambda number: f"{STEP}{number:06}")] if numbers else []
    more = [f"{len(others) - MOST_SPANS} more"] if len(others) > MOST_SPANS else []
    return ", ".join([*steps, *others[:MOST_SPANS], *more]) or "it has written none"


def _spans(numbers: Sequence[int], show: Callable[[int], str] = str) -> str:
    """ "1690 to 1697, 1700": what is there, in order."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [show(low) if low == high else f"{show(low)} to {show(high)}" for low, high in spans]
    if len(shown) > MOST_SPANS:
        shown = [*shown[: MOST_SPANS - 1], "...", shown[-1]]
    return ", ".join(shown)


def find_like(episodes: Listed, ranges: Mapping[str, Range], words: Mapping[str, str]) -> list[int]:
    """Rows whose numbers are within `ranges` (by column), and whose texts have `words` in them (by a key of WORDS)."""
    chosen = np.ones(len(episodes), bool)
    for name, own in ranges.items():
        column = episodes.columns[name]
        chosen &= (column >= own.low) & (column <= own.high)
        if name not in ("reward", "advantage"):
            chosen &= column != NONE
    for name, word in words.items():
        chosen &= _has(episodes.columns[WORDS[name]], episodes.texts[WORDS[name]], word)
    rows: list[int] = np.flatnonzero(chosen).tolist()
    return rows


def _has(column: npt.NDArray[np.int32], texts: Sequence[str], word: str) -> npt.NDArray[np.bool_]:
    if word in (ANY, NO):
        found: npt.NDArray[np.bool_] = (column != NONE) == (word == ANY)
        return found
    return np.isin(column, [at for at, text in enumerate(texts) if word.lower() in text.lower()])
