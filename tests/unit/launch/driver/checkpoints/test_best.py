"""The best model of a run: set apart while it is evaluated, kept while no other is better."""

import json
from pathlib import Path

import pytest

from launch.driver.checkpoints.best import copy_best, find_best_model, keep_if_best, read_best, set_aside_best_after
from launch.driver.checkpoints.checkpoint import model_step
from launch.driver.run.engines import find_checkpoint
from rlsys.config.recipe import RecipeConfig
from tests.refused import refused


def saved(run: Path, step: int) -> None:
    folder = run / "checkpoints" / f"step-{step:06d}"
    for name, text in (("hf/config.json", '{"step": %d}'), ("learner/state.pt", "s%d"), ("driver.json", "{}%d")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text % step)


def offered(run: Path, step: int, value: float, number: str = "greedy/accuracy") -> bool:
    saved(run, step)
    apart = copy_best(run, step)
    assert apart is not None
    return keep_if_best(run, apart, number, value)


def folders(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir() if not path.name.startswith("step-"))


def test_the_highest_number_stays_and_only_its_model(tmp_path: Path) -> None:
    assert [offered(tmp_path, 10, 0.5), offered(tmp_path, 20, 0.7), offered(tmp_path, 30, 0.7)] == [True, True, False]
    assert folders(tmp_path) == ["best-step-000020"]
    best = find_best_model(tmp_path)
    assert best is not None and read_best(best) == {"number": "greedy/accuracy", "value": 0.7, "step": 20}
    assert sorted(path.name for path in best.iterdir()) == ["best.json", "driver.json", "hf"]
    assert (best / "hf" / "config.json").read_text() == '{"step": 20}'
    assert offered(tmp_path, 40, 0.1, "greedy/exact_match")  # by another number all begins anew


def test_an_evaluation_that_is_made_again_is_the_one_that_counts(tmp_path: Path) -> None:
    assert offered(tmp_path, 10, 0.9) and offered(tmp_path, 10, 0.6)
    best = find_best_model(tmp_path)
    assert best is not None and read_best(best)["value"] == 0.6
    assert offered(tmp_path, 20, 0.7)


def test_a_checkpoint_that_is_removed_meanwhile_is_there_all_the_same(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    apart = copy_best(tmp_path, 10)
    (tmp_path / "checkpoints" / "step-000010" / "hf" / "config.json").unlink()
    assert apart is not None and keep_if_best(tmp_path, apart, "greedy/accuracy", 0.5)
    assert (tmp_path / "checkpoints" / "best-step-000010" / "hf" / "config.json").read_text() == '{"step": 10}'
    assert copy_best(tmp_path, 20) is None  # nothing was saved at that step


def test_what_a_kill_left_is_removed_and_a_best_of_lost_steps_is_put_aside(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    copy_best(tmp_path, 10)
    assert offered(tmp_path, 20, 0.9)
    assert folders(tmp_path) == ["best-step-000020"]
    assert set_aside_best_after(tmp_path, 20) == []
    assert [path.name for path in set_aside_best_after(tmp_path, 15)] == ["aside-best-step-000020"]
    assert find_best_model(tmp_path) is None


def test_a_run_at_best_is_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.checks.preflight.check_model", lambda *_, **__: None)
    monkeypatch.setattr("launch.checks.models.check_partition", lambda *_: None)
    with refused("--checkpoint", says="@best", expected="checkpoint.best"):
        find_checkpoint(RecipeConfig(), f"{tmp_path}@best")
    offered(tmp_path, 10, 0.5)
    best = tmp_path / "checkpoints" / "best-step-000010"
    (best / "driver.json").write_text(json.dumps({"step": 10}))  # saved without digests
    assert find_checkpoint(RecipeConfig(), f"{tmp_path}@best") == str(best / "hf")
    assert (model_step(best / "hf"), model_step(tmp_path / "model")) == (10, None)
    assert model_step(Path("checkpoints/aside2-step-000160/hf")) == 160


def test_a_run_may_go_back_behind_the_same_best_twice(tmp_path: Path) -> None:
    for _ in range(3):
        assert offered(tmp_path, 40, 0.9)
        set_aside_best_after(tmp_path, 20)
    assert folders(tmp_path) == [f"aside{n}-best-step-000040" for n in ("", 1, 2)]
    assert find_best_model(tmp_path) is None
