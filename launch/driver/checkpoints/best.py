"""The best model so far, by a number of an evaluation: `checkpoints/best-step-000040/{hf/, driver.json, best.json}`.

A checkpoint may be removed while its evaluation is running. So it is set apart when that begins, by hard links where
the disk has them, and becomes the best one, or nothing, when the number is known. What is kept is the model alone.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from launch.driver.checkpoints.checkpoint import STATE, set_aside, step_of
from rlsys.files import link_or_copy, remove_tree, rename_synced, replace_file

BEST = re.compile(r"best-step-\d{6,}")
ABOUT = "best.json"


def find_best_model(run: Path) -> Path | None:
    """The folder of the best model of a run directory. None where none was kept."""
    folders = [path for path in (run / "checkpoints").glob("best-step-*") if (path / ABOUT).is_file()]
    return max(folders, key=lambda path: (read_best(path)["value"], step_of(path)), default=None)


def read_best(best: Path) -> dict[str, Any]:
    """{"number": "greedy/accuracy", "value": 0.72, "step": 40}"""
    content: dict[str, Any] = json.loads((best / ABOUT).read_text())
    return content


def copy_best(run: Path, step: int) -> Path | None:
    """The model of a checkpoint, so that it is not removed. None where this step has none."""
    checkpoint, apart = run / "checkpoints" / f"step-{step:06d}", run / "checkpoints" / f".candidate-step-{step:06d}"
    for leftover in (run / "checkpoints").glob(".candidate-*"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    if not checkpoint.is_dir():
        return None
    shutil.copytree(checkpoint / "hf", apart / "hf", copy_function=link_or_copy)
    shutil.copy2(checkpoint / STATE, apart / STATE)
    return apart


def keep_if_best(run: Path, apart: Path, number: str, value: float) -> bool:
    """Make what was set apart the best, if it is; else remove it. The larger number is the better one. Of the same step
    the newer number counts: its evaluation was made again after a kill, or at the beginning of the next stage. What was
    better before the older one is gone by then."""
    folder = find_best_model(run)
    best = read_best(folder) if folder is not None else {}
    if best.get("number") == number and best["step"] != step_of(apart) and best["value"] >= value:
        shutil.rmtree(apart)
        return False
    replace_file(apart / ABOUT, json.dumps({"number": number, "value": value, "step": step_of(apart)}) + "\n")
    final = apart.with_name(f"best-step-{step_of(apart):06d}")
    if final.exists():
        remove_tree(final)
    rename_synced(apart, final)
    for old in (run / "checkpoints").glob("best-step-*"):
        if old != final:
            remove_tree(old)
    return True


def discard_candidate(apart: Path) -> None:
    shutil.rmtree(apart)


def set_aside_best_after(run: Path, step: int) -> list[Path]:
    """Rename the best models of steps after `step`, to which the run went back. Kept, but no longer the best."""
    later = [path for path in (run / "checkpoints").glob("best-step-*") if step_of(path) > step]
    return [set_aside(path) for path in later]
