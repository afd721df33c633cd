"""The process that starts agents and ends them: python keeper.py JSON. Standard library alone.

It imports the agent's module once, and each agent is a fork of it: it begins in milliseconds, and what it does to its
process harms no other. A command line is started from a fork in the same way. Each lives in a process namespace of its
own where the kernel gives one: whatever it starts ends with it, wherever that has gone.

A line with a job comes in; a line with its end goes out: {"id", "code", "signal", "why", "returned", "output"}.
"""

import asyncio
import ctypes
import gc
import importlib
import inspect
import json
import math
import os
import re
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
PAGE = os.sysconf("SC_PAGE_SIZE")
WATCH_S = 0.25  # between two looks at what agents take
TAIL = 4096  # bytes of what an agent has written last
MOST_RETURNED = 1 << 15  # bytes of JSON
NPROC_SINCE = (5, 14)  # the kernel that counts a user's processes for each namespace
PIDS_SINCE, PIDS_LEAST = (6, 14), 301  # the kernel that has it, and the smallest limit that it takes
RETURNED = 3  # the descriptor of an agent for its result
MODEL = {"OPENAI_DEFAULT_MODEL": "policy"}  # else the Agents SDK asks for what its default model alone takes
NOWHERE = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "none"}  # while a module is imported

libc = ctypes.CDLL(None, use_errno=True)


class Running:
    """An agent, seen from outside: `pid` is the process that waits for it."""

    def __init__(self, job: dict[str, Any], pid: int, said: int, returned: int) -> None:
        # Nothing that another agent, which is a fork of this process, should not find: its task, its key.
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


def descendants(pid: int, most: float = math.inf) -> list[int]:
    """Of a process, its children first; no more are looked for once there are `most`."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < most:
        parent = waiting.pop()
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as file:
                    children = list(map(int, file.read().split()))
                waiting += children
                found += children
    return found


def resident_mb(pid: int) -> float:
    """Without pages of files; those that it shares with the keeper count."""
    total = 0
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1])
    return total / 1024


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


def die_with(parent: int) -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def enter_namespace(job: dict[str, Any]) -> None:
    """The rest runs in a child of the first process of a new namespace, with which all that is in it ends. This process
    waits for that one, and that one for the agent; each passes on how it ended."""
    alone = job["alone"]
    if alone:
        unshare()
    pass_on_end(os.fork())
    if alone:
        limit_pids(job["processes"])
        if libc.unshare(CLONE_NEWNS) == 0:  # and with numbers of processes that are its own, where that is allowed
            libc.mount(b"proc", b"/proc", b"proc", 0, None)
        pass_on_end(os.fork())  # the kernel spares the first one the signals that end others
    with open("/proc/self/statm", encoding="ascii") as statm:
        most = int(statm.read().split()[5]) * PAGE + (2 * job["memory_mb"] << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # of each process; `watch` sees what they hold together
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (job["files"], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if alone and kernel() >= NPROC_SINCE:  # else those of all its user's processes would be counted
        most = job["processes"] + 1
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def limit_pids(processes: int) -> None:
    """Of this namespace. The limit of a user's processes does not bind root; this one does, where the kernel has one
    for each namespace: an older one would set the machine's."""
    if kernel() >= PIDS_SINCE:
        with suppress(OSError), open("/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
            file.write(str(PIDS_LEAST + processes))


def kernel() -> tuple[int, ...]:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(map(int, release.groups())) if release is not None else (0, 0)


def unshare() -> None:
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "no namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def can_unshare() -> bool:
    """Some systems let it be done and refuse what follows."""
    child = os.fork()
    if not child:
        with suppress(OSError):
            unshare()
            inside = os.fork()
            os._exit(0 if not inside else os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1]))
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def come_first(nice: int) -> None:
    """Root is not bound by the limit of processes: what multiplies must not outrun the one that watches."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(nice))


def pass_on_end(child: int) -> None:
    """In the parent: end as it does. In the child: end with the parent."""
    if not child:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    libc.prctl(PR_SET_DUMPABLE, 0)  # the agent is of the same user, and could write into it
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(128 - code if code < 0 else code)


def play(job: dict[str, Any], function: Any, clients: list[Any]) -> NoReturn:
    os.environ |= {"OPENAI_BASE_URL": job["base_url"], "OPENAI_API_KEY": job["api_key"], **MODEL}
    for client in clients:
        client.base_url, client.api_key = job["base_url"], job["api_key"]
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


async def settle(answer: Any) -> Any:
    return await answer


# -- the keeper --------------------------------------------------------------------------------------------------------


def import_function(path: str) -> tuple[Any, list[Any]]:
    """The agent, and the SDK's clients that its modules have made while they were imported: most scripts make theirs
    there. Each fork gives them its address and key."""
    os.environ |= NOWHERE | MODEL
    place, _, name = path.rpartition(".")
    function = getattr(importlib.import_module(place), name)
    if not callable(function):
        raise TypeError(f"{path} is no function")
    sdk: Any = sys.modules.get("openai")
    kinds = tuple(getattr(sdk, name) for name in ("OpenAI", "AsyncOpenAI") if hasattr(sdk, name))
    for kind in kinds:
        with suppress(Exception):
            _ = kind().chat.completions
    with suppress(Exception):
        warm_up(sdk)
    made = [thing for thing in gc.get_objects() if kinds and issubclass(type(thing), kinds)]
    return function, [client for client in made if str(client.base_url).rstrip("/") == NOWHERE["OPENAI_BASE_URL"]]


def warm_up(sdk: Any) -> None:
    """The SDK imports half of itself with its first client and builds its types with its first request: every fork
    would again, for 60 ms of a core."""
    http: Any = sys.modules["httpx"]
    message = {"role": "assistant", "content": ""}
    answer = {"id": "", "object": "chat.completion", "created": 0, "model": "", "choices": [
        {"index": 0, "finish_reason": "stop", "message": message}]}  # fmt: skip
    transport = http.MockTransport(lambda request: http.Response(200, json=answer))
    client = sdk.OpenAI(http_client=http.Client(transport=transport))
    client.chat.completions.create(model="none", messages=[{"role": "user", "content": ""}])
    socket.getaddrinfo("127.0.0.1", 9)  # imports too


def serve(settings: dict[str, Any], files: int, requests: int, answers: int) -> None:
    """files: how many an agent may have open."""
    function: Any = None
    clients: list[Any] = []
    if settings["function"]:
        sys.path[:] = settings["path"]
        function, clients = import_function(settings["function"])
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
                    take(job, partial(start, function=function, clients=clients), running, fds, poll, answers)
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


if __name__ == "__main__":
    main()
