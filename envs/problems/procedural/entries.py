"""Problems of reasoning-gym, made by a separate process (`gym_program.py`): the same for the same arguments.

Four families of the library make other problems under another PYTHONHASHSEED, and list_functions draws from a generator
that nothing seeds: both are fixed in that process. The import of the library takes seconds and memory, which stay there
too.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from envs.problems.procedural.families import FAMILIES
from envs.tasks.splits import is_held_out
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed

FOLDER = str(Path(__file__).parent)  # of gym_program.py, which the sandbox imports by its name
PROGRAM = os.path.join(FOLDER, "gym_program.py")
BATCH = 64  # entries of one seed; a multiple keeps what is made whatever the counts
DEADLINE_S = 300.0  # of one batch: the slowest families take some seconds for an entry
PAGE = "docs/environments/reasoning-gym.md"
LAST_BYTES = 4096  # of what the program writes about its errors
FRUITLESS = 8  # batches in a row without a new problem, after which there are no more

Entry = Mapping[str, Any]  # the library's record: question, answer, metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is asked of one family at one level."""

    family: str
    level: int | None = None  # of the family's curriculum; None: the library's default settings
    options: Mapping[str, Any] = field(default_factory=dict)
    train: int = 0  # different problems
    held_out: int = 0

    @property
    def name(self) -> str:
        return self.family if self.level is None else f"{self.family} {self.level}"


def make_entries(parts: Sequence[Part], seed: int) -> list[tuple[list[Entry], list[Entry]]]:
    """(training, held-out) entries of each part: as many different questions as it asks for, none in both.

    Which side a question is on is decided by the question alone, whatever the seed and the counts. Raises BadInput
    where a family does not take the settings, has too few problems, or does not finish.
    """
    find_library()
    with _program() as ask:
        used_questions: set[str] = set()  # a level may make a problem of an easier one
        return [_make_part(ask, part, seed, used_questions) for part in parts]


def find_library() -> str:
    """The folder of packages that has reasoning-gym. Raises BadInput where it is not installed."""
    spec = importlib.util.find_spec("reasoning_gym")
    if spec is None or spec.origin is None:
        how = "make setup, or pip install -e '.[gym]' in the folder of rlsys, which needs a C compiler"
        raise BadInput("reasoning-gym is not installed", expected=f"{how} (without one: {PAGE})")
    return str(Path(spec.origin).parents[1])


class Balance:
    """Leaves problems out so that no answer is that of more than a share `most` of them, in every beginning of the list
    (rounded up)."""

    def __init__(self, most: float) -> None:
        self._most, self._taken = most, Counter[str]()

    def takes(self, entry: Entry) -> bool:
        """Whether the entry is one more of the list."""
        answer = str(entry["answer"])
        fits = self._taken[answer] < math.ceil(self._most * (self._taken.total() + 1))
        self._taken[answer] += fits
        return fits


def _make_part(ask: Any, part: Part, seed: int, used_questions: set[str]) -> tuple[list[Entry], list[Entry]]:
    sides: tuple[list[Entry], list[Entry]] = ([], [])
    balances = [Balance(FAMILIES[part.family].most) for _ in sides]
    counts = (part.train, part.held_out)
    part_questions: set[str] = set()  # more than is wanted: what is left of a batch stays open to the parts that follow
    batch = fruitless = 0
    while fruitless < FRUITLESS:
        if all(len(side) >= count for side, count in zip(sides, counts, strict=True)):
            train, held_out = sides[0][: part.train], sides[1][: part.held_out]
            used_questions.update(entry["question"] for entry in (*train, *held_out))
            return train, held_out
        before = sum(map(len, sides))
        batch_seed = derive_seed("reasoning_gym", seed, part.family, part.level, batch)
        for entry in ask(part, batch_seed):
            if entry["question"] not in used_questions and entry["question"] not in part_questions:
                part_questions.add(entry["question"])
                side = int(is_held_out(entry["question"]))
                if balances[side].takes(entry):
                    sides[side].append(entry)
        fruitless = 0 if sum(map(len, sides)) > before else fruitless + 1
        batch += 1
    raise BadInput(
        f"{part.name} has {len(sides[0])} different training and {len(sides[1])} held-out problems with these settings",
        key=f"env.families.{part.family}",
        expected=f"{part.train} and {part.held_out}: lower env.train_tasks, env.held_out_tasks or the family's weight",
    )


@contextmanager
def _program() -> Iterator[Any]:
    """What asks the program for a batch: (part, seed) to entries. Ends the program afterwards."""
    inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    one_thread = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = {**inherited, **one_thread, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
    command = (sys.executable, "-P", "-s", PROGRAM)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        TemporaryFile() as stderr,  # not a pipe, which would stop the program when nothing reads it
        subprocess.Popen(command, env=environment, cwd="/", text=True, stderr=stderr, **pipes) as process,
    ):
        try:
            yield lambda part, seed: _ask(process, stderr, part, seed)
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # of a request that it no longer read
                assert process.stdin is not None
                process.stdin.close()


def _ask(process: subprocess.Popen[str], stderr: IO[bytes], part: Part, seed: int) -> list[Entry]:
    assert process.stdin is not None and process.stdout is not None
    request = {"family": part.family, "level": part.level, "options": dict(part.options), "seed": seed, "count": BATCH}
    timer = threading.Timer(DEADLINE_S, process.kill)
    timer.start()
    line, answer = "", None
    try:
        with suppress(BrokenPipeError):  # it has ended, and may have said why
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        answer = json.loads(line)
    except ValueError:  # it was ended within a line, or printed something else
        pass
    finally:
        hung = not timer.is_alive()
        timer.cancel()
    where = f"env.families.{part.family}"
    if not isinstance(answer, dict):
        process.kill()
        process.wait()
        why = f"not done after {DEADLINE_S:g} s" if hung else _why(stderr, line)
        raise BadInput(f"the problems of {part.name} were not made: {why}", key=where)
    if "refused" in answer:
        raise BadInput(answer["refused"][:300], where=part.name, key=where)
    entries: list[Entry] = answer["entries"]
    return entries


def _why(stderr: IO[bytes], line: str) -> str:
    """Why a program gave no answer: what it wrote last among its errors, or in the answer's place."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - LAST_BYTES))
    last = stderr.read().decode(errors="replace").strip().splitlines()[-1:]
    if last:
        return last[0][:200]
    return f"it printed {line.strip()[:100]!r}" if line else "it ended without a word"
