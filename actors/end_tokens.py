"""The tokens that end a message of a model: the tokenizer's, and those that the model's files name."""

from __future__ import annotations

import json
from pathlib import Path

from rlsys.errors import BadInput

FILES = ("generation_config.json", "config.json")


def read_ends(model_path: str, eos_token_id: int | None) -> frozenset[int]:
    """Of a folder or hub name, whose files are taken from the hub's cache, or fetched into it. Raises BadInput for a
    file that cannot be read."""
    ids: set[int | None] = {eos_token_id}
    for name in FILES:
        file = _find_model_file(model_path, name)
        try:
            config = json.loads(file.read_text()) if file is not None else {}
            texts = config.get("text_config") or {}  # of a model that reads more than text
            eos = config.get("eos_token_id", texts.get("eos_token_id"))
        except (OSError, ValueError, AttributeError) as error:
            raise BadInput(f"its {name} is no readable JSON object", key="model.path", found=model_path) from error
        listed = eos if isinstance(eos, list) else [eos]
        if not all(token_id is None or type(token_id) is int for token_id in listed):
            expected = "a whole number, or a list of them"
            raise BadInput(where=f"{model_path}/{name}", key='"eos_token_id"', found=str(eos)[:40], expected=expected)
        ids |= set(listed)
    return frozenset(token_id for token_id in ids if token_id is not None)


def _find_model_file(model_path: str, name: str) -> Path | None:
    if Path(model_path).is_dir():
        file = Path(model_path) / name
        return file if file.is_file() else None
    from transformers.utils import cached_file  # seconds to import, and the tokenizer has done it by then

    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    cache_path = cached_file(model_path, name, _raise_exceptions_for_gated_repo=False, **missing)
    return None if cache_path is None else Path(cache_path)
