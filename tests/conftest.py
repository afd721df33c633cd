"""What every test gets: no network, no telemetry, marks by folder, and nothing left running at the end."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests import device, not_run

TESTS = Path(__file__).parent
ROOT = TESTS.parent
FOLDER_MARKS = ("ray", "e2e", "gpu")
# Files that take a minute or more, the longest first: begun first, so that nobody waits for one of them at the end.
LONG = ("quickstart", "stages", "learner_rank", "pool", "engine_contract")
SESSION_KEY = "RLSYS_TEST_SESSION"  # inherited by everything that the tests start, also when its parent is gone

sys.path.insert(0, str(ROOT))
# Enough for every run; HYPOTHESIS_PROFILE=default looks further. A test that needs more says so itself.
# On a busy machine a first example may take a second, and says nothing about the code.
settings.register_profile("quick", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
os.environ.update(
    {
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),  # for Ray's workers
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # as `rlsys train` has it: at Ray's own 15 actors stand still beside a busy program
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        "WANDB_MODE": "offline",
    }
)
os.environ.setdefault(SESSION_KEY, f"{os.getpid()}")  # of pytest itself, also in the processes that it hands tests to
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background job, and by its children
os.environ.pop("RAY_ADDRESS", None)  # a test never joins somebody's cluster


gc.disable()  # until everything is imported and collected, which all stays


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a process that pytest hands tests to
        # All is reported by then, and what was imported later has cleaned up: Python would take torch apart for two s.
        atexit.register(os._exit, 0)
    else:
        atexit.register(gc.unfreeze)  # libraries count at the end what was left


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """`cpu_seconds(2)`: of this process, whatever else the machine does meanwhile."""
    mark = item.get_closest_marker("cpu_seconds")
    if mark is None:
        return (yield)

    def end(*_: object) -> None:
        raise AssertionError(f"it has taken more than {mark.args[0]} s of the processor")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, mark.args[0])
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def pytest_collection_finish(session: pytest.Session) -> None:
    # Who asks for tests on GPUs must not read of tests that were skipped, and of nothing that failed.
    wants_gpu = device.name() == "cuda" or all(item.get_closest_marker("gpu") for item in session.items)
    if session.items and wants_gpu and (missing := device.no_gpu()):
        raise pytest.UsageError(missing)
    gc.freeze()  # else every full collection looks at all of torch
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    begun = {name: at for at, name in enumerate(LONG)}
    items.sort(key=lambda item: begun.get(item.path.stem.removeprefix("test_"), len(begun)))
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in FOLDER_MARKS:
            item.add_marker(folder)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and (missing := device.no_gpu()):
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=missing))


DESELECTED = pytest.StashKey[int]()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    if items:
        stash = items[0].config.stash
        stash[DESELECTED] = stash.get(DESELECTED, 0) + len(items)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    """Each of the processes that pytest hands tests to has collected all of them."""
    deselected = getattr(node, "workeroutput", {}).get("deselected", 0)
    node.config.stash[DESELECTED] = max(deselected, node.config.stash.get(DESELECTED, 0))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around all others, and so after them
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    yield
    if hasattr(config, "workerinput"):
        return
    entries = not_run.skipped(terminalreporter.stats.get("skipped", ()))
    entries += not_run.deselected(config.stash.get(DESELECTED, 0), config.option.markexpr, config.option.keyword)
    if all_entries := not_run.with_earlier(entries):
        terminalreporter.section(f"{sum(entry.count for entry in all_entries)} tests were not run here")
        for line in not_run.describe(all_entries):
            terminalreporter.line(line)


def _was_started_here(process: psutil.Process) -> bool:
    """By its environment, which outlives the parent."""
    try:
        return process.environ().get(SESSION_KEY) == f"{os.getpid()}"
    except psutil.Error:  # gone, or not ours to read
        return False


def _describe(process: psutil.Process) -> str | None:
    """None for what is gone, and for the helpers that Python keeps until it exits itself."""
    try:
        command = " ".join(process.cmdline())
        if process.status() == psutil.STATUS_ZOMBIE or "multiprocessing.resource_tracker" in command:
            return None
        return f"{process.pid} {command[:160]}"
    except psutil.NoSuchProcess:
        return None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session when a process that a test started outlives it by a minute, and end it."""
    if hasattr(session.config, "workerinput"):  # a process that pytest hands tests to: others still run
        session.config.workeroutput["deselected"] = session.config.stash.get(DESELECTED, 0)
        return
    me = psutil.Process()
    started = {*me.children(recursive=True), *filter(_was_started_here, psutil.process_iter())} - {me}
    _, alive = psutil.wait_procs([process for process in started if _describe(process)], timeout=60)
    survivors = {process: name for process in alive if (name := _describe(process))}
    if not survivors:
        return
    for process in survivors:
        process.kill()
    lines = "\n  ".join(survivors.values())
    sys.stderr.write(f"\nprocesses that the tests started and did not end (killed now):\n  {lines}\n")
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
