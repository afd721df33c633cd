"""Somebody else's model through `ray job submit` on a running cluster: the same program, the same run directory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs import ROOT, rows, summary, trajectories
from tests.e2e.tiny_models import save_tiny
from tests.nodes import needs_nodes, nodes

BIN = Path(sys.executable).parent


TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def ray(*argv: str, environment: dict[str, str], timeout: int = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "ray"), *argv], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout
    )


@pytest.mark.slow
def test_a_llama_folder_trains_as_a_ray_job(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "llama", "llama", 1)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    run = tmp_path / "run"
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled"}
    port, dashboard = "26379", "28265"
    started = ray(
        "start", "--head", f"--port={port}", f"--dashboard-port={dashboard}", "--num-cpus=4", "--disable-usage-stats",
        f"--object-store-memory={200 * 2**20}", environment=environment,
    )  # fmt: skip
    assert started.returncode == 0, started.stdout + started.stderr
    submit = ["job", "submit", "--address", f"http://127.0.0.1:{dashboard}", "--working-dir", ".", "--"]
    try:
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(
            f"name: llama\nmodel: {{path: {model}}}\nengine: {{max_model_len: 512, max_num_seqs: 32}}\n"
            "loop: {groups_per_step: 4, group_size: 4}\neval: {tasks: 4}\nlearner: {lr: 1.0e-4}\n"
            "rollout: {max_turn_tokens: 16}\nreward: {name: answer}\n"
            "stages: [{name: rl, kind: rl, steps: 2}]\n"
        )
        train = ["python", "-m", "launch", "train", str(recipe)]
        relative = ray(*submit, *train, environment=environment)
        assert relative.returncode != 0
        assert "absolute --run-dir" in relative.stdout + relative.stderr
        result = ray(*submit, *train, "--run-dir", str(run), environment=environment)
        assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
        address = f"http://127.0.0.1:{dashboard}"
        listed = ray("list", "actors", "--address", address, "--format", "json", "--detail", environment=environment)
        actors = {(actor["name"], actor["repr_name"]) for actor in json.loads(listed.stdout)}
        assert actors >= {("rlsys:llama:rollout:0", "rollout:0"), ("rlsys:llama:learner:0", "learner rank 0")}
        groups = ray("list", "placement-groups", "--address", address, "--format", "json", environment=environment)
        assert "rlsys:llama" in {group["name"] for group in json.loads(groups.stdout)}
    finally:
        ray("stop", "--force", environment=environment)
    assert summary(run)["status"] == "done"
    assert len(rows(run)) == 2
    assert trajectories(run)[0]["num_tokens"] == 16  # a random model ends at its budget
    assert (run / "checkpoints" / "step-000002" / "hf" / "tokenizer.json").is_file()


@needs_nodes
@pytest.mark.slow
def test_a_job_of_ones_own_folder_trains_on_a_node_that_never_saw_it(tmp_path: Path) -> None:
    """The folder lies in the first node's /tmp; the parts run on the second, which gets it from Ray."""
    with nodes(2, shared=tmp_path, cpus=3, dashboard=True) as cluster:
        cluster.fill(1, cpus=3)
        new_world = cluster.run(["python", "-m", "launch", "new", "world", "lamp_hall", "--output", "/tmp"])
        assert new_world.code == 0, new_world.output
        cluster.sh(1, "mkdir /tmp/job && mv /tmp/lamp_hall /tmp/job")
        submit = ["ray", "job", "submit", "--address", "http://127.0.0.1:8265", "--working-dir", "/tmp/job", "--"]
        short = ["stages.sft.steps=2", "stages.rl.steps=2", "stages.rl.loop.groups_per_step=2", "eval.tasks=2"]
        train = ["python", "-m", "launch", "train", "lamp_hall/lamp_hall.yaml", "--run-dir", str(tmp_path / "run")]
        result = cluster.run([*submit, *train, *short], timeout=600)
        assert result.code == 0, result.output[-3000:]
        assert "No such file" in cluster.sh(2, "ls /tmp/job || true")
    assert summary(tmp_path / "run")["status"] == "done"
    progress = [line for line in result.output.splitlines() if re.match(r"\[ *[0-9]+:[0-9]{2}\] ", line)]
    assert sum("step 2/2" in line for line in progress) == 2
    assert "\x1b[" not in "".join(progress) and "\r" not in result.output  # no terminal: no colours, no clock


pytestmark = pytest.mark.e2e
