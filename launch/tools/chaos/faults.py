"""Faults as a command line has them, and those that are drawn.

`rollout:1@30s` comes at 30 seconds, `retriever@60s+20s` lasts for 20, `driver@checkpoint:2` while the second checkpoint
is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from rlsys.errors import BadInput

# kill: SIGKILL. stop: SIGTERM. hang: SIGSTOP. slow: stopped for half of the time. fill: the disk of the run directory
# has no room. cut: the link of a node is down.
Kind = Literal["kill", "stop", "hang", "slow", "fill", "cut"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LASTS = {"slow": 20.0, "fill": 10.0}  # seconds, where none are given; what hangs or is cut off stays so
Unit = Literal["s", "step", "checkpoint"]
WORDS = re.compile(
    r"(?P<target>[a-z][\w.-]*(:\d+)?)@((?P<at>\d+(\.\d+)?)s|checkpoint(:(?P<number>[1-9]\d*))?)"
    r"(\+(?P<lasts>\d+(\.\d+)?)s)?"
)
ENDS = ("kill", "stop")  # kinds of faults that last for no time
RATE = re.compile(r"(\d+(?:\.\d+)?)(%|/h|/min)")
DISK, DRIVER, NODE = "disk", "driver", "node"
PLACES = {"fill": DISK, "cut": NODE}  # kinds of faults that hit no process
EXAMPLES = {"kill": "rollout:0@30s", "fill": "disk@30s+10s", "cut": "node:2@60s+30s"}
# Drawn ones end a process: what hangs is replaced only after a timeout of minutes.
ROLES = {
    "rollout": "rollout:{rollout}",
    "engine": "engine:{rollout}",
    "worlds": "worlds:{rollout}",
    "agents": "agents:{rollout}",
    "learner": "learner:{learner}",
    "weights": "weights",
    "services": "{service}",
    DRIVER: DRIVER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: Kind
    target: str  # rollout:0, engine:0, worlds:0, agents:0, learner:0, weights, retriever, driver, disk, node:2
    at: float  # after the first step of a stage that plays
    unit: Unit = "s"  # of `at`; 3.5 steps: in the middle of the fourth step after that one; a checkpoint: its number
    lasts_s: float | None = None

    def describe(self) -> str:
        lasts = "" if self.lasts_s is None else f" for {self.lasts_s:g} s"
        return f"{self.kind} {self.target}{lasts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Of faults, on average: for each second, or for each step."""

    value: float
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """What a run has of the roles."""

    workers: int
    ranks: int
    services: Sequence[str]
    agents: bool = False  # whether an environment of it is played by agents


def parse_fault(kind: Kind, text: str) -> Fault:
    """Raises BadInput."""
    match = WORDS.fullmatch(text)
    if match is None or (match["lasts"] and kind in ENDS) or not _belong(kind, match["target"]):
        example = EXAMPLES.get(kind, "retriever@30s+20s")
        raise BadInput(key=f"--{kind}", found=text, expected=f"what, and when after the first step, such as {example}")
    lasts = float(match["lasts"]) if match["lasts"] else LASTS.get(kind)
    unit: Unit = "checkpoint" if match["at"] is None else "s"
    at = float(match["at"] or match["number"] or 1)
    return Fault(kind=kind, target=match["target"], at=at, unit=unit, lasts_s=lasts)


def _belong(kind: Kind, target: str) -> bool:
    """A disk is filled, a node is cut off, and all else has processes."""
    place = target.partition(":")[0]
    return place == PLACES[kind] if kind in PLACES else place not in PLACES.values()


def check_targets(faults: Iterable[Fault], members: Members) -> None:
    """Raises BadInput for one that the run does not have. Nodes are known to the Ray cluster alone."""
    played = ("rollout", "engine", "worlds", *(["agents"] if members.agents else []))
    counts = dict.fromkeys(played, members.workers) | {"learner": members.ranks}
    parts = [DRIVER, "weights", *sorted(members.services)]
    numbered = [f"{role}:0" + (f" to {role}:{count - 1}" if count > 1 else "") for role, count in counts.items()]
    expected = f"one of {', '.join([*parts, *numbered])}"
    for fault in faults:
        role, _, number = fault.target.partition(":")
        exists = fault.target in parts or (number and int(number) < counts.get(role, 0))
        if fault.kind == "fill" and fault.target != DISK:
            raise BadInput("there is one disk", key="--fill", found=fault.target, expected=DISK)
        if fault.kind == "hang" and exists and role in (DRIVER, "agents") and fault.lasts_s is None:
            expected = f"{fault.target}@30s+20s"
            raise BadInput("nothing would make it continue", key="--hang", found=fault.target, expected=expected)
        if fault.kind not in PLACES and not exists:
            raise BadInput("the run has no such part", key=f"--{fault.kind}", found=fault.target, expected=expected)


def parse_rate(text: str) -> Rate:
    """Raises BadInput."""
    match = RATE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise BadInput(key="--random", found=text, expected="faults an hour, a minute or a step: 10/h, 2/min, 10%")
    per = {"/h": 1 / 3600, "/min": 1 / 60, "%": 1 / 100}[match[2]]
    return Rate(value=float(match[1]) * per, unit="step" if match[2] == "%" else "s")


def parse_roles(text: str) -> tuple[str, ...]:
    """Of `driver,learner`. Raises BadInput."""
    roles = tuple(text.split(","))
    if wrong := [role for role in roles if role not in ROLES]:
        raise BadInput(key="--roles", found=wrong[0], expected=", ".join(ROLES))
    return roles


def draw_faults(rate: Rate, seed: int, members: Members, roles: Sequence[str] = tuple(ROLES)) -> Iterator[Fault]:
    """A Poisson process without an end, the same for the same seed: each fault kills a part of one of the roles.

    Roles are dealt out: each comes once before one comes again, so that few faults speak of all of them.

    Raises BadInput where the run has none of the roles.
    """
    has = {"services": bool(members.services), "agents": members.agents}
    available = [role for role in roles if has.get(role, True)]
    if not available:
        raise BadInput("the run has no such part", key="--roles", found=",".join(roles))
    return _draw(rate, Random(seed), members, available)


def _draw(rate: Rate, rng: Random, members: Members, roles: Sequence[str]) -> Iterator[Fault]:
    at, deck = 0.0, list[str]()
    while True:
        at += rng.expovariate(rate.value)
        deck = deck or rng.sample(roles, len(roles))
        template = ROLES[deck.pop()]
        service = rng.choice(sorted(members.services)) if members.services else ""
        target = template.format(
            rollout=rng.randrange(members.workers), learner=rng.randrange(members.ranks), service=service
        )
        yield Fault(kind="kill", target=target, at=round(at, 3), unit=rate.unit)
