"""Keys of a retriever that nothing reads, refused where they were given together with what makes them so, or after it.

A recipe names its own server's index; who gives `env.retriever.url` over it need not take those keys back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envs.tools.search import SearchConfig
from launch.config.layers import Layer, is_written
from launch.evaluation.sets import sets_of
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, refuse_unread

Given = Mapping[str, Any]


def check_unread(where: str, layers: Sequence[Layer], recipe: RecipeConfig) -> None:
    """Raises BadInput. layers: all that a stage's recipe is merged from, in order."""
    written = is_written(layers)
    asked = [layer for layer in layers if not written or layer.source.startswith("command line")]
    given = [_retriever(layer.values.get("env")) for layer in asked]
    try:
        _check("env.retriever.", recipe.env, given)
        for each in sets_of(recipe) if not written else ():
            own = recipe.eval.sets[each.name].env if each.name else {}
            base = given if own.get("name", recipe.env.name) == recipe.env.name else []
            if own:
                _check(f"eval.sets.{each.name}.env.retriever.", each.recipe.env, [*base, _retriever(own)])
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def _check(prefix: str, env: Any, given: Sequence[Given]) -> None:
    """given: by layer."""
    config = getattr(env, "retriever", None)
    if not isinstance(config, SearchConfig):
        return
    switch, because = config.switch
    since = _last(switch, given)  # -1: below them all, or by default
    refused = [key for key in config.unread if _last(key, given) >= max(since, 0)]
    refuse_unread(config, prefix, refused, because)


def _last(key: str, given: Sequence[Given]) -> int:
    return max((at for at, layer in enumerate(given) if key in layer), default=-1)


def _retriever(env: Any) -> Given:
    found = env.get("retriever") if isinstance(env, Mapping) else None
    return found if isinstance(found, Mapping) else {}
