"""`rlsys submit` to a real cluster that wants a token, of two Ray nodes on this machine: what is said, which code."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.runs import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PORT, DASHBOARD, AGENT = 26391, 28291, 25391
ADDRESS = f"http://127.0.0.1:{DASHBOARD}"
READY_S = 120


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The token of a cluster, which stands while the tests run."""
    folder = tmp_path_factory.mktemp("ray")
    file = folder / "token"
    file.write_text("5ec" * 12)
    store = ["--object-store-memory=100000000", "--num-cpus=1", "--disable-usage-stats", "--block"]
    head = ["--head", f"--port={PORT}", f"--dashboard-port={DASHBOARD}", f"--dashboard-agent-listen-port={AGENT}"]
    second = [f"--address=127.0.0.1:{PORT}", f"--dashboard-agent-listen-port={AGENT + 1}"]
    with ExitStack() as started:
        for role in (head, second):
            with (folder / f"{role[0].strip('-')[:4]}.log").open("w") as log:
                command = [f"{sys.prefix}/bin/ray", "start", *role, *store]
                node = subprocess.Popen(command, env=environment(file), stdout=log, stderr=log)
            started.callback(node.wait, 60)
            started.callback(node.terminate)
            wait_for(file, 1 if role is head else 2)
        yield file


def environment(token: Path | None, **more: str) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    variables["PATH"] = f"{sys.prefix}/bin:{variables['PATH']}"  # whose `python` the job takes
    auth = {"RAY_AUTH_MODE": "disabled"}
    if token is not None:
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    return variables | auth | more


def wait_for(token: Path, count: int) -> None:
    """Until so many nodes live."""
    script = (
        f"import ray; ray.init(address='127.0.0.1:{PORT}', log_to_driver=False, logging_level=50); "
        f"raise SystemExit(sum(each['Alive'] for each in ray.nodes()) < {count})"
    )
    until = time.monotonic() + READY_S
    while subprocess.run([sys.executable, "-c", script], env=environment(token), capture_output=True).returncode:
        assert time.monotonic() < until, "the cluster does not come up"


def submit(*argv: str, token: Path | None) -> tuple[int, str]:
    command = [sys.executable, "-m", "launch", "submit", *argv, "--address", ADDRESS]
    result = subprocess.run(command, cwd=ROOT, env=environment(token), capture_output=True, text=True, timeout=300)
    return result.returncode, result.stderr.strip() or result.stdout[-3000:]


def test_the_token_opens_the_cluster_and_nothing_else_does(token: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("bad" * 12)
    assert submit("--attach", "none", token=token) == (2, "rlsys: error: there is no such job on this cluster")
    for bad_token in (None, wrong):
        code, line = submit("--attach", "none", token=bad_token)
        assert code == 2 and "RAY_AUTH_MODE=token" in line and len(line.splitlines()) == 1
        assert "5ec5ec" not in line and "badbad" not in line


def test_an_upload_to_two_nodes_of_one_machine_is_refused_with_the_way_out(token: Path, tmp_path: Path) -> None:
    """Both would unpack it in one place, the second one under the running job."""
    code, line = submit("quickstart", "--run-dir", str(tmp_path / "run"), token=token)
    assert code == 2 and "--no-upload" in line
    short = ["stages.sft.steps=1", "stages.rl=null", "eval.tasks=1"]
    code, line = submit("quickstart", *short, "--run-dir", str(tmp_path / "run"), "--no-upload", token=token)
    assert code == 0 and f"done, exit code 0; rlsys report {tmp_path}/run" in line, line
    assert (tmp_path / "run" / "summary.json").is_file()
