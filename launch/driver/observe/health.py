"""What is wrong with a stage that runs: the signs (`launch.driver.observe.signs`) that its rows of metrics.jsonl show.

Pure: rows in, sentences out. A sentence is said once, when its sign has held in a row for as many episodes or steps as
its proof takes; at the end it is said again, with the number of steps. It states what the rows show, and nothing where
a key is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launch.driver.observe import thresholds
from launch.driver.observe.health_rows import HealthRow, read_row
from launch.driver.observe.history import HealthSetting, History
from launch.driver.observe.signs import OTHERWISE, SIGNS, Proof
from rlsys.types import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, as `summary.json` and checkpoints have it."""

    stage: str
    what: str  # a name of SIGNS, or of `launch.driver.observe.held_out`
    says: str
    first_step: int
    last_step: int
    steps: int  # in how many it held
    of: int  # the stage's so far; 0 for what no row of steps shows

    def describe(self) -> str:
        if not self.of:
            return f"after step {self.last_step} of stage {self.stage}: {self.says}"
        return f"in {self.steps} of {self.of} steps of stage {self.stage}, from step {self.first_step}: {self.says}"


def finding_at(step: int, *, stage: str, what: str, says: str) -> Finding:
    """Of what no row of steps shows, such as an evaluation."""
    return Finding(stage=stage, what=what, says=says, first_step=step, last_step=step, steps=0, of=0)


@dataclass(frozen=True, slots=True)
class _Streak:
    """Of steps in a row that show the same."""

    steps: int
    episodes: float

    def after(self, episodes: float) -> _Streak:
        """One step more, or none at all where it shows something else (0)."""
        return _Streak(self.steps + 1, self.episodes + episodes) if episodes else NO_STREAK


NO_STREAK = _Streak(0, 0.0)


class HealthMonitor:
    """Looks at the rows of one stage, in order."""

    def __init__(self, stage: str, setting: HealthSetting) -> None:
        self._stage = stage
        self._history = History(setting)
        self._streaks: dict[str, _Streak] = {}
        self._last_row: HealthRow | None = None
        self._findings: dict[str, Finding] = {}

    def see(self, metrics: Mapping[str, Any]) -> dict[str, str]:
        """What is worth saying after this row of metrics, by the name of its sign."""
        self._last_row = row = read_row(metrics)
        self._history.see(row)
        new = {}
        for name, sign in SIGNS.items():
            says = sign.says(self._history, row)
            streak = self._streaks.get(name, NO_STREAK).after(_evidence(sign.proof, row) if says else 0)
            self._streaks[name] = streak
            if says and self._is_proven(name, streak) and self._note(name, says, row.step, streak.steps):
                since = f"{streak.steps} steps in a row" if streak.steps > 1 else f"step {row.step}"
                new[name] = f"{since}: {says}"
        return new

    def record_failure(self, failure: Failure | None) -> None:
        """What was raised in an episode of the row that comes next: rows have numbers alone."""
        if failure is not None and not self._history.raised:
            self._history.raised = f"{failure.kind} in {failure.where}: {failure.detail}"

    def _is_proven(self, name: str, streak: _Streak) -> bool:
        proof = SIGNS[name].proof
        steps = proof.from_start if proof.from_start and streak.steps == self._history.steps else proof.steps
        if name == "cut" and self._history.cut.share >= thresholds.NEARLY_ALL:
            steps = OTHERWISE.steps  # of small steps too: their chance is not that of nearly all
        return (proof.episodes is not None and streak.episodes >= proof.episodes) or (
            steps is not None and streak.steps >= steps
        )

    def _note(self, name: str, says: str, step: int, steps: int) -> bool:
        """Count this step, and where it is the first that is said those before it. True the first time."""
        finding = self._findings.get(name)
        continues = finding is not None and finding.last_step + steps > step  # of the same streak
        more = 1 if continues else steps
        first, before = (finding.first_step, finding.steps) if finding else (step - steps + 1, 0)
        self._findings[name] = self._make_finding(name, says, first, step, before + more)
        return finding is None

    def _make_finding(self, name: str, says: str, first_step: int, last_step: int, steps: int) -> Finding:
        return Finding(
            stage=self._stage, what=name, says=says, first_step=first_step, last_step=last_step, steps=steps,
            of=self._history.steps,
        )  # fmt: skip

    def findings(self) -> list[Finding]:
        """All so far, with `untrained` where it held in every step: at the end of a stage that needs no more proof."""
        findings, name, row = dict(self._findings), "untrained", self._last_row
        steps = self._streaks.get(name, NO_STREAK).steps
        if row is not None and 0 < steps == self._history.steps and name not in findings:
            says = SIGNS[name].says(self._history, row)
            findings[name] = self._make_finding(name, says, row.step - steps + 1, row.step, steps)
        return [replace(finding, of=self._history.steps) for finding in findings.values()]


def _evidence(proof: Proof, row: HealthRow) -> float:
    """Episodes of the step, or a share of them. Above 0 also where none are known, as in a supervised stage."""
    return max(row.episodes * (getattr(row, proof.of) if proof.of else 1.0), 1e-9)
