"""Whether agents that wait keep an engine busy: `python benchmarks/sleeping_agents.py [--smallest]`.

The loop, pool, buffer, journal and Ray of `asynchrony.py`, and real agents: processes over the openai SDK, which ask
the endpoint of their worker. An engine is scripted: a message takes as long as its tokens, on one of `seats`. Between
two messages an agent sleeps, a lognormal time with a median of 2 s that ends at 30 s, and holds no seat meanwhile; a
worker has `--sessions`. In the arm `awake` the same agents do not sleep. Busy is the share of the seats' time in which
a message is written, in the middle of the stage.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import ray
import study
from agents import Source
from asynchrony import DEFAULT, ceiling_of, middle
from report import Report, parser
from scripted import GROUP, Script, ScriptedWorker, go, make_run, start_ray

from actors.renderer import ChatRenderer
from actors.worker import WorkerSpec
from envs.worlds.agent import AgentConfig, AgentWorld
from launch.tools.audit.files import read_run
from launch.tools.audit.properties import audit
from learners.scratch import train_tokenizer
from rlsys.rollout import Player, RolloutPlan, TurnRequest, run_episode
from rlsys.types import Completion, Ints, Reward, Trajectory, Transcript, TurnStop

FOLDER, MEDIAN = "BENCH_FOLDER", "BENCH_SLEEP_S"  # environment variables of the workers, and of their agents
AGENT = """
import math, os, random, time
from openai import OpenAI
client, median = OpenAI(), float(os.environ["BENCH_SLEEP_S"])
def solve(task):
    messages = [{"role": "user", "content": task["question"]}]
    for _ in range(3):
        answer = client.chat.completions.create(model="policy", messages=messages)
        text = answer.choices[0].message.content
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "and"}]
        if median:
            time.sleep(min(30.0, random.lognormvariate(math.log(median), math.log(15) / 2.3263)))
"""
PLAN = RolloutPlan(
    purpose="bench", env=None, reward=None, group_size=1, temperature=1.0, top_p=1.0, max_turn_tokens=1 << 14,
    max_context=1 << 16, timeout_s=600.0,
)  # fmt: skip
TURNS = 3
SCRIPT = replace(
    DEFAULT, workers=1, groups=16, steps=12, tokens=60, turns=TURNS, token_s=0.015, update_s=5.0, in_flight=256,
    failing=0.0,
)  # fmt: skip
SMALLEST = replace(SCRIPT, groups=2, steps=4, token_s=0.002, update_s=0.2)


class Graded(Source):
    def __init__(self, world: AgentWorld, value: float) -> None:
        super().__init__(world)
        self._value = value

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(value=self._value, parts={})


class AgentsWorker(ScriptedWorker):
    """Real agents ask it; what it answers takes as long as the script says."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec)
        folder = Path(os.environ[FOLDER])
        self.renderer = ChatRenderer(str(folder))
        (self.word,) = set(self.renderer.encode("word"))
        config = AgentConfig(
            agent="sleeping_agent.solve", data=str(folder / "tasks.jsonl"), idle_s=120.0, variables=[MEDIAN]
        )
        self.world = AgentWorld(config)
        self.busy: list[tuple[float, float]] = []

    async def episode(self, ticket: Any, sibling: int, length: int, dull: bool) -> Trajectory:
        lengths = iter([length // TURNS] * (TURNS - 1) + [length - length // TURNS * (TURNS - 1)])

        async def generate(context: Ints, request: TurnRequest) -> Completion:
            tokens = max(1, next(lengths))
            async with self.seats:
                began = time.monotonic()
                await asyncio.sleep(tokens * self.script.token_s)
            self.generated += tokens
            return Completion(
                token_ids=np.full(tokens, self.word, np.int32), logprobs=np.zeros(tokens, np.float32),
                spans=self.spans(began, tokens), stop=TurnStop.STOP, text="word" * tokens,
            )  # fmt: skip

        player = Player(name="bench", run_seed=0, renderer=self.renderer, generate=generate)
        source = Graded(self.world, 0.0 if dull else float(sibling % 2))
        return await run_episode(player, source, ticket.task, PLAN, max_turns=TURNS + 1, seed=0, sibling=sibling)


def measure(script: Script, folder: Path, median_s: float) -> dict[str, Any]:
    os.environ |= {FOLDER: str(folder), MEDIAN: str(median_s), "PYTHONPATH": f"{study.ROOT}:{folder}"}
    logging.getLogger("rlsys").setLevel(logging.WARNING)
    start_ray(1.0)
    try:
        with tempfile.TemporaryDirectory() as directory:
            run = make_run(script, Path(directory), worker=AgentsWorker)
            asyncio.run(go(run))
            run.journal.close()
            run.dir.close()
            rows = study.rows(Path(directory) / "run", "metrics")
            broken = [check.name for check in audit(read_run(Path(directory) / "run")) if check.offenders]
    finally:
        ray.shutdown()
    return {
        "step_s": middle([row["time/step"] for row in rows], script),
        "lag": max(row["lag/max"] for row in rows),
        "failures": sum(row[f"failures/{kind}"] for row in rows for kind in ("infra", "timeout", "data")),
        "again": fmean(row["env/retold_messages"] for row in rows),
        "broken": broken,
    }


def prepare(folder: Path) -> None:
    (folder / "sleeping_agent.py").write_text(AGENT)
    tasks = ({"question": f"{number}?", "answer": "0"} for number in range(64))
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    tokenizer = train_tokenizer(["word and 0123456789?"] * 8, ("word",), vocab_size=300, max_positions=1 << 16)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')


def tell(report: Report, script: Script, lags: Sequence[int], folder: Path) -> None:
    ceiling = ceiling_of(script)
    report.head("agents", "lag", "a step, s", "busy", "largest lag", "failures", "told again", "audit")
    for lag in lags:
        for arm, median_s in (("awake", 0.0), ("asleep", 2.0)):
            point = measure(replace(script, lag=lag), folder, median_s)
            audited = "ok" if not point["broken"] else ", ".join(point["broken"])
            counts = [str(point["lag"]), *(f"{point[name]:g}" for name in ("failures", "again"))]
            report.row(arm, str(lag), point["step_s"], ceiling / point["step_s"], *counts, audited)
    report.note(f"{GROUP * script.groups} episodes a step, {script.seats} seats: a step takes {ceiling:.2f} s or more.")


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--smallest", action="store_true", help="few and short steps: nothing to publish")
    cli.add_argument("--lags", type=int, nargs="+", default=[1, 4], metavar="N", help="default: %(default)s")
    sessions = "rollout.in_flight: episodes of a worker, those that wait for a sibling too (default: %(default)s)"
    cli.add_argument("--sessions", type=int, default=SCRIPT.in_flight, metavar="N", help=sessions)
    options = cli.parse_args()
    script = replace(SMALLEST if options.smallest else SCRIPT, in_flight=options.sessions)
    with Report(options) as report, tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        tell(report, script, options.lags, Path(folder))


if __name__ == "__main__":
    main()
