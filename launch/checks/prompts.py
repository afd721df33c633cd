"""The first prompt as the model gets it: rendered by its own chat template, counted, and shown before a run starts.

A template that does not fit its model destroys a policy without an error: the model never ends a message, or reads
marks as plain words. What can be seen of that without the model is said here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from actors.template_args import names_read
from envs import make_world
from envs.base import World
from envs.tools.schema import undescribed
from launch.checks import models
from rlsys.config.identity import config_key
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.rollout import template_args_of, tool_offer_of
from rlsys.types import Message, Sample, Task, ToolOffer
from rlsys.untrusted import describe_exception, visible

if TYPE_CHECKING:
    from actors.renderer import ChatRenderer

COUNTED = 64  # prompts, spread over the training tasks
PATIENCE_S = 2.0  # for them, but the first, made or not: a world may take its time for each
Made = tuple[tuple[int, ...], Sequence[str], "ToolOffer | None", Sequence[Message]]
LAST = 48  # tokens of a training sample that are shown
SHOWN = 1200  # characters of the first one
MARK = re.compile(r"<\|[^<>|\s]{1,40}\|>|<｜[^<>｜]{1,40}｜>|</?s>|<(?:start|end)_of_turn>|\[/?INST\]")


def prompt_lines(
    renderer: ChatRenderer,
    model: str,
    playing: Sequence[RecipeConfig],
    most: int = SHOWN,
    *,
    config: RunConfig,
) -> list[str]:
    """For people. playing: the stages whose episodes are played; each of their worlds and windows is looked at once.
    most: characters of a prompt that are shown. config: whose other stages may teach conversations.

    Raises BadInput for a tokenizer that is larger than the model, and where, of a sample that could be looked at in
    time, no prompt can be made or none leaves room for an answer.
    """
    check_vocabulary(renderer, model)
    recipes = [recipe for stage in config.stages for recipe in stage.config.by_env.values()]
    remarks = [template_of(renderer, model), *_doubts_of(renderer, model, recipes)]
    return [*(f"chat template: {remark}" for remark in remarks), *_of_worlds(renderer, model, playing, most)]


def _of_worlds(renderer: ChatRenderer, model: str, playing: Sequence[RecipeConfig], most: int) -> list[str]:
    lines: list[str] = []
    keys: set[tuple[str, int]] = set()
    for recipe in playing:
        key = config_key(recipe.env), recipe.engine.max_model_len
        if key not in keys:
            keys.add(key)
            lines += _of_world(renderer, recipe, model, most)
    return lines


def check_prompts(
    renderer: ChatRenderer, model: str, playing: Sequence[RecipeConfig], say: Callable[[str], None]
) -> None:
    """Before a model plays without being trained: raises as `prompt_lines` does, and says what of it is a doubt."""
    check_vocabulary(renderer, model)
    _of_worlds(renderer, model, playing, SHOWN)
    for doubt in _doubts_of(renderer, model, playing):
        say(f"chat template: {doubt}")


def _doubts_of(renderer: ChatRenderer, model: str, recipes: Sequence[RecipeConfig]) -> list[str]:
    """A template is looked at with the arguments that it is given: it may need them, or open a thought with one."""
    used = dict.fromkeys(renderer.under(template_args_of(recipe.env)) for recipe in recipes)
    return list(dict.fromkeys(doubt for renderer in used for doubt in doubts(renderer, model)))


def check_vocabulary(renderer: ChatRenderer, model: str) -> None:
    """A token without a row in the embedding ends a run in the middle of it; rows without a token are padding."""
    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        return
    rows = models.text_of(models.load_model_config(model) or {}).get("vocab_size")
    tokens = max(renderer.tokenizer.get_vocab().values()) + 1
    if isinstance(rows, int) and tokens > rows:
        raise BadInput(
            f"its tokenizer has {tokens} tokens and the model's embedding {rows} rows",
            key="model.path", found=model, expected="an embedding that was resized after tokens were added",
        )  # fmt: skip


def template_of(renderer: ChatRenderer, model: str) -> str:
    if renderer.template is not None:
        return "the file of model.chat_template"
    if not renderer.has_template:
        return (
            "none in the tokenizer: messages are plain text, one a line (chat_template.jinja in its folder gives one)"
        )
    file = "chat_template.jinja" if (Path(model) / "chat_template.jinja").is_file() else "tokenizer_config.json"
    return f"the model's own, of {file}"


def end_texts(renderer: ChatRenderer) -> list[str]:
    """Of the tokens that end a message of the model."""
    return [renderer.decode([token]) for token in sorted(renderer.ends)]


def doubts(renderer: ChatRenderer, model: str) -> list[str]:
    """What of the template does not fit the tokenizer, or what is learned and looked for."""
    if not renderer.has_template:
        return []
    before, after = renderer.usable().chat.around()
    issues = []
    if not renderer.ends & set(renderer.encode(after)):
        names = " or ".join(map(visible, end_texts(renderer))) or "a token that the tokenizer names as its end"
        issues.append(f"it never ends a message of the model: {names} does not stand after it, and is not learned")
    for mark in dict.fromkeys(MARK.findall(before + after)):
        if (count := len(renderer.encode(mark))) > 1:
            issues.append(f"its mark {mark} is no token of this tokenizer, which reads {count} pieces of text")
    if not renderer.chat.opening:
        issues.append("it has no generation prompt (add_generation_prompt): the model has to write its own role first")
    dated = "strftime_now" in names_read(renderer.tokenizer.chat_template)
    if dated and time.strftime("%Y") in before:
        issues.append(
            "it shows the day (strftime_now): a run that goes on tomorrow, and its evaluation, have other prompts"
        )
    if renderer.chat.rewrites:
        names = ", ".join(renderer.chat.rewrites)
        issues.append(
            f"it rewrites earlier turns ({names}): an episode is several samples there, each with the history as the "
            "template shows it; demonstrations of several turns are one, without that"
        )
    if renderer.chat.opened_thought:
        opened = visible(renderer.chat.opened_thought)
        issues.append(
            f"it opens a thought itself ({opened}): no answer holds that tag, and rewards that look for it find none; "
            f"with a template that does not, in {model}/chat_template.jinja, the model writes its own"
        )
    return issues


def sample_lines(renderer: ChatRenderer, stage: str, sample: Sample) -> list[str]:
    """The end of what a stage trains on, with which of its tokens are trained."""
    last = list(zip(sample.token_ids.tolist(), sample.loss_mask.tolist(), strict=True))[-LAST:]
    count = f"{sample.num_loss_tokens} of {sample.num_tokens} tokens of an example"
    lines = [f"trained in {stage}: {count}; its last {len(last)}:"]
    for trained, run in groupby(last, key=lambda pair: pair[1]):
        text = renderer.decode([token for token, _ in run]).replace("\n", "\\n")
        lines.append(f"  {'trained' if trained else 'shown':<7} | {visible(text)}")
    return lines


def _of_world(renderer: ChatRenderer, recipe: RecipeConfig, model: str, most: int) -> list[str]:
    world, window = make_world(recipe.env), recipe.engine.max_model_len
    if world.own_prompts:
        sent = "an agent sends prompts of its own, which `rlsys play` shows"
        return [f"prompts: {sent}; engine.max_model_len={window} has to hold each with its conversation"]
    renderer = renderer.under(template_args_of(recipe.env))
    tasks = world.tasks("train") or world.tasks("held_out")
    sample = [tasks[at * len(tasks) // COUNTED] for at in range(COUNTED)] if len(tasks) > COUNTED else list(tasks)
    prompts: list[Made] = []
    broken: list[BadInput] = []
    started = time.monotonic()
    for task in sample:
        if time.monotonic() - started > PATIENCE_S:
            break
        try:
            prompt = _prompt(renderer, world, task, recipe, model)
        except BadInput as error:  # one of a bad record: the run counts it, and continues
            broken.append(error)
            continue
        prompts.append(prompt)
    whole = len(prompts) + len(broken) == len(sample)  # few slow ones do not speak for the rest
    if broken and not prompts and whole:
        raise broken[0]
    cannot = f"prompts: {len(broken)} of {len(prompts) + len(broken)} cannot be made; the first: "
    spoilt = [f"{cannot}{error}" for error in broken[:1]]
    spoilt += _spelled(renderer, [messages for *_, messages in prompts])
    if not prompts:
        return spoilt
    ids, stop, offer, messages = prompts[0]
    ends = ", ".join(map(visible, [*end_texts(renderer), *stop])) or "nothing but a token limit"
    text = renderer.decode(ids)
    _check_examples(recipe.env, messages, text)
    cut = f" ... ({len(text) - most} characters more)" if len(text) > most else ""
    lines = [f"first prompt: {len(ids)} tokens, in a window of {window}; a message ends at {ends}"]
    lines += [f"  | {visible(line)}" for line in f"{text[:most]}{cut}".split("\n")]
    return [*lines, *_undescribed(offer), _lengths([len(ids) for ids, *_ in prompts], window, whole), *spoilt]


def _check_examples(env: object, messages: Sequence[Message], text: str) -> None:
    """Templates of models that think drop thoughts of earlier turns: examples that think and then search would show an
    answer at once. Raises BadInput."""
    demos = getattr(env, "demonstrations", None)
    if demos is None or demos.layout != "turns":
        return
    shown = "".join(text.split())
    if any("".join(turn.content.split()) not in shown for turn in messages if turn.role == "assistant"):
        expected = "message: this chat template drops thoughts of earlier turns, and with them what the examples show"
        raise BadInput(key="env.demonstrations.layout", found=demos.layout, expected=expected)


def _spelled(renderer: ChatRenderer, prompts: Sequence[Sequence[Message]]) -> list[str]:
    """Prompts that were rendered before they became data: they look like chats, and are none."""
    texts = ("\n".join(message.content for message in messages) for messages in prompts)
    marks = [mark for text in texts if (mark := next((token for token in renderer.marks if token in text), ""))]
    if not marks:
        return []
    summary = f"{len(marks)} of {len(prompts)} looked at hold chat marks, such as {visible(marks[0])}"
    return [f"prompts: {summary}: they are text there and make no turns, which a list of messages does"]


def _undescribed(offer: ToolOffer | None) -> list[str]:
    """Tools that the model has to guess at."""
    schemas = [json.loads(schema) for schema in (offer.schemas if offer is not None else ())]
    lacking = [(str(schema["function"]["name"]), undescribed(schema)) for schema in schemas]
    return [visible(f"tool {name}: the model reads {lacks} of it") for name, lacks in lacking if lacks]


def _lengths(counts: Sequence[int], window: int, whole: bool) -> str:
    over = sum(count >= window for count in counts)
    if not over:
        return f"prompts: at most {max(counts)} tokens, of {len(counts)} looked at"
    of = f"of {len(counts)} prompts looked at, up to {max(counts)} tokens long,"
    if whole and over == len(counts):
        raise BadInput(key="engine.max_model_len", found=window, expected=f"more: {of} none leaves room for an answer")
    return f"prompts: {of} {over} leave no room for an answer: raise engine.max_model_len={window}"


def _prompt(renderer: ChatRenderer, world: World, task: Task, recipe: RecipeConfig, model: str) -> Made:
    """Its tokens, without what a world looks up when an episode begins, the strings at which a message ends, the tools,
    and the messages."""
    try:
        env = world.env(task)
        messages, stop, offer = env.first_messages(), env.stop_strings, tool_offer_of(env)
    except Exception as error:  # their own code
        raise BadInput(
            f"no prompt for task {task.task_id}: {describe_exception(error)}", key="env.name", found=recipe.env.name
        ) from error
    if renderer.template_args and all(message.inline for message in messages):
        without = "{}: a prompt of this environment is plain text, without the chat template"
        raise BadInput(key="env.template_args", found=renderer.template_args, expected=without)
    try:
        if offer is not None:
            renderer.chat.check_offer(offer)
        return renderer.prompt_ids(messages, offer), stop, offer, messages
    except BadInput as error:
        raise BadInput(error, key="model.path", found=model) from error
