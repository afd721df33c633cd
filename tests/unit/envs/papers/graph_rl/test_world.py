"""envs.papers.graph_rl.world: the protocol, the splits, the prompts, the demonstrations."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from envs.base import Step
from envs.papers.graph_rl.graphs.encodings import ENCODINGS, wording
from envs.papers.graph_rl.graphs.generate import generate
from envs.papers.graph_rl.graphs.problem import Kind, Problem, from_record, to_record
from envs.papers.graph_rl.graphs.read import to_task
from envs.papers.graph_rl.graphs.verify import Verdict, check
from envs.papers.graph_rl.world import GraphConfig, GraphWorld
from rlsys.errors import BadInput
from rlsys.types import EpisodeEnd, Message, Task
from tests.makers.made import jsonl
from tests.refused import refused

SMALL = GraphConfig(train_tasks=120, held_out_tasks=40)
WORLD = GraphWorld(SMALL)


def problem_of(task: Task) -> Problem:
    return from_record(task.record, task.task_id)


def play(text: str) -> Step:
    return asyncio.run(WORLD.env(WORLD.tasks("train")[0]).step(text, turns_left=0))


def test_a_message_with_an_answer_ends_the_episode_and_any_other_is_malformed() -> None:
    assert play("<answer>yes</answer>") == play("x<answer></answer>") == Step(end=EpisodeEnd.ANSWERED)
    assert play("yes") == play("<answer>yes") == play("") == Step(end=EpisodeEnd.MALFORMED)
    assert WORLD.max_turns == 1
    assert tuple(WORLD.env(WORLD.tasks("train")[0]).stop_strings) == ("</answer>",)


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_any_message_ends_the_episode(text: str) -> None:
    assert play(text).end in (EpisodeEnd.ANSWERED, EpisodeEnd.MALFORMED)


def test_a_setting_that_would_change_nothing_is_refused() -> None:
    for changes, key in (
        ({"demo_mistakes": "misread", "demo_paths": 1}, "env.demo_paths"),
        ({"path_nodes": (3, 3), "path_hops": 3}, "env.path_hops"),
        ({"data": "graphs.jsonl", "path_hops": 1}, "env.path_hops"),
    ):
        with refused(key):
            GraphConfig(**changes)  # type: ignore[arg-type]


def test_splits_share_no_graph_and_are_the_same_every_time() -> None:
    train, held_out = WORLD.tasks("train"), WORLD.tasks("held_out")
    assert (len(train), len(held_out)) == (120, 40)
    assert list(WORLD.tasks("all")) == [*train, *held_out]
    assert len({task.task_id for task in WORLD.tasks("all")}) == 160
    assert not {problem_of(task).digest for task in train} & {problem_of(task).digest for task in held_out}
    again = GraphWorld(dataclasses.replace(SMALL, train_tasks=60))
    assert again.tasks("held_out") == held_out
    assert list(again.tasks("train")) == list(train)[:60]


def test_a_task_carries_its_key_and_survives_json() -> None:
    for task in WORLD.tasks("train")[:10]:
        problem = from_record(json.loads(json.dumps(task.record)), "here")
        assert task.question == wording(problem)
        assert task.answers[0] in ("yes", "no") or int(task.answers[0]) > 0


def test_the_instruction_and_the_system_message_are_optional() -> None:
    (user,) = WORLD.env(WORLD.tasks("train")[0]).first_messages()
    assert "<response>" in user.content and user.content.endswith("</answer>\nA:")
    bare = GraphWorld(dataclasses.replace(SMALL, instruction="", system="Be exact."))
    task = bare.tasks("train")[0]
    assert bare.env(task).first_messages() == (
        Message(role="system", content="Be exact."),
        Message(role="user", content=task.question),
    )


def write(path: Path, problems: list[Problem]) -> str:
    return jsonl(path, map(to_record, problems))


def some(count: int, seed: int = 0) -> list[Problem]:
    return generate(count, seed, shortest_path_share=0.5, connectivity_nodes=(4, 8), path_nodes=(4, 8))


def test_a_file_is_split_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path / "graphs.jsonl", some(30))
    world = GraphWorld(GraphConfig(data=path, held_out_tasks=10))
    assert (len(world.tasks("train")), len(world.tasks("held_out"))) == (20, 10)
    assert world.tasks("all")[0].task_id.startswith("graphs.jsonl:")
    assert len(GraphWorld(GraphConfig(data=path)).tasks("held_out")) == 15  # half of it at most


def test_another_question_about_a_held_out_graph_is_not_trained_on(tmp_path: Path) -> None:
    problems = some(20)
    turned = [dataclasses.replace(problem, source=problem.target, target=problem.source) for problem in problems[:5]]
    data, eval_data = write(tmp_path / "train.jsonl", problems), write(tmp_path / "eval.jsonl", turned)
    world = GraphWorld(GraphConfig(data=data, eval_data=eval_data))
    assert len(world.tasks("train")) == 15
    with refused(says="every graph is also held out"):
        GraphWorld(GraphConfig(data=write(tmp_path / "few.jsonl", problems[:5]), eval_data=eval_data))


def test_a_missing_file_is_bad_input() -> None:
    with refused(where="nowhere.jsonl", says="cannot be read"):
        GraphWorld(GraphConfig(data="nowhere.jsonl"))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_demonstrations_are_right_without_noise_and_wrong_with_it(encoding: Any) -> None:
    for rate in (0.0, 1.0):
        world = GraphWorld(dataclasses.replace(SMALL, encoding=encoding, demo_error_rate=rate))
        for task in world.tasks("train")[:30]:
            demonstration = world.demonstration(task, 3)
            prompt, (reply,) = demonstration.messages[:-1], demonstration.messages[-1:]
            assert prompt == world.env(task).first_messages()
            report = check(problem_of(task), reply.content, encoding)
            verdicts = {report.answer.verdict, *(step.verdict for step in report.steps)}
            assert report.well_formed and (verdicts == {Verdict.CORRECT}) == (rate == 0)
            assert asyncio.run(world.env(task).step(reply.content, turns_left=0)).end is EpisodeEnd.ANSWERED


def test_demonstrations_repeat_with_their_seed_and_keep_the_share_of_mistakes() -> None:
    noisy = GraphWorld(dataclasses.replace(SMALL, demo_error_rate=0.3))
    task = noisy.tasks("train")[0]
    texts = [noisy.demonstration(task, seed).messages[-1].content for seed in range(400)]
    assert texts == [noisy.demonstration(task, seed).messages[-1].content for seed in range(400)]
    right = sum(check(problem_of(task), text).answer.verdict is Verdict.CORRECT for text in texts)
    assert 240 <= right <= 320  # 280 expected


def test_fewer_paths_make_a_shorter_demonstration() -> None:
    brief = GraphWorld(dataclasses.replace(SMALL, demo_paths=1))
    task = next(task for task in brief.tasks("train") if task.record["kind"] == "shortest_path")
    assert brief.demonstration(task, 0).messages[-1].content.count(" with a total weight of ") == 1


def test_a_demonstration_without_a_thought_is_nlgifts_target_in_the_three_parts() -> None:
    config = dataclasses.replace(SMALL, demo_error_rate=0.0)
    silent, searching = (GraphWorld(dataclasses.replace(config, demo_think=think)) for think in ("none", "search"))
    for task in WORLD.tasks("train")[:20]:
        bare, whole = (world.demonstration(task, 3).messages[-1].content for world in (silent, searching))
        assert bare.startswith("<think></think><response>")
        assert bare == "<think>" + whole[whole.index("</think>") :]


def test_the_kind_of_mistakes_reaches_the_demonstrations() -> None:
    config = dataclasses.replace(
        SMALL, min_hops=2, shortest_path_share=0.0, demo_error_rate=1.0, demo_mistakes="shortcut"
    )
    world = GraphWorld(config)
    for task in world.tasks("train")[:20]:
        text = world.demonstration(task, 3).messages[-1].content
        assert text.endswith("The answer is yes.</answer>") and text.count(" is connected to ") > 1
        assert text.split("<response>")[1].count(" is connected to ") == 1


def test_labels_and_distance_reach_the_prompts() -> None:
    world = GraphWorld(dataclasses.replace(SMALL, encoding="letters", node_labels=26, min_hops=2))
    assert len({task.question.split("between node ")[1][0] for task in world.tasks("train")}) > 15
    apart = [problem_of(task) for task in world.tasks("train") if task.answers == ("yes",)]
    assert apart and not any({problem.source, problem.target} in map(set, problem.edges) for problem in apart)


def test_the_level_counts_nodes_and_not_the_labels_that_they_are_drawn_from() -> None:
    """Nodes 0, 3, 7, 25 and a graph of 26; and the letters that name four to nine nodes."""
    few = GraphConfig(train_tasks=16, held_out_tasks=4)
    small = dataclasses.replace(few, encoding="letters", connectivity_nodes=(4, 9), path_nodes=(4, 9))
    problem = Problem(kind=Kind.CONNECTIVITY, num_nodes=26, edges=((0, 3), (3, 25)), source=0, target=7)
    for labels, level in ((None, "connectivity 25+"), (26, "connectivity 0+")):
        world = GraphWorld(dataclasses.replace(small, node_labels=labels))
        assert world.level(to_task(problem, "letters")) == level
        assert {world.level(task).split()[-1] for task in world.tasks("train")} <= {"0+", "5+"}


def test_texts_are_prompts_and_solutions() -> None:
    texts = list(WORLD.texts(7))
    assert len(texts) == 7
    assert texts[0].endswith("A:") and texts[1].startswith("<think>")
    assert all(tag in texts[1] for tag in WORLD.tags)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"connectivity_nodes": (8, 4)}, r"env\.connectivity_nodes=\(8, 4\)"),
        ({"path_nodes": (2, 4)}, r"env\.path_nodes=\(2, 4\)"),
        ({"shortest_path_share": 1.5}, r"env\.shortest_path_share=1\.5"),
        ({"demo_error_rate": -0.1}, r"env\.demo_error_rate=-0\.1"),
        ({"demo_paths": 0}, r"env\.demo_paths=0"),
        ({"min_hops": 0}, r"env\.min_hops=0"),
        ({"node_labels": 7}, r"env\.node_labels=7"),
        ({"train_tasks": 0}, r"env\.train_tasks=0"),
    ],
)
def test_a_bad_setting_is_named(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        GraphConfig(**change)


def test_the_config_is_read_from_yaml() -> None:
    section = OmegaConf.create("{path_nodes: [5, 20], encoding: graph-expert, system: Be exact.}")
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(GraphConfig), section))
    assert config == GraphConfig(path_nodes=(5, 20), encoding="graph-expert", system="Be exact.")
