"""What the headers of a model's safetensors files say: how many parameters, and whether the files are whole."""

from __future__ import annotations

import json
import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

from rlsys.errors import BadInput

INDEX = "model.safetensors.index.json"


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
    try:
        with safe_open(path, framework="numpy") as file:  # checks that the numbers fill the rest of the file
            return sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        what = f"{path.name} ({path.stat().st_size:,} bytes) is no whole safetensors file"
        raise BadInput(f"{name}: {what} ({error}): download it again") from error
