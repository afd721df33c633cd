"""The table of signs that something is wrong with a stage: what each is called, how bad it is, what says it, and after
how much proof. The running loop says them (`launch.driver.observe.health`), and a report repeats what it said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from launch.driver.observe import episode_signs, policy_signs, tool_signs
from launch.driver.observe.health_rows import HealthRow
from launch.driver.observe.history import History

Severity = Literal["broken", "wrong", "slow", "cheap"]  # broken: nothing is learned any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """In how many episodes or steps in a row something has to hold before it is said: whichever are there first. A step
    of 7B has a thousand episodes and takes a quarter of an hour: to wait for three says nothing more.

    None: never by their number. from_start: steps of what has held since the stage began. of: the share of the episodes
    that counts, of what is a share of them.
    """

    episodes: float | None = 800
    steps: int | None = 3
    from_start: int | None = None
    of: str = ""  # a field of `HealthRow`
    why: str = "siblings do the same: 800 episodes are 100 groups of 8; and three small steps in a row are no chance"


OTHERWISE = Proof()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    says: Callable[[History, HealthRow], str]  # what is wrong and the key to turn; "" of a row that does not show it
    severity: Severity = "wrong"
    proof: Proof = OTHERWISE


NEVER = "none in the whole stage so far: two steps say that the start is wrong, and each more costs as much"
SIGNS: Mapping[str, Sign] = {  # sentences that come with one row come in this order
    "cut": Sign(
        says=episode_signs.cut,
        proof=Proof(
            episodes=100,
            of="cut",
            steps=None,
            why="100 that were cut off: 500 at the level, or 100 (or three steps of NEARLY_ALL)",
        ),
    ),
    "untrained": Sign(says=episode_signs.untrained, severity="broken", proof=Proof(from_start=2, why=NEVER)),
    "unsolved": Sign(says=episode_signs.unsolved, proof=Proof(from_start=2, why=NEVER)),
    "silent": Sign(says=episode_signs.silent),
    "collapsed": Sign(
        says=policy_signs.collapsed, proof=Proof(episodes=None, why="that rewards no longer rise is seen over steps")
    ),
    "starved": Sign(says=episode_signs.starved),
    "malformed": Sign(says=episode_signs.malformed, severity="broken"),
    "raised": Sign(says=episode_signs.raised, severity="broken"),
    "scattered": Sign(says=policy_signs.scattered),
    "fell": Sign(
        says=policy_signs.fell,
        proof=Proof(
            episodes=None, why="its own means are over three steps, with the chance of their groups reckoned in"
        ),
    ),
    "lopsided": Sign(
        says=policy_signs.lopsided,
        severity="slow",
        proof=Proof(episodes=None, why="one balance a step, and a single slow episode tilts it"),
    ),
    "time_limit": Sign(says=episode_signs.time_limit),
    "timed_out": Sign(says=episode_signs.timed_out),
    "blown_up": Sign(
        says=policy_signs.blown_up,
        severity="broken",
        proof=Proof(steps=1, why="what follows may have no rows with a KL any more"),
    ),
    "drifted": Sign(says=policy_signs.drifted),
    "clipped": Sign(says=policy_signs.clipped),
    "mismatch": Sign(says=policy_signs.mismatch),
    "mismatch_by_depth": Sign(says=policy_signs.mismatch_by_depth),
    "grad_norm": Sign(
        says=policy_signs.grad_norm, proof=Proof(episodes=None, why="one norm a step, and single ones are high")
    ),
    "unread": Sign(says=lambda history, row: tool_signs.unread(history.tools)),
    "unanswered": Sign(says=lambda history, row: tool_signs.unanswered(history.tools)),
    "no_passage": Sign(says=lambda history, row: tool_signs.no_passage(history.tools)),
}
