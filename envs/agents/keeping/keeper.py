"""The process that starts agents and ends them, with its settings as JSON.

It imports the agent's module once, and each agent is a fork of it: it begins in milliseconds, and what it does to its
process harms no other. A command line is started from a fork in the same way. Each lives in a process namespace of its
own where the kernel gives one: whatever it starts ends with it, wherever that has gone.

A line with a job comes in; a line with its end goes out: {"id", "code", "signal", "why", "returned", "output"}.
"""

import asyncio
import gc
import inspect
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from .module import import_function, say_address, settle
from .namespace import can_unshare, come_first, descendants, die_with, enter_namespace, resident_mb

WATCH_S = 0.25  # between two looks at what agents take
TAIL = 4096  # bytes of what an agent has written last
MOST_RETURNED = 1 << 15  # bytes of JSON
RETURNED = 3  # the descriptor of an agent for its result


class Running:
    """An agent, seen from outside: `pid` is the process that waits for it."""

    def __init__(self, job: dict[str, Any], pid: int, said: int, returned: int) -> None:
        # Neither its task nor its key. What was read of both may lie in the memory of other agents all the same, which
        # are forks of this process.
        self.job = {name: job[name] for name in ("id", "alone", "processes", "memory_mb")}
        self.pid, self.why = pid, ""
        self.pidfd = os.pidfd_open(pid)
        self.texts = {said: b"", returned: b""}
        self.said, self.returned = said, returned

    def read(self, fd: int) -> bool:
        """Whether there may be more."""
        with suppress(BlockingIOError):
            piece = os.read(fd, 1 << 16)
            self.texts[fd] = (self.texts[fd] + piece)[-(TAIL if fd == self.said else MOST_RETURNED) :]
            return bool(piece)
        return False

    def kill(self, why: str) -> None:
        """The first process of a namespace takes the others with it: what multiplies is not run after."""
        self.why = self.why or why
        first = descendants(self.pid, most=1)[:1]
        for pid in (*first, *([] if self.job["alone"] else descendants(self.pid)), self.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> dict[str, Any]:
        """What is told of its end."""
        status = os.waitpid(self.pid, 0)[1]
        for fd in self.texts:
            while self.read(fd):
                pass
            os.close(fd)
        os.close(self.pidfd)
        code = os.waitstatus_to_exitcode(status)
        ended_by = -code if code < 0 else code - 128 if 128 < code <= 192 else 0
        return {
            "id": self.job["id"],
            "code": None if ended_by else code,
            "signal": ended_by,
            "why": self.why,
            "output": self.texts[self.said].decode(errors="replace"),
            "returned": self.texts[self.returned].decode(errors="replace"),
        }


def watch(running: dict[int, Running], born_mb: float) -> None:
    for agent in running.values():
        pids = descendants(agent.pid, most=agent.job["processes"] + 2)
        if len(pids) > agent.job["processes"] + 1:
            agent.kill(f"it had more than {agent.job['processes']} processes")
        elif sum(max(0.0, resident_mb(pid) - born_mb) for pid in pids) > agent.job["memory_mb"]:
            agent.kill(f"it took more than {agent.job['memory_mb']} MiB of memory")


# -- in the agent's own processes --------------------------------------------------------------------------------------


def start(job: dict[str, Any], function: Any, clients: list[Any]) -> Running:
    said, said_end = os.pipe()
    returned, returned_end = os.pipe()
    for fd in (said, returned):
        os.set_blocking(fd, False)
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        for fd in (said, said_end, returned, returned_end):
            os.close(fd)
        raise
    if pid:
        os.close(said_end)
        os.close(returned_end)
        return Running(job, pid, said, returned)
    try:
        die_with(parent)
        os.setsid()
        come_first(0)
        job.pop("behind").clear()  # jobs of other agents, with their keys
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(said_end, 1)
        os.dup2(said_end, 2)
        os.dup2(returned_end, RETURNED)
        os.closerange(RETURNED + 1, 1 << 16)  # the keeper's own, and those of other agents
        enter_namespace(job)
        play(job, function, clients)
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    except BaseException as error:
        own = error.__traceback__
        while own is not None and own.tb_next is not None and own.tb_frame.f_code.co_filename == __file__:
            own = own.tb_next
        traceback.print_exception(error.with_traceback(own))
        sys.stderr.flush()
    os._exit(1)


def play(job: dict[str, Any], function: Any, clients: list[Any]) -> NoReturn:
    say_address(job["base_url"], job["api_key"], clients)
    task = json.dumps(job["task"])
    stdin = os.memfd_create("task")
    with open(stdin, "w", encoding="utf-8", closefd=False) as file:
        file.write(task)
    os.lseek(stdin, 0, os.SEEK_SET)
    os.dup2(stdin, 0)
    if function is None:
        os.dup2(RETURNED, 1)
        os.closerange(RETURNED, stdin + 1)
        try:
            os.execvp(job["command"][0], job["command"])
        except OSError as error:
            raise OSError(f"{job['command'][0]}: {error.strerror}") from None
    answer = function(json.loads(task), **wanted(function, job))
    if inspect.isawaitable(answer):
        answer = asyncio.run(settle(answer))
    text = json.dumps(answer, default=str)
    if len(text.encode()) > MOST_RETURNED:
        raise ValueError(f"the agent returned more than {MOST_RETURNED >> 10} KiB of JSON")
    sys.stdout.flush()
    sys.stderr.flush()
    with open(RETURNED, "w", encoding="utf-8") as file:
        file.write(text)
    os._exit(0)


def wanted(function: Any, job: dict[str, Any]) -> dict[str, str]:
    """Address and key, where the function takes them by name: both stand in the environment too."""
    parameters = inspect.signature(function).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: job[name] for name in ("base_url", "api_key") if takes_all or name in parameters}


