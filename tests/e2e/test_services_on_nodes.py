"""A run whose parts are on another node than its driver: what is looked at there, and where its services are found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, needs_nodes]

# A detached actor that takes the CPUs of a node: whatever is placed afterwards has to go elsewhere.
FULL = """
import ray
ray.init(log_to_driver=False, namespace="full")

@ray.remote(num_cpus={cpus}, resources={{"node{node}": 1}}, lifetime="detached", name="full{node}")
class Full:
    def there(self):
        return True

print(ray.get(Full.remote().there.remote()))
"""
CPUS = 3


def fill(cluster: Cluster, node: int, cpus: int = CPUS) -> None:
    result = cluster.run(["python", "-c", FULL.format(node=node, cpus=cpus)])
    assert "True" in result.output, result.output


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes; the first is the driver's alone."""
    with nodes(2, shared=tmp_path_factory.mktemp("shared"), cpus=CPUS) as made:
        fill(made, 1)
        yield made


def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next(tmp_path_factory.getbasetemp().glob("shared*"))


def test_a_run_folder_that_is_not_shared_is_one_line(cluster: Cluster) -> None:
    result = cluster.run(["python", "-m", "launch", "train", "quickstart", "--run-dir", "/tmp/run"])
    assert result.code == 2, result.output
    told = (
        "rlsys: error: node 10.77.0.2: --run-dir /tmp/run: not the driver's folder there; expected one that all nodes"
    )
    assert result.output.splitlines()[-1].startswith(told)
    assert "Traceback" not in result.output


def test_a_corpus_that_a_node_lacks_is_one_line(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The questions are read by the driver alone."""
    passages = [{"id": f"{n}", "contents": f"The capital of country {n} is city {n}."} for n in range(8)]
    asked = [{"question": f"What is the capital of country {n}?", "answers": [f"city {n}"]} for n in range(8)]
    for name, records in (("corpus", passages), ("questions", asked)):
        lines = "\n".join(map(json.dumps, records))
        cluster.sh(1, f"cat > /tmp/{name}.jsonl <<'END'\n{lines}\nEND")
    data = ["env.data=/tmp/questions.jsonl", "env.retriever.corpus=/tmp/corpus.jsonl", "stages.sft=null"]
    run = ["--run-dir", str(shared(tmp_path_factory) / "run")]
    result = cluster.run(["python", "-m", "launch", "train", "worlds/search", *data, *run])
    assert result.code == 2, result.output
    told = "node 10.77.0.2: env.retriever.corpus='/tmp/corpus.jsonl': no such file or folder"
    assert result.output.splitlines()[-1] == f"rlsys: error: {told}"
