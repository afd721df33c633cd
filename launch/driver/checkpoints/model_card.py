"""What a user needs who gets a checkpoint's `hf/` alone: a card, and the strings at which a message ends.

A policy that its engine stopped at a string never learned to end a message: without these strings it writes on. They go
into a file of our own: in `generation_config.json` they would make every `generate` without `tokenizer=` fail.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.checks.software import rlsys_version
from launch.driver.checkpoints.checkpoint import CARD
from rlsys.adapters import read_adapter
from rlsys.errors import BadInput
from rlsys.files import replace_file
from rlsys.jsonl import json_object
from rlsys.rollout import template_args_of

if TYPE_CHECKING:
    from envs.base import World
    from rlsys.config.recipe import RunConfig, StageConfig

ABOUT = "rlsys.json"
RESULTS = "\n## Held-out tasks\n"
SHOWN = 4000  # characters of a prompt
LOW, HIGH = "_low", "_high"

HEAD = """---
library_name: {library}
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
{arguments}{adapter}"""
ARGUMENTS = "| arguments of the chat template | {args} |\n"
ADAPTER = "| an adapter | of rank {rank}, on the model `{base}`, which is loaded with it |\n"
USE = """
## Use

```python
{imports}

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = {loader}.from_pretrained(FOLDER)
ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, {args}return_tensors="pt", return_dict=True)
out = model.generate(**ids, {ends}max_new_tokens={tokens})
print(tokenizer.decode(out[0, ids["input_ids"].shape[1]:]))
```

{stops}"""
WHOLE = "from transformers import AutoModelForCausalLM, AutoTokenizer"
ADAPTED = "from peft import AutoPeftModelForCausalLM\nfrom transformers import AutoTokenizer"
STOPS = """`rlsys.json` holds the stop strings. A server of vLLM's takes them with each request: `"stop": {stop},
"include_stop_str_in_output": true`.
"""
UNKNOWN = "not known: the environment's code does not say it"

Prompt = tuple[Sequence[Mapping[str, str]], Sequence[str] | None]  # messages, and stop strings if they are known


def write_training_facts(folder: Path, config: RunConfig, stage: StageConfig, stop: Sequence[str] | None) -> None:
    """For programs, into a model's folder: nothing that loads the model reads it. It has a digest, as the weights."""
    metadata = {
        "recipe": config.recipe.name,
        "stage": stage.name,
        "environment": stage.config.env.name,
        "protocol": _tool_protocol_name(stage),
        "template_args": template_args_by_env(stage),
        "stop_strings": None if stop is None else list(stop),
    }
    replace_file(folder / ABOUT, json.dumps(metadata, indent=1) + "\n")


def read_template_args(folder: Path) -> dict[str, dict[str, Any]] | None:
    """By environment what the model in `folder` was trained with; under "" where all have the same. None where nobody
    wrote it. Raises BadInput for a file that `write_training_facts` has not written."""
    file = folder / ABOUT
    if not file.is_file():
        return None
    metadata = json_object(file.read_bytes(), str(file))
    args, names = metadata.get("template_args"), str(metadata.get("environment")).split(", ")
    if args is None:  # of an earlier rlsys
        return None
    if not isinstance(args, dict):
        raise BadInput(where=file, key="template_args", found=args, expected="keys and values")
    of_several = (
        len(names) > 1 and args.keys() == set(names) and all(isinstance(value, dict) for value in args.values())
    )
    return args if of_several else {"": args}


def write_card(
    folder: Path,
    config: RunConfig,
    stage: StageConfig,
    step: int,
    prompt: Prompt,
    evaluations: Sequence[Mapping[str, Any]],
) -> None:
    """Into a model's folder. prompt: of `example_prompt`. evaluations: lines of evaluations.jsonl, oldest first."""
    messages, stop = prompt
    adapter = read_adapter(folder)
    of, protocol, args = stage.config, _tool_protocol_name(stage), template_args_by_env(stage)
    shared = args if all(template_args_of(recipe.env) == args for recipe in of.by_env.values()) else {}
    text = HEAD.format(
        name=config.recipe.name,
        step=step,
        stage=stage.name,
        model=f"`{path}`" if (path := config.recipe.model.path) else "random weights",
        library="transformers" if adapter is None else "peft",
        adapter="" if adapter is None else ADAPTER.format(base=adapter.base, rank=adapter.rank),
        arguments=ARGUMENTS.format(args=f"`{json.dumps(args)}`") if args else "",
        rlsys=rlsys_version(),
        env=of.env.name,
        protocol=f", protocol `{protocol}`" if protocol is not None else "",
        reward=", ".join(recipe.reward.name for recipe in of.by_env.values()),
        algorithm=of.algorithm.name if stage.kind == "rl" else stage.kind,
        stop=UNKNOWN if stop is None else ", ".join(f"`{string}`" for string in stop) or "its end token",
    )
    stops = STOPS.format(stop=json.dumps(list(stop))) if stop else ""
    ends = f"tokenizer=tokenizer, stop_strings={json.dumps(list(stop))}, " if stop else ""
    imports, loader = (WHOLE, "AutoModelForCausalLM") if adapter is None else (ADAPTED, "AutoPeftModelForCausalLM")
    text += USE.format(
        args="".join(f"{key}={value!r}, " for key, value in shared.items()),
        imports=imports,
        loader=loader,
        ends=ends,
        tokens=of.rollout.max_turn_tokens,
        stops=stops,
    )
    text += _fenced_prompt(messages) + _results_table(evaluations)
    replace_file(folder / CARD.name, text.rstrip("\n") + "\n")


def renew_results(folder: Path, evaluations: Sequence[Mapping[str, Any]]) -> None:
    """There may be an evaluation of a saved model by now. All else that its card says is of the stage that trained it,
    or of people."""
    card = folder / CARD.name
    if card.is_file():
        text, heading = card.read_bytes(), RESULTS.encode()
        before = text.find(heading, text.rfind(b"```") + 1)  # behind the prompt, which may hold such a line
        text = text[:before] if before >= 0 else text
        replace_file(card, (text.rstrip(b"\n") + b"\n" + _results_table(evaluations).encode()).rstrip(b"\n") + b"\n")