# -- the keeper --------------------------------------------------------------------------------------------------------


def serve(settings: dict[str, Any], files: int, requests: int, answers: int) -> None:
    """files: how many an agent may have open."""
    function: Any = None
    clients: list[Any] = []
    if settings["function"]:
        sys.path[:] = settings["path"]
        function, clients = import_function(settings["function"])
    begin = partial(start, function=function, clients=clients)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page that it looks at
    alone = can_unshare()
    if os.getuid() == 0:
        come_first(-10)
    os.close(os.pidfd_open(os.getpid()))  # a kernel without it says so now
    tell(answers, {"ready": True, "alone": alone})
    born_mb, text, watched = resident_mb(os.getpid()), bytearray(), 0.0
    running: dict[int, Running] = {}  # by the descriptor of its end
    fds: dict[int, Running] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for fd, _ in poll.poll(WATCH_S * 1000 if running else None):
            if fd == requests:
                before = len(text)
                text += os.read(requests, 1 << 16)
                if len(text) == before:
                    return
                while (end := text.find(b"\n")) >= 0:
                    job = {**json.loads(text[:end]), "alone": alone, "files": files, "behind": text}
                    del text[: end + 1]
                    take(job, begin, running, fds, poll, answers)
                    job.clear()
            elif fd in running:
                agent = running.pop(fd)
                for part in (fd, agent.said, agent.returned):
                    fds.pop(part, None)
                    with suppress(KeyError):
                        poll.unregister(part)
                tell(answers, agent.close())
            elif fd in fds and not fds[fd].read(fd):
                poll.unregister(fd)  # its end is closed: that of its process is told by another
        if running and time.monotonic() - watched > WATCH_S:
            watch(running, born_mb)
            watched = time.monotonic()


def take(
    job: dict[str, Any],
    begin: Callable[[dict[str, Any]], Running],
    running: dict[int, Running],
    fds: dict[int, Running],
    poll: Any,
    answers: int,
) -> None:
    if "kill" in job:
        for agent in running.values():
            if agent.job["id"] == job["kill"]:
                agent.kill("ended")
        return
    try:
        agent = begin(job)
    except OSError as error:  # the machine has no process, memory or descriptor left
        why = f"it cannot be started: {error.strerror}"
        tell(
            answers,
            {"id": job["id"], "code": None, "signal": 0, "why": why, "output": "", "returned": "", "lost": True},
        )
        return
    running[agent.pidfd] = agent
    poll.register(agent.pidfd, select.POLLIN)
    for fd in (agent.said, agent.returned):
        fds[fd] = agent
        poll.register(fd, select.POLLIN)


def tell(answers: int, line: dict[str, Any]) -> None:
    text = json.dumps(line).encode() + b"\n"
    while text:
        text = text[os.write(answers, text) :]


def main() -> None:
    requests, answers = os.dup(0), os.dup(1)
    os.set_inheritable(requests, False)
    os.set_inheritable(answers, False)
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    os.dup2(2, 1)  # what an import prints
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # three for each agent
    serve(json.loads(sys.argv[1]), soft, requests, answers)
