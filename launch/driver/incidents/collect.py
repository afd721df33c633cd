"""Collects the evidence of one incident into its folder, from outside the run: as a process of its own.

    python -m launch.driver.incidents.collect < request        as the driver starts it, or its parent

What does not answer within its deadline, or cannot be read, is a line of `incident.md`. Nothing is asked of the run's
processes: they may be what hangs.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from launch.checks.shareable import Hider, known_secrets
from launch.driver.incidents.facts import PARAGRAPH, Facts, PartFacts, read_facts, write_facts
from launch.driver.incidents.folder import LARGEST
from launch.driver.incidents.paragraph import describe
from launch.driver.incidents.processes import DRIVER, PartProcess, environments, list_parts, state_of
from launch.driver.incidents.stacks import EACH_S, Stack, read_stack
from rlsys.errors import BadInput, describe_error
from rlsys.system.card_memory import DriverHangs, run_smi
from rlsys.system.parts import owner_of

COLLECT_S = 20.0  # in all; what the driver waits for before it ends the collector
STACKS_S = 12.0  # of that for all stacks
AT_ONCE = 3  # stacks: reading one takes a core
MOST_STACKS = 64  # of a run with hundreds of parts: those that are stopped first
LOG_BYTES = 48 * 1024  # of the end of each log: 400 lines
LINES = {"journal.jsonl": 100, "events.jsonl": 100, "metrics.jsonl": 5}  # the last ones: of a few steps
MOST_LOGS = 64  # as many as stacks: 3 MB
RAY_LOGS = ("raylet.out", "gcs_server.out")
GPU_S = 5.0  # of COLLECT_S: a driver that hangs answers never
GPU_QUERY = (
    "index,name,driver_version,utilization.gpu,memory.used,memory.total,temperature.gpu,"
    "ecc.errors.uncorrected.volatile.total"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    folder: Path  # has an incident.json with what the driver knows
    run: Path
    driver: int  # its pid
    known: tuple[PartProcess, ...] = ()  # as they were a while ago
    named: tuple[str, ...] = ()  # variables of the environment that the configuration names as secrets

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"folder": str(self.folder), "run": str(self.run)})

    @staticmethod
    def from_json(text: str) -> Request:
        values: dict[str, Any] = json.loads(text)
        processes = tuple(PartProcess(**process) for process in values.pop("known"))
        folder, run, variables = Path(values.pop("folder")), Path(values.pop("run")), tuple(values.pop("named"))
        return Request(folder=folder, run=run, known=processes, named=variables, **values)


class Collector:
    """Writes files into the folder, without secrets, and notes what is missing."""

    def __init__(self, request: Request, hider: Hider) -> None:
        self.request, self.hider = request, hider
        self.missing: list[str] = []

    def write(self, name: str, text: str) -> None:
        """The end of it where it is too long."""
        path = self.request.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.hider.hide(text)[-LARGEST:])

    def attempt(self, label: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # fault boundary: the rest is worth having
            self.missing.append(self.hider.hide(f"{label}: {describe_error(error)}"))

    def stacks(self, processes: Sequence[PartProcess]) -> dict[int, Stack]:
        """Of the processes by pid, each in a file."""
        stacks: dict[int, Stack] = {}
        pool = ThreadPoolExecutor(AT_ONCE)
        futures = {pool.submit(read_stack, process.pid, EACH_S): process for process in processes[:MOST_STACKS]}
        done, late = wait_for(futures, timeout=STACKS_S)
        pool.shutdown(wait=False, cancel_futures=True)
        stacks |= {futures[future].pid: future.result() for future in done}
        stacks |= {futures[future].pid: Stack("", "", f"not read within {STACKS_S:g} s") for future in late}
        for process in processes[MOST_STACKS:]:
            stacks[process.pid] = Stack("", "", f"one of more than {MOST_STACKS} processes: not read")
        for process in processes:
            if stack := stacks[process.pid].text:
                self.write(f"stacks/{_file_name(process)}.txt", f"{process.title}, pid {process.pid}\n{stack}")
        return stacks

    def logs(self, processes: Iterable[PartProcess]) -> None:
        """The ends of what the parts have written, each file once, and of what Ray has."""
        names = {Path(path): f"{_file_name(process)}{end}" for process in processes
                 for path, end in ((process.errors, ".err"), (process.log, ".out")) if path}  # fmt: skip
        logs = dict(list(names.items())[:MOST_LOGS])
        for folder in sorted({path.parent for path in names})[:1]:
            logs |= {folder / name: f"ray-{name}" for name in RAY_LOGS if (folder / name).is_file()}
        for path, name in logs.items():
            self.attempt(f"log of {name}", partial(self.log, path, name))

    def log(self, path: Path, name: str) -> None:
        if text := tail(path, LOG_BYTES):
            self.write(f"logs/{name}", text)

    def files(self) -> None:
        """Of the run directory."""
        for name in ("config.yaml", "run.json"):
            self.attempt(name, partial(self.copy, name))
        for name in LINES:
            if (self.request.run / name).is_file():
                self.attempt(name, partial(self.rows, name))

    def copy(self, name: str) -> None:
        self.write(name, (self.request.run / name).read_text(errors="replace"))

    def rows(self, name: str) -> None:
        self.write(f"{name.removesuffix('.jsonl')}-tail.jsonl", last_lines(self.request.run / name, LINES[name]))


def collect(request: Request) -> Facts:
    """All of it. Returns the facts that it wrote."""
    began = time.monotonic()
    facts = read_facts(request.folder)
    hider = Hider(known_secrets(environments(owner_of(request.driver)), request.named))
    collector = Collector(request, hider)
    parts = list_parts(owner_of(request.driver))
    driver = [PartProcess(part=DRIVER, pid=request.driver, title="driver", log="")]
    processes = [*(driver if psutil.pid_exists(request.driver) else []), *parts]
    states = {part.pid: state_of(part.pid) for part in processes}
    processes.sort(key=lambda part: (states[part.pid] not in ("stopped", "waiting for a disk"), part.part != DRIVER))
    collector.attempt("config", collector.files)
    stacks: dict[int, Stack] = {}
    collector.attempt("stacks", lambda: stacks.update(collector.stacks(processes)))
    dead = [part for part in request.known if part.pid not in states]
    collector.attempt("logs", lambda: collector.logs([*parts, *dead]))
    collector.attempt("machine", lambda: collector.write("machine.txt", machine_state(processes)))
    table = tuple(
        PartFacts(part=part.part, pid=part.pid, title=hider.hide(part.title), state=states[part.pid],
                  at=hider.hide(stacks.get(part.pid, Stack("", "")).place),
                  problem=stacks.get(part.pid, Stack("", "", "no stack")).problem)
        for part in processes
    )  # fmt: skip
    lacking = [f"stack of {part.part} (pid {part.pid}): {part.problem}" for part in table if part.problem]
    names = {part.part for part in parts}
    gone_parts = tuple(sorted({part.part for part in request.known} - names))

    def write() -> Facts:
        now = replace(
            read_facts(request.folder), parts=tuple(sorted(table, key=lambda part: (part.part != DRIVER, part.part))),
            gone=gone_parts, nodes=count_nodes(request.run), missing=(*facts.missing, *lacking, *collector.missing),
            seconds=round(time.monotonic() - began, 2),
        )  # fmt: skip
        write_facts(request.folder, now)
        (request.folder / PARAGRAPH).write_text(hider.hide(describe(now)))
        return now

    write()  # before the cards are asked: nvidia-smi may hang for longer than is left
    collector.attempt("gpu", lambda: collector.write("gpu.txt", gpu_state()))
    return write()


def gpu_state() -> str:
    """What nvidia-smi says, or why it says nothing."""
    parts = []
    for query in (f"--query-gpu={GPU_QUERY}", "--query-compute-apps=pid,name,used_memory"):
        try:
            result = run_smi(query, "csv", GPU_S)
            parts.append(result.stdout + result.stderr)
        except DriverHangs as error:
            parts.append(f"{error}\n")
            break
        except FileNotFoundError:
            return "no nvidia-smi on this machine\n"
    return "\n".join(parts)


def machine_state(processes: Iterable[PartProcess]) -> str:
    """Load, memory, disk, and what each process takes."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    lines = [
        f"cores {psutil.cpu_count()}, load {' '.join(f'{load:.2f}' for load in os.getloadavg())}",
        f"memory {memory.total / 2**30:.1f} GiB, available {memory.available / 2**30:.1f}; "
        f"swap used {swap.used / 2**30:.1f}",
    ]
    for place in ("/dev/shm", "/tmp"):
        with suppress(OSError):
            disk = shutil.disk_usage(place)
            lines.append(f"{place} {disk.total / 2**30:.1f} GiB, free {disk.free / 2**30:.1f}")
    lines.append(f"{'part':<16}{'pid':>9}{'MiB':>8}{'cpu s':>9}{'threads':>9}{'open files':>11}")
    for part in processes:
        with suppress(psutil.Error):
            process = psutil.Process(part.pid)
            used, resident = process.cpu_times(), process.memory_info().rss / 2**20
            lines.append(
                f"{part.part:<16}{part.pid:>9}{resident:>8.0f}{used.user + used.system:>9.1f}"
                f"{process.num_threads():>9}{process.num_fds():>11}"
            )
    return "\n".join(lines) + "\n"


def count_nodes(run: Path) -> int:
    with suppress(OSError, ValueError, KeyError, TypeError, IndexError):
        return max(1, len(json.loads((run / "run.json").read_bytes())["attempts"][-1]["nodes"]))
    return 1


def tail(path: Path, most: int) -> str:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - most))
        text = file.read(most).decode("utf-8", "replace")
    return text if size <= most else text.partition("\n")[2]


def last_lines(path: Path, lines: int) -> str:
    return "\n".join(tail(path, 4 * LOG_BYTES).splitlines()[-lines:]) + "\n"


def _file_name(process: PartProcess) -> str:
    return f"{process.part.replace(':', '-').replace('/', '-')}-{process.pid}"


def main() -> int:
    request = Request.from_json(sys.stdin.read())
    with suppress(OSError):
        os.nice(5)
    try:
        collect(request)
    except (OSError, BadInput) as error:
        print(describe_error(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