def example_prompt(world: World) -> Prompt:
    """Messages and stop strings of one task, as far as the world's own code gives them here."""
    messages: list[dict[str, str]] = []
    stop: list[str] | None = None
    with contextlib.suppress(Exception):  # a user's code: a checkpoint is worth more than its card
        env = world.env((world.tasks("train") or world.tasks("held_out"))[0])
        stop = list(env.stop_strings)
        messages = [{"role": message.role, "content": message.content} for message in env.first_messages()]
    return messages, stop


def template_args_by_env(stage: StageConfig) -> dict[str, Any]:
    """Of its environment; of several by their names, where they differ."""
    by_env = {name: dict(template_args_of(recipe.env)) for name, recipe in stage.config.by_env.items()}
    first, *rest = by_env.values()
    return first if all(args == first for args in rest) else by_env


def _tool_protocol_name(stage: StageConfig) -> str | None:
    protocols = [getattr(recipe.env, "protocol", None) for recipe in stage.config.by_env.values()]
    return ", ".join(protocol for protocol in protocols if isinstance(protocol, str)) or None


def _fenced_prompt(messages: Sequence[Mapping[str, str]]) -> str:
    """A fence longer than any in the text: a prompt may hold Markdown."""
    if not messages:
        return ""
    text = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
    cut = f"{text[:SHOWN]} ..." if len(text) > SHOWN else text
    fence = "```"
    while fence in cut:
        fence += "`"
    return f"\n## A prompt\n\n{fence}text\n{cut}\n{fence}\n"


def _results_table(evaluations: Sequence[Mapping[str, Any]]) -> str:
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
    return "\n".join((RESULTS, "| step | evaluation | number | value | 95 % |", "|---|---|---|---|---|", *rows, ""))
