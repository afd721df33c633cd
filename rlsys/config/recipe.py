"""A recipe and its stages: the whole tree of sections, as one frozen dataclass, checked before anything starts.

Algorithms, environments and rewards keep their own dataclass next to their code; `launch.config.compose` puts the tree
together. A YAML holds only what differs from the defaults. Values that follow from others are properties, and
`--dry-run` shows their arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Optional, Union

from rlsys.config.cluster import ClusterConfig, WeightsConfig
from rlsys.config.curriculum import CurriculumConfig
from rlsys.config.engine import EngineConfig
from rlsys.config.envs import EnvShare
from rlsys.config.evaluation import EvalConfig
from rlsys.config.generate import GenerateConfig
from rlsys.config.learner import LearnerConfig
from rlsys.config.loop import LoopConfig
from rlsys.config.model import ModelConfig
from rlsys.config.output import CheckpointConfig, IncidentsConfig, TrajectoriesConfig, WandbConfig, check_tracker
from rlsys.config.rollout import RolloutConfig
from rlsys.config.verdicts import VerdictsConfig
from rlsys.config.window import WindowConfig
from rlsys.errors import require, require_bounds

DataSource = Union[str, dict[str, Optional[int]]]  # a stage, a path, or paths with how many examples of each


@dataclass(frozen=True, kw_only=True)
class AboutConfig:
    """The paper that a recipe reproduces. `rlsys recipes` shows it; it has no effect on the run."""

    title: str = ""
    """Title of the paper that the recipe reproduces."""
    arxiv: str = ""
    """Identifier of the paper on arXiv."""
    data: tuple[str, ...] = ()
    """Public data sets that the recipe reads, under their names in `rlsys data list`."""
    answer_tokens: Optional[int] = None
    """Mean length of an answer in tokens, prompt and results of tools included, with which docs/recipes.md and
    `--dry-run` count hours. null: the longest that the limits allow."""
    prefill_tokens: int = 0
    """Tokens in `about.answer_tokens` that no engine samples: prompt, examples in it, results of tools. 0 counts all of
    them as sampled."""

    def __post_init__(self) -> None:
        require_bounds(self, "about.", "at least 1, or null", "answer_tokens")
        require_bounds(self, "about.", "0 or more", "prefill_tokens")
        fits = self.prefill_tokens < (self.answer_tokens or 1)
        require(
            fits, "about.prefill_tokens", self.prefill_tokens, f"0, or below about.answer_tokens={self.answer_tokens}"
        )


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of a recipe, resolved."""

    name: str
    kind: str
    """Kind of the stage, a name in `launch.driver.stages.STAGES`: sft, rl, generate, judge, stepwise, dpo or eval."""
    steps: int
    """Number of training steps. 0 in a stage that trains nothing, and as long as `epochs` is set."""
    config: RecipeConfig
    """Whole configuration of the stage."""
    data: Optional[DataSource] = None
    """Training data: the name of an earlier `generate` stage, the path of a JSON-lines file, or several."""
    epochs: Optional[float] = None
    """Number of passes over the data of an earlier stage, whose size, and with it the number of steps, is not known
    yet. None in every other case."""
    prompts: Optional[Literal["env"]] = None
    """Prompts under which the answers of `data` are taught: env, those of this stage's environment. None: those
    that the data has."""


@dataclass(frozen=True, kw_only=True)
class RecipeConfig:
    """A recipe without its list of stages. `env`, `reward` and `algorithm` hold the dataclass that their `name`
    selects. With `envs`, `env` is the mixture of their worlds (`envs.mixture`), and `reward` is None."""

    name: str = "run"
    """Name of the run directory, runs/NAME, if --run-dir gives no other."""
    seed: int = 0
    """Seed of sampling, of the order of tasks and of a model built from scratch. Tasks are made with `env.seed`."""
    about: AboutConfig = field(default_factory=AboutConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    window: WindowConfig = field(default_factory=WindowConfig)
    env: Any = None
    reward: Any = None
    envs: dict[str, EnvShare] = field(default_factory=dict)
    algorithm: Any = None
    engine: EngineConfig = field(default_factory=EngineConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    generate: GenerateConfig = field(default_factory=GenerateConfig)
    verdicts: VerdictsConfig = field(default_factory=VerdictsConfig)
    trajectories: TrajectoriesConfig = field(default_factory=TrajectoriesConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    incidents: IncidentsConfig = field(default_factory=IncidentsConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    tracker: Union[str, tuple[str, ...]] = "wandb"
    """Where metrics and sample episodes go in addition to the run directory: wandb, tensorboard, trackio, none,
    `module.Class` of your own, or a list of these."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    report: Literal["end", "none"] = "end"
    """When a run makes its page: `end`, RUN_DIR/report.html when it ends, within a minute; none, never: `rlsys report`
    makes it then."""

    @property
    def trackers(self) -> tuple[str, ...]:
        """Names in `tracker`."""
        return (self.tracker,) if isinstance(self.tracker, str) else tuple(self.tracker)

    @property
    def by_env(self) -> Mapping[str, RecipeConfig]:
        """A recipe for each environment, by its name, without `eval.sets`, which are of all together; of a recipe with
        one environment itself, under ""."""
        if not self.envs:
            return {"": self}
        alone = replace(self, envs={}, eval=replace(self.eval, sets={}, judge={}))
        return {
            name: replace(alone, env=share.env, reward=share.reward, curriculum=share.curriculum)
            for name, share in self.envs.items()
        }

    def __post_init__(self) -> None:
        check_tracker(self.trackers)
        plain = bool(self.name) and all(letter.isalnum() or letter in "-_." for letter in self.name)
        fits = plain and not self.name.startswith(".")
        require(fits, "name", self.name, "letters, digits, - _ . : it names a folder")
        turn, window = self.rollout.max_turn_tokens, self.engine.max_model_len
        require(turn < window, "rollout.max_turn_tokens", turn, f"less than engine.max_model_len={window}")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A recipe resolved for a run."""

    recipe: RecipeConfig
    """Configuration outside of `stages`. Model, engines and learner ranks are the same in all stages."""
    stages: tuple[StageConfig, ...]
    """Stages in the order in which they run."""
