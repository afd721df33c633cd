"""A model behind an endpoint that is evaluated in the place of a checkpoint: options of `rlsys eval`, no keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rlsys.config.generate import EndpointConfig
from rlsys.errors import require, require_bounds

OMITTABLE = ("temperature", "top_p", "seed", "stop")
LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, kw_only=True)
class ServedConfig(EndpointConfig):
    """The model, how long it is waited for, and which fields of a question its server knows.

    OpenAI's reasoning models refuse `max_tokens`, `temperature`, `top_p` and `stop`.
    """

    requests_per_minute: Optional[int] = None
    deadline_s: float = 600.0  # of one attempt
    attempts: int = 3  # of a question, while the server answers with errors
    outage_s: float = 600.0  # without an answer to any question: then a question fails
    omit: tuple[str, ...] = ()  # fields of a question that are not sent
    limit_key: str = "max_tokens"  # the field that holds the limit of an answer

    def __post_init__(self) -> None:
        require(self.given and bool(self.model), "--model", self.model, "a name with --endpoint")
        require_bounds(self, "endpoint: ", "at least 1", "attempts")
        rate = self.requests_per_minute
        require(rate is None or rate >= 1, "--rpm", rate, "at least 1")
        require(self.deadline_s > 0, "--deadline", self.deadline_s, "above 0")
        spacing_s = 60.0 / rate if rate is not None else 0.0
        spaced = f", the time between two requests of --rpm {rate}" if rate is not None else ""
        require(self.outage_s > spacing_s, "--outage", self.outage_s, f"above {spacing_s:g}{spaced}")
        unknown = [key for key in self.omit if key not in OMITTABLE]
        require(not unknown, "--omit", ",".join(self.omit), f"some of {', '.join(OMITTABLE)}")
        require(self.limit_key in LIMITS, "--limit-key", self.limit_key, f"one of {', '.join(LIMITS)}")

    @property
    def addresses(self) -> Mapping[str, EndpointConfig]:
        """Who is asked, as a teacher's configuration has it."""
        return {"model": self}

    @property
    def described(self) -> str:
        return f"{self.model} at {self.endpoint}"

    @property
    def asked(self) -> dict[str, Any]:
        """How its questions differ from those of any other model."""
        return {"limit_key": self.limit_key, "omit": sorted(set(self.omit))}

    @property
    def identity(self) -> str:
        """What is asked, wherever it is served: an address may change while an evaluation is continued."""
        without = f" without {', '.join(self.asked['omit'])}" if self.omit else ""
        return f"the model {self.model} behind an endpoint{without}"
