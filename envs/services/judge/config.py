"""The options of a judge, as `reward.judge` and the command line have them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Optional

from envs.services.guard import GuardConfig
from envs.services.secrets import check_address
from rlsys.errors import require, require_bounds

SHAPING = ("prompts", "max_tokens", "retry_temperature", "cache_file")  # what a server answers, beside its model


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(GuardConfig):
    """A guard's options, and those of whom it asks and how."""

    endpoint: Optional[str] = None
    """An OpenAI-compatible address, such as https://host/v1; needs `model`."""
    service: Optional[str] = None
    """A running `rlsys serve judge`, such as http://127.0.0.1:8100; it has its own model, prompts and cache."""
    model: Optional[str] = None
    """Name of the model at `endpoint`; without one, a folder or hub name that a service of the run serves with vLLM."""
    gpus: int = 1
    """That a judge with a model of its own takes where there are any: vLLM divides the model among them."""
    key_env: Optional[str] = None
    """Name of the environment variable with the key of `endpoint` or the token of `service`; null sends none."""
    plain_http: bool = False
    """Send the key over plain http to another machine too: for a network of your own, where nobody else reads along."""
    prompts: Optional[str] = None
    """A folder with prompts of your own, named after their kind (process.md), or the name of a paper whose printed
    prompts are here: swirl, graph_rl; null and the rest: the built-in ones."""
    unparsable: Optional[Literal["wrong", "fail", "retry"]] = None
    """Of an answer without a verdict. wrong: it speaks against; fail: a typed failure; retry: ask once more, sampled,
    then fail; null: what the kind's paper does (docs/judge.md)."""
    retry_temperature: float = 0.7
    """Of every question after the first, which is greedy."""
    max_tokens: Optional[int] = None
    """Of an answer; null is the kind's own limit."""
    max_concurrent: int = 32
    """Questions under way at once; others wait."""
    requests_per_minute: Optional[int] = None
    """Evenly spaced; null is no limit."""
    cache_size: int = 10_000
    """Answers kept in memory, least recently used out first."""
    cache_file: Optional[str] = None
    """SQLite: answers of earlier runs are not paid for again."""
    deadline_s: float = 120.0
    """Of one attempt."""
    attempts: int = 3
    """Of one question while the judge answers others; when it answers nobody, `outage_s` counts."""
    outage_s: float = 240.0
    """How long scoring waits for a judge that answers nobody, before it becomes a typed failure."""

    def __post_init__(self) -> None:
        key = ("judge.key_env", self.key_env)
        check_address("judge.endpoint", self.endpoint, key, plain_http=self.plain_http)
        check_address("judge.service", self.service, key, plain_http=self.plain_http)
        addressed = self.key_env is None or self.endpoint is not None or self.service is not None
        require(addressed, "judge.key_env", self.key_env, "null without judge.endpoint and judge.service")
        one = self.endpoint is None or self.service is None
        require(one, "judge.service", self.service, "null beside judge.endpoint")
        named = self.endpoint is None or bool(self.model)
        require(named, "judge.model", self.model, "the name of the model at judge.endpoint")
        unnamed = self.service is None or self.model is None
        require(unnamed, "judge.model", self.model, "null beside judge.service, which has its own")
        require(0 < self.retry_temperature <= 2, "judge.retry_temperature", self.retry_temperature, "above 0, up to 2")
        require_bounds(self, "judge.", "at least 1, or null", "max_tokens", "requests_per_minute")
        require_bounds(self, "judge.", "above 0", "outage_s")
        require_bounds(self, "judge.", "at least 1", "gpus")
        self.check_bounds("judge.")

    @property
    def given(self) -> bool:
        """Whether there is a judge at all."""
        return any((self.endpoint, self.service, self.model))

    @property
    def server(self) -> str:
        """Names the server that a run starts for it; "" where it has an address, or nobody to ask.

        Equal for configurations that one server can answer: those that differ in their patience alone.
        """
        if self.model is None or self.endpoint is not None:
            return ""
        plain = JudgeConfig()
        differing = ((key, getattr(self, key)) for key in SHAPING if getattr(self, key) != getattr(plain, key))
        return " ".join([f"judge {self.model}", *(f"{key}={value}" for key, value in differing)])

    @property
    def spacing_s(self) -> float:
        return 60.0 / self.requests_per_minute if self.requests_per_minute else 0.0

    @property
    def guard(self) -> GuardConfig:
        """An attempt may wait for its turn, and for the pause that the server asked for, before its own deadline."""
        waits = self.max_concurrent * self.spacing_s + self.deadline_s
        return replace(self, deadline_s=self.deadline_s + waits, cache_size=0)
