"""A checkpoint on engines, without a learner: what `rlsys eval` and `rlsys generate` play with."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from actors.placement import place
from actors.pool import RolloutPool
from actors.services import Services
from launch.run import preflight, wire
from launch.run.cluster import connect
from launch.run.progress import Progress
from rlsys.config import RecipeConfig
from rlsys.errors import BadInput

T = TypeVar("T")


def on_engines(
    recipe: RecipeConfig, model: str, progress: Progress, work: Callable[[RolloutPool, Services], Awaitable[T]]
) -> T:
    """Start engines and tool services, do `work` with them, and stop them. After an error the command ends them."""
    services = wire.services([recipe])
    device = connect(
        recipe.cluster,
        cpus_needed=recipe.rollout.workers * recipe.rollout.threads + len(services.needs),
        gpus_needed=recipe.rollout.workers * recipe.engine.tensor_parallel + services.engines,
    )
    services.gpus_per_engine = device.gpus_per_actor
    pool = wire.pool(recipe, device, model, services.token, wire.secrets_of([recipe]))

    async def go() -> T:
        progress.say(f"starting {len(pool.needs)} rollout worker(s)")
        placement = await place(pool.needs + services.needs)
        await asyncio.gather(pool.start(placement[: len(pool.needs)]), services.start(placement[len(pool.needs) :]))
        await pool.adopt()  # the weights of the folder that they were started from
        done = await work(pool, services)
        await asyncio.gather(pool.stop(), services.stop())
        return done

    return asyncio.run(go())


def find_checkpoint(recipe: RecipeConfig, given: str | None) -> str | None:
    """A run directory's newest checkpoint, a checkpoint's `hf`, a model folder, a hub name; or the last run's.

    None where a recipe without a model was never run. Raises BadInput for a folder without a model.
    """
    found = _given(given) if given is not None else wire.resolved_model_path(recipe) or _last_run(recipe.name)
    preflight.check_model_folder(found)
    preflight.check_partitions(replace(recipe, model=replace(recipe.model, path=found)))
    return found


def _given(given: str) -> str:
    path = Path(given)
    if not path.exists():
        if given.startswith((".", "/", "~")) or given.count("/") > 1:
            raise BadInput(f"--checkpoint {given}: no such folder")
        return given  # a hub name
    found = _weights_in(path)
    if found is None:
        raise BadInput(f"--checkpoint {given}: neither a run directory, a checkpoint nor a model folder")
    return str(found.resolve())


def _last_run(name: str) -> str | None:
    numbered = re.compile(re.escape(name) + r"(-\d+)?")
    runs = [run for run in Path("runs").glob("*") if numbered.fullmatch(run.name)]
    newest_first = sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)
    return next((str(found.resolve()) for found in map(_weights_in, newest_first) if found is not None), None)


def _weights_in(path: Path) -> Path | None:
    candidates = [path, path / "hf", *sorted((path / "checkpoints").glob("step-*/hf"), reverse=True)]
    return next((folder for folder in candidates if (folder / "config.json").is_file()), None)


@contextmanager
def model_or_scratch(recipe: RecipeConfig, found: str | None) -> Iterator[str]:
    """The folder or hub name to play; the untrained policy of a recipe that has neither model nor run."""
    if found is not None:
        yield found
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        wire.build_scratch_model(recipe, folder)
        yield str(folder)
