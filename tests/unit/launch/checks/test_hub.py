"""Hub names without a network: one line at once, or the copy of an earlier download."""

from pathlib import Path

import pytest

from launch.checks import hub
from launch.cli import run
from tests.refused import refused

NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_ENDPOINT", NOBODY)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv(hub.OFFLINE, "0")  # set, so that it is put back
    return tmp_path


def download(home: Path, name: str, config: str = '{"model_type": "qwen2"}') -> Path:
    folder = home / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config)
    return folder


def test_what_cannot_be_had_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "never-made"
    assert run(["train", "quickstart", "model.path=some/model", "--run-dir", str(run_dir)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and not run_dir.exists()
    assert f"model.path='some/model': no folder, not downloaded before, and {NOBODY} cannot be reached" in err
    monkeypatch.setenv(hub.OFFLINE, "1")
    assert run(["eval", "quickstart", "--checkpoint", "some/model"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "HF_HUB_OFFLINE is set: nothing is downloaded" in err


def test_a_dry_run_says_of_a_hub_name_that_it_cannot_be_had(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["train", "quickstart", "model.path=some/modle", "--dry-run"]) == 0
    assert f"some/modle: {NOBODY} cannot be reached" in capsys.readouterr().out
    monkeypatch.setenv(hub.OFFLINE, "1")
    assert "HF_HUB_OFFLINE" in hub.explain_missing("some/modle")


def test_an_earlier_download_serves_and_its_architecture_is_checked(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = download(nowhere, "some/model")
    assert hub.find_cached("some/model") == folder and hub.find_cached("other/model") is None
    message = hub.require("some/model", "model.path='some/model'")
    assert message is not None and "HF_HUB_OFFLINE=1" in message and str(folder) in message
    assert hub.os.environ[hub.OFFLINE] == "1"  # for every process that is started from here
    assert hub.require("some/model", "model.path='some/model'") is None
    download(nowhere, "some/moe", '{"model_type": "mixtral"}')
    assert run(["train", "quickstart", "model.path=some/moe", "--dry-run"]) == 2
    assert "a mixtral model cannot be trained" in capsys.readouterr().err


def test_a_hub_that_answers_anything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # 501 to all
        Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert hub.require("some/model", "model.path='some/model'") is None
    monkeypatch.setenv("HF_ENDPOINT", "no address")
    with refused(says="no address cannot be reached"):
        hub.require("some/model", "model.path='some/model'")
