"""What deploy/ holds agrees with KubeRay's schemas, with the locks and with what a recipe needs. Nothing is started."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from launch.checks import cpu_memory, model_size
from launch.checks.machine import END_S, STOP_WAIT
from launch.config.compose import compose
from launch.tools.plan.memory import plan_memory
from launch.tools.plan.nodes import parse_nodes
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.system.device import DEVICES, resolve_run
from tests.paths import ROOT

DEPLOY = ROOT / "deploy"
SCHEMAS = ROOT / "tests" / "data" / "kuberay"
MANIFESTS = {"rayjob": "rayjobs", "raycluster": "rayclusters"}
UNITS = {"Gi": 2**30}
MODES = {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"}  # the schema takes any string
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix() for path in DEPLOY.rglob("*.s*") if path.suffix in {".sh", ".sbatch"}
)


@cache
def manifest(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "kuberay" / f"{name}.yaml").read_text())


@cache
def schema(name: str) -> Any:
    return close(json.loads(gzip.decompress((SCHEMAS / f"{name}.v1.json.gz").read_bytes())))


def close(part: Any) -> Any:
    """Every object with named properties takes no other, as the cluster's own check of unknown fields does."""
    if isinstance(part, list):
        return [close(element) for element in part]
    if not isinstance(part, dict):
        return part
    closed = {key: close(value) for key, value in part.items()}
    if isinstance(part.get("properties"), dict) and part.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def problems(name: str, document: Any) -> Iterator[str]:
    for error in jsonschema.Draft202012Validator(schema(name)).iter_errors(document):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


def cluster_of(name: str) -> Any:
    return manifest(name)["spec"]["rayClusterSpec"] if name == "rayjob" else manifest(name)["spec"]


def pods(name: str) -> Iterator[tuple[Any, Any, Any]]:
    """(group, pod, container) of the head and of every group of workers."""
    cluster = cluster_of(name)
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        yield group, pod, container


