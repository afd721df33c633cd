"""What an execution's processes hold, read from a tree of files in the form of /proc."""

import os
from pathlib import Path

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
