"""envs.tasks.formats: every format that is read, where records lie, and what is refused."""

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.tasks.files import Located, read_records
from envs.tasks.formats import FOREIGN, FORMATS, read_source, recognise
from envs.tasks.hub import choose_files, is_hub_name
from rlsys.errors import BadInput
from rlsys.examples import read_answer
from rlsys.types import Task
from tests.makers.made import jsonl
from tests.paths import DATA, needs_data
from tests.refused import refused

BOXED = "So it is \\boxed{\\frac{1}{2}}."
CROSSWORD = {
    "source": ["Ada", "blank 1"],
    "relation": ["wrote", "inspired"],
    "target": ["blank 1", "blank 2"],
    "blanks": ["blank 1", "blank 2"],
    "options": {"blank 1": ["Notes", "Letters", "Poems"], "blank 2": ["Engines", "Trains", "Ships"]},
    "golds": {"blank 1": "A", "blank 2": "C"},
}
SCRIPT = {
    "scenario": "drink milk",
    "flatten_input_for_edge_prediction": "step0: pour; slowly; step1: get a glass; step2: get the milk",
    "flatten_output_for_edge_prediction": "step2 -> step0; step1 -> step0",
}


def one(record: dict[str, Any]) -> Task:
    located = Located(where="data.jsonl line 7", task_id="data.jsonl:7", fields=record)
    return recognise(located).read(located)


@pytest.mark.parametrize(
    ("record", "name", "question", "answers"),
    [
        ({"question": " q? ", "answers": ["a", 2]}, "rlsys", "q?", ("a", "2")),
        ({"question": "q?", "options": {"A": "x", "B": "y"}, "answers": ["B"]}, "rlsys", "q?", ("B",)),
        ({"id": "1", "question": "q?", "golden_answers": ["a", "b"], "metadata": {}}, "flashrag", "q?", ("a", "b")),
        (
            {"question": "q?", "reward_model": {"style": "rule", "ground_truth": ["a", "b"]}},
            "rule_rows",
            "q?",
            ("a", "b"),
        ),
        (
            {
                "prompt": [{"role": "user", "content": "Tags.\n\nExample Problem: e?\n\nActual Problem: q?"}],
                "reward_model": {"ground_truth": {"target": ["a"]}},
            },
            "rule_rows",
            "q?",
            ("a",),
        ),
        (
            {
                "prompt": [
                    {
                        "role": "user",
                        "content": "Solve the following math problem step by step. End with the answer.\n\n"
                        "Add 2\n\nto 3.\n\nRemember to put your answer last.",
                    }
                ],
                "reward_model": {"ground_truth": "5"},
            },
            "rule_rows",
            "Add 2\n\nto 3.",
            ("5",),
        ),
        ({"prompt": "Add 2 to 3.", "reward_model": {"ground_truth": 5}}, "rule_rows", "Add 2 to 3.", ("5",)),
        (
            {"question": "q?", "answer": "a", "type": "bridge", "supporting_facts": {}, "context": {}},
            "hotpotqa",
            "q?",
            ("a",),
        ),
        (
            {"question": "q?", "answer": "a", "supporting_facts": [], "context": [], "evidences": []},
            "2wiki",
            "q?",
            ("a",),
        ),
        (
            {"question": "q?", "answer": "a", "answer_aliases": ["b"], "paragraphs": [], "answerable": True},
            "musique",
            "q?",
            ("a", "b"),
        ),
        ({"question": "q?", "answer": "2+2=<<2+2=4>>4\n#### 1,004"}, "gsm8k", "q?", ("1004",)),
        ({"problem": "p", "solution": BOXED, "answer": "\\frac12"}, "math", "p", ("\\frac12",)),
        ({"problem": "p", "solution": BOXED, "level": "Level 1"}, "math", "p", ("\\frac{1}{2}",)),
        ({"id": 1, "problem": "p", "answer": 33}, "aime", "p", ("33",)),
        ({"ID": "x", "Problem": "p", "Solution": "s", "Answer": 33}, "math", "p", ("33",)),
        ({"Question": "q?", "Answer": True, "Answer_type": "bool"}, "theoremqa", "q?", ("True", "Yes")),
        (
            {"Question": "q?", "Answer": [1, 2.5], "Answer_type": "list"},
            "theoremqa",
            "q?",
            ("[1, 2.5]", "(1, 2.5)", "(a) 1, (b) 2.5"),
        ),
        ({"question": "q?", "options": ["x", "y"], "answer": "B", "answer_index": 1}, "mmlu_pro", "q?", ("B",)),
        ({"question": "q?", "answer": False, "term": "t", "facts": []}, "strategyqa", "q?", ("no",)),
        (
            {"question": "q?", "question_source": "s", "answer": {"value": "a", "aliases": ["a", "b"]}},
            "triviaqa",
            "q?",
            ("a", "a", "b"),
        ),
        ({"Question": "q?", "Answer": "a"}, "question_answer", "q?", ("a",)),
        ({"question": "q?", "answer": ["a", "b"]}, "question_answer", "q?", ("a", "b")),
        ({"question": "q?", "answer": 3.5}, "question_answer", "q?", ("3.5",)),
    ],
)
def test_every_format_is_recognised_by_its_fields(
    record: dict[str, Any], name: str, question: str, answers: tuple[str, ...]
) -> None:
    located = Located(where="here", task_id="data:1", fields=record)
    known = recognise(located)
    assert known is FORMATS[name]
    task = known.read(located)
    assert (task.task_id, task.question, task.answers) == ("data:1", question, answers)
    assert json.loads(json.dumps(task.record)) == task.record
    assert all(task.record[key] == value for key, value in record.items() if key != "options")


