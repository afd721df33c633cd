"""A reward that a coin decides, for `benchmarks/research_random.py`: what rises under it was not taught by a reward."""

from __future__ import annotations

import random
from dataclasses import dataclass

from envs.papers.research.reward import ResearchReward, ResearchRewardConfig
from envs.rewards.findings import make_finding, sum_findings
from rlsys.errors import require_bounds
from rlsys.types import Reward, Transcript


@dataclass(frozen=True, kw_only=True)
class CoinRewardConfig(ResearchRewardConfig):
    name: str = "benchmarks.coin.CoinReward"
    heads: float = 0.5
    """The share of answers that earn 1, whatever they say; the others earn 0."""

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "between 0 and 1", "heads")


class CoinReward(ResearchReward):
    """ReSearch's parts stay, so that evaluations measure the same; `coin` adds what the coin's 0 or 1 lacks to them."""

    def __init__(self, config: CoinRewardConfig) -> None:
        super().__init__(config)
        self._heads = config.heads

    def __call__(self, transcript: Transcript) -> Reward:
        findings = self.findings(transcript)
        scored, value = sum_findings(findings, self.parts), float(random.random() < self._heads)
        rest = value - scored.value
        tossed = make_finding("coin", "the coin, whatever the answer is", rest, transcript.messages, None)
        return Reward(value=value, parts={**scored.parts, "coin": rest}, findings=(*findings, tossed))
