"""A row's conversation: every environment plays what stands before the question, or refuses the row by its name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from envs import WORLDS, new_world
from envs.rewards.judged import request_about_answer
from envs.tasks.config import TaskConfig
from envs.tasks.formats import read_source
from envs.tasks.splits import split_tasks
from envs.tools.offered import ToolEntry
from envs.tools.search import Document, SearchConfig, SearchTool
from launch.run_dir.played import content_of
from rlsys.choices import choose
from rlsys.types import Message, Task
from tests.makers.made import jsonl
from tests.refused import refused

SEARCH = SearchConfig(url="http://127.0.0.1:9")
SYSTEM = {"role": "system", "content": "Answer in JSON."}
EARLIER = [{"role": "user", "content": "How warm is Rome?"}, {"role": "assistant", "content": "12"}]
ASKED = {"role": "user", "content": "And Paris?"}
TALK = [SYSTEM, *EARLIER, ASKED]
SAID = {"role": "assistant", "content": "<answer>15</answer>"}
ROWS: list[dict[str, Any]] = [
    {"prompt": TALK, "answer": "15"},
    {"prompt": TALK, "reward_model": {"ground_truth": "15"}},  # verl
    {"Prompt": TALK, "reward_model": {"ground_truth": "15"}},
    {"messages": [*TALK, SAID], "answer": "15"},
    {"question": "And Paris?", "answer": "15", "prompt": [*TALK[:-1], {"role": "user", "content": "Now: And Paris?"}]},
    {"question": "And Paris?", "answer": "15", "messages": [*TALK, SAID]},
]
PLAYED: list[tuple[str, dict[str, Any]]] = [
    ("questions", {}),
    ("tools", {}),
    ("tools", {"protocol": "hermes", "tools": [ToolEntry(name="calculator")]}),
    ("calculator", {}),
    ("python_math", {}),
    ("search_qa", {"protocol": "direct"}),
    ("search_qa", {"protocol": "research", "retriever": SEARCH}),
]


def world(tmp_path: Path, name: str, *rows: dict[str, Any], **keys: Any) -> Any:
    schema: Any = choose("env", WORLDS, name).schema
    return new_world(schema(data=jsonl(tmp_path / "rows.jsonl", rows), **keys))


def only(tmp_path: Path, row: dict[str, Any]) -> Task:
    (task,) = read_source(jsonl(tmp_path / "one.jsonl", [row]))
    return task


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("name", "keys"), PLAYED)
def test_the_whole_conversation_is_played(tmp_path: Path, name: str, keys: dict[str, Any], row: dict[str, Any]) -> None:
    plain = {"question": "And Paris?", "answer": "15"}
    chat_world = world(tmp_path, name, plain, plain | {"question": "x"}, **keys)
    (question,) = chat_world.env(only(tmp_path, plain)).first_messages()[-1:]
    first = chat_world.env(only(tmp_path, row)).first_messages()
    assert first[0].role == "system" and first[0].content.startswith("Answer in JSON.")
    assert [message.role for message in first].count("system") == 1
    assert first[1:] == (*(Message(**fields) for fields in EARLIER), question)


def test_a_system_text_of_the_config_stands_before_that_of_a_row(tmp_path: Path) -> None:
    for name in ("questions", "tools", "python_math"):
        rows = [ROWS[0], {"prompt": [EARLIER[0]], "answer": "12"}]
        chat_world = world(tmp_path, name, *rows, system="Be brief.")
        first = chat_world.env(only(tmp_path, ROWS[0])).first_messages()
        assert first[0].content == "Be brief.\n\nAnswer in JSON." and len(first) == 4


@pytest.mark.parametrize("name", ["questions", "search_qa"])
def test_one_text_without_a_chat_has_no_earlier_turns(tmp_path: Path, name: str) -> None:
    keys = {} if name == "questions" else {"protocol": "direct"}
    with refused(says="env.template=instruct"):
        world(tmp_path, name, ROWS[0], ROWS[1], template="base", **keys)


def test_an_environment_of_ones_own_refuses_what_it_would_drop(tmp_path: Path) -> None:
    config = TaskConfig(name="maze.Maze", data=jsonl(tmp_path / "rows.jsonl", [ROWS[0], ROWS[0]]))
    with refused(where="rows.jsonl:1", expected="env.name=prompts"):
        split_tasks(config, make=lambda count, held_out: [])


@pytest.mark.parametrize("name", ["questions", "tools", "calculator"])
def test_a_conversation_that_does_not_end_in_a_question_is_refused(tmp_path: Path, name: str) -> None:
    for last in (SAID, {"role": "tool", "content": "15 degrees"}):
        with refused('"prompt"', says=f"ends in a message of the {last['role']}"):
            world(tmp_path, name, *[{"prompt": [*TALK, last], "answer": "15"}] * 2)


def test_the_same_last_message_after_other_turns_is_another_task(tmp_path: Path) -> None:
    rows = [
        {"prompt": [{"role": "system", "content": f"Degrees of day {n}."}, ASKED], "answer": "15"} for n in range(6)
    ]
    for name in ("questions", "tools", "prompts"):
        chat_world = world(tmp_path, name, *rows, held_out_tasks=2)
        assert [len(chat_world.tasks(split)) for split in ("train", "held_out")] == [4, 2]
    other = world(tmp_path, "questions", *rows, held_out_tasks=2, seed=1)
    orders = {tuple(task.task_id for task in variant.tasks("held_out")) for variant in (chat_world, other)}
    assert len(orders) == 2  # in a hash order of the whole, not in that of the file
    twins = [{"prompt": [SYSTEM | {"id": n}, ASKED]} for n in range(3)]
    with refused(says="nothing is left"):
        world(tmp_path, "prompts", *twins, eval_data=jsonl(tmp_path / "eval.jsonl", twins[:1]))
    assert len({content_of(only(tmp_path, row)) for row in rows}) == 6


def test_a_demonstration_is_what_follows_the_question(tmp_path: Path) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "function": {"name": "calculator", "arguments": {"expression": "3*5"}}}],
    }
    result = {"role": "tool", "content": "And Paris? 15", "tool_call_id": "a"}
    row = {"question": "And Paris?", "answer": "15", "messages": [*TALK, call, result, SAID]}
    for record in (row, ROWS[3]):
        other = record | {"question": "x"} if "question" in record else ROWS[0]
        chat_world = world(tmp_path, "tools", record, other, tools=[ToolEntry(name="calculator")])
        task = only(tmp_path, record)
        first, messages = chat_world.env(task).first_messages(), chat_world.demonstration(task, 0).messages
        assert messages[: len(first)] == first and [message.content for message in first[:3]] == [
            m["content"] for m in TALK[:3]
        ]
        assert len(messages) - len(first) == (3 if record is row else 1)


def test_a_prompt_written_otherwise_is_not_trained_on(tmp_path: Path) -> None:
    rows = ["How warm is Rome?", "how warm is  Rome?\n", [{"role": "user", "content": "How warm is Rome"}], "Paris?"]
    held_out = jsonl(tmp_path / "eval.jsonl", [{"prompt": [{"role": "user", "content": "How warm is Rome?"}]}])
    chat_world = world(tmp_path, "prompts", *({"prompt": row} for row in rows), eval_data=held_out)
    assert [task.question for task in chat_world.tasks("train")] == ["Paris?"]


def test_what_cannot_be_learned_is_no_demonstration(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    row = {"question": "And Paris?", "answer": "15"}
    for more, messages in {"one of calculator": [call], "a reply between": [SAID, SAID]}.items():
        record = row | {"messages": [*TALK, *messages]}
        chat_world = world(tmp_path, "tools", record, record | {"question": "x"}, tools=[ToolEntry(name="calculator")])
        with refused(where="one.jsonl:1", expected=more):
            chat_world.demonstration(only(tmp_path, record), 0)


@pytest.mark.parametrize(
    ("prompt", "completion", "learned"),
    [
        ([ASKED], [ASKED, SAID], [SAID]),  # the whole conversation
        ([ASKED], [SAID], [SAID]),
        ([ASKED], "", None),
        ([ASKED], [{"role": "assistant", "content": " "}], None),
        ([ASKED], [ASKED], None),
        ([ASKED], [{"role": "user", "content": "Rome?"}, SAID], None),
        ([ASKED], [{"role": "system", "content": "Be brief."}, ASKED, SAID], None),
        ("Q: What is two plus two, in words?", "Q: What is two plus two, in words? Four.", None),
    ],
)
def test_a_completion_is_what_follows_its_prompt(
    prompt: Any, completion: Any, learned: list[dict[str, str]] | None, tmp_path: Path
) -> None:
    row = {"prompt": prompt, "completion": completion, "answer": "15"}
    chat_world, task = world(tmp_path, "prompts", row, {"prompt": "x", "answer": "y"}), only(tmp_path, row)
    if learned is None:
        with refused(where="one.jsonl:1"):
            chat_world.demonstration(task, 0)
    else:
        first, messages = chat_world.env(task).first_messages(), chat_world.demonstration(task, 0).messages
        assert messages[: len(first)] == first
        assert [message.content for message in messages[len(first) :]] == [turn["content"] for turn in learned]


def test_a_judge_reads_the_whole_conversation(tmp_path: Path) -> None:
    question = request_about_answer("equal", only(tmp_path, ROWS[0]), "15").fields["question"]
    assert question == "system: Answer in JSON.\n\nuser: How warm is Rome?\n\nassistant: 12\n\nuser: And Paris?"
    plain = request_about_answer("equal", only(tmp_path, {"question": "And Paris?", "answer": "15"}), "15")
    assert plain.fields["question"] == "And Paris?"


def test_a_context_that_begins_anew_has_the_earlier_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"prompt": TALK, "answer": "15"}
    keys = {"protocol": "iter_retgen", "retriever": SEARCH}
    chat_world = world(tmp_path, "search_qa", row, {"question": "x", "answer": "y"}, **keys)

    async def search(self: SearchTool, query: str) -> tuple[Document, ...]:
        return ()

    monkeypatch.setattr(SearchTool, "search", search)

    async def play() -> tuple[Message, ...]:
        env = await chat_world.open_env(only(tmp_path, row))
        return (await env.step("hm", turns_left=1)).replies

    replies = asyncio.run(play())
    assert [message.role for message in replies] == ["system", "user", "assistant", "user"]
