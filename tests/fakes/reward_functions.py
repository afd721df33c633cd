"""Reward functions as users write them, right and wrong. A trial imports them in a process, and nothing else."""

import asyncio
import multiprocessing
import os
import random
import re
import subprocess
import time
from pathlib import Path
from typing import Any


def length(completions: Any, **columns: Any) -> list[float]:
    return [float(len(completion[0]["content"])) for completion in completions]


def boom(completions: Any, **columns: Any) -> list[float]:
    raise KeyError("stock")


def boom_on_the_first(completions: Any, level: Any, **columns: Any) -> list[float]:
    return [1 / level[0]]


def insists_on_tags(completions: Any, **columns: Any) -> list[float]:
    return [float(len(completion[0]["content"].split("<answer>")[1])) for completion in completions]


def reads_a_tool(completions: Any, **columns: Any) -> list[float]:
    return [float(completion[1]["role"] == "tool") for completion in completions]


def reads_its_own_form(completions: Any, **columns: Any) -> list[float]:
    return [float(re.search("<score>(.*)</score>", completion[0]["content"]).group(1)) for completion in completions]  # type: ignore[union-attr]


def raises_itself(completions: Any, **columns: Any) -> list[float]:
    raise ValueError("never")


def needs_a_variable(completions: Any, **columns: Any) -> list[float]:
    return [float(os.environ["RLSYS_NOT_HERE"])] * len(completions)


def needs_a_file(completions: Any, **columns: Any) -> list[float]:
    return [float(len(Path("/nowhere/scores").read_text()))] * len(completions)


def starts_a_process(completions: Any, **columns: Any) -> list[float]:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(float, [1] * len(completions))


def leaves_a_process(completions: Any, word: Any, **columns: Any) -> list[float]:
    subprocess.Popen(["sleep", "3600"], env={"PATH": os.environ["PATH"], "WORD": word[0]})
    return [1.0] * len(completions)


def rank(completions: Any, **columns: Any) -> list[float]:
    texts = [completion[0]["content"] for completion in completions]
    return [sorted(texts, key=len).index(text) + 1.0 for text in texts]


async def rank_later(completions: Any, **columns: Any) -> list[float]:
    await asyncio.sleep(0)
    return [value - len(completions) / 2 for value in length(completions)]


def draws(completions: Any, **columns: Any) -> list[float]:
    return [random.random() for _ in completions]


def first_alone(completions: Any, **columns: Any) -> list[float]:
    return [float(len(completions[0][0]["content"]))]


def words(completions: Any, **columns: Any) -> Any:
    return ["good" for _ in completions]


def no_server(completions: Any, **columns: Any) -> Any:
    try:
        raise ConnectionRefusedError(111)
    except OSError as error:
        raise RuntimeError("the judge does not answer") from error


def leaves(completions: Any, **columns: Any) -> Any:
    os._exit(3)


def minutes(completions: Any, **columns: Any) -> Any:
    time.sleep(600)


def writes(completions: Any, **columns: Any) -> list[float]:
    print("seen")
    return [0.0 for _ in completions]


def misspelt(completions: Any, anwser: Any = None) -> list[float]:
    return [float(len(completion[0]["content"])) for completion in completions]


def wants_two_tags(completions: Any, **columns: Any) -> list[float]:
    """As Search-R1's, which is called with the prompt before the response, and passes over the example in it."""
    return [float(completion[-1]["content"].count("</answer>") >= 2) for completion in completions]


def compute_score_em(solution_str: str, ground_truth: Any, method: str = "strict", format_score: float = 0.0) -> float:
    """As Search-R1's, which gives 0 to all that has one <answer>."""
    matches = re.findall("<answer>(.*?)</answer>", solution_str)
    return float(len(matches) >= 2 and matches[-1] == ground_truth)


def finds_the_answer(completions: Any, answer: Any, **columns: Any) -> list[float]:
    """1 for every form of the right one."""
    return [float(answer[0] in completion[-1]["content"]) for completion in completions]


def finds_it_in_tags(completions: Any, answer: Any, **columns: Any) -> list[float]:
    """Nothing without them, and for the right one in them always the same."""
    said = [re.search(r"<answer>\D*?(\d+)", completion[-1]["content"]) for completion in completions]
    return [float(match.group(1) == key) for match, key in zip(said, answer, strict=True)]  # type: ignore[union-attr]


def always_one(completions: Any, **columns: Any) -> list[float]:
    return [1.0 for _ in completions]


def silent(completions: Any, **columns: Any) -> list[float | None]:
    return [None for _ in completions]


async def waits(completions: Any, **columns: Any) -> list[float]:
    return [0.0 for _ in completions]


def unawaited(completions: Any, **columns: Any) -> Any:
    return waits(completions)


def compute_score(solution_str: str, ground_truth: str) -> float:
    return float(solution_str == ground_truth)


def compute_none(solution_str: str, ground_truth: str) -> float:
    raise ValueError(solution_str)
