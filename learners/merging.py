"""An adapter's folder and the model that it stands on, merged into one model's folder, on the CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from learners.hub_folder import GENERATION_FILE, TOKENIZER_FILES
from learners.lora import merge, read_tensors
from learners.policy import REFUSALS
from rlsys.adapters import Adapter
from rlsys.errors import BadInput


def merge_folder(folder: Path, adapter: Adapter, output: Path, dtype: str | None = None) -> float:
    """Write the merged model with the adapter's tokenizer into a folder. Returns the share of the update's size that
    rounding took.

    dtype: of the merged weights; None: that of the model under the adapter. Raises BadInput.
    """
    disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            adapter.base, dtype=dtype and getattr(torch, dtype) or "auto", trust_remote_code=False
        )
    except REFUSALS as error:  # fault boundary
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise BadInput(f"the model under the adapter cannot be loaded: {reason}", where=adapter.base) from error
    lost = merge(model, read_tensors(folder), adapter)
    model.save_pretrained(output)
    for pattern in (*TOKENIZER_FILES, GENERATION_FILE):
        for file in sorted(folder.glob(pattern)):
            shutil.copyfile(file, output / file.name)
    return lost
