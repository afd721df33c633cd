"""How episodes are played: workers, sampling, limits, deadlines and retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Rollout workers, sampling, and the limits, deadlines and retries of episodes."""

    workers: int = 1
    """Number of rollout workers. Each has its own engine, and on GPUs its own `engine.tensor_parallel` GPUs."""
    min_workers: int = 1
    """Smallest number of rollout workers that must have a node. A worker whose node died comes back as soon as another
    node has room; the run continues without it, unless fewer than these are left for `cluster.placement_timeout_s`."""
    threads: Optional[int] = None
    """Number of CPU threads of one engine, divided among its processes. null: 1 on a CPU, 8 on GPUs."""
    in_flight: Optional[int] = None
    """Number of episodes in flight per worker. A worker always gets at least one whole group; all further groups wait
    in the driver. `engine.max_num_seqs` requests sample at once, and the episode clock of the others stops.
    null: twice `engine.max_num_seqs`, so that the engine stays full while the last episodes of a group end or wait for
    tools."""
    max_turn_tokens: int = 64
    """Limit of one message of the model, in tokens."""
    max_response_tokens: Optional[int] = None
    """Limit of a whole response in tokens: everything after the prompt, tool results included. null: as
    `engine.max_model_len` allows."""
    temperature: float = 1.0
    """Sampling temperature of the episodes. The learner computes log-probs at the same temperature."""
    top_p: float = 1.0
    """Nucleus (top-p) limit: only the most likely tokens that together have this probability are sampled. It must be 1
    in an rl stage."""
    infra_attempts: int = 3
    """Number of attempts at a group, counting the first, when workers die while they play it. After the first death it
    is retried with few other groups on the worker, after the second alone; only a group that was alone when its worker
    died fails for good."""
    infra_retries: int = 2
    """Number of retries of an episode after the engine, a tool or a deadline failed it. If only its scoring failed,
    only the scoring is retried."""
    data_retries: int = 1
    """Number of retries of an episode after its environment, its record or its chat template raised an error."""
    grader_workers: int = 1
    """Number of processes per rollout worker that compare mathematical answers. They start when the first one is
    needed."""
    grader_deadline_s: float = 5.0
    """Timeout of one comparison of mathematical answers, in seconds. A comparison that times out is a failure, not a
    wrong answer."""
    episode_timeout_s: Optional[float] = None
    """Timeout of one episode in seconds, tools included, waiting for a slot in the engine excluded; and of its scoring.
    What is being sampled then is cut off, as at a token limit, and ends `time_limit`; what waits for a tool is a
    failure of kind timeout. null: what a response of the largest length takes at 8 tokens a second, and its tools, at
    least 300."""
    block_timeout_s: float = 30.0
    """Time limit in seconds for a call of an environment or a reward that blocks the event loop, and with it the other
    episodes of its worker. After it the group of the call fails and the other groups are played again. At most half of
    the shortest `episode_timeout_s` of a stage."""
    call_timeout_s: float = 120.0
    """Timeout of a control call to a worker (a ping, new weights), in seconds. A worker that does not answer in time
    counts as hung, and so does one whose engine has requests and takes no step for as long; that it takes none is said
    after 20 s."""
    start_timeout_s: Optional[float] = None
    """Timeout of the start of a worker, of a tool service, or of an environment and its reward, in seconds. A model
    from the hub is downloaded before. null: 300, and three times what the model's size takes at 100 MB/s."""

    def __post_init__(self) -> None:
        counts = ("workers", "max_turn_tokens", "infra_attempts", "grader_workers")
        require_bounds(self, "rollout.", "at least 1", *counts)
        require_bounds(self, "rollout.", "at least 1, or null", "threads", "in_flight", "max_response_tokens")
        least, most = self.min_workers, self.workers
        require(1 <= least <= most, "rollout.min_workers", least, f"1 to rollout.workers={most}")
        require_bounds(self, "rollout.", "above 0 and at most 2", "temperature")
        require_bounds(self, "rollout.", "above 0 and at most 1", "top_p")
        require_bounds(self, "rollout.", "0 or more", "infra_retries", "data_retries")
        require_bounds(self, "rollout.", "above 0", "grader_deadline_s", "block_timeout_s", "call_timeout_s")
        require_bounds(self, "rollout.", "above 0, or null", "episode_timeout_s", "start_timeout_s")
