"""A larger RoPE base, for longer contexts than the model was trained on (Long CoT, section 4: ten times the base).

The factor that was applied stands in the config itself, so that weights saved by one stage are not scaled again by the
next; so does the longer window. An engine, or any other program, loads such a folder without an option.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rlsys.errors import BadInput
from rlsys.positions import KEYS, OVERRIDE, ropes_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

APPLIED = "rlsys_rope_theta_scale"
COUNTING = ("dynamic", "longrope", "yarn")  # whose frequencies change with `max_position_embeddings`


def scale_rope(config: PreTrainedConfig, scale: float, path: str, window: int = 0) -> bool:
    """Make every RoPE base of `config` `scale` times what the model was trained with, and its positions `window` at
    least. Whether anything changed. Raises BadInput without RoPE, and where positions are a part of its arithmetic.

    1 asks for nothing: what was applied before stands.
    """
    if scale == 1.0:
        return False
    text, applied = config.get_text_config(), float(getattr(config, APPLIED, 1.0))
    ropes = [rope for rope in ropes_of(getattr(text, "rope_parameters", None)) if rope.get("rope_theta") is not None]
    if not ropes:
        raise BadInput(
            f"{path} has no rope_theta", key="learner.rope_theta_scale", found=scale, expected="1 for this model"
        )
    short = [key for key in (*KEYS, OVERRIDE) if isinstance(count := getattr(text, key, None), int) and count < window]
    if kinds := [kind for rope in ropes if short and (kind := rope.get("rope_type")) in COUNTING]:
        raise BadInput(
            f"the RoPE of {path} is of type {kinds[0]}, which is computed from the model's own positions",
            key="learner.rope_theta_scale", found=scale, expected="1, or engine.max_model_len within the model's own",
        )  # fmt: skip
    for key in short:
        setattr(text, key, window)
    for parameters in ropes if scale != applied else ():
        parameters["rope_theta"] = float(parameters["rope_theta"]) * scale / applied
    setattr(config, APPLIED, scale)
    return bool(short) or scale != applied


def copy_scaled(path: str, scale: float, folder: Path, window: int = 0) -> str:
    """A folder with the files of a model (links where they are local) and the scaled config: for learner and engines.

    window: positions that it has at least. Returns `path` itself where there is nothing to change.
    """
    from transformers import AutoConfig

    if scale == 1.0:
        return path
    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    if not scale_rope(config, scale, path, window):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    for file in local_folder(path).iterdir():
        if file.is_file() and file.name != "config.json" and not (folder / file.name).exists():
            os.symlink(file.resolve(), folder / file.name)
    config.save_pretrained(folder)
    return str(folder)


def local_folder(path: str, patterns: list[str] | None = None) -> Path:
    """A folder as it is; of a hub name, the downloaded files that fit one of the patterns, or all."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(path, allow_patterns=patterns))
