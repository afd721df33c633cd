"""An incident of a run in progress, collected from outside: of one that hangs and says nothing."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import yaml

from launch.checks.shareable import Hider, known_secrets
from launch.driver.incidents.collect import Request, collect
from launch.driver.incidents.facts import Facts, write_facts
from launch.driver.incidents.folder import make_folder
from launch.driver.incidents.processes import environments, find_driver
from launch.run_dir.rows import read_last_step
from rlsys.config.output import IncidentsConfig
from rlsys.errors import BadInput
from rlsys.system.parts import owner_of

ASKED = "asked"


def collect_now(run: Path) -> Path:
    """The new folder. Raises BadInput where no process of the run can be looked at, and OSError."""
    driver = find_driver(run)
    if driver is None:
        raise BadInput(
            "no process of this machine that we may look at works in it",
            where=run,
            expected="a run in progress, on the node of its driver and as its user",
        )
    step, stage, text = last_sign(run)
    folder = make_folder(run, step, ASKED, "run", max(1, max_incidents(run)))
    write_facts(folder, Facts(kind=ASKED, who="run", text=text, time=time.time(), step=step, stage=stage))
    collect(Request(folder=folder, run=run, driver=driver, named=tuple(named_secrets(run))))
    return folder


def collect_after(run: Path, driver: int, reason: str) -> Path | None:
    """Of a run whose driver, of that pid, is gone. None where the run keeps no incidents."""
    if not (keep := max_incidents(run)):
        return None
    step, stage, text = last_sign(run)
    folder = make_folder(run, step, "failed", "run", keep)
    description = f"{reason} {text}"
    write_facts(folder, Facts(kind="failed", who="run", text=description, time=time.time(), step=step, stage=stage))
    collect(Request(folder=folder, run=run, driver=driver, named=tuple(named_secrets(run))))
    return folder


def hider_of(run: Path) -> Hider:
    """Of what this machine and the run's configuration know to be secret."""
    driver = find_driver(run)
    return Hider(known_secrets(environments(owner_of(driver if driver is not None else -1)), named_secrets(run)))


def last_sign(run: Path) -> tuple[int, str, str]:
    """Steps that were taken, the stage, and how long ago the last row was written."""
    row = read_last_step(run)
    if row is None or not row.time:
        return 0, "", "No step has ended yet."
    return row.step, row.stage, f"The last step, {row.step}, ended {time.time() - row.time:.0f} s ago."


def named_secrets(run: Path) -> list[str]:
    """The variables that config.yaml names in a key_env or a token_env."""
    with suppress(OSError, yaml.YAMLError, RecursionError):
        return sorted(_named(yaml.safe_load((run / "config.yaml").read_text())))
    return []


def _named(value: object, key: str = "") -> set[str]:
    if isinstance(value, dict):
        return {variable for name, child in value.items() for variable in _named(child, str(name))}
    if isinstance(value, list):
        return {variable for child in value for variable in _named(child, key)}
    return {value} if isinstance(value, str) and key.endswith(("key_env", "token_env")) else set()


def max_incidents(run: Path) -> int:
    """`incidents.keep` of the run."""
    with suppress(OSError, yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
        return int(yaml.safe_load((run / "config.yaml").read_text())["incidents"]["keep"])
    return IncidentsConfig().keep
