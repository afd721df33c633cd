"""A run whose parts are on another node than its driver: what is looked at there, and where its services are found."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.runs import rows, steps_of, summary
from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_nodes]

CPUS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes; the first is the driver's alone."""
    with nodes(2, shared=tmp_path_factory.mktemp("shared"), cpus=CPUS) as cluster:
        cluster.fill(1, CPUS)
        yield cluster


def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next(tmp_path_factory.getbasetemp().glob("shared*"))


def test_a_run_folder_that_is_not_shared_is_one_line(cluster: Cluster) -> None:
    result = cluster.run(["python", "-m", "launch", "train", "quickstart", "--run-dir", "/tmp/run"])
    assert result.code == 2, result.output
    error = (
        "rlsys: error: node 10.77.0.2: --run-dir /tmp/run: not the driver's folder there, expected one that all nodes"
    )
    assert result.output.splitlines()[-1].startswith(error)
    assert "Traceback" not in result.output


def test_a_corpus_that_a_node_lacks_is_one_line(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The questions are read by the driver alone."""
    passages = [{"id": f"{n}", "contents": f"The capital of country {n} is city {n}."} for n in range(8)]
    questions = [{"question": f"What is the capital of country {n}?", "answers": [f"city {n}"]} for n in range(8)]
    for name, records in (("corpus", passages), ("questions", questions)):
        lines = "\n".join(map(json.dumps, records))
        cluster.sh(1, f"cat > /tmp/{name}.jsonl <<'END'\n{lines}\nEND")
    data = ["env.data=/tmp/questions.jsonl", "env.retriever.corpus=/tmp/corpus.jsonl", "stages.sft=null"]
    run = ["--run-dir", str(shared(tmp_path_factory) / "run")]
    result = cluster.run(["python", "-m", "launch", "train", "worlds/search", *data, *run])
    assert result.code == 2, result.output
    error = "node 10.77.0.2: env.retriever.corpus='/tmp/corpus.jsonl': no such file or folder"
    assert result.output.splitlines()[-1] == f"rlsys: error: {error}"


SEARCHING = """
import asyncio, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from envs import new_player
from launch.config.compose import compose
from launch.driver.run import wire

ray.init(log_to_driver=False)
recipe = compose("worlds/search", ["env.retriever.guard.attempts=30"]).recipe
(second,) = [node["NodeID"] for node in ray.nodes() if node["NodeManagerAddress"] == "10.77.0.2"]

async def story():
    services, world = wire.services([recipe]), new_player(recipe.env)
    asked = [task.question for task in new_player(recipe.env).tasks("train")[:1000]]

    async def tell(addresses):
        world.connect(addresses[world.service], services.token)
        print("at", addresses[world.service], flush=True)

    await services.start([NodeAffinitySchedulingStrategy(second, soft=True)], tell)
    searches = 0
    for question in asked:  # each another one: what was found before is remembered
        searches += bool(await world.tool.search(question))
        if searches == 3:
            print("searching", flush=True)
        if services.restarts[world.service] and searches > 10:
            break
        await asyncio.sleep(0.1)
    print("errors", dict(world.tool_stats()["search"].errors), flush=True)
    await services.stop()
    await world.close()

asyncio.run(story())
"""


def test_a_retriever_whose_node_dies_is_found_on_another(tmp_path: Path) -> None:
    with nodes(2, shared=tmp_path, cpus=CPUS) as cluster, (tmp_path / "said").open("wb") as output:
        env = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}  # of the web: the parts of a run need none
        driver = cluster.start(["python", "-c", SEARCHING], env=env, output=output.fileno())
        wait_for(lambda: "searching" in (tmp_path / "said").read_text(), driver)
        cluster.kill(2)
        assert driver.wait(180) == 0, (tmp_path / "said").read_text()
    lines = (tmp_path / "said").read_text().splitlines()
    places = [line.split("//")[1].split(":")[0] for line in lines if line.startswith("at ")]
    assert places == ["10.77.0.2", "10.77.0.1"]
    assert lines[-1] == "errors {}"


def test_a_run_goes_on_when_the_node_of_its_retriever_dies(tmp_path: Path) -> None:
    """Ranks and engines need three CPUs and fit on the first node alone, the retriever needs one and fits on both."""
    run, log = tmp_path / "run", tmp_path / "said"
    short = ["stages.sft.steps=20", "stages.rl.steps=6", "stages.rl.loop.groups_per_step=8", "eval.tasks=4"]
    guard = ["env.retriever.guard.cache_size=0", "env.retriever.guard.attempts=30"]
    with nodes(2, shared=tmp_path, cpus=8) as cluster, log.open("wb") as output:
        cluster.fill(1, cpus=2)
        cluster.fill(2, cpus=7)
        train = ["python", "-m", "launch", "train", "worlds/search", "--run-dir", str(run), *short, *guard]
        driver = cluster.start([*train, "learner.threads=3", "rollout.threads=3"], output=output.fileno())
        wait_for(lambda: steps_of(run, "rl") >= 1, driver)
        cluster.kill(2)
        cluster.free(1)  # room for the retriever
        assert driver.wait(300) == 0, log.read_text()[-3000:]
    assert re.search(r"retriever-[0-9a-f]+ is at http://10\.77\.0\.1:\d+ now", log.read_text())
    run_summary = summary(run)
    assert run_summary["status"] == "done" and run_summary["prompts"]["failed"] == 0
    # Ray takes a while to see that the node is gone, and until then there is no place for it.
    (restarts,) = [count for name, count in run_summary["restarts"].items() if name.startswith("retriever")]
    assert restarts >= 1
    assert "\x1b" not in log.read_text()  # Ray tells of the node too, and colours nothing in a log
    assert max(row.get("tool/search/retries", 0) for row in rows(run)) > 0  # it was felt, and outlasted


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], timeout: float = 120) -> None:
    end = time.monotonic() + timeout
    while not ready():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
