"""A study keeps what it has measured, and says which of its predictions came true."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from launch.config.compose import compose, to_yaml
from rlsys.errors import BadInput
from tests.paths import ROOT


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("study")


def asked(tmp_path: Path, *seeds: int, draw: bool = False) -> argparse.Namespace:
    return argparse.Namespace(seeds=list(seeds), runs=tmp_path / "runs", results=tmp_path / "results.json", draw=draw)


def test_an_interrupted_study_keeps_its_seeds_and_continues(study: ModuleType, tmp_path: Path) -> None:
    results, played, broken = tmp_path / "results.json", [], {2}

    def play_seed(seed: int, runs: Path) -> dict[str, Any]:
        if seed in broken:
            broken.clear()
            raise OSError("the disk is full")
        played.append(seed)
        for arm, seconds in (("a", 90), ("b-c", 36)):
            folder = runs / f"{seed}-{arm}"
            folder.mkdir(parents=True)
            (folder / "summary.json").write_text(json.dumps({"status": "done", "wall_s": seconds}))
        return {"a": seed / 10}

    with pytest.raises(OSError):
        study.collect(asked(tmp_path, 1, 2), play_seed)
    study.collect(asked(tmp_path, 2), play_seed)
    by_seed = study.collect(asked(tmp_path, 9, draw=True), play_seed)
    assert by_seed == {1: {"a": 0.1}, 2: {"a": 0.2}} and played == [1, 2]
    written = json.loads(results.read_text())
    assert written["minutes"] == {"1": 2.1, "2": 2.1}
    assert written["minutes_by_run"] == dict.fromkeys(("1", "2"), {"a": 1.5, "b-c": 0.6})
    told: list[tuple[Any, ...]] = []
    study.tell_minutes(SimpleNamespace(head=lambda *_: None, row=lambda *cells: told.append(cells)), results)
    assert told == [("1", 2.1, "a 1.5, b-c 0.6"), ("2", 2.1, "a 1.5, b-c 0.6")]
    results.write_text(json.dumps({key: value for key, value in written.items() if key != "minutes_by_run"}))
    study.collect(asked(tmp_path, 3), play_seed)  # into a file of an earlier version
    assert json.loads(results.read_text())["minutes_by_run"] == {"3": {"a": 1.5, "b-c": 0.6}}


def test_a_study_keeps_the_seeds_of_one_that_ends_while_it_plays(study: ModuleType, tmp_path: Path) -> None:
    def play_seed(seed: int, _: Path) -> dict[str, Any]:
        if seed == 1:
            study.collect(asked(tmp_path, 2), play_seed)
        return {"a": seed}

    assert study.collect(asked(tmp_path, 1), play_seed) == {1: {"a": 1}, 2: {"a": 2}}


def test_seeds_that_are_not_planned_do_not_move_published_numbers(study: ModuleType, tmp_path: Path) -> None:
    published, planned = tmp_path / "results.json", (5, 6, 7)
    assert study.plan_of(asked(tmp_path, 5, 7), published, planned) == planned
    with pytest.raises(BadInput, match="--seeds 0 1: .* of 5 6 7, .*--results FILE"):
        study.plan_of(asked(tmp_path, 0, 1, 5), published, planned)
    assert study.plan_of(asked(tmp_path, 0, draw=True), published, planned) == planned  # plays none
    results = tmp_path / "own.json"
    options = argparse.Namespace(seeds=[8702], runs=tmp_path / "runs", results=results, draw=False)
    asked_for = study.plan_of(options, published, planned)
    study.collect(options, lambda seed, _: {"a": 1}, [study.Prediction("most", lambda arms: True)], asked_for)
    (outcome,) = json.loads(results.read_text())["predictions"]
    assert (outcome["of"], outcome["needed"], outcome["shown"]) == ([8702], 1, True)


@pytest.mark.parametrize(("share", "num_needed", "is_shown"), [(0.8, 4, True), (1.0, 5, False)])
def test_a_prediction_is_shown_by_its_share_of_the_seeds(
    study: ModuleType, tmp_path: Path, share: float, num_needed: int, is_shown: bool
) -> None:
    results = tmp_path / "results.json"
    prediction = study.Prediction("a is below 4", lambda arms: arms["a"] < 4, share=share)
    study.collect(asked(tmp_path, *range(5)), lambda seed, _: {"a": seed}, [prediction])
    written = json.loads(results.read_text())["predictions"][0]
    assert (written["held"], written["needed"], written["shown"]) == ([0, 1, 2, 3], num_needed, is_shown)


def test_paired_differences_have_students_interval(study: ModuleType) -> None:
    by_seed = {0: {"a": 0.1, "b": 0.0}, 1: {"a": 0.2, "b": 0.0}, 2: {"a": 0.3, "b": 0.0}}
    # 0.2 -+ 4.303 * 0.1 / sqrt(3)
    assert study.paired(by_seed, lambda arms: arms["a"] - arms["b"]) == "+0.20 [-0.05, +0.45]"


def test_a_prediction_cannot_be_changed_after_runs(study: ModuleType, tmp_path: Path) -> None:
    first, second = (study.Prediction(text, lambda arms: True) for text in ("a is above 1", "a is above 0"))
    study.collect(asked(tmp_path, 1), lambda seed, _: {"a": seed}, [first])
    with pytest.raises(BadInput, match="a is above 1"):
        study.collect(asked(tmp_path, 2), lambda seed, _: {"a": seed}, [second])
    with pytest.raises(BadInput, match="added after runs: a is above 0"):
        study.collect(asked(tmp_path, 2), lambda seed, _: {"a": seed}, [first, second])
    asks_more = study.Prediction(first.text, lambda arms: arms["a"] > 1)
    with pytest.raises(BadInput, match="changed after runs"):
        study.collect(asked(tmp_path, 2), lambda seed, _: {"a": seed}, [asks_more])
    assert list(study.collect(asked(tmp_path, 2), lambda seed, _: {"a": seed}, [first])) == [1, 2]


def test_seeds_that_are_still_to_run_show_nothing(study: ModuleType, tmp_path: Path) -> None:
    predictions = [study.Prediction("most", lambda arms: True), study.Prediction("all", lambda arms: True, share=1.0)]
    for seeds, expected in (((0, 1, 2), [False, False]), ((3,), [True, False]), ((4,), [True, True])):
        study.collect(asked(tmp_path, *seeds), lambda seed, _: {"a": seed}, predictions, range(5))
        written = json.loads((tmp_path / "results.json").read_text())["predictions"]
        assert [prediction["shown"] for prediction in written] == expected


def test_a_finished_run_is_taken_for_its_own_settings_alone(study: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "0-a"
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(compose("quickstart", ["seed=3"])))
    (folder / "summary.json").write_text(json.dumps({"status": "done"}))
    study.train("quickstart", folder, ["seed=3"])  # nothing is trained: it is there
    with pytest.raises(BadInput, match="other settings"):
        study.train("quickstart", folder, ["seed=3", "learner.lr=0.5"])
