"""wandb: offline without a key, online with one. The driver is its only writer."""

from __future__ import annotations

import contextlib
import netrc
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launch.checks.machine import inside_ray_job
from launch.driver.observe.trackers.base import STEP, TrackedRun, held_out, numbers
from launch.driver.observe.trackers.identity import run_id
from launch.driver.observe.trackers.samples import COLUMNS, cells
from rlsys.config.output import WandbConfig
from rlsys.types import Trajectory

PROJECT = "rlsys"
SERVICE = "WANDB_SERVICE"  # where wandb looks for its service
SERVICE_DEADLINE_S = 60.0  # for its process to start: an import from a slow shared disk


def wandb_mode(config: WandbConfig) -> str:
    """`auto` resolved: WANDB_MODE if set, else online where a key is configured."""
    if config.mode != "auto":
        return config.mode
    if mode := os.environ.get("WANDB_MODE"):
        return mode
    return "online" if os.environ.get("WANDB_API_KEY") or _key_in_netrc() else "offline"


def resolve_listing(config: WandbConfig, name: str) -> dict[str, Any]:
    """Where a run is listed, and as what: by the configuration, else by wandb's own variables, else by us.

    name: ours. wandb looks at its variables where nothing is given.
    """
    ours = {"WANDB_PROJECT": PROJECT, "WANDB_NAME": name}
    free = {variable: None if os.environ.get(variable) else value for variable, value in ours.items()}
    return {
        "project": config.project or free["WANDB_PROJECT"],
        "entity": config.entity,
        "group": config.group,
        "name": config.name or free["WANDB_NAME"],
        "tags": list(config.tags) or None,
        "notes": config.notes,
    }


def _key_in_netrc() -> bool:
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (FileNotFoundError, netrc.NetrcParseError, OSError):
        return False


class WandbTracker:
    late = "`wandb sync` can upload the rest"

    def __init__(self, run: TrackedRun) -> None:
        import wandb  # 1.7 s: only where a run is tracked with it

        if inside_ray_job():
            start_service_apart()
        mode = wandb_mode(run.settings)
        # On a terminal a clock is drawn, which is no line of a log.
        console = "off" if sys.stdout.isatty() else "wrap"
        self._run: Any = wandb.init(
            **resolve_listing(run.settings, run.name),
            id=run_id(run.directory, "wandb_id"),
            mode=mode,  # type: ignore[arg-type]
            dir=str(run.directory),
            config=dict(run.config),
            resume="allow" if mode == "online" else None,
            settings=wandb.Settings(silent=True, console=console, init_timeout=60),  # s; then the run goes without
        )
        self._run.define_metric("*", step_metric=STEP)
        # Under one key wandb shows the newest table only; of an incremental one the rows of all steps.
        self._table: Any = wandb.Table(columns=list(COLUMNS), log_mode="INCREMENTAL")
        self.uploads = describe_upload(run.settings, self._run.url, console) if mode == "online" else None

    def log(self, row: Mapping[str, Any]) -> None:
        self._log({STEP: row[STEP], **numbers(row)})

    def log_evaluation(self, step: int, name: str, values: Mapping[str, float | None]) -> None:
        self._log({STEP: step, **held_out(name, values)})

    def episodes(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            self._table.add_data(step, *cells(trajectory))
        self._log({STEP: step, "samples": self._table})

    def _log(self, values: dict[str, Any]) -> None:
        try:
            self._run.log(values)
        except Exception:
            self._run = None  # it has no service to finish with
            raise

    def finish(self) -> None:
        """Ends wandb's service too, with the processes of the run."""
        try:
            if self._run is not None:
                self._run.finish()
        finally:
            _forget_service()


def describe_upload(config: WandbConfig, url: str | None, console: str) -> str:
    """What leaves this machine, for the terminal."""
    samples = f"{config.samples} sample episodes with their texts every {config.samples_every} steps"
    uploads = ["metrics", "the configuration", "charts of the machine"]
    uploads += [samples] * (config.samples > 0) + ["the lines of this output"] * (console == "wrap")
    return f"wandb uploads {', '.join(uploads)} to {url}; wandb.mode=offline uploads nothing"


def start_service_apart() -> None:
    """wandb's service, detached: `ray job stop` sends SIGTERM to a job's children, and it would die before the
    run has written its last row. The run's tag on it (`driver/run/cleanup.py`) ends it with all others of the run."""
    command = [sys.executable, "-m", "wandb", "beta", "core", "start", "--idle-timeout", "2m"]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SERVICE_DEADLINE_S, check=False
    )
    if result.returncode == 0 and result.stdout.strip():  # else wandb starts one itself: rows of a stop may be lost
        os.environ[SERVICE] = result.stdout.strip()


def _forget_service() -> None:
    """Of a service that is gone: what wandb would do with it when Python ends is a traceback of thirty lines."""
    import wandb  # as above

    with contextlib.suppress(Exception):  # it says once more that the service is gone
        wandb.teardown()
