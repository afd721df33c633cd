"""Models of the hub are fetched before anything starts, once for each node. The hub is the test's."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from actors.services import ServiceSpec, start_world
from envs.worlds.calculator import CalculatorConfig
from launch.checks import hub
from launch.driver.run import downloads, nodes
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.system.device import DEVICES

RECIPE = RecipeConfig(env=CalculatorConfig(train_tasks=8, held_out_tasks=2))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(model, which weights) of each question to the hub. `old/...` has weights in the older format alone."""
    questions: list[tuple[str, str]] = []

    def snapshot_download(model: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        if model == "gone/model":
            raise OSError("404")
        questions.append((model, allow_patterns[-1]))
        folder = tmp_path / model
        folder.mkdir(parents=True, exist_ok=True)
        file = "pytorch_model.bin" if model.startswith("old/") else "model.safetensors"
        if Path(file).match(allow_patterns[-1]):
            (folder / file).touch()
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setenv(hub.OFFLINE, "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return questions


def test_a_name_of_the_hub_is_no_folder(asked: list[tuple[str, str]], tmp_path: Path, monkeypatch: Any) -> None:
    models = ["Qwen/Qwen2.5-7B", "/shared/model", "./own", str(tmp_path), "a/b/c", "gpt2", "gpt2"]
    assert downloads.from_hub(models) == ("Qwen/Qwen2.5-7B", "gpt2")
    monkeypatch.setenv(hub.OFFLINE, "1")
    assert downloads.from_hub(models) == ()


def test_weights_in_the_older_format_are_fetched_only_where_there_are_no_others(asked: list[tuple[str, str]]) -> None:
    downloads.download(["new/model", "old/model"])
    assert asked == [("new/model", "*.safetensors"), ("old/model", "*.safetensors"), ("old/model", "*.bin")]


def test_a_download_that_fails_is_one_line_with_the_model(asked: list[tuple[str, str]]) -> None:
    with pytest.raises(BadInput, match="gone/model.*404"):
        downloads.download(["gone/model"])


def test_the_patience_with_a_hub_grows_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "other_model_bytes", {"large": 65_000_000_000, "unknown": 0}.__getitem__)
    assert downloads.patience_s(["large"]) == 300 + 13_000
    assert downloads.patience_s(["large", "unknown"]) == 300 + 13_000 + 300 + 20_000


def test_on_this_machine_each_model_is_fetched_once_for_all_that_load_it(
    asked: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = ServiceSpec(name="judge", config=None, start=start_world, models=("judge/model",))
    log, lines = tmp_path / "given", list[str]()
    write = f"import sys; open({str(log)!r}, 'a').write(' '.join(sys.argv[2:]))"
    monkeypatch.setattr(downloads, "COMMAND", (sys.executable, "-c", write))
    checking = nodes.check_nodes(
        [], RECIPE, [RECIPE], SimpleNamespace(servers=[judge]), DEVICES["cpu"], model=("model.path", "new/model"),  # type: ignore[arg-type]
        teachers=[("learner.reference", "taught/model")], shared=[], ranks=2, doing=lines.append,
    )  # fmt: skip
    assert asyncio.run(checking) == nodes.CheckedNodes()
    assert log.read_text().split() == ["new/model", "taught/model", "judge/model"]
    assert len(lines) == 1 and all(model in lines[0] for model in log.read_text().split())


def child(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(downloads, "COMMAND", (sys.executable, "-c", script))


def test_what_the_hub_refuses_is_the_line_of_the_process_that_asked(
    asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(downloads, "die_with", lambda parent: None)
    assert (downloads.main("1", "new/model"), downloads.main("1", "gone/model")) == (0, 2)
    line = capsys.readouterr().out
    assert "gone/model" in line and "404" in line
    child(monkeypatch, f"print({line!r}); raise SystemExit(2)")
    with pytest.raises(BadInput, match="gone/model.*404"):
        asyncio.run(downloads.download_here(["gone/model"], 60.0))


HANGS = "import os, sys, signal; print(os.getpid(), file=open({!r}, 'w'), flush=True); signal.pause()"


@pytest.mark.parametrize("ends", ["deadline", "stop"])
def test_a_download_that_hangs_ends_at_its_deadline_and_at_a_stop(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread would hold the process until the hub answers."""
    child(monkeypatch, HANGS.format(str(tmp_path / "pid")))

    async def hang() -> None:
        if ends == "deadline":
            return await downloads.download_here(["new/model"], 0.01)
        fetching = asyncio.create_task(downloads.download_here(["new/model"], 600.0))
        while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text().strip():
            await asyncio.sleep(0)
        fetching.cancel()
        await fetching

    with pytest.raises(RunFailed if ends == "deadline" else asyncio.CancelledError):
        asyncio.run(hang())
    if ends == "stop":
        assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
