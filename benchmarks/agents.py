"""What an agent over OpenAI's chat completions costs beside its own work: `python benchmarks/agents.py [--episodes N]`.

Plays the agent of docs/environments/own_agent.py, three requests an episode, against a policy that answers after
`--answer` seconds. Processor time by whom it belongs to: the endpoint with its sessions, the keeper that starts agents,
the agents themselves. The second half of the episodes tells whether memory grows.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from report import Report, parser

from actors.renderer import ChatRenderer
from envs.worlds.agent import AgentConfig, AgentWorld
from learners.scratch import train_tokenizer
from rlsys.choices import add_search_paths
from rlsys.rollout import Player, RolloutPlan, TurnRequest, run_episode
from rlsys.types import Completion, EpisodeEnd, Ints, Reward, Task, Transcript, TurnStop, VersionSpan

PAGES = Path(__file__).resolve().parents[1] / "docs" / "environments"
TEXTS = ("<math_exp>48 / 2</math_exp>", "<math_exp>24 + 2</math_exp>", "<answer>26</answer>")
PLAN = RolloutPlan(
    purpose="bench", env=None, reward=None, group_size=1, temperature=1.0, top_p=1.0, max_turn_tokens=64,
    max_context=512, timeout_s=600.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of a processor."""

    own: float
    keeper: float
    agents: float

    @classmethod
    def read(cls) -> Spent:
        children = psutil.Process().children()
        (keeper,) = [child for child in children if "keeping" in " ".join(child.cmdline())]
        kept = keeper.cpu_times()  # in hundredths of a second; the other clock is as fine as two episodes need
        return cls(time.process_time(), kept.user + kept.system, kept.children_user + kept.children_system)


class Source:
    """As a worker has it, without a reward."""

    def __init__(self, world: AgentWorld) -> None:
        self.env = world.open_env

    async def max_turns(self) -> int:
        return 4

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(value=0.0, parts={})

    async def compare(self, transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]:
        return rewards


async def play(world: AgentWorld, renderer: ChatRenderer, task: Task, answer_s: float) -> None:
    texts = iter(TEXTS)

    async def generate(context: Ints, request: TurnRequest) -> Completion:
        await asyncio.sleep(answer_s)
        text = next(texts)
        ids = np.asarray(renderer.encode(text), np.int32)
        spans = (VersionSpan(version=0, start=0, end=len(ids)),)
        zeros = np.zeros(len(ids), np.float32)
        return Completion(token_ids=ids, logprobs=zeros, spans=spans, stop=TurnStop.STOP, text=text)

    player = Player(name="bench", run_seed=0, renderer=renderer, generate=generate)
    played = await run_episode(player, Source(world), task, PLAN, max_turns=4, seed=0, sibling=0)
    if played.end is not EpisodeEnd.ANSWERED or len(played.turns) != len(TEXTS):
        raise SystemExit(f"an episode went wrong: {played.end}, {played.reward}, {played.state}")


async def measure(report: Report, folder: Path, episodes: int, at_once: int, answer_s: float) -> None:
    tasks = folder / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"question": f"{n} + 2?", "answer": "26"}) + "\n" for n in range(64)))
    model = train_tokenizer([*TEXTS, "2 + 2? ->"] * 8, (), vocab_size=300, max_positions=512)
    model.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    world = AgentWorld(AgentConfig(agent="own_agent.solve", data=str(tasks), idle_s=300.0))
    renderer, task = ChatRenderer(str(folder)), world.tasks("train")[0]
    await play(world, renderer, task, answer_s)  # the first starts the keeper
    seats = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with seats:
            await play(world, renderer, task, answer_s)

    report.head("episodes", "at once", "a second", "own, ms each", "keeper, ms", "agent, ms", "memory, MB")
    for _ in range(2):
        before, started = Spent.read(), time.perf_counter()
        await asyncio.gather(*(one() for _ in range(episodes // 2)))
        seconds, after, count = time.perf_counter() - started, Spent.read(), episodes // 2
        parts = [1e3 * (b - a) / count for a, b in zip(_parts(before), _parts(after), strict=True)]
        report.row(count, at_once, count / seconds, *parts, psutil.Process().memory_info().rss / 2**20)
    await world.close()


def _parts(spent: Spent) -> tuple[float, float, float]:
    return spent.own, spent.keeper, spent.agents


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--episodes", type=int, default=2000, metavar="N", help="default: %(default)s")
    cli.add_argument("--at-once", type=int, default=32, metavar="N", help="default: %(default)s")
    cli.add_argument("--answer", type=float, default=0.0, metavar="S", help="default: %(default)s")
    options = cli.parse_args()
    sys.path.append(str(PAGES))
    add_search_paths(PAGES / "own_agent.yaml")
    with Report(options) as report, tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(report, Path(folder), options.episodes, options.at_once, options.answer))


if __name__ == "__main__":
    main()
