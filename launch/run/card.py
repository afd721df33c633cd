"""What somebody needs who gets a checkpoint's `hf/` alone: a card, and the strings at which a message ends.

A policy that its engine stopped at a string never learned to end a message: without these strings it writes on. They go
into `generation_config.json`, where transformers looks for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.run.checkpoints import CARD
from launch.run.provenance import versions
from rlsys.files import replace_file

if TYPE_CHECKING:
    from envs.base import World
    from rlsys.config import RunConfig, StageConfig

GENERATION = "generation_config.json"
SHOWN = 4000  # characters of a prompt
LOW, HIGH = "_low", "_high"

HEAD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [rlsys, reinforcement-learning]
---

# {name}

Step {step} of the recipe `{name}`, in stage `{stage}`, with rlsys {rlsys}; the run began with {model}. The whole
configuration is the run's `config.yaml`.

| | |
|---|---|
| environment | `{env}`{protocol} |
| reward | `{reward}` |
| algorithm | `{algorithm}` |
| a message ends at | {stop} |
"""
USE = """
## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER)
ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_tensors="pt", return_dict=True)
out = model.generate(**ids, tokenizer=tokenizer, max_new_tokens={tokens})
print(tokenizer.decode(out[0, ids["input_ids"].shape[1]:]))
```

{stops}"""
STOPS = """`generation_config.json` holds the stop strings: because of them transformers asks for `tokenizer=`. A server
of vLLM's takes them with each request: `"stop": {stop}, "include_stop_str_in_output": true`.
"""


def write_stops(folder: Path, stop: Sequence[str]) -> None:
    """Into the generation config of a model's folder, in the place of those of an earlier environment."""
    path = folder / GENERATION
    config = json.loads(path.read_text())
    had = config.pop("stop_strings", None)
    if stop:
        config["stop_strings"] = list(stop)
    if config.get("stop_strings") != had:
        replace_file(path, json.dumps(config, indent=2) + "\n")


def write_card(
    folder: Path,
    config: RunConfig,
    stage: StageConfig,
    step: int,
    prompt: tuple[Sequence[Mapping[str, str]], Sequence[str]],
    evaluations: Sequence[Mapping[str, Any]],
) -> None:
    """Into a model's folder. prompt: of `a_prompt`. evaluations: lines of evaluations.jsonl, oldest first."""
    messages, stop = prompt
    of, protocol = stage.config, getattr(stage.config.env, "protocol", None)
    text = HEAD.format(
        name=config.recipe.name,
        step=step,
        stage=stage.name,
        model=f"`{path}`" if (path := config.recipe.model.path) else "random weights",
        rlsys=versions()["rlsys"],
        env=of.env.name,
        protocol=f", protocol `{protocol}`" if isinstance(protocol, str) else "",
        reward=of.reward.name,
        algorithm=of.algorithm.name if stage.kind == "rl" else stage.kind,
        stop=", ".join(f"`{each}`" for each in stop) or "its end token",
    )
    stops = STOPS.format(stop=json.dumps(list(stop))) if stop else ""
    text += USE.format(tokens=of.rollout.max_turn_tokens, stops=stops)
    text += _prompt(messages) + _results(evaluations)
    replace_file(folder / CARD.name, text.rstrip("\n") + "\n")


def a_prompt(world: World) -> tuple[list[dict[str, str]], list[str]]:
    """Messages and stop strings of one task; none where the world's own code does not give them here."""
    try:
        env = world.env((world.tasks("train") or world.tasks("held_out"))[0])
        messages = [{"role": each.role, "content": each.content} for each in env.first_messages()]
        return messages, list(env.stop_strings)
    except Exception:  # somebody else's code: a checkpoint is worth more than its card
        return [], []


def _prompt(messages: Sequence[Mapping[str, str]]) -> str:
    """A fence longer than any in the text: a prompt may hold Markdown."""
    if not messages:
        return ""
    text = "\n".join(f"{each['role']}: {each['content']}" for each in messages)
    cut = f"{text[:SHOWN]} ..." if len(text) > SHOWN else text
    fence = "```"
    while fence in cut:
        fence += "`"
    return f"\n## A prompt\n\n{fence}text\n{cut}\n{fence}\n"


def _results(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Every number with an interval, of each evaluation of the run up to this checkpoint."""
    rows = [
        f"| {row['step']} | {row['stage']}, {row['when']} | {key.removesuffix(LOW)} | {row[key.removesuffix(LOW)]:.3f} "
        f"| {row[key]:.3f} to {row[key.removesuffix(LOW) + HIGH]:.3f} |"
        for row in evaluations
        for key in row
        if key.endswith(LOW) and key.removesuffix(LOW) in row
    ]
    if not rows:
        return ""
    return "\n".join(
        ("\n## Held-out tasks\n", "| step | evaluation | number | value | 95 % |", "|---|---|---|---|---|", *rows, "")
    )
