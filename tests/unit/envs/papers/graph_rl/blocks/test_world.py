"""envs.papers.graph_rl.blocks.world: tasks of both kinds, prompts, demonstrations, files."""

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.base import Step
from envs.papers.graph_rl.blocks.execute import solves
from envs.papers.graph_rl.blocks.read import problem_of, read_task, read_tasks, stored_plan
from envs.papers.graph_rl.blocks.words import read_facts, read_plan, read_verdict, sort_facts, statement, verdict_words
from envs.papers.graph_rl.blocks.world import BlocksworldConfig, BlocksworldWorld
from rlsys.errors import BadInput
from rlsys.types import EpisodeEnd, Task
from tests.makers.made import jsonl
from tests.paths import DATA, needs_data
from tests.refused import refused

SMALL = BlocksworldConfig(max_blocks=3, train_tasks=120, held_out_tasks=30, prompt="short")
WORLD = BlocksworldWorld(SMALL)
ENDED, MALFORMED = Step(end=EpisodeEnd.ANSWERED), Step(end=EpisodeEnd.MALFORMED)

START = (
    "the pink block is clear, the hand is empty, the pink block is on top of the grey block and "
    "the grey block is on the table"
)
GOAL = "the grey block is on top of the pink block"
MOVES = (
    "unstack the pink block from on top of the grey block\nput down the pink block\npick up the grey block\n"
    "stack the grey block on top of the pink block"
)


def of_kind(world: BlocksworldWorld, verify: bool) -> list[Task]:
    return [task for task in world.tasks("all") if ("plan" in task.record) == verify]


def said(world: BlocksworldWorld, task: Task, text: str) -> Step:
    return asyncio.run(world.env(task).step(text, turns_left=0))


def test_both_kinds_are_generated_and_the_splits_share_no_instance() -> None:
    train, held_out = WORLD.tasks("train"), WORLD.tasks("held_out")
    assert (len(train), len(held_out)) == (120, 30)
    assert not {task.question for task in train} & {task.question for task in held_out}
    assert len({task.task_id for task in WORLD.tasks("all")}) == 150
    counts = Counter(task.answers for task in WORLD.tasks("all"))
    assert set(counts) == {(), ("valid",), ("invalid",)} and min(counts.values()) > 20
    again = BlocksworldWorld(SMALL)
    assert (again.tasks("train"), again.tasks("held_out")) == (train, held_out)
    with refused("split", found="test"):
        WORLD.tasks("test")


@pytest.mark.parametrize(("share", "verifying"), [(0.0, 0), (1.0, 40)])
def test_the_share_of_plans_to_verify(share: float, verifying: int) -> None:
    world = BlocksworldWorld(BlocksworldConfig(max_blocks=3, train_tasks=30, held_out_tasks=10, verify_share=share))
    assert len(of_kind(world, True)) == verifying


def test_a_task_survives_json() -> None:
    for task in WORLD.tasks("train")[:20]:
        assert problem_of(Task(task_id="t", question="", record=json.loads(json.dumps(task.record)))) == problem_of(
            Task(task_id="t", question="", record=task.record)
        )


def test_a_plan_answers_a_planning_task_only() -> None:
    task = of_kind(WORLD, False)[0]
    assert said(WORLD, task, f"{MOVES}\n[PLAN END]") == ENDED
    assert said(WORLD, task, "The above plan is valid.") == MALFORMED
    assert said(WORLD, task, "") == MALFORMED
    assert WORLD.env(task).stop_strings == ("[PLAN END]",)


def test_a_verdict_answers_a_verifying_task_only() -> None:
    task = of_kind(WORLD, True)[0]
    assert said(WORLD, task, "The above plan is valid.") == ENDED
    assert said(WORLD, task, f"{MOVES}\n[PLAN END]") == MALFORMED
    assert WORLD.env(task).stop_strings == ("[STATEMENT]",)


