"""What a run leaves behind is scored again by `rlsys score`: the same rewards and parts, to the last digit."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.scoring import RewardService, ScoringSpec
from envs.papers.graph_rl.blocks.reward import BlocksworldRewardConfig
from envs.papers.graph_rl.reward import GraphRLRewardConfig
from envs.papers.icrl.reward import IcrlRewardConfig
from envs.papers.long_cot.reward import LongCotRewardConfig
from envs.papers.research.reward import ResearchRewardConfig
from envs.papers.swirl.reward import SwirlRewardConfig
from envs.rewards import make_reward
from envs.rewards.answer import AnswerRewardConfig
from envs.services.judge.config import JudgeConfig
from launch.cli import run
from launch.driver.run.episodes import Played
from launch.driver.run.rundir import RunDir
from rlsys.config.output import TrajectoriesConfig
from rlsys.rollout import transcript_of
from rlsys.types import EpisodeEnd, Failure, FailureKind, Message, Task, Trajectory
from tests.fakes.judge_endpoint import scripted
from tests.makers.made import group, records, ticket, trajectory, turn

PARIS = Task(task_id="q:1", question="The capital of France?", answers=("Paris",), record={"source": "hand"})
SURD = Task(task_id="m:1", question="?", answers=("\\sqrt{8}",))
LINKS = Task(
    task_id="g:1",
    question="?",
    record={"kind": "connectivity", "num_nodes": 6, "edges": [[0, 4], [1, 4], [2, 4]], "source": 0, "target": 2},
)
STEPS = "<think>...</think>\n<response>{}</response>\n<answer>yes</answer>"
BLOCKS = Task(
    task_id="b:1",
    question="?",
    record={
        "initial": "the red block is clear, the blue block is clear, the hand is empty, the red block is on the table "
        "and the blue block is on the table",
        "goal": "the red block is on top of the blue block",
    },
)
SEARCHED = "<think>x</think><search>capital of France</search>"
FOUND = "<result>\nParis is big</result>"
EPISODES: list[tuple[Any, Task, list[list[str]], list[str]]] = [  # (reward, task, an episode's messages, overrides)
    (
        AnswerRewardConfig(),
        PARIS,
        [["<answer>paris</answer>"], ["Paris"], ["<answer>Rome</answer><answer>Paris</answer>"]],
        [],
    ),
    (
        AnswerRewardConfig(max_length=8, overlong_buffer=6),
        PARIS,
        [["<answer>Paris</answer>"], ["a", "b", "<answer>Paris</answer>"]],
        ["reward.max_length=8", "reward.overlong_buffer=6"],
    ),
    (
        ResearchRewardConfig(),
        PARIS,
        [
            [SEARCHED, FOUND, "<think>y</think><answer>\\boxed{Paris, France}</answer>"],
            ["<answer>\\boxed{Paris}</answer>"],
            [SEARCHED, FOUND],
        ],
        ["reward.name=research"],
    ),
    (
        IcrlRewardConfig(clamp=False),
        PARIS,
        [[SEARCHED, "<information>Paris</information>", "<answer>Paris</answer>"], ["hm"], [""]],
        ["reward.name=icrl", "reward.clamp=false"],
    ),
    (
        LongCotRewardConfig(max_length=40, repetition_ngram=2),
        SURD,
        [["so \\boxed{2\\sqrt{2}}"], ["so \\boxed{3\\sqrt{2}}"], ["\\boxed{\\sqrt{8}}", "user", "yes"], ["no idea"]],
        ["reward.name=long_cot", "reward.max_length=40", "reward.repetition_ngram=2"],
    ),
    (
        GraphRLRewardConfig(),
        LINKS,
        [[STEPS.format("0 is connected to 4. 4 is connected to 2.")], [STEPS.format("0 is connected to 2.")], ["yes"]],
        ["reward.name=graph_rl"],
    ),
    (
        BlocksworldRewardConfig(),
        BLOCKS,
        [["[PLAN]\npick up the red block\nstack the red block on top of the blue block\n[PLAN END]"], ["[PLAN]"]],
        ["reward.name=blocksworld"],
    ),
]


def episode(task: Task, sibling: int, said: list[str]) -> Trajectory:
    """The model and the environment in turn, whichever speaks last: a last word of the environment ends it cut off."""
    words = [f"{text} again again".split() for text in said[::2]]
    messages = [Message(role="user", content=task.question)]
    for index, text in enumerate(said):
        messages.append(Message(role="tool" if index % 2 else "assistant", content=text, inline=bool(index % 2)))
    return trajectory(
        *(turn((index,), [len(word) for word in tokens]) for index, tokens in enumerate(words)),
        task=task,
        sibling=sibling,
        messages=messages,
        end=EpisodeEnd.ANSWERED if len(said) % 2 else EpisodeEnd.TOKEN_LIMIT,
        num_prompt=1,
    )


async def rewarded(config: Any, played: list[Trajectory]) -> list[Trajectory]:
    """As a rollout worker does it."""
    rewards = RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=10.0))
    try:
        return [
            replace(play, reward=await rewards.score(make_reward(config), transcript_of(play.task, play)))
            for play in played
        ]
    finally:
        await rewards.close()


def left_behind(folder: Path, played: list[Trajectory]) -> Path:
    """A run directory's file of one group."""
    directory = RunDir(folder / "run")
    of_step = Played(step=1, stage="rl")
    directory.episodes.save(
        "step-000001", [group(ticket(task=played[0].task), *played)], {}, TrajectoriesConfig(), of_step
    )
    directory.close()
    return folder / "run" / "trajectories" / "step-000001.jsonl"


