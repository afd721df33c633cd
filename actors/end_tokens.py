"""The tokens that end a message of a model: the tokenizer's, and those that the model's files name."""

from __future__ import annotations

import json
from pathlib import Path

from rlsys.errors import BadInput

FILES = ("generation_config.json", "config.json")


def read_ends(model_path: str, eos_token_id: int | None) -> frozenset[int]:
    """Of a folder or hub name, whose files are taken from the hub's cache, or fetched into it. Raises BadInput for a
    file that cannot be read."""
    found = {eos_token_id}
    for name in FILES:
        file = _find(model_path, name)
        try:
            named = json.loads(file.read_text()).get("eos_token_id") if file is not None else None
        except (OSError, ValueError, AttributeError) as error:
            raise BadInput(f"its {name} is no readable JSON object", key="model.path", found=model_path) from error
        found |= set(named) if isinstance(named, list) else {named}
    return frozenset(one for one in found if isinstance(one, int))


def _find(model_path: str, name: str) -> Path | None:
    if Path(model_path).is_dir():
        file = Path(model_path) / name
        return file if file.is_file() else None
    from transformers.utils import cached_file  # seconds to import, and the tokenizer has done it by then

    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    found = cached_file(model_path, name, _raise_exceptions_for_gated_repo=False, **missing)
    return None if found is None else Path(found)
