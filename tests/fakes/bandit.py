"""The real driver with a bandit for a model: one token an episode, in no process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actors.services import Services
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.observe.progress import Progress
from launch.driver.run.run import Run
from launch.driver.run.rundir import RunDir
from rlsys.config.recipe import RunConfig
from rlsys.journal import Journal
from rlsys.system.device import DEVICES
from rlsys.system.weight_folder import WeightFolder
from rlsys.types import Message, ToolOffer
from tests.fakes.parts import BanditLearner, BanditPool


class Renderer:
    vocabulary_size = 8
    template_args: Mapping[str, Any] = {}

    def under(self, template_args: Mapping[str, Any]) -> Renderer:
        return self

    def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
        return (7, 7)


class NoTracker:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def log_evaluation(self, step: int, name: str, values: Any) -> None:
        self.rows.append({"step": step, **{f"held_out/{name}/{key}": value for key, value in values.items()}})

    def choose_episodes(self, step: int, groups: Any) -> list[tuple[int, int]]:
        return []

    def episodes(self, step: int, trajectories: Any) -> None: ...
    def finish(self) -> None: ...


class NoGauges:
    def set(self, row: Any) -> None: ...
    def set_held_out(self, name: str, values: Any) -> None: ...


def bandit_run(
    config: RunConfig, directory: RunDir, pool: BanditPool, state: DriverState | None = None, mark: int = 0
) -> Run:
    """A run that nothing has started. mark: how much of its journal stays."""
    state, folder = state or DriverState(), directory.path.parent
    pool.weights = WeightFolder(folder / "weights")
    return Run(
        config=config,
        dir=directory,
        state=state,
        journal=Journal(directory.journal, keep=mark),
        renderer=Renderer(),  # type: ignore[arg-type]
        device=DEVICES["cpu"],
        learner=BanditLearner(),  # type: ignore[arg-type]
        pool=pool,  # type: ignore[arg-type]
        services=Services([], env_vars={}, start_timeout_s=1),
        progress=Progress(),
        tracker=NoTracker(),  # type: ignore[arg-type]
        gauges=NoGauges(),  # type: ignore[arg-type]
        model_path=str(folder),
        earlier=state,
    )
