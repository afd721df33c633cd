"""`rlsys eval` with a bandit for a model: sets, a result with all that it is of, what is resumed, and comparison."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.cli import run as rlsys
from rlsys.errors import RunFailed
from tests.fakes.parts import BanditPool

RECIPE = """
name: command
env: {name: calculator, train_tasks: 8, held_out_tasks: 12}
eval:
  concurrency: 2
  sets:
    few: {tasks: 6, samples: 2, seeds: 2, greedy: false, paper: {accuracy: 0.25}}
    long: {env: {max_turns: 2}, samples: 0}
stages: [{kind: rl, steps: 1}]
"""


class Counting(BanditPool):
    """Counts what it plays; after `most` groups it is killed."""

    def __init__(self, most: int = 10**9) -> None:
        super().__init__()
        self.most, self.played = most, 0

    async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
        self.played += 1
        if self.played > self.most:
            raise RunFailed("killed")
        return await super().group(ticket, plan, on_retry)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Counting]:
    """The engines; the model is a folder, and nothing else is started."""
    engines = Counting()

    def on_engines(recipe: Any, model: str, progress: Any, work: Any, *, playing: Any, scratch: bool) -> Any:
        assert [config.env.max_turns for config in playing] == [None, None, 2]
        return asyncio.run(work(recipe, engines))

    model = tmp_path / "run" / "checkpoints" / "step-000007" / "hf"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    monkeypatch.setattr("launch.driver.run.engines.on_engines", on_engines)
    monkeypatch.setattr("launch.checks.preflight.check_model", lambda *_, **__: None)
    monkeypatch.setattr("launch.checks.preflight.check", lambda *_, **__: None)
    monkeypatch.setattr("launch.checks.models.check_partition", lambda *_: None)
    monkeypatch.setattr("launch.driver.run.engines.check_digests", lambda _: None)
    monkeypatch.setattr("launch.commands.eval.ChatRenderer", lambda _: SimpleNamespace(under=lambda args: None))
    monkeypatch.setattr("launch.commands.eval.check_prompts", lambda *_: None)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    yield engines


def command(tmp_path: Path, *more: str, output: str = "result.json") -> int:
    where = ["--checkpoint", str(tmp_path / "run"), "--output", str(tmp_path / output)]
    return rlsys(["eval", str(tmp_path / "recipe.yaml"), *where, *more])


def test_the_result_says_what_it_is_of(tmp_path: Path, pool: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path) == 0
    report = json.loads((tmp_path / "result.json").read_text())
    assert report["episodes"] == {"few/sampled": 24, "long/greedy": 12} and pool.played == 18
    assert (report["step"], report["measure"], report["seed"]) == (7, "accuracy", 0)
    assert set(report) >= {"weights", "versions", "config", "seconds", "failures", "ends", "accuracy", "transcripts"}
    few = report["plays"]["few/sampled"]
    assert (few["samples"], few["seeds"], few["paper"], few["partial"]) == (2, 2, {"accuracy": 0.25}, False)
    assert len(few["tasks"]) == 6 and {"pass@1", "pass@2", "pass@4", "mean@4"} <= set(few["metrics"])
    assert report["config"]["eval"]["sets"]["few"]["tasks"] == 6
    lines = {name: Path(path).read_text().splitlines() for name, path in report["transcripts"].items()}
    assert {name: len(rows) for name, rows in lines.items()} == report["episodes"]
    out = capsys.readouterr().out
    assert "few 6 tasks, 2 sampled x 2 seeds; long 12 tasks, greedy" in out
    assert "paper 0.250" in out and "over seeds" in out


def test_what_a_kill_left_is_gone_on_with_and_nothing_is_written_over(
    tmp_path: Path, pool: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "--resume") == 2
    assert "--resume: there is no result.transcripts next to" in capsys.readouterr().err
    pool.most = 7
    assert command(tmp_path) == 1 and not (tmp_path / "result.json").exists()
    pool.most, pool.played = 10**9, 0
    assert command(tmp_path, "--resume") == 0
    assert 18 - 7 <= pool.played <= 18 - 5  # two were under way
    first = json.loads((tmp_path / "result.json").read_text())
    assert first["episodes"] == {"few/sampled": 24, "long/greedy": 12}
    assert "groups have been played already" in capsys.readouterr().out
    pool.played = 0
    assert command(tmp_path, "--resume") == 0 and pool.played == 0
    assert command(tmp_path, "--resume", "eval.sets.few.temperature=0.5") == 2
    assert "was begun with few/sampled eval.temperature=1.0, not 0.5: leave" in capsys.readouterr().err
    assert command(tmp_path, "--against", str(tmp_path / "result.json")) == 0
    again = json.loads((tmp_path / "result.json").read_text())
    assert Path(again["transcripts"]["few/sampled"]).parent.name == "result.transcripts-2"
    assert Path(first["transcripts"]["few/sampled"]).is_file()
    assert again["against"]["plays"]["few/sampled"]["paired"]["tasks"] == 6
    assert "on the 6 tasks of both" in capsys.readouterr().out


def test_what_cannot_be_asked_is_one_line(tmp_path: Path, pool: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = str(tmp_path / "recipe.yaml")
    assert rlsys(["eval", recipe, "--resume"]) == 2
    assert "--resume: expected --output" in capsys.readouterr().err
    assert rlsys(["eval", recipe, "--against", str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert rlsys(["eval", recipe, "--checkpoint", f"{tmp_path / 'run'}@best"]) == 2
    assert "no best model in it" in capsys.readouterr().err
    assert pool.played == 0
