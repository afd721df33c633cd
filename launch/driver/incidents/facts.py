"""What is known of one incident: `incident.json`, from which its paragraph is made."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput
from rlsys.jsonl import json_object

FACTS, PARAGRAPH = "incident.json", "incident.md"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """A process of the run, on this machine."""

    part: str  # "rollout:0", "driver"
    pid: int
    title: str = ""
    state: str = ""  # "stopped", "sleeping", "gone" ..
    at: str = ""  # where it stands; "" where that is not known
    problem: str = ""  # why there is no stack of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    kind: str  # "lost", "stall", "refused", "delivery_late", "failed", "asked"
    who: str
    text: str  # the line of the log
    time: float  # since 1970
    step: int = 0  # steps that were taken
    stage: str = ""
    phase: Mapping[str, Any] = field(default_factory=dict)  # of `observe.phases.Phase`: what the driver awaits
    parts: tuple[PartFacts, ...] = ()
    gone: tuple[str, ...] = ()  # parts that were there before, and have no process now
    also: tuple[str, ...] = ()  # what else happened while it was collected, and soon after
    missing: tuple[str, ...] = ()  # what could not be collected, with the reason
    times: int = 1  # how often the same happened since
    last: float | None = None  # when the last time was
    seconds: float | None = None  # that collecting took; None: it did not end
    nodes: int = 1  # on which the run has parts


def write_facts(folder: Path, facts: Facts) -> None:
    temporary = folder / f".{FACTS}"
    temporary.write_text(json.dumps({"format": FORMAT, **asdict(facts)}, indent=1, ensure_ascii=False) + "\n")
    temporary.rename(folder / FACTS)


def read_facts(folder: Path) -> Facts:
    """Raises BadInput for what is none, and OSError."""
    path = folder / FACTS
    content = json_object(path.read_bytes().replace(b"\n", b" "), str(path))
    try:
        values: dict[str, Any] = {entry.name: content[entry.name] for entry in fields(Facts) if entry.name in content}
        values["parts"] = tuple(PartFacts(**part) for part in values.get("parts", ()))
        values |= {key: tuple(map(str, values.get(key, ()))) for key in ("gone", "also", "missing")}
        facts = Facts(**values)
    except TypeError as error:
        raise BadInput("not an incident of this version", where=path) from error
    texts, numbers = (facts.kind, facts.who, facts.text), (facts.time, facts.last or 0.0, facts.seconds or 0.0)
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(entry, int | float) for entry in numbers):
        raise BadInput("not an incident of this version", where=path)
    return facts


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
