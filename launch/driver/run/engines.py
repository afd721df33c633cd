"""A checkpoint on engines, without a learner: what `rlsys eval` and `rlsys generate` play with."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from actors.placement import place
from actors.pool import RolloutPool
from launch.checks import models, preflight
from launch.checks.chat_template import copy_with_template, has_template, read_template
from launch.checks.machine import is_local
from launch.driver.checkpoints.best import find_best_model
from launch.driver.checkpoints.checkpoint import FOLDER, STATE, Damaged, model_step, step_of, verify
from launch.driver.observe.progress import Progress
from launch.driver.run import nodes, wire
from launch.driver.run.cluster import connect
from launch.driver.run.starting import watch_start
from rlsys.adapters import read_adapter
from rlsys.config.cluster import ClusterConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, require
from rlsys.system.device import resolve

T = TypeVar("T")
BEST = "@best"  # behind a run directory


def on_engines(
    recipe: RecipeConfig,
    model: str,
    progress: Progress,
    work: Callable[[RecipeConfig, RolloutPool], Awaitable[T]],
    *,
    scratch: bool,
    playing: Sequence[RecipeConfig] = (),
) -> T:
    """Start engines and tool services, do `work` with them, and stop them. After an error the command ends them.

    `work` gets the recipe as it is on the device that was found. scratch: the model was built by this command. playing:
    whose tools and judges are needed; none: the recipe's.
    """
    progress.doing("starting Ray")
    recipe = replace(recipe, cluster=replace(recipe.cluster, placement="split"))  # no rank uses their GPUs
    playing = playing or [recipe]
    expected_services = wire.services(playing)
    device = connect(recipe.cluster, partial(wire.engine_needs, recipe, expected_services), run=recipe.name)
    recipe, playing = resolve(recipe, device), [resolve(stage_recipe, device) for stage_recipe in playing]
    services = wire.services(playing)
    services.on_gpus = bool(device.gpus_per_actor)
    needs = wire.engine_needs(recipe, services, device)
    pool = wire.pool(recipe, device, model, services.token, wire.secrets_of(playing), playing=playing)

    async def go() -> T:
        workers, timeout_s = recipe.rollout.workers, recipe.cluster.placement_timeout_s
        progress.begin(f"starting {workers} rollout worker(s)")
        placement = await place(needs, timeout_s=timeout_s, run=recipe.name)
        key = "cluster.scratch_dir" if scratch else "the checkpoint"
        shared = [(f"{key}={str(Path(model).parent)!r}", Path(model).parent)] if scratch else []
        model_entry = (key, model)
        report = await nodes.check_nodes(
            placement, recipe, playing, services, device, model=model_entry, shared=shared, doing=progress.doing
        )
        for line in report.held:
            progress.say(line)
        for_pool, for_services = placement[:workers], placement[workers:]
        starting = asyncio.gather(pool.start(for_pool), services.start(for_services, pool.connect))
        await watch_start(pool, starting, progress)
        await pool.adopt()  # the weights of the folder that they were started from
        result = await work(recipe, pool)
        progress.doing("ending the workers")
        await asyncio.gather(pool.stop(), services.stop())
        return result

    return asyncio.run(go())


def find_checkpoint(recipe: RecipeConfig, source: str | None, *, ask: bool = True) -> str | None:
    """A run directory's newest checkpoint, a checkpoint's `hf`, a model folder, a hub name; or the last run's.

    None where a recipe without a model was never run. Raises BadInput for a folder without a model, and for a
    checkpoint whose model is not what was saved. ask: a hub name is looked for.
    """
    model = resolve_folder(source) if source is not None else wire.resolved_model_path(recipe) or _last_run(recipe.name)
    if model is not None and model_step(Path(model)) is not None:
        check_digests(Path(model).parent)
    preflight.check_model(model, learner=False, ask=ask, key="--checkpoint" if source is not None else "model.path")
    models.check_partition(recipe, model)
    models.check_window(recipe, model, learner=False)
    return model


def check_digests(checkpoint: Path) -> None:
    """Raises BadInput for a checkpoint that is damaged, and names an older one."""
    if checkpoint.is_dir() and not (checkpoint / STATE).exists():
        return  # a copy of the model alone
    try:
        verify(checkpoint, print, within="hf/")
    except Damaged as error:
        siblings = [path for path in checkpoint.parent.iterdir() if FOLDER.fullmatch(path.name)]
        older = max((path for path in siblings if step_of(path) < step_of(checkpoint)), key=step_of, default=None)
        instead = "there is no older checkpoint" if older is None else f"the one before it is --checkpoint {older}"
        raise BadInput(f"{error}; {instead}") from error


def resolve_folder(source: str) -> str:
    """The model folder that `--checkpoint` means; a hub name as it is. Raises BadInput."""
    path = Path(source)
    if source.endswith(BEST) and not path.exists():
        best = find_best_model(Path(source.removesuffix(BEST)))
        if best is None:
            raise BadInput(
                "no best model in it", key="--checkpoint", found=source, expected="a run with checkpoint.best"
            )
        return str((best / "hf").resolve())
    if not path.exists():
        if source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise BadInput("no such folder", key="--checkpoint", found=source)
        return source  # a hub name
    folder = _weights_in(path)
    if folder is None and (adapter := read_adapter(path)) is not None:
        raise BadInput(
            "an adapter without config.json and tokenizer", key="--checkpoint", found=source,
            expected=f"those of {adapter.base} in its folder",
        )  # fmt: skip
    if folder is None:
        raise BadInput("neither a run directory, a checkpoint nor a model folder", key="--checkpoint", found=source)
    return str(folder.resolve())


def _last_run(name: str) -> str | None:
    numbered = re.compile(re.escape(name) + r"(-\d+)?")
    runs = [run for run in Path("runs").glob("*") if numbered.fullmatch(run.name)]
    newest_first = sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)
    return next((str(folder.resolve()) for folder in map(_weights_in, newest_first) if folder is not None), None)


def _weights_in(path: Path) -> Path | None:
    """A damaged newest checkpoint is not passed over for an older one: its numbers would stand for the newest."""
    for folder in (path, path / "hf"):
        if (folder / "config.json").is_file():
            return folder
    checkpoints = [entry for entry in (path / "checkpoints").glob("step-*") if FOLDER.fullmatch(entry.name)]
    return max(checkpoints, key=step_of) / "hf" if checkpoints else None


@contextmanager
def model_or_scratch(recipe: RecipeConfig, model: str | None, output: str | None) -> Iterator[str]:
    """The folder or hub name to play, with the recipe's chat template; the untrained policy of a recipe that has
    neither model nor run.

    output: the file that the command writes, if any.
    """
    template = read_template(recipe.model)
    if model is not None and (template is None or has_template(model, template)):
        yield model
        return
    with tempfile.TemporaryDirectory(dir=scratch_folder(recipe.cluster, output)) as scratch:
        folder = Path(scratch) / "model"
        if model is None:
            wire.build_scratch_model(recipe, folder)
        yield copy_with_template(model or str(folder), recipe.model, folder)


def scratch_folder(cluster: ClusterConfig, output: str | None) -> Path | None:
    """Where every node sees what is built for it; None is this machine's temporary folder. Raises BadInput."""
    scratch_dir = cluster.scratch_dir
    if scratch_dir is not None:
        require(Path(scratch_dir).is_dir(), "cluster.scratch_dir", scratch_dir, "a folder that exists")
        return Path(scratch_dir).resolve()
    if is_local(cluster):
        return None
    if output is not None:
        return Path(output).resolve().parent
    expected = "on a cluster a folder that all nodes see, for the untrained policy of this recipe; or --checkpoint"
    raise BadInput(key="cluster.scratch_dir", found=None, expected=expected)
