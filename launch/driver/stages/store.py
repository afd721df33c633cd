"""What `generate` has played so far, on disk: one line per task, appended as its episodes end, continued after a kill.

From it follow the two files that are trained on: `NAME.jsonl` with the trajectories that are kept, `NAME.pairs.jsonl`
with the best against the worst of each task. Other filters need no episode to be played again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envs.rewards import solved_thresholds
from launch.driver.run.rundir import open_locked
from launch.driver.stages.trajectories import graded_trajectories, is_solved, pair_of, select_trajectories
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, differences
from rlsys.files import whole_file
from rlsys.jsonl import LineFile, json_line, json_object
from rlsys.records import GroupRecord, read_group, to_json

BEGUN = "begun_with"  # key of the first line: what must be the same for lines to stand in one file

Found = Callable[[dict[str, Any], str, int], None]  # a line's object, where it stands, and its place in the file


class LineStore(LineFile):
    """Lines of JSON after a first one that says what they have in common."""

    def __init__(self, path: Path, begun_with: Mapping[str, Any], found: Found, *, what: str) -> None:
        """Create or continue `path`; `found` is called with every line but the first.

        Raises BadInput where it was begun with something else, or where another process writes it. what: whose files
        these are, "rlsys generate".
        """
        now = json.loads(json.dumps(begun_with, default=str))
        file = open_locked(path, "a+b", str(path), "another process is writing it")

        def hear(record: dict[str, Any], where: str, place: int) -> None:
            if place:
                found(record, where, place)
            elif not isinstance(before := record.get(BEGUN), dict):
                raise BadInput(f'{path} line 1: no "{BEGUN}": not a file that {what} has written')
            elif changed := differences(before, now):
                raise BadInput(f"it was begun with {changed}: choose another place, or remove it", where=path)

        try:
            file.seek(0)
            first, head = file.readline(), json_line({BEGUN: now})
            if not first.endswith(b"\n") and not head.startswith(first):  # torn, and not of this line
                hear(json_object(first, f"{path} line 1"), "", 0)
            super().__init__(path, file, hear)
            if not first.endswith(b"\n"):
                self.append({BEGUN: now})
        except BaseException:
            file.close()
            raise


def store_path(output: Path) -> Path:
    return output.with_name(f"{output.name.removesuffix('.jsonl')}.played.jsonl")


def pairs_path(output: Path) -> Path:
    return output.with_name(f"{output.name.removesuffix('.jsonl')}.pairs.jsonl")


class TrajectoryStore:
    """The tasks that are done, by sequence. Only their places in the file are held in memory.

    tried: tasks of which nothing could be graded. They are not done, and their lines only tell why.
    """

    def __init__(self, path: Path, begun_with: Mapping[str, Any]) -> None:
        """Create or continue `path`. Raises BadInput as `LineStore` does."""
        self.path = path
        self.tried: set[int] = set()
        self._places: dict[int, int] = {}
        self._lines = LineStore(path, begun_with, self._line, what="rlsys generate")

    def _line(self, record: dict[str, Any], where: str, place: int) -> None:
        self._add_place(read_group(record, where), place)

    def _add_place(self, group: GroupRecord, place: int) -> None:
        if graded_trajectories(group):
            self._places[group.sequence] = place
        else:
            self.tried.add(group.sequence)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._places

    def add(self, group: GroupRecord) -> None:
        """One task more; it is on disk when this returns, as far as a killed process goes."""
        self._add_place(group, self._lines.append(to_json(group)))

    def groups(self, count: int) -> Iterator[GroupRecord]:
        """The tasks before number `count`, in order."""
        for sequence in sorted(sequence for sequence in self._places if sequence < count):
            yield read_group(self._lines.read(self._places[sequence]), str(self.path))

    def close(self) -> None:
        self._lines.close()


@dataclass(slots=True, kw_only=True)
class Counts:
    """Of the tasks that were played, and of what was written of them."""

    tasks: int = 0
    trajectories: int = 0
    failed: int = 0
    solved: int | None = None  # where the reward says what solves a task
    tokens: int = 0  # that the model sampled in them
    kept: int = 0
    pairs: int = 0
    ungraded_tasks: int = 0
    mean_reward: float | None = None

    def row(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def describe(self) -> str:
        """In one line, for people."""
        mean = "" if self.mean_reward is None else f", mean reward {self.mean_reward:.3f}"
        without = f" ({self.ungraded_tasks:,} more could not be graded)" if self.ungraded_tasks else ""
        solved = "" if self.solved is None else f"{self.solved:,} solved, "
        return (
            f"{self.trajectories:,} trajectories of {self.tasks:,} tasks{without}{mean}, "
            f"{solved}{self.failed:,} failed; {self.kept:,} kept, {self.pairs:,} preference pairs"
        )


def write_out(played: TrajectoryStore, output: Path, recipe: RecipeConfig, num_tasks: int) -> Counts:
    """Write what is kept of the first `num_tasks` tasks, and their pairs; each file appears whole."""
    counts, total = Counts(solved=0 if solved_thresholds(recipe.reward) is not None else None), 0.0
    # The output is in its place last: it says that all is done.
    with whole_file(output) as answers, whole_file(pairs_path(output)) as pairs:
        for group in played.groups(num_tasks):
            graded, keeping, pair = (
                graded_trajectories(group),
                select_trajectories(group, recipe.generate, recipe.reward),
                pair_of(group),
            )
            answers.writelines(json_line(to_json(trajectory)) for trajectory in keeping)
            pairs.writelines([json_line(to_json(pair))] if pair is not None else [])
            counts.tasks += 1
            counts.trajectories += len(group.trajectories)
            counts.failed += len(group.trajectories) - len(graded)
            counts.tokens += sum(trajectory.num_tokens or 0 for trajectory in group.trajectories)
            if counts.solved is not None:
                counts.solved += sum(is_solved(trajectory, recipe.reward) for _, trajectory in graded)
            counts.kept += len(keeping)
            counts.pairs += pair is not None
            total += sum(value for value, _ in graded)
    counts.ungraded_tasks = num_tasks - counts.tasks
    scored = counts.trajectories - counts.failed
    counts.mean_reward = round(total / scored, 4) if scored else None
    return counts