def test_what_stands_in_a_thought_is_no_answer() -> None:
    """As the reward reads it."""
    plan, verdict = of_kind(WORLD, False)[0], of_kind(WORLD, True)[0]
    assert said(WORLD, plan, f"<think>Which one first?</think>\n{MOVES}\n[PLAN END]") == ENDED
    assert said(WORLD, plan, f"<think>\n{MOVES}\n[PLAN END]") == MALFORMED
    assert said(WORLD, plan, f"<think>{MOVES}</think>Which one first?\n[PLAN END]") == MALFORMED
    assert said(WORLD, verdict, "<think>Is it valid?</think>The above plan is invalid.") == ENDED
    assert said(WORLD, verdict, "<think>The above plan is valid.") == MALFORMED
    assert said(WORLD, verdict, "<think>The above plan is valid.</think>I do not know.") == MALFORMED


@given(st.text())
def test_any_message_ends_the_episode(text: str) -> None:
    for verify in (False, True):
        assert said(WORLD, of_kind(WORLD, verify)[0], text) in (ENDED, MALFORMED)


def test_an_empty_plan_is_a_question_too(tmp_path: Path) -> None:
    said_there = f"{statement(read_facts(START, ''), read_facts(GOAL, ''))}\n[PLAN]\n\n[PLAN END]\n[VERIFICATION]"
    stored = "The above plan is invalid. This is the unmet goal condition:\nthe grey block is on top of the pink block"
    records = [
        {"initial": START, "goal": GOAL, "plan": ""},
        {"query": f"Rules\n[STATEMENT]\n{said_there}", "ground_truth_plan": stored},
    ]
    path = tmp_path / "verify.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    tasks = read_tasks(str(path))
    for task in tasks:
        assert (problem_of(task).plan, task.answers) == ((), ("invalid",))
        assert WORLD.env(task).first_messages()[0].content.endswith("[PLAN]\n\n[PLAN END]\n[VERIFICATION]")
    world = BlocksworldWorld(BlocksworldConfig(max_blocks=3, train_tasks=20, held_out_tasks=5))
    assert world.demonstration(tasks[1], 0).messages[-1].content == stored


def test_the_short_prompt_says_what_stands_on_what() -> None:
    record = {"initial": START, "goal": GOAL, "plan": MOVES}
    task = read_task(record, "here", "t")
    (message,) = WORLD.env(task).first_messages()
    assert (
        message.content
        == f"pink on grey, grey on table\ngoal: grey on pink\n[PLAN]\n{MOVES}\n[PLAN END]\n[VERIFICATION]"
    )
    task = read_task(
        {"initial": "the hand is currently holding pink block", "goal": "the pink block is clear, the hand is empty"},
        "here",
        "t",
    )
    assert WORLD.env(task).first_messages()[0].content == "holding pink\ngoal: pink clear, hand empty\n[PLAN]"


def test_the_long_prompt_has_the_rules_and_the_statement() -> None:
    world = BlocksworldWorld(BlocksworldConfig(max_blocks=3, train_tasks=4, held_out_tasks=1))
    task = read_task({"initial": START, "goal": GOAL}, "here", "t")
    (message,) = world.env(task).first_messages()
    assert message.role == "user"
    assert message.content.startswith("Blocks stand on a table")
    assert message.content.endswith(
        f"[STATEMENT]\nAs initial conditions I have that, {START}.\nMy goal is to have that {GOAL}.\n\n"
        "My plan is as follows:\n\n[PLAN]"
    )


@pytest.mark.parametrize(("rate", "low", "high"), [(0.0, 1.0, 1.0), (0.5, 0.43, 0.57), (1.0, 0.0, 0.0)])
def test_the_share_of_right_demonstrations_follows_the_error_rate(rate: float, low: float, high: float) -> None:
    config = BlocksworldConfig(max_blocks=3, train_tasks=120, held_out_tasks=1, demo_error_rate=rate)
    world = BlocksworldWorld(config)
    right = []
    for task in world.tasks("train"):
        problem = problem_of(task)
        for seed in range(5):
            demonstration = world.demonstration(task, seed)
            prompt, answer = demonstration.messages
            assert (prompt,) == world.env(task).first_messages() and answer.role == "assistant"
            assert said(world, task, answer.content) == ENDED
            if problem.plan is None:
                right.append(solves(problem.state, problem.goal, read_plan(answer.content).actions))
            else:
                read = read_verdict(answer.content)
                right.append(read is not None and read[0] == problem.valid)
    # 600 draws: three standard deviations of a share of one half are 0.061.
    assert low <= sum(right) / len(right) <= high


