"""What ends a run's machines lets it save: deploy/slurm/rlsys.sbatch on two nodes, and the hook of KubeRay's pods.

A stub stands in the place of Slurm, and none in that of Kubernetes; Ray and the runs are real.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.runs import ROOT, rows, steps_of, summary
from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_nodes]

STUB = ROOT / "tests" / "fakes" / "slurm_stub.py"
BIN = Path(sys.executable).parent
SHORT = ["stages.sft.steps=10", "stages.rl.steps=400", "eval.tasks=4"]
SPREAD = ["learner.threads=2"]  # both cores of a node: the engine has to be on the other one
STOPPED = 128 + signal.SIGTERM


class Slurm:
    """Of a cluster whose nodes run no Ray: daemons on them, and commands for a batch script on the first one."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        for name in ("srun", "scontrol"):
            command = folder / "bin" / name
            command.parent.mkdir(parents=True, exist_ok=True)
            command.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} {name} {folder} "$@"\n')
            command.chmod(0o755)
        for node in range(len(cluster.addresses)):
            cluster.start(["python", str(STUB), "slurmd", str(folder), str(node)], node=node + 1)

    def submit(self, run: Path, *, log: Path) -> subprocess.Popen[bytes]:
        script = ["bash", str(ROOT / "deploy" / "slurm" / "rlsys.sbatch"), "quickstart", str(run), *SHORT, *SPREAD]
        variables = {
            "PATH": f"{self.folder / 'bin'}:{BIN}:/usr/sbin:/usr/bin:/sbin:/bin",
            "RAY_AUTH_TOKEN": "f" * 64,  # nodes of this test have a home directory each
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "node1,node2",
            "SLURM_NNODES": "2",
            "SLURM_CPUS_PER_TASK": "2",
        }
        with log.open("wb") as output:
            return self.cluster.start(["env", "-u", "RAY_ADDRESS", *script], env=variables, output=output.fileno())

    def signal_tasks(self, whom: str) -> None:
        """SIGTERM to each task of the step: whom is "task", or "group" for its process group."""
        (self.folder / "signal").write_text(whom)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    with nodes(2, shared=tmp_path, ray=False, shm="8g") as cluster:
        scheduler = Slurm(cluster, tmp_path / "slurm")
        yield scheduler
        (scheduler.folder / "end").touch()


def wait_for(condition: Callable[[], bool], job: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert job.poll() is None and time.monotonic() < deadline, log.read_text()[-6000:]
        time.sleep(0.2)


def ended(job: subprocess.Popen[bytes], log: Path) -> int:
    try:
        return job.wait(120)
    except subprocess.TimeoutExpired:
        raise AssertionError(log.read_text()[-6000:]) from None


def saved(run: Path) -> int:
    """The step that a run was stopped at, of which it has a checkpoint."""
    stopped = summary(run)
    assert stopped["status"] == "stopped"
    assert (run / "checkpoints" / f"step-{stopped['steps']:06d}").is_dir()
    return int(stopped["steps"])


def test_a_stopped_job_saves_and_continues_in_the_same_run_directory(slurm: Slurm, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "job.log"
    limited = slurm.submit(run, log=log)
    wait_for(lambda: steps_of(run, "rl") >= 2, limited, log)
    slurm.cluster.signal(limited, signal.SIGUSR1)  # before the time limit Slurm signals the script alone
    assert ended(limited, log) == STOPPED, log.read_text()[-6000:]
    first = saved(run)
    assert (slurm.folder / "requeued").read_text() == "7"
    (slurm.folder / "requeued").unlink()

    second_job = slurm.submit(run, log=log)
    wait_for(lambda: len(rows(run)) > first + 1, second_job, log)
    slurm.signal_tasks("group")  # a preemption, at its worst: every process of the task's group, on both nodes
    assert ended(second_job, log) == STOPPED, log.read_text()[-6000:]
    assert saved(run) > first
    assert [row["step"] for row in rows(run)] == list(range(1, saved(run) + 1))
    assert not (slurm.folder / "requeued").exists()  # Slurm itself decides about what it has preempted


def test_the_hook_of_a_pod_stops_the_jobs_of_its_cluster_and_waits(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "job.log"
    hook = ["python", str(ROOT / "deploy" / "kuberay" / "stop_jobs.py")]
    wait = ["--runtime-env-json", '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "50"}}']
    train = ["python", "-m", "launch", "train", "quickstart", *SHORT, "--run-dir", str(run)]
    with nodes(1, shared=tmp_path, cpus=4, dashboard=True) as cluster:
        with log.open("wb") as output:
            submit = ["ray", "job", "submit", "--address", "http://127.0.0.1:8265", *wait, "--", *train]
            job = cluster.start(submit, output=output.fileno())
        wait_for(lambda: steps_of(run, "rl") >= 2, job, log)
        worker = cluster.start([*hook, "--only-wait"])
        assert cluster.run([*hook, "--only-wait", "--limit", "3"]).code == 0  # the grace period ends, the job continues
        assert worker.poll() is None and not (run / "summary.json").exists()
        assert cluster.run(hook, timeout=120).code == 0
        assert saved(run) >= 12
        assert worker.wait(60) == 0
        assert cluster.run([*hook, "--limit", "3"], env={"FQ_RAY_IP": "10.77.0.9"}).code == 0  # no head: nothing to do


def test_a_job_whose_ray_does_not_start_has_failed(tmp_path: Path) -> None:
    """`ray symmetric-run` ends with 0 then."""
    commands = {"scontrol": "echo localhost", "srun": "exit 0"}
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "2"}
    environment = {**os.environ, **job, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_AUTH_TOKEN": "f" * 64}
    script = ROOT / "deploy" / "slurm" / "rlsys.sbatch"
    result = subprocess.run(["bash", script, "quickstart", tmp_path / "run"], env=environment, capture_output=True)
    assert result.returncode == 1 and b"was not started" in result.stderr
    with contextlib.suppress(FileNotFoundError):
        raise AssertionError(os.listdir(tmp_path / "run"))
