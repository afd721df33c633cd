"""Under which name a tracker continues a run: the same for every process that continues its run directory."""

from __future__ import annotations

import os
from pathlib import Path


def run_id(directory: Path, file: str) -> str:
    """Eight hexadecimal digits, kept in `file` of the run directory."""
    path = directory / file
    if not path.exists():
        path.write_text(os.urandom(4).hex())
    return path.read_text()
