"""The trackers by name, and those of a run: made from the key `tracker`."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

from launch.driver.observe.trackers.base import TrackedRun, Tracker
from launch.driver.observe.trackers.feed import Trackers
from launch.driver.observe.trackers.wandb_tracker import wandb_mode
from rlsys.choices import load, load_custom
from rlsys.config.output import WandbConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, describe_error

log = logging.getLogger("rlsys.tracking")
TRACKERS = {  # each takes a TrackedRun
    "wandb": "launch.driver.observe.trackers.wandb_tracker.WandbTracker",
    "tensorboard": "launch.driver.observe.trackers.tensorboard_tracker.TensorBoardTracker",
    "trackio": "launch.driver.observe.trackers.trackio_tracker.TrackioTracker",
}
PINS = {"trackio": "trackio==0.43.0"}  # of what is no dependency: as in pyproject.toml
METHODS = ("log", "log_evaluation", "episodes", "finish")


def check_trackers(recipe: RecipeConfig) -> None:
    """Raises BadInput where one that the configuration names is not installed, or is no tracker."""
    for name in tracker_names(recipe):
        if name in TRACKERS:
            if find_spec(name) is None:  # each is called as its package is
                raise BadInput(f"not installed: pip install {PINS.get(name, name)}", key="tracker", found=name)
            continue
        lacking = [method for method in METHODS if not callable(getattr(load_custom("tracker", name), method, None))]
        if lacking:
            methods = f"a class with the methods {', '.join(METHODS)}: {', '.join(lacking)} missing"
            raise BadInput(key="tracker", found=name, expected=methods)


def tracker_names(recipe: RecipeConfig) -> list[str]:
    """Names of the trackers that a run has. wandb.mode=disabled leaves wandb out, as WANDB_MODE=disabled does."""
    off = {"none"} | ({"wandb"} if wandb_mode(recipe.wandb) == "disabled" else set())
    return [name for name in recipe.trackers if name not in off]


def make_trackers(recipe: RecipeConfig, run: TrackedRun) -> tuple[Trackers, list[str]]:
    """The run's trackers, and what the terminal has to say of them: what they upload. One that cannot start is off."""
    trackers: dict[str, Tracker] = {}
    for name in tracker_names(recipe):
        try:
            build: Any = load(TRACKERS[name]) if name in TRACKERS else load_custom("tracker", name)
            trackers[name] = build(run)
        except (Exception, SystemExit) as error:  # fault boundary: a library, or a class of the user's own
            log.warning("%s is off for this run: %s", name, describe_error(error))
    says = [text for tracker in trackers.values() if (text := getattr(tracker, "uploads", None))]
    config: WandbConfig = recipe.wandb
    return Trackers(trackers, samples=config.samples, every=config.samples_every), says
