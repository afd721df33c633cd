"""Faults as a command line has them, and those that are drawn: `rollout:1@30s` at 30 seconds, `retriever@60s+20s`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from rlsys.errors import BadInput

# kill: SIGKILL. hang: SIGSTOP. slow: stopped for half of the time. fill: the disk of the run directory is full.
Kind = Literal["kill", "hang", "slow", "fill"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LASTS = {"slow": 20.0, "fill": 10.0}  # seconds, where none are given; a part that hangs does until it is replaced
WORDS = re.compile(r"(?P<target>[a-z][\w.-]*(:\d+)?)@(?P<at>\d+(\.\d+)?)s(\+(?P<lasts>\d+(\.\d+)?)s)?")
RATE = re.compile(r"(\d+(?:\.\d+)?)/(h|min)")
DISK, DRIVER = "disk", "driver"
# Drawn ones end a process: what hangs is replaced only after a timeout of minutes.
OF_WORKER = ("rollout:{rollout}", "engine:{rollout}", "worlds:{rollout}")
ROLES = (*OF_WORKER, "learner:{learner}", "weights", "services", DRIVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: Kind
    target: str  # rollout:0, engine:0, worlds:0, learner:0, weights, retriever, driver, disk
    at_s: float  # after the first step of a stage that plays
    lasts_s: float | None = None

    def describe(self) -> str:
        lasts = "" if self.lasts_s is None else f" for {self.lasts_s:g} s"
        return f"{self.kind} {self.target}{lasts}"


def parse_fault(kind: Kind, text: str) -> Fault:
    """Raises BadInput."""
    found = WORDS.fullmatch(text)
    if found is None or (found["lasts"] and kind == "kill") or (kind == "fill") != (found["target"] == DISK):
        example = {"kill": "rollout:0@30s", "fill": "disk@30s+10s"}.get(kind, "retriever@30s+20s")
        raise BadInput(key=f"--{kind}", found=text, expected=f"what, and when after the first step, such as {example}")
    lasts = float(found["lasts"]) if found["lasts"] else LASTS.get(kind)
    return Fault(kind=kind, target=found["target"], at_s=float(found["at"]), lasts_s=lasts)


def parse_rate(text: str) -> float:
    """Faults a second. Raises BadInput."""
    found = RATE.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise BadInput(key="--random", found=text, expected="faults an hour or a minute, such as 10/h or 2/min")
    return float(found[1]) / {"h": 3600.0, "min": 60.0}[found[2]]


def draw_faults(
    rate: float, seed: int, *, workers: int, ranks: int, services: Sequence[str], most: int
) -> Iterator[Fault]:
    """A Poisson process over all roles, the same for the same seed. rate: faults a second."""
    rng, at = Random(seed), 0.0
    roles = [role for role in ROLES if role != "services" or services]
    for _ in range(most):
        at += rng.expovariate(rate)
        role = rng.choice(roles)
        named = rng.choice(sorted(services)) if role == "services" else role
        target = named.format(rollout=rng.randrange(workers), learner=rng.randrange(ranks))
        yield Fault(kind="kill", target=target, at_s=round(at, 3))
