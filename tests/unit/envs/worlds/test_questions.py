"""envs.worlds.questions: one message, its endings in every style, the data, the demonstrations."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.problems.sums import RECHECK
from envs.protocols.styles import STYLES
from envs.rewards.answer import same_answer
from envs.text.words import last_boxed
from envs.worlds.questions import QuestionsConfig, QuestionsWorld, find_solution
from rlsys.errors import BadInput
from rlsys.types import EpisodeEnd, Message, Task
from tests.makers.made import jsonl
from tests.paths import DATA, needs_data
from tests.refused import refused

SMALL = QuestionsConfig(train_tasks=200, held_out_tasks=50)
WORLD = QuestionsWorld(SMALL)

CHOICE: dict[str, Any] = {
    "question": "Where is the Louvre?",
    "options": {"A": "Rome", "B": "Paris"},
    "answers": ["B"],
}


def of_file(tmp_path: Path, *rows: object, **keys: Any) -> QuestionsWorld:
    return QuestionsWorld(QuestionsConfig(data=jsonl(tmp_path / "data.jsonl", rows), **keys))


def ending(world: QuestionsWorld, text: str, task: Task | None = None) -> EpisodeEnd | None:
    step = asyncio.run(world.env(task or world.tasks("train")[0]).step(text, turns_left=0))
    assert step.reply is None
    return step.end


BOXED, TAGS = "\\boxed{", "<answer>"


@pytest.mark.parametrize(
    ("style", "answered", "malformed"),
    [
        ("boxed", ["\\boxed{4}", "so \\boxed{\\frac{1}{2}}.", "$\\boxed 4$"], ["4", "", "\\boxed{}", "\\boxed{4"]),
        ("answer_tag", ["<answer>4</answer>", "<answer></answer>"], ["4", "\\boxed{4}", "<answer>4"]),
        ("choice", ["The answer is B.", "\\boxed{b}", "so **A**", "<answer>Paris</answer>"], ["", "C", "no idea"]),
        ("yes_no", ["<answer>Yes.</answer>", "<answer> no </answer>"], ["yes", "<answer>maybe</answer>"]),
        ("free", ["step0 -> step1"], ["", " \n"]),
    ],
)
def test_a_message_with_an_answer_in_its_style_is_answered(
    tmp_path: Path, style: str, answered: list[str], malformed: list[str]
) -> None:
    record = CHOICE if style == "choice" else {key: value for key, value in CHOICE.items() if key != "options"}
    world = of_file(tmp_path, record, {**record, "question": "And now?"}, style=style)
    assert [ending(world, text) for text in answered] == [EpisodeEnd.ANSWERED] * len(answered)
    assert [ending(world, text) for text in malformed] == [EpisodeEnd.MALFORMED] * len(malformed)


def test_options_that_no_prompt_shows_are_refused(tmp_path: Path) -> None:
    """Their answer is a letter, of which the model would know nothing."""
    with refused("env.style", found="boxed", expected="choice"):
        of_file(tmp_path, CHOICE, {**CHOICE, "question": "And now?"}, style="boxed")


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_any_text_ends_the_episode(text: str) -> None:
    task = Task(task_id="t", question="q", answers=("B",), record=CHOICE)
    for style in STYLES.values():
        for wrapped in (text, f"<answer>{text}</answer>", f"\\boxed{{{text}}}", style.write(text)):
            assert style.answered(wrapped, task) in (True, False)


def test_the_prompt_is_the_question_its_options_and_the_instruction(tmp_path: Path) -> None:
    task = WORLD.tasks("train")[0]
    assert WORLD.env(task).first_messages() == (
        Message(role="user", content=f"{task.question}\n{STYLES['boxed'].instruction}"),
    )
    other = {**CHOICE, "question": "Where is the Prado?"}
    plain = of_file(tmp_path, CHOICE, other, style="choice", instruction="", system="Be brief.")
    (task,) = [task for task in plain.tasks("all") if task.task_id == "data.jsonl:1"]
    assert plain.env(task).first_messages() == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="Where is the Louvre?\nA. Rome\nB. Paris"),
    )


def test_a_base_model_reads_one_text_and_goes_on_behind_it() -> None:
    world = QuestionsWorld(
        QuestionsConfig(train_tasks=1, held_out_tasks=1, template="base", system="Sums.", instruction="")
    )
    task = world.tasks("train")[0]
    text = f"Sums.\n{task.question}\n"
    assert world.env(task).first_messages() == (Message(role="user", content=text, inline=True),)


def test_only_what_the_model_cannot_end_itself_has_a_stop_string() -> None:
    assert {name: style.stop for name, style in STYLES.items() if style.stop} == {
        "answer_tag": ("</answer>",),
        "yes_no": ("</answer>",),
    }


# Generated sums


def test_generated_splits_are_disjoint_and_the_same_every_time() -> None:
    train, held_out = WORLD.tasks("train"), WORLD.tasks("held_out")
    assert (len(train), len(held_out)) == (200, 50)
    assert not {task.question for task in train} & {task.question for task in held_out}
    assert len({task.task_id for task in WORLD.tasks("all")}) == 250
    assert QuestionsWorld(SMALL).tasks("all") == WORLD.tasks("all")
    assert all(task.answers == (str(sum(task.record["terms"])),) for task in train)


def test_made_up_sums_may_ask_for_no_form() -> None:
    options = dict(train_tasks=20, held_out_tasks=1, demo_error_rate=0.0, demo_recheck_rate=0.0)
    world = QuestionsWorld(QuestionsConfig(style="free", instruction="", **options))  # type: ignore[arg-type]
    for task in world.tasks("train"):
        (question,), answer = world.env(task).first_messages(), world.demonstration(task, 0).messages[-1].content
        assert question.content == task.question and answer.endswith(f" {task.answers[0]}")


@pytest.mark.parametrize("style", ["boxed", "answer_tag"])
def test_demonstrations_replay_and_err_as_often_as_asked(style: Any) -> None:
    world = QuestionsWorld(
        QuestionsConfig(style=style, train_tasks=200, held_out_tasks=1, demo_error_rate=0.3, demo_recheck_rate=0.2)
    )
    last = [world.demonstration(task, seed).messages[-1] for task in world.tasks("train") for seed in range(10)]
    right = sum(
        STYLES[style].write(task.answers[0]) in last[10 * n + seed].content
        for n, task in enumerate(world.tasks("train"))
        for seed in range(10)
    )
    # 2000 draws: three standard deviations are 0.031 and 0.027.
    assert abs(right / 2000 - 0.7) < 0.031
    assert abs(sum(RECHECK in message.content for message in last) / 2000 - 0.2) < 0.027
    assert {ending(world, message.content) for message in last[:50]} == {EpisodeEnd.ANSWERED}


def test_columns_are_longer_and_the_rate_decides() -> None:
    def mean_length(rate: float) -> float:
        world = QuestionsWorld(QuestionsConfig(train_tasks=100, held_out_tasks=1, demo_column_rate=rate))
        lengths = [len(world.demonstration(task, 0).messages[-1].content) for task in world.tasks("train")]
        return sum(lengths) / len(lengths)

    assert mean_length(1.0) > 1.8 * mean_length(0.0)


def test_doubts_are_as_frequent_as_asked_and_change_no_other_draw() -> None:
    def texts(rate: float) -> list[str]:
        world = QuestionsWorld(QuestionsConfig(train_tasks=300, held_out_tasks=1, demo_doubt_rate=rate))
        return [world.demonstration(task, 0).messages[-1].content for task in world.tasks("train")]

    plain, doubting = texts(0.0), texts(0.4)
    assert [text.split("\n")[0] for text in plain] == [text.split("\n")[0] for text in doubting]
    lines = sum(len(text.split("\n")) - 1 for text in plain)
    more = sum(text.count("Wait, recheck.") for text in doubting) - sum(text.count("Wait, recheck.") for text in plain)
    assert 0.4 < more / lines < 0.75  # 0.4 + 0.4^2 + ... = 2/3 of the right lines


def test_demonstrations_depend_on_task_and_seed_only() -> None:
    task = WORLD.tasks("train")[3]
    assert WORLD.demonstration(task, 5) == QuestionsWorld(SMALL).demonstration(task, 5)
    assert len({WORLD.demonstration(task, seed).messages for seed in range(40)}) > 3
    assert WORLD.demonstration(task, 5).messages[:-1] == WORLD.env(task).first_messages()


def test_texts_show_prompts_and_solutions_up_to_the_limit() -> None:
    texts = list(WORLD.texts(100))
    assert len(texts) == 100
    for piece in ("What is", " so ", "\\boxed{"):
        assert any(piece in text for text in texts)


# Files


GSM8K = "Half is 48/2=<<48/2=24>>24.\n48+24=<<48+24=72>>72\n#### 72"


def test_solutions_of_records_become_demonstrations(tmp_path: Path) -> None:
    world = of_file(
        tmp_path,
        {"question": "Half of 48, and 48?", "answers": ["72"], "answer": GSM8K},
        {"question": "Why not?", "answers": ["4"], "response": "Wait, 2 + 2.\n\\boxed{4} it is."},
        {"question": "And?", "answers": ["5"]},
        {"question": "Held out?", "answers": ["6"]},
        held_out_tasks=1,
        seed=3,
    )
    demonstrations = {}
    for task in world.tasks("all"):
        try:
            demonstrations[task.question] = world.demonstration(task, 0).messages[-1].content
        except BadInput as error:
            demonstrations[task.question] = str(error).partition(":")[0]
    assert demonstrations["Half of 48, and 48?"] == "Half is 48/2=24.\n48+24=72\n\\boxed{72}"
    assert demonstrations["Why not?"] == "Wait, 2 + 2.\n\\boxed{4} it is."
    assert demonstrations["And?"] == "data.jsonl"  # left out, with its place
    assert len(list(world.texts(100))) >= 6


def test_a_file_of_its_own_is_held_out_whole(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answers": ["1"]} for n in range(10)]
    data, eval_data = jsonl(tmp_path / "data.jsonl", rows), jsonl(tmp_path / "eval.jsonl", rows[:4])
    world = QuestionsWorld(QuestionsConfig(data=data, eval_data=eval_data, held_out_tasks=1))
    assert [task.task_id for task in world.tasks("held_out")] == [f"eval.jsonl:{n}" for n in range(1, 5)]
    assert len(world.tasks("train")) == 6


def test_the_text_that_a_question_is_about_is_shown_or_refused(tmp_path: Path) -> None:
    rows = [{"question": f"{n}. Where is it?", "answers": ["Ulm"], "context": "It is in Ulm."} for n in range(3)]
    with refused('"context"', where="data.jsonl:1", expected="env.prompt that shows {context}"):
        of_file(tmp_path, *rows)
    (tmp_path / "own.md").write_text("{context}\n{question}")
    world = of_file(tmp_path, *rows, prompt=str(tmp_path / "own.md"))
    assert "It is in Ulm." in world.env(world.tasks("train")[0]).first_messages()[-1].content


@pytest.mark.parametrize("context", ["algebra", '[["Ulm", ["It is in Ulm."]]]', "Use this: it is in Ulm."])
def test_a_field_or_what_a_searcher_finds_or_a_text_that_is_shown_is_no_hidden_context(
    context: str, tmp_path: Path
) -> None:
    messages = [{"role": "system", "content": "Use this: it is in Ulm."}, {"role": "user", "content": "Where is it?"}]
    rows = [
        {"question": "Where is it?", "answers": ["Ulm"], "messages": messages, "context": context, "n": n}
        for n in (1, 2)
    ]
    assert of_file(tmp_path, *rows).tasks("all")


def test_what_cannot_be_used_is_bad_input(tmp_path: Path) -> None:
    with refused("env.style", found="choice", expected="options in every record"):
        of_file(tmp_path, {"question": "q", "answers": ["B"]}, style="choice")
    with refused("env.style", found="choice", expected="without env.data"):
        QuestionsConfig(style="choice")
    with refused("env.demo_recheck_rate", found=0.5):
        QuestionsConfig(demo_error_rate=0.7, demo_recheck_rate=0.5)
    with refused(where="gone.jsonl"):
        QuestionsWorld(QuestionsConfig(data=str(tmp_path / "gone.jsonl")))


@needs_data
def test_gsm8k_gives_a_demonstration_for_every_task() -> None:
    world = QuestionsWorld(QuestionsConfig(data=str(DATA / "gsm8k_train_500.jsonl"), held_out_tasks=100))
    assert (len(world.tasks("train")), len(world.tasks("held_out"))) == (400, 100)
    for task in world.tasks("train"):
        text = world.demonstration(task, 0).messages[-1].content
        assert "<<" not in text and "####" not in text
        assert same_answer(last_boxed(text) or "", task.answers)
    assert "48/2 = 24 clips" in find_solution(next(t for t in world.tasks("all") if t.task_id.endswith(":1")))
