"""Models that are named as the hub names them, fetched to each node once before anything starts there.

The deadlines of engines and ranks are for reading what lies on the node: three engines that each download 65 GB within
their start would be late, however much time they had.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable
from pathlib import Path

from launch.checks import hub
from launch.checks.model_size import other_model_bytes
from rlsys.deadlines import download_s
from rlsys.errors import BadInput, RunFailed, describe_error
from rlsys.system.orphans import die_with

SMALL = ("*.json", "*.model", "*.txt", "*.jinja")
WEIGHTS = ("*.safetensors",), ("*.bin",)  # the second where there is none of the first
LEFT_OUT = ("original/*", "consolidated*")  # the same weights once more, in another form
COMMAND = sys.executable, "-m", "launch.driver.run.downloads"
UNKNOWN = 100_000_000_000  # bytes of a model whose size nothing says


def from_hub(models: Iterable[str]) -> tuple[str, ...]:
    """Those that are no folders, each once; none where nothing may be downloaded."""
    candidates = (model for model in models if not model.startswith((".", "/", "~")) and model.count("/") <= 1)
    hub_models = dict.fromkeys(model for model in candidates if not Path(model).is_dir())
    return () if hub.is_offline() else tuple(hub_models)


def patience_s(models: Iterable[str]) -> float:
    return sum(download_s(other_model_bytes(model) or UNKNOWN).value for model in models)


def download(models: Iterable[str]) -> None:
    """On a node: what is not there yet. Its connections have deadlines of their own. Raises BadInput."""
    from huggingface_hub import snapshot_download

    for model in models:
        try:
            for weights in WEIGHTS:
                patterns = [*SMALL, *weights]
                folder = snapshot_download(model, allow_patterns=patterns, ignore_patterns=list(LEFT_OUT))
                if any(Path(folder).glob(weights[0])):
                    break
        except Exception as error:  # fault boundary: the network, the disk, the hub's own refusals
            raise BadInput(f"the download failed: {describe_error(error)}", where=f"model {model!r}") from error


async def download_here(models: Iterable[str], patience: float) -> None:
    """The same in a process of its own, which a stop or the deadline ends: a thread could not be. patience: seconds.

    Raises BadInput for what the hub refuses, RunFailed for what is late.
    """
    names = tuple(models)
    child = await asyncio.create_subprocess_exec(
        *COMMAND, str(os.getpid()), *names, stdin=DEVNULL, stdout=PIPE, start_new_session=True
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(), patience)
    except TimeoutError as error:
        raise RunFailed(f"fetching {', '.join(names)}: not over after {patience:g} s; what is here is kept") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise BadInput(output.decode(errors="replace").strip() or f"fetching {', '.join(names)} failed")


def main(parent: str, *models: str) -> int:
    die_with(int(parent))
    try:
        download(models)
    except BadInput as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
