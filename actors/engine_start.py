"""How far the start of an engine is, as vLLM's log tells it: read from a file, for the actor's own loop is blocked.

vLLM configures logging in each of its processes from the file that VLLM_LOGGING_CONFIG_PATH names. Ours leaves its
warnings where they were and hands every line to `PhaseHandler`, which knows a few by how they begin and writes what is
being done from then on. A person's own VLLM_LOGGING_CONFIG_PATH or VLLM_LOGGING_LEVEL stands, and no phase is known.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CONFIG, PHASE = "logging.json", "phase"  # files in the folder of an engine
GIVEN = ("VLLM_LOGGING_CONFIG_PATH", "VLLM_LOGGING_LEVEL", "VLLM_CONFIGURE_LOGGING")
IMPORTING, SPAWNING, LOADING = "importing vLLM", "starting its process", "loading the weights"
DOWNLOADING = "downloading and loading the weights"
# How lines of vLLM 0.32 begin, before their values are filled in; and what is done from then on.
LINES = (
    ("Starting to load model", LOADING),
    ("Model loading took", "measuring its memory"),
    ("Warming up model for the compilation", "warming up"),
    ("%sUsing cache directory: %s for vLLM's torch.compile", "compiling"),
    ("%sStarting torch.compile", "compiling"),
    ("%sInitial profiling/warmup run took", "measuring its memory"),
    ("%s KV cache size", "capturing graphs, warming up"),
    ("Compile and warming up model", "compiling"),
    ("Graph capturing finished", "warming up"),
    ("init engine", "its first requests"),
)

_folder: Path | None = None  # of this process's engine
_ours = False  # what GIVEN says by now is of an earlier engine of this process


@contextmanager
def track_start_phase(folder: Path | None, model_path: str) -> Iterator[None]:
    """While an engine starts: `phase` knows how far it is. folder: of the engine, which is removed with it; None where
    there is none."""
    global _folder, _ours
    if folder is None or (not _ours and any(name in os.environ for name in GIVEN)):
        _folder = None
        yield
        return
    _folder, _ours = folder, True
    with suppress(OSError):  # a start without phases is a start
        (folder / CONFIG).write_text(json.dumps(logging_config(folder, model_path)))
        os.environ[GIVEN[0]] = str(folder / CONFIG)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        yield
    finally:
        os.environ.pop(GIVEN[0], None)  # the file goes with the engine: no later process may look for it


def logging_config(folder: Path, model_path: str) -> dict[str, Any]:
    """For `logging.config.dictConfig`."""
    console = {"class": "logging.StreamHandler", "level": "WARNING", "formatter": "plain", "stream": "ext://sys.stdout"}
    phases = {
        "()": "actors.engine_start.PhaseHandler",
        "file": str(folder / PHASE),
        "loading": LOADING if os.path.isdir(model_path) else DOWNLOADING,
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s"}},
        "handlers": {"console": console, "phases": phases},
        "loggers": {"vllm": {"handlers": ["console", "phases"], "level": "INFO", "propagate": False}},
    }


def enter(phase: str) -> None:
    """What this process itself is doing."""
    if _folder is not None:
        _write(_folder / PHASE, phase)


def phase() -> str:
    """What is being done; empty where it is not known."""
    if _folder is None:
        return ""
    try:
        return (_folder / PHASE).read_text()
    except OSError:
        return ""


class PhaseHandler(logging.Handler):
    """In vLLM's processes."""

    def __init__(self, file: str, loading: str = LOADING) -> None:
        super().__init__(logging.INFO)
        self._file, self._loading = Path(file), loading

    def emit(self, record: logging.LogRecord) -> None:
        line = str(record.msg)
        for begins, means in LINES:
            if line.startswith(begins):
                _write(self._file, self._loading if means == LOADING else means)
                return


def _write(file: Path, phase: str) -> None:
    with suppress(OSError):
        draft = file.with_name(f"{PHASE}.{os.getpid()}")
        draft.write_text(phase)
        draft.rename(file)
