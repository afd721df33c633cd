"""Whether tokens are trained within the bound on their age: what each row says of it, and what the journal knows."""

from __future__ import annotations

from launch.audit.files import Looked
from launch.audit.property import Property, Show, number_of
from rlsys.journal import Dispatched, Finished


def lag(looked: Looked, show: Show) -> Property:
    """No token is trained on weights further from its own than `loop.max_policy_lag`: by the row, and by the journal,
    which has the version that each group was started with and the version that each step has made."""
    offenders, most, bounds = [], 0.0, set()
    oldest = _oldest(looked)
    for line in looked.metrics:
        if "lag/max" not in line.row:
            continue
        found, stage = number_of(line.row, "lag/max"), str(line.row.get("stage"))
        bound = looked.run.setting("loop.max_policy_lag", stage)
        if "version" in line.row and line.row["step"] in oldest:
            behind = number_of(line.row, "version") - 1 - oldest[line.row["step"]]
            if found > behind:
                offenders.append(f"step {line.row['step']}: {found:g} versions, by the journal at most {behind:g}")
            found = max(found, behind)
        most = max(most, found)
        bounds.add(str(bound))
        if type(bound) is not int:
            offenders.append(f"step {line.row['step']}: config.yaml has no number of loop.max_policy_lag")
        elif found > bound:
            offenders.append(f"step {line.row['step']}: {found:g} versions (loop.max_policy_lag={bound})")
    allowed = " or ".join(sorted(bounds))
    says = f"at most {most:g} versions, {allowed} allowed" if bounds else "no step of an rl stage"
    return Property(name="lag", says=says, offenders=tuple(offenders))


def _oldest(looked: Looked) -> dict[int, int]:
    """Of each step, the oldest version with which a group was started that it has trained."""
    started: dict[tuple[str, int], int] = {}
    oldest: dict[int, int] = {}
    for row in looked.surviving:
        if isinstance(row, Dispatched):
            started[row.stage, row.sequence] = row.version
        elif isinstance(row, Finished) and row.outcome == "trained" and (row.stage, row.sequence) in started:
            version = started[row.stage, row.sequence]
            oldest[row.step] = min(version, oldest.get(row.step, version))
    return oldest
