"""What reward a pretrained model starts from in each shipped world: `python benchmarks/starts.py --model FOLDER`.

Each row is a set of `rlsys eval`: the questions of a world's own file in `configs/` with their reward, as a model that
nobody tuned for them is asked: greedily and sampled at 1.0, with the environment's own instruction in the place of none
(a policy from nothing would only read past it), through the chat template, where the world has `env.template` also as
one plain text, and where it has `env.demonstrations` also with three worked examples in the prompt.

The rows of a world share one start of the engine. Each world's result is written into `--rows` as it ends, and what
stands there is not played again: the same command continues. Rows of another model, seed or number of tasks are
refused: they belong in a file of their own. Without `--model` the rows are printed, and nothing is played.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from report import Report, parser

ROOT = Path(__file__).resolve().parents[1]
CHAT: dict[str, Any] = {}
BASE = {"template": "base"}
EXAMPLES = {"demonstrations": {"count": 3}}
WAYS = {"chat": CHAT, "base": BASE, "chat, 3 examples": EXAMPLES, "base, 3 examples": {**BASE, **EXAMPLES}}
ANSWER = {"name": "long_cot", "kind": "base_model"}  # the answer alone, whatever its length
LAST = {"name": "answer", "reads": "last_number", "format": 0.0}
SAID = {"style": "free", "instruction": ""}
FRAME = {"before": "Solved problems follow.", "after": "===============Example 4==============="}
SHOWN = {"topk": 3, "instruction": "", "demonstrations": {"count": 3, **FRAME}}
KINDS, METRICS = ("greedy", "sampled"), ("accuracy", "mean_reward", "tokens", "truncated", "calls", "valid_calls")
# A world from nothing has messages of a few tokens: a chat model begins with a sentence.
MESSAGE_TOKENS, RESPONSE_TOKENS, WINDOW = 128, 384, 2048


@dataclass(frozen=True)
class World:
    """The rows of one file of `configs/`."""

    file: str
    ways: tuple[str, ...] = ("chat",)
    env: dict[str, Any] = field(default_factory=dict)  # changes
    reward: dict[str, Any] | None = None  # in place of the file's
    message_tokens: int = MESSAGE_TOKENS
    changed: str = ""  # of the file, in words
    most: int = 1000  # held-out tasks that the file can give


WORLDS = {
    "sums": World("worlds/sums", ("chat", "base"), reward=ANSWER),
    "search": World("worlds/search", ("chat", "base"), most=75),
    "icrl": World("icrl/tiny", tuple(WAYS)),
    "research": World("research/tiny", ("chat", "base")),
    "swirl": World("swirl/tiny", reward={"name": "answer"}),
    "calculator": World("worlds/calculator"),
    "python": World("worlds/python", ("chat", "chat, 3 examples"), reward=ANSWER),
    "tools": World(
        "worlds/tools", env={"protocol": "hermes"}, changed="calls as text"
    ),  # SmolLM2's template shows none
    "reasoning_gym": World("worlds/reasoning_gym", message_tokens=64),
    "graph": World("worlds/graph"),
    "graph_rl": World("graph_rl/tiny"),
    "blocksworld": World("worlds/blocksworld"),
    "games": World("worlds/games", message_tokens=16),
    "long_cot": World("long_cot/tiny", reward=ANSWER),
    # Easier ends.
    "sums_said": World(
        "worlds/sums", env={**SAID, "sums": {"max_terms": 2}}, reward=LAST, changed="two terms, said freely"
    ),
    "icrl_shown": World("icrl/tiny", ("base",), env=SHOWN, changed="3 examples in another frame, 3 passages"),
}


def recipe(names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """All rows of these worlds as sets of one evaluation, none with a key of another."""
    return {
        "name": "starts",
        "seed": options.seed,
        "model": {"path": str(options.model), "dtype": options.dtype},
        "env": {"name": "questions"},
        "reward": {"name": "answer"},
        "engine": {"max_model_len": WINDOW, "max_num_seqs": 64, "kv_cache_mb": 1536},
        "rollout": {"max_turn_tokens": MESSAGE_TOKENS, "max_response_tokens": RESPONSE_TOKENS},
        "eval": {
            "tasks": options.tasks,
            "samples": 1,
            "sets": {
                set_name(name, way): row(WORLDS[name], way, options) for name in names for way in WORLDS[name].ways
            },
        },
        "stages": [{"name": "test", "kind": "eval"}],
    }


def row(world: World, way: str, options: argparse.Namespace) -> dict[str, Any]:
    config = yaml.safe_load((ROOT / "configs" / f"{world.file}.yaml").read_text())
    env = {key: value for key, value in config["env"].items() if (key, value) != ("instruction", "")}
    env = {key: value for key, value in (env | world.env).items() if value is not None}
    env |= {"held_out_tasks": min(options.tasks, world.most), "train_tasks": 256, **WAYS[way]}  # none is trained on
    return {"env": env, "reward": world.reward or config["reward"], "max_turn_tokens": world.message_tokens}


def set_name(world: str, way: str) -> str:
    return f"{world}-{way}".replace(", ", "-").replace(" ", "-")


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """What all rows of a file have in common."""
    keys = ("seed", "tasks", "dtype")
    return {"model": Path(options.model).resolve().name, **{key: getattr(options, key) for key in keys}}


def missing(rows: dict[str, dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """The worlds that have a row to be played. Raises SystemExit where the file has rows of something else."""
    if options.model is None:
        return []
    mismatch = next((name for name, row in rows.items() if row.get("asked") != asked(options)), None)
    if mismatch is not None:
        theirs = rows[mismatch].get("asked", "of a model that they do not name")
        raise SystemExit(f"--rows {options.rows}: {mismatch} is {theirs}, not {asked(options)}: give another file")
    return [name for name in options.worlds if any(set_name(name, way) not in rows for way in WORLDS[name].ways)]


def play(names: list[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """By the name of the set, what `rlsys eval` found."""
    options.folder.mkdir(parents=True, exist_ok=True)
    file, out = options.folder / f"{names[0]}.yaml", options.folder / f"{names[0]}.json"
    file.write_text(json.dumps(recipe(names, options)))  # JSON is YAML
    more = ["--resume"] if out.with_suffix(".transcripts").is_dir() else []
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "launch", "eval", str(file), "--output", str(out), *more]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True)
    result = json.loads(out.read_text())
    return {
        set_name(name, way): {
            "file": WORLDS[name].file,
            "asked": asked(options),
            "way": ", ".join(filter(None, [WORLDS[name].changed, way])),
            **{kind: summary(result["plays"][f"{set_name(name, way)}/{kind}"], result, f"{set_name(name, way)}/{kind}")
               for kind in KINDS},
        }
        for name in names for way in WORLDS[name].ways
    }  # fmt: skip


def summary(play: dict[str, Any], result: dict[str, Any], name: str) -> dict[str, Any]:
    means = {key: play["metrics"][key] for key in METRICS if key in play["metrics"]}
    intervals = {key: [metric["value"], metric["low"], metric["high"]] for key, metric in means.items()}
    return {"episodes": result["episodes"][name], "ends": result["ends"][name], **intervals}


def table(rows: dict[str, dict[str, Any]], report: Report) -> None:
    report.head(
        "world, how it is asked", "reward, greedy", "sampled", "right, greedy", "sampled", "cut off", "episodes"
    )
    for row in rows.values():
        greedy, sampled = row["greedy"], row["sampled"]
        report.row(
            f"`{row['file']}`, {row['way']}", *(mean(play, "mean_reward") for play in (greedy, sampled)),
            *(mean(play, "accuracy") for play in (greedy, sampled)), mean(sampled, "truncated"),
            sum(play["episodes"] for play in (greedy, sampled)),
        )  # fmt: skip


def mean(play: dict[str, Any], metric: str) -> str:
    return f"{play[metric][0]:.2f}" if metric in play else ""


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--model", type=Path, help="folder of the pretrained model; without it nothing is played")
    cli.add_argument("--worlds", nargs="*", choices=WORLDS, default=list(WORLDS), metavar="NAME")
    cli.add_argument("--together", type=int, default=4, help="worlds that share one start of the engine")
    cli.add_argument("--tasks", type=int, default=100)
    cli.add_argument("--dtype", default="float32")
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--folder", type=Path, default=ROOT / "build" / "starts", help="of the evaluations themselves")
    cli.add_argument("--rows", type=Path, default=ROOT / "docs" / "starts.json", help="what was found, by row")
    options = cli.parse_args()
    rows: dict[str, Any] = json.loads(options.rows.read_text()) if options.rows.is_file() else {}
    pending = missing(rows, options)
    while pending:
        names, pending = pending[: options.together], pending[options.together :]
        rows |= play(names, options)
        options.rows.write_text(json.dumps(rows, indent=1) + "\n")
    with Report(options) as report:
        table(rows, report)


if __name__ == "__main__":
    main()
