"""The options of a judge, as `reward.judge` and the command line have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from envs.services.guard import GuardConfig
from envs.services.secrets import check_address
from rlsys.errors import require, require_bounds

SHAPING = ("prompts", "max_tokens", "retry_temperature", "cache_file")  # decide, with the model, a server's answers


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(GuardConfig):
    """The judge that is asked, its prompts, and the limits of the calls to it."""

    endpoint: Optional[str] = None
    """Address of an OpenAI-compatible API, such as https://host/v1. It needs `model`."""
    service: Optional[str] = None
    """Address of a running `rlsys serve judge`, such as http://127.0.0.1:8100. It has its own model, prompts and
    cache."""
    model: Optional[str] = None
    """Name of the model at `endpoint`. Without `endpoint`: folder or hub name of a model that a service of the run
    serves with vLLM."""
    gpus: int = 1
    """Number of GPUs of a judge with its own model, if there are any: vLLM divides the model among them."""
    threads: Optional[int] = None
    """Number of CPU threads of a judge with its own model. It reserves as many CPUs of the cluster. null: those of an
    engine (`rollout.threads`), 1 on a CPU and 8 on GPUs."""
    key_env: Optional[str] = None
    """Name of the environment variable that holds the API key of `endpoint` or the token of `service`. null: none is
    sent."""
    plain_http: bool = False
    """Whether the key may be sent over plain http to another machine. Only for a private network on which no one else
    can read the traffic."""
    ask_first: bool = True
    """Whether a judge at an address is asked one question before a run starts, so that a wrong name, key or address
    ends it at once. false: for a judge that is started later."""
    prompts: Optional[str] = None
    """Folder with prompts, one file per kind (process.md), or the name of a paper whose printed prompts are included:
    swirl, graph_rl. null, and kinds without a file: the built-in prompts."""
    unparsable: Optional[Literal["wrong", "fail", "retry"]] = None
    """Treatment of an answer without a verdict. wrong: it counts as a rejection. fail: a typed failure. retry: the
    judge is asked once more, with sampling, then it is a failure. null: as in the paper of the kind (docs/judge.md)."""
    retry_temperature: float = 0.7
    """Sampling temperature of every question after the first, which is greedy."""
    max_tokens: Optional[int] = None
    """Limit of the judge's answer, in tokens. null: the limit of the kind."""
    max_concurrent: int = 32
    """Number of questions in flight at once; further questions queue."""
    requests_per_minute: Optional[int] = None
    """Limit on questions to the judge per minute, evenly spaced. With `endpoint` each rollout worker has its own
    limit. null: no limit."""
    cache_size: int = 10_000
    """Number of answers in the memory cache, least recently used evicted first."""
    cache_file: Optional[str] = None
    """Path of an SQLite file that keeps answers, so that those of earlier runs are not paid for again. null: no
    file."""
    deadline_s: float = 120.0
    attempts: int = 3
    """Number of attempts at one question while the judge answers other questions. During a complete outage `outage_s`
    applies."""
    outage_s: float = 240.0
    """Time limit of a complete outage of the judge, in seconds. Scoring waits that long and then becomes a typed
    failure."""

    def __post_init__(self) -> None:
        key = ("judge.key_env", self.key_env)
        check_address("judge.endpoint", self.endpoint, key, plain_http=self.plain_http)
        check_address("judge.service", self.service, key, plain_http=self.plain_http)
        addressed = self.key_env is None or self.endpoint is not None or self.service is not None
        require(addressed, "judge.key_env", self.key_env, "null without judge.endpoint and judge.service")
        at_most_one = self.endpoint is None or self.service is None
        require(at_most_one, "judge.service", self.service, "null with judge.endpoint")
        has_model = self.endpoint is None or bool(self.model)
        require(has_model, "judge.model", self.model, "the name of the model at judge.endpoint")
        unnamed = self.service is None or self.model is None
        require(unnamed, "judge.model", self.model, "null with judge.service, which has its own")
        require(0 < self.retry_temperature <= 2, "judge.retry_temperature", self.retry_temperature, "above 0, up to 2")
        require_bounds(self, "judge.", "at least 1, or null", "max_tokens", "requests_per_minute", "threads")
        require_bounds(self, "judge.", "above 0", "outage_s")
        require_bounds(self, "judge.", "at least 1", "gpus")
        self.check_bounds("judge.")

    @property
    def given(self) -> bool:
        """Whether there is a judge at all."""
        return any((self.endpoint, self.service, self.model))

    @property
    def server(self) -> str:
        """Names the server that a run starts for it; "" where it has an address, or no judge is configured.

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
