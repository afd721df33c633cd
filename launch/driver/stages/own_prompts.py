"""Prompt distillation: answers that were given to one prompt are taught under another (`prompts: env` of a stage).

A policy that is shown worked examples answers well. Its answers, put behind the same question without the examples,
teach it to answer so without them. What follows the prompt stays token for token as it was sampled or read, and the
same tokens are trained; the prompt alone is rendered anew, as an episode of the stage's own environment would begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envs import make_world
from envs.protocols.retrieval import PROMPTED
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.examples import Example
from rlsys.jsonl import format_value
from rlsys.records import Tokens
from rlsys.types import Message, Sample, Task

OWN = "env"  # of a stage's `prompts`: those of its environment; null keeps those that the data has
COMPARED = 20  # tasks whose prompts are compared: one may have the same by chance, and making many takes time


def check_own_prompts(where: str, prompts: Any, recipe: RecipeConfig, *, data: bool) -> None:
    """Raises BadInput for a value that there is not, and for prompts that cannot be rendered without playing."""
    if prompts is None:
        return
    key = f"{where}.prompts"
    if prompts != OWN:
        raise BadInput(key=key, found=prompts, expected=f"{OWN}, the prompts of this stage's environment, or null")
    if not data:
        raise BadInput(key=key, found=prompts, expected="null without data: demonstrations have these prompts anyway")
    protocol = getattr(recipe.env, "protocol_name", None)
    if protocol in PROMPTED:
        problem = f"in protocol {protocol} a prompt holds what the retriever finds when an episode begins"
        raise BadInput(problem, key=key, found=prompts, expected="null")


def check_other_prompts(where: str, played: RecipeConfig, recipe: RecipeConfig) -> None:
    """Raises BadInput unless this stage's environment has the tasks that `played` plays, under other prompts."""
    tasks = _by_id(recipe)
    for task in make_world(played.env).tasks("train")[: played.generate.tasks]:
        _require_same(tasks.get(task.task_id), task.task_id, task.question, where)
    if prompts_differ(played, recipe) is False:
        expected = "a prompt of its own, such as env.demonstrations.count=0, or null"
        raise BadInput("the prompts are those that are played", key=f"{where}.prompts", found=OWN, expected=expected)


def prompts_differ(played: RecipeConfig, recipe: RecipeConfig) -> bool | None:
    """Whether one of the first tasks that are played has another prompt in the environment of `recipe`. None where that
    lacks them all, or where a prompt cannot be made, which the lines of the prompts say."""
    tasks = _by_id(recipe)
    pairs = [(task, tasks.get(task.task_id)) for task in make_world(played.env).tasks("train")[:COMPARED]]
    try:
        theirs, ours = own_prompt(played), own_prompt(recipe)
        differ = [theirs(task) != ours(same) for task, same in pairs if same is not None]
    except Exception:  # fault boundary: a world of the user's own
        return None
    return any(differ) if differ else None


def under_own_prompts(parse: Callable[[dict[str, Any], str], Example], recipe: RecipeConfig) -> Any:
    """`parse`, and then the prompt of the recipe's environment. It raises BadInput for a task that is not there."""
    tasks, prompt = _by_id(recipe), own_prompt(recipe)

    def read(record: dict[str, Any], where: str) -> Example:
        example, task = parse(record, where), record.get("task")
        task_record = task if isinstance(task, dict) else {}
        task_id = str(task_record.get("task_id", record.get("task_id", "")))
        own_task = _require_same(tasks.get(task_id), task_id, task_record.get("question"), where)
        return replace(example, prompt=prompt(own_task), replaced=True)

    return read


def own_prompt(recipe: RecipeConfig) -> Callable[[Task], tuple[Message, ...]]:
    world = make_world(recipe.env)
    return lambda task: tuple(world.env(task).first_messages())


def _by_id(recipe: RecipeConfig) -> dict[str, Task]:
    return {task.task_id: task for task in make_world(recipe.env).tasks("train")}


def _require_same(task: Task | None, task_id: str, question: object, where: str) -> Task:
    if task is None:
        raise BadInput(f"no training task of this stage's environment is called {format_value(task_id)}", where=where)
    if question is not None and task.question != question:
        raise BadInput(
            f"task {task_id} is another question in this stage's environment: {task.question!r}", where=where
        )
    return task


def with_prompt(samples: Sequence[Tokens], prompt: Sequence[int]) -> tuple[Tokens, ...]:
    """One answer's samples after another prompt: the old one ends where the first token was sampled.

    (1 2 3 | 4 5) with 4 5 sampled becomes, after (9), (9 | 4 5). Empty where a later sample begins with something else:
    a context that was written anew has no prompt to take the place of.
    """
    old = samples[0].token_ids[: samples[0].sampled[0][0]]
    if any(sample.token_ids[: len(old)] != old for sample in samples):
        return ()
    moved = len(prompt) - len(old)
    return tuple(
        Tokens(
            token_ids=(*prompt, *sample.token_ids[len(old) :]),
            sampled=tuple((start + moved, end + moved) for start, end in sample.sampled),
        )
        for sample in samples
    )


@dataclass(slots=True)
class PromptAccount:
    """What became of the answers of a stage, counted before its first step."""

    taught: int = 0
    too_long: int = 0
    rewritten: int = 0  # a later context does not begin with the prompt
    empty: int = 0  # without a token to train
    tokens: int = 0  # trained, of those that are taught
    after: int = 0  # tokens of the prompts that they are taught under
    sampled: int = 0  # of those that are taught, how many say which tokens they were given to
    before: int = 0  # the tokens of these prompts

    @property
    def seen(self) -> int:
        return self.taught + self.too_long + self.rewritten + self.empty

    def add(self, samples: Sequence[Sample], longest: int, before: int | None) -> bool:
        """Whether an answer is taught. before: tokens of the prompt that it was given to, where it says them."""
        if not samples:
            self.rewritten += 1
            return False
        if any(sample.num_tokens > longest for sample in samples):
            self.too_long += 1
            return False
        if not any(sample.num_loss_tokens for sample in samples):
            self.empty += 1
            return False
        self.taught += 1
        self.tokens += sum(sample.num_loss_tokens for sample in samples)
        self.after += int(samples[0].loss_mask.argmax())
        if before is not None:
            self.sampled += 1
            self.before += before
        return True

    def describe(self) -> str:
        replaced = f" that take the place of {self.before / self.sampled:.0f}" if self.sampled else ""
        left_out = [(self.too_long, "longer than the window"), (self.rewritten, "whose context was written anew")]
        left_out += [(self.empty, "without a token to train")]
        out = "".join(f"; left out: {count} {why}" for count, why in left_out if count)
        return (
            f"{self.taught} answers of {self.tokens:,} trained tokens, after prompts of "
            f"{self.after / max(self.taught, 1):.0f} tokens in the mean{replaced}{out}"
        )
