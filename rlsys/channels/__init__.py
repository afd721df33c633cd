"""Weight channels: how a version travels from the learner's ranks to the engines. `weights.channel` picks one.

A new one is one file, with what `rlsys.channels.base.WeightChannel` names, and one line of the table.
"""

from __future__ import annotations

from collections.abc import Callable

from rlsys.channels.base import Published, WeightChannel
from rlsys.choices import Table, load

CHANNELS: Table = {
    "shm": "rlsys.channels.shm.SharedMemory",
}


def open_channel(name: str, owner: str) -> WeightChannel:
    """A run's channel; `owner` tells it apart from those of other runs. Nothing is written yet."""
    channel: WeightChannel = load(CHANNELS[name]).open(owner)
    return channel


def remove_stale(dead: Callable[[str], bool]) -> None:
    """What runs left behind whose owner is dead, whichever channel they had."""
    for path in CHANNELS.values():
        load(path).remove_stale(dead)


def receiver(published: Published) -> type[WeightChannel]:
    """The channel that can receive a version, in a process that was never told of it."""
    channel: type[WeightChannel] = load(published.channel)
    return channel
