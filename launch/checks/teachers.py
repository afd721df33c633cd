"""Whether another model can be compared with the policy token by token: `learner.reference` by path.

A token's id has to mean the same text to both, or the teacher judges another text than was sampled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actors.renderer import ChatRenderer
from launch.checks import preflight
from launch.checks.model_size import TEACHER
from launch.checks.models import check_division, load_model_config, require_fixed_rope, text_of
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.positions import positions_of

SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id")


def teachers_of(recipes: Iterable[RecipeConfig], *, loaded_by_ranks: bool = False) -> list[str]:
    """The other models that the stages are compared with, each once. loaded_by_ranks: without those that are served."""
    learners = (recipe.learner for recipe in recipes)
    teachers = (learner.teacher for learner in learners if not (loaded_by_ranks and learner.serve_reference))
    return list(dict.fromkeys(teacher for teacher in teachers if teacher is not None))


def check_serving(recipe: RecipeConfig, gpus: int) -> None:
    """What config.json says of a teacher with an engine of its own. Raises BadInput where its context is shorter than
    the policy's, or so many GPUs cannot divide it. gpus: 0 on a CPU."""
    path, window = str(recipe.learner.served_teacher), recipe.engine.max_model_len
    config = load_model_config(path, TEACHER) or {}
    longest = positions_of(config)
    if longest is not None and longest < window:
        reason = f"its context is {longest} tokens, and a sequence may have {window}"
        raise BadInput(reason, key=TEACHER, found=path, expected=f"engine.max_model_len={longest} at most")
    if gpus > 1:
        check_division(text_of(config), gpus, "learner.reference_gpus")


def served_to(trained: Iterable[RecipeConfig]) -> RecipeConfig | None:
    """The first of the stages that ask a reference model with an engine of its own, which is one for the whole run.

    trained: those that learn from what engines play. Raises BadInput where they want different ones, and for GPUs of
    one that no stage serves.
    """
    trained = list(trained)
    asking = [recipe for recipe in trained if recipe.learner.served_teacher is not None]
    for idle in trained if not asking else ():
        if (gpus := idle.learner.reference_gpus) != 1:
            raise BadInput(key="learner.reference_gpus", found=gpus, expected="1 without learner.serve_reference=true")
    for name in ("reference", "reference_gpus"):
        choices = list(dict.fromkeys(getattr(recipe.learner, name) for recipe in asking))
        if len(choices) > 1:
            listing = " and ".join(map(repr, choices))
            raise BadInput(
                f"stages of one run have {listing}", key=f"learner.{name}", expected="the same where it is served"
            )
    return asking[0] if asking else None


def check_teachers(recipes: Iterable[RecipeConfig], tokenizer: Any, policy: str) -> None:
    """Raises BadInput for a teacher that cannot be loaded for training's forward pass, or has other tokens.

    tokenizer: the policy's. policy: what names it in an error.
    """
    recipes = list(recipes)
    for path in teachers_of(recipes):
        preflight.check_model(path, learner=True, key=TEACHER)
        if tokenizer is not None:
            compare_tokens(_load(path), tokenizer, path, policy)
            _check_size(path, len(tokenizer))
    for recipe in recipes:
        for path in teachers_of([recipe], loaded_by_ranks=True):
            require_fixed_rope(load_model_config(path, TEACHER) or {}, path, recipe.engine.max_model_len)


def compare_tokens(teacher: Any, tokenizer: Any, path: str, policy: str) -> None:
    """Every token and its id, and the special ones. Raises BadInput that names the first difference, by id."""
    ours, theirs = tokenizer.get_vocab(), teacher.get_vocab()
    if ours != theirs:
        differing = sorted((at, token) for token, at in ours.items() ^ theirs.items())
        at = differing[0][0]
        texts = [next((text for text, token_id in vocab.items() if token_id == at), "none") for vocab in (theirs, ours)]
        reason = f"its vocabulary is not that of {policy}: id {at} is {texts[0]!r}, and {texts[1]!r} in the policy"
        raise BadInput(
            reason, key=TEACHER, found=path, expected="a model with the policy's tokens: their ids are compared"
        )
    for name in SPECIAL:
        mine, other = getattr(tokenizer, name, None), getattr(teacher, name, None)
        if mine != other:
            raise BadInput(f"its {name} is {other}", key=TEACHER, found=path, expected=f"{mine}, as that of {policy}")


def _check_size(path: str, tokens: int) -> None:
    """A vocabulary may be padded to a round size, and may not be shorter than the tokenizer."""
    size = (load_model_config(path, TEACHER) or {}).get("vocab_size")
    if isinstance(size, int) and size < tokens:
        raise BadInput(f"its vocab_size is {size}", key=TEACHER, found=path, expected=f"at least {tokens} tokens")


def _load(path: str) -> Any:
    try:
        return ChatRenderer(path).tokenizer
    except BadInput as error:
        raise BadInput(error, key=TEACHER, found=path) from error
