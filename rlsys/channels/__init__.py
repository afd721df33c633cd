"""Weight channels: how a version travels from the learner's ranks to the engines. `weights.channel` picks one.

A new one is one file, with what `rlsys.channels.base.WeightChannel` names, and one line of the table.
"""

from __future__ import annotations

from pathlib import Path

from rlsys.channels.base import Published, WeightChannel
from rlsys.choices import Table, load

CHANNELS: Table = {
    "shm": "rlsys.channels.shm.SharedMemory",
}


def open_channel(name: str, owner: str, root: str | None = None) -> WeightChannel:
    """A run's channel; `owner` tells it apart from those of other runs. Nothing is written yet."""
    channel: WeightChannel = load(CHANNELS[name]).open(owner, Path(root) if root is not None else None)
    return channel


def sweep() -> None:
    """Remove what runs left behind that are no more, whichever channel they had."""
    for path in CHANNELS.values():
        load(path).sweep()


def receiver(published: Published) -> type[WeightChannel]:
    """The channel that can receive a version, in a process that was never told of it."""
    channel: type[WeightChannel] = load(published.channel)
    return channel
