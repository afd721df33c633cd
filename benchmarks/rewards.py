"""How fast rewards and the grader are: `python benchmarks/rewards.py`. Prints the table of docs/rewards/README.md.

One core scores; the grader has two workers. Half a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from report import Report, parser

from envs.rewards import REWARDS, make_reward
from envs.rewards.maths.grader import Grader
from rlsys.choices import choose
from rlsys.types import Message, Task, Transcript

SECONDS = 1.0  # each measurement lasts at least this long
HANGS = "9^{9^{9^9}}"
DOCUMENTS = '"Paris"\nParis is the capital and the largest city of France. ' * 40
RESPONSES = {
    "answer": "<answer>24</answer>",
    "research": "<think>so</think> <answer> \\[ \\boxed{Paris, France} \\] </answer>",
    "icrl": "<think>so</think><answer>Paris</answer>",
    "long_cot": "wait, let me check that again. " * 400 + "\\boxed{\\frac{1}{2}}",
    "swirl": "<answer>Paris</answer>",
    "proscript": "step3->step1->step2",
    "multiple_choice": "I weigh each of them. The answer is B.",
}


def transcript(name: str) -> Transcript:
    """One search, its documents, and the answer."""
    golds = {"multiple_choice": ("B",), "long_cot": ("0.5",), "answer": ("24",)}.get(name, ("Paris",))
    record = {
        "options": {"A": "Rome", "B": "Paris", "C": "Oslo", "D": "Bern"},
        "steps": ["fetch", "pour", "find"],
        "constraints": [["step2", "step1"], ["step0", "step1"]],
    }
    return Transcript(
        task=Task(task_id="benchmark", question="q", answers=golds, record=record),
        messages=(
            Message(role="assistant", content="<think>first</think><search>capital of France</search>"),
            Message(role="tool", content=f"<result>{DOCUMENTS}</result>"),
            Message(role="assistant", content=RESPONSES[name]),
        ),
        token_ids=tuple(range(4000)) if name == "long_cot" else None,
        judgements=("so GOOD", "so BAD"),
    )


def rate(call: Callable[[], Any]) -> float:
    """Calls per second, after one that warms up."""
    call()
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        for _ in range(10):
            call()
        calls += 10
    return calls / (time.perf_counter() - started)


async def gradings(grader: Grader, pairs: list[tuple[str, str]]) -> tuple[float, list[object]]:
    """Seconds for all of them at once, and the verdicts."""
    started = time.perf_counter()
    verdicts = await asyncio.gather(*(grader.grade(*pair) for pair in pairs), return_exceptions=True)
    return time.perf_counter() - started, list(verdicts)


def simple(count: int) -> list[tuple[str, str]]:
    """Half of them right."""
    forms = (r"\frac{%d}{2}", r"\{%d, 2\}", r"(%d, 2)", "%d cm", r"\boxed{%d\%%}")
    golds = ("%d/2", "2, %d", r"\left(%d,2\right)", "%d", "%d")
    return [(forms[k % 5] % (k + 7), golds[k % 5] % (k + 7 + k % 2)) for k in range(count)]


def algebraic(count: int, first: int) -> list[tuple[str, str]]:
    return [(rf"{k}\sqrt{{2}}", rf"\sqrt{{{2 * k * k}}}") for k in range(first, first + count)]


async def main(report: Report) -> None:
    report.head("what", "per second")
    for name in RESPONSES:
        reward, example = make_reward(choose("reward", REWARDS, name).schema()), transcript(name)
        report.row(f"reward `{name}`", rate(partial(reward, example)))
    with Grader(workers=2, deadline_s=5.0) as grader:
        seconds, verdicts = await gradings(grader, simple(20_000))
        assert all(isinstance(verdict, bool) for verdict in verdicts)
        report.row("gradings, simple (fractions, tuples, units, per cent), one core", 20_000 / seconds)
        await gradings(grader, algebraic(4, 2))
        seconds, verdicts = await gradings(grader, algebraic(400, 10))
        assert verdicts == [True] * 400
        report.row("gradings, algebra, two workers", 400 / seconds)
        mixed = simple(5_000) + [(HANGS, "17")] + algebraic(200, 1000)
        seconds, verdicts = await gradings(grader, mixed)
        right = sum(verdict is True for verdict in verdicts[-200:])
        report.note(
            f"5,201 answers at once, one of which hangs: {seconds:.1f} s with a deadline of 5 s, "
            f"{grader.hopeless} hopeless, {right} of the 200 other algebraic ones graded right, "
            f"{grader.respawns} respawns"
        )


if __name__ == "__main__":
    with Report(parser(__doc__).parse_args()) as shown:
        asyncio.run(main(shown))
