"""`rlsys submit` on a Ray cluster of two nodes: the exit codes of runs arrive, and the printed line does the same."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.runs import Result, rows, summary
from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_nodes]

ADDRESS = "http://127.0.0.1:8265"
SHORT = ["stages.sft.steps=2", "stages.rl=null", "eval.tasks=2"]  # starts no engine
LONG = ["stages.sft.steps=10000"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def cluster(shared: Path) -> Iterator[Cluster]:
    """Its parts run on the second node; the job's driver on the first."""
    with nodes(2, shared=shared, cpus=3, dashboard=True) as cluster:
        cluster.fill(1, cpus=3)
        yield cluster


def submit(cluster: Cluster, *argv: str) -> Result:
    return cluster.run(["python", "-m", "launch", "submit", *argv, "--address", ADDRESS], timeout=400)


def test_a_run_that_is_done_ends_with_0_and_its_log_was_shown(cluster: Cluster, shared: Path) -> None:
    result = submit(cluster, "quickstart", *SHORT, "--run-dir", f"{shared}/done")
    assert result.code == 0, result.output[-3000:]
    assert summary(shared / "done")["status"] == "done"
    lines = result.output.splitlines()
    assert sum("step 2/2" in line for line in lines) == 1  # nothing twice
    assert lines[-1].startswith("done, exit code 0")
    assert sum(line.startswith("checked: ") or line.startswith("job rlsys-done-seed0-") for line in lines) == 2


def test_what_the_cluster_refuses_ends_with_2(cluster: Cluster) -> None:
    result = submit(cluster, "quickstart", *SHORT, "--run-dir", "/tmp/of_this_node_alone")
    assert result.code == 2, result.output[-3000:]
    assert "not the driver's folder there" in result.output


def test_a_run_that_fails_ends_with_1(cluster: Cluster, shared: Path) -> None:
    result = submit(cluster, "quickstart", *SHORT, "learner.start_timeout_s=0.1", "--run-dir", f"{shared}/failed")
    assert result.code == 1, result.output[-3000:]


def test_a_stopped_run_saves_and_the_code_of_a_stop_arrives(cluster: Cluster, shared: Path) -> None:
    run, output = shared / "stopped", shared / "stopped.log"
    argv = ["python", "-m", "launch", "submit", "quickstart", *LONG, "--run-dir", str(run), "--address", ADDRESS]
    with output.open("w") as file:
        following = cluster.start(argv, output=file.fileno())
    until = time.monotonic() + 240
    while not (run / "metrics.jsonl").exists() or not rows(run):
        assert time.monotonic() < until and following.poll() is None, output.read_text()[-3000:]
        time.sleep(0.5)
    (job,) = set(re.findall(r"job (rlsys-stopped-seed0-\w{4}) submitted", output.read_text()))
    stopped = submit(cluster, "--stop", job)
    assert stopped.code == 0, stopped.output
    assert following.wait(60) == 143, output.read_text()[-3000:]
    assert summary(run)["status"] == "stopped"
    assert any((run / "checkpoints").glob("step-*"))
    attached = submit(cluster, "--attach", job)
    assert attached.code == 143
    assert "run directory" in attached.output  # the log from its beginning


def test_the_printed_command_does_the_same(cluster: Cluster, shared: Path) -> None:
    run = shared / "by_hand"
    printed = submit(cluster, "quickstart", *SHORT, "--run-dir", str(run), "--dry-run")
    assert printed.code == 0
    line = printed.output[printed.output.index("env -u RAY_ADDRESS") :]  # this node's variable would win
    result = cluster.run(["sh", "-c", line], timeout=400)
    assert result.code == 0, result.output[-3000:]
    assert summary(run)["status"] == "done"
    if (shared / "done").exists():  # of the first test
        assert (run / "config.yaml").read_text() == (shared / "done" / "config.yaml").read_text()


def test_a_folder_of_all_nodes_is_not_uploaded(cluster: Cluster, shared: Path) -> None:
    result = submit(cluster, "quickstart", *SHORT, "--run-dir", f"{shared}/in_place", "--no-upload")
    assert result.code == 0, result.output[-3000:]
    assert "nothing is uploaded" in result.output
