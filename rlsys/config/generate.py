"""What is generated to be trained on later, and who plays it: the engines, or a teacher at an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """A model behind an OpenAI-compatible endpoint."""

    endpoint: Optional[str] = None
    """Address of an OpenAI-compatible API, such as https://host/v1. null: not used."""
    model: Optional[str] = None
    """Name of the model at `endpoint`."""
    key_env: Optional[str] = None
    """Name of the environment variable that holds the API key of `endpoint`. null: no key is sent."""
    plain_http: bool = False
    """Whether the API key may be sent over plain http to another machine. Only for a private network on which no one
    else can read the traffic."""

    @property
    def given(self) -> bool:
        return self.endpoint is not None

    def check(self, where: str) -> None:
        """Raises BadInput for keys that do not go together."""
        consistent = self.given == bool(self.model)
        require(consistent, f"{where}.model", self.model, f"a name with {where}.endpoint, else null")
        require(self.given or self.key_env is None, f"{where}.key_env", self.key_env, f"null without {where}.endpoint")


@dataclass(frozen=True, kw_only=True)
class TeacherConfig(EndpointConfig):
    """Another model behind an endpoint that writes the trajectories in place of the engines. Its text is tokenised when
    it is trained on."""

    ask_first: bool = True
    """Whether the teacher is asked one question before anything starts, so that a wrong name, key or address ends the
    run at once. false: for a teacher that is started later."""
    requests_per_minute: Optional[int] = None
    """Limit on requests to the teacher per minute, evenly spaced. null: no limit. `generate.concurrency` limits how
    many are in flight at once."""
    deadline_s: float = 600.0
    """Timeout of one attempt at an answer, in seconds. `rollout.episode_timeout_s` is raised to fit it."""
    attempts: int = 3
    """Number of attempts at one answer while the teacher answers other requests. During a complete outage `outage_s`
    applies."""
    outage_s: float = 600.0
    """Time limit of a complete outage of the teacher, in seconds. Episodes wait that long and then become typed
    failures."""
    constructs: bool = False
    """Whether the teacher is led through a long chain of thought by action prompting (docs/judge.md) instead of
    answering directly: clarify, decompose, solution step, reflection, answer."""
    max_steps: int = 40
    """Largest number of actions of such a chain. After that the teacher is asked for the answer, whatever it has
    reached."""
    prompts: Optional[str] = None
    """Folder with prompts for the actions, one file per kind (action_clarify.md). null: the built-in prompts."""
    reflector: EndpointConfig = field(default_factory=EndpointConfig)
    """A second, stronger model for the reflections."""

    def __post_init__(self) -> None:
        where = "generate.teacher"
        require_bounds(self, f"{where}.", "at least 1, or null", "requests_per_minute")
        require_bounds(self, f"{where}.", "at least 1", "attempts", "max_steps")
        require_bounds(self, f"{where}.", "above 0", "deadline_s", "outage_s")

    def check_all(self) -> None:
        """Raises BadInput for keys that do not go together, in a stage: a recipe may give some for all its stages."""
        where = "generate.teacher"
        self.check(where)
        self.reflector.check(f"{where}.reflector")
        used = self.constructs or not self.reflector.given
        require(used, f"{where}.reflector.endpoint", self.reflector.endpoint, f"null without {where}.constructs=true")
        allowed = self.constructs or self.prompts is None
        require(allowed, f"{where}.prompts", self.prompts, f"null without {where}.constructs=true")
        require(self.given or not self.constructs, f"{where}.constructs", True, f"false without {where}.endpoint")

    @property
    def addresses(self) -> Mapping[str, EndpointConfig]:
        """Who is asked, by key: the teacher, and the second model where there is one."""
        endpoints = {"generate.teacher": self, "generate.teacher.reflector": self.reflector}
        return {where: endpoint for where, endpoint in endpoints.items() if endpoint.given}


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Sampling of trajectories to train on later, by a `generate` stage or by `rlsys generate`."""

    samples: int = 4
    """Number of trajectories per training task."""
    temperature: float = 0.9
    """Sampling temperature of the trajectories. 0.9 is Graph-RL's value for its preference pairs."""
    top_p: float = 1.0
    """Nucleus (top-p) limit: only the most likely tokens that together have this probability are sampled."""
    tasks: Optional[int] = None
    """Number of training tasks to play, at most. null: all of them."""
    concurrency: Optional[int] = None
    """Number of episodes that are played at the same time. null: as `eval.concurrency`, and 256 with a teacher."""
    keep: Literal["all", "best", "correct"] = "all"
    """Filter of the trajectories. best: those with the highest reward of their task. correct: those that solved the
    task, for a reward that defines when a task is solved."""
    min_reward: Optional[float] = None
    """Smallest reward of a trajectory that is kept. null: no limit."""
    per_task: Optional[int] = None
    """Number of trajectories kept per task, at most: those with the highest rewards. null: all that differ."""
    teacher: TeacherConfig = field(default_factory=TeacherConfig)

    def __post_init__(self) -> None:
        require_bounds(self, "generate.", "at least 1", "samples")
        require_bounds(self, "generate.", "at least 1, or null", "tasks", "per_task", "concurrency")
        require_bounds(self, "generate.", "a finite number, or null", "min_reward")
        require_bounds(self, "generate.", "above 0 and at most 2", "temperature")
        require_bounds(self, "generate.", "above 0 and at most 1", "top_p")
