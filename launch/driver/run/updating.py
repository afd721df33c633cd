"""One update as a run makes it: its rows are counted, and a stop leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.driver.run.run import Run
from launch.driver.run.tasks import StopRequested
from rlsys.plan import BatchPlan

if TYPE_CHECKING:  # torch behind it
    from rlsys.batch import UpdateReport


async def update(run: Run, plan: BatchPlan) -> UpdateReport:
    """On the rows that the ranks have built of `plan`.

    Raises StopRequested where a stop had the ranks leave it before its first optimizer step. Nothing of it was
    accounted for then: whoever continues the run takes the step again, as after a kill. An update that is past that
    step is finished: between two of its steps the weights are those of no row.
    """

    async def leave() -> None:
        if await run.learner.leave() is None:
            run.progress.say("the update is past its first optimizer step: it is finished, then saved")

    run.learner.on_rows = lambda completed, total: run.progress.within_step(completed, total, "rows")
    try:
        report: UpdateReport | None = await run.tasks.complete(run.learner.update(plan.version), leave)
    finally:
        run.progress.end_within_step()
    if report is None:
        run.progress.say(f"the update of step {run.state.step + 1} was left; it will be taken again")
        raise StopRequested
    return report
