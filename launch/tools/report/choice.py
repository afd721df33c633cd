"""Trajectories by name and by what they are: the names and the conditions of the page's links."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from launch.tools.report.kept import NONE, EpisodeListing
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


def parse_range(text: str, key: str) -> Range:
    """ "3", "201-245", "-1:0": both ends belong to it. Raises BadInput."""
    match = RANGE.fullmatch(text)
    try:
        low = float(match["low"]) if match else float("nan")
        bounds = Range(low, float(match["high"]) if match and match["high"] else low)
    except ValueError:
        bounds = Range(1.0, 0.0)
    if not bounds.low <= bounds.high:
        raise BadInput(key=key, found=text, expected="a number, or a range such as 201-245 or -1:0")
    return bounds


def trajectory_name(episodes: EpisodeListing, row: int) -> str:
    """ "step-000240:1248.5": the file, the group in it, the sibling."""
    columns = episodes.columns
    file = episodes.texts["file"][int(columns["file"][row])]
    return f"{file_stem(file)}:{columns['sequence'][row]}.{columns['sibling'][row]}"


def file_stem(file: str) -> str:
    return file.removesuffix(".gz").removesuffix(".jsonl")


def find_named(episodes: EpisodeListing, name: str) -> list[int]:
    """The row of a trajectory, or those of a group. Raises BadInput for a name that none has, with what there is."""
    match = NAME.fullmatch(name)
    file = match["file"] if match is not None else name
    stems = [file_stem(text) for text in episodes.texts["file"]]
    if file not in stems:
        raise BadInput(key="ID", found=name, expected=f"a file of the run: {_describe_file_names(stems)}")
    columns = episodes.columns
    mask = columns["file"] == stems.index(file)
    groups = np.unique(columns["sequence"][mask]).tolist()
    if match is None or int(match["sequence"]) not in groups:
        such = f"such as {trajectory_name(episodes, int(np.flatnonzero(mask)[0]))}"
        raise BadInput(key="ID", found=name, expected=f"a group of {file}: it has {_describe_spans(groups)}, {such}")
    mask &= columns["sequence"] == int(match["sequence"])
    siblings = columns["sibling"][mask].tolist()
    if match["sibling"] is not None:
        mask &= columns["sibling"] == int(match["sibling"])
    if not mask.any():
        raise BadInput(key="ID", found=name, expected=f"a sibling of that group: it has {_describe_spans(siblings)}")
    rows: list[int] = np.flatnonzero(mask).tolist()
    return rows


def _describe_file_names(stems: Sequence[str]) -> str:
    """ "step-000201 to step-000245, eval-rl-before-greedy"."""
    numbers = [int(name.removeprefix(STEP)) for name in stems if name.startswith(STEP)]
    evaluations = [name for name in stems if not name.startswith(STEP)]
    steps = [_describe_spans(numbers, lambda number: f"{STEP}{number:06}")] if numbers else []
    more = [f"{len(evaluations) - MOST_SPANS} more"] if len(evaluations) > MOST_SPANS else []
    return ", ".join([*steps, *evaluations[:MOST_SPANS], *more]) or "it has written none"


def _describe_spans(numbers: Sequence[int], show: Callable[[int], str] = str) -> str:
    """ "1690 to 1697, 1700": what is there, in order."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [show(low) if low == high else f"{show(low)} to {show(high)}" for low, high in spans]
    if len(texts) > MOST_SPANS:
        texts = [*texts[: MOST_SPANS - 1], "...", texts[-1]]
    return ", ".join(texts)


def filter_episodes(episodes: EpisodeListing, ranges: Mapping[str, Range], words: Mapping[str, str]) -> list[int]:
    """Rows whose numbers are within `ranges` (by column), and whose texts have `words` in them (by a key of WORDS):
    those of the newest step first."""
    mask = np.ones(len(episodes), bool)
    for name, bounds in ranges.items():
        column = episodes.columns[name]
        mask &= (column >= bounds.low) & (column <= bounds.high)
        if name not in ("reward", "advantage"):
            mask &= column != NONE
    for name, word in words.items():
        mask &= _contains_word(episodes.columns[WORDS[name]], episodes.texts[WORDS[name]], word)
    at = np.flatnonzero(mask)
    rows: list[int] = at[np.argsort(-episodes.columns["step"][at], kind="stable")].tolist()
    return rows


def _contains_word(column: npt.NDArray[np.int32], texts: Sequence[str], word: str) -> npt.NDArray[np.bool_]:
    if word in (ANY, NO):
        mask: npt.NDArray[np.bool_] = (column != NONE) == (word == ANY)
        return mask
    return np.isin(column, [at for at, text in enumerate(texts) if word.lower() in text.lower()])
