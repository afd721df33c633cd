"""Data sets with prompts: what is asked, what counts as the answer, and what the model sees."""

from pathlib import Path
from typing import Any

import pytest

from envs.tasks.formats import read_source
from envs.worlds.prompts import PromptsConfig, PromptsWorld
from rlsys.types import Message, Task
from tests.makers.made import jsonl
from tests.refused import refused

USER = {"role": "user", "content": "2 + 3?"}
SYSTEM = {"role": "system", "content": "Be brief."}
SAID = {"role": "assistant", "content": "5"}


def read(tmp_path: Path, *rows: dict[str, Any]) -> list[Task]:
    return read_source(jsonl(tmp_path / "rows.jsonl", rows))


def world(tmp_path: Path, *rows: dict[str, Any], **keys: Any) -> PromptsWorld:
    return PromptsWorld(PromptsConfig(data=jsonl(tmp_path / "rows.jsonl", rows), held_out_tasks=1, **keys))


@pytest.mark.parametrize(
    ("row", "question", "answers"),
    [
        ({"prompt": "2 + 3?", "answer": 5}, "2 + 3?", ("5",)),
        ({"prompt": [SYSTEM, USER], "answer": "so\n#### 5"}, "2 + 3?", ("5",)),
        ({"prompt": [USER], "solution": "it is \\boxed{5}", "x": 1}, "2 + 3?", ("5",)),
        ({"prompt": [USER], "ground_truth": ["5", "five"]}, "2 + 3?", ("5", "five")),
        ({"prompt": [USER], "answer": {"odd": 1}}, "2 + 3?", ()),
        ({"prompt": [{"role": "user", "content": [{"type": "text", "text": "2 + 3?"}]}]}, "2 + 3?", ()),
        ({"messages": [SYSTEM, USER, SAID]}, "2 + 3?", ()),
        ({"messages": [USER, SAID, {"role": "user", "content": "And 1?"}, SAID], "answer": "6"}, "And 1?", ("6",)),
    ],
)
def test_a_row_of_trl_is_a_task(tmp_path: Path, row: dict[str, Any], question: str, answers: tuple[str, ...]) -> None:
    (task,) = read(tmp_path, row)
    assert (task.question, task.answers) == (question, answers)
    assert row.items() <= task.record.items()


def test_the_prompt_is_played_as_it_stands(tmp_path: Path) -> None:
    rows = [
        {"prompt": [SYSTEM, USER]},
        {"prompt": "2 + 3 is "},
        {"question": "2 + 4?", "answer": "6"},
        {"messages": [USER, SAID, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]},
    ]
    plain = world(tmp_path, rows[0])
    first = [plain.env(task).first_messages() for row in rows for task in read(tmp_path, row)]
    system, user = Message(role="system", content="Be brief."), Message(role="user", content="2 + 3?")
    assert first == [
        (system, user),
        (Message(role="user", content="2 + 3 is ", inline=True),),
        (Message(role="user", content="2 + 4?"),),
        (user, Message(role="assistant", content="5"), Message(role="user", content="Sure?")),
    ]
    own = world(tmp_path, rows[0], system="Think.")
    chats = [row for row in rows if row is not rows[1]]
    messages = [own.env(task).first_messages()[0] for row in chats for task in read(tmp_path, row)]
    think = Message(role="system", content="Think.")
    assert messages == [system, think, think]
    with refused("env.system", found="Think."):  # a text has no messages
        own.env(read(tmp_path, rows[1])[0])


def test_a_text_that_the_question_is_about_is_shown_or_refused(tmp_path: Path) -> None:
    row = {"question": "Where is it?", "answer": "Ulm"}
    with refused('"passage"', where="1", expected="{passage}"):
        world(tmp_path, row | {"passage": "It is in Ulm."})
    fields = {"prompt": [{"role": "user", "content": "It is in Ulm. Where is it?"}], "context": "It is in Ulm."}
    assert world(tmp_path, row | fields).tasks("all")
    assert world(tmp_path, row | {"context": [["Ulm", ["It is in Ulm."]]], "passage": None}).tasks("all")


def test_what_a_row_has_as_its_completion_is_its_demonstration(tmp_path: Path) -> None:
    plain = world(tmp_path, {"prompt": "2 + 3?", "completion": "5"}, {"prompt": "2 + 4?", "solution": "6, I say"})
    demonstrations = {task.question: plain.demonstration(task, 0).messages[-1] for task in plain.tasks("all")}
    assert demonstrations == {question: Message(role="assistant", content=text) for question, text in
                     (("2 + 3?", "5"), ("2 + 4?", "6, I say"))}  # fmt: skip
    (task,) = read(tmp_path, {"messages": [USER, SAID]})
    assert [m.role for m in plain.demonstration(task, 0).messages] == ["user", "assistant"]
    with refused(says='no "response"'):
        plain.demonstration(Task(task_id="t", question="q", record={"prompt": "q"}), 0)


def test_conversations_that_end_in_one_question_are_different_tasks(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "system", "content": f"{n}"}, USER]} for n in range(4)]
    split = world(tmp_path, *rows)
    assert (len(split.tasks("train")), len(split.tasks("held_out"))) == (3, 1)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": []}, '"prompt"'),
        ({"prompt": 7.5}, "rows.jsonl"),
        ({"prompt": [SYSTEM]}, "holds no question"),
        ({"prompt": [USER, SAID]}, "ends in a message of the assistant"),
        ({"prompt": [USER | {"name": "Ann"}]}, '"name"'),
        ({"prompt": [USER | {"inline": True}]}, "inline"),
        ({"prompt": [{"role": "assistant", "content": "", "calls": [{}]}, USER]}, "calls"),
        ({"prompt": [{"role": "robot", "content": "x"}]}, "one of system, user"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "a part of it is no text"),
        ({"prompt": [USER, {"role": "assistant", "content": "", "tool_calls": [{}]}]}, "tool_calls"),
        ({"prompt": [{"role": "user", "content": "half \ud83d"}]}, "surrogate"),
        ({"messages": [SAID, {"role": "tool", "content": "4"}]}, "no message of the assistant"),
        ({"messages": [SAID]}, "no message of the assistant"),
    ],
)
def test_what_cannot_be_played_is_named(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with refused(says=says):
        world(tmp_path, row, row)


def test_prompts_are_not_made_up() -> None:
    with refused("env.data", found=None):
        PromptsWorld(PromptsConfig())