def size(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


def shared_memory(pod: Any) -> int:
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
    assert volume["emptyDir"]["medium"] == "Memory"
    return size(volume["emptyDir"]["sizeLimit"])


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunConfig:
    """What the job's command trains, as it is resolved on GPUs."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    words = shlex.split(manifest("rayjob")["spec"]["entrypoint"])
    assert words[:2] == ["rlsys", "train"] and "--run-dir" in words
    overrides = [word for word in words[3:] if re.match(r"[a-z_.]+=", word)]
    return resolve_run(compose(words[2], overrides), DEVICES["cuda"])


@pytest.fixture
def recipe(config: RunConfig) -> RecipeConfig:
    return config.recipe


each_manifest = pytest.mark.parametrize("name", MANIFESTS)


@each_manifest
def test_a_manifest_is_what_the_schema_of_kuberay_allows(name: str) -> None:
    assert list(problems(MANIFESTS[name], manifest(name))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "shutdownAfterJobFinish"], True),
        (["spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"], "two"),
        (["spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0, "resources", "limit"], {}),
    ],
)
def test_a_misspelt_field_is_named_with_its_path(path: list[str | int], value: object) -> None:
    document = json.loads(json.dumps(manifest("rayjob")))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (problem,) = problems("rayjobs", document)
    assert str(path[-1]) in problem


def test_the_schemas_are_those_that_their_page_names() -> None:
    page = (SCHEMAS / "README.md").read_text()
    for name in MANIFESTS.values():
        digest = hashlib.sha256(gzip.decompress((SCHEMAS / f"{name}.v1.json.gz").read_bytes())).hexdigest()
        assert re.search(rf"{name}\.v1\.json\.gz.*{digest}", page)


def test_both_manifests_describe_the_same_pods() -> None:
    assert cluster_of("rayjob") == cluster_of("raycluster")


def test_a_job_is_submitted_once_and_ended_in_order(recipe: RecipeConfig) -> None:
    spec = manifest("rayjob")["spec"]
    assert spec["submissionMode"] in MODES and spec["submissionMode"] == "K8sJobMode"
    assert spec["backoffLimit"] == 0 and spec["submitterConfig"]["backoffLimit"] == 0
    assert spec["shutdownAfterJobFinishes"] is True and spec["ttlSecondsAfterFinished"] > 0
    assert spec["preRunningDeadlineSeconds"] > 0 and spec["activeDeadlineSeconds"] > 0
    stop_s = recipe.checkpoint.stop_deadline_s + END_S
    variables = yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]
    assert float(variables[STOP_WAIT]) >= stop_s
    for _, pod, container in pods("rayjob"):
        assert pod["terminationGracePeriodSeconds"] >= stop_s
        hook = container["lifecycle"]["preStop"]["exec"]["command"]
        assert (ROOT / Path(hook[1]).relative_to("/opt/rlsys")).is_file()


@each_manifest
def test_workers_come_all_or_none_and_hold_every_gpu_of_the_run(name: str, recipe: RecipeConfig) -> None:
    (head, *_), *workers = pods(name)
    assert head["rayStartParams"]["num-gpus"] == "0"
    gpus = cpus = 0
    for group, _, container in workers:
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        gpus += group["replicas"] * int(container["resources"]["limits"]["nvidia.com/gpu"])
        cpus += group["replicas"] * int(container["resources"]["limits"]["cpu"])
    engines = recipe.rollout.workers
    assert gpus == recipe.learner.ranks + engines * recipe.engine.tensor_parallel == 16
    assert cpus >= recipe.learner.ranks * (recipe.learner.threads or 1) + engines * (recipe.rollout.threads or 1)


@each_manifest
def test_sizes_are_those_that_the_plan_of_the_recipe_prints(name: str, config: RunConfig) -> None:
    plan = plan_memory(config, parse_nodes("2x8xA100-80G"))
    assert plan.problem is None
    rows = {row.name: row for row in plan.rows}
    store = model_size.store_bytes(config.recipe, DEVICES["cuda"])
    assert rows["/dev/shm"].needed == pytest.approx(
        4 * 7.62e9 + 8 * 2**30, rel=1e-3
    )  # 2 versions in 2 bytes, the store
    printed = re.search(r"--shm-size=(\d+)g", rows["/dev/shm"].note)
    assert printed is not None
    for group, pod, container in pods(name):
        assert int(group["rayStartParams"]["object-store-memory"]) == store
        memory = size(container["resources"]["limits"]["memory"])
        if group is cluster_of(name)["headGroupSpec"]:
            assert shared_memory(pod) == store + 2**30
            assert memory > shared_memory(pod) + cpu_memory.DRIVER_MB * 2**20
        else:
            assert shared_memory(pod) == int(printed[1]) * 2**30
            assert memory > shared_memory(pod) + max(rows["reading"].needed, rows["host"].needed)


@each_manifest
def test_pods_run_as_the_user_of_the_image_with_what_a_sandbox_needs(name: str) -> None:
    user = int(image_user("gpu").partition(":")[0])
    for _, pod, container in pods(name):
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == user
        allowed = container["securityContext"]
        assert allowed["seccompProfile"] == allowed["appArmorProfile"] == {"type": "Unconfined"}
        assert not allowed.get("privileged") and allowed["capabilities"] == {"drop": ["ALL"]}
        secrets = [volume for volume in pod["volumes"] if "secret" in volume]
        assert secrets and not any("valueFrom" in variable for variable in container["env"])


@each_manifest
def test_the_cluster_runs_the_locked_ray_behind_a_token(name: str) -> None:
    cluster = cluster_of(name)
    assert cluster["authOptions"] == {"mode": "token"}
    for lock in ("cpu", "gpu"):
        assert f"\nray=={cluster['rayVersion']}\n" in (ROOT / "launch" / "locks" / f"{lock}.txt").read_text()


def image_user(device: str) -> str:
    (user,) = re.findall(r"(?m)^USER (\S+)$", (DEPLOY / f"Containerfile.{device}").read_text())
    return str(user)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_an_image_is_made_of_its_lock_and_says_its_commit(device: str) -> None:
    text = (DEPLOY / f"Containerfile.{device}").read_text()
    assert f"COPY launch/locks/{device}.txt" in text and "--no-deps" in text
    assert 'revision="${COMMIT}"' in text and text.rstrip().endswith('ENTRYPOINT ["rlsys"]')
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", image_user(device))  # a number, and not root's
    assert text.index("launch/locks") < text.index("COPY . ")  # the packages are a layer of their own


def test_images_differ_in_base_lock_and_index_alone() -> None:
    cpu, gpu = ((DEPLOY / f"Containerfile.{image}").read_text().splitlines() for image in ("cpu", "gpu"))
    words = re.compile(r"^#|^ARG (BASE|TORCH_INDEX)|torch|launch/locks|--extra-index-url|pip install --no-cache-dir")
    steps = [[line for line in lines if line and not words.search(line)] for lines in (cpu, gpu)]
    assert steps[0] == steps[1]


def test_secrets_caches_and_runs_stay_out_of_images() -> None:
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    assert {"**/.git", "**/.venv", "runs", "data", "outputs"} <= set(ignored)
    assert os.readlink(ROOT / ".dockerignore") == ".containerignore"  # docker reads that name


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck on this machine")
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_shell_script_passes_shellcheck(script: str) -> None:
    result = subprocess.run(["shellcheck", script], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


FAKE_CLIENT = """
import os, time
from types import SimpleNamespace
time.sleep = lambda _: None
class JobSubmissionClient:
    def __init__(self, address):
        assert not {"RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"} & os.environ.keys()
        self.asked, self.left = 0, ["a", "b"]
    def list_jobs(self):
        self.asked += 1
        if self.asked == 2:
            raise LookupError("for a moment")
        return [SimpleNamespace(submission_id=each, status="RUNNING") for each in self.left]
    def stop_job(self, job):
        print("stopped", job)
        if job == "a" and self.asked == 1:
            raise ValueError("not now")
        self.left.remove(job)
"""


def test_the_hook_stops_every_job_though_a_request_fails(tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").touch()
    (tmp_path / "ray" / "job_submission.py").write_text(FAKE_CLIENT)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "RAY_ADDRESS": "x", "RAY_API_SERVER_ADDRESS": "y"}
    hook = [sys.executable, str(DEPLOY / "kuberay" / "stop_jobs.py")]
    result = subprocess.run(hook, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("stopped")] == [
        "stopped a", "stopped a", "stopped b"
    ]  # fmt: skip


FAKE_SLURM = {
    "scontrol": "echo localhost",
    "srun": 'while [ "$1" != bash ]; do shift; done; exec "$@"',
    # Ray, while it waits for its nodes: the task is signalled, and the driver starts afterwards; on the node where it
    # is to be stopped, once that is noted.
    "ray": 'kill -TERM "$PPID"; sleep 0.3; until [ "$SLURM_NODEID" = 1 ] || [ -e "$DRIVER.stop" ]; do sleep 0.1; done; '
    'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "rlsys": 'touch "$STARTED"',
}


@pytest.mark.parametrize(("node", "code"), [("0", 143), ("1", 1)])
def test_a_signal_before_the_driver_exists_stops_it_on_its_own_node(tmp_path: Path, node: str, code: int) -> None:
    """On another node nothing is stopped; there the driver of this test starts, and leaves no exit code."""
    for name, line in FAKE_SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "2"}
    paths = {"TMPDIR": str(tmp_path), "STARTED": str(tmp_path / "started"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment = {**os.environ, **job, **paths, "SLURM_NODEID": node, "RAY_AUTH_TOKEN": "f" * 64}
    script = ["bash", str(DEPLOY / "slurm" / "rlsys.sbatch"), "quickstart", str(tmp_path / "run")]
    result = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == code, result.stderr
    assert (tmp_path / "started").exists() == (node == "1")
