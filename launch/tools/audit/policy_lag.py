"""Whether tokens are trained within the bound on their age: what each row says of it, and what the journal knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launch.run_dir.rows import LoggedRow
from launch.tools.audit.files import Looked
from launch.tools.audit.property import Property, Show
from rlsys.journal import Dispatched, Finished


def lag(looked: Looked, show: Show) -> Property:
    """No token is trained on weights further from its own than `loop.max_policy_lag`: by the row, and by the journal,
    which has the version that each group was started with and the version that each step has made."""
    offenders: list[str] = []
    most, bounds = 0.0, set[str]()
    oldest = _oldest_versions(looked)
    for row in (line.row for line in looked.metrics if "lag/max" in line.row.values):
        behind = _lag_by_journal(row, oldest)
        offenders += _against_journal(row, behind)
        lag_versions, bound = max(row.number("lag/max"), behind or 0), _bound(looked, row)
        most = max(most, lag_versions)
        bounds.add(f"{bound:g}" if type(bound) is float else str(bound))
        offenders += _against_bound(row, lag_versions, bound)
    summary = looked.run.summary.get("lag")
    stated = max((line.row.number("lag/max") for line in looked.metrics), default=0)
    if looked.is_over and isinstance(summary, dict) and summary.get("max") != stated:
        offenders.append(f"summary.json has a lag of {summary.get('max')} versions, the rows {stated:g}")
    allowed = " or ".join(sorted(bounds))
    says = f"at most {most:g} versions, {allowed} allowed" if bounds else "no step of an rl stage"
    return Property(name="lag", says=says, offenders=tuple(offenders))


def _against_journal(row: LoggedRow, behind: int | None) -> Iterator[str]:
    """Tokens are as old as the weights that their group was started with, or newer."""
    lag_versions = row.number("lag/max")
    if behind is not None and lag_versions > behind:
        yield f"step {row.step}: {lag_versions:g} versions, by the journal at most {behind:g}"


def _against_bound(row: LoggedRow, versions: float, bound: Any) -> Iterator[str]:
    if type(bound) not in (int, float):
        place = "the row" if "lag/bound" in row.values else "config.yaml"
        yield f"step {row.step}: {place} has no number of loop.max_policy_lag"
    elif versions > bound:
        yield f"step {row.step}: {versions:g} versions (loop.max_policy_lag={bound:g})"


def _bound(looked: Looked, row: LoggedRow) -> Any:
    """As it was when the step was taken: config.yaml has that of the newest process, and rows of an earlier rlsys have
    none."""
    if "lag/bound" in row.values:
        return row.values["lag/bound"]
    return looked.run.setting("loop.max_policy_lag", row.stage)


def _lag_by_journal(row: LoggedRow, oldest: Mapping[int, int]) -> int | None:
    """Versions from the oldest one with which a group of the step was started to the one that the step has trained."""
    version, started = row.values.get("version"), oldest.get(row.step)
    if type(version) is not int or started is None:
        return None
    trains = row.number("tokens/trained") > 0  # a step that trains nothing, or whose update is skipped, makes none
    return version - trains - started


def _oldest_versions(looked: Looked) -> dict[int, int]:
    """Of each step, the oldest version with which a group was started that it has taken, whatever became of it."""
    started: dict[tuple[str, int], int] = {}
    oldest: dict[int, int] = {}
    counted = set(looked.outcomes[0])
    for row in looked.surviving:
        if isinstance(row, Dispatched):
            started[row.stage, row.sequence] = row.version
        elif isinstance(row, Finished) and row in counted and (row.stage, row.sequence) in started:
            version = started[row.stage, row.sequence]
            oldest[row.step] = min(version, oldest.get(row.step, version))
    return oldest
