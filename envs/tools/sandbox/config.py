"""What a sandbox allows, what an execution gives back, and which walls stand."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Optional

from rlsys.errors import require, require_bounds

# What short programs use. Extension modules of the standard library that need libraries of the system must be here:
# an execution sees no such library.
PRELOAD = (
    "abc", "array", "ast", "asyncio", "base64", "binascii", "bisect", "bz2", "calendar", "cmath", "collections",
    "contextlib", "copy", "csv", "ctypes", "dataclasses", "datetime", "decimal", "difflib", "encodings.ascii",
    "encodings.latin_1", "enum", "fractions", "functools", "gc", "hashlib", "heapq", "inspect", "io", "itertools",
    "json", "lzma", "math", "multiprocessing.pool", "numbers", "operator", "os", "pickle", "pprint", "queue", "random",
    "re", "secrets", "socket", "sqlite3", "statistics", "string", "struct", "sys", "tempfile", "textwrap", "threading",
    "time", "timeit", "traceback", "types", "typing", "unicodedata", "uuid", "zlib", "numpy", "sympy",
)  # fmt: skip
EPISODE_SHARE = 12  # executions that reach their deadline: more than a conversation makes that goes anywhere


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """Limits of one execution, and the number of parallel executions in one process that plays episodes."""

    workers: Optional[int] = None
    """Number of parallel executions in one rollout worker. Each keeps a Python process with `preload` in memory (about
    130 MB). null: a quarter of the machine's cores, from 2 to 16."""
    timeout_s: float = 5.0
    """Timeout of one execution in seconds of wall clock; all processes that it started are killed with it."""
    episode_s: Optional[float] = None
    """Limit of execution time that all programs of one episode share, in seconds. A call after that is answered with a
    TimeoutError and not run. null: twelve times `timeout_s`."""
    memory_mb: int = 512
    """Address space that one process may add to what it starts with, in MiB."""
    total_memory_mb: int = 1024
    """Resident memory that all processes of one execution may add together, in MiB. It is checked every 50 ms."""
    output_kb: int = 16
    """Limit of printed output, in KiB. Longer output is cut, with a note, and the execution ends."""
    file_kb: int = 1024
    """Largest size of one file, in KiB."""
    disk_kb: int = 8192
    """Total size of all files, in KiB. They are kept in memory and vanish with the execution."""
    processes: int = 16
    """Number of processes and threads of one execution together, the first one included."""
    code_kb: int = 256
    """Largest size of the code, in KiB. Longer code is answered with an error text and not run."""
    preload: list[str] = field(default_factory=lambda: list(PRELOAD))
    """Modules that are imported once per worker. Packages outside the standard library are available only if they are
    listed here."""
    allow_weaker: bool = False
    """Whether programs may run without namespaces on a host that forbids them: with no files to write, no processes and
    no threads."""
    start_timeout_s: float = 60.0
    """Timeout of the start of a worker, in seconds: loading `preload` and setting up its isolation."""
    queue_timeout_s: float = 120.0
    """Time in seconds without the end of any execution after which the calls that wait for a worker fail; twice the
    longest execution if that is more. A queue that moves never fails, however long it is."""

    def __post_init__(self) -> None:
        require_bounds(self, "sandbox.", "at least 1, or null", "workers")
        require_bounds(self, "sandbox.", "above 0, or null", "episode_s")
        keys = ("total_memory_mb", "output_kb", "file_kb", "disk_kb", "processes", "code_kb")
        require_bounds(self, "sandbox.", "at least 1", *keys)
        require(self.memory_mb >= 16, "sandbox.memory_mb", self.memory_mb, "at least 16")
        require(0.1 <= self.timeout_s <= 3600, "sandbox.timeout_s", self.timeout_s, "between 0.1 and 3600")
        require_bounds(self, "sandbox.", "above 0", "start_timeout_s", "queue_timeout_s")
        for name in self.preload:
            require(name.replace(".", "_").isidentifier(), "sandbox.preload", name, "names of modules")

    @property
    def num_workers(self) -> int:
        return self.workers if self.workers is not None else min(16, max(2, len(os.sched_getaffinity(0)) // 4))

    @property
    def episode_share_s(self) -> float:
        return self.episode_s if self.episode_s is not None else EPISODE_SHARE * self.timeout_s


class Outcome(StrEnum):
    """How an execution ended. Each is an answer to the model, none a failure of the sandbox."""

    OK = "ok"
    ERROR = "error"  # an exception: the text is the last line of its traceback
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"  # by a signal that the code caused, such as a segmentation fault
    OUTPUT = "output"  # it printed too much: the text is the beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Execution(text="4", outcome=Outcome.OK, seconds=0.006)"""

    text: str  # what the model sees
    outcome: Outcome
    seconds: float  # wall clock, from the fork to the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One wall: Layer(name="landlock", active=False, remark="landlock: Function not implemented")"""

    name: str
    active: bool
    remark: str
