"""Where a run's processes live, what they are given, and how weights travel between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Optional

from rlsys.errors import BadInput, require, require_bounds

# A part of a name between underscores; of some words also with letters before them, as in PGPASSWORD. Not TOKENS, which
# are counted, and PAT (personal access token) only at the end.
SECRET = re.compile(
    r"(?<![^_])(?:[A-Z0-9]*(?:KEYS?|TOKEN|SECRETS?|PASSW\w*|PASSPHRASES?|CREDENTIALS?)"
    r"|(?:SSH)?PASS|PWD|O?AUTH|CREDS?|PAT$)(?![^_])",
    re.IGNORECASE,
)
LIKE_KEY = re.compile(r"\b(?:sk-|hf_|gh[pousr]_|github_pat_|xox[abp]-|AKIA|eyJ)[\w-]{12,}")  # of well-known services
WITH_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
# Of vLLM and CUDA, set by rlsys for each actor by itself, or relied on as they are by default.
OWN_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_PROCESS_NAME_PREFIX",
    "VLLM_WORKER_MULTIPROC_METHOD",
)


def check_variables(env: Mapping[str, str]) -> None:
    """Raises BadInput, without the value of what may be a secret."""
    for name, value in env.items():
        if SECRET.search(name) or WITH_PASSWORD.search(value) or LIKE_KEY.search(value):
            raise BadInput(
                "Ray writes these into its logs; export the variable on every node, or name it in a key_env "
                "(value not shown)",
                key=f"cluster.env.{name}",
            )
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise BadInput(f"{name!r} is no name of an environment variable", key="cluster.env")
        if name in OWN_VARIABLES or name.startswith("RLSYS_"):
            raise BadInput("rlsys sets it for each actor by itself", key=f"cluster.env.{name}")


@dataclass(frozen=True, kw_only=True)
class WeightsConfig:
    """Delivery of new weights from the learner to the engines."""

    channel: str = "shm"
    """Transport of new weights to the engines. shm: the shared memory of each node; weights travel to other nodes while
    the engines continue to generate."""

    def __post_init__(self) -> None:
        require(self.channel == "shm", "weights.channel", self.channel, "shm")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The Ray cluster of a run: its devices, addresses, memory and environment variables."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the engines and the learner ranks. auto: GPUs if the Ray cluster has them, else the CPU."""
    gpu_memory_gb: Optional[float] = None
    """Memory of one GPU in GB, for the memory check of `--dry-run` and of the start. null: what this machine's GPU
    reports, or 80 on a machine without one."""
    placement: Literal["split", "shared", "sleep"] = "split"
    """Division of the GPUs. split: each rank and each engine has GPUs of its own. shared: one rank and one engine work
    on one GPU at the same time; `engine.gpu_memory_utilization` is the engine's share of it, and the rank has the rest.
    A run whose two parts do not fit is refused. sleep: each GPU has a rank and an engine, which use it in turn: the
    engines sleep while the ranks work, whose states lie in host memory while the engines do."""
    address: Optional[str] = None
    """Address of a running Ray cluster. null: the variable RAY_ADDRESS; if that is not set, a local cluster is
    started."""
    dashboard_port: Optional[int] = None
    """Port of Ray's dashboard on a local cluster. null: no dashboard."""
    placement_timeout_s: float = 60.0
    """Timeout of the placement of all actors, in seconds. Other jobs may have to end first, and an autoscaling cluster
    needs minutes to add a node. It also limits how long the run may have fewer than `rollout.min_workers`."""
    object_store_mb: Optional[int] = None
    """Shared memory of a local cluster's object store, in MiB. Trajectories and batches pass through it. null: 256, and
    8192 with GPUs."""
    scratch_dir: Optional[str] = None
    """Folder on a shared file system in which `rlsys eval` and `rlsys generate` build the policy of a recipe that has
    no model and no run. null: this machine's temporary folder, on a cluster the folder of --output."""
    service_host: Optional[str] = None
    """Address or network interface (eth0) on which the run's own services and weight transfers listen, on each node
    that hosts one. null: the loopback if the cluster has one node, else the node's address. 0.0.0.0: every
    interface."""
    weights_dir: Optional[str] = None
    """Absolute path of the folder on every node for the weights that engines load. Set it to a fast local disk if
    shared memory cannot hold two versions of the weights. null: /dev/shm."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of every actor, such as `{NCCL_SOCKET_IFNAME: ib0, VLLM_LOGGING_LEVEL: INFO}`. Ray writes
    them to its logs, so a name that refers to a key, token, password or secret is refused, and so is a value that looks
    like one."""

    def __post_init__(self) -> None:
        check_variables(self.env)
        port = self.dashboard_port
        require(port is None or 0 < port < 65536, "cluster.dashboard_port", port, "1 to 65535, or null")
        require_bounds(self, "cluster.", "above 0, or null", "gpu_memory_gb")
        require_bounds(self, "cluster.", "above 0", "placement_timeout_s")
        enough = self.object_store_mb is None or self.object_store_mb >= 80
        require(enough, "cluster.object_store_mb", self.object_store_mb, "at least 80, or null")
        is_absolute = self.weights_dir is None or self.weights_dir.startswith("/")
        require(is_absolute, "cluster.weights_dir", self.weights_dir, "a whole path, or null")
