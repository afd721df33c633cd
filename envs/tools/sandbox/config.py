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
    """Limits of one execution, and how many run at a time in one process that plays episodes."""

    workers: Optional[int] = None
    """Executions at a time in one rollout worker; each keeps a Python with `preload` in memory (about 130 MB). null:
    a quarter of the machine's cores, 2 at least and 16 at most."""
    timeout_s: float = 5.0
    """Wall clock of one execution; everything that it started ends with it."""
    episode_s: Optional[float] = None
    """Seconds of execution that the programs of one episode may use together; a call after that is answered with a
    TimeoutError and not run. null: twelve times `timeout_s`."""
    memory_mb: int = 512
    """Address space that one process may add to what it starts with."""
    total_memory_mb: int = 1024
    """Resident memory that all processes of an execution may add together; looked at every 50 ms."""
    output_kb: int = 16
    """More printed text than this is cut, with a note, and the execution ends."""
    file_kb: int = 1024
    """The largest file."""
    disk_kb: int = 8192
    """All files together; they live in memory and vanish with the execution."""
    processes: int = 16
    """Processes and threads of one execution together, the first one included."""
    code_kb: int = 256
    """Longer code is refused with a text and not run."""
    preload: list[str] = field(default_factory=lambda: list(PRELOAD))
    """Imported once per worker. Packages that are not of the standard library can be used only if they are here."""
    allow_weaker: bool = False
    """Where the host forbids namespaces: run without them, with no files to write, no processes and no threads."""
    start_timeout_s: float = 60.0
    """Until a worker has loaded `preload` and put up its walls."""
    queue_timeout_s: float = 120.0
    """Seconds without the end of any execution after which the calls that wait for a worker fail; twice the longest
    execution where that is more. A queue that moves is no failure, however long it is."""

    def __post_init__(self) -> None:
        require_bounds(self, "sandbox.", "at least 1, or null", "workers")
        require_bounds(self, "sandbox.", "above 0, or null", "episode_s")
        whole = ("total_memory_mb", "output_kb", "file_kb", "disk_kb", "processes", "code_kb")
        require_bounds(self, "sandbox.", "at least 1", *whole)
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
