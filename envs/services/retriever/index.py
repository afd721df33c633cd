"""The folder of an index: built by `rlsys index`, resumable at any kill, refused when it belongs to something else.

    DIR/bm25/index.json, *.npy, vocab.index.json, params.index.json     made as DIR/bm25.part
    DIR/dense/vectors.json      which corpus and encoder the vectors belong to; written first
    DIR/dense/vectors.f32       one row per passage, in order; only ever appended to, so its length is the progress
    DIR/dense/index.faiss, index.json

`index.json` is written last, by an atomic rename: what has one is whole. Vectors are kept after the build: another
`faiss` key is then built without encoding again. They may be deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.services.retriever.corpus import Corpus
from rlsys.errors import BadInput

Progress = Callable[[str, int, int], None]  # what is done, how many, of how many
Facts = dict[str, Any]  # what an index belongs to: JSON

FORMAT = 1
COMPLETE = "index.json"


def index_facts(corpus: Corpus, **more: Any) -> Facts:
    return {"format": FORMAT, "corpus": asdict(corpus.fingerprint), **more}


def no_progress(subject: str, num_done: int, total: int) -> None:
    """For callers that show no progress."""


def write_facts(path: Path, facts: Facts) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(facts, indent=2) + "\n")
    os.replace(part, path)


def check_facts(path: Path, expected: Facts) -> None:
    """Raises BadInput where the stored facts are not the expected ones; more facts may be stored."""
    where = f"index {path.parent.parent} ({path.parent.name})"
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError as error:
        partial = path.parent.exists() or path.parent.with_suffix(".part").exists()
        detail = (
            "is not finished: run the same `rlsys index` again" if partial else "does not exist: `rlsys index` makes it"
        )
        raise BadInput(f"{where} {detail}") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path.name} cannot be read ({error})", where=where) from error
    for key, value in expected.items():
        stored_value = stored.get(key) if isinstance(stored, dict) else None
        if key == "encoder" and isinstance(stored_value, dict) and stored_value.get("identity") == value["identity"]:
            continue  # the same weights from another folder
        if stored_value != value:
            built, expected_one = _format_facts(key, stored_value), _format_facts(key, value)
            raise BadInput(f"{where} was built with {key} {built}", expected=f"{expected_one}; give another --index")


@contextmanager
def damage_as_bad_input(directory: Path, delete: str) -> Iterator[None]:
    """Turns errors of missing or truncated index files into BadInput. `delete`: the files that then hinder a build."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, RuntimeError) as error:  # numpy, JSON; RuntimeError: faiss
        reason = " ".join(str(error).split())[:160]
        raise BadInput(
            f"index {directory}: damaged ({reason}); delete its {delete}, run `rlsys index` again"
        ) from error


def _format_facts(key: str, facts: Any) -> str:
    if isinstance(facts, dict) and key == "corpus":
        return f"{str(facts.get('digest'))[:8]} of {facts.get('documents')} passages"
    if isinstance(facts, dict) and key == "encoder":
        return f"{facts.get('name')} ({str(facts.get('identity'))[:8]})"
    return str(facts)


@contextmanager
def build_lock(directory: Path) -> Iterator[None]:
    """Two builds in one folder would append to the same file. The lock ends with its process."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BadInput(f"index {directory}: another process is building it") from error
            yield
    except OSError as error:
        raise BadInput(f"index {directory}: cannot be written ({error.strerror})") from error
