"""What the headers of a model's safetensors files say: how many parameters, and whether the files are whole.

A file is eight bytes with the header's length, the header in JSON, and the numbers.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput

INDEX = "model.safetensors.index.json"
LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000


def parameters_in(folder: Path, name: str) -> int | None:
    """All numbers of all tensors; None without such files. `name` begins the line of an error.

    Raises BadInput for a file that is missing, cut short or something else.
    """
    files = sorted(folder.glob("*.safetensors"))
    indexed = _indexed(folder, name)
    for missing in indexed - {file.name for file in files}:
        raise BadInput(f"{name}: {missing} is missing, which {INDEX} names")
    # The same weights may lie there in another cut too: what an index names, or the one file of the usual name, is all.
    loaded = indexed or {"model.safetensors"} & {file.name for file in files}
    files = [file for file in files if not loaded or file.name in loaded]
    return sum(_parameters(file, name) for file in files) if files else None


def _indexed(folder: Path, name: str) -> set[str]:
    path = folder / INDEX
    if not path.is_file():
        return set()
    try:
        return set(map(str, json.loads(path.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{name}: {INDEX} is not readable: expected its weight_map") from error


def _parameters(path: Path, name: str) -> int:
    size = path.stat().st_size
    header = _header(path)
    if header is None:
        raise BadInput(f"{name}: {path.name} ({size:,} bytes) is no safetensors file, or cut short in its header")
    length, tensors = header
    try:
        end = max((int(tensor["data_offsets"][1]) for tensor in tensors.values()), default=0)
        count = sum(math.prod(map(int, tensor["shape"])) for tensor in tensors.values())
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadInput(f"{name}: {path.name}: its header is damaged") from error
    expected = LENGTH_BYTES + length + end
    if size != expected:
        raise BadInput(f"{name}: {path.name} has {size:,} bytes, its header says {expected:,}: download it again")
    return count


def _header(path: Path) -> tuple[int, dict[str, Any]] | None:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if not 2 <= length <= MOST_HEADER_BYTES:
            return None
        text = file.read(length)
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    found.pop("__metadata__", None)
    return length, found
