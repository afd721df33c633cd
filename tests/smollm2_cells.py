"""SmolLM2 through everything that a run can be, in both formats: each cell is as short as it can be.

`python -m tests.smollm2_cells docs/models.md [float32 grpo ...]` runs the cells whose names hold one of the words, or
all, and writes seconds and verdicts into the page's table, beside those that it did not run.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests import smollm2
from tests.e2e.runs import Result, rlsys, rows, summary

DTYPES = ("float32", "bfloat16")
CLOSE = {"float32": 1e-3, "bfloat16": 0.15}  # nats a token between engine and learner, in the mean
BEGIN, END = "<!-- smollm2 -->", "<!-- end -->"
BASE: Mapping[str, Any] = {
    "extends": "worlds/sums",
    "name": "smollm2",
    "reward": {"name": "functions", "functions": {"tests.smollm2_cells.letters": 1.0}},
    "engine": {"max_model_len": 320, "max_num_seqs": 8, "kv_cache_mb": 256},
    "rollout": {"max_turn_tokens": 16, "episode_timeout_s": 600},
    "loop": {"groups_per_step": 2, "group_size": 2},
    "learner": {"lr": 1e-5},
    "eval": {"tasks": 2, "samples": 0},
    "tracker": "none",
}
RL = {"name": "rl", "kind": "rl", "steps": 1}
TRIES = {"name": "tries", "kind": "generate", "generate": {"samples": 4, "temperature": 0.9, "tasks": 4}}


def letters(completions: Any, **kwargs: Any) -> list[float]:
    """The share of the letter e: siblings differ, so that there is something to learn."""
    texts = ["".join(message["content"] for message in completion) for completion in completions]
    return [text.count("e") / max(1, len(text)) for text in texts]


class Cell:
    """A folder to work in and the model, in a format."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self.folder, self.dtype, self.run = folder, dtype, folder / "run"
        self.model = {"path": str(smollm2.fetch()), "dtype": dtype}

    def recipe(self, *stages: Mapping[str, Any], **more: Any) -> str:
        model = {**self.model, **more.pop("model", {})}
        path = self.folder / "recipe.yaml"
        path.write_text(yaml.safe_dump({**BASE, "model": model, **more, "stages": [dict(stage) for stage in stages]}))
        return str(path)

    def train(self, *stages: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
        """The rows of a run that came to its end."""
        result = rlsys("train", self.recipe(*stages, **more), "--run-dir", str(self.run))
        return self.ended(result)

    def ended(self, result: Result) -> list[dict[str, Any]]:
        assert result.code == 0, result.output[-3000:]
        assert summary(self.run)["status"] == "done"
        steps = rows(self.run)
        gaps = [row[name] for row in steps for name in ("mismatch/mean", "mismatch/probe_mean") if name in row]
        assert all(gap < CLOSE[self.dtype] for gap in gaps), gaps
        return steps

    def play(self, command: str, *words: str, **more: Any) -> None:
        output = self.folder / "output.jsonl"
        result = rlsys(command, self.recipe(RL, **more), f"--output={output}", *words)
        assert result.code == 0 and output.is_file(), result.output[-3000:]


def sft(cell: Cell) -> None:
    assert len(cell.train({"name": "sft", "kind": "sft", "steps": 2, "loop": {"groups_per_step": 4}})) == 2


def grpo(cell: Cell) -> None:
    assert len(cell.train({**RL, "steps": 2})) == 2


def ppo(cell: Cell) -> None:
    """With a critic."""
    (row,) = cell.train(RL, algorithm={"name": "ppo"})
    assert "loss/critic_total" in row


def dpo(cell: Cell) -> None:
    stage = {"name": "dpo", "kind": "dpo", "data": "tries", "epochs": 1, "algorithm": {"name": "dpo"}}
    assert cell.train(TRIES, {**stage, "loop": {"groups_per_step": 2}})


def opd(cell: Cell) -> None:
    """Its own teacher: both give the same log-probabilities, to rounding."""
    (row,) = cell.train(RL, algorithm={"name": "opd"}, learner={"lr": 1e-5, "reference": cell.model["path"]})
    assert abs(row["advantage/mean"]) < CLOSE[cell.dtype]


def adapter(cell: Cell) -> None:
    assert cell.train(RL, model={"lora": {"rank": 8}})


def evaluate(cell: Cell) -> None:
    cell.play("eval", "eval.tasks=2")


def generate(cell: Cell) -> None:
    cell.play("generate", "--tasks=2", "--samples=2")


def tools(cell: Cell) -> None:
    """Its template shows no tools: native is refused before anything starts, and hermes is played."""
    words = [f"model.{key}={value}" for key, value in cell.model.items()]
    refused = rlsys("train", "worlds/tools", "--dry-run", *words)
    assert refused.code == 2 and "env.protocol=hermes" in refused.output, refused.output[-3000:]
    output = cell.folder / "output.json"
    short = ["eval.tasks=2", "eval.samples=0", "engine.max_model_len=2048", "engine.kv_cache_mb=256"]
    short += ["engine.max_num_seqs=4", "rollout.max_turn_tokens=32", "env.max_turns=2"]
    result = rlsys("eval", "worlds/tools", f"--output={output}", "env.protocol=hermes", *short, *words)
    assert result.code == 0 and output.is_file(), result.output[-3000:]


def resume(cell: Cell) -> None:
    path = cell.recipe({**RL, "steps": 4}, checkpoint={"every": 1})
    command = ("train", path, "--run-dir", str(cell.run))
    killed = rlsys(*command, send=signal.SIGKILL, when=lambda: any(cell.run.glob("checkpoints/step-*/driver.json")))
    assert killed.code == -signal.SIGKILL, killed.output[-3000:]
    assert [row["step"] for row in cell.ended(rlsys(*command, "--resume"))] == [1, 2, 3, 4]


def export(cell: Cell) -> None:
    """What a run leaves is read by transformers, and played by an engine."""
    from transformers import AutoModelForCausalLM

    cell.train(RL)
    folder = max(cell.run.glob("checkpoints/step-*/hf"))
    before, after = (AutoModelForCausalLM.from_pretrained(str(path)) for path in (cell.model["path"], folder))
    assert after.config.tie_word_embeddings and after.num_parameters() == before.num_parameters()
    moved = (after.get_input_embeddings().weight.float() - before.get_input_embeddings().weight).abs().max().item()
    assert 0 < moved < (1e-3 if cell.dtype == "float32" else 1e-2)
    cell.play("eval", f"--checkpoint={folder}", "eval.tasks=2")


def ranks(cell: Cell) -> None:
    assert cell.train(RL, learner={"lr": 1e-5, "ranks": 2})


CELLS: Mapping[str, Callable[[Cell], None]] = {
    "sft": sft,
    "grpo": grpo,
    "ppo with a critic": ppo,
    "dpo": dpo,
    "opd": opd,
    "an adapter": adapter,
    "eval": evaluate,
    "generate": generate,
    "native refused, hermes played": tools,
    "killed in the middle and resumed": resume,
    "export, read by transformers and vLLM": export,
    "two ranks": ranks,
}


def run_cell(name: str, dtype: str, folder: Path) -> float:
    """Seconds of the commands, those that were ended included. Raises AssertionError where a cell fails."""
    started = time.monotonic()
    CELLS[name](Cell(folder, dtype))
    return time.monotonic() - started


def write_table(page: Path, outcomes: Mapping[str, str]) -> None:
    """`outcomes`: what a cell ("grpo, float32") came to. The others stay as the page has them."""
    text = page.read_text()
    head, rest = text.split(BEGIN)
    table, tail = rest.split(END)
    entries = {}
    for row in re.findall(r"^\| (.+?) \| (.*?) \| (.*?) \|$", table, re.M):
        entries |= {f"{row[0]}, {dtype}": outcome for dtype, outcome in zip(DTYPES, row[1:], strict=True)}
    entries |= outcomes
    lines = ["| SmolLM2-135M-Instruct | float32 | bfloat16 |", "|---|---|---|"]
    for name in CELLS:
        lines.append(f"| {name} | " + " | ".join(entries.get(f"{name}, {dtype}", "not run") for dtype in DTYPES) + " |")
    page.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{tail}")


def main(page: str, words: list[str]) -> int:
    """The number of cells that failed."""
    failed = 0
    for dtype in DTYPES:
        for name in CELLS:
            if words and not any(word in f"{name}, {dtype}" for word in words):
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    outcome = f"{run_cell(name, dtype, Path(folder)):.0f} s"
                except AssertionError as error:
                    failed, outcome = failed + 1, "**fails**"
                    print(json.dumps({"cell": f"{name}, {dtype}", "error": str(error)[-1500:]}), flush=True)
            print(f"{name}, {dtype}: {outcome}", flush=True)
            write_table(Path(page), {f"{name}, {dtype}": outcome})
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]) > 0)