def test_multiple_choice_is_put_under_letters() -> None:
    task = one({"question": "q?", "options": ["x", "y", "z"], "answer": "C", "category": "law"})
    assert task.record["options"] == {"A": "x", "B": "y", "C": "z"} and task.record["answers"] == ["C"]
    assert task.record["category"] == "law"


def test_a_crossword_becomes_four_different_options_with_one_right() -> None:
    task = one(CROSSWORD)
    options = task.record["options"]
    assert list(options) == ["A", "B", "C", "D"] and len(set(options.values())) == 4
    assert task.answers == tuple(task.record["answers"]) and options[task.answers[0]] == "Notes, Ships"
    assert "blank 1, blank 2" in task.question
    assert task.question.endswith("Constraints: Ada wrote blank 1, blank 1 inspired blank 2.")
    assert one(CROSSWORD) == task
    letters = {one(CROSSWORD | {"source": [str(number), "blank 1"]}).answers for number in range(40)}
    assert len(letters) == 4  # shuffled


def test_a_script_becomes_steps_and_constraints() -> None:
    task = one(SCRIPT)
    assert task.record["goal"] == "drink milk"
    assert task.record["steps"] == {"step0": "pour; slowly", "step1": "get a glass", "step2": "get the milk"}
    assert task.record["constraints"] == [["step2", "step0"], ["step1", "step0"]]
    assert task.question == "Goal: drink milk\nSteps:\nstep0: pour; slowly\nstep1: get a glass\nstep2: get the milk"
    own = {
        "goal": "drink milk",
        "steps": ["pour; slowly", "get a glass", "get the milk"],
        "constraints": [["step2", "step0"]],
    }
    assert one(own).question == task.question and one(own).record["steps"] == task.record["steps"]


