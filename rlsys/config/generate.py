"""What is generated to be trained on later, and who plays it: the engines, or a teacher at an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    endpoint: Optional[str] = None
    """An OpenAI-compatible address, such as https://host/v1; null: nobody is asked."""
    model: Optional[str] = None
    """Name of the model there."""
    key_env: Optional[str] = None
    """Name of the environment variable with its key; null sends none."""
    plain_http: bool = False
    """Send the key over plain http to another machine too: for a network of your own, where nobody else reads along."""

    @property
    def given(self) -> bool:
        return self.endpoint is not None

    def check(self, where: str) -> None:
        """Raises BadInput for keys that do not go together."""
        both = self.given == bool(self.model)
        require(both, f"{where}.model", self.model, f"a name beside {where}.endpoint, else null")
        require(self.given or self.key_env is None, f"{where}.key_env", self.key_env, f"null without {where}.endpoint")


@dataclass(frozen=True, kw_only=True)
class TeacherConfig(EndpointConfig):
    """Another model, at an address, in the place of the engines. Its text is tokenised when it is trained on."""

    requests_per_minute: Optional[int] = None
    """Evenly spaced; null is no limit. `generate.concurrency` bounds how many are under way at once."""
    deadline_s: float = 600.0
    """Of one attempt at an answer. `rollout.episode_timeout_s` is no limit here: it is raised to what this takes."""
    attempts: int = 3
    """Of one answer while the teacher gives others; when it answers nobody, `outage_s` counts."""
    outage_s: float = 600.0
    """How long episodes wait for a teacher that answers nobody, before they are typed failures."""
    constructs: bool = False
    """Whether it is led through a long chain of thought by action prompting (docs/judge.md), in the place of answering:
    clarify, decompose, solution step, reflection, answer."""
    max_steps: int = 40
    """Actions of such a chain: then the answer is asked for, whatever has been reached."""
    prompts: Optional[str] = None
    """A folder with prompts for the actions, named after their kind (action_clarify.md); null: the built-in ones."""
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
        shown = self.constructs or self.prompts is None
        require(shown, f"{where}.prompts", self.prompts, f"null without {where}.constructs=true")
        require(self.given or not self.constructs, f"{where}.constructs", True, f"false without {where}.endpoint")

    @property
    def addresses(self) -> Mapping[str, EndpointConfig]:
        """Who is asked, by key: the teacher, and the second model where there is one."""
        found = {"generate.teacher": self, "generate.teacher.reflector": self.reflector}
        return {where: each for where, each in found.items() if each.given}


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Trajectories to train on later, from a `generate` stage or from `rlsys generate`."""

    samples: int = 4
    """Trajectories per training task."""
    temperature: float = 0.9
    """Sampling temperature. 0.9 is Graph-RL's for its preference pairs."""
    top_p: float = 1.0
    """Sample only from the most likely tokens that together have this probability."""
    tasks: Optional[int] = None
    """Training tasks to play, at most. null plays all of them."""
    concurrency: int = 256
    """Episodes that are played at the same time."""
    keep: Literal["all", "best", "correct"] = "all"
    """Which trajectories are kept. best: those with the highest reward of their task. correct: those that solved it,
    for a reward that says what solves a task."""
    min_reward: Optional[float] = None
    """Trajectories with a lower reward are dropped. null drops none."""
    per_task: Optional[int] = None
    """Trajectories kept per task, at most: those with the highest rewards. null keeps all that differ."""
    teacher: TeacherConfig = field(default_factory=TeacherConfig)

    def __post_init__(self) -> None:
        require_bounds(self, "generate.", "at least 1", "samples", "concurrency")
        require_bounds(self, "generate.", "at least 1, or null", "tasks", "per_task")
        require_bounds(self, "generate.", "a finite number, or null", "min_reward")
        require_bounds(self, "generate.", "above 0 and at most 2", "temperature")
        require_bounds(self, "generate.", "above 0 and at most 1", "top_p")
