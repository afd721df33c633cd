"""Every recipe and every ablation is a configuration that starts: not among the unit tests, since there are so many."""

from pathlib import Path

import pytest

from launch.cli import run
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from tests.makers.public_sets import FEWER, prepare_all

pytestmark = pytest.mark.e2e
ABLATIONS = sorted(CONFIGS.glob("*/ablations/*.yaml"))
ALL = sorted(CONFIGS.rglob("*.yaml"))


def name_of(path: Path) -> str:
    return str(path.relative_to(CONFIGS).with_suffix(""))


@pytest.mark.parametrize("path", ABLATIONS, ids=name_of)
def test_every_ablation_loads(path: Path) -> None:
    assert compose(str(path), []).stages


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare_all(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_every_one_starts_with_what_is_prepared(
    path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(prepared)
    monkeypatch.setattr("envs.made_worlds", {})  # by paths that are relative to that folder
    monkeypatch.setenv("SERPER_KEY", "x")  # of the live web
    code = run(["train", name_of(path), "--dry-run", *FEWER.get(name_of(path), [])])
    assert (code, capsys.readouterr().err) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_without_data_every_one_is_planned_and_names_what_makes_them(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("envs.made_worlds", {})
    monkeypatch.setenv("SERPER_KEY", "x")  # of the live web
    code = run(["train", name_of(path), "--dry-run"])
    out, err = capsys.readouterr()
    reads = "#   missing " in out
    assert code == (2 if reads else 0) and "# what follows from it" in out and "devices (GPU)" in out
    assert ("makes it" in err) == reads and ("memory (GPU)" in out or "memory (CPU)" in out)
