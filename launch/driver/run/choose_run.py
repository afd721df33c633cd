"""Which run directory a command line means, and whether its files are trusted."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from launch.checks.machine import inside_ray_job
from rlsys.errors import BadInput


def choose_run_dir(
    name: str, config: str, run_dir: str | None, must_resume: bool, reread: Callable[[Path], str] | None = None
) -> Path:
    """`--run-dir`, else the newest unfinished runs/NAME of this very configuration, else the next free runs/NAME-N.

    name: of the recipe. config: the text of the configuration, as a run directory keeps it. reread: a saved one, as it
    would be written today: an earlier rlsys had fewer keys. It may raise BadInput.
    """
    if inside_ray_job() and (run_dir is None or not Path(run_dir).is_absolute()):
        raise BadInput(
            "inside a Ray job give an absolute --run-dir on shared storage: "
            "a relative one vanishes with the job's folder"
        )
    if run_dir is not None:
        path = Path(run_dir).resolve()  # actors work elsewhere
        if must_resume and not path.is_dir():
            raise BadInput(f"there is no run directory {run_dir}", key="--resume")
        return path
    base = Path("runs").resolve() / name
    number, path = 1, base
    while path.exists():
        saved, summary = path / "config.yaml", path / "summary.json"
        finished = summary.is_file() and b'"status": "done"' in summary.read_bytes()
        if saved.is_file() and not finished and _same(saved, config, reread):
            return path
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    if must_resume:
        raise BadInput(
            f"no unfinished run of this configuration under {base.parent}/; give its --run-dir", key="--resume"
        )
    return path


def _same(saved: Path, config: str, reread: Callable[[Path], str] | None) -> bool:
    if saved.read_bytes() == config.encode():
        return True
    with suppress(BadInput):
        return reread is not None and _trains(reread(saved)) == _trains(config)
    return False


def _trains(config: str) -> str:
    """Without `about`, which has no effect on a run: what a later version says of a recipe makes no other run of it."""
    return re.sub(r"^about:.*\n(?: .*\n)*", "", config, count=1, flags=re.MULTILINE)


def refuse_foreign(path: Path) -> None:
    """Raises BadInput for a run that another user began, or whose checkpoints hold a file of another user.

    To continue it is to import the modules that its config.yaml names and to hand its files to many parsers.
    """
    saved, files = path / "config.yaml", list((path / "checkpoints").rglob("*"))
    if not saved.is_file() and not files:
        return  # nothing was begun in it
    for file in (path, saved, *files):
        try:
            owner = file.stat().st_uid
        except OSError:  # a link to nothing or to itself, or gone meanwhile
            continue
        if owner not in trusted_owners():
            subject = "it" if file == path else file.relative_to(path)
            raise BadInput(
                f"{subject} belongs to {_user(owner)}: copy the run to continue it, or say that you trust "
                "whoever wrote it with --trust-run-dir (docs/trust.md)",
                key="--run-dir",
                found=path,
            )


def trusted_owners() -> tuple[int, ...]:
    """Ourselves, and root, who can do anything here already."""
    return (os.geteuid(), 0)


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"
