"""Speed and memory of `rlsys score` on many transcripts: `python benchmarks/score.py [--lines 2000 100000]`.

Each line holds a search, its documents and an answer, 2.4 kB; every second answer is right. Every size is a separate
process, whose time and peak memory are the kernel's, of its children with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import Report, parser

DOCUMENTS = '"Paris"\nParis is the capital and the largest city of France. ' * 34
SEARCH = "<think>first</think><search>capital of France</search>"


def line(number: int) -> str:
    answer = "Paris" if number % 2 else "Rome"
    response = f"{SEARCH}<result>{DOCUMENTS}</result><think>so</think><answer>\\boxed{{{answer}}}</answer>"
    task = {"question": f"The capital of France? ({number})", "answers": ["Paris"]}
    return json.dumps({"task": task, "response": response}) + "\n"


def score(file: Path) -> tuple[float, float, float]:
    """Seconds by the clock, seconds of the processor, peak MiB."""
    output = file.with_suffix(".scored")
    command = [sys.executable, "-m", "launch", "score", "research", "--input", str(file), "--output", str(output)]
    started = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--lines", type=int, nargs="+", default=[1, 2_000, 100_000])
    options = cli.parse_args()
    with Report(options) as report, tempfile.TemporaryDirectory() as folder:
        report.head("transcripts", "seconds", "of the processor", "peak MiB")
        for count in options.lines:
            file = Path(folder) / f"{count}.jsonl"
            with file.open("w") as lines:
                lines.writelines(map(line, range(count)))
            report.row(count, *score(file))


if __name__ == "__main__":
    main()
