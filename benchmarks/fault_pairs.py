"""Two faults of one run, a few seconds apart: each pair is played to its end, and the run is audited.

    python benchmarks/fault_pairs.py --draw 6 --seed 1       six of all pairs; every role comes about equally often
    python benchmarks/fault_pairs.py --pairs rollout:kill,weights:kill,7
    python benchmarks/fault_pairs.py --all                   all of them: two days on two cores

A pair is two of the roles (a role may come twice), each killed or hung, and 0, 2, 7 or 15 seconds between. What hangs
is left so until something replaces it, but for the driver, which continues after 20 s. The run is `worlds/search`,
whose service is a retriever, from the weights of a short supervised stage. A pair that does not end within its limit
is one that stops a run for ever. Exit code 1 where a pair does not end, or an audit does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from report import Report, parser
from study import ROOT, train, weights

CONFIG, SERVICE = "worlds/search", "retriever"
TARGETS = {
    "driver": "driver", "learner": "learner:0", "rollout": "rollout:0", "engine": "engine:0",
    "worlds": "worlds:0", "weights": "weights", "service": SERVICE,
}  # fmt: skip
KINDS = ("kill", "hang")
GAPS = (0, 2, 7, 15)
FIRST_S, RESUMED_S, LIMIT_S = 3, 20, 900
TAUGHT = 60  # steps
OWN = ["report=none", "tracker=none", "eval.tasks=8", "eval.greedy=false"]
# What hangs is replaced after a timeout: shorter ones than the defaults, which are for large models.
SHORT = ["stages.rl.steps=30", "stages.rl.loop.groups_per_step=4", "stages.rl.checkpoint.every=5",
         "rollout.call_timeout_s=20", "learner.ping_timeout_s=20", "learner.update_timeout_s=120"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    first: str  # a role
    first_kind: str
    second: str
    second_kind: str
    gap_s: int

    def words(self) -> list[str]:
        """Of `rlsys chaos`."""
        return [
            *_words(self.first_kind, self.first, FIRST_S),
            *_words(self.second_kind, self.second, FIRST_S + self.gap_s),
        ]

    def __str__(self) -> str:
        return f"{self.first}:{self.first_kind},{self.second}:{self.second_kind},{self.gap_s}"


def _words(kind: str, role: str, at: int) -> list[str]:
    lasts = f"+{RESUMED_S}s" if (kind, role) == ("hang", "driver") else ""
    return [f"--{kind}", f"{TARGETS[role]}@{at}s{lasts}"]


def parse_pair(text: str) -> Pair:
    """Of "rollout:kill,weights:hang,7"."""
    pairs = {str(pair): pair for pair in list_pairs()}
    if text not in pairs:
        raise argparse.ArgumentTypeError(f"expected ROLE:KIND,ROLE:KIND,SECONDS, such as {next(iter(pairs))}: {text}")
    return pairs[text]


def list_pairs() -> list[Pair]:
    faults = list(product(TARGETS, KINDS))
    return [Pair(*first, *second, gap) for first, second, gap in product(faults, faults, GAPS)]


def draw_pairs(count: int, seed: int) -> list[Pair]:
    """Roles are dealt out: the first of a pair and the second of the next are drawn from decks of all of them."""
    rng, decks, pairs = Random(seed), (list[str](), list[str]()), list[Pair]()
    for _ in range(count):
        roles = [_deal(rng, deck) for deck in decks]
        kinds = [rng.choice(KINDS) for _ in roles]
        pairs.append(Pair(roles[0], kinds[0], roles[1], kinds[1], rng.choice(GAPS)))
    return pairs


def _deal(rng: Random, deck: list[str]) -> str:
    deck[:] = deck or rng.sample(sorted(TARGETS), len(TARGETS))
    return deck.pop()


def play(pair: Pair, model: Path, folder: Path) -> dict[str, Any] | None:
    """What `rlsys chaos` measured; None where the run did not end."""
    written = folder.with_suffix(".json")
    command = [sys.executable, "-m", "launch", "chaos", CONFIG, "--run-dir", str(folder), "--json", str(written)]
    command += [*pair.words(), *OWN, *SHORT, "stages.sft=null", f"model.path={model}"]
    with folder.with_suffix(".txt").open("w") as output:
        playing = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=output, stderr=output
        )
        try:
            playing.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            playing.send_signal(signal.SIGTERM)  # it ends its run
            playing.wait()
            return None
    return json.loads(written.read_text()) if written.is_file() else None


def taught(runs: Path) -> Path:
    folder = runs / "taught"
    train(
        CONFIG, folder, [*OWN, f"stages.sft.steps={TAUGHT}", f"stages.sft.checkpoint.every={TAUGHT}", "stages.rl=null"]
    )
    return weights(folder, TAUGHT)


def measure(report: Report, pairs: Sequence[Pair], runs: Path) -> int:
    """The number of pairs that failed."""
    failed, model = 0, taught(runs)
    report.head(
        "first", "second", "s between", "ended", "known after, s", "next step after, s", "whole run, s", "audit"
    )
    for number, pair in enumerate(pairs):
        began = time.monotonic()
        outcome = play(pair, model, runs / f"pair-{number}")
        whole_s = time.monotonic() - began
        costs = outcome["costs"] if outcome is not None else []
        holds = outcome is not None and outcome["holds"]
        failed += not holds
        names = [f"{kind} {role}" for role, kind in ((pair.first, pair.first_kind), (pair.second, pair.second_kind))]
        detections, steps = (
            " / ".join("-" if cost[key] is None else f"{cost[key]:.1f}" for cost in costs)
            for key in ("detected_s", "next_step_s")
        )
        ended = "done" if outcome is not None and outcome["code"] == 0 else "no"
        report.row(*names, str(pair.gap_s), ended, detections, steps, whole_s, "holds" if holds else "NO")
        if holds:
            shutil.rmtree(runs / f"pair-{number}", ignore_errors=True)
    return failed


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--draw", type=int, default=6, metavar="N", help="so many of all pairs (default: %(default)s)")
    cli.add_argument("--seed", type=int, default=0, metavar="N", help="of --draw (default: 0)")
    cli.add_argument("--pairs", type=parse_pair, nargs="+", metavar="PAIR", help="these: rollout:kill,weights:hang,7")
    cli.add_argument("--all", action="store_true", help="all of them, in a drawn order")
    cli.add_argument("--runs", type=Path, metavar="DIR", help="keep the runs here; those whose audit holds go")
    options = cli.parse_args()
    pairs = options.pairs or draw_pairs(options.draw, options.seed)
    if options.all:
        pairs = Random(options.seed).sample(list_pairs(), len(list_pairs()))
    with Report(options) as report, tempfile.TemporaryDirectory() as folder:
        runs = options.runs or Path(folder)
        runs.mkdir(parents=True, exist_ok=True)
        failed = measure(report, pairs, runs)
        report.note(f"{len(pairs) - failed} of {len(pairs)} pairs came to their end with an audit that holds")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