def scored(source: Path, *overrides: str) -> list[dict[str, Any]]:
    output = source.with_name("scored.jsonl")
    assert run(["score", "quickstart", "--input", str(source), "--output", str(output), *overrides]) == 0
    return records(output)


@pytest.mark.parametrize(("config", "task", "said", "overrides"), EPISODES)
def test_every_reward_is_the_same_again(
    tmp_path: Path, config: Any, task: Task, said: list[list[str]], overrides: list[str]
) -> None:
    played = asyncio.run(rewarded(config, [episode(task, sibling, texts) for sibling, texts in enumerate(said)]))
    again = scored(left_behind(tmp_path, played), *overrides)
    assert [(line["status"], line["reward"], line["parts"]) for line in again] == [
        ("scored", play.reward.value, play.reward.parts)  # type: ignore[union-attr]
        for play in played
    ]
    streams = [{stream.name: list(stream.values) for stream in play.reward.streams} for play in played]  # type: ignore[union-attr]
    assert [line["token_rewards"] for line in again] == streams
    assert len({line["reward"] for line in again}) > 1  # it tells episodes apart, so the equality says something


def test_what_a_judge_said_is_kept_and_nobody_is_asked_again(tmp_path: Path) -> None:
    with scripted(lambda prompt: "GOOD" if "Paris" in prompt else "It is off. BAD") as endpoint:
        config = SwirlRewardConfig(judge=JudgeConfig(endpoint=endpoint.url, model="m"))
        tries = [["<answer>Paris</answer>"], ["a", "b", "<answer>Rome</answer>"], ["a", "b", "<answer>Paris</answer>"]]
        played = asyncio.run(rewarded(config, [episode(PARIS, sibling, texts) for sibling, texts in enumerate(tries)]))
        count = len(endpoint.asked)
        judge = [f"reward.judge.endpoint={endpoint.url}", "reward.judge.model=m"]
        again = scored(left_behind(tmp_path, played), "reward.name=swirl", *judge)
        assert len(endpoint.asked) == count == 4  # four questions, one of which came twice
    assert [line["reward"] for line in again] == [1.0, 0.0, 0.5]
    assert [line["reward"] for line in again] == [play.reward.value for play in played]  # type: ignore[union-attr]


def test_an_episode_that_broke_stays_a_failure_and_one_whose_reward_raised_is_scored(tmp_path: Path) -> None:
    broke = Failure(kind=FailureKind.TIMEOUT, where="episode", detail="not over after 5 s")
    raised = Failure(kind=FailureKind.DATA, where="reward", detail="KeyError: 'x'")
    whole = episode(PARIS, 0, ["<answer>Paris</answer>"])
    played = [
        replace(whole, reward=broke, end=EpisodeEnd.FAILED),
        replace(whole, sibling=1, reward=raised, end=EpisodeEnd.FAILED, ended=EpisodeEnd.ANSWERED),
    ]
    first, second = scored(left_behind(tmp_path, played))
    assert first == {"status": "failure", "kind": "timeout", "line": 1, "detail": "not over after 5 s"}
    assert (second["status"], second["reward"]) == ("scored", 1.1)
