"""Trajectories by name and by what they are: the names and the conditions of the page's links."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from launch.report.kept import NONE, Listed
from rlsys.errors import BadInput

NAME = re.compile(r"(?P<file>[^:]+):(?P<sequence>\d+)(?:\.(?P<sibling>\d+))?")
RANGE = re.compile(r"(?P<low>-?[\d.]+)(?:[:-](?P<high>-?[\d.]+))?")
WORDS = {"task": "task_id", "end": "end", "failed": "failure", "play": "play"}
ANY, NO = "any", "none"


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
    """ "step-000212:3.1": the file, the group in it, the sibling."""
    columns = episodes.columns
    file = episodes.texts["file"][int(columns["file"][row])]
    return f"{stem(file)}:{columns['sequence'][row]}.{columns['sibling'][row]}"


def stem(file: str) -> str:
    return file.removesuffix(".gz").removesuffix(".jsonl")


def find_named(episodes: Listed, name: str) -> list[int]:
    """The row of a trajectory, or those of a group. Raises BadInput for a name that none has."""
    match = NAME.fullmatch(name)
    if match is None:
        raise BadInput(key="ID", found=name, expected="FILE:GROUP.SIBLING, such as step-000212:3.1, or FILE:GROUP")
    stems = [stem(file) for file in episodes.texts["file"]]
    if match["file"] not in stems:
        known = f"{stems[0]} to {stems[-1]}" if stems else "no file of trajectories"
        raise BadInput(key="ID", found=name, expected=f"a file of the run ({known})")
    columns = episodes.columns
    chosen = (columns["file"] == stems.index(match["file"])) & (columns["sequence"] == int(match["sequence"]))
    siblings = columns["sibling"][chosen].tolist()
    if match["sibling"] is not None:
        chosen &= columns["sibling"] == int(match["sibling"])
    if not chosen.any():
        known = f"sibling {', '.join(map(str, siblings[:16]))}" if siblings else "a group that was written"
        raise BadInput(key="ID", found=name, expected=known)
    return np.flatnonzero(chosen).tolist()


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
    return np.flatnonzero(chosen).tolist()


def _has(column: npt.NDArray[np.int32], texts: Sequence[str], word: str) -> npt.NDArray[np.bool_]:
    if word in (ANY, NO):
        found: npt.NDArray[np.bool_] = (column != NONE) == (word == ANY)
        return found
    return np.isin(column, [at for at, text in enumerate(texts) if word.lower() in text.lower()])
