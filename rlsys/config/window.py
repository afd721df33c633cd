"""The context window as one key: what engine, rollout and reward have to agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class WindowConfig:
    """The context window as one setting for engine, rollout and reward."""

    tokens: Optional[int] = None
    """Length of a prompt and its response together, in tokens. It sets `rollout.max_response_tokens`, and those of
    `engine.max_model_len`, `rollout.max_turn_tokens` and (for a reward that always has one) `reward.max_length` that
    are not given. null: each of them is given separately."""
    prompt: int = 2048
    """Part of the window reserved for the prompt, in tokens; the rest is for the response."""

    def __post_init__(self) -> None:
        require_bounds(self, "window.", "at least 1", "prompt")
        fits = self.tokens is None or self.tokens > self.prompt
        require(fits, "window.tokens", self.tokens, f"more than window.prompt={self.prompt}")

    @property
    def response(self) -> int:
        """Tokens of a response. Of a window that is given."""
        assert self.tokens is not None
        return self.tokens - self.prompt

    def sets(self) -> Mapping[str, Mapping[str, Any]]:
        """What follows, by section; the reward's where it has the key."""
        if self.tokens is None:
            return {}
        return {
            "engine": {"max_model_len": self.tokens},
            "rollout": {"max_turn_tokens": self.response, "max_response_tokens": self.response},
            "reward": {"max_length": self.response},
        }

    def check(self, where: str, recipe: Any) -> None:
        """Raises BadInput where another key of the recipe, a `RecipeConfig`, says something else."""
        if self.tokens is None:
            return
        engine, rollout, limit = recipe.engine, recipe.rollout, getattr(recipe.reward, "max_length", None)
        rule, total = f"as window.tokens={self.tokens} and window.prompt={self.prompt} say", rollout.max_response_tokens
        agrees = [
            (
                "engine.max_model_len",
                engine.max_model_len,
                engine.max_model_len >= self.tokens,
                f"at least {self.tokens}",
            ),
            ("rollout.max_response_tokens", total, total == self.response, f"{self.response}"),
            (
                "rollout.max_turn_tokens",
                rollout.max_turn_tokens,
                rollout.max_turn_tokens <= self.response,
                f"at most {self.response}",
            ),
            ("reward.max_length", limit, limit is None or limit == self.response, f"{self.response}"),
        ]
        for key, value, fits, expected in agrees:
            require(fits, f"{where}: {key}", value, f"{expected}, {rule}")
