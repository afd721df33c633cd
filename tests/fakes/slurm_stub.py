"""As much of Slurm as a batch script sees: `srun` and `scontrol` on the first node, and a daemon on each node.

    python tests/fakes/slurm_stub.py slurmd FOLDER NODE        runs tasks until FOLDER/end exists
    python tests/fakes/slurm_stub.py srun FOLDER [--option=value ...] COMMAND...
    python tests/fakes/slurm_stub.py scontrol FOLDER show hostnames LIST | requeue JOB

They share FOLDER alone, as nodes share a network. A task is a child of its daemon and the leader of a process group. As
with Slurm's process tracking by cgroups, SIGTERM reaches the task alone, and SIGKILL everything on the node. The file
`signal` in the folder sends SIGTERM to each task, or to its process group if the file says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.1


def slurmd(folder: Path, node: int) -> None:
    next_step = 0
    while not (folder / "end").exists():
        time.sleep(POLL_S)
        steps = sorted(folder.glob("step-*.json"))
        if len(steps) > next_step:
            run_task(folder, node, steps[next_step])
            next_step += 1


def run_task(folder: Path, node: int, step: Path) -> None:
    call = json.loads(step.read_text())
    environment = {**call["environment"], "SLURM_NODEID": str(node), "SLURM_PROCID": str(node)}
    before = processes()
    with step.with_suffix(f".out{node}").open("wb") as output:
        task = subprocess.Popen(
            call["command"], env=environment, cwd=call["folder"], stdout=output, stderr=output, process_group=0
        )
        signalled = False
        while task.poll() is None:
            if (folder / "signal").exists() and not signalled:
                signalled = True
                (os.killpg if (folder / "signal").read_text() == "group" else os.kill)(task.pid, signal.SIGTERM)
            if step.with_suffix(".kill").exists():
                task.kill()
            time.sleep(POLL_S)
    for pid in processes() - before:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    step.with_suffix(f".exit{node}").write_text(str(task.returncode))


def processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def srun(folder: Path, arguments: list[str]) -> int:
    command = arguments[next(index for index, word in enumerate(arguments) if not word.startswith("--")) :]
    step = folder / f"step-{len(list(folder.glob('step-*.json')))}.json"
    call = {"command": command, "environment": dict(os.environ), "folder": os.getcwd()}
    step.with_suffix(".new").write_text(json.dumps(call))
    step.with_suffix(".new").rename(step)
    exits = [step.with_suffix(f".exit{node}") for node in range(int(os.environ["SLURM_NNODES"]))]
    while not all(path.exists() for path in exits):
        time.sleep(POLL_S)
        if any(path.exists() and path.read_text() not in ("", "0") for path in exits):
            step.with_suffix(".kill").touch()  # --kill-on-bad-exit=1
    codes = [int(path.read_text()) for path in exits]
    for node in range(len(codes)):
        print(step.with_suffix(f".out{node}").read_text(errors="replace"), flush=True)
    return max(128 - code if code < 0 else code for code in codes)


def scontrol(folder: Path, arguments: list[str]) -> None:
    if arguments[0] == "requeue":
        (folder / "requeued").write_text(arguments[1])
    else:
        print("\n".join(arguments[2].split(",")))


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "slurmd":
        slurmd(Path(place), int(rest[0]))
    elif what == "srun":
        sys.exit(srun(Path(place), rest))
    else:
        scontrol(Path(place), rest)
