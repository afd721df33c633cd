"""A signal that comes before the loop has its handlers is neither lost nor another exit code."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.driver.run import cleanup
from rlsys.system import orphans

DEAD = f"{cleanup.tag().split(':')[0]}:999999999:1"


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> Iterator[cleanup.Early]:
    """As within `orderly_exit`."""
    before = {number: signal.getsignal(number) for number in cleanup.STOPS}
    early = cleanup.Early()
    monkeypatch.setattr(cleanup, "early", early)
    yield early
    early.close()
    for number, handler in before.items():
        signal.signal(number, handler)


def lost() -> None:
    """What a library does with an exception that is raised in its callback: Python prints it and goes on."""

    class Falls:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    Falls()


@pytest.mark.parametrize("number", cleanup.STOPS)
def test_a_signal_that_reaches_our_handler(early: cleanup.Early, number: int) -> None:
    with pytest.raises(SystemExit) as caught:
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_whose_exception_is_lost_ends_the_process_all_the_same(early: cleanup.Early) -> None:
    lost()
    assert cleanup.pending_signals() == [signal.SIGTERM]
    with pytest.raises(SystemExit) as caught:
        cleanup.stop_if_asked()
    assert caught.value.code == 143


def test_a_handler_that_ray_put_over_ours_changes_no_exit_code(early: cleanup.Early) -> None:
    def ray_init(signalled: bool) -> None:
        try:
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
            if signalled:
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            cleanup.stop_if_asked()

    ray_init(signalled=False)
    with pytest.raises(SystemExit) as caught:  # ours is back
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 143
    with pytest.raises(SystemExit) as caught:
        ray_init(signalled=True)
    assert caught.value.code == 143


def test_without_a_signal_nothing_ends(early: cleanup.Early) -> None:
    os.kill(os.getpid(), signal.SIGCHLD)
    cleanup.stop_if_asked()
    assert cleanup.pending_signals() == []


class Process:
    def __init__(self, pid: int, *, stuck: bool = False) -> None:
        self.pid, self.stuck = pid, stuck
        self.signals: list[int] = []

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def name(self) -> str:
        return f"sleeper{self.pid}"


def test_what_is_born_while_others_end_goes_too_and_what_survives_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    first, born, stuck = Process(1), Process(2), Process(3, stuck=True)
    looks = iter([[first, stuck], [born, stuck], [stuck]])
    waited: Any = lambda processes, timeout: ([], [process for process in processes if process.stuck])  # noqa: E731
    monkeypatch.setattr(cleanup.psutil, "wait_procs", waited)
    left = cleanup.end_processes(lambda: next(looks))  # type: ignore[arg-type,return-value]
    assert left == [stuck]
    assert [process.signals for process in (first, born, stuck)] == [[15], [15], [15, 9]]
    assert cleanup.describe_survivors(left).startswith("rlsys: processes that do not end: 3 sleeper3: ")
    assert cleanup.describe_survivors([]) == ""


def test_semaphores_of_killed_engines_go_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "SHARED", tmp_path)
    owners = {"dead": DEAD, "ours": cleanup.tag(), "elsewhere": "another-machine.1:999999999:1"}
    files = {name: tmp_path / f"sem.rlsys-{owner}-ab_c123z" for name, owner in owners.items()}
    for path in [*files.values(), tmp_path / "sem.mp-ab_c123z"]:
        path.write_bytes(b"")
    orphans.remove_left_behind(cleanup.is_dead_owner)
    assert {path.name for path in tmp_path.iterdir()} == {
        files["ours"].name,
        files["elsewhere"].name,
        "sem.mp-ab_c123z",
    }
    orphans.remove_left_behind(cleanup.tag().__eq__)
    assert not files["ours"].exists()
    assert files["elsewhere"].exists()
