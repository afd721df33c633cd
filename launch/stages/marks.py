"""Whether a reward reads the answer where the environment's prompt asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envs import REWARDS
from envs.protocols import PROTOCOLS
from envs.protocols.styles import STYLES, Style
from rlsys.choices import choose
from rlsys.config.recipe import RecipeConfig
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
# These compare all that stands in the mark: a box in it is part of a wrong answer.
EXACT: Mapping[str, Callable[[Any], bool]] = {
    "answer": lambda config: True,
    "icrl": lambda config: config.tool == "search",
}


def check_marks(where: str, recipe: RecipeConfig) -> None:
    """Raises BadInput for a reward to which every answer would be none."""
    reward, asked = recipe.reward, written_as(recipe.env)
    if asked is None or seen(reward, asked):
        return
    marks = READ[reward.name](reward)
    how = next((mark for mark in marks if mark not in asked), f"{TAG} alone")
    if _style(recipe.env) is not None:
        ways = [f"env.style={name}" for name, style in STYLES.items() if seen(reward, style.write("x"))]
        asks = f"env.style={recipe.env.style!r}"
    else:
        names = [name for name in READ if seen(choose("reward", REWARDS, name).schema(), asked)]
        ways = [f"reward.name={name}" for name in names]
        asks = f"env.name={recipe.env.name!r} (protocol {recipe.env.protocol_name})"
    expected = " or ".join(ways or ["another reward"])
    says = f"reward.name={reward.name!r} reads an answer in {how}, and {asks} asks for {asked!r}"
    raise BadInput(says, where=where, expected=expected)


def seen(reward: Any, text: str) -> bool:
    """Whether a reward finds the answer in a text that is written like this one. True where nobody can tell."""
    if reward.name not in READ:
        return True
    marks = READ[reward.name](reward)
    exact = reward.name in EXACT and EXACT[reward.name](reward)
    return all(mark in text for mark in marks) and not (exact and BOX in text)


def written_as(env: Any) -> str | None:
    """How the answer x is written; None where the environment has no rule for it, or leaves it to its prompt."""
    style, protocol = _style(env), PROTOCOLS.get(getattr(env, "protocol_name", None) or "")
    if style is not None:
        return style.write("x")
    if protocol is None or BOX in (getattr(env, "instruction", None) or ""):
        return None  # words of the user's own, which ask for a box within the protocol's marks or beside them
    return protocol.write_answer("x")


def _style(env: Any) -> Style | None:
    style = STYLES.get(getattr(env, "style", None) or "free")
    return None if style is STYLES["free"] else style
