"""`rlsys play` as a person starts it: real tools, a real terminal, and what is left when it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.runs import ROOT

PLAY = [sys.executable, "-m", "launch", "play"]
SAID = {
    "worlds/python": ('"<code>\\n```python\\nprint(6 * 7)\\n```\\n</code>"', "<answer>\\boxed{42}</answer>", "\n42<"),
    "worlds/search": (
        "<think> a </think> <search> guild of Rafosu </search>",
        "<answer> The final answer is \\[ \\boxed{x} \\] </answer>",
        "The guild of Rafosu is Subape.",
    ),
}


@pytest.mark.parametrize("config", SAID)
def test_tools_are_real_and_the_reward_is_that_of_score(config: str, tmp_path: Path) -> None:
    call, answer, result = SAID[config]
    out = tmp_path / "played.jsonl"
    reward = ["reward.name=answer"] if config == "worlds/python" else []  # its own counts tokens
    argv = [*PLAY, config, *reward, "--output", str(out)]
    played = subprocess.run(argv, input=f"{call}\n{answer}\n", cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert played.returncode == 0, played.stderr
    assert "end: answered" in played.stdout
    line = json.loads(out.read_text())
    assert result in line["messages"][1]["content"]
    score = [sys.executable, "-m", "launch", "score", config, *reward, "--input", str(out)]
    scored = subprocess.run(score, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert json.loads(scored.stdout)["reward"] == line["reward"]


@contextmanager
def at_a_terminal(*argv: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    master, slave = pty.openpty()
    ends = {"stdin": slave, "stdout": slave, "stderr": slave}
    process = subprocess.Popen([*PLAY, *argv], **ends, cwd=ROOT, start_new_session=True)
    os.close(slave)
    try:
        yield process, master
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(master)


def read_until(master: int, pattern: str) -> str:
    """What was shown up to a match, or up to the end."""
    output = ""
    while not re.search(pattern, output, re.DOTALL) and select.select([master], [], [], 60)[0]:
        try:
            output += os.read(master, 1 << 16).decode()
        except OSError:  # the other end is closed
            break
    return output


@pytest.mark.parametrize(("key", "code"), [(b"\x04", 0), (None, 130)])
def test_leaving_is_quiet_and_leaves_nothing(key: bytes | None, code: int) -> None:
    """Ctrl-D, and Ctrl-C, in the middle of an episode that has a process of its own."""
    with at_a_terminal("worlds/python") as (process, master):
        read_until(master, "assistant> ")
        os.write(master, b"<code>print(1)</code>\n")
        read_until(master, "</interpreter>.*assistant> ")
        started = psutil.Process(process.pid).children(recursive=True)
        assert started  # the sandbox
        if key is None:
            time.sleep(1.0)  # Python's line editor prints the prompt before it waits, and sees no signal in between
            process.send_signal(signal.SIGINT)
        else:
            os.write(master, key)
        output = read_until(master, "(?!)")
        assert process.wait(60) == code
        assert "Traceback" not in output and "Error" not in output
        _, alive = psutil.wait_procs(started, timeout=60)
        assert alive == []


pytestmark = pytest.mark.e2e
