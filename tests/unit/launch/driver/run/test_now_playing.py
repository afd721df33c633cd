"""The file of what the engines play: written beside the pings, by one writer at a time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from actors.worker import Excerpt
from launch.config.compose import compose
from launch.driver.run.now_playing import PlayingFile, forget_playing, show_playing
from rlsys.types import Message


def statuses(text: str) -> Any:
    excerpt = Excerpt((Message(role="user", content="?"),), (Message(role="assistant", content=text),))
    return {"rollout:0": SimpleNamespace(playing=excerpt), "rollout:1": SimpleNamespace(playing=None)}


def line(text: str) -> dict[str, Any]:
    prompt, messages = [{"role": "user", "content": "?"}], [{"role": "assistant", "content": text}]
    return {"worker": "rollout:0", "prompt": prompt, "messages": messages}


def test_a_disk_that_hangs_keeps_no_ping_waiting_and_has_one_writer(tmp_path: Path) -> None:
    hung, shown = tmp_path / ".playing.json.tmp", PlayingFile(tmp_path)
    os.mkfifo(hung)  # opening it waits for a reader
    shown.show(statuses("first"))
    shown.show(statuses("second"))
    assert json.loads(hung.read_text()) == [line("first")]
    while not (tmp_path / "playing.json").is_file():  # once the writer is free
        shown.show(statuses("third"))
        time.sleep(0.01)
    assert json.loads((tmp_path / "playing.json").read_text()) == [line("third")]


def test_what_cannot_be_removed_hides_no_other_error(tmp_path: Path) -> None:
    (tmp_path / "playing.json").mkdir()
    (tmp_path / ".playing.json.tmp").touch()
    forget_playing(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["playing.json"]


def test_nothing_is_shown_of_a_run_that_writes_no_episode(tmp_path: Path) -> None:
    def shows(*overrides: str) -> bool:
        pool: Any = SimpleNamespace(shows=None)
        run: Any = SimpleNamespace(
            dir=SimpleNamespace(path=tmp_path), pool=pool, config=compose("quickstart", list(overrides))
        )
        show_playing(run)
        return pool.shows is not None

    assert shows() and not shows("trajectories.keep=0")
    assert shows("trajectories.keep=0", "stages.rl.trajectories.keep=8")  # a stage's own
