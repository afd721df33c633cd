"""SWiRL's page: a judge and a set of one's own are added as it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.cli import run
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from launch.driver.evaluation.sets import recipes_of
from tests.makers.made import jsonl
from tests.unit.test_page_code import blocks

OWN_JUDGE, OWN_SET = blocks(CONFIGS / "swirl" / "README.md", "yaml")


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return str(path)


def test_one_file_puts_another_judge_everywhere_but_where_the_paper_has_gemma(tmp_path: Path) -> None:
    config = compose(written(tmp_path, OWN_JUDGE), [])
    played = recipes_of(config.stages[-1].config)
    judges = [stage.config.reward.judge for stage in config.stages[1:]] + [recipe.reward.judge for recipe in played]
    assert {(judge.model, judge.endpoint) for judge in judges} == {
        ("NAME", "https://host/v1"),
        ("google/gemma-2-27b-it", None),
    }
    gemma = {getattr(recipe.reward, "kind", "") for recipe in played if recipe.reward.judge.endpoint is None}
    assert gemma == {"outcome_search"}


def test_a_set_in_hotpotqas_form_is_prepared_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    context = {"title": ["A", "B"], "sentences": [["One. ", "Two."], ["Three."]]}
    questions = [{"id": f"{n}", "question": f"Which {n}?", "answer": "a", "context": context} for n in range(3)]
    jsonl(tmp_path / "cofca.jsonl", questions)
    (tmp_path / "downloads").mkdir()
    options = ["--from", "downloads", "--file", "hotpotqa.dev=cofca.jsonl", "--partial", "--output", "data/cofca"]
    assert run(["data", "prepare", "swirl", *options]) == 0
    assert "3 tasks of hotpotqa.dev" in capsys.readouterr().out
    config = compose(written(tmp_path, OWN_SET), [])
    own = [recipe.env for recipe in recipes_of(config.stages[-1].config) if "cofca" in str(recipe.env.eval_data)]
    tasks = Path(str(own[0].eval_data)).read_text().splitlines()
    articles = Path(str(own[0].retriever.corpus)).read_text().splitlines()
    assert (len(own), len(tasks), len(articles)) == (1, 3, 2)
    assert json.loads(tasks[0])["answers"] == ["a"]
    assert (own[0].retriever.kind, own[0].retriever.encoder) == ("dense", "e5")
