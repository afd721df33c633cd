"""A report and the episodes of its runs, made up: what a page is drawn from."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from launch.run_dir.directory import read_directory
from launch.run_dir.episodes import Episodes, read_episodes
from launch.tools.report.kept import Room
from launch.tools.report.page import ROOM, write_page
from rlsys.dialogue import Dialogue
from rlsys.jsonl import json_line, json_object
from rlsys.records import make_record, to_json
from rlsys.types import Message, Task
from tests.makers import made

STEPS, GROUPS, SIBLINGS = 8, 3, 4
WORDS = ["the sum", "of", "3 boxes", "9 cards each", "so", "27", "and", "35 more", "makes", "62"]
LONG = [f"word{number:03d} "[:8] for number in range(1000)]
TOOL = {"role": "tool", "content": "<result>27</result>"}


def write_run(
    folder: Path,
    *,
    steps: int = STEPS,
    groups: int = GROUPS,
    siblings: int = SIBLINGS,
    tasks: int = 5,
    padding: int = 0,
    text: str = "",
    names: Sequence[str] = (),
    distinct: int = 20,
) -> Path:
    """A run directory with rows, an evaluation and episodes. text: what the model and the tools say besides.

    distinct: steps with episodes of their own; those after them repeat these.
    names: of tasks, one after the other.
    padding: characters that each tool result is longer, about.
    """
    rng = random.Random(0)
    (folder / "trajectories").mkdir(parents=True)
    (folder / "config.yaml").write_text("recipe: {name: made}\nseed: 0\nstages: [{name: rl, kind: rl}]\n")
    tokenizer = byte_tokenizer()
    (folder / "model").mkdir()
    tokenizer.save(str(folder / "model/tokenizer.json"))
    rows = [
        {"step": step, "stage": "rl", "stage_step": step, "reward/mean": step / steps} for step in range(1, steps + 1)
    ]
    (folder / "metrics.jsonl").write_bytes(b"".join(map(json_line, rows)))
    sequence = 0
    for step in range(1, min(steps, distinct) + 1):
        lines = []
        for _ in range(groups):
            task = {
                "task_id": names[sequence % len(names)] if names else f"word-{sequence % tasks:04d}",
                "question": f"Ann buys {text}",
                "answers": ["62"],
            }
            for sibling in range(siblings):
                lines.append(episode(rng, tokenizer, task, sequence, sibling, step, padding, text))
            sequence += 1
        (folder / f"trajectories/step-{step:06d}.jsonl").write_bytes(b"".join(map(json_line, lines)))
    for step in range(distinct + 1, steps + 1):
        first = folder / f"trajectories/step-{step % distinct + 1:06d}.jsonl"
        (folder / f"trajectories/step-{step:06d}.jsonl").write_bytes(first.read_bytes())
    played = [episode(rng, tokenizer, {"task_id": f"held-{n}"}, n, 0, 0, 0, text, graded=False) for n in range(6)]
    (folder / "trajectories/eval-rl-after-greedy.jsonl").write_bytes(b"".join(map(json_line, played)))
    evaluation = {"step": steps, "stage": "rl", "when": "after", "greedy/episodes": 6, "greedy/accuracy": 0.5}
    (folder / "evaluations.jsonl").write_bytes(json_line(evaluation))
    return folder


def byte_tokenizer() -> Tokenizer:
    """A token for each byte, and one for a word."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)} | {"th": 256, "the": 257}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def episode(
    rng: random.Random,
    tokenizer: Tokenizer,
    task: Mapping[str, Any],
    sequence: int,
    sibling: int,
    step: int,
    padding: int,
    text: str,
    graded: bool = True,
) -> dict[str, Any]:
    first = f"I take {' '.join(rng.choices(WORDS, k=12))} – élan 漢. {text}\n<calculator>3 * 9</calculator>"
    last = f"{rng.choice(WORDS)}, therefore {rng.choice(['<answer>62</answer>', '<answer>60</answer>', '62'])}"
    ids = [tokenizer.encode(first.encode("utf-8", "replace").decode()).ids, [*tokenizer.encode(last).ids, 258]]
    right = "<answer>62</answer>" in last
    failed = graded and rng.random() < 0.03
    reward = None if failed else (1.0 if right else 0.0) + (0.1 if "answer" in last else 0.0)
    line: dict[str, Any] = {
        "task": dict(task),
        "sequence": sequence,
        "sibling": sibling,
        "attempt": 0,
        "worker": "rollout:0",
        "prompt": [
            {"role": "system", "content": "Solve the task. Use <calculator>..</calculator>, then <answer>..</answer>."},
            {"role": "user", "content": f"Ann buys 3 boxes of 9 cards each and finds 35 more. How many? {text}"},
        ],
        "messages": [
            {"role": "assistant", "content": first},
            {**TOOL, "content": f"<result>27</result> {text}{' '.join(rng.choices(LONG, k=padding // 8))}"},
            {"role": "assistant", "content": last},
        ],
        "end": "failed" if failed else "answered" if "answer" in last else "malformed",
        "truncated": False,
        "reward": reward,
        "parts": {}
        if failed
        else {**({text: 0.5} if text else {}), "correct": float(right), "format": 0.1 if "answer" in last else 0.0},
        "advantage": None if failed else round((reward or 0.0) - 0.5, 3),
        "num_tokens": sum(map(len, ids)),
        "token_ids": ids,
        "weight_versions": [[[step, 0, len(turn) // 2], [step + 1, len(turn) // 2, len(turn)]] for turn in ids],
        "logprobs": [halves([-rng.expovariate(1.5) for _ in turn]) for turn in ids],
        "seconds": {"generate": 0.4, "tool": 0.01, "score": 0.001},
    }
    if text:
        line |= {
            "judgements": [text, text],
            "metrics": {text: 1},
            "state": {text: [text]},
            "worker": text,
            "trace": text,
        }
        line["retried"] = [{"kind": "data", "where": text, "detail": text}]
    if failed:
        line["failure"] = {"kind": "timeout", "where": "tool", "detail": f"no answer within 10 s {text}"}
    else:
        line["correct"] = right
        line["findings"] = [
            {"message": 2, "start": 7, "end": 14, "rule": "format" + text, "value": 0.1, "text": first[7:14]},
        ]
    return line


# Of an agent's requests: which one it continues, what it asked, and what it was answered.
ASKED = (
    (None, [("system", "You plan trips."), ("user", "Two days in Lyon?")], "<search>trains to Lyon</search>"),
    (0, [("tool", "One at 8:04, one at 10:04.")], "Take the one at 8:04. What does a room cost?"),
    (0, [("tool", "One at 8:04, one at 10:04.")], "Take the one at 10:04."),
    (None, [("user", "Two days?"), ("assistant", "(shortened) 8:04."), ("user", "Is it cheap?")], "It costs 35."),
    (None, [("user", "A room in Lyon?")], "One costs 62."),
    (4, [("user", "And a cheaper one?")], "None does."),
    (1, [("user", "62.")], "Then <answer>97</answer>"),
)


def agent_episode(text: str = "", sequence: int = 900, **state: Any) -> dict[str, Any]:
    """A line of an agent that asked for two choices, retold its history, and let another agent work."""
    dialogue, tokenizer = Dialogue(), byte_tokenizer()
    for after, heard, answer in ASKED:
        dialogue.hear([Message(role=role, content=content + text) for role, content in heard], after=after)
        before = [] if after is None else dialogue.seen(after).tolist()
        context = made.ints(before + tokenizer.encode(" ".join(content for _, content in heard)).ids)
        dialogue.say(context, made.completion(tokenizer.encode(answer).ids, answer + text))
    turns, messages, num_prompt = dialogue.lay_out()
    state = {"exit": 0, "conversations": 3, "output": f"planning\n{text}", "returned": {"reward": 1.0}, **state}
    task = Task(task_id="trip", question="Two days in Lyon?", answers=("97",))
    played = replace(made.trajectory(task=task, messages=messages, num_prompt=num_prompt, state=state), turns=turns)
    group = made.group(made.ticket(sequence, task=task), played)
    return json_object(json_line(to_json(make_record(played, group, advantage=0.5, logprobs=True))), "here")


def halves(values: Sequence[float]) -> str:
    return base64.b64encode(np.array(values, "<f2").tobytes()).decode()


def episodes_of(run: Path) -> Episodes:
    return read_episodes(read_directory(run))


def example_report(names: Sequence[str] = ("made",), steps: int = 245, text: str = "") -> dict[str, Any]:
    """As `report.json` has it. text: hostile, in all that others name."""
    rng, xs = random.Random(1), list(range(1, steps + 1))

    def line(begin: float, end: float, noise: float, label: str, run: int = 0, **more: Any) -> dict[str, Any]:
        ys = [begin + (end - begin) * (1 - 0.985**x) + rng.gauss(0, noise) for x in xs]
        return {
            "label": label,
            "run": run,
            "stage": "rl",
            "kind": "line",
            "x": xs,
            "y": [round(max(y, 0), 5) for y in ys],
            "low": None,
            "high": None,
            "hours": [round(x * 0.45 / 3600, 5) for x in xs],
        } | more

    def chart(title: str, unit: str, *series: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        marks = [{"x": 200, "label": f"stage rl{text}", "kind": "stage"}, {"x": 100, "label": "", "kind": "evaluation"}]
        measured = [y for y in series[0]["y"] if y is not None]
        return {
            "title": title + text,
            "unit": unit,
            "about": "mean over the step's graded trajectories",
            "x": "step",
            "log": False,
            "stacked": False,
            "limit": None,
            "series": list(series),
            "marks": marks,
            "summary": f"last {measured[-1]:.2f}; first {measured[0]:.2f}",
        } | more

    several = len(names) > 1
    label = (lambda name, run_name: run_name) if several else (lambda name, run_name: name)
    runs = [(run, name) for run, name in enumerate(names)]
    dots = {
        "kind": "dots",
        "x": [0, 120, 245],
        "y": [0.72, 0.88, 0.93],
        "low": [0.66, 0.83, 0.89],
        "high": [0.78, 0.92, 0.96],
        "hours": [0, 0.015, 0.03],
    }
    charts = {
        "reward": chart("Reward", "", *(line(0.55, 1.05, 0.05, label("mean", name), run) for run, name in runs)),
        "correct": chart(
            "Right answers",
            "share",
            *(line(0.5, 0.94, 0.04, label("training", name), run) for run, name in runs),
            line(0, 0, 0, "held out, greedy", **dots),
        ),
        "signal": chart(
            "Groups with signal", "share", *(line(0.8, 0.26, 0.06, label("trained", name), run) for run, name in runs)
        ),
        "entropy": chart("Entropy", "nats", line(0.9, 0.2, 0.01, "entropy", low=[0.1] * steps, high=[0.8] * steps)),
        "mismatch": chart(
            "Engine against learner",
            "log-prob",
            line(1e-6, 9e-6, 1e-6, "largest gap"),
            log=True,
            limit={"y": 0.1, "label": "limit 0.1"},
        ),
        "seconds": chart(
            "Seconds of a step",
            "s",
            *(line(a, a, 0.02, name, kind="area") for name, a in (("update", 0.1), ("rollouts", 0.09), ("rest", 0.02))),
            stacked=True,
        ),
    }
    gaps = [None if x % 3 else 1e-5 for x in xs]
    charts["gaps"] = chart("With gaps", "", line(0, 0, 0, "gap", y=gaps))
    headline = "done, 245 steps in 1:50 · grpo · 0.72 M parameters · 1 engine + 1 rank, CPU · rlsys 0.1.0 (548c04b)"
    verdict = (
        "It learned. Held-out accuracy, greedy, 200 tasks: 0.72 [0.66, 0.78] → 0.93 [0.89, 0.96]; "
        "on the same tasks +0.21 [+0.15, +0.27], p = 6e-12."
    )
    return {
        "format": 1,
        "title": " · ".join(names) + text,
        "runs": [
            {
                "name": name + text,
                "label": name + text,
                "status": "done",
                "headline": headline,
                "verdict": {"level": "good", "text": verdict},
            }
            for name in names
        ],
        "trust": {"level": "good", "text": f"as far as one seed tells: lag and gap are within their limits.{text}"},
        "tiles": [
            {
                "label": "reward, last 10 steps",
                "value": "1.04",
                "note": "first 10: 0.59",
                "level": "none",
                "link": "#chart/reward",
            },
            {
                "label": "groups without signal",
                "value": "49 %",
                "note": "last 10 steps 74 %",
                "level": "warn",
                "link": "#chart/signal",
            },
            {"label": "lag, most", "value": "1", "note": "bound 1", "level": "ok", "link": None},
            {
                "label": "engine–learner gap",
                "value": "9.5e-06",
                "note": "limit 0.1",
                "level": "ok",
                "link": "#chart/mismatch",
            },
            {"label": "failures", "value": "0", "note": "0 tried again", "level": "ok", "link": "#t?failed=any"},
            {"label": "engine busy", "value": "94 %", "note": "learner 49 %", "level": "ok", "link": None},
        ],
        "advice": [
            {
                "level": "wrong",
                "text": "74 % of the groups of the last 10 steps carry no signal; right answers are at 94 %: the tasks "
                f"have become easy.{text}",
                "key": f"curriculum.name=difficulty{text}",
                "link": {"label": "238 groups", "href": "#t?step=236-245&reward>0.5"},
            },
            *({"level": "cheap", "text": f"Advice number {n}.", "key": None, "link": None} for n in range(2, 8)),
        ][: 1 if not text else 7],
        "time": {
            "total_s": 50.5,
            "parts": [
                {"label": "update" + text, "seconds": 23.7, "share": 0.47},
                {"label": "waiting for rollouts", "seconds": 21.2, "share": 0.42},
                {"label": "build", "seconds": 2.5, "share": 0.05},
                {"label": "other", "seconds": 3.0, "share": 0.06},
            ],
        },
        "sections": [
            {"id": "first", "question": "", "open": True, "charts": list(charts)[:6], "tables": []},
            {"id": "learn", "question": "Did it learn?", "open": True, "charts": [], "tables": ["evaluations"]},
            {"id": "folded", "question": "Is it on policy?", "open": False, "charts": ["gaps"], "tables": []},
        ],
        "charts": charts,
        "tables": {
            "evaluations": {
                "title": "Evaluations" + text,
                "columns": ["when", "step", "accuracy", "interval" + text],
                "rows": [["rl before", 0, "0.72", "[0.66, 0.78]"], ["rl after", 245, "0.93", "[0.89, 0.96]" + text]],
                "links": [[1, "#t?play=greedy"]],
            }
        },
        "config": {"differs": [f"learner.lr=1e-3{text}"], "text": f"recipe:\n  name: made{text}\nseed: 0\n"},
        "numbers": {
            "reward/mean": {"about": "over the step's graded trajectories", "last": 1.04, "min": 0.4, "max": 1.1},
            f"reward/part/{text or 'format'}": {"about": None, "last": 0.1, "min": float("nan"), "max": float("inf")},
        },
        "events": [
            {"time": 1.0, "step": 12, "stage": "rl", "kind": "restart", "who": "rollout:0", "text": f"died{text}"}
        ],
    }


def make_page(
    folder: Path,
    names: Sequence[str] = ("made",),
    text: str = "",
    task_names: Sequence[str] = (),
    room: Room | None = ROOM,
    **run: Any,
) -> str:
    runs = [write_run(folder / f"run-{at}", text=text, names=task_names, **run) for at in range(len(names))]
    write_page(example_report(names, text=text), [episodes_of(path) for path in runs], folder / "report.html", room)
    return (folder / "report.html").as_uri()
