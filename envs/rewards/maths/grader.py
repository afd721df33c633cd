"""A pool of processes that grade mathematics, each answer under a hard deadline.

What `envs.rewards.maths.compare.decide` can decide is decided in this process. The rest goes to a worker over a
pipe. A worker that does not answer in time is killed and replaced, and no other answer pays for it. What an answer
itself caused, such as `9^{9^9}`, is the answer's result: it is wrong, and counted. What the gold answer or the machine
caused is a typed failure. Works from any event loop and from plain threads; nothing runs before the first answer that
needs it.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
from cachetools import LRUCache

from envs.rewards.maths.compare import MAX_ANSWER, decide
from envs.services.stats import ToolStats
from rlsys.rollout import EpisodeBroken
from rlsys.types import Failure, FailureKind

WORKER = Path(__file__).with_name("grader_worker.py")
WATCH_S = 0.05  # between two looks at a worker's memory
AT_WORK = 0.5  # of the deadline a worker must have computed, for the answer to be blamed; on a busy machine it gets
PATIENCE = 4  # deadlines for that
REMEMBERED = 4096  # verdicts: siblings of one group often give the same answer


class GraderTimeout(EpisodeBroken):
    """The deadline passed while the worker got hardly any processor time. Says nothing about the answer."""

    def __init__(self, detail: str) -> None:
        super().__init__(Failure(kind=FailureKind.TIMEOUT, where="grader", detail=detail))


class GraderFailed(EpisodeBroken):
    """The grader broke: a worker died or did not start. Says nothing about the answer."""

    def __init__(self, detail: str) -> None:
        super().__init__(Failure(kind=FailureKind.INFRA, where="grader", detail=detail))


class GoldUngradable(EpisodeBroken):
    """The gold answer alone takes more time or memory than there is: no answer to this task can be graded."""

    def __init__(self, detail: str) -> None:
        super().__init__(Failure(kind=FailureKind.DATA, where="grader", detail=detail))


class LimitReached(Exception):
    """A worker that was at work used its time or memory up."""


class Grader:
    """`await grader.grade(given, gold)`, or `grader.grade_blocking(given, gold)` outside of an event loop."""

    def __init__(
        self, *, workers: int = 2, deadline_s: float = 5.0, start_timeout_s: float = 60.0, memory_mb: int = 1024
    ) -> None:
        self._deadline_s = deadline_s
        self._start_timeout_s = start_timeout_s
        self._memory_mb = memory_mb
        # The worker's own limits apply when this process has died and can no longer enforce the deadline.
        self._command = [sys.executable, "-I", str(WORKER), str(4 * memory_mb), str(PATIENCE * deadline_s + 2)]
        self._idle: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()  # None: a worker still to be started
        for _ in range(workers):
            self._idle.put(None)
        # One thread for each worker: a request that has a thread has a worker too, and waits for nothing else.
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grader")
        self._started: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._known: LRUCache[tuple[str, str], bool] = LRUCache(REMEMBERED)
        self._read: LRUCache[str, bool] = LRUCache(REMEMBERED)  # gold answers that a worker got to the end of, alone
        self.asked = 0
        self.timeouts = 0
        self.hopeless = 0  # answers that are wrong because they cannot be graded
        self.respawns = 0

    async def grade(self, answer: str, gold: str) -> bool:
        """Whether `answer` answers a question whose answer is `gold`. Raises GraderTimeout, GraderFailed and
        GoldUngradable."""
        verdict = self._grade_at_once(answer, gold)
        if verdict is None:
            verdict = await asyncio.wrap_future(self._submit(answer, gold))
        return verdict

    def grade_blocking(self, answer: str, gold: str) -> bool:
        """`grade` for scripts and threads."""
        verdict = self._grade_at_once(answer, gold)
        return self._submit(answer, gold).result() if verdict is None else verdict

    async def grade_any(self, given: str, golds: Sequence[str]) -> bool:
        """Whether one of `golds` is matched. A gold that could not be graded counts only when no other is matched."""
        verdicts = [self._grade_at_once(given, gold) for gold in golds]
        if any(verdicts):
            return True
        broken: EpisodeBroken | None = None
        for gold, verdict in zip(golds, verdicts, strict=True):
            if verdict is None:
                try:
                    if await self.grade(given, gold):
                        return True
                except EpisodeBroken as error:
                    broken = broken or error
        if broken is not None:
            raise broken
        return False

    def stats(self) -> ToolStats:
        """What went to the workers; `hopeless` are the answers that are wrong because they cannot be graded."""
        return ToolStats(calls=self.asked, errors={"hopeless": self.hopeless, "timeout": self.timeouts})

    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The workers that run now."""
        with self._lock:
            return [worker.process for worker in self._started]

    def close(self) -> None:
        """Kill the workers. What is being graded ends in GraderFailed."""
        with self._lock:
            self._closed = True
            started = list(self._started)
        for worker in started:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _grade_at_once(self, answer: str, gold: str) -> bool | None:
        verdict = decide(answer, (gold,))
        if verdict is None:
            with self._lock:
                verdict = self._known.get((answer, gold))
        return verdict

    def _submit(self, answer: str, gold: str) -> Future[bool]:
        if self._closed:
            raise GraderFailed("the grader is closed")
        return self._threads.submit(self._ask, answer, gold)

    def _ask(self, answer: str, gold: str) -> bool:
        self.asked += 1
        try:
            verdict = self._verdict(answer, gold)
        except (GraderTimeout, GraderFailed) as error:
            self.timeouts += isinstance(error, GraderTimeout)
            raise type(error)(f"{error} while grading {_shorten(answer)} against {_shorten(gold)}") from error
        with self._lock:
            self._known[answer, gold] = verdict
        return verdict

    def _verdict(self, answer: str, gold: str) -> bool:
        """What is too much for a worker is a wrong answer, if the worker gets to the end of `gold` by itself."""
        try:
            return self.ask_worker([answer, gold])
        except LimitReached as spent:
            with self._lock:
                readable = gold in self._read
            if not readable:
                try:
                    self.ask_worker([gold])
                except LimitReached:
                    raise GoldUngradable(
                        f"{spent} while grading {_shorten(answer)} against {_shorten(gold)}"
                    ) from spent
                with self._lock:
                    self._read[gold] = True
            self.hopeless += 1
            return False

    def ask_worker(self, question: list[str]) -> bool:
        """The answer of an idle worker, which is replaced where it gives none."""
        worker = self._idle.get_nowait()
        reusable: _Worker | None = None
        try:
            worker = worker or self._start()
            worker.wait_ready(self._start_timeout_s)
            answer = worker.ask(question, self._deadline_s)
            reusable = worker
            return answer
        finally:
            if worker is not None and reusable is None:
                self._discard(worker)
                with suppress(GraderFailed, OSError):
                    reusable = self._start()  # imports while others are served
                    self.respawns += 1
            self._idle.put(reusable)

    def _start(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise GraderFailed("the grader is closed")
            worker = _Worker(self._command, self._memory_mb)
            self._started.add(worker)
        return worker

    def _discard(self, worker: _Worker) -> None:
        worker.kill()
        with self._lock:
            self._started.discard(worker)


class _Worker:
    """A process with a pipe in and a pipe out."""

    def __init__(self, command: list[str], memory_mb: int) -> None:
        self._memory_mb = memory_mb
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
        )
        self._usage = psutil.Process(self.process.pid)
        self._started = time.monotonic()
        self._ready = False
        self._lock = threading.Lock()

    def wait_ready(self, timeout_s: float) -> None:
        if not self._ready:
            try:
                self._read(self._started + timeout_s)
            except (GraderTimeout, LimitReached) as error:
                raise GraderFailed(f"a worker did not start: {error}") from error
            self._ready = True

    def ask(self, question: object, deadline_s: float) -> bool:
        assert self.process.stdin is not None
        try:
            # Two answers of MAX_ANSWER characters fit into the pipe's buffer: this cannot block.
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise GraderFailed(f"a worker died (exit code {self.process.wait()})") from error
        return bool(self._read(time.monotonic() + deadline_s, patience=PATIENCE))

    def _read(self, until: float, *, patience: int = 1) -> object:
        """The next line. Answers are short: a line that has begun is complete.

        Memory is watched from here: the libraries take their own MemoryError for a difference of the two answers.
        """
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        started, before = time.monotonic(), self._processor_s()
        while not select.select([out], [], [], WATCH_S)[0]:
            waited, deadline_s = time.monotonic() - started, until - started
            if waited >= deadline_s:
                worked = self._processor_s() - before
                if worked >= AT_WORK * deadline_s:
                    raise LimitReached(f"no answer after {waited:.1f} s")
                if waited >= patience * deadline_s:
                    raise GraderTimeout(f"no answer after {waited:.1f} s, {worked:.1f} s of them at work")
            if self._resident_mb() > self._memory_mb:
                raise LimitReached(f"more than {self._memory_mb} MB of memory")
        line = os.read(out, 4096)
        if not line.endswith(b"\n"):
            raise GraderFailed(f"a worker died (exit code {self.process.wait()})")
        answer: object = json.loads(line)
        return answer

    def _resident_mb(self) -> float:
        with suppress(psutil.Error):  # it has just died: its pipe says so
            return float(self._usage.memory_info().rss) / 2**20
        return 0.0

    def _processor_s(self) -> float:
        with suppress(psutil.Error):
            times = self._usage.cpu_times()
            return float(times.user + times.system)
        return 0.0

    def kill(self) -> None:
        with self._lock:  # close() and the thread that asked may both come here
            self.process.kill()
            self.process.wait()


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


assert 2 * 6 * MAX_ANSWER < 65536, "two escaped answers must fit into a pipe's buffer"
