"""`rlsys chaos`: a run with faults injected into its processes, and what each of them cost."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envs.mixture import parts_of
from launch.checks.machine import expected_device, is_local
from launch.commands.shared import add_config
from launch.config.compose import compose
from launch.driver.stages.base import needs_engines
from launch.driver.stages.train import services_of
from launch.tools.chaos.disturb import Disturber
from launch.tools.chaos.faults import (
    KINDS,
    ROLES,
    Fault,
    Members,
    check_targets,
    draw_faults,
    parse_fault,
    parse_rate,
    parse_roles,
)
from launch.tools.chaos.machines import Machines
from launch.tools.chaos.table import as_json, describe, settle
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput, RunFailed, require

HELP = "train with faults injected, and say what each of them cost"
EXAMPLES = """examples:
  rlsys chaos quickstart --kill rollout:0@20s --kill learner:0@40s      seconds after the first step that plays
  rlsys chaos quickstart --kill driver@20s                              the driver is started again
  rlsys chaos quickstart --kill driver@checkpoint:2                     while the second checkpoint is written
  rlsys chaos worlds/search --hang retriever@20s+15s --slow engine:0@60s+20s
  rlsys chaos quickstart --random 30/h --seed 3 --json chaos.json       killed at random: any part, the driver too
  rlsys chaos quickstart --random 10% --roles learner,driver            one of ten steps meets a fault, on average
  rlsys chaos CONFIG --kill learner:0@60s --cut node:2@90s+30s          of a Ray cluster; cutting needs root there
  targets: driver, learner:N, rollout:N, engine:N, worlds:N, agents:N, weights, a service's name;
  disk for --fill, node:N for --cut
"""
HELPS = {
    "kill": "SIGKILL; @checkpoint:N in place of @Ns: while the Nth checkpoint is written",
    "stop": "SIGTERM: an orderly end; the driver is started again",
    "hang": "SIGSTOP; with +Ns it continues after N seconds",
    "slow": "stopped for half of the time, for 20 seconds or +Ns",
    "fill": "fill the disk of the run directory for 10 seconds or +Ns: --fill disk@30s; give it a disk of its own",
    "cut": "take down the link of a node of the Ray cluster, for good or for +Ns: --cut node:2@60s+30s",
}


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", metavar="WHAT@Ns", action="append", default=[], help=HELPS[kind])
    parser.add_argument(
        "--random", metavar="N/h|N%", help="kill so many parts an hour, or in so many of 100 steps, the driver too"
    )
    parser.add_argument(
        "--roles", metavar="A,B", default=",".join(ROLES), help="of which --random kills parts (default: %(default)s)"
    )
    parser.add_argument("--most", type=int, metavar="N", help="end --random after N faults that hit a part")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of --random (default: 0)")
    parser.add_argument("--run-dir", metavar="D", help="run directory, a new one (default: runs/chaos-NAME-TIME)")
    parser.add_argument(
        "--starts", type=int, default=100, metavar="N", help="start the run so many times at most (default: 100)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")


def run(options: argparse.Namespace) -> int:
    config = compose(options.config, options.overrides)
    stage = next((stage.name for stage in config.stages if needs_engines(config, stage) and stage.steps), None)
    if stage is None:
        raise BadInput("no stage of it plays and trains", where=options.config, expected="an rl stage")
    faults = [parse_fault(kind, text) for kind in KINDS for text in getattr(options, kind)]
    if not faults and not options.random:
        raise BadInput("no fault was asked for", expected=", ".join(f"--{kind}" for kind in (*KINDS, "random")))
    members = _members(config)
    check_targets(faults, members)
    random_faults = _draw(options, members) if options.random else iter(())
    require(options.starts >= 1, "--starts", options.starts, "at least 1")
    if options.json is not None and not Path(options.json).resolve().parent.is_dir():
        raise BadInput("there is no folder for it", key="--json", found=options.json)
    path = Path(options.run_dir or f"runs/chaos-{config.recipe.name}-{time.strftime('%H%M%S')}").resolve()
    if path.exists() and not path.is_dir():
        raise BadInput("it is no folder", key="--run-dir", found=str(path))
    if path.exists() and any(path.iterdir()):
        raise BadInput("it is not empty: what was measured would not be the faults", key="--run-dir", found=str(path))
    machines = _machines(config)
    machines.check(faults)
    path.mkdir(parents=True, exist_ok=True)
    log = path.with_name(f"{path.name}.log")
    print(f"run directory {path}; its lines go to {log}", flush=True)
    with log.open("w") as output:
        command = ["train", options.config, *options.overrides]
        disturber = Disturber(command, path, output, _say, machines, most_starts=options.starts)
        most = float("inf") if options.most is None else options.most
        with _orderly_stop():
            disturbed = disturber.play(faults, random_faults, stage, most)
    if disturbed.code == 2 and len(disturbed.starts) <= 1:
        raise BadInput(f"the run was refused: {_last_line(log).removeprefix('rlsys: error: ')}", where=str(log))
    alone = f"{log}: the run failed without a fault: {_last_line(log).removeprefix('rlsys: failed: ')}"
    if disturbed.failed_alone and not disturbed.done:
        raise RunFailed(alone)
    outcome = settle(disturbed, path)
    for line in describe(outcome):
        print(line)
    if options.json:
        Path(options.json).write_text(json.dumps(as_json(outcome), indent=1) + "\n")
    if disturbed.failed_alone:
        raise RunFailed(alone)
    return 0 if outcome.holds else 1


def _last_line(log: Path) -> str:
    return ["", *log.read_text(errors="replace").splitlines()][-1]


@contextmanager
def _orderly_stop() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is gone, unwind as Ctrl-C does: the run, which has a session of its own,
    ends, what is stopped continues, and the disk has its room."""
    # Under nohup SIGHUP is ignored, and stays so.
    caught = [signum for signum in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(signum) != signal.SIG_IGN]

    def stop(*_: object) -> None:
        for signum in caught:
            signal.signal(signum, signal.SIG_IGN)  # a second one must not break into what the first has begun
        sys.exit(128 + signal.SIGTERM)

    before = {signum: signal.signal(signum, stop) for signum in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _draw(options: argparse.Namespace, members: Members) -> Iterator[Fault]:
    return draw_faults(parse_rate(options.random), options.seed, members, parse_roles(options.roles))


def _members(config: RunConfig) -> Members:
    """Stages may differ in them: the most that one has."""
    recipes = [stage.config for stage in config.stages]
    needs = services_of(config, expected_device(config.recipe.cluster))
    return Members(
        workers=max(recipe.rollout.workers for recipe in recipes),
        ranks=max(recipe.learner.ranks for recipe in recipes),
        services=sorted({need.name.split("-")[0] for need in needs}),
        agents=any(part.name == "agent" for recipe in recipes for part in parts_of(recipe.env)),
    )


def _machines(config: RunConfig) -> Machines:
    cluster = config.recipe.cluster
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if is_local(cluster) or address is None:
        return Machines()
    from launch.tools.chaos.cluster import Cluster  # Ray behind it

    return Cluster(address)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
