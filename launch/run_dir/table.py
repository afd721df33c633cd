"""metrics.jsonl as columns: a run of 100,000 steps with 150 numbers each takes 120 MB."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from launch.run_dir.lines import DamageLog, finite_numbers
from rlsys.untrusted import visible

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
MOST_KEYS = 2_000  # columns: a reward may name a part after each task
PLACE = ("step", "stage", "stage_step")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """The rows of a run, in the order of the file."""

    step: Whole  # [N], over all stages
    stage: tuple[str, ...]  # [N]
    stage_step: Whole  # [N]
    columns: Mapping[str, Floats]  # each [N]; nan where a row has no such number

    def __len__(self) -> int:
        return len(self.stage)

    def of_stage(self, stage: str) -> Rows:
        return self.pick(np.array([name == stage for name in self.stage], bool))

    def pick(self, mask: npt.NDArray[np.bool_]) -> Rows:
        """mask: [N]. The rows for which it holds."""
        stage = tuple(name for name, selected in zip(self.stage, mask, strict=True) if selected)
        columns = {key: column[mask] for key, column in self.columns.items()}
        return Rows(step=self.step[mask], stage=stage, stage_step=self.stage_step[mask], columns=columns)

    def tail(self, count: int) -> Rows:
        """The last `count` rows."""
        return self.pick(np.arange(len(self)) >= len(self) - count)

    def column(self, key: str) -> Floats:
        """[N], all nan where no row has this number."""
        column = self.columns.get(key)
        return np.full(len(self), np.nan) if column is None else column

    def known(self, key: str) -> Floats:
        """[up to N]: the numbers of the rows that have one."""
        column = self.column(key)
        numbers: Floats = column[~np.isnan(column)]
        return numbers


def read_rows(lines: Iterable[Mapping[str, Any]], damage: DamageLog, file: str = "metrics.jsonl") -> Rows:
    """A line without step, stage and stage_step is noted and left out; so are keys beyond MOST_KEYS."""
    step, stage_step = array("q"), array("q")
    stage: list[str] = []
    columns: dict[str, array[float]] = {}
    names: dict[str, str] = {}  # one text for each stage, whatever the number of rows
    for number, row in enumerate(lines, start=1):
        place = [row.get(key) for key in PLACE]
        if (
            type(place[0]) is not int
            or not isinstance(place[1], str)
            or type(place[2]) is not int
            or max(abs(place[0]), abs(place[2])) >= 2**62
        ):
            damage.note(f"{file} rows", f"{file} row {number}: no row of a run: step, stage or stage_step is missing")
            continue
        count = len(stage)
        step.append(place[0])
        stage_step.append(place[2])
        stage.append(names.setdefault(place[1], visible(place[1])))
        for key, value in finite_numbers(row, lambda key: key not in PLACE).items():
            column = columns.get(key)
            if column is None:
                if len(columns) >= MOST_KEYS:
                    damage.note(f"{file} keys", f"{file}: more than {MOST_KEYS:,} keys: the others are left out")
                    continue
                column = columns[key] = array("d")
            column.extend([np.nan] * (count - len(column)))
            column.append(value)
    arrays = {key: _fill(column, len(stage)) for key, column in columns.items()}
    return Rows(
        step=np.array(step, np.int64), stage=tuple(stage), stage_step=np.array(stage_step, np.int64), columns=arrays
    )


def _fill(column: array[float], count: int) -> Floats:
    filled = np.full(count, np.nan)
    filled[: len(column)] = column
    return filled
