"""How far an engine's start is: read off lines that vLLM logs, which stay as quiet as they were."""

from __future__ import annotations

import json
import logging
import logging.config
import os
from pathlib import Path

import pytest

from actors import engine_start
from actors.engine_start import DOWNLOADING, LOADING, PhaseHandler, enter, logging_config, phase, track_start_phase


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in engine_start.GIVEN:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_phases_follow_the_lines_and_others_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "phase"
    log = logging.Logger("vllm")
    log.addHandler(PhaseHandler(str(file)))
    seen = []
    for line, values in (
        ("Starting to load model %s...", ("tiny",)),
        ("a line of no interest", ()),
        ("Model loading took %s GiB memory and %.6f seconds", ("1", 2.0)),
        ("%sUsing cache directory: %s for vLLM's torch.compile", ("", "/x")),
        ("%s KV cache size: %s tokens", ("GPU", "1000")),
        ("init engine (profile, create kv cache, warmup model) took %.2f s", (3.0,)),
    ):
        log.info(line, *values)
        seen.append(file.read_text())
    assert seen == [
        LOADING,
        LOADING,
        "measuring its memory",
        "compiling",
        "capturing graphs, warming up",
        "its first requests",
    ]


def test_the_log_itself_is_as_quiet_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = logging_config(tmp_path, "org/name")
    config["loggers"] = {"tests.vllm": config["loggers"]["vllm"]}
    logging.config.dictConfig(config)
    log = logging.getLogger("tests.vllm")
    log.info("Starting to load model %s...", "org/name")
    log.warning("something is odd")
    printed = capsys.readouterr().out
    assert "something is odd" in printed and "Starting" not in printed
    assert (tmp_path / "phase").read_text() == DOWNLOADING  # a hub name


def test_the_file_is_named_while_an_engine_starts_and_a_later_one_has_its_own(tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        with track_start_phase(folder, str(tmp_path)):
            path = Path(os.environ["VLLM_LOGGING_CONFIG_PATH"])
            assert path.parent == folder and json.loads(path.read_text())["handlers"]["phases"]["loading"] == LOADING
            enter("importing vLLM")
            assert phase() == "importing vLLM"
        assert "VLLM_LOGGING_CONFIG_PATH" not in os.environ
        (folder / "phase").unlink()
        assert phase() == ""


def test_without_a_folder_a_start_has_no_phases(tmp_path: Path) -> None:
    with track_start_phase(None, str(tmp_path)):
        enter("importing vLLM")
        assert phase() == "" and "VLLM_LOGGING_CONFIG_PATH" not in os.environ