def test_explagraphs_has_no_header(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("Cats are good.\tThey purr.\tsupport\t(cats; capable of; purring)\n")
    (task,) = read_source(str(path))
    assert task.answers == ("support",) and task.task_id == "dev.tsv:1"
    assert task.question.startswith("Belief: Cats are good.\nArgument: They purr.\n")
    path.write_text("Belief\tArgument\tStance\tGraph\nCats are good.\tThey bite.\tCounter\t\n")  # somebody's export
    assert [(task.task_id, task.answers) for task in read_source(str(path))] == [("dev.tsv:2", ("counter",))]
    path.write_text("Cats are good.\tThey purr.\n")
    with refused(where="line 1", says="2 columns, expected 4: belief"):
        read_source(str(path))
    path.write_text("a\tb\tmaybe\tc\n")
    with refused('"stance"', where="line 1"):
        read_source(str(path))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"text": "x", "label": 1},
            r"line 7: in no known format\. Fields",
        ),
        ({}, "in no known format. Fields found: none"),
        ({"question": "q?", "answers": []}, '"answers" is missing, empty or no list'),
        ({"question": "q?", "answers": [None]}, '"answers" is null'),
        ({"question": "q?", "answers": [float("nan")]}, '"answers" is a number'),
        ({"question": "", "answers": ["a"]}, '"question" is empty'),
        ({"question": "q?", "answers": ["C"], "options": {"A": "x"}}, 'are not among "options"'),
        ({"question": "q?", "golden_answers": "a"}, '"golden_answers" is missing, empty'),
        ({"question": "q?", "reward_model": {"style": "rule"}}, '"reward_model" has no "ground_truth"'),
        ({"question": "q?", "choices": ["x", "y"], "answer": 2}, "a letter from A to B"),
        ({"question": "q?", "choices": ["x", "y"], "answer": True}, '"answer" is true'),
        ({"question": "q?", "choices": {"text": ["x"], "label": ["A"]}, "answerKey": "B"}, "\"answerKey\" is 'B'"),
        ({"prompt": [], "reward_model": {"ground_truth": "a"}}, '"prompt", expected a list such as'),
        ({"question": "q?", "answer": "a\n#### "}, r'"\#\#\#\# " and the result'),
        ({"problem": "p", "solution": "\\boxed{1"}, r'no "answer", and no \\boxed\{\} ends'),
        ({"question": "q?", "answer": "a", "paragraphs": [], "answerable": False}, "an unanswerable question"),
        ({"question": "q?", "answer": "D", "options": ["x", "y"]}, "a letter from A to B"),
        ({"question": "q?", "answer": "yes", "term": "t"}, "\"answer\" is 'yes'"),
        (
            CROSSWORD | {"golds": {"blank 1": "A", "blank 2": "Z"}},
            "\"golds\\.blank 2\" is 'Z'",
        ),
        (CROSSWORD | {"source": ["Ada"]}, "differ in length"),
        (CROSSWORD | {"blanks": ["blank 1"]}, "2 wrong combinations"),
        (
            SCRIPT | {"flatten_output_for_edge_prediction": "step9 -> step0"},
            "'step9 -> step0' does not order two",
        ),
        (SCRIPT | {"flatten_input_for_edge_prediction": "pour"}, "'pour' is no new step"),
        ({"goal": "g", "steps": ["a"], "constraints": []}, '"constraints" is missing, empty or'),
        ({"node_number": 5, "graph": "(0,1)", "question": "0 1", "answer": "yes"}, "which env.name=graph reads"),
        ({"id": "0", "contents": "x"}, "a passage of a corpus"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(record: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        one(record)
    assert str(caught.value).startswith("data.jsonl line 7: ") and "\n" not in str(caught.value)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["A", "step0", "x; y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    sorted({field for known in FORMATS.values() for field in known.fields} | {"Question", "prompt"})
)


READABLE: list[dict[str, Any]] = [
    {"question": "q?", "answers": ["a"]},
    {"question": "q?", "golden_answers": ["a"]},
    {"question": "q?", "answer": "a", "answer_aliases": [], "paragraphs": []},
    {"question": "q?", "answer": "2\n#### 4"},
    {"problem": "p", "solution": BOXED},
    {"question": "q?", "options": ["x", "y"], "answer": "B"},
    {"question": "q?", "answer": True, "term": "t"},
    {"question": "q?", "question_source": "s", "answer": {"value": "a", "aliases": ["b"]}},
    CROSSWORD,
    SCRIPT,
]
changes = st.dictionaries(names | st.text(max_size=5), values, max_size=6)


def test_any_object_is_a_task_or_bad_input() -> None:
    tasks: list[Task] = []

    @settings(max_examples=60)
    @given(st.just({}) | st.sampled_from(READABLE), changes, st.sampled_from(sorted(FORMATS)))
    def read(record: dict[str, Any], changed: dict[str, Any], name: str) -> None:
        located = Located(where="here", task_id="t", fields=record | changed)
        readers: list[Callable[[Located], Task]] = [FORMATS[name].read, lambda row: recognise(row).read(row)]
        for reader in readers:
            try:
                task = reader(located)
                assert task.question and all(task.answers)
                tasks.append(task)
            except BadInput as error:
                assert str(error).startswith("here")

    read()
    assert len(tasks) > 5


# Where records lie


def test_each_record_is_read_in_its_own_form_but_none_in_one_of_two_that_look_alike(tmp_path: Path) -> None:
    """As files of columns are that were made of two: each row has the fields of both, as nulls."""
    own, flash = {"question": "q2", "answers": ["b"]}, {"question": "q1", "golden_answers": ["a"]}
    path = jsonl(tmp_path / "data.jsonl", [flash | {"answers": None}, own | {"golden_answers": None, "options": None}])
    assert [task.answers for task in read_source(path)] == [("a",), ("b",)]
    assert [task.task_id for task in read_source(path, limit=1)] == ["data.jsonl:1"]
    worked, plain = {"question": "q", "answer": "2 + 1\n#### 3"}, {"question": "q", "answer": "4"}
    for records, says in (([worked, plain], '"#### " and the result'), ([plain, worked], "those before it have not")):
        with refused(says=says, where="line 2"):
            read_source(jsonl(tmp_path / "mixed.jsonl", records))
    with refused('"golden_answers"', where="line 2"):  # what a row lacks is said in the words of those before it
        read_source(jsonl(tmp_path / "broken.jsonl", [flash, {"question": "q3"}]))


@pytest.mark.parametrize(
    ("record", "answers"),
    [
        ({"question": "q", "answer": 40.0}, ("40",)),  # a column of whole numbers of which one is missing
        ({"question": "q", "answer": -7.5}, ("-7.5",)),
        ({"question": "q", "answer": 1e22}, ("1e+22",)),  # stands for many numbers
        ({"question": "q", "golden_answers": [3.0, "three"]}, ("3", "three")),
        ({"prompt": "q", "answer": 40.0}, ("40",)),
        ({"question": "q", "answer": 1e-05}, ("0.00001",)),
        ({"question": "q", "answer": '["4", "four"]'}, ("4", "four")),  # a list in a column of texts
        ({"prompt": "q", "answer": "['4', 'four']"}, ("4", "four")),
        ({"prompt": "q", "reward_model": {"ground_truth": '["4", "four"]'}}, ("4", "four")),
        ({"question": "q", "answer": "[1, 2]"}, ("[1, 2]",)),  # an interval, or a list that is the answer
        ({"question": "q", "answer": "['4"}, ("['4",)),
        ({"prompt": "q", "reward_model": {"ground_truth": ["4", None]}}, ("4",)),
        ({"question": "q", "choices": ["3", "4", "5"], "answer": 1.0}, ("B",)),
        ({"question": "q", "choices": ["3", "4", "4"], "answer": 2}, ("C", "B")),  # the same option
        ({"question": "q", "answer": "4", "answers": float("nan")}, ("4",)),  # as pandas writes what is missing
        ({"prompt": "q", "answer": float("nan")}, ()),
        ({"prompt": "q", "answer": float("inf")}, ()),
        ({"prompt": "q", "solution": "4"}, ("4",)),
        ({"prompt": "q", "solution": "J. K. Rowling"}, ("J. K. Rowling",)),
        ({"prompt": "q", "solution": "We add 2 to 2. That is 4."}, ()),  # nothing is equal to a way
        ({"question": "q", "choices": ["3", "4", "5"], "answer": 1}, ("B",)),
        ({"question": "q", "choices": ["3", "4", "5"], "answer": "C"}, ("C",)),
        ({"question": "q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}, ("B",)),
        ({"prompt": "q", "reward_model": {"ground_truth": {"stdin": ["2"]}}}, ()),
        ({"prompt": "q", "reward_model": {"ground_truth": True}}, ()),
        ({"prompt": "q", "reward_model": {"ground_truth": None}}, ()),
        ({"prompt": "q", "reward_model": {"ground_truth": [["a"], ["b"]]}}, ()),
        ({"prompt": "q", "reward_model": {"ground_truth": {"target": ["a", 2.0]}}}, ("a", "2")),
    ],
)
def test_an_answer_is_what_its_publisher_means(
    record: dict[str, Any], answers: tuple[str, ...], tmp_path: Path
) -> None:
    (task,) = read_source(jsonl(tmp_path / "data.jsonl", [record]))
    assert task.answers == answers


def test_a_narrow_float_of_a_column_is_written_as_it_was(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "data.parquet"
    narrow = pyarrow.array([0.1, None, 40.0], pyarrow.float32())
    pyarrow.parquet.write_table(pyarrow.table({"question": ["a", "b", "c"], "answer": narrow, "score": narrow}), path)
    first, _, last = read_records(str(path))
    assert (first.answer(), last.answer(), first.fields["score"]) == ("0.1", "40", 0.1)


def test_messages_that_end_with_the_user_are_a_prompt(tmp_path: Path) -> None:
    def conversation(*contents: str) -> list[dict[str, str]]:
        return [{"role": role, "content": content} for role, content in zip(["user", "assistant", "user"], contents)]  # noqa: B905

    rows = [
        {"messages": conversation("2?"), "answer": "a"},
        {"messages": conversation("2?", "two", "And 3?"), "answer": "b"},
    ]
    for task, row in zip(read_source(jsonl(tmp_path / "data.jsonl", rows)), rows, strict=True):
        assert task.question == row["messages"][-1]["content"]
        assert task.record["prompt"] == row["messages"] and "completion" not in task.record


def test_messages_in_a_column_of_texts_are_not_played_as_text(tmp_path: Path) -> None:
    packed = json.dumps([{"role": "user", "content": "2 + 3?"}])
    for row in (
        {"prompt": packed, "answer": "5"},
        {"messages": packed},
        {"prompt": packed, "reward_model": {"ground_truth": 5}},
    ):
        with refused(where="line 1"):
            read_source(jsonl(tmp_path / "data.jsonl", [row]))
    for row in ({"prompt": packed, "response": "5"}, {"messages": packed}, {"prompt": "2 + 3?", "response": packed}):
        with refused(where="line 7"):
            read_answer(row, "line 7")
    for plain in ('{"role": "content?', '[{"role": "a chief", "age": 3}]'):
        assert read_source(jsonl(tmp_path / "data.jsonl", [{"prompt": plain, "answer": "5"}]))
    with refused(where="line 7"):
        read_answer({"prompt": "[{'role': 'user', 'content': None}]", "response": "5"}, "line 7")


def test_columns_of_every_type_hold_what_people_write(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {
        "price": ([Decimal("40.00"), Decimal("0.50")], pyarrow.decimal128(6, 2), [40, 0.5]),
        "half": ([40.0, 0.1], pyarrow.float16(), [40.0, 0.1]),
        "listed": ([[0.1], None], pyarrow.list_(pyarrow.float32()), [[0.1], None]),
        "inside": ([{"x": 0.1}, {"x": None}], pyarrow.struct({"x": pyarrow.float32()}), [{"x": 0.1}, {"x": None}]),
        "mapped": ([[("A", b"x")], []], pyarrow.map_(pyarrow.string(), pyarrow.binary()), [{"A": "x"}, {}]),
        "bytes": ([b"caf\xc3\xa9", b"\x89PNG"], pyarrow.binary(), ["caf\u00e9", None]),
        "day": ([datetime(2020, 1, 2), datetime(2020, 1, 2, 3)], None, ["2020-01-02", "2020-01-02 03:00:00"]),
        "kind": (pyarrow.array(["a", "b"]).dictionary_encode(), None, ["a", "b"]),
        "missing": ([float("nan"), 1.0], pyarrow.float64(), [None, 1.0]),
    }
    path = str(tmp_path / "data.parquet")
    pyarrow.parquet.write_table(
        pyarrow.table({name: pyarrow.array(values, kind) for name, (values, kind, _) in columns.items()}), path
    )
    rows = [record.fields for record in read_records(path)]
    assert {name: [row[name] for row in rows] for name in columns} == {name: own for name, (*_, own) in columns.items()}


def test_columns_that_cannot_be_told_apart_or_read_are_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    texts, path = pyarrow.array(["q"]), str(tmp_path / "data.parquet")
    pyarrow.parquet.write_table(
        pyarrow.Table.from_arrays([texts, texts, texts], ["question", "answer", "answer"]), path
    )
    with refused(where="data.parquet", says="'answer'"):
        read_source(path)
    times = pyarrow.array([1], pyarrow.timestamp("ns"))
    pyarrow.parquet.write_table(pyarrow.table({"question": texts, "answer": times}), path)
    with suppress(BadInput):  # with pandas it can be read
        assert read_source(path)


def test_a_part_of_a_message_is_text_alone(tmp_path: Path) -> None:
    def read(**more: Any) -> list[Task]:
        message = {"role": "user", "content": [{"type": "text", "text": "q", **more}]}
        return read_source(jsonl(tmp_path / "data.jsonl", [{"prompt": [message], "answer": "5"}]))

    assert read(image=None, cache_control={"type": "ephemeral"})[0].question == "q"
    with refused(where="line 1", says="no text"):
        read(image_url={"url": "p.png"})


def test_a_format_may_be_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "data.jsonl", [{"question": "q", "answer": "no mark"}])
    assert read_source(path, format="hotpotqa")[0].answers == ("no mark",)
    with refused(expected='"#### " and the result'):
        read_source(path, format="gsm8k")
    with refused("format", found="hotpot_qa", says="did you mean 'hotpotqa'"):
        read_source(path, format="hotpot_qa")
    with refused("limit", found=0):
        read_source(path, limit=0)


def test_json_arrays_are_read_record_by_record(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text('\ufeff [{"question": "q", "answer": "a"}, {"question": "r", "answer": 1.5}, 3')
    assert [task.answers for task in read_source(str(path), limit=2)] == [("a",), ("1.5",)]
    with refused(where="train.json", says="record 3: int, expected a JSON"):
        read_source(str(path))
    path.write_text('[{"question": "q", "answer": "a"},')
    with refused(where="train.json", says="after record 1"):
        read_source(str(path))
    path.write_text('{"question": "q", "answer": "a"}\n')
    assert read_source(str(path))[0].task_id == "train.json:1"


@pytest.mark.parametrize("head", ["", '"version": "1.0", "split": "dev", ', '\n "n": -1.5,\n "all": true,\n '])
def test_records_under_data_of_an_object_are_read_and_a_row_with_such_a_column_is_a_row(
    tmp_path: Path, head: str
) -> None:
    path = tmp_path / "beerqa_dev_v1.0.json"
    rows = '[{"question": "q", "answers": ["a"]}, {"question": "r", "answers": ["b"]}]'
    path.write_text(f'{{{head}"data": {rows}}}')
    assert [task.answers for task in read_source(str(path))] == [("a",), ("b",)]
    path.write_text(f'{{{head}"data": {rows[:-3]}')
    with refused(where="beerqa_dev_v1.0.json", says="after record 1"):
        read_source(str(path))
    for count in (1, 2):
        path.write_text('{"id": 3, "data": [{"k": 1}], "question": "q", "answers": ["a"]}\n' * count)
        assert [task.question for task in read_source(str(path))] == ["q"] * count
    path.write_text('{"data": ["x"], "question": "q", "answers": ["a"]}\n')
    assert [task.question for task in read_source(str(path))] == ["q"]


def test_packed_files_are_read_as_they_are_unpacked(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer": "a"}, {"question": "r", "answer": "b"}]
    plain = {
        "lines.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "array.json": json.dumps(rows),
        "dev.tsv": "\ufeffCats are good.\tThey purr.\tsupport\t\nCats are good.\tThey bite.\tcounter\t\n",
    }
    for name, text in plain.items():
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        tasks = read_source(str(tmp_path / f"{name}.gz"))
        assert [task.answers for task in tasks] == [task.answers for task in read_source(str(tmp_path / name))]
        assert tasks[1].task_id == f"{name}.gz:2"
        assert "\ufeff" not in tasks[0].question
        packed = (tmp_path / f"{name}.gz").read_bytes()
        for damaged in (packed[:-9], b"no gzip at all"):
            (tmp_path / f"{name}.gz").write_bytes(damaged)
            with pytest.raises(BadInput, match=rf"{name}\.gz: not a whole gzip file"):
                read_source(str(tmp_path / f"{name}.gz"))


def parquet(path: Path, rows: list[dict[str, Any]]) -> str:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


def test_parquet_rows_become_plain_json(tmp_path: Path) -> None:
    row = {"question": "q?", "reward_model": {"ground_truth": ["a"]}, "thumbnail": {"bytes": b"\x00", "path": "p"}}
    (task,) = read_source(parquet(tmp_path / "rows.parquet", [row]))
    assert (task.task_id, task.answers, task.record["thumbnail"]) == (
        "rows.parquet:1",
        ("a",),
        {"bytes": None, "path": "p"},
    )
    json.dumps(task.record)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no PAR1")
    with refused(where="broken.parquet", says="cannot be read as parquet"):
        read_source(str(broken))
    with refused(where="empty.parquet", says="no records"):
        read_source(parquet(tmp_path / "empty.parquet", []))


def test_a_folder_gives_the_shards_of_one_split(tmp_path: Path) -> None:
    for shard in range(2):
        rows = [{"question": f"q{shard}", "answer": "a"}]
        parquet(tmp_path / "set" / "data" / f"train-0000{shard}-of-00002.parquet", rows)
    parquet(tmp_path / "set" / "data" / "test-00000-of-00001.parquet", [{"question": "t", "answer": "a"}])
    folder = str(tmp_path / "set")
    assert [task.question for task in read_source(folder)] == ["q0", "q1"]
    assert [task.question for task in read_source(folder, split="test")] == ["t"]
    with refused(says="0 tables for config=None and"):
        read_source(folder, split="dev")
    for left_behind in (".cache/train.jsonl", "data/.ipynb_checkpoints/train-checkpoint.jsonl", "data/._train.jsonl"):
        (tmp_path / "set" / left_behind).parent.mkdir(exist_ok=True)
        (tmp_path / "set" / left_behind).write_text("old")
    assert len(read_source(folder)) == 2
    (tmp_path / "set" / "data" / "train-00001-of-00002.parquet").unlink()
    with refused(says="1 of 2 shards"):
        read_source(folder)


def test_what_is_neither_a_file_nor_on_the_hub_is_refused(tmp_path: Path) -> None:
    with refused(where="train.jsonl", expected="a path, or owner/name"):
        read_source("gone/train.jsonl")
    with refused("split", found="test"):
        read_source(jsonl(tmp_path / "data.jsonl", [{"question": "q", "answer": "a"}]), split="test")
    with pytest.raises(BadInput, match="no records"):
        list(read_records(jsonl(tmp_path / "data.jsonl", [])))


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("hotpotqa/hotpot_qa", True),
        ("hotpotqa/hotpot_qa:distractor", True),
        ("RUC-NLPIR/FlashRAG_datasets:musique", True),
        ("gsm8k", False),
        ("/abs/olute", False),
        ("a/b/c", False),
        ("../up", False),
    ],
)
def test_hub_names(name: str, yes: bool) -> None:
    assert is_hub_name(name) == yes


FILES = [
    "distractor/train-00000-of-00002.parquet",
    "distractor/train-00001-of-00002.parquet",
    "distractor/validation-00000-of-00001.parquet",
    "fullwiki/train-00000-of-00001.parquet",
]


@pytest.mark.parametrize(
    ("names", "config", "split", "chosen"),
    [
        (FILES, "distractor", None, FILES[:2]),
        (FILES, "distractor", "validation", FILES[2:3]),
        (FILES, "fullwiki", "train", FILES[3:]),
        (FILES, None, "validation", FILES[2:3]),
        (FILES, None, "train", None),  # of which configuration?
        (FILES, "distractor", "test", None),
        (["data/dapo-math-17k.parquet"], None, None, ["data/dapo-math-17k.parquet"]),
        (["musique/train.jsonl", "nq/train.jsonl"], "musique", None, ["musique/train.jsonl"]),
        (["main/train/0000.parquet", "main/train/0001.parquet"], "main", "train", None),
        (["m_ans_train.jsonl", "m_full_train.jsonl"], "m_ans", "train", ["m_ans_train.jsonl"]),
        (["m_ans_train.jsonl", "m_full_train.jsonl"], None, "train", None),
        ([], None, None, None),
    ],
)
def test_one_table_is_chosen_or_none(
    names: list[str], config: str | None, split: str | None, chosen: list[str] | None
) -> None:
    if names[:1] == ["main/train/0000.parquet"]:
        chosen = names  # two shards of one table
    if chosen is None:
        with refused(says="tables for config="):
            choose_files(names, "a/b", config=config, split=split)
    else:
        assert choose_files(names, "a/b", config=config, split=split) == chosen


def test_the_hub_is_listed_and_only_the_wanted_files_are_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local = parquet(tmp_path / "cache.parquet", [{"question": "q", "answer": "a"}])
    fetched: list[tuple[str, str]] = []

    def listed(_: Any, name: str, **more: Any) -> list[str]:
        assert (name, more["repo_type"]) == ("hotpotqa/hotpot_qa", "dataset")
        return [*FILES, "README.md"] if more.get("revision") else ["README.md", "hotpot_qa.py"]

    def fetch(name: str, file: str, *, repo_type: str, revision: str) -> str:
        fetched.append((revision, file))
        return local

    monkeypatch.setattr("envs.tasks.hub.check_hub_answers", lambda: None)
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", listed)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetch)
    (task,) = read_source("hotpotqa/hotpot_qa:distractor", split="validation")
    assert task.question == "q"
    assert fetched == [("refs/convert/parquet", "distractor/validation-00000-of-00001.parquet")]


def test_without_network_an_earlier_download_serves_or_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def offline(*_: Any, **__: Any) -> list[str]:
        raise ConnectionError("no route to the hub\nand more lines")

    monkeypatch.setattr("envs.tasks.hub.check_hub_answers", offline)
    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(BadInput) as caught:
        read_source("openai/gsm8k:main", split="test")
    assert str(caught.value) == (
        "openai/gsm8k:main: no such file here, and not to be had from the hub (ConnectionError: no route to the hub); "
        "download it and give its path"
    )
    parquet(tmp_path / "main" / "test-00000-of-00001.parquet", [{"question": "q", "answer": "#### 4"}])
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    assert read_source("openai/gsm8k:main", split="test")[0].answers == ("4",)


# Real slices, where they are at hand


@needs_data
@pytest.mark.parametrize(
    ("name", "count", "answer"),
    [
        ("gsm8k_train_500.jsonl", 500, "72"),
        ("hotpotqa_distractor_50.jsonl", 50, "Gesellschaft mit beschr\u00e4nkter Haftung"),
        ("explagraphs_dev_200.tsv", 200, "support"),
    ],
)
def test_slices_of_public_data_are_read_whole(name: str, count: int, answer: str) -> None:
    tasks = read_source(str(DATA / name))
    assert len(tasks) == count and tasks[0].answers == (answer,)
    assert len({task.task_id for task in tasks}) == count


@needs_data
@pytest.mark.parametrize(
    "name", ["blocksworld_plan_100.jsonl", "nlgift_shortest_path_train.jsonl", "wiki_passages_6119.jsonl"]
)
def test_slices_for_other_readers_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="line 1: .* reads, expected questions with answers"):
        read_source(str(DATA / name))


@pytest.mark.parametrize("fields", list(FOREIGN))
def test_records_of_other_readers_are_refused_by_their_fields_alone(fields: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected questions with answers"):
        read_source(str(jsonl(tmp_path / "records.jsonl", [dict.fromkeys(fields, "x")])))
