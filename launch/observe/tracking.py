"""wandb: offline without a key, online with one. The driver is its only writer."""

from __future__ import annotations

import contextlib
import json
import logging
import netrc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from launch.checks.machine import inside_ray_job
from rlsys.config.output import WandbConfig
from rlsys.types import Failure, Message, Reward, Trajectory

log = logging.getLogger("rlsys.tracking")
FINISH_DEADLINE_S = 15.0
PROJECT = "rlsys"
SERVICE = "WANDB_SERVICE"  # where wandb looks for its service
SERVICE_DEADLINE_S = 60.0
COLUMNS = ("step", "task", "prompt", "messages", "end", "reward", "parts", "tokens")  # of the table of samples
SHOWN = 10_000  # characters of a cell
GAUGES = {  # a key of the row: (the gauge, what it says)
    "reward/mean": ("rlsys_reward_mean", "Mean reward of the step's graded trajectories."),
    "lag/max": ("rlsys_lag_max", "Versions between the oldest token of the step and the weights that it trains."),
    "tokens/generated_per_s": ("rlsys_tokens_generated_per_second", "Tokens sampled per second, over all engines."),
    "tokens/trained_per_s": ("rlsys_tokens_trained_per_second", "Tokens in the loss per second."),
}


def wandb_mode(config: WandbConfig) -> str:
    """`auto` resolved: WANDB_MODE if set, else online where a key is configured."""
    if config.mode != "auto":
        return config.mode
    if asked := os.environ.get("WANDB_MODE"):
        return asked
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


def flatten_config(text: str) -> dict[str, Any]:
    """The configuration as keys that wandb can filter and group by, `learner.lr`; its stages by their names."""
    values: dict[str, Any] = yaml.safe_load(text)
    return values | {"stages": {stage["name"]: stage for stage in values.get("stages", ())}}


class Tracker:
    """A fault boundary: tracking that breaks is reported once and never stops a run."""

    def __init__(self, config: WandbConfig, run_dir: Path, name: str, resolved: Mapping[str, Any]) -> None:
        self._run: Any = None
        self._samples, self._every = config.samples, config.samples_every
        self._next_table = 0  # the step from which on the next one is due
        mode = wandb_mode(config)
        if mode == "disabled":
            return
        try:
            if inside_ray_job():
                start_service_apart()
            import wandb

            # On a terminal a clock is drawn, which is no line of a log.
            console = "off" if sys.stdout.isatty() else "wrap"
            self._run = wandb.init(
                **resolve_listing(config, name),
                id=_run_id(run_dir),
                mode=mode,  # type: ignore[arg-type]
                dir=str(run_dir),
                config=dict(resolved),
                resume="allow" if mode == "online" else None,
                settings=wandb.Settings(silent=True, console=console, init_timeout=60),
            )
            self._run.define_metric("*", step_metric="step")
        except Exception as error:
            log.warning("wandb is off for this run: %s", error)

    def log(self, row: Mapping[str, Any]) -> None:
        self._try(lambda: {key: value for key, value in row.items() if isinstance(value, (int, float))})

    def log_evaluation(self, step: int, name: str, values: Mapping[str, float | None]) -> None:
        """An evaluation on held-out tasks after `step` steps: `held_out/greedy/accuracy`."""
        self.log({"step": step} | {f"held_out/{name}/{key}": value for key, value in values.items()})

    def choose_episodes(self, step: int, rewards: Sequence[Reward | Failure]) -> list[int]:
        """Which of a step's episodes `episodes` is to show: places in `rewards`; none between two tables."""
        due = self._run is not None and step >= self._next_table
        return spread(rewards, self._samples) if due else []

    def episodes(self, step: int, chosen: Sequence[Trajectory]) -> None:
        """Some of a step's episodes as a table, from the lowest reward to the highest."""
        if chosen:
            self._next_table = step + self._every
            self._try(lambda: {"step": step, "samples": _table([[step, *cells(each)] for each in chosen])})

    def _try(self, values: Callable[[], dict[str, Any]]) -> None:
        if self._run is not None:
            try:
                self._run.log(values())
            except Exception as error:
                log.warning("wandb stopped taking rows: %s", error)
                self._run = None
                _forget_service()

    def finish(self) -> None:
        """Ends wandb's service too, with the processes of the run. Not for ever: the network may be gone."""
        if self._run is None:
            return
        thread = threading.Thread(target=self._finish, daemon=True)
        thread.start()
        thread.join(FINISH_DEADLINE_S)
        if thread.is_alive():
            log.warning("wandb did not finish within %g s: `wandb sync` can upload the rest", FINISH_DEADLINE_S)
        self._run = None

    def _finish(self) -> None:
        try:
            import wandb

            self._run.finish()
            wandb.teardown()
        except Exception as error:
            log.warning("wandb did not finish: %s", error)
            _forget_service()


