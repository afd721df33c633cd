"""Whether a reward reads the answer where the environment's prompt asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envs.protocols.styles import STYLES
from rlsys.config import RecipeConfig
from rlsys.errors import BadInput

TAG, BOX = "<answer>", "\\boxed{"
JUDGED = {"tag": (TAG,), "boxed": (BOX,), "message": ()}
# What must stand around an answer for a reward to see it; those that are not here read whole responses, or say so
# themselves.
READ: Mapping[str, Callable[[Any], tuple[str, ...]]] = {
    "answer": lambda config: (TAG,),
    "icrl": lambda config: (TAG, BOX) if config.tool == "code" else (TAG,),
    "judged": lambda config: JUDGED[config.answer],
    "long_cot": lambda config: () if config.judge.given else (BOX,),  # a judge reads the whole response
    "research": lambda config: (TAG, BOX),
}


def check_marks(where: str, recipe: RecipeConfig) -> None:
    """Raises BadInput for a reward to which every answer would be none."""
    read, env = READ.get(recipe.reward.name), recipe.env
    asked = _asked(env)
    if read is None or asked is None:
        return
    missing = [mark for mark in read(recipe.reward) if mark not in asked]
    if not missing:
        return
    ways = [f"env.style={name}" for name, style in STYLES.items() if _seen(style.write("x"), read(recipe.reward))]
    wanted = " or ".join(ways or ["another reward"])
    reads = f"reward.name={recipe.reward.name!r} reads an answer in {missing[0]}"
    raise BadInput(f"{where}: {reads}, and env.style={env.style!r} asks for {asked!r}: expected {wanted}")


def _asked(env: Any) -> str | None:
    """How the answer x is written; None where the environment has no style, or leaves it to its prompt."""
    style = STYLES.get(getattr(env, "style", None) or "free")
    return style.write("x") if style is not None and style is not STYLES["free"] else None


def _seen(text: str, marks: tuple[str, ...]) -> bool:
    return all(mark in text for mark in marks)
