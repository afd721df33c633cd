"""A column of a row is read, is a reward function's, or is refused by its name."""

from typing import Any

import pytest

from envs.tasks.formats import read_source
from rlsys.examples import read_answer, read_pair
from rlsys.row_keys import LISTS, SHOWN, TAUGHT
from tests.makers.made import jsonl
from tests.refused import refused

ASKED = {"role": "user", "content": "2 + 3?"}
SAID = {"role": "assistant", "content": "5"}
PAIR = {"chosen": [ASKED, SAID], "rejected": [ASKED, SAID | {"content": "6"}]}


@pytest.mark.parametrize("key", [*SHOWN, "Images"])
def test_what_a_model_would_be_shown_is_refused_by_every_reader(key: str, tmp_path: Any) -> None:
    for value in ([{"x": 1}], '[{"x": 1}]') if key in LISTS else (["x"], "x", {"x": 1}):
        with refused(f'"{key}"', where="line 7"):
            read_answer({"prompt": "2 + 3?", "response": "5", key: value}, "line 7")
        with refused(f'"{key}"', where="line 7"):
            read_pair({"prompt": "2 + 3?", "chosen": "5", "rejected": "6", key: value}, "line 7")
        for row in ({"prompt": [ASKED], "answer": "5"}, {"question": "2 + 3?", "answer": "5"}):
            with refused(f'"{key}"', where="line 1"):
                read_source(jsonl(tmp_path / "rows.jsonl", [row | {key: value}]))


def test_what_would_be_taught_is_refused_where_an_answer_is_learned(tmp_path: Any) -> None:
    for key in TAUGHT.keys() - {"label"}:
        with refused(f'"{key}"', where="line 7"):
            read_answer({"prompt": "2 + 3?", "response": "5", key: 0.5}, "line 7")
    assert read_source(jsonl(tmp_path / "rows.jsonl", [{"question": "How heavy?", "answer": "5", "weight": 0.5}]))


def test_an_answer_that_is_marked_as_a_bad_one_is_not_learned() -> None:
    row = {"prompt": "2 + 3?", "response": "6"}
    with refused('"label"', where="line 7"):
        read_answer(row | {"label": False}, "line 7")
    assert [read_answer(row | {"label": label}, "line 7") for label in (True, "sums", 0)]


@pytest.mark.parametrize(
    "column",
    [
        {"tools": "[]"}, {"tools": ["calculator"]}, {"functions": 2}, {"history": "ancient"}, {"images": [None]},
        {"chat_template_kwargs": {"enable_thinking": None}}, {"system": "  "}, {"image": False}, {"thinking": False},
        {"weight": "1"},
    ],
)  # fmt: skip
def test_a_value_that_asks_for_nothing_is_passed_over(column: dict[str, Any]) -> None:
    row = {"prompt": "2 + 3?", "response": "5"}
    assert read_answer(row | column, "line 7") == read_answer(row, "line 7")


def test_an_answer_may_begin_as_its_prompt_where_roles_part_them() -> None:
    story = "Once upon a time there was a number that"
    messages = [{"role": "assistant", "content": f"{story} was five."}]
    assert read_answer({"prompt": [{"role": "user", "content": story}], "response": messages}, "line 7")
    with refused(where="line 7", says="begins with the whole prompt"):
        read_answer({"prompt": story, "response": f"{story} was five."}, "line 7")


def test_what_says_nothing_is_no_column(tmp_path: Any) -> None:
    nothing = dict.fromkeys([*SHOWN, *TAUGHT]) | {"images": [], "system": "", "weight": 1}
    whole = {"prompt": [ASKED], "messages": [SAID], "response": None, "samples": None, "truncated": None}
    plain = read_answer({"prompt": [ASKED], "messages": [SAID]}, "line 7")
    assert read_answer(whole | nothing, "line 7") == plain
    assert read_answer(whole | {"prompt": None, "messages": [ASKED, SAID]}, "line 7") == plain
    assert read_source(jsonl(tmp_path / "rows.jsonl", [{"question": "2 + 3?", "answer": "5"} | nothing]))


def test_pairs_of_whole_conversations_need_no_prompt() -> None:
    assert read_pair(PAIR, "line 7") == read_pair(PAIR | {"prompt": [ASKED]}, "line 7")
    assert read_pair(PAIR | {"prompt": None}, "line 7") == read_pair(PAIR, "line 7")
    with refused(where="line 7", says="no message before"):
        read_pair({"chosen": "5", "rejected": "6"}, "line 7")
    with refused(where="line 7", says="another prompt"):
        read_pair(PAIR | {"rejected": [{"role": "user", "content": "3 + 3?"}, SAID]}, "line 7")


@pytest.mark.parametrize(
    "said",
    [
        [{"role": "assistant", "content": ""}, ASKED, SAID],
        [{"role": "assistant", "content": " \n"}],
        [SAID, SAID],
        [SAID, ASKED, SAID, SAID],
    ],
)
def test_an_answer_says_something_in_every_turn(said: list[dict[str, str]]) -> None:
    with refused(where="line 7"):
        read_answer({"prompt": [ASKED], "messages": said}, "line 7")


def test_a_text_that_repeats_its_prompt_is_refused() -> None:
    prompt = "Human: What is two plus two, in words?\n\nAssistant:"
    with refused(where="line 7", says="the whole prompt"):
        read_answer({"prompt": prompt, "response": f"{prompt} Four."}, "line 7")
    with refused(where="line 7", says="the whole prompt"):
        read_pair({"prompt": prompt, "chosen": f"{prompt} Four.", "rejected": f"{prompt} Five."}, "line 7")
    assert read_answer({"prompt": "Hello", "response": "Hello! What shall we do?"}, "line 7")


def test_what_a_limit_cut_off_has_no_end() -> None:
    row = {"prompt": "2 + 3?", "response": "It is"}
    cut = [read_answer(row | more, "line 7").answers[0].truncated for more in ({}, {"finish_reason": "length"})]
    assert cut == [False, True]
    with refused('"truncated"', found="1", where="line 7"):
        read_answer(row | {"truncated": 1}, "line 7")


def test_a_prompt_written_otherwise_is_on_the_same_side_of_a_split() -> None:
    names = [set(read_answer({"prompt": text, "response": "5"}, "l").names) for text in ("Add 2.", " add\n2", "Add 3.")]
    assert names[0] & names[1]
    assert not names[0] & names[2]
    named = read_answer({"prompt": "Add 2.", "response": "5", "task_id": "t"}, "l").names
    assert min(named) == named[0]  # it alone decides the side, as it did before the others came
