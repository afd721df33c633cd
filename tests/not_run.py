"""What a session of tests did not run, and why, for its last lines: a test that was skipped has not passed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# A file that carries what was not run from one session to the next, as `make test` has two of them.
VARIABLE = "RLSYS_NOT_RUN"
SHOWN = 3  # files of one reason


@dataclass(frozen=True, slots=True)
class NotRun:
    why: str
    count: int
    files: tuple[str, ...] = ()


def skipped(reports: Iterable[Any]) -> list[NotRun]:
    """By reason, the most frequent first. reports: pytest's, of tests or of whole modules, from any process."""
    files: dict[str, list[str]] = {}
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        files.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid.partition("::")[0])
    entries = [NotRun(why, len(paths), tuple(dict.fromkeys(paths))) for why, paths in files.items()]
    return sorted(entries, key=lambda entry: -entry.count)


def deselected(count: int, markers: str, keywords: str) -> list[NotRun]:
    """By the options of that name."""
    options = " ".join([*([f'-m "{markers}"'] if markers else []), *([f'-k "{keywords}"'] if keywords else [])])
    return [NotRun(f"left out by {options or 'an option'}", count)] if count else []


def with_earlier(entries: Sequence[NotRun]) -> list[NotRun]:
    """Of this session, and of those before it that wrote into the same file."""
    if VARIABLE not in os.environ:
        return list(entries)
    path = Path(os.environ[VARIABLE])
    earlier = [NotRun(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    all_entries = [*earlier, *entries]
    path.write_text("".join(f"{json.dumps(asdict(entry))}\n" for entry in all_entries))
    return all_entries


def describe(entries: Sequence[NotRun]) -> list[str]:
    return [f"{entry.count:5}  {entry.why}{_places(entry.files)}" for entry in entries]


def _places(files: Sequence[str]) -> str:
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    return f" ({', '.join(files[:SHOWN])}{more})" if files else ""
