"""How many responses per second one core verifies: `python benchmarks/graphs.py [--seconds 2]`.

`cold`: every response belongs to another problem, so that its answer key is worked out too. `group of 8`: as in
training, where eight responses share a problem. Reading the task's record is in both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from report import Report, parser

from envs.papers.graph_rl.graphs.verify import facts
from envs.papers.graph_rl.reward import GraphRLReward, GraphRLRewardConfig
from envs.papers.graph_rl.world import GraphConfig, GraphWorld
from rlsys.types import Message, Transcript


def transcripts(nodes: tuple[int, int], paths: tuple[int, int], group: int) -> list[Transcript]:
    """Half of the responses contain a mistake."""
    world = GraphWorld(
        GraphConfig(
            train_tasks=2048 // group,
            held_out_tasks=1,
            connectivity_nodes=nodes,
            path_nodes=paths,
            demo_error_rate=0.5,
        )
    )
    batch = []
    for task in world.tasks("train"):
        for seed in range(group):
            reply = world.demonstration(task, seed).messages[-1].content
            batch.append(Transcript(task=task, messages=(Message(role="assistant", content=reply),)))
    return batch


def per_second(action: Callable[[Transcript], object], items: list[Transcript], seconds: float) -> float:
    """Of processor time, so that other work on the machine does not count."""
    calls, started = 0, time.process_time()
    while time.process_time() - started < seconds:
        facts.cache_clear()
        for item in items:
            action(item)
        calls += len(items)
    return calls / (time.process_time() - started)


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--seconds", type=float, default=2.0)
    options = cli.parse_args()
    with Report(options) as report:
        measure(report, options.seconds)


def measure(report: Report, seconds: float) -> None:
    reward = GraphRLReward(GraphRLRewardConfig())
    report.head("graphs", "responses", "characters", "per second")
    for name, nodes, paths in (("4 to 8 nodes", (4, 8), (4, 8)), ("NLGift's 5 to 35", (5, 35), (5, 20))):
        for label, group in (("cold", 1), ("group of 8", 8)):
            items = transcripts(nodes, paths, group)
            size = sum(len(item.messages[0].content) for item in items) / len(items)
            report.row(name, label, round(size), per_second(reward, items, seconds))
    task = transcripts((4, 8), (4, 8), 8)[0].task
    for name, text in (
        ("hostile: 1 MB", hostile(random.Random(0), 1_000_000)),
        ("one line of 1 MB", "0 -> " * 200_000),
    ):
        reply = f"<think></think><response>{text}</response><answer>{text}</answer>"
        item = Transcript(task=task, messages=(Message(role="assistant", content=reply),))
        report.row(name, "one response", len(reply), per_second(reward, [item], seconds))


def hostile(rng: random.Random, length: int) -> str:
    pieces = (
        "0 -> ",
        "1 ",
        "is connected to ",
        ". ",
        "\n",
        "- ",
        "1. ",
        "<answer>",
        "+ 3 ",
        "= ",
        ", ",
        "step 1:",
        "  ",
    )
    return "".join(rng.choice(pieces) for _ in range(length // 5))[:length]


if __name__ == "__main__":
    main()
