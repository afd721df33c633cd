"""What an execution's processes hold, read from /proc, or from a tree of files in its form."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from envs.tools.sandbox.jail import memory


def _add_thread(proc: Path, process: str, thread: str, *, statm: str, children: str = "") -> None:
    folder = proc / process / "task" / thread
    folder.mkdir(parents=True)
    (folder / "statm").write_text(statm)
    (folder / "children").write_text(children)


def test_a_process_that_ends_while_it_is_listed_holds_nothing(tmp_path: Path) -> None:
    _add_thread(tmp_path, "self", "1", statm="9 5 1 0 0 0 0", children="7 8 ")
    (tmp_path / "7" / "task").mkdir(parents=True)  # opened before its end, listed after it
    _add_thread(tmp_path, "8", "8", statm="0 0 0 0 0 0 0")  # ended, while its second thread runs
    _add_thread(tmp_path, "8", "9", statm="9 6 2 0 0 0 0")
    proc = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert memory.private(proc, "7") == 0
        assert memory.growth(proc, memory.PAGE) == 3 * memory.PAGE
    finally:
        os.close(proc)


def test_a_thread_that_ends_after_the_listing_hides_nothing_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this process: a thread is listed, and gone when it is read; a child of the main thread is there."""
    listed = os.listdir

    def list_and_end(folder: int) -> list[str]:
        ending = threading.Event()
        thread = threading.Thread(target=ending.wait)
        thread.start()
        names = listed(folder)
        ending.set()
        thread.join()
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            time.sleep(0.001)
        assert str(thread.native_id) in names
        return names

    monkeypatch.setattr(os, "listdir", list_and_end)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert str(child.pid) in memory.children(proc, "self")
        assert memory.private(proc, "self") > 0
    finally:
        child.kill()
        child.wait()
        os.close(proc)
