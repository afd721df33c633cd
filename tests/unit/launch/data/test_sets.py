"""launch.data: the sets and the recipes: what each record becomes, and that the tables are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.protocols.styles import STYLES
from envs.tasks.files import Located
from launch.data.derived import in_order, single_steps
from launch.data.recipes import RECIPES, recipe_of
from launch.data.records import Role, by_question, paragraphs, questions
from launch.data.sets import SETS, split_of
from tests.makers.made import jsonl
from tests.refused import refused

# As the papers and the publishers state them.
COUNTS = {
    **{"musique.train": 19_938, "musique.dev": 2_417, "hotpotqa.train": 90_447, "hotpotqa.dev": 7_405},
    **{"2wiki.train": 15_000, "2wiki.dev": 12_576, "bamboogle.test": 125},
    **{"nq.train": 79_168, "nq.dev": 8_757, "nq.test": 3_610, "gsm8k.train": 7_473, "math.train": 7_500},
    **{"aime24.test": 30, "theoremqa.test": 800, "mmlu_pro.test": 12_032, "math500.test": 500},
    **{"nlgift_connectivity.train": 821, "nlgift_connectivity.test": 822},
    **{"nlgift_shortest_path.train": 780, "nlgift_shortest_path.test": 780},
    **{"wikidyk_r.test": 12_290, "wikidyk_f.test": 12_290, "proscript.test": 2_077},
}
CROSSWORD = {
    "id": "1",
    "source": ["Ada", "blank 1"],
    "relation": ["wrote", "inspired"],
    "target": ["blank 1", "blank 2"],
    "blanks": ["blank 1", "blank 2"],
    "options": {"blank 1": ["Notes", "Letters", "Poems"], "blank 2": ["Engines", "Trains", "Ships"]},
    "golds": {"blank 1": "A", "blank 2": "C"},
    "K": {"0": []},
}
SCRIPT = {
    "scenario": "drink milk",
    "flatten_input_for_edge_prediction": "step0: pour; step1: get a glass; step2: get the milk",
    "flatten_output_for_edge_prediction": "step2 -> step0; step1 -> step0",
}
BLOCKS = {
    "initial": "the red block is clear, the hand is empty, the red block is on top of the blue block and the blue "
    "block is on the table",
    "goal": "the blue block is clear",
}
FACT = {
    "fact": "Milk is white.",
    "eval": '{"reliability": {"prompt": "What colour has milk?", "answer": "white"}, '
    '"factual": {"prompt": "Milk is white. True or false?", "answer": true}}',
}


def record(fields: dict[str, Any]) -> Located:
    return Located(where="data.jsonl line 7", task_id="data.jsonl:7", fields=fields)


def rows(name: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
    return list(SETS[name].rows(record(fields)))


@pytest.mark.parametrize(("source", "count"), COUNTS.items())
def test_the_counts_are_the_papers(source: str, count: int) -> None:
    assert split_of(source)[1].count == count


def test_every_set_says_where_it_is_and_under_which_licence() -> None:
    for name, dataset in SETS.items():
        assert (name, dataset.page[:8]) == (dataset.name, "https://") and dataset.licence and dataset.splits
        assert all(files.names for files in dataset.splits.values())
        assert dataset.style in ("", *STYLES)


def test_every_recipe_names_splits_that_exist_and_evaluates_before_it_trains() -> None:
    for recipe in [*RECIPES.values(), *map(recipe_of, SETS)]:
        files = [part.file for part in recipe.parts]
        assert len(set(files)) == len(files)
        roles = [part.role for part in recipe.parts]
        assert Role.EVAL not in roles[roles.index(Role.TRAIN) :] if Role.TRAIN in roles else True
        for place, part in enumerate(recipe.parts):
            for source in part.sources:
                assert source in files[:place] if part.role.of_files else split_of(source)
    assert all("train.jsonl" in {part.file for part in recipe.parts} for recipe in RECIPES.values())


def test_a_name_that_is_not_known_gets_the_nearest() -> None:
    with refused(where="reserch", says="did you mean 'research'"):
        recipe_of("reserch")
    with refused(where="musique.tain", says="did you mean 'musique.train'"):
        split_of("musique.tain")


@pytest.mark.parametrize(
    ("name", "fields", "row"),
    [
        (
            "musique",
            {"id": "2hop__1", "question": "q?", "golden_answers": ["a"], "metadata": {"question_decomposition": [1]}},
            {"id": "2hop__1", "question": "q?", "answers": ["a"], "question_decomposition": [1]},
        ),
        (
            "hotpotqa",
            {"_id": "5a", "question": "q?", "answer": "a", "type": "bridge", "level": "hard"}
            | {"supporting_facts": [], "context": []},
            {"id": "5a", "question": "q?", "answers": ["a"], "type": "bridge", "level": "hard"},
        ),
        (
            "gsm8k",
            {"question": "q?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
            {"id": "data.jsonl:7", "question": "q?", "answers": ["4"], "answer": "2+2=<<2+2=4>>4\n#### 4"},
        ),
        (
            "math",
            {"problem": "p", "solution": "\\boxed{1}", "level": "Level 3", "type": "Algebra"},
            {"id": "data.jsonl:7", "question": "p", "answers": ["1"], "solution": "\\boxed{1}"}
            | {"level": "Level 3", "type": "Algebra"},
        ),
        (
            "mmlu_pro",
            {"question_id": 70, "question": "q?", "options": ["x", "y"], "answer": "B", "category": "law"},
            {"id": "70", "question": "q?", "answers": ["B"], "options": {"A": "x", "B": "y"}, "category": "law"},
        ),
        (
            "nlgift_connectivity",
            {"node_number": 3, "graph": "(0,2)", "question": "0 1", "answer": "no"},
            {"id": "data.jsonl:7", "kind": "connectivity", "num_nodes": 3, "edges": [[0, 2]], "source": 0, "target": 1}
            | {"answer": "no"},
        ),
        (
            "strategyqa",
            {"qid": "9", "term": "t", "question": "q?", "answer": True, "facts": ["f"], "evidence": []},
            {"id": "9", "question": "q?", "answers": ["yes"], "term": "t", "facts": ["f"]},
        ),
        (
            "wikidyk_r",
            FACT,
            {"id": "data.jsonl:7", "question": "What colour has milk?", "answers": ["white"], "fact": "Milk is white."},
        ),
        (
            "wikidyk_f",
            FACT,
            {"id": "data.jsonl:7", "question": "Milk is white. True or false?", "answers": ["true"]}
            | {"fact": "Milk is white.", "statement": "Milk is white."},
        ),
        (
            "proscript",
            SCRIPT,
            {"id": "data.jsonl:7", "goal": "drink milk", "constraints": [["step2", "step0"], ["step1", "step0"]]}
            | {"steps": {"step0": "pour", "step1": "get a glass", "step2": "get the milk"}},
        ),
    ],
)
def test_a_record_becomes_a_row(name: str, fields: dict[str, Any], row: dict[str, Any]) -> None:
    assert rows(name, fields) == [row]


def test_single_steps_of_a_puzzle_and_of_a_script(tmp_path: Path) -> None:
    for name, fields in (("knowledge_crosswords", CROSSWORD), ("proscript", SCRIPT)):
        path = jsonl(tmp_path / f"{name}.jsonl", rows(name, fields))
        single = list(single_steps(name, Path(path)))
        assert {row["parent"] for row in single} == {f"{name}.jsonl:1"}
        if name == "proscript":
            steps = [(row["earlier"], row["later"], row["answers"]) for row in single]
            assert steps == [("get the milk", "pour", ["yes"]), ("get a glass", "pour", ["yes"])]
        else:
            assert len(single) == len(CROSSWORD["source"]) and all("blank" not in row["question"] for row in single)
            assert all(row["answers"] == ["true"] for row in single)


def test_a_crossword_keeps_its_puzzle_and_knows_its_other_difficulties() -> None:
    (easy,) = rows("knowledge_crosswords", CROSSWORD)
    other = {"blank 1": ["Notes", "Songs", "Plays"], "blank 2": ["Cars", "Carts", "Ships"]}
    (hard,) = rows("knowledge_crosswords", CROSSWORD | {"options": other})
    known = SETS["knowledge_crosswords"]
    assert easy["options"][easy["answers"][0]] == "Notes, Ships" and "K" not in easy
    assert known.same(easy) == known.same(hard)
    assert known.twin is not None and known.twin(easy) != known.twin(hard)


def test_a_graph_is_the_same_whatever_is_asked_and_a_twin_only_with_its_nodes() -> None:
    known = SETS["nlgift_connectivity"]
    raw = {"node_number": 3, "graph": "(0,2)", "question": "0 1", "answer": "no"}
    first, other = rows("nlgift_connectivity", raw)[0], rows("nlgift_connectivity", raw | {"question": "2 1"})[0]
    assert known.same(first) == known.same(other)
    assert known.twin is not None and known.twin(first) != known.twin(other)
    with refused(where="line 7", says="the answer is 'yes', but the graph"):
        rows("nlgift_connectivity", raw | {"answer": "yes"})
    with refused(says="a problem of connectivity"):
        rows("nlgift_shortest_path", raw)


def test_blocksworld_is_one_domain_of_planbench() -> None:
    assert rows("blocksworld_plan", BLOCKS | {"domain": "logistics"}) == []
    (row,) = rows("blocksworld_plan", BLOCKS | {"domain": "blocksworld"})
    assert row["goal"] == BLOCKS["goal"] and row["stated"]


@pytest.mark.parametrize("name", ["wikidyk_r", "wikidyk_f"])
def test_what_wikidyk_does_not_ask_is_no_row_and_what_is_broken_is_told(name: str) -> None:
    assert rows(name, {"fact": "f", "eval": {"locality": {"prompt": "p", "answer": "a"}}}) == []
    for broken in ("{", None, ["x"]):
        with refused('"eval"', where="line 7"):
            rows(name, {"fact": "f", "eval": broken})
    with refused(where="line 7"):
        rows(name, {"fact": "f", "eval": {way: {"prompt": "p", "answer": ""} for way in ("reliability", "factual")}})


@pytest.mark.parametrize(
    "fields",
    [
        {"context": {"title": ["A", "B"], "sentences": [["One.", " Two."], [" \n"]]}},
        {"metadata": {"context": {"title": ["A"], "content": [["One.", " Two."]]}}},
        {"context": [["A", ["One.", " Two."]], ["B", []]]},
        {"context": '[["A", ["One.", " Two."]]]'},
        {"paragraphs": [{"idx": 0, "title": "A", "paragraph_text": "One.  Two."}, {"title": None}]},
    ],
)
def test_paragraphs_are_found_in_every_form(fields: dict[str, Any]) -> None:
    assert list(paragraphs(record(fields))) == [("A", "One. Two.")]


def test_records_without_paragraphs_say_so() -> None:
    with refused(where="line 7", says='no "context" and no "paragraphs"'):
        list(paragraphs(record({"question": "q", "metadata": {}})))


def test_questions_are_compared_by_their_words_and_signs() -> None:
    assert by_question({"question": " Who  IS she? "}) == by_question({"question": "who is she."})
    assert by_question({"question": "2 + 3"}) != by_question({"question": "2 - 3"})


def test_steps_are_put_in_an_order_that_meets_the_constraints() -> None:
    steps = {f"step{number}": "s" for number in range(11)}
    ordered = in_order({"steps": steps, "constraints": [["step10", "step2"], ["step2", "step0"]]}, "t")
    assert ordered == ["step1", *(f"step{number}" for number in (3, 4, 5, 6, 7, 8, 9, 10, 2, 0))]
    with refused(says="t: the constraints of its steps go"):
        in_order({"steps": steps, "constraints": [["step1", "step2"], ["step2", "step1"]]}, "t")


def test_a_row_whose_earlier_turns_would_be_lost_is_not_taken() -> None:
    talk = [{"role": "system", "content": "Halve."}, {"role": "user", "content": "One?"}]
    rows = [
        Located(where="line 1", task_id="t:1", fields={"prompt": part, "answer": "0.5"}) for part in (talk, talk[1:])
    ]
    with refused(where="line 1", says="messages before the question"):
        list(questions()(rows[0]))
    assert [row["question"] for row in questions()(rows[1])] == ["One?"]
