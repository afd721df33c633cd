"""One checkpoint: where the driver was, and the size and digest of every file that was saved with it.

Neither torch nor safetensors sees a flipped byte, and an engine that loads the same damage agrees with the learner. So
a checkpoint is compared with its digests before anything is trained on it. One that was saved without them is taken as
it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput
from rlsys.files import replace_file
from rlsys.jsonl import json_object, kind_of
from rlsys.seals import OWN, own_digest, with_own_digest

FOLDER = re.compile(r"step-\d{6,}")
STATE = "driver.json"
RESERVE = ".reserve"  # next to the checkpoints: room on a full disk for the end of the journal and the summary
FILES = "files"  # in driver.json: {"hf/config.json": {"bytes": 700, "sha256": "..."}}
CARD = Path("hf") / "README.md"  # for people, who may write in it; an evaluation adds a line to it
READERS = min(8, os.cpu_count() or 1)  # threads: digests of large files take longer than reading them
BLOCK_BYTES = 2**23  # read at once
LONG_BYTES = 2**30  # more is worth a line that says why one waits
RECENT = 1000  # publications whose seconds are remembered
SAY_EVERY_S = 10.0  # while digests are read


class Damaged(BadInput):
    """A file of a checkpoint is not what was saved."""


@dataclass(slots=True, kw_only=True)
class DriverState:
    """Everything the driver needs to continue from a checkpoint; saved as `driver.json`."""

    step: int = 0  # optimizer steps over all stages
    stage_index: int = 0
    stage_step: int = 0
    version: int = 0  # of the weights; counts published versions
    next_sequence: int = 0  # in this stage
    curriculum: dict[str, Any] = field(default_factory=dict)  # by rl stage: what it remembers (rlsys/curriculum.py)
    open_sequences: list[int] = field(default_factory=list)  # started, not trained: started again on resuming
    dull: dict[str, list[float]] = field(default_factory=dict)  # of `SlotBuffer.dull`, by sequence: tokens, mean reward
    sequences: dict[str, int] = field(default_factory=dict)  # by ended rl stage: how many there were
    mark: int = 0  # journal rows that led here
    chain: str = ""  # of the last one of them (`rlsys.seals`)
    wall_s: float = 0.0
    generated: int = 0  # tokens sampled in the episodes that lie in files: of steps, evaluations, generate stages
    discarded: int = 0  # tokens of attempts that broke and were played again
    lost_tokens: int = 0  # tokens that workers had sampled for groups which they did not finish before they died
    trained: int = 0
    lag_max: int = 0
    lag_sum: float = 0.0
    lag_count: int = 0
    reward_first: float | None = None
    reward_last: float | None = None
    published: int = 0  # versions of the weights that went live
    publish_s: list[float] = field(default_factory=list)  # seconds that the last ones took
    restarts: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)  # trajectories by kind; `retried`: broke, tried again
    eval_before: dict[str, float] = field(default_factory=dict)
    eval_after: dict[str, float] = field(default_factory=dict)
    # by "before" and "after": what the numbers are, and by play how many episodes there were, and how many failed
    eval_measure: dict[str, str] = field(default_factory=dict)
    eval_episodes: dict[str, dict[str, int]] = field(default_factory=dict)
    eval_failures: dict[str, dict[str, int]] = field(default_factory=dict)
    # by stage, the same for "before" and "after", or of an eval stage for "eval"
    eval_stages: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    eval_prompts: dict[str, str] = field(default_factory=dict)  # what "before" and "after" played: a digest
    eval_last: dict[str, Any] = field(default_factory=dict)  # of a stage's end: step, prompts, values
    played: dict[str, dict[str, float]] = field(default_factory=dict)  # by generate stage: trajectories, kept, pairs
    reference: list[float] = field(default_factory=list)  # of a dpo stage's held-out answers, when it began
    stage_s: dict[str, float] = field(default_factory=dict)
    health: list[dict[str, Any]] = field(default_factory=list)  # of launch.driver.observe.health: one for each Finding

    def end_stage(self) -> None:
        """The next stage is at its beginning."""
        self.stage_index, self.stage_step, self.next_sequence = self.stage_index + 1, 0, 0
        self.open_sequences, self.dull, self.reference = [], {}, []

    def add_publish(self, seconds: float) -> None:
        before = max(self.published, len(self.publish_s))  # an older checkpoint has them all, and no count
        self.published = before + 1
        self.publish_s = [*self.publish_s[-(RECENT - 1) :], seconds]


def step_of(checkpoint: Path) -> int:
    """ "step-000160", or "aside-step-000160" once a run went back behind it."""
    return int(checkpoint.name.rpartition("-")[2])


def set_aside(checkpoint: Path) -> Path:
    """Under a name that nothing continues and nothing takes: a run may go back behind the same step more than once."""
    free = (checkpoint.with_name(f"aside{n or ''}-{checkpoint.name}") for n in count())
    return checkpoint.rename(next(path for path in free if not path.exists()))


def model_step(model: Path) -> int | None:
    """The step of a run that a model's folder is of: of `checkpoints/step-000160/hf`, or of the best one. None where it
    is of no run."""
    saved = re.fullmatch(r"(aside\d*-)?(best-)?step-\d{6,}", model.parent.name) is not None
    return step_of(model.parent) if saved else None


def write_state(folder: Path, state: DriverState, files: Mapping[str, Mapping[str, Any]] | None) -> None:
    """`driver.json`, which appears whole. files: of `file_digests`; None where the checkpoint was saved without."""
    content: dict[str, Any] = asdict(state)
    if files is not None:
        content = with_own_digest(content | {FILES: dict(files)})
    replace_file(folder / STATE, json.dumps(content, indent=1))


def read_state(folder: Path) -> DriverState:
    """Raises Damaged with the file and what is wrong with it."""
    content = _read(folder)
    defaults = {attribute.name: getattr(DriverState(), attribute.name) for attribute in fields(DriverState)}
    for name, value in content.items():
        if name in (FILES, OWN):
            continue
        if name not in defaults:
            raise Damaged(f"{folder / STATE}: unknown key {name!r}: damaged, or saved by a later rlsys")
        default = 0.0 if defaults[name] is None else defaults[name]
        if kind_of(value) != kind_of(default) and not (value is defaults[name] is None):
            raise Damaged(f"{folder / STATE}: damaged: {name} is {kind_of(value)}, expected {kind_of(default)}")
    return DriverState(**{name: value for name, value in content.items() if name in defaults})


def read_digests(folder: Path) -> dict[str, dict[str, Any]] | None:
    """What `file_digests` said when the files were saved. None where it was not asked for any. Raises Damaged."""
    files: dict[str, dict[str, Any]] | None = _read(folder).get(FILES)
    return files


def file_digests(folder: Path, unwanted: Callable[[], bool] = lambda: False) -> dict[str, dict[str, Any]] | None:
    """Size and digest of every file in `folder` but `driver.json` and the model's card, by its path within.

    None once they are unwanted.
    """
    without = (folder / STATE, folder / CARD)
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path not in without)
    with ThreadPoolExecutor(READERS) as pool:
        hashes = list(pool.map(partial(_digest, unwanted=unwanted), paths))
    if None in hashes:
        return None
    return {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": digest}
        for path, digest in zip(paths, hashes, strict=True)
    }


def verify(folder: Path, say: Callable[[str], None], *, within: str = "") -> bool:
    """Compare the files of a checkpoint with what was saved. within: "hf/" for its model alone.

    Returns False where it was saved without digests. Raises Damaged for the first file that differs, for one that was
    not saved, and for a folder that has the name of another step.
    """
    content = _read(folder)
    files: dict[str, dict[str, Any]] | None = content.get(FILES)
    if model_step(folder / "hf") not in (None, content.get("step")):
        raise Damaged(f"{folder}: damaged: {STATE} is of step {content.get('step')}")
    if files is None:
        if content.get("chain"):  # a run that chains its journal saves digests too
            raise Damaged(f"{folder / STATE}: damaged: the digests of the files are missing")
        return False
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if place.as_posix().startswith(within) and not _is_known(path, place, files):
            raise Damaged(f"{path}: damaged: it is no file of this checkpoint: remove it")
    saved = {name: entry for name, entry in files.items() if name.startswith(within)}
    for name, file in saved.items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{path}: damaged: the file is missing")
        if path.stat().st_size != file["bytes"]:
            raise Damaged(f"{path}: damaged: {path.stat().st_size:,} bytes, {file['bytes']:,} were saved")
    total, compared = sum(entry["bytes"] for entry in saved.values()), 0
    if total > LONG_BYTES:
        say(f"comparing {total / 1e9:.1f} GB of {folder.name} with their digests")
    last = time.monotonic()
    with ThreadPoolExecutor(READERS) as pool:
        for (name, file), digest in zip(saved.items(), pool.map(_digest, map(folder.joinpath, saved)), strict=True):
            if digest != file["sha256"]:
                pool.shutdown(cancel_futures=True)
                raise Damaged(f"{folder / name}: damaged: its bytes are not those that were saved")
            compared += file["bytes"]
            if time.monotonic() - last > SAY_EVERY_S:
                last = time.monotonic()
                say(f"{compared / 1e9:.1f} of {total / 1e9:.1f} GB compared")
    return True


def _is_known(path: Path, name: Path, files: Mapping[str, Any]) -> bool:
    """A folder is what is in it. `.X.tmp` is what a kill leaves of a file that is replaced, `.nfs..` of one in use."""
    if path.is_dir() and not path.is_symlink():
        return True
    leftover = name.name.startswith(".nfs") or name.name in (f".{STATE}.tmp", f".{CARD.name}.tmp")
    return leftover or name in (Path(STATE), CARD) or name.as_posix() in files


def _read(folder: Path) -> dict[str, Any]:
    """`driver.json` as it stands, whole and as it was written."""
    path = folder / STATE
    if not folder.is_dir():
        raise Damaged(f"{folder}: damaged: expected the folder of a checkpoint")
    if path.exists() and not path.is_file():
        raise Damaged(f"{path}: damaged: it is no file")  # to read a pipe would take for ever
    try:
        content = json_object(path.read_bytes(), str(path))
    except OSError as error:
        raise Damaged(f"{path}: damaged: it cannot be read ({error.strerror})") from error
    except BadInput as error:
        raise Damaged(str(error)) from error
    if (OWN in content or FILES in content) and content.get(OWN) != own_digest(content):
        raise Damaged(f"{path}: damaged: its content is not what was saved")
    return content


def _digest(path: Path, unwanted: Callable[[], bool] = lambda: False) -> str | None:
    """None once it is unwanted."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                if unwanted():
                    return None
                digest.update(block)
        return digest.hexdigest()
    except OSError as error:
        raise Damaged(f"{path}: it cannot be read ({error.strerror})") from error
