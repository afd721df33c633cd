"""`run.json`: what was run, by which code, on what hardware and data, written before the first actor starts.

One attempt for each process that worked in the run directory. It is sent to others, with the report: no name of a host
or of a user, no variable of the environment, no home folder and no secret is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from launch.checks import model_size
from launch.checks.hardware import Machine, look_at_machine
from launch.checks.shareable import redact_arguments, without_home
from launch.checks.software import describe_software
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput, describe_error
from rlsys.files import replace_file
from rlsys.jsonl import json_object

log = logging.getLogger("rlsys.record")
RUN = "run.json"
FORMAT = 1
WHOLE_BYTES = 2**30  # a larger data file is sampled: its digest would keep a disk busy for minutes
PIECES, PIECE = 256, 2**20  # of a larger one
NO_DATA = ("model", "cluster", "wandb", "about")  # sections that name no data
WRITTEN = ("cache_file", "index")  # keys of files that a run itself may write


class RunRecord:
    """A fault boundary: what cannot be recorded is one line of the log, and the run continues."""

    def __init__(self, path: Path, head: Mapping[str, Any], attempt: Mapping[str, Any]) -> None:
        """Write `path`, with one attempt more than it holds. Raises OSError where it cannot be written."""
        self.path = path
        self._lock = threading.Lock()  # the digests come from a thread
        self._attempt = dict(attempt)
        self._whole = {**head, "attempts": [*earlier_attempts(path), self._attempt]}
        self._write()

    def update(self, **facts: Any) -> None:
        """What is known by now of this attempt."""
        try:
            with self._lock:
                self._attempt.update(facts)
                self._write()
        except OSError as error:
            log.warning("%s is not complete: %s", self.path, describe_error(error))

    def digest_data(self, files: Mapping[str, Sequence[Path]]) -> None:
        """In a thread that ends with the process: data of 100 GB must delay nothing."""
        threading.Thread(target=self._digest, args=(files,), name="digests", daemon=True).start()

    def _digest(self, files: Mapping[str, Sequence[Path]]) -> None:
        for name, paths in files.items():
            try:
                digest = digest_files(paths)
            except OSError as error:
                log.warning("no digest of %s: %s", name, describe_error(error))
                continue
            self.update(data={**self._attempt["data"], name: digest})

    def _write(self) -> None:
        replace_file(self.path, json.dumps(self._whole, indent=1, ensure_ascii=False) + "\n")


def begin_record(
    folder: Path,
    config: RunConfig,
    text: str,
    step: int,
    overrides: Sequence[str],
    facts: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> RunRecord:
    """Of a run that begins or is continued. text: its configuration as YAML. facts: of data files that have a digest
    (`refuse_exchanged`); the others are digested while the run begins."""
    recipe, files = config.recipe, data_files(text)
    head = {
        "format": FORMAT,
        "recipe": recipe.name,
        "name": recipe.name,
        "seed": recipe.seed,
        "parameters": model_size.parameters(recipe),
    }
    now = time.time()
    attempt = {
        "time": round(now, 3),
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "from_step": step,
        "command": redact_arguments(["rlsys", *sys.argv[1:]]),
        "overrides": redact_arguments(overrides),
        **describe_software(),
        "nodes": place_parts([], [], {}),
        "data": {
            name: facts.get(name) or {"sha256": None, "bytes": sum(map(_size, paths))} for name, paths in files.items()
        },
    }
    record = RunRecord(folder / RUN, head, attempt)
    record.digest_data({name: paths for name, paths in files.items() if name not in facts})
    return record


def earlier_attempts(path: Path) -> list[Any]:
    """Those of a record that can be read. One that cannot is no reason to refuse a run that can be continued."""
    if not path.exists():
        return []
    try:
        attempts = json_object(path.read_bytes().replace(b"\n", b" "), str(path)).get("attempts")
        if isinstance(attempts, list):
            return attempts
        raise BadInput("no list of attempts", where=path)
    except (BadInput, OSError) as error:
        log.warning("the earlier attempts of this run are lost: %s", describe_error(error))
        return []


def place_parts(
    names: Sequence[str], placed: Sequence[str], machines: Mapping[str, Machine], *, driver: str = ""
) -> list[dict[str, Any]]:
    """The nodes by number, the driver's first, each with the parts of the run that are on it.

    placed: the node of each name, by its id; empty where all are on this machine. machines: what each node has; the
    driver's is looked at where it is not among them.
    """
    parts: dict[str, list[str]] = {driver: ["driver"]}
    for name, node in zip(names, placed or [driver] * len(names), strict=True):
        parts.setdefault(node, []).append(name)
    known = machines if driver in machines else {**machines, driver: look_at_machine()}
    facts = {node: machine.describe() for node, machine in known.items()}
    return [
        {"name": f"node {number}", "driver": node == driver, **facts.get(node, {}), "parts": part_names}
        for number, (node, part_names) in enumerate(parts.items(), start=1)
    ]


# -- data -----------------------------------------------------------------------------------------------------------


def data_files(text: str) -> dict[str, list[Path]]:
    """The local files that a configuration reads, by what it calls them. text: YAML. Data sets of the hub are none."""
    values = yaml.safe_load(text)
    sections = {key: value for key, value in values.items() if key not in NO_DATA}
    template = (values.get("model") or {}).get("chat_template")
    data_paths: dict[str, list[Path]] = {}
    for key, name in (*_texts(sections), *_texts(template, "chat_template")):
        if key in WRITTEN:
            continue
        if os.path.isfile(name):  # any text is asked: of one that is no path, or may not be looked at, this is False
            data_paths[without_home(name)] = [Path(name)]
        elif key in ("data", "eval_data") and os.path.isdir(name):
            inside = (Path(folder, file) for folder, _, files in os.walk(name) for file in files)
            data_paths[without_home(name)] = sorted(path for path in inside if os.path.isfile(path))
    return data_paths


def _texts(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of every text in it; names of a mapping count too: {data: {a.jsonl: 300}}."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            if key == "data":
                yield key, str(name)
            yield from _texts(value, str(name))
    elif isinstance(values, list):
        for value in values:
            yield from _texts(value, key)
    elif isinstance(values, str):
        yield key, values


def digest_files(paths: Sequence[Path]) -> dict[str, Any]:
    """{"sha256": "...", "bytes": 123} of a file; of several, over their digests. "sampled": not every byte was read."""
    digests, total = [], 0
    for path in paths:
        total += (size := _size(path))
        digests.append(digest_file(path, size))
    sampled = {"sampled": True} if any(_size(path) > WHOLE_BYTES for path in paths) else {}
    if len(digests) == 1:
        return {"sha256": digests[0], "bytes": total, **sampled}
    lines = (f"{path.name} {digest}\n" for path, digest in zip(paths, digests, strict=True))
    root_digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    return {"sha256": root_digest, "bytes": total, "files": len(paths), **sampled}


def digest_file(path: Path, size: int) -> str:
    """SHA-256 of its bytes; of a file above a gigabyte, of its size and of 256 pieces that are spread over it."""
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        hasher = hashlib.sha256(f"{size} ".encode())
        for piece in range(PIECES):
            file.seek(piece * (size - PIECE) // (PIECES - 1))
            hasher.update(file.read(PIECE))
        return hasher.hexdigest()


def _size(path: Path) -> int:
    """0 of a file that is gone by now."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
