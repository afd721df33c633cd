"""What every benchmark prints: the machine, tables and sentences as they come; with `--json FILE` all of it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

Cell = str | float | None


def parser(doc: str | None) -> argparse.ArgumentParser:
    """With the option that all benchmarks have."""
    cli = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured as one JSON object")
    return cli


class Report:
    """A context: the file is written at its end, with what there is by then."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._file: Path | None = options.json
        self._found: dict[str, Any] = {
            "command": " ".join(["python", *sys.argv]),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "tables": [],
            "notes": [],
        }
        print(self._found["machine"], flush=True)

    def head(self, *columns: str) -> None:
        """A new table begins."""
        self._found["tables"].append({"columns": columns, "rows": []})
        print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)

    def row(self, *cells: Cell) -> None:
        self._found["tables"][-1]["rows"].append(cells)
        print(f"| {' | '.join(map(text, cells))} |", flush=True)

    def note(self, sentence: str) -> None:
        self._found["notes"].append(sentence)
        print(f"\n{sentence}", flush=True)

    def __enter__(self) -> Report:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.write_text(json.dumps(self._found, indent=1) + "\n")


def text(cell: Cell) -> str:
    """1234.5 is 1,234, 12.345 is 12.3, 0.01234 is 0.0123, and nothing is a dash."""
    if cell is None or isinstance(cell, str):
        return cell or "-"
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.3g}"
