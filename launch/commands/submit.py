"""`rlsys submit`: a run as a job of a Ray cluster, with everything checked here that can be."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from launch.checks.machine import smallest_device, stop_wait_s
from launch.config.compose import compose, to_yaml
from launch.config.layers import CONFIGS, list_files
from launch.driver.checkpoints.stop_time import stop_deadline_s
from launch.driver.observe.progress import Bar
from launch.tools.submit import folder as folders
from launch.tools.submit import job as jobs
from launch.tools.submit.server import Server, use_token
from launch.tools.submit.session import follow_job, stop_job, ways
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput

HELP = "submit a run to a Ray cluster as a job, follow its log, and end with its exit code"
EXAMPLES = """examples:
  rlsys submit quickstart --address http://10.0.0.1:8265 --run-dir /shared/runs/r1 seed=1
  rlsys submit quickstart --address http://10.0.0.1:8265 --run-dir /shared/runs/r1 --dry-run    the equivalent command
  rlsys submit --address http://10.0.0.1:8265 --attach rlsys-r1-seed1-7f3a                    follow a job again
  rlsys submit --address http://10.0.0.1:8265 --stop rlsys-r1-seed1-7f3a                      stop it: it saves first

exit codes: those of `rlsys train` (0 done, 1 failed, 2 refused, 143 stopped); 130: Ctrl-C detached, the job continues
"""
DATA_KEYS = ("data", "eval_data", "path", "corpus", "index")  # of a configuration, that may name files


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a name under configs/ (quickstart) or a path to a YAML file"
    )
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="override a key of the config")
    parser.add_argument("--address", metavar="URL", help="the cluster's dashboard, as in http://10.0.0.1:8265")
    parser.add_argument("--run-dir", metavar="D", help="absolute path of the run directory, on storage of all nodes")
    parser.add_argument(
        "--follow",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="print the job's log until it ends (default); Ctrl-C detaches, twice stops the job",
    )
    parser.add_argument(
        "--no-upload",
        action="store_true",
        help="run in this folder, which every node sees in the same place, and send nothing",
    )
    parser.add_argument("--dry-run", action="store_true", help="check, print the equivalent `ray job submit`, and end")
    parser.add_argument("--attach", metavar="ID", help="follow a job that was submitted before")
    parser.add_argument("--stop", metavar="ID", help="stop a job: it saves a checkpoint first")


def run(options: argparse.Namespace) -> int:
    actions = [name for name in ("attach", "stop") if getattr(options, name) is not None]
    if actions and options.config is not None or len(actions) > 1:
        raise BadInput("stands alone, with --address", key=f"--{actions[0]}")
    address = jobs.check_address(options.address)
    if options.attach is not None:
        use_token()
        server = Server(address)
        return follow_job(server, options.attach, server.state(options.attach).run_dir)
    if options.stop is not None:
        use_token()
        return stop_job(Server(address), options.stop)
    if options.config is None:
        raise BadInput("is needed, or --attach or --stop", key="CONFIG")
    return submit(options, address)


def submit(options: argparse.Namespace, address: str) -> int:
    run_dir = jobs.check_run_dir(options.run_dir)
    config = compose(options.config, options.overrides)
    folder = Path.cwd()
    name = jobs.check_config_files(
        options.config, list_files(options.config), folder, CONFIGS, upload=not options.no_upload
    )
    limit_s = stop_deadline_s(config, smallest_device(config.recipe.cluster))
    job = jobs.Job(
        id=jobs.name_job(run_dir, config.recipe.seed, secrets.token_hex(2)),
        address=address,
        folder=folder,
        upload=not options.no_upload,
        train=jobs.train_arguments(name, run_dir, options.overrides),
        run_dir=run_dir,
        stop_wait=stop_wait_s(limit_s),
    )
    token = use_token()
    upload = check_upload(folder, config) if job.upload else f"runs in {folder}, nothing is uploaded"
    if options.dry_run:
        print(jobs.describe_command(job, os.environ))
        return 0
    server = Server(address)
    if job.upload and (shared := server.shared_machine()) is not None:
        raise BadInput(
            f"two nodes of the cluster are on one machine ({shared}): Ray unpacks the folder a second time under the "
            "running job; --no-upload runs it in this folder"
        )
    print(f"checked: config, {upload}, run directory absolute{describe_run_dir(run_dir)}, {token}", flush=True)
    server.submit(job)
    print(
        f"job {job.id} submitted. Stop it: rlsys submit --stop {job.id} --address {address}; it saves within "
        f"{limit_s:g} s of that",
        flush=True,
    )
    if not options.follow:
        print(ways(address, job.id))
        return 0
    return follow_job(server, job.id, run_dir)


def check_upload(folder: Path, config: RunConfig) -> str:
    """What is sent, in words. Raises BadInput where it is too large, or lacks the data."""
    with Bar() as show:
        upload = folders.measure_upload(folder, show)
    folders.check_size(upload, folder)
    folders.check_uploaded(dict(paths_in(yaml.safe_load(to_yaml(config)))), upload, folder)
    ignore = ".rayignore; " if (folder / ".rayignore").is_file() else ""
    return f"{upload.size / 1e6:.1f} MB to upload ({ignore}{upload.files:,} files)"


def paths_in(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Keys of a configuration that may name files, with what they name."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from paths_in(value, f"{above}{key}.")
        elif key == "stages":
            for stage in value:
                yield from paths_in(stage, f"stages.{stage['name']}.")
        elif key in DATA_KEYS and isinstance(value, str):
            yield f"{above}{key}", value


def describe_run_dir(run_dir: str) -> str:
    path = Path(run_dir)
    if not any(above.is_dir() for above in path.parents if above.parent != above.parent.parent):
        return " (not to be seen from here)"  # no more of it than its first folder, which many machines have
    return "" if path.exists() else " and new"