def test_demonstrations_depend_on_task_and_seed_only() -> None:
    task = of_kind(WORLD, False)[0]
    assert WORLD.demonstration(task, 5) == BlocksworldWorld(SMALL).demonstration(task, 5)
    assert len({WORLD.demonstration(task, seed).messages for seed in range(30)}) > 3


def test_texts_show_prompts_plans_and_verdicts_up_to_the_limit() -> None:
    assert len(list(WORLD.texts(7))) == 7
    texts = list(WORLD.texts(10**6))
    assert len(texts) == 240
    for piece in ("[PLAN END]", "[VERIFICATION]", "The above plan is", "unstack"):
        assert any(piece in text for text in texts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_blocks": 1}, r"env\.min_blocks=1: expected at least 2"),
        ({"max_blocks": 7}, r"env\.max_blocks=7"),
        ({"max_blocks": 2}, r"env\.max_blocks=2"),
        ({"verify_share": 2.0}, r"env\.verify_share=2\.0"),
        ({"demo_error_rate": -1.0}, r"env\.demo_error_rate=-1\.0"),
    ],
)
def test_a_bad_setting_is_named(changes: dict[str, float], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        BlocksworldConfig(**changes)  # type: ignore[arg-type]


# Files


def query(start: str, goal: str, plan: str = "") -> str:
    """In PlanBench's form, with an example before it that must not count."""
    example = "[STATEMENT]\nAs initial conditions I have that, nonsense.\nMy goal is more.\n\n[PLAN]\n[PLAN END]\n\n"
    text = f"Rules of somebody.\n\n{example}[STATEMENT]\nAs initial conditions I have that, {start}.\n"
    text += f"My goal is to have that {goal}. \nMy plan is as follows:\n\n[PLAN]"
    return text + (f"\n{plan}\n[PLAN END]\n\n[VERIFICATION]" if plan else "")


def test_records_in_both_forms_ask_the_same(tmp_path: Path) -> None:
    records = [
        {"initial": START, "goal": GOAL},
        {"query": query(START, GOAL), "ground_truth_plan": "(fly pink)", "domain": "logistics"},
        {"query": query(START, GOAL), "ground_truth_plan": "(unstack pink grey)\n"},
        {"query": query(START, GOAL, MOVES), "ground_truth_plan": "The above plan is valid.\n"},
        {"initial": f"As initial conditions I have that, {START}.", "goal": GOAL, "plan": MOVES.splitlines()[0]},
    ]
    tasks = read_tasks(jsonl(tmp_path / "blocks.jsonl", records))
    assert [task.task_id for task in tasks] == [f"blocks.jsonl:{line}" for line in (1, 3, 4, 5)]
    assert len({task.question for task in tasks}) == 1
    assert [task.answers for task in tasks] == [(), (), ("valid",), ("invalid",)]
    assert stored_plan(tasks[1].record, "here") is not None and stored_plan(tasks[2].record, "here") is None
    assert [task.record.get("plan_length") for task in tasks] == [None, None, 4, 1]
    world = BlocksworldWorld(BlocksworldConfig(max_blocks=3, train_tasks=4, held_out_tasks=1))
    assert world.env(tasks[1]).first_messages()[0].content.startswith("Rules of somebody.\n\nWrite a plan")


def test_one_instance_with_two_plans_is_not_on_both_sides(tmp_path: Path) -> None:
    starts = [START.replace("pink", colour) for colour in ("red", "blue", "tan", "teal")]
    goals = [GOAL.replace("pink", colour) for colour in ("red", "blue", "tan", "teal")]
    records = [{"initial": start, "goal": goal} for start, goal in zip(starts, goals, strict=True)]
    records += [{**record, "plan": "put down the red block"} for record in records]
    world = BlocksworldWorld(BlocksworldConfig(data=jsonl(tmp_path / "blocks.jsonl", records), held_out_tasks=3))
    questions = {task.question for task in world.tasks("held_out")}
    assert questions and not questions & {task.question for task in world.tasks("train")}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"goal": GOAL}, 'line 1: no "initial"'),
        ({"initial": START, "goal": 3}, 'line 1: "goal" is a number'),
        ({"initial": START, "goal": "the grey block flies"}, 'line 1: "goal": \'the grey block'),
        ({"initial": START, "goal": "."}, 'line 1: "goal" says nothing'),
        ({"initial": "the hand is empty and the red block is clear", "goal": GOAL}, 'line 1: "initial" cannot be: '),
        ({"initial": START, "goal": GOAL, "plan": "wait"}, "line 1: \"plan\": 'wait' is no action"),
        ({"query": "Stack!"}, 'line 1: "query" does not end in'),
        ({"domain": "logistics"}, r"blocks\.jsonl: no record with a"),
    ],
)
def test_a_malformed_record_is_named_by_file_and_line(tmp_path: Path, record: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        BlocksworldWorld(BlocksworldConfig(data=jsonl(tmp_path / "blocks.jsonl", [record])))


def test_demonstrations_that_cannot_be_given_say_why(tmp_path: Path) -> None:
    ring = f"{GOAL} and the pink block is on top of the grey block"
    for goal, message in (("the hand is empty", "the goal holds already"), (ring, "no plan reaches the goal")):
        with pytest.raises(BadInput, match=f"task t: {message}"):
            WORLD.demonstration(read_task({"initial": START, "goal": goal}, "here", "t"), 0)


@given(
    st.dictionaries(
        st.sampled_from(["initial", "goal", "plan", "query"]), st.one_of(st.text(), st.none(), st.integers())
    )
)
def test_any_record_is_a_task_or_bad_input(record: dict[str, object]) -> None:
    try:
        assert read_task(record, "here", "t").question
    except BadInput as error:
        assert str(error).startswith("here")


# PlanBench itself, where it is at hand


@needs_data
def test_every_stored_plan_of_planbench_is_valid_and_its_wording_is_ours() -> None:
    tasks = read_tasks(str(DATA / "blocksworld_plan_100.jsonl"))
    assert len(tasks) == 100
    for task in tasks:
        problem, plan = problem_of(task), stored_plan(task.record, "here")
        assert plan is not None and solves(problem.state, problem.goal, plan)
        said_there = task.record["query"].rpartition("[STATEMENT]\n")[2]
        assert said_there.startswith(
            statement(sort_facts(problem.state, ["red", "blue", "orange", "yellow"]), problem.goal)
        )


@needs_data
def test_every_stored_verdict_of_planbench_is_ours_with_its_reason() -> None:
    count = 0
    for task in read_tasks(str(DATA / "blocksworld_verify_100.jsonl")):
        # The query's examples hold three more statements, each with its verdict.
        pieces = (task.record["query"] + task.record["ground_truth_plan"]).split("[STATEMENT]")[1:]
        for piece in pieces:
            example = read_task(
                {"query": "[STATEMENT]" + piece.partition("[VERIFICATION]")[0] + "[VERIFICATION]"}, "here", "t"
            )
            problem, stored = problem_of(example), piece.partition("[VERIFICATION]")[2]
            assert problem.plan is not None
            ours = verdict_words(problem.state, problem.goal, problem.plan)
            assert re.sub(r"\s", "", ours) == re.sub(r"\s", "", stored)
            assert read_verdict(stored) is not None and example.answers == ("valid" if problem.valid else "invalid",)
            count += 1
    assert count == 400