def start_service_apart() -> None:
    """wandb's service, detached: `ray job stop` sends SIGTERM to a job's children, and it would die before the
    run has written its last row. The run's tag on it (`launch.run.cleanup`) ends it with the run's other processes."""
    command = [sys.executable, "-m", "wandb", "beta", "core", "start", "--idle-timeout", "2m"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SERVICE_DEADLINE_S, check=False
    )
    if done.returncode == 0 and done.stdout.strip():  # else wandb starts one itself: rows of a stop may be lost
        os.environ[SERVICE] = done.stdout.strip()


def _forget_service() -> None:
    """Of a service that is gone: what wandb would do with it when Python ends is a traceback of thirty lines."""
    import wandb

    with contextlib.suppress(Exception):  # it says once more that the service is gone
        wandb.teardown()


def spread(rewards: Sequence[Reward | Failure], count: int) -> list[int]:
    """At most `count` of those that were graded, by their places, evenly over the order of their rewards."""
    graded = [(each.value, index) for index, each in enumerate(rewards) if isinstance(each, Reward)]
    order = [index for _, index in sorted(graded)]
    last, steps = len(order) - 1, max(count - 1, 1)
    places = sorted({last * place // steps for place in range(count)}) if order else []
    return [order[place] for place in places]


def cells(trajectory: Trajectory) -> list[Any]:
    """A row of the table, without the step."""
    reward, start = trajectory.reward, trajectory.num_prompt
    assert isinstance(reward, Reward)
    said = [_text(trajectory.messages[:start]), _text(trajectory.messages[start:])]
    parts = json.dumps(dict(reward.parts))
    end, tokens = str(trajectory.end), trajectory.num_sampled
    return [trajectory.task.task_id, *said, end, reward.value, parts, tokens]


def _text(messages: Sequence[Message]) -> str:
    """As one text: half a surrogate pair, which a model may write, has no bytes in wandb's files."""
    text = "\n".join(f"{message.role}: {message.content}" for message in messages)
    return text.encode("utf-8", "backslashreplace").decode()[:SHOWN]


def _table(rows: list[list[Any]]) -> Any:
    import wandb

    return wandb.Table(columns=list(COLUMNS), data=rows)


def _run_id(run_dir: Path) -> str:
    """The same for every process that continues this run directory."""
    path = run_dir / "wandb_id"
    if not path.exists():
        path.write_text(os.urandom(4).hex())
    return path.read_text()


class Gauges:
    """A few numbers of each row as Ray's own metrics: its Prometheus endpoint and dashboard have them for nothing.

    A fault boundary, as the tracker is. Each gauge is made with the first row that has its number.
    """

    def __init__(self, run: str) -> None:
        self._tags = {"run": run}
        self._gauges: dict[str, Any] = {}
        self._broken = False

    def set(self, row: Mapping[str, Any]) -> None:
        try:
            for key in GAUGES.keys() & row.keys():
                if not self._broken:
                    self._get_gauge(key).set(row[key], {**self._tags, "stage": str(row.get("stage", ""))})
        except Exception as error:
            self._broken = True
            log.warning("Ray takes no metrics: %s", error)

    def _get_gauge(self, key: str) -> Any:
        if key not in self._gauges:
            from ray.util.metrics import Gauge

            name, text = GAUGES[key]
            self._gauges[key] = Gauge(name, description=text, tag_keys=("run", "stage"))
        return self._gauges[key]
