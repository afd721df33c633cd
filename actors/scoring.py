"""The reward service of a rollout worker: each trajectory is scored as it finishes, during generation, in the process
of the environments (`actors.env_server`).

Rewards are pure functions of a transcript. What one needs besides the text is decided first: what a judge says of it,
and whether an answer equals the gold one, in a pool of processes with a hard deadline. What breaks there is a typed
failure, never a zero (docs/laws.md, law 3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from envs.rewards import RewardFunction
from envs.rewards.asks import resolve_requests
from envs.rewards.findings import score_and_explain
from envs.rewards.maths.grader import Grader
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import JudgeClient, open_judge
from envs.services.judge.request import RULED, AskableJudge
from envs.services.stats import ToolStats, merge
from rlsys.types import Reward, Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSpec:
    grader_workers: int
    grader_deadline_s: float


class RewardService:
    def __init__(self, spec: ScoringSpec) -> None:
        # Its processes start with the first answer that needs one.
        self._grader = Grader(workers=spec.grader_workers, deadline_s=spec.grader_deadline_s)
        self._judges: dict[JudgeConfig, AskableJudge] = {}
        self._ruled = 0  # messages that were judged by their length, of which no judge was asked
        self._own: list[tuple[str, JudgeClient]] = []  # those of `_judges` that ask a server of the run, with its name
        self._addresses: Mapping[str, str] = {}
        self._token = ""

    def connect(self, addresses: Mapping[str, str], token: str) -> None:
        """Where the run's own judges listen, by the name of the server. What waits for an answer asks there again."""
        for name, client in self._own:
            if name in addresses and addresses[name] != self._addresses.get(name):
                client.connect(addresses[name], token)
        self._addresses, self._token = addresses, token

    async def score(self, reward: RewardFunction, transcript: Transcript) -> Reward:
        """With the verdicts that it rests on, so that files have them.

        Raises EpisodeBroken for what broke on the way, BadInput for a task that cannot be scored.
        """
        judgements = transcript.judgements
        transcript = await resolve_requests(reward, transcript, self._grader, self._judge)
        if judgements is None:
            self._ruled += sum(judgement.startswith(RULED) for judgement in transcript.judgements or ())
        scored = score_and_explain(reward, transcript)
        return replace(
            scored,
            correct=scored.correct if transcript.correct is None else transcript.correct,
            judgements=scored.judgements if transcript.judgements is None else transcript.judgements,
        )

    def _judge(self, config: JudgeConfig) -> AskableJudge:
        """One judge per config, however many rewards ask it. Raises BadInput without an address or its key."""
        if config not in self._judges:
            url = self._addresses.get(config.server)
            if url is None:
                self._judges[config] = open_judge(config)
            else:
                client = JudgeClient(url, self._token, config, proxy=False)
                self._judges[config] = client
                self._own.append((config.server, client))
        return self._judges[config]

    def tool_stats(self) -> Mapping[str, ToolStats]:
        """Of judge and grader, as of tools: see `errors_unparsable` of the judge, and `errors_hopeless`."""
        judge_stats = merge(judge.stats() for judge in self._judges.values())
        stats = {"judge": replace(judge_stats, ruled=self._ruled)} if self._judges else {}
        return stats | ({"grader": self._grader.stats()} if self._grader.asked else {})

    async def close(self) -> None:
        await asyncio.to_thread(self._grader.close)
        for judge in self._judges.values():
            await judge.close()
