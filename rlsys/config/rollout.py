"""How episodes are played: workers, sampling, limits, deadlines and retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Playing episodes: the workers, the limits of an episode, and what happens when something breaks."""

    workers: int = 1
    """Rollout workers. Each has an engine of its own, and on GPUs `engine.tensor_parallel` GPUs of its own."""
    min_workers: int = 1
    """How many of them must have a node. One whose node died comes back as soon as another has room; the run goes on
    without it, unless fewer than these are left for `cluster.placement_timeout_s`."""
    threads: Optional[int] = None
    """CPU threads of one engine, divided among its processes. null: 1 on a CPU, 8 beside a GPU."""
    in_flight: Optional[int] = None
    """Episodes that one worker is given at the same time; one group it is given always, and all others wait in the
    driver. `engine.max_num_seqs` of them sample at once, the clock of the rest stands still. null: twice that many, so
    that the engine stays full while the last siblings of a group end, or wait for their tools."""
    max_turn_tokens: int = 64
    """Tokens that the model may write in one message."""
    max_response_tokens: Optional[int] = None
    """Tokens after the prompt in a whole episode, tool results included. null leaves it to `engine.max_model_len`."""
    temperature: float = 1.0
    """Sampling temperature of the episodes. The learner computes its log-probabilities at the same temperature."""
    top_p: float = 1.0
    """Sample only from the most likely tokens that together have this probability. It has to be 1 in an rl stage."""
    infra_attempts: int = 3
    """Number of times that a group is started, when workers die while they play it. After the first death it plays in a
    small company of groups, after the next alone; only a group that was alone when its worker died fails for good."""
    infra_retries: int = 2
    """How often an episode is tried again after the engine, a tool or a deadline failed it. If only its scoring failed,
    only that is tried again."""
    data_retries: int = 1
    """How often an episode is tried again after its environment, its record or its chat template raised an error."""
    grader_workers: int = 1
    """Processes per rollout worker that compare mathematical answers. They start when the first one is needed."""
    grader_deadline_s: float = 5.0
    """Seconds that comparing one mathematical answer may take. Past them it is a failure, and no wrong answer."""
    episode_timeout_s: float = 300.0
    """Seconds that one episode may take, tools and scoring included, waiting for a seat in the engine not. Raise it for
    slow tools or long answers."""
    block_timeout_s: float = 30.0
    """Seconds that an environment or a reward may block its worker's other episodes, by a call that is not awaited.
    After that its group fails, and the others are played again; at most half of the shortest `episode_timeout_s`
    of a stage."""
    call_timeout_s: float = 120.0
    """Seconds that a worker may take to answer a control call (a ping, new weights) before it counts as hung."""
    start_timeout_s: float = 300.0
    """Seconds that a worker, or a tool service, may take to start, and making a world and its reward. Raise it for
    large models."""

    def __post_init__(self) -> None:
        counts = ("workers", "max_turn_tokens", "infra_attempts", "grader_workers")
        require_bounds(self, "rollout.", "at least 1", *counts)
        require_bounds(self, "rollout.", "at least 1, or null", "threads", "in_flight", "max_response_tokens")
        least, most = self.min_workers, self.workers
        require(1 <= least <= most, "rollout.min_workers", least, f"1 to rollout.workers={most}")
        require_bounds(self, "rollout.", "above 0 and at most 2", "temperature")
        require_bounds(self, "rollout.", "above 0 and at most 1", "top_p")
        require_bounds(self, "rollout.", "0 or more", "infra_retries", "data_retries")
        seconds = ("grader_deadline_s", "episode_timeout_s", "block_timeout_s", "call_timeout_s", "start_timeout_s")
        require_bounds(self, "rollout.", "above 0", *seconds)
