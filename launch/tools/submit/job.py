"""A run as a Ray job: its command, its environment, and the `ray job submit` that does the same."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.checks.machine import STOP_WAIT
from rlsys.errors import BadInput

OVERRIDING = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # Ray's client prefers them to the address that it is given
AUTH_MODE = "RAY_AUTH_MODE"
RUN_DIR = "rlsys_run_dir"  # of the job's metadata
URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^/:@\s\[\]]+):([0-9]{1,5})/?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    id: str
    address: str  # "http://10.0.0.1:8265"
    folder: Path  # the working folder
    upload: bool  # False: every node sees the folder in the same place
    train: tuple[str, ...]  # of `python -m launch`
    run_dir: str
    stop_wait: int  # seconds from Ray's SIGTERM to its SIGKILL

    @property
    def command(self) -> tuple[str, ...]:
        """What runs on the head node. `python` is the one that `ray start` found there."""
        argv = ("python", "-m", "launch", *self.train)
        return argv if self.upload else ("bash", "-c", f"cd {shlex.quote(str(self.folder))} && exec {shlex.join(argv)}")

    @property
    def environment(self) -> dict[str, object]:
        """Ray's runtime_env. Ray writes it into its logs: no key, no token and no password is in it."""
        uploaded = {"working_dir": str(self.folder)} if self.upload else {}
        return {**uploaded, "env_vars": {STOP_WAIT: str(self.stop_wait)}}

    @property
    def metadata(self) -> dict[str, str]:
        """What Ray's dashboard shows, and `--attach` reads."""
        return {"rlsys_run": Path(self.run_dir).name, RUN_DIR: self.run_dir}


def name_job(run_dir: str, seed: int, suffix: str) -> str:
    """An id that says which run it is: "rlsys-r1-seed1-7f3a"."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(run_dir).name).strip("-.") or "run"
    return f"rlsys-{name}-seed{seed}-{suffix}"


def train_arguments(config: str, run_dir: str, overrides: Sequence[str]) -> tuple[str, ...]:
    return ("train", config, *overrides, "--run-dir", run_dir)


def check_address(address: str | None) -> str:
    """Raises BadInput where it is no URL with a port."""
    expected = "the dashboard of the cluster's head with its port, as in http://10.0.0.1:8265"
    if address is None:
        raise BadInput("is needed", key="--address", expected=expected)
    match = URL.fullmatch(address)
    if match is None or not 1 <= int(match[2]) <= 65535:
        redacted = re.sub(r"//.*@", "//...@", address)  # what stands there may be a password
        raise BadInput(key="--address", found=redacted, expected=expected)
    return address.rstrip("/")


def check_run_dir(run_dir: str | None) -> str:
    """Raises BadInput for one that every node would look for in another place."""
    expected = "an absolute path on storage that all nodes share"
    if run_dir is None:
        raise BadInput("is needed", key="--run-dir", expected=expected)
    if not Path(run_dir).is_absolute():
        raise BadInput(key="--run-dir", found=run_dir, expected=expected)
    return run_dir


def check_config_files(config: str, files: Sequence[Path], folder: Path, shipped: Path, *, upload: bool) -> str:
    """The name of the config in the job. Raises BadInput for a file that the job would not find.

    files: the config and those that it extends. shipped: the folder of the recipes that are part of rlsys.
    """
    if not upload:
        return config if files[0].is_relative_to(shipped) and not Path(config).exists() else str(files[0].resolve())
    for file in files:
        if not any(file.resolve().is_relative_to(root.resolve()) for root in (folder, shipped)):
            way = f"copy it below {folder}, or start from a folder that contains it, or --no-upload"
            raise BadInput(f"is outside of the folder that is uploaded ({folder}): {way}", where=file)
    if Path(config).is_absolute() and files[0].resolve().is_relative_to(folder.resolve()):
        return str(files[0].resolve().relative_to(folder.resolve()))
    return config


def describe_command(job: Job, environment: Mapping[str, str]) -> str:
    """The same as a line for a shell. environment: of this process, whose variables Ray's client would read."""
    unset = [word for name in OVERRIDING if name in environment for word in ("-u", name)]
    start = [*(["env", *unset] if unset else [])]
    start += [f"{AUTH_MODE}={environment[AUTH_MODE]}"] if AUTH_MODE in environment else []
    folder = ["--working-dir", "."] if job.upload else []
    env = json.dumps({"env_vars": job.environment["env_vars"]})
    first = [*start, "ray", "job", "submit", "--address", job.address, "--submission-id", job.id, *folder]
    second = ["--runtime-env-json", env, "--metadata-json", json.dumps(job.metadata), "--"]
    return " \\\n  ".join(map(shlex.join, (first, second, job.command)))
