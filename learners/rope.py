"""A larger RoPE base, for longer contexts than the model was trained on (Long CoT, section 4: ten times the base).

The factor that was applied stands in the config itself, so that weights saved by one stage are not scaled again by the
next. An engine, or any other program, loads such a folder without an option.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsys.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

APPLIED = "rlsys_rope_theta_scale"


def scale_rope(config: PreTrainedConfig, scale: float, path: str) -> None:
    """Make every RoPE base of `config` `scale` times what the model was trained with. Raises BadInput without RoPE.

    1 asks for nothing: what was applied before stands.
    """
    applied = float(getattr(config, APPLIED, 1.0))
    if scale in (1.0, applied):
        return
    found = list(_bases(getattr(config.get_text_config(), "rope_parameters", None)))
    if not found:
        raise BadInput(
            f"{path} has no rope_theta", key="learner.rope_theta_scale", found=scale, expected="1 for this model"
        )
    for parameters in found:
        parameters["rope_theta"] = float(parameters["rope_theta"]) * scale / applied
    setattr(config, APPLIED, scale)


def copy_scaled(path: str, scale: float, folder: Path) -> str:
    """A folder with the files of a model (links where they are local) and the scaled config: for learner and engines.

    Returns `path` itself where there is nothing to scale.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    if scale in (1.0, getattr(config, APPLIED, 1.0)):
        return path
    scale_rope(config, scale, path)
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


def _bases(parameters: Any) -> Iterator[dict[str, Any]]:
    """The dicts that hold a `rope_theta`: one, or one for each kind of layer."""
    if isinstance(parameters, dict):
        if isinstance(parameters.get("rope_theta"), (int, float)):
            yield parameters
        for value in parameters.values():
            yield from _bases(value)
