"""Faults on a cluster of two nodes: a part on the other node is killed, then that node is cut off for a while."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from rlsys.system import parts
from tests.e2e.runs import summary
from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, needs_nodes]

RECIPE = """
name: rl
env: {name: calculator, train_tasks: 64, held_out_tasks: 4}
reward: {name: answer}
rollout: {workers: 2, max_turn_tokens: 8}
learner: {threads: 2, lr: 1.0e-4}
loop: {groups_per_step: 2, group_size: 2}
eval: {tasks: 4}
wandb: {mode: disabled}
stages: [{name: rl, kind: rl, steps: 150}]
"""
REACH = """
from pathlib import Path
from launch.tools.chaos.cluster import Cluster
from launch.tools.chaos.faults import parse_fault
cluster = Cluster("{head}")
def disturb(kind, what):
    return cluster.disturb("{owner}", parse_fault(kind, what), Path("/nowhere"))
print(disturb("kill", "rollout:0@0s"), disturb("kill", "rollout:1@0s"))
print(disturb("cut", "node:2@0s+3s"))
cluster.end()
"""
LINK = "ip -brief link show eth0; ip route"


OWNER = "machine:123:"
HAND = """
from launch.tools.chaos.faults import parse_fault
from launch.tools.chaos.hand import Hand
hand = Hand()
print(hand.disturb("{owner}", parse_fault("kill", "rollout:1@0s")), hand.why_no_cut("10.1.1.1"))
assert not hand.why_no_cut("10.77.0.2")
hand.cut("10.77.0.2", 5.0)
"""


def start_part(cluster: Cluster) -> subprocess.Popen[bytes]:
    """A process on the second node that bears the tag of a run and the name of a part."""
    env = {parts.VARIABLE: "rollout:1", parts.DRIVER: f"{OWNER}9"}
    return cluster.start(["bash", "-c", "exec -a ray::RolloutWorker sleep 100"], node=2, env=env)


def links(cluster: Cluster, before: str) -> list[str]:
    """Of the second node, until they are again what they were."""
    states, end = [before], time.monotonic() + 30
    while time.monotonic() < end and (len(states) < 2 or states[-1] != before):
        if (state := cluster.sh(2, LINK)) != states[-1]:
            states.append(state)
        time.sleep(0.1)
    return states


def test_a_link_comes_back_with_its_routes_after_whoever_cut_it_has_ended(tmp_path: Path) -> None:
    with nodes(2, shared=tmp_path, ray=False) as cluster:
        cluster.sh(2, "ip route add 10.99.0.0/16 via 10.77.0.1")
        before, part = cluster.sh(2, LINK), start_part(cluster)
        result = cluster.run(["python", "-c", HAND.format(owner=OWNER)], node=2)
        assert (result.code, result.output) == (0, "1 none of its links has 10.1.1.1\n")
        assert part.wait(60) != 0
        states = links(cluster, before)
        # A state is read by two commands, between which a link may go or come back.
        assert any("10.77" not in state and "10.99" not in state for state in states) and states[-1] == before


@pytest.mark.slow
def test_a_part_on_another_node_is_reached_by_an_actor_and_that_node_is_cut_off(tmp_path: Path) -> None:
    with nodes(2, shared=tmp_path) as cluster:
        before, part = cluster.sh(2, LINK), start_part(cluster)
        result = cluster.run(["python", "-c", REACH.format(head="10.77.0.1:6379", owner=OWNER)], timeout=120)
        assert result.code == 0, result.output
        assert result.output.splitlines()[-2:] == ["0 1", "1"]
        assert part.wait(60) != 0
        states = links(cluster, before)
        assert "10.77" not in states[1] and states[-1] == before


@pytest.mark.slow
def test_a_worker_on_another_node_is_killed_and_the_node_is_cut_off(tmp_path: Path) -> None:
    """Rank and one engine fill the first node, so that the other engine is on the second."""
    run, table, recipe = tmp_path / "run", tmp_path / "chaos.json", tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    with nodes(2, shared=tmp_path, cpus=3) as cluster:
        cluster.fill(2, cpus=2)
        for target, says in (("node:1", "node:2 (10.77.0.2)"), ("node:3", "node:2 (10.77.0.2)")):
            refused = cluster.run(["rlsys", "chaos", str(recipe), "--cut", f"{target}@1s"], timeout=60)
            assert refused.code == 2 and says in refused.output
        words = ["--kill", "rollout:0@2s", "--kill", "rollout:1@2s", "--cut", "node:2@25s+5s"]
        result = cluster.run(
            ["rlsys", "chaos", str(recipe), "--run-dir", str(run), "--json", str(table), *words], timeout=400
        )
        assert result.code == 0, result.output[-3000:]
        assert "10.77.0.0/24" in cluster.sh(2, LINK)
    report = json.loads(table.read_text())
    assert report["holds"] and report["lost"] == report["repeated"] == 0
    assert [(cost["fault"], cost["hit"]) for cost in report["costs"]] == [
        ("kill rollout:0", True),
        ("kill rollout:1", True),
        ("cut node:2 for 5 s", True),
    ]
    assert summary(run)["status"] == "done" and summary(run)["prompts"]["in_flight"] == 0
