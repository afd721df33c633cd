"""One process of environments, as its worker sees it: asked over a socket, watched, ended when it stands still.

Its event loop has to answer every `BEAT_S`. When it has not for the time that one call may block it, the black box
tells who is at work and on which line. The process is ended, and every call under way fails by its share in that:

    of the culprit's group     CrashedEnvWorker: a typed failure, for good
    of any other               EvictedByCrash: played again in the next process, at no cost
    of all, without a culprit  EvictedByCrash too, but they are suspects: each group plays alone from now on
    of one that was alone      EpisodeBroken: a typed failure of the infrastructure, tried again within its budget
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import psutil

from actors import black_box
from actors.black_box import NO_CALL, CallMark
from actors.env_server import WHERE, pack, receive, unpack_answer
from actors.scoring import ScoringSpec
from envs.services.stats import ToolStats
from rlsys.broken import CrashedEnvWorker, EpisodeBroken, EvictedByCrash
from rlsys.types import Failure, FailureKind

BEAT_S = 0.5  # a block is found so late, at most: the least that one may take is seconds
FRESH_S = 1.0  # to wait for statistics
STACK_WAIT_S = 1.0  # for the stack of a process that stands still
STOP_GRACE_S = 3.0  # for servers of tools to end; then the process is killed
_COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from actors.env_server import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvWorkerSpec:
    worker: str  # "rollout:0"
    scoring: ScoringSpec
    block_s: float  # how long one call may keep all others waiting
    start_timeout_s: float  # for the process to come up, and for a world and its reward to be made


class CallOwner(Protocol):
    """A group whose calls these are. `failed` is set when it has ended the process, `suspect` when it may have."""

    number: int
    what: str  # "task 12 of badenv.BadWorld"
    failed: EpisodeBroken | None
    suspect: bool


class CannotStart(Exception):
    """The process did not come up, or a world or reward was not made in time: nothing can be played on this worker."""


@dataclass(slots=True)
class _Call:
    answer: asyncio.Future[Any]
    asker: CallOwner | None
    method: str


class EnvWorker:
    """Starts when it is made, in a running event loop. `lost` is called once, when it is over without `stop`."""

    def __init__(self, spec: EnvWorkerSpec, lost: Callable[[Any], None]) -> None:
        self.spec = spec
        self.plans: dict[tuple[str, str], asyncio.Future[int]] = {}  # by world and plan: the turns of an episode
        self.stats: Mapping[str, ToolStats] = {}
        self.reason = ""  # why it is over
        self.stack = ""  # what it did then
        self._lost = lost
        self._calls: dict[int, _Call] = {}
        self._askers: dict[int, CallOwner] = {}
        self._numbers = count(1)
        self._up = False
        self._culprit: CallOwner | None = None
        self._blamed = False  # it was over by itself, or stood still
        self._alone = False  # a single group was there then
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        ours, theirs = socket.socketpair()
        self._box = black_box.create()
        self._stack_start = black_box.end(self._box)
        files = (theirs.fileno(), self._box)
        command = [sys.executable, "-c", _COMMAND, json.dumps(sys.path), f"the environments of {spec.worker}"]
        self.process = subprocess.Popen([*command, str(os.getpid()), *map(str, files)], pass_fds=files)
        theirs.close()
        self._send(spec.scoring)
        self._tasks = [asyncio.create_task(self._listen(ours)), asyncio.create_task(self._watch())]

    @property
    def over(self) -> bool:
        return bool(self.reason)

    def ask(self, asker: CallOwner | None, method: str, *arguments: Any) -> asyncio.Future[Any]:
        """The call's answer. A caller that stops waiting for it cancels it, and with it the call."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.over:
            answer.set_exception(self._error_of_ended_process(asker))
            return answer
        number, group = next(self._numbers), 0
        if asker is not None:
            group, self._askers[asker.number] = asker.number, asker
        self._send((number, group, method, (group, *arguments) if asker is not None else arguments))
        self._calls[number] = _Call(answer, asker, method)
        answer.add_done_callback(lambda future: self._forget(number, future))
        return answer

    def end_group(self, asker: CallOwner) -> None:
        """It asks nothing more."""
        if self._askers.pop(asker.number, None) is not None and not self.over:
            self._send((next(self._numbers), 0, "end", (asker.number,)))

    async def fresh_stats(self) -> Mapping[str, ToolStats]:
        """What its tools have counted, as of its last answer where it is busy."""
        answer = self.ask(None, "tool_stats")
        await asyncio.wait({answer}, timeout=FRESH_S)
        if answer.done():
            self._keep(answer)
        answer.cancel()
        return self.stats

    def _keep(self, stats: asyncio.Future[Any]) -> None:
        with suppress(Exception):  # a world that cannot say what it counted is no reason to end it
            self.stats = stats.result()

    async def stop(self) -> None:
        """Let the worlds close their tools, then end it."""
        if self._up and not self.over:
            with suppress(Exception):
                await asyncio.wait_for(self.ask(None, "close"), STOP_GRACE_S)
        self._end("it was stopped")

    # -- the socket -------------------------------------------------------------------------------------------------

    def _send(self, message: Any) -> None:
        """To a process that is gone, nothing, until that is certain: what its callers hear then is why."""
        frame = pack(message)
        if self._writer is None:
            self._unsent.append(frame)
        elif not self._writer.is_closing():  # uvloop raises where asyncio only warns
            self._writer.write(frame)

    def _forget(self, number: int, answer: asyncio.Future[Any]) -> None:
        del self._calls[number]
        if answer.cancelled() and not self.over:
            self._send((number, 0, "cancel", ()))

    async def _listen(self, connection: socket.socket) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        for frame in self._unsent:
            self._writer.write(frame)
        while True:
            try:
                number, kind, body = await receive(reader)
            except (EOFError, OSError):
                return await self._on_death()
            call = self._calls.get(number)
            if call is None or call.answer.done():
                continue
            try:
                call.answer.set_result(unpack_answer(kind, body, call.method))
            except BaseException as error:  # whatever it raised there
                call.answer.set_exception(error)

    # -- the watch --------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while not self.over:
            beat = self.ask(None, "tool_stats")
            if await self._has_ended_before(beat):
                return
            self._up = True
            self._keep(beat)
            await asyncio.sleep(BEAT_S)

    async def _has_ended_before(self, beat: asyncio.Future[Any]) -> bool:
        """Whether the process was over, by itself or for standing still, before it answered."""
        still, looked, mark = 0.0, time.monotonic(), NO_CALL
        while True:
            await asyncio.wait({beat}, timeout=BEAT_S)
            if beat.done():
                return False
            if self.process.poll() is not None:
                await self._on_death()
                return True
            now, before, mark = time.monotonic(), mark, black_box.read_mark(self._box)
            # Many short calls in one turn of the loop are no single call's fault. Nor does a loop of ours that
            # stood still itself know how long theirs did.
            still, looked = (still + min(now - looked, 2 * BEAT_S) if mark == before else 0.0), now
            patience = self._patience_s(mark)
            if still > patience and await self._await_stack(beat):
                self._blame(mark, FailureKind.TIMEOUT, f"blocked the others of its worker for {patience:g} s")
                return True

    def _patience_s(self, mark: CallMark) -> float:
        """How long it may stand still in what it does now. Making a world or a reward takes as long as its data."""
        call = self._calls.get(mark.call)
        making = not self._up or (call is not None and call.method == "prepare")
        return self.spec.start_timeout_s if making else self.spec.block_s

    async def _await_stack(self, beat: asyncio.Future[Any]) -> bool:
        """Have it write its stack. False where it answered meanwhile: that stack says nothing of a later call."""
        self._stack_start = black_box.end(self._box)
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, black_box.STACK_SIGNAL)
        for _ in range(20):
            await asyncio.wait({beat}, timeout=STACK_WAIT_S / 20)  # of the 20 looks
            if beat.done():
                self._stack_start = black_box.end(self._box)
                return False
            if black_box.read_stack(self._box, self._stack_start).endswith("\n"):
                break
        return True

    async def _on_death(self) -> None:
        """The process was ended from outside, or by code in it."""
        for _ in range(100):  # its socket may close a moment before it is gone
            if self.process.poll() is not None:
                break
            await asyncio.sleep(0.05)  # five seconds in all
        code = self.process.returncode
        self._blame(black_box.read_mark(self._box), FailureKind.INFRA, f"ended the process (exit code {code})")

    def _blame(self, mark: CallMark, kind: FailureKind, did: str) -> None:
        """End it, and give every call under way its share."""
        if self.over:
            return
        self._blamed = True
        call, self._culprit = self._calls.get(mark.call), self._askers.get(mark.group)
        self.stack = black_box.read_stack(self._box, self._stack_start)
        line = black_box.place(self.stack)
        at = f", at {line}" if line else ""
        method = call.method if call is not None else "something that an earlier call left running"
        if self._culprit is not None:
            where = WHERE.get(method, "environment")
            detail = f"{method} in {self._culprit.what} {did}{at}"
            self._culprit.failed = CrashedEnvWorker(Failure(kind=kind, where=where, detail=detail))
        elif call is not None and call.method == "prepare":
            self._up, detail = False, f"making the world or its reward {did}{at}"
        else:
            askers = list(self._askers.values())
            self._alone = len(askers) == 1
            for asker in askers:
                asker.suspect = True
            where = f"{askers[0].what}, alone in its process," if self._alone else "the process of the environments"
            detail = f"something in {where} {did}{at}"
        self._end(detail)
        self._lost(self)

    def _error_of_ended_process(self, asker: CallOwner | None) -> Exception:
        """What a call hears whose process is over."""
        if asker is not None and asker.failed is not None:
            return asker.failed
        if not self._up:
            return CannotStart(f"{self.spec.worker}: its environments did not start: {self.reason}; see its log")
        failure = Failure(kind=FailureKind.INFRA, where="environment", detail=self.reason)
        charged = not self._blamed or (self._alone and asker is not None)
        return EpisodeBroken(failure) if charged else EvictedByCrash(failure)

    def _end(self, reason: str) -> None:
        if self.over:
            return
        self.reason = reason
        self._kill()
        for call in list(self._calls.values()):
            if not call.answer.done():
                call.answer.set_exception(self._error_of_ended_process(call.asker))
                call.answer.exception()  # there may be no caller left
        me = asyncio.current_task()
        for task in self._tasks:
            if task is not me:
                task.cancel()
        if self._writer is not None:
            self._writer.close()
        os.close(self._box)

    def _kill(self) -> None:
        """With whatever it has started: a command that an environment waits for would run for ever.

        Stopped first: where one command ends, an environment begins the next.
        """
        with suppress(psutil.Error):
            process = psutil.Process(self.process.pid)
            process.suspend()
            for child in process.children(recursive=True):
                with suppress(psutil.Error):
                    child.kill()
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STACK_WAIT_S)
