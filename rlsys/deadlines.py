"""How long the parts of a run may take, and how much is played at once, where no key says it: from the work.

Pure functions of sizes. `launch.checks.deadlines` reads the sizes off a recipe, and `--dry-run` shows each with its
arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlsys.system.calls import EPISODE, WORKER_START

# Seconds that no episode of a small model takes, tools included: what is not over by then hangs.
LEAST_EPISODE_S = 300.0
# Tokens a second of one answer in a full engine: a quarter of the 32 that a 7B has on an A100, and a 32B on four.
SLOW_TOKENS = 8.0
# Replies of an episode that are as late as their tool may be: where more are, the tool is broken.
MOST_LATE = 10
LEAST_START_S = 300.0  # to import, to compile and to capture graphs, whatever the size
# Bytes a second of a model on its way into a process, or of weights to an engine, until it was measured: slower than
# 10 Gbit/s and a disk.
SLOWEST = 100e6
PATIENCE = 3.0  # times what size and rate say, for those who share the way
SLOW_HUB = 5e6  # bytes a second from a hub: 40 Mbit/s
AWAY = 1.25  # episodes for each seat of an engine where a part of them waits for tools
SERVED_AT_ONCE = 256  # questions to a model at an address, which does not say how many it takes
HUNG = 2.0  # times the deadline of an episode, after which something in it ought to have ended
SOON = 0.5  # of a deadline: what is expected to take more may be late


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that follows from others, and how: Derived(1792.0, "14,336 tokens / 8 a second")."""

    value: float
    said: str


def episode_s(messages: int, reply_s: float, tokens: int) -> Derived:
    """Of an attempt at an episode. messages: of the model. reply_s: that one reply of the environment may take.
    tokens: of a whole response."""
    waits = min(messages - 1, MOST_LATE)
    formula = f"{tokens:,} tokens / {SLOW_TOKENS:g} a second" + (f" + {waits} replies x {reply_s:g} s" if waits else "")
    work = tokens / SLOW_TOKENS + waits * reply_s
    return Derived(work, formula) if work >= LEAST_EPISODE_S else Derived(LEAST_EPISODE_S, f"at least, {formula}")


def episodes_at_once(workers: int, seats: int, messages: int) -> Derived:
    """What fills every engine. messages: of the model in an episode; between two of them its seat is free."""
    away = AWAY if messages > 1 else 1.0
    formula = f"{workers} engines x {seats} seats" + f" x {away:g}" * (messages > 1)
    return Derived(math.ceil(workers * seats * away), formula)


def evaluation_s(episodes: int, at_once: int, episode_s: float) -> Derived:
    """Of an evaluation beside training, which finds the seats taken."""
    waves = math.ceil(episodes / at_once) if episodes else 1
    formula = f"{1 + waves} x {episode_s:g} s: {episodes:,} episodes, {at_once:,} at once, after those under way"
    return Derived((1 + waves) * episode_s, formula)


def start_s(size: int) -> Derived:
    """Of a process that loads so many bytes of models."""
    loading = moved_s(size)
    formula = f"{LEAST_START_S:g} s + {PATIENCE:g} x {size / 1e9:,.1f} GB / {SLOWEST / 1e6:g} MB/s"
    return Derived(LEAST_START_S + loading, formula)


def moved_s(size: int, rate: float = SLOWEST) -> float:
    """In which so many bytes have arrived, if they do."""
    return PATIENCE * size / rate


def download_s(size: int) -> Derived:
    """Of a model from a hub to one node; its parts have deadlines of their own."""
    return Derived(
        LEAST_START_S + size / SLOW_HUB, f"{LEAST_START_S:g} s + {size / 1e9:,.1f} GB / {SLOW_HUB / 1e6:g} MB/s"
    )


def hung_s(episode_s: float, start_s: float) -> Derived:
    """In which something goes on in every group: a world is made, an episode gets a message, a reply, a reward."""
    of_episode = Derived(HUNG * episode_s, f"{HUNG:g} x {EPISODE}")
    return of_episode if of_episode.value >= start_s else Derived(start_s, WORKER_START)


def is_tight(expected_s: float, deadline_s: float) -> bool:
    """Whether what is expected comes too near to its deadline."""
    return expected_s > SOON * deadline_s
