"""What DeepSpeed saved is read as data: a file of a checkpoint cannot bring code along (docs/trust.md)."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from rlsys.errors import BadInput

_DATA_ONLY, _ANYTHING = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


@contextmanager
def as_data(folder: Path) -> Iterator[None]:
    """Inside, torch.load makes tensors, plain values and three classes of DeepSpeed's, whatever it was called with.

    DeepSpeed calls it with weights_only=False, which would run what a pickle says. Raises BadInput for a file that
    asks for more.
    """
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    before = {name: os.environ.pop(name) for name in (_DATA_ONLY, _ANYTHING) if name in os.environ}
    os.environ[_DATA_ONLY] = "1"
    try:
        with torch.serialization.safe_globals([LossScaler, ZeroStageEnum, fragment_address]):
            yield
    except pickle.UnpicklingError as error:
        lines = [line.strip() for line in str(error).splitlines() if "GLOBAL" in line or "Unsupported" in line]
        what = lines[0][:200] if lines else "unreadable"
        raise BadInput(f"not a checkpoint of rlsys: it holds more than data ({what})", where=folder) from None
    finally:
        del os.environ[_DATA_ONLY]
        os.environ.update(before)
