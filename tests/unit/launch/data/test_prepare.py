"""`rlsys data`: through the command, on files as the publishers write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs import new_world
from envs.papers.graph_rl.blocks.world import BlocksworldConfig
from envs.papers.graph_rl.world import GraphConfig
from envs.services.retriever.corpus import FileCorpus
from envs.tools.search import SearchConfig
from envs.worlds.calculator import CalculatorConfig
from envs.worlds.questions import QuestionsConfig
from envs.worlds.search_config import SearchQAConfig
from launch.cli import run
from launch.data import build
from rlsys.examples import read_answer
from tests.makers.made import jsonl, records
from tests.paths import DATA, needs_data

Rlsys = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rlsys(capsys: pytest.CaptureFixture[str]) -> Rlsys:
    def called(*argv: object) -> tuple[int, str, str]:
        code = run([str(word) for word in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return called


def flash(question: str, *answers: str, **metadata: Any) -> dict[str, Any]:
    return {"id": question, "question": question, "golden_answers": list(answers or ["a"]), "metadata": metadata}


def write(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    jsonl(path, rows)


def titled(*titles: str) -> dict[str, Any]:
    return {"title": list(titles), "content": [[f"About {title}.", " More."] for title in titles]}


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """What ReSearch's data come from, in small: FlashRAG's copies, HotpotQA's and MuSiQue's own files."""
    root = tmp_path / "downloads"
    flash_rag = root / "FlashRAG_datasets"
    train = [flash(f"Who made thing {number}?") for number in range(6)] + [flash("who MADE thing 3"), flash("Is it?")]
    write(flash_rag / "musique" / "train.jsonl", train)
    write(flash_rag / "musique" / "dev.jsonl", [flash(f"Dev {number}?") for number in range(3)])
    write(flash_rag / "2wikimultihopqa" / "dev.jsonl", [flash("Is it?", "yes", context=titled("Ada", "Bo"))])
    write(flash_rag / "bamboogle" / "test.jsonl", [flash("Where?", "here", "there")])
    hotpot = [{"_id": "1", "question": "When?", "answer": "1815", "type": "bridge", "level": "hard"}]
    hotpot[0] |= {"supporting_facts": [], "context": [["Ada", ["About Ada.", " More."]], ["Cy", ["About Cy."]]]}  # type: ignore[dict-item]
    (root / "hotpot_dev_distractor_v1.json").write_text(json.dumps(hotpot))
    for split in ("train", "dev"):
        paragraphs = [{"idx": 0, "title": "Dee", "paragraph_text": "About Dee.", "is_supporting": True}]
        more = {"answer_aliases": [], "answerable": True, "paragraphs": paragraphs}
        write(root / f"musique_ans_v1.0_{split}.jsonl", [{"id": "2", "question": "q?", "answer": "a", **more}])
    return root


def test_a_recipe_is_made_of_public_files(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    folder = tmp_path / "made"
    code, out, err = rlsys("data", "prepare", "research", "--from", downloads, "--output", folder, "--partial")
    assert (code, err) == (0, "")
    assert "warning: train.jsonl: musique.train has 8 records, 19,938 expected" in out
    assert "train.jsonl: 6 tasks of musique.train; left out 1 repeated, 1 in evaluation" in out
    train = records(folder / "train.jsonl")
    assert [row["question"] for row in train] == [f"Who made thing {number}?" for number in range(6)]
    assert set(train[0]) == {"id", "question", "answers"}
    left = {row["question"]: (row["why"], row["of"]) for row in records(folder / "train.left_out.jsonl")}
    expected = {"who MADE thing 3": ("repeated", "this file"), "Is it?": ("in_evaluation", "eval/2wiki.jsonl")}
    assert left == expected
    corpus = records(folder / "corpus.jsonl")
    assert corpus[1] == {"id": "1", "contents": '"Ada"\nAbout Ada. More.'}
    assert [row["contents"].partition("\n")[0] for row in corpus] == ['"Dee"', '"Ada"', '"Cy"', '"Bo"']
    assert FileCorpus(str(folder / "corpus.jsonl"))[3].title == "Bo"
    assert records(folder / "eval" / "bamboogle.jsonl")[0]["answers"] == ["here", "there"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {note["name"]: note["licence"] for note in manifest["sources"]}["hotpotqa.dev"] == "CC BY-SA 4.0"
    note = next(note for note in manifest["files"] if note["file"] == "train.jsonl")
    assert (note["rows"], note["read"]) == (6, {"musique.train": 8})
    assert note["left_out"] == {"repeated": 1, "in evaluation": 1}
    searched = SearchConfig(corpus=str(folder / "corpus.jsonl"))
    data = {"data": str(folder / "train.jsonl"), "eval_data": str(folder / "eval" / "hotpotqa.jsonl")}
    world = new_world(SearchQAConfig(retriever=searched, **data))
    assert len(world.tasks("train")) == 6 and world.tasks("held_out")[0].answers == ("1815",)


def nexts(out: str) -> list[str]:
    return [line.partition("next: ")[2] for line in out.splitlines() if "next: " in line]


def test_what_comes_next_is_what_the_recipe_reads(
    downloads: Path, tmp_path: Path, rlsys: Rlsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ask = ("--from", downloads, "--partial")
    dense = "rlsys index --corpus {}/corpus.jsonl --index indexes/wiki18 --retriever dense --encoder e5"
    index = dense.format("data/wiki18")
    _, out, _ = rlsys("data", "prepare", "research", *ask)
    assert nexts(out) == ["rlsys data prepare wiki18", index, "rlsys train research --dry-run"]
    write(downloads / "wiki-18.jsonl", [{"id": "0", "contents": '"Ada"\nAbout Ada.'}])
    _, out, _ = rlsys("data", "prepare", "wiki18", *ask)
    assert index in nexts(out) and all("data/wiki18/corpus.jsonl" in command for command in nexts(out))
    _, out, _ = rlsys("data", "prepare", "wiki18", *ask, "--output", "mine")
    assert dense.format("mine") in nexts(out)
    (tmp_path / "indexes" / "wiki18").mkdir(parents=True)
    _, out, _ = rlsys("data", "prepare", "research", *ask)
    assert nexts(out) == ["rlsys train research --dry-run"]


def test_counts_that_differ_stop_before_anything_is_written(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    code, _, err = rlsys("data", "prepare", "bamboogle", "--from", downloads, "--output", tmp_path / "made")
    assert (code, err.count("\n")) == (2, 1)
    assert "test.jsonl: bamboogle.test has 1 records, 125 expected: another version, or a slice of it? --partial" in err
    assert list((tmp_path / "made").iterdir()) == []


def test_files_that_are_missing_are_named_with_what_they_are_called(
    downloads: Path, tmp_path: Path, rlsys: Rlsys
) -> None:
    (downloads / "FlashRAG_datasets" / "bamboogle" / "test.jsonl").unlink()
    ask = ("data", "prepare", "research", "--from", downloads, "--output", tmp_path / "made")
    code, _, err = rlsys(*ask)
    assert (code, err.count("\n")) == (2, 1) and "bamboogle.test: no bamboogle/test.jsonl" in err
    code, out, _ = rlsys(*ask, "--partial")
    assert code == 0 and "warning: eval/bamboogle.jsonl: left out" in out
    code, _, err = rlsys("data", "prepare", "nq", "--from", downloads, "--partial", "--output", tmp_path / "nq")
    assert code == 2 and "nothing of nq is there" in err


def test_without_the_hub_one_line_says_what_to_do(
    tmp_path: Path, rlsys: Rlsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("name or service not known")

    monkeypatch.setattr("envs.tasks.hub.check_hub_answers", unreachable)
    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    monkeypatch.chdir(tmp_path)
    code, out, err = rlsys("data", "prepare", "research")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--from hub: hotpotqa/hotpot_qa:distractor is out of reach (ConnectionError: name or" in err
    assert "give its folder with --from DIR" in err and not (tmp_path / "data").exists()


def test_what_no_hub_has_is_known_before_anything_is_downloaded(
    rlsys: Rlsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.data.manifest.download", lambda *_: pytest.fail("downloaded"))
    monkeypatch.chdir(tmp_path)
    code, _, err = rlsys("data", "prepare", "graph_rl")
    assert (code, err.count("\n")) == (2, 1)
    assert (
        "nlgift_connectivity.test, " in err and err.count(": on no hub: https://github.com/MatthewYZhang/NLGift") == 1
    )


def test_files_of_the_hub_are_read_where_they_were_downloaded(
    downloads: Path, tmp_path: Path, rlsys: Rlsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, str | None]] = []

    def download(source: str, split: str | None) -> list[str]:
        requests.append((source, split))
        return [str(downloads / "FlashRAG_datasets" / "bamboogle" / "test.jsonl")]

    monkeypatch.setattr("launch.data.manifest.download", download)
    monkeypatch.chdir(tmp_path)
    assert rlsys("data", "prepare", "bamboogle", "--partial")[0] == 0
    assert requests == [("RUC-NLPIR/FlashRAG_datasets:bamboogle", "test")]
    assert len(records(tmp_path / "data" / "bamboogle" / "test.jsonl")) == 1


def test_a_second_time_makes_nothing_and_a_change_makes_what_it_is_about(
    downloads: Path, tmp_path: Path, rlsys: Rlsys
) -> None:
    folder = tmp_path / "made"
    ask = ("data", "prepare", "research", "--from", downloads, "--output", folder, "--partial")
    rlsys(*ask)
    before = {path: path.read_bytes() for path in folder.rglob("*.json*")}
    _, out, _ = rlsys(*ask)
    assert out.count(": kept, ") == 7
    assert {path: path.read_bytes() for path in folder.rglob("*.json*")} == before
    (folder / "eval" / "musique.jsonl").write_text("{}\n")  # somebody's hand
    (folder / "dev.jsonl").unlink()
    _, out, _ = rlsys(*ask)
    assert out.count(": kept, ") == 5
    assert {path: path.read_bytes() for path in folder.rglob("*.json*")} == before
    write(downloads / "FlashRAG_datasets" / "bamboogle" / "test.jsonl", [flash("Where?"), flash("Who made thing 1?")])
    _, out, _ = rlsys(*ask)
    assert out.count(": kept, ") == 5  # train.jsonl is kept apart from the new question
    assert len(records(folder / "train.jsonl")) == 5
    manifest = json.loads((folder / "manifest.json").read_text()) | {"version": 1}  # rows had fewer fields then
    (folder / "manifest.json").write_text(json.dumps(manifest))
    _, out, _ = rlsys(*ask)
    assert out.count(": kept, ") == 0


def test_a_killed_preparation_goes_on_with_the_file_it_was_at(
    downloads: Path, tmp_path: Path, rlsys: Rlsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made"
    ask = ("data", "prepare", "research", "--from", downloads, "--output", folder, "--partial")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(build, "contents", killed)
        assert rlsys(*ask)[0] == 130
    assert sorted(path.name for path in folder.iterdir()) == ["dev.jsonl", "eval", "manifest.json"]
    code, out, _ = rlsys(*ask)
    assert (code, out.count(": kept, ")) == (0, 5)
    assert (folder / "corpus.jsonl").is_file() and (folder / "train.jsonl").is_file()


def test_parts_are_drawn_by_the_seed_and_in_shares(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    levels = [{"problem": f"p{n}", "solution": "\\boxed{1}", "level": f"Level {1 + n % 4}"} for n in range(40)]
    write(downloads / "math" / "train.jsonl", levels)
    ask = ("data", "prepare", "math", "--from", downloads, "--partial")
    drawn = {}
    for name, more in (("a", ["--tasks", "8"]), ("b", ["--tasks", "20"]), ("c", ["--tasks", "8", "--seed", "5"])):
        assert rlsys(*ask, "--output", tmp_path / name, *more)[0] == 0
        drawn[name] = {row["question"] for row in records(tmp_path / name / "train.jsonl")}
    assert len(drawn["a"]) == 8 and drawn["a"] < drawn["b"] and drawn["a"] != drawn["c"]
    rlsys(*ask, "--output", tmp_path / "d", "--tasks", "8", "--stratify", "level")
    train_levels = sorted(row["level"] for row in records(tmp_path / "d" / "train.jsonl"))
    assert train_levels == sorted(2 * [f"Level {number}" for number in (1, 2, 3, 4)])
    code, _, err = rlsys(*ask, "--output", tmp_path / "e", "--tasks", "8", "--stratify", "subject")
    assert code == 2 and "--stratify subject: a row without it, which has" in err


def test_levels_of_long_cot_and_the_problems_of_math_500(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    for split in ("train", "test"):
        problems = [f"{split} {number}" for number in range(5)]
        levels = [
            {"problem": text, "solution": "\\boxed{1}", "level": f"Level {n + 1}"} for n, text in enumerate(problems)
        ]
        write(downloads / "math" / f"{split}.jsonl", levels)
    write(downloads / "MATH-500" / "test.jsonl", [{"problem": "test 4", "solution": "s", "answer": "1"}])
    folder = tmp_path / "made"
    assert rlsys("data", "prepare", "long_cot", "--from", downloads, "--output", folder, "--partial")[0] == 0
    questions = [row["question"] for row in records(folder / "train_level3to5.jsonl")]
    assert questions == ["train 2", "train 3", "train 4", "test 2", "test 3"]
    assert len(records(folder / "train.jsonl")) == 5


def test_near_duplicates_are_left_out_on_request(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    words = "in which year did the first keeper of the northern lighthouse leave his post for good"
    musique = downloads / "FlashRAG_datasets" / "musique"
    write(musique / "train.jsonl", [flash(words + "?"), flash("Is it?")])
    write(musique / "dev.jsonl", [flash(words + " reason")])
    ask = ("data", "prepare", "musique", "--from", downloads, "--partial", "--output", tmp_path / "made")
    rlsys(*ask)
    assert len(records(tmp_path / "made" / "train.jsonl")) == 2
    _, out, _ = rlsys(*ask, "--near", "0.8")
    assert "left out 1 near" in out and len(records(tmp_path / "made" / "train.jsonl")) == 1
    code, _, err = rlsys(*ask, "--near", "1.5")
    assert code == 2 and "--near 1.5: expected above 0 and at most 1" in err


GRAPHS = [
    {"node_number": 4, "graph": "(0,1)", "question": "0 1", "answer": "yes"},
    {"node_number": 4, "graph": "(0,2)", "question": "0 1", "answer": "no"},
    {"node_number": 4, "graph": "(0,2)", "question": "0 2", "answer": "yes"},
]


def test_graph_rl_has_graphs_apart_and_real_sets_with_their_rests(tmp_path: Path, rlsys: Rlsys) -> None:
    root, folder = tmp_path / "downloads", tmp_path / "made"
    connectivity = root / "1_semantic_pattern" / "connectivity"
    write(connectivity / "train_data.jsonl", GRAPHS)
    write(connectivity / "test_data.jsonl", [GRAPHS[0] | {"question": "1 3", "answer": "no"}])
    steps = {"facts": ["f"], "decomposition": ["What is odd?", "Is #1?"]}
    facts = [{"term": "t", "question": f"Is {n} odd?", "answer": n % 2 == 1, **steps} for n in range(1_004)]
    (root / "strategyqa_train.json").write_text(json.dumps(facts))
    start = "the red block is clear, the hand is empty, the red block is on top of the blue block"
    block = {"initial": f"{start} and the blue block is on the table", "goal": "the blue block is clear"}
    write(root / "blocksworld_plan.jsonl", [block])
    code, out, _ = rlsys("data", "prepare", "graph_rl", "--from", root, "--output", folder, "--partial")
    assert code == 0 and "warning: real/blocksworld_plan.jsonl: 1 tasks, 500 expected" in out
    assert [row["target"] for row in records(folder / "train.jsonl")] == [1, 2]  # not the graph of the test
    data = {"data": str(folder / "train.jsonl"), "eval_data": str(folder / "test.jsonl")}
    assert len(new_world(GraphConfig(**data)).tasks("train")) == 2
    held_out = {row["question"] for row in records(folder / "real" / "strategyqa.jsonl")}
    rest = {row["question"] for row in records(folder / "real" / "rest" / "strategyqa.jsonl")}
    assert (len(held_out), len(rest), held_out & rest) == (1_000, 4, set())
    examples = records(folder / "real" / "sft_300.jsonl")
    assert {row["question"] for row in examples} == rest
    example = read_answer(examples[0], "line 1")
    assert example.answers[0].messages[0].content in ("yes", "no")
    assert example.prompt[0].content.startswith("Please think step by step and then answer")
    single = records(folder / "real" / "single" / "strategyqa.jsonl")
    assert len(single) == 1_000 and {row["question"] for row in single} == {"What is odd?"}
    evaluated = QuestionsConfig(data=str(folder / "real" / "strategyqa.jsonl"), style="free")
    assert {row["parent"] for row in single} == {task.task_id for task in new_world(evaluated).tasks("all")}
    plans = BlocksworldConfig(data=str(folder / "real" / "blocksworld_plan.jsonl"), held_out_tasks=1)
    assert len(new_world(plans).tasks("all")) == 1


def test_no_fact_of_wikidyk_is_trained_on_in_one_way_and_evaluated_in_the_other(tmp_path: Path, rlsys: Rlsys) -> None:
    root, folder = tmp_path / "downloads", tmp_path / "made"
    facts = {n: {"reliability": {"prompt": f"What is {n}?", "answer": "a"}} for n in range(1_100)}
    for n in range(3, 1_100):  # three facts are asked about in one way only
        facts[n]["factual"] = {"prompt": f"{n} is a. True or false?", "answer": "true"}
    write(root / "wikidyk.jsonl", [{"fact": f"{n} is a.", "eval": json.dumps(ways)} for n, ways in facts.items()])
    code, out, _ = rlsys("data", "prepare", "graph_rl", "--from", root, "--output", folder, "--partial")
    assert code == 0
    held_out = {way: {row["fact"] for row in records(folder / f"real/wikidyk_{way}.jsonl")} for way in "rf"}
    rest = {way: records(folder / f"real/rest/wikidyk_{way}.jsonl") for way in "rf"}
    assert [len(held_out[way]) for way in "rf"] == [1_000, 1_000]
    evaluated, fact_of = (
        held_out["r"] | held_out["f"],
        {row["question"]: row["fact"] for way in "rf" for row in rest[way]},
    )
    assert len(evaluated) <= 1_003 and all(row["fact"] not in evaluated for way in "rf" for row in rest[way])
    for size in (300, 1_200, 6_000):
        examples = [fact_of[row["question"]] for row in records(folder / f"real/sft_{size}.jsonl")]
        assert examples and not evaluated & set(examples)


def test_a_file_of_ones_own_takes_a_splits_place(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    own = jsonl(tmp_path / "mine.jsonl", [flash("Mine?")])
    ask = ("data", "prepare", "bamboogle", "--from", downloads, "--output", tmp_path / "made", "--partial")
    assert rlsys(*ask, "--file", f"bamboogle.test={own}")[0] == 0
    assert [row["question"] for row in records(tmp_path / "made" / "test.jsonl")] == ["Mine?"]


def test_an_evaluation_file_takes_as_many_tasks_as_are_asked_for(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    own = jsonl(tmp_path / "mine.jsonl", [flash(f"Mine {number}?") for number in range(5)])
    ask = ("data", "prepare", "bamboogle", "--from", downloads, "--output", tmp_path / "made", "--partial")
    assert rlsys(*ask, "--file", f"bamboogle.test={own}", "--eval-tasks", "2")[0] == 0
    assert len(records(tmp_path / "made" / "test.jsonl")) == 2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["data", "prepare", "reserch"], "did you mean 'research'"),
        (["data", "prepare", "nq", "--from", "/no/where"], "--from /no/where: expected a folder, or hub"),
        (["data", "prepare", "nq", "--file", "nq.train"], "--file nq.train: expected SET.SPLIT=PATH"),
        (["data", "prepare", "nq", "--file", "nq.trian=x"], "did you mean 'nq.train'"),
        (["data", "prepare", "nq", "--file", "nq.train=/no/where"], "/no/where: no such file"),
        (["data", "prepare", "popqa", "--file", "nq.train=x"], "nq.train=x: not read here, which reads popqa.test"),
        (["data", "prepare", "nq", "--tasks", "0"], "--tasks 0: expected at least 1"),
        (["data", "prepare", "nq", "--stratify", "level"], "--stratify level: expected --tasks or --eval-tasks"),
        (["data"], "required: ACTION"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], said: str, tmp_path: Path, rlsys: Rlsys) -> None:
    more = ["--output", str(tmp_path / "made")] if "prepare" in argv else []
    code, _, err = rlsys(*argv, *more)
    assert (code, err.count("\n")) == (2, 1) and said in err


def test_what_cannot_be_read_is_told_and_too_much_of_it_stops(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    place = downloads / "FlashRAG_datasets" / "bamboogle" / "test.jsonl"
    ask = ("data", "prepare", "bamboogle", "--from", downloads, "--partial", "--output", tmp_path / "made")
    broken = {"question": "", "golden_answers": ["a"]}
    write(place, [broken, *(flash(f"q{number}") for number in range(199))])
    code, out, _ = rlsys(*ask)
    assert code == 0 and "left out 1 unreadable" in out and 'test.jsonl line 1: "question" is empty' in out
    write(place, [broken, *(flash(f"q{number}") for number in range(50))])
    code, _, err = rlsys(*ask)
    assert code == 2 and "bamboogle.test: 1 of 51 records cannot be read, the first: " in err
    other = ("data", "prepare", "popqa", "--from", downloads, "--output", tmp_path / "made")
    write(downloads / "popqa" / "test.jsonl", [flash("q")])
    code, _, err = rlsys(*other)
    assert code == 2 and "has the files of bamboogle: choose another folder" in err
    (tmp_path / "made" / "manifest.json").write_text("{")
    code, _, err = rlsys(*ask)
    assert code == 2 and "not a manifest of `rlsys data prepare`" in err


def test_beerqa_is_questions_with_the_articles_that_they_were_asked_of(tmp_path: Path, rlsys: Rlsys) -> None:
    asked = [("q", "squad", [["X", "X is in Y."]]), ("r", "hotpotqa", [["X", "X is in Y."], ["Y", "Y is old."]])]
    rows = [{"id": q, "src": src, "question": f"{q}?", "answers": ["a", "b"], "context": c} for q, src, c in asked]
    published = {"version": "1.0", "split": "dev", "data": rows}
    (tmp_path / "beerqa_dev_v1.0.json").write_text(json.dumps(published))
    made = tmp_path / "made"
    code, out, _ = rlsys("data", "prepare", "beerqa", "--from", tmp_path, "--partial", "--output", made)
    assert code == 0 and "beerqa.dev has 2 records, 14,121 expected" in out
    rows = list(records(made / "dev.jsonl"))
    assert [(row["question"], row["answers"], row["src"]) for row in rows] == [
        ("q?", ["a", "b"], "squad"),
        ("r?", ["a", "b"], "hotpotqa"),
    ]
    assert [row["contents"] for row in records(made / "articles" / "dev.jsonl")] == [
        '"X"\nX is in Y.',
        '"Y"\nY is old.',
    ]


def test_several_files_for_one_split_are_refused_and_shards_are_one(
    downloads: Path, tmp_path: Path, rlsys: Rlsys
) -> None:
    ask = ("data", "prepare", "gsm8k", "--from", downloads, "--partial", "--output", tmp_path / "made")
    for name in ("gsm8k_train_a.jsonl", "gsm8k_train_b.jsonl"):
        write(downloads / name, [{"question": name, "answer": "#### 1"}])
    code, _, err = rlsys(*ask)
    assert code == 2 and "several files for gsm8k.train: " in err and "--file gsm8k.train=PATH chooses" in err
    for shard in range(2):
        write(downloads / "gsm8k" / f"train-0000{shard}.jsonl", [{"question": f"{shard}", "answer": "#### 1"}])
    (downloads / "gsm8k_train_a.jsonl").unlink()
    assert rlsys(*ask)[0] == 0
    path = str(tmp_path / "made" / "train.jsonl")
    assert len(new_world(CalculatorConfig(data=path, held_out_tasks=1)).tasks("all")) == 1


def test_the_list_says_what_there_is_and_what_is_prepared(downloads: Path, tmp_path: Path, rlsys: Rlsys) -> None:
    root = tmp_path / "data"
    rlsys("data", "prepare", "research", "--from", downloads, "--output", root / "research", "--partial")
    code, out, _ = rlsys("data", "list", "--output", root, "--from", downloads)
    assert code == 0
    assert (
        "musique: MuSiQue-Ans; CC BY 4.0; https://github.com/StonyBrookNLP/musique\n  for research, icrl, swirl" in out
    )
    assert f"    {downloads / 'FlashRAG_datasets' / 'bamboogle' / 'test.jsonl'}\n" in out
    assert f"research: 7 of 7 files in {root / 'research'}" in out
    assert f"icrl: not prepared in {root / 'icrl'}" in out


@needs_data
def test_slices_of_public_data_are_made_into_tasks(tmp_path: Path, rlsys: Rlsys) -> None:
    hotpot = DATA / "hotpotqa_distractor_50.jsonl"
    options = ["--file", f"hotpotqa.dev={hotpot}", "--from", DATA, "--partial"]
    code, out, _ = rlsys("data", "prepare", "swirl", *options, "--output", tmp_path / "swirl")
    assert code == 0 and "articles/hotpotqa_dev.jsonl: 500 passages" in out
    solved = CalculatorConfig(data=str(tmp_path / "swirl" / "gsm8k_train.jsonl"))
    world = new_world(solved)
    assert len(world.tasks("all")) == 500 and world.demonstration(world.tasks("train")[0], 0).messages
    code, out, _ = rlsys("data", "prepare", "graph_rl", *options[2:], "--output", tmp_path / "graph_rl")
    assert code == 0 and "train.jsonl: 1,000 tasks of nlgift_connectivity.train, nlgift_shortest_path.train" in out
    plans = BlocksworldConfig(data=str(tmp_path / "graph_rl" / "real" / "blocksworld_plan.jsonl"))
    assert len(new_world(plans).tasks("all")) == 100
