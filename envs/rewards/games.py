"""What a game of gymnasium came to: won or not, and its points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envs.rewards import RIGHT
from envs.rewards.findings import Finding, SumOfFindings
from rlsys.errors import BadInput, require_bounds
from rlsys.types import Transcript


@dataclass(frozen=True, kw_only=True)
class GamesRewardConfig:
    name: str = "games"
    won: float = 1.0
    """Reward for a game that is won."""
    points: float = 0.0
    """Reward for each point of the game, as gymnasium counts them: taxi gives -1 an action and 20 at the end."""

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "above 0", "won")
        require_bounds(self, "reward.", "a finite number", "won", "points")

    def env_problem(self, env: Any) -> str:
        """Why it cannot score the episodes of this environment."""
        return "" if getattr(env, "name", "") == "games" else "only env.name=games has the points that it pays"


class GamesReward(SumOfFindings):
    """`won` + `points`, from the episode's final state.

    A game that is won: Reward(value=1.0, parts={"won": 1.0, "points": 0.0}).
    """

    parts = ("won", "points")
    solved_by: ClassVar[Mapping[str, float]] = {"won": RIGHT}

    def __init__(self, config: GamesRewardConfig) -> None:
        self._config = config

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        if transcript.correct is not None:  # said by who asks for the score
            rule = "given as won" if transcript.correct else "given as lost"
            return (Finding(part="won", rule=rule, value=self._config.won * transcript.correct),)
        state = transcript.state or {}
        won, points = state.get("won"), state.get("points")
        number = isinstance(points, int | float) and not isinstance(points, bool) and math.isfinite(points)
        if not isinstance(won, bool) or not number:
            raise BadInput(
                "has no end of a game", where=f"task {transcript.task.task_id}", key='"state"',
                expected='{"won": true, "points": 1.0}, as episodes of games leave it',
            )  # fmt: skip
        return (
            Finding(part="won", rule="won" if won else "not won", value=self._config.won * won),
            Finding(part="points", rule=f"{points:g} points", value=self._config.points * float(points or 0)),
        )
