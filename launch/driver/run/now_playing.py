"""What the engines play now, as a file in the run directory: `rlsys view` follows an episode of each, turn by turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any

from actors.worker import WorkerStatus
from launch.driver.run.run import Run
from launch.run_dir.names import PLAYING
from rlsys.errors import BadInput
from rlsys.files import replace_file
from rlsys.types import Message


def show_playing(run: Run) -> None:
    """With every ping of the engines, unless no episode is to be written. A full disk is no error here."""
    path = run.dir.path / PLAYING

    async def show(statuses: Mapping[str, WorkerStatus]) -> None:
        lines = [as_line(name, status.playing) for name, status in statuses.items() if status.playing]
        with suppress(OSError, BadInput):
            await asyncio.to_thread(replace_file, path, json.dumps(lines))

    if run.config.recipe.trajectories.keep != 0:
        run.pool.shows = show


def as_line(worker: str, messages: tuple[Message, ...]) -> dict[str, Any]:
    """As a line of trajectories/, as far as it is known."""
    said = [{"role": message.role, "content": message.content} for message in messages]
    prompt = len(list(takewhile(lambda message: message["role"] != "assistant", said)))
    return {"worker": worker, "prompt": said[:prompt], "messages": said[prompt:]}
