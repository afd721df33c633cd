"""The key `tracker`: names, lists, classes of one's own, and what is refused before anything starts."""

import tomllib
from pathlib import Path

import pytest

from launch.config.compose import compose, to_yaml
from launch.driver.observe.trackers.base import TrackedRun
from launch.driver.observe.trackers.table import TRACKERS, check_trackers, make_trackers, tracker_names
from rlsys.config import output
from rlsys.config.output import WandbConfig
from tests.paths import ROOT
from tests.refused import refused

OWN = """
class Mine:
    def __init__(self, run):
        self.run, self.uploads = run, "mine uploads everything"
    def log(self, row):
        with (self.run.directory / "mine.txt").open("a") as file:
            print(row["step"], file=file)
    def log_evaluation(self, step, name, values): ...
    def episodes(self, step, trajectories): ...
    def finish(self): ...
class Half:
    def log(self, row): ...
class Broken(Mine):
    def __init__(self, run):
        raise OSError("no server")
"""


def named(*overrides: str, config: str = "quickstart") -> list[str]:
    return tracker_names(compose(config, overrides).recipe)


def tracked(directory: Path) -> TrackedRun:
    return TrackedRun(directory=directory, name="n", config={}, step=0, settings=WandbConfig())


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A recipe next to trackers of one's own."""
    (tmp_path / "own_trackers.py").write_text(OWN)
    (tmp_path / "mine.yaml").write_text("extends: quickstart\ntracker: [own_trackers.Mine, tensorboard]\n")
    return str(tmp_path / "mine.yaml")


def test_each_name_has_its_class_in_the_table() -> None:
    assert {*TRACKERS, "none"} == set(output.TRACKERS)


def test_one_several_or_none() -> None:
    assert named() == ["wandb"]
    assert named("tracker=tensorboard") == ["tensorboard"]
    assert named("tracker=[tensorboard, wandb]") == ["tensorboard", "wandb"]
    assert named("tracker=none") == named("tracker=[]") == named("wandb.mode=disabled") == []
    assert named("wandb.mode=disabled", "tracker=[wandb,tensorboard]") == ["tensorboard"]


def test_a_run_reads_its_own_file_back(tmp_path: Path) -> None:
    for override in ("tracker=none", "tracker=[wandb,tensorboard]"):
        run = compose("quickstart", [override])
        (tmp_path / "config.yaml").write_text(to_yaml(run))
        assert compose(str(tmp_path / "config.yaml"), []) == run


@pytest.mark.parametrize("given", ["tensorbord", "[wandb,wandb]", "[none,wandb]", "[3]", "null"])
def test_what_is_no_tracker_is_refused(given: str) -> None:
    with refused(says="tracker"):
        compose("quickstart", [f"tracker={given}"])


def test_a_tracker_holds_for_the_whole_run() -> None:
    with refused(says="tracker"):
        compose("quickstart", ["stages.rl.tracker=none"])


def test_one_that_is_not_installed_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = compose("quickstart", ["tracker=[wandb,trackio]"]).recipe
    monkeypatch.setattr(
        "launch.driver.observe.trackers.table.find_spec", lambda name: None if name == "trackio" else name
    )
    (pinned,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["trackio"]
    with refused("tracker", found="trackio", says=f"pip install {pinned}"):
        check_trackers(recipe)


def test_a_class_of_ones_own_is_found_next_to_the_recipe(own: str, tmp_path: Path) -> None:
    recipe = compose(own, []).recipe
    check_trackers(recipe)
    trackers, says = make_trackers(compose(own, ["tracker=own_trackers.Mine"]).recipe, tracked(tmp_path))
    trackers.log({"step": 3})
    trackers.finish()
    assert (tmp_path / "mine.txt").read_text() == "3\n" and says == ["mine uploads everything"]


@pytest.mark.parametrize("name", ["own_trackers.Half", "own_trackers.Missing", "no_such_module.Tracker"])
def test_a_class_that_is_no_tracker_is_refused(own: str, name: str) -> None:
    recipe = compose(own, [f"tracker={name}"]).recipe
    with refused("tracker", found=name):
        check_trackers(recipe)


def test_one_that_cannot_start_is_off_and_the_others_are_not(
    own: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = compose(own, ["tracker=[own_trackers.Broken,own_trackers.Mine]"]).recipe
    trackers, _ = make_trackers(recipe, tracked(tmp_path))
    trackers.log({"step": 1})
    trackers.finish()
    assert (tmp_path / "mine.txt").exists()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "own_trackers.Broken" in line and "no server" in line
