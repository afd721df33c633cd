"""envs.worlds.calculator: the protocol, the data, the demonstrations."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import envs
from envs.base import Step, find_demonstrable
from envs.papers.swirl.protocol import OVER_LIMIT, SWIRL_MATH
from envs.protocols.record import last_answer
from envs.worlds.calculator import CalculatorConfig, CalculatorWorld, annotated_calls
from launch.config.compose import compose
from rlsys.errors import BadInput
from rlsys.types import EpisodeEnd, Message, Task
from tests.makers.made import jsonl
from tests.paths import DATA, needs_data
from tests.refused import refused

SMALL = CalculatorConfig(train_tasks=200, held_out_tasks=50, max_turns=4, last_chance=False)  # the quickstart's limits
WORLD = CalculatorWorld(SMALL)


def play(*texts: str, turns_left: int = 3) -> list[Step]:
    env = WORLD.env(WORLD.tasks("train")[0])
    return [asyncio.run(env.step(text, turns_left=turns_left)) for text in texts]


def said(text: str) -> Message:
    return Message(role="user", content=text)


def test_a_call_is_answered_and_the_episode_goes_on() -> None:
    first, second = play("so <math_exp>48 / 2</math_exp>", "<math_exp>1/0</math_exp>")
    assert first == Step(reply=said("48 / 2 -> 24.0"), metrics={"calls": 1, "valid_calls": 1})
    assert second == Step(reply=said("1/0 -> error: division by zero"), metrics={"calls": 1, "valid_calls": 0})


def test_only_the_first_call_is_executed() -> None:
    assert play("<math_exp>1+1</math_exp><math_exp>2+2</math_exp>") == [
        Step(reply=said("1+1 -> 2.0"), metrics={"calls": 1, "valid_calls": 1})
    ]


def test_an_answer_wins_over_a_call_and_may_be_empty() -> None:
    ended = Step(end=EpisodeEnd.ANSWERED)
    assert play("<math_exp>1+1</math_exp><answer>2</answer>", "<answer></answer>") == [ended, ended]
    assert play("<answer>2</answer>", turns_left=0) == [ended]


def test_neither_call_nor_answer_is_malformed() -> None:
    malformed = Step(end=EpisodeEnd.MALFORMED)
    assert play("24", "", "<math_exp>1+1", "<answer>24", turns_left=0) == [malformed] * 4


def test_a_call_without_turns_left_hits_the_limit() -> None:
    assert play("<math_exp>1+1</math_exp>", turns_left=0) == [Step(end=EpisodeEnd.TURN_LIMIT)]


def test_ten_calculations_and_a_last_chance_to_answer_are_swirls() -> None:
    world = CalculatorWorld(CalculatorConfig(train_tasks=1, held_out_tasks=1))
    assert world.max_turns == 12
    env = world.env(world.tasks("train")[0])
    call = "<math_exp>1+1</math_exp>"
    steps = [asyncio.run(env.step(call, turns_left=11 - turn)) for turn in range(12)]
    assert [step.reply for step in steps] == [said("1+1 -> 2.0")] * 10 + [said(OVER_LIMIT), None]
    assert steps[-1].end is EpisodeEnd.TURN_LIMIT


def test_a_repeated_call_is_executed_and_flagged() -> None:
    steps = play("<math_exp>1+1</math_exp>", "<math_exp> 1+1 </math_exp>", "<math_exp>1 + 1</math_exp>")
    assert [step.repeated for step in steps] == [False, True, False]
    assert steps[1].reply == said("1+1 -> 2.0")


@given(st.text())
def test_any_message_gets_exactly_one_of_reply_and_end(text: str) -> None:
    for wrapped in (text, f"<math_exp>{text}</math_exp>", f"<answer>{text}</answer>"):
        (step,) = play(wrapped)
        assert (step.reply is None) != (step.end is None)


def test_generated_splits_are_disjoint_and_the_same_every_time() -> None:
    train, held_out = WORLD.tasks("train"), WORLD.tasks("held_out")
    assert (len(train), len(held_out)) == (200, 50)
    assert list(WORLD.tasks("all")) == [*train, *held_out]
    assert len({task.task_id for task in WORLD.tasks("all")}) == 250
    assert not {task.question for task in train} & {task.question for task in held_out}
    again = CalculatorWorld(SMALL)
    assert (again.tasks("train"), again.tasks("held_out")) == (train, held_out)
    with refused("split", found="test"):
        WORLD.tasks("test")


def test_a_task_survives_json() -> None:
    task = WORLD.tasks("train")[0]
    record: Mapping[str, Any] = json.loads(json.dumps(task.record))
    copy = Task(task_id=task.task_id, question=task.question, answers=task.answers, record=record)
    assert copy == task


def test_prompt_is_one_user_message_and_the_instruction_may_be_empty() -> None:
    task = WORLD.tasks("train")[0]
    assert WORLD.env(task).first_messages() == (said(f"{SWIRL_MATH.instruction}\n{task.question}"),)
    plain = CalculatorWorld(CalculatorConfig(train_tasks=1, held_out_tasks=1, instruction=""))
    assert plain.env(task).first_messages() == (said(task.question),)


def test_demonstrations_replay_in_the_environment() -> None:
    for task in WORLD.tasks("train")[:50]:
        messages = WORLD.demonstration(task, seed=1).messages
        env = WORLD.env(task)
        assert messages[:1] == env.first_messages()
        turns = messages[1:]
        for at in range(0, len(turns), 2):
            assert turns[at].role == "assistant"
            step = asyncio.run(env.step(turns[at].content, turns_left=3 - at // 2))
            assert step.reply == (turns[at + 1] if at + 1 < len(turns) else None)
        assert step.end is EpisodeEnd.ANSWERED


@pytest.mark.parametrize(("rate", "low", "high"), [(0.0, 1.0, 1.0), (0.5, 0.46, 0.54), (1.0, 0.0, 0.0)])
def test_share_of_right_demonstrations_follows_the_error_rate(rate: float, low: float, high: float) -> None:
    world = CalculatorWorld(CalculatorConfig(train_tasks=200, held_out_tasks=1, demo_error_rate=rate))
    right = [
        last_answer(world.demonstration(task, seed).messages[-1].content) == task.answers[0]
        for task in world.tasks("train")
        for seed in range(10)
    ]
    # 2000 draws: three standard deviations of a share of one half are 0.034.
    assert low <= sum(right) / len(right) <= high


def test_a_mistake_can_always_be_an_answer_after_the_first_of_two_calculations() -> None:
    world = CalculatorWorld(
        CalculatorConfig(train_tasks=100, held_out_tasks=1, demo_error_rate=1.0, demo_mistakes="early")
    )
    levels = set()
    for task in world.tasks("train"):
        (first, result), *_ = task.record["steps"]
        *_, call, reply, last = world.demonstration(task, 3).messages
        assert (f"<math_exp>{first}</math_exp>", f"{first} -> {result}.0") == (call.content, reply.content)
        assert last_answer(last.content) == str(result)
        levels.add(world.level(task))
    assert levels == {"1", "2"}


def test_demonstrations_depend_on_task_and_seed_only() -> None:
    task = WORLD.tasks("train")[3]
    assert WORLD.demonstration(task, 5) == CalculatorWorld(SMALL).demonstration(task, 5)
    assert len({WORLD.demonstration(task, seed).messages for seed in range(40)}) > 3


def test_too_few_turns_for_a_demonstration_is_bad_input() -> None:
    world = CalculatorWorld(CalculatorConfig(train_tasks=1, held_out_tasks=1, max_turns=1, last_chance=False))
    with refused("env.max_turns", found=1):
        world.demonstration(world.tasks("train")[0], 0)


@pytest.mark.parametrize(("turns", "calls"), [(None, 10), (4, 3)])
def test_the_instruction_says_how_many_calculations_there_are(turns: int | None, calls: int) -> None:
    world = CalculatorWorld(CalculatorConfig(train_tasks=1, max_turns=turns, instruction="Up to {calls} of them."))
    (message,) = world.env(world.tasks("train")[0]).first_messages()
    assert message.content.startswith(f"Up to {calls} of them.\n")


def test_texts_show_prompts_calls_replies_and_answers_up_to_the_limit() -> None:
    texts = list(WORLD.texts(100))
    assert len(texts) == 100
    for piece in ("How many", "<math_exp>", " -> ", "<answer>"):
        assert any(piece in text for text in texts)
    assert len(list(WORLD.texts(10**9))) < 200 * 6 + 1


# GSM8K's format


def gsm8k(tmp_path: Path, records: list[object], name: str = "data.jsonl") -> str:
    return jsonl(tmp_path / name, records)


def numbered(count: int) -> list[object]:
    return [
        {"question": f"What is {n} + 1?", "answer": f"{n}+1=<<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"}
        for n in range(count)
    ]


def test_records_become_tasks_with_the_answer_after_the_mark(tmp_path: Path) -> None:
    solution = "Half is <<2,160/2=1080>>1,080.\n#### 1,080"
    path = gsm8k(tmp_path, [{"question": " Half of 2,160? ", "answer": solution, "level": 2, "steps": 1}, *numbered(1)])
    world = CalculatorWorld(CalculatorConfig(data=path, held_out_tasks=1))
    (task,) = [task for task in world.tasks("all") if task.task_id == "data.jsonl:1"]
    assert (task.question, task.answers, task.record["level"]) == ("Half of 2,160?", ("1080",), 2)
    assert [message.content for message in world.demonstration(task, 0).messages[1:]] == [
        "<math_exp>2,160/2</math_exp>",
        "2,160/2 -> 1080.0",
        "<answer>1080</answer>",
    ]


def test_a_file_of_ones_own_is_played_within_swirls_limits(tmp_path: Path) -> None:
    def chain(count: int) -> str:
        steps = "".join(f"{n}+1 = <<{n}+1={n + 1}>>{n + 1}\n" for n in range(count))
        return f"{steps}#### {count}"

    path = gsm8k(tmp_path, [{"question": f"{count} steps?", "answer": chain(count)} for count in (9, 10, 11)])
    config = compose("worlds/calculator", [f"env.data={path}", "env.held_out_tasks=1"]).recipe.env
    tasks = {task.answers[0]: task for task in CalculatorWorld(config).tasks("all")}
    world = CalculatorWorld(config)
    assert len(world.demonstration(tasks["10"], 0).messages) == 1 + 2 * 10 + 1
    with refused("env.max_turns", found=11, expected="at least 12"):
        world.demonstration(tasks["11"], 0)
    env, calls = world.env(tasks["10"]), [f"<math_exp>{n} + 1</math_exp>" for n in range(11)]
    texts = [*calls, "<answer>10</answer>"]
    steps = [asyncio.run(env.step(text, turns_left=world.max_turns - at - 1)) for at, text in enumerate(texts)]
    assert [step.reply for step in steps[9:]] == [said("9 + 1 -> 10.0"), said(OVER_LIMIT), None]
    assert steps[-1].end is EpisodeEnd.ANSWERED


@needs_data
def test_gsm8ks_solutions_are_demonstrations() -> None:
    world = CalculatorWorld(CalculatorConfig(data=str(DATA / "gsm8k_train_500.jsonl")))
    tasks, left_out = find_demonstrable(world)
    assert (len(world.tasks("all")), len(tasks)) == (500, 450 - len(left_out))
    assert len(left_out) < 10 and all('no calculations in "answer"' in line for line in left_out)
    for task in tasks:
        *_, result, answered = world.demonstration(task, 0).messages
        assert answered.content == f"<answer>{task.answers[0]}</answer>" and " -> " in result.content


def test_three_rows_are_halved_and_answers_that_are_no_numbers_keep_their_commas(tmp_path: Path) -> None:
    records = [{"question": f"q{n}", "answer": "#### Smith, John"} for n in range(3)]
    world = CalculatorWorld(CalculatorConfig(data=gsm8k(tmp_path, records)))
    assert (len(world.tasks("train")), len(world.tasks("held_out"))) == (2, 1)
    assert world.tasks("all")[0].answers == ("Smith, John",)


def test_half_a_surrogate_pair_is_refused_with_its_line(tmp_path: Path) -> None:
    with refused('"question"', where="line 1", says="surrogate"):
        CalculatorWorld(CalculatorConfig(data=gsm8k(tmp_path, [{"question": "\ud800", "answer": "#### 1"}])))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"answer": "#### 3"}, 'line 7: no "question"'),
        ({"question": "q?"}, 'line 7: no "answer"'),
        ({"question": "q?", "answer": 3}, 'line 7: "answer" is a number, expected a text'),
        (
            {"question": "q?", "answer": "it is 3"},
            'line 7: "answer" ends in \'it is 3\', expected "#### " and the result',
        ),
        ({"question": "q?", "answer": "3\n#### "}, "line 7: \"answer\" ends in '3\\n#### ', expected"),
    ],
)
def test_a_malformed_record_is_named_by_file_and_line(tmp_path: Path, record: object, message: str) -> None:
    path = gsm8k(tmp_path, [*numbered(6), record])
    with pytest.raises(BadInput) as caught:
        CalculatorWorld(CalculatorConfig(data=path))
    assert str(caught.value).startswith(f"{path} {message}")


def test_held_out_records_are_taken_from_the_data_by_seed(tmp_path: Path) -> None:
    path = gsm8k(tmp_path, [*numbered(30), *numbered(30)])  # every question twice

    def held_out(seed: int) -> set[str]:
        world = CalculatorWorld(CalculatorConfig(data=path, held_out_tasks=9, seed=seed))
        questions = {task.question for task in world.tasks("held_out")}
        assert len(world.tasks("held_out")) == 9
        assert not questions & {task.question for task in world.tasks("train")}
        return questions

    assert held_out(0) == held_out(0) != held_out(1)


def test_a_file_of_its_own_is_held_out_whole(tmp_path: Path) -> None:
    data, eval_data = gsm8k(tmp_path, numbered(10)), gsm8k(tmp_path, numbered(4), "eval.jsonl")
    world = CalculatorWorld(CalculatorConfig(data=data, eval_data=eval_data, held_out_tasks=1))
    assert [task.task_id for task in world.tasks("held_out")] == [f"eval.jsonl:{n}" for n in range(1, 5)]
    assert len(world.tasks("train")) == 6  # the four shared questions are not trained on


def test_unusable_files_are_bad_input(tmp_path: Path) -> None:
    path = gsm8k(tmp_path, numbered(3))
    with refused(says="every question is also held out"):
        CalculatorWorld(CalculatorConfig(data=path, eval_data=path))
    with refused(says="no records"):
        CalculatorWorld(CalculatorConfig(data=gsm8k(tmp_path, [])))
    with refused(says="cannot be read"):
        CalculatorWorld(CalculatorConfig(eval_data=str(tmp_path / "gone.jsonl")))


@pytest.mark.parametrize(
    ("solution", "calls"),
    [
        ("a <<48/2=24>>24 b <<48+24=72>>72\n#### 72", ["48/2", "48+24"]),
        ("no calculation\n#### 72", None),
        ("a <<48/2=24\n#### 72", None),
        ("a <<48/2>>24\n#### 72", None),
        ("a <<x/2=24>>24\n#### 72", None),
    ],
)
def test_demonstrations_of_records_need_every_calculation(solution: str, calls: list[str] | None) -> None:
    task = Task(task_id="d.jsonl:1", question="q?", answers=("72",), record={"question": "q?", "answer": solution})
    if calls is not None:
        assert annotated_calls(task) == calls
    else:
        with refused(where="d.jsonl:1"):
            annotated_calls(task)


def test_texts_of_records_need_no_calculations(tmp_path: Path) -> None:
    path = gsm8k(tmp_path, [{"question": f"q{n}?", "answer": f"s{n}\n#### {n}"} for n in range(5)])
    texts = list(CalculatorWorld(CalculatorConfig(data=path, held_out_tasks=1)).texts(6))
    assert len(texts) == 6 and any(text.startswith("<answer>") for text in texts)


def test_a_bad_setting_is_named() -> None:
    with refused("env.demo_error_rate", found=1.5):
        CalculatorConfig(demo_error_rate=1.5)


def test_world_is_picked_by_name() -> None:
    assert isinstance(envs.make_world(SMALL), CalculatorWorld)
    with refused("env.name", found="calculater"):
        envs.make_world(CalculatorConfig(name="calculater"))
