"""Orphans bear their dead owner's tag, and only they are ended."""

import os
import subprocess
import sys

import psutil

from launch.driver.run import cleanup

DEAD = f"{cleanup.tag().split(':')[0]}:999999999:1"


def sleeper(owner: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, cleanup.VARIABLE: owner}
    )


def test_only_processes_of_dead_owners_are_orphans() -> None:
    orphan, owned = sleeper(DEAD), sleeper(cleanup.tag())
    try:
        assert orphan.pid in {process.pid for process in cleanup.find_owned()}
        assert owned.pid not in {process.pid for process in cleanup.find_owned()}
        assert cleanup.end_orphans() == []
        assert not psutil.pid_exists(orphan.pid)
        assert owned.poll() is None
        assert cleanup.end_own() == []
        assert not psutil.pid_exists(owned.pid)
    finally:
        for process in (orphan, owned):
            if process.poll() is None:
                process.kill()


def test_a_pid_used_again_is_not_the_owner() -> None:
    process = sleeper(cleanup.tag().rpartition(":")[0] + ":1")  # this pid, another start
    try:
        assert process.pid in {leftover.pid for leftover in cleanup.find_owned()}
    finally:
        process.kill()
        process.wait()


def test_tags_of_other_machines_are_left_alone() -> None:
    process = sleeper("another-machine.1:999999999:1.00")
    try:
        assert process.pid not in {leftover.pid for leftover in cleanup.find_owned()}
    finally:
        process.kill()
        process.wait()
