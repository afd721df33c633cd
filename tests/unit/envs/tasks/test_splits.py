"""envs.tasks.splits: held out is decided by content, and nothing held out is trained on."""

from collections.abc import Sequence
from dataclasses import replace

from envs.tasks.config import TaskConfig
from envs.tasks.splits import HELD_OUT_ONE_IN, Split, is_held_out, split_tasks
from rlsys.types import Task
from tests.refused import refused


def tasks(name: str, questions: Sequence[str]) -> list[Task]:
    return [Task(task_id=f"{name}:{n}", question=question) for n, question in enumerate(questions)]


FILES = {
    "data": tasks("data", [f"q{n}" for n in range(30)] * 2),  # every question twice
    "eval": tasks("eval", ["q1", "q2", "other"]),
    "three": tasks("three", ["a", "b", "c"]),
    "spaced": tasks("spaced", ["Q  3?", "q 4"]),
    "spelled": tasks("spelled", ["Q1?", " q2", "q 3", "q\n4 ."]),
    "accents": tasks("accents", ["caf\u00e9", "q"]),
    "composed": tasks("composed", ["cafe\u0301"]),
}


def made(data: str | None, eval_data: str | None, held_out_tasks: int = 9, seed: int = 0) -> Split:
    return split_tasks(
        TaskConfig(name="made", data=data, eval_data=eval_data, held_out_tasks=held_out_tasks, seed=seed),
        read=lambda name, split: FILES[name],
        make=lambda count, held_out: tasks("made", ["h1", "h2"] if held_out else ["t1", "q1"]),
    )


def questions(split: Split, name: str) -> set[str]:
    return {task.question for task in split.tasks(name)}


def test_of_data_some_questions_are_held_out_by_seed() -> None:
    split = made("data", None)
    assert len(split.held_out) == len(questions(split, "held_out")) == 9  # different ones, however often each is there
    assert not questions(split, "train") & questions(split, "held_out")
    assert made("data", None).tasks("all") == split.tasks("all")
    assert questions(made("data", None, seed=1), "held_out") != questions(split, "held_out")


def test_a_smaller_part_of_the_data_is_part_of_a_larger_one() -> None:
    def some(count: int | None, seed: int = 0) -> Split:
        config = TaskConfig(name="made", data="data", data_tasks=count, held_out_tasks=9, seed=seed)
        return split_tasks(config, read=lambda name, split: FILES[name], make=lambda count, held_out: [])

    assert [len(some(count).train) for count in (1, 5, None)] == [1, 5, 42]
    assert {task.task_id for task in some(5).train} < {task.task_id for task in some(9).train}
    assert some(5).held_out == some(None).held_out
    assert some(5, seed=1).train != some(5).train
    with refused("env.data_tasks", found=43):
        some(43)


def test_a_small_source_is_halved() -> None:
    assert [len(made("three", None).tasks(name)) for name in ("train", "held_out", "all")] == [2, 1, 3]


def test_of_one_file_all_tasks_can_be_played_twins_too() -> None:
    double = [*FILES["data"], *(replace(task, task_id=f"{task.task_id}x") for task in FILES["data"])]
    config = TaskConfig(name="made", data="double", held_out_tasks=9)
    split = split_tasks(config, read=lambda name, split: double, make=lambda count, held_out: [])
    assert sorted(task.task_id for task in split.tasks("all")) == sorted(task.task_id for task in double)
    assert not questions(split, "train") & questions(split, "held_out")


def test_by_default_a_small_file_keeps_most_of_its_tasks_and_a_given_number_is_held_out() -> None:
    default = TaskConfig(name="made")
    assert [default.held_out_of(tasks) for tasks in (3, 20, 100, 300, 2560, 90_000)] == [1, 10, 16, 30, 256, 256]
    assert default.held_out_count == 256
    explicit = TaskConfig(name="made", held_out_tasks=256)
    assert [explicit.held_out_of(tasks) for tasks in (3, 300, 600, 90_000)] == [1, 150, 256, 256]


def test_data_of_its_own_is_held_out_whole_and_not_trained_on() -> None:
    split = made("data", "eval", held_out_tasks=1)
    assert questions(split, "held_out") == {"q1", "q2", "other"}
    assert len(split.train) == 56
    assert questions(made(None, "eval"), "train") == {"t1"}


def test_a_question_written_otherwise_is_the_same_question() -> None:
    assert questions(made("data", "spelled"), "train") == {f"q{n}" for n in range(30)} - {"q1", "q2"}
    assert questions(made("spelled", "spaced"), "train") == {"Q1?", " q2"}
    assert questions(made("accents", "composed"), "train") == {"q"}


def choices(*rows: Sequence[str]) -> list[Task]:
    return [
        Task(task_id=f"c:{n}", question="Which is true?", answers=("A",), record={"options": dict(zip("AB", row))})  # noqa: B905
        for n, row in enumerate(rows)
    ]


def test_a_multiple_choice_is_its_question_with_its_options() -> None:
    read = choices(("w", "x"), ("y", "z"), ("X ", "w"), ("u", "v"))
    config = TaskConfig(name="made", data="d", eval_data="e")
    split = split_tasks(
        config,
        read=lambda name, split: read if name == "d" else choices(("w", "x"), ("w", "x")),
        make=lambda count, held_out: [],
        asked=None,
    )
    assert [task.task_id for task in split.train] == ["c:1", "c:3"]  # the options of the third are the first's
    assert len(split.held_out) == 1


def test_a_choice_without_its_options_in_the_prompt_is_not_asked() -> None:
    def split_of(asked: str) -> Split:
        config, read = TaskConfig(name="made", data="d"), choices(("w", "x"), ("y", "z"))
        return split_tasks(
            config, read=lambda name, split: read, make=lambda count, held_out: [], asked=lambda _: asked
        )

    assert split_of("Which is true? w, x, y or z").train
    with refused(where="c:0", expected="env.style=choice"):
        split_of("Which is true?")


def test_a_file_of_copies_is_held_out_once() -> None:
    copied = [
        Task(task_id=f"e:{n}", question=f"q{n % 3}", answers=(str(n % 3),), record={"index": n}) for n in range(9)
    ]
    games = [Task(task_id=f"g:{n}", question="the first field", record={"seed": n}) for n in range(5)]
    for held_out, count in ((copied, 3), (games, 5)):
        config = TaskConfig(name="made", data="three", eval_data="e")
        split = split_tasks(
            config,
            read=lambda name, split, held_out=held_out: FILES.get(name, held_out),  # type: ignore[misc]
            make=lambda count, held_out: [],
        )
        assert len(split.held_out) == count


def test_without_data_both_sides_are_generated() -> None:
    split = made(None, None)
    assert (questions(split, "train"), questions(split, "held_out")) == ({"t1", "q1"}, {"h1", "h2"})


def test_a_generated_question_is_held_out_by_its_text() -> None:
    share = sum(is_held_out(f"question {n}") for n in range(8000)) / 8000
    assert abs(share - 1 / HELD_OUT_ONE_IN) < 0.012  # three standard deviations


def test_nothing_left_to_train_on_and_unknown_names_are_bad_input() -> None:
    with refused(says="eval: every question is also held"):
        made("eval", "eval")
    with refused("split", found="test"):
        made("data", None).tasks("test")
