"""Whether a model can be trained here, in a screen: what its files say, what its chat template makes of a conversation,
and, where its weights are here and fit into memory, what they prove to a learner and one turn that they write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from actors.chat import PROBE_OFFER
from actors.renderer import ChatRenderer
from actors.template_args import names_read
from launch.checks import cpu_memory, hub, model_size, models, preflight, prompts
from launch.checks.gpu_memory import GIGA, total
from launch.checks.gpu_plan import GpuPlan, gpu_plan
from launch.checks.machine import local_gpus
from launch.config.compose import compose
from learners.attention import first_usable
from learners.policy import PolicyModel, load_policy
from rlsys.config.recipe import RecipeConfig, StageConfig
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES, resolve
from rlsys.types import Message
from rlsys.untrusted import visible

RECIPE = "quickstart"  # whose keys the memory is planned with
ASKED = Message(role="user", content="What is 2 + 3?")
MOST_TOKENS = 64  # that a turn of its own may have: enough to see whether it ends one
OF_MEMORY = 0.8  # of what is available, that weights in float32 may take
THINKING = "enable_thinking"

Line = tuple[str, str]  # what, and what is said of it


def examine_model(path: str, *, weights: bool) -> Iterator[Line]:
    """Each line as soon as it is known, a verdict last. weights: load them too. Raises BadInput where it cannot be
    trained, or not on this machine."""
    preflight.check_model(path, learner=True)
    recipe = compose(RECIPE, [f"model.path={json.dumps(path)}", "stages.sft=null"]).stages[-1].config
    count = model_size.parameters(recipe)
    yield from _examine_config(path, recipe, count)
    yield from _examine_folder(path, count, weights=weights)
    if count is not None and (problem := _too_large(recipe, count)) is not None:
        raise BadInput(problem, key="model.path", found=path, expected="a smaller one, or another machine: rlsys plan")
    yield "verdict", f"it can be trained here: rlsys train RECIPE model.path={path}"


def _examine_folder(path: str, count: int | None, *, weights: bool) -> Iterator[Line]:
    """count: parameters, where that is known."""
    folder = Path(path) if Path(path).is_dir() else hub.find_cached(path)
    if folder is None:
        yield "chat template", f"not known: {hub.explain_missing(path) or 'a run downloads it'}"
        return
    renderer = ChatRenderer(str(folder))
    prompts.check_vocabulary(renderer, str(folder))
    yield from _examine_template(renderer, str(folder))
    there = psutil.virtual_memory().available * OF_MEMORY
    if not weights:
        yield "weights", "not loaded (--no-weights)"
    elif count is None or 4 * count > there:
        size = "of unknown size" if count is None else f"{4 * count / GIGA:.0f} GB in float32"
        yield "weights", f"{size}, not loaded: {there / GIGA:.0f} GB are free here. A run proves them when it starts"
    else:
        yield from _examine_weights(folder, renderer)


def _examine_config(path: str, recipe: RecipeConfig, count: int | None) -> Iterator[Line]:
    config = models.text_of(models.load_model_config(path) or {})
    kind, window = config.get("model_type", "unknown"), config.get("max_position_embeddings")
    size = "size not known" if count is None else f"{count / 1e6:,.0f} M parameters"
    positions = f", {window:,} positions" if isinstance(window, int) else ""
    tried = "" if not models.describe_untried(config) else "; not tried before: its weights prove it"
    yield "architecture", f"{kind}, {size}{positions}{tried}"
    if count is None:
        return
    engine, rank, there = _memory_here(recipe, count)
    yield "memory, CPU", f"an engine {engine:.1f} GB, a rank {rank:.1f} GB; here {there:.0f} GB"
    plan = _plan_gpu_memory(recipe, count)
    if not plan.rows:
        yield "memory, GPU", plan.model
        return
    parts = {row.name: (total(row.parts) / GIGA, (row.of or 0.0) / GIGA) for row in plan.rows}
    sizes = ", ".join(f"{name} {parts[name][0]:.1f} of {parts[name][1]:.0f} GB" for name in ("rank", "engine"))
    yield "memory, GPU", plan.problem or f"{sizes}, alone on a card (rlsys plan: on yours)"


def _memory_here(recipe: RecipeConfig, count: int) -> tuple[float, float, float]:
    """GB of an engine, of a rank that trains all weights, and of this machine."""
    engine_mb, rank_mb = cpu_memory.memory_of_parts(recipe, count)
    return engine_mb * 2**20 / GIGA, rank_mb * 2**20 / GIGA, psutil.virtual_memory().total / GIGA


def _plan_gpu_memory(recipe: RecipeConfig, parameters: int) -> GpuPlan:
    on_gpu = resolve(recipe, DEVICES["cuda"])
    training = StageConfig(name="rl", kind="rl", steps=1, config=on_gpu)
    return gpu_plan(on_gpu, [training], DEVICES["cuda"], parameters)


def _too_large(recipe: RecipeConfig, count: int) -> str | None:
    """Why this machine cannot train it."""
    if local_gpus():
        return _plan_gpu_memory(recipe, count).problem
    engine, rank, there = _memory_here(recipe, count)
    return (
        None
        if engine + rank <= there
        else f"an engine and a rank need {engine + rank:.0f} GB of the {there:.0f} GB here"
    )


def _examine_template(renderer: ChatRenderer, folder: str) -> Iterator[Line]:
    yield "chat template", prompts.template_of(renderer, folder)
    for doubt in prompts.doubts(renderer, folder):
        yield "  doubt", doubt
    end = renderer.turn_end
    others = [visible(text) for text in prompts.end_texts(renderer)]
    shown = "none that is known" if end is None else visible(renderer.decode([end]))
    yield "end of turn", f"{shown}; sampling stops at {', '.join(others) or 'the limit of tokens alone'}"
    if renderer.has_template:
        takes = THINKING in names_read(renderer.tokenizer.chat_template)
        off = (
            f"env.template_args={{{THINKING}: false}} turns it off" if takes else "no key of its template turns it off"
        )
        opens = (
            f"the template opens {visible(renderer.chat.opened_thought)!r}; " if renderer.chat.opened_thought else ""
        )
        yield "thinking", f"{opens}{off}" if takes or opens else "its template knows none"
    family = renderer.chat.family(PROBE_OFFER) if renderer.has_template else None
    none = "its template writes no calls that can be read: env.name=tools with env.protocol=hermes has them in text"
    yield "tools", none if family is None else f"in its own format, of the family {family.name}"


def _examine_weights(folder: Path, renderer: ChatRenderer) -> Iterator[Line]:
    key = first_usable(DEVICES["cpu"].attention, torch.float32)
    policy = load_policy(str(folder), dtype="float32", attention_key=key)
    yield "packed rows", "proved: samples side by side are what each is alone"
    yield "head", "plain" if policy.linear_head else "with steps of its own around it, which are followed"
    yield "one turn", _play_turn(policy, renderer)


def _play_turn(policy: PolicyModel, renderer: ChatRenderer) -> str:
    """Greedy, by transformers; not what an engine samples, which a run compares with the learner."""
    ids = renderer.prompt_ids([ASKED])
    policy.model.set_attn_implementation("sdpa")  # packed rows know no cache
    ends = sorted(renderer.ends)
    asked = torch.tensor([ids])
    with torch.no_grad():
        whole = policy.model.generate(
            asked, attention_mask=torch.ones_like(asked), max_new_tokens=MOST_TOKENS, do_sample=False,
            eos_token_id=ends or None, pad_token_id=ends[0] if ends else 0,
        )  # fmt: skip
    said = whole[0, len(ids) :].tolist()
    ended = bool(ends) and said[-1:] and said[-1] in ends
    text = visible(renderer.decode(said[: len(said) - bool(ended)])).replace("\n", " ")
    how = f"and ended it, after {len(said)} tokens" if ended else f"and had not ended it after {len(said)} tokens"
    return f"{ASKED.content!r} -> {text[:200]!r}, {how}"
