"""`model.chat_template`: a file in the place of the tokenizer's own chat template.

A model is played and trained from a folder that holds it, so that engines, checkpoints and every other program that
loads the folder have the same prompts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from learners.rope import local_folder
from rlsys.errors import BadInput
from rlsys.files import replace_file

if TYPE_CHECKING:
    from rlsys.config.model import ModelConfig

FILE = "chat_template.jinja"  # transformers reads it before what tokenizer_config.json holds
KEY = "model.chat_template"


def read_template(config: ModelConfig) -> str | None:
    """Raises BadInput for a file that cannot be read."""
    if config.chat_template is None:
        return None
    try:
        return Path(config.chat_template).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        expected = "a file with a Jinja template"
        raise BadInput(f"cannot be read ({reason})", key=KEY, found=config.chat_template, expected=expected) from error


def has_template(path: str, template: str) -> bool:
    """Whether a model's folder has this very one."""
    file = Path(path) / FILE
    return file.is_file() and file.read_bytes() == template.encode()


def copy_with_template(path: str, config: ModelConfig, folder: Path) -> str:
    """A folder with the files of a model (links where they are another folder's) and the template of `config`; `path`
    itself where there is nothing to change."""
    template = read_template(config)
    if template is None or has_template(path, template):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    for file in local_folder(path).iterdir():
        if file.is_file() and file.name != FILE and not (folder / file.name).exists():
            os.symlink(file.resolve(), folder / file.name)
    replace_file(folder / FILE, template)
    return str(folder)
