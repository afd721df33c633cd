"""envs.papers.swirl.world: an episode is the next action in a recorded state."""

import asyncio
from pathlib import Path
from typing import Any

from envs import new_player, new_world
from envs.papers.swirl.world import StatesConfig
from rlsys.config.verdicts import VerdictsConfig
from rlsys.types import EpisodeEnd, Message, Task
from tests.makers.made import jsonl
from tests.refused import refused
from tests.unit.launch.driver.stages.test_judge import PLAYED

STOP = ("</search_query>", "</answer>")


def config(tmp_path: Path, records: list[dict[str, Any]], **verdicts: Any) -> StatesConfig:
    jsonl(tmp_path / "judged.jsonl", records)
    path = str(tmp_path / "judged.jsonl")
    return StatesConfig(stop=STOP, protocol_name="swirl", data=path, verdicts=VerdictsConfig(**verdicts))


def test_an_action_ends_the_episode_and_no_tool_is_there(tmp_path: Path) -> None:
    world = new_world(config(tmp_path, PLAYED))
    tasks = world.tasks("train")
    assert [task.task_id for task in tasks] == ["a/0/0", "a/0/1", "b/0/0", "c/0/0"]
    assert (world.tasks("held_out"), world.max_turns, world.tool, world.service) == ((), 1, None, "")
    env = world.env(tasks[1])
    assert env.stop_strings == STOP
    assert [message.content for message in env.first_messages()] == ["a?", "<search_query>q</search_query>", "q -> r"]
    ends = [asyncio.run(env.step(text, turns_left=0)).end for text in ("<search_query>x</search_query>", "hm")]
    assert ends == [EpisodeEnd.ANSWERED, EpisodeEnd.MALFORMED]


def test_whoever_is_given_a_state_needs_no_file(tmp_path: Path) -> None:
    state_config = config(tmp_path, PLAYED)
    task = new_world(state_config).tasks("train")[3]
    Path(state_config.data).unlink()
    assert new_player(state_config).env(task).first_messages() == (Message(role="user", content="c?"),)
    with refused(where="task t", says="no state of a trajectory"):
        new_player(state_config).env(Task(task_id="t", question="q"))


def test_the_set_is_cut_before_it_becomes_states(tmp_path: Path) -> None:
    judged = [
        {**row, "judgements": list(says), "correct": right}
        for row, says, right in zip(PLAYED, (("GOOD", "BAD"), ("GOOD",), ("BAD",)), (True, False, False), strict=True)
    ]
    assert [task.task_id for task in new_world(config(tmp_path, judged, keep="process")).tasks("train")] == ["b/0/0"]
    assert len(new_world(config(tmp_path, judged, keep="outcome")).tasks("train")) == 2
    with refused(says="no state in the 0 trajectories of"):
        new_world(config(tmp_path, judged, keep="both"))
