"""A checkpoint in two parts: its content is copied to host memory at one moment, and written while training continues.

What DeepSpeed saved is read as data: a file of a checkpoint cannot bring code along (docs/trust.md).
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rlsys.errors import BadInput

Key = tuple[object, ...]  # what two tensors have in common that are the same numbers at the same place
_DATA_ONLY, _ANYTHING = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


class Snapshot:
    """Copies, and what will write them. A tensor that two files need, DeepSpeed's and the hub's, is copied once."""

    def __init__(self) -> None:
        self._writers: list[Callable[[], object]] = []
        self._copied: dict[Key, tuple[torch.Tensor, torch.Tensor]] = {}  # (the tensor, its copy), while copying

    def then(self, write: Callable[[], object]) -> None:
        """Called in `write`, in the order given."""
        self._writers.append(write)

    def on_host(self, value: Any) -> Any:
        """The value with every tensor in it copied, on a GPU into host memory. Tied tensors stay tied."""
        if isinstance(value, torch.Tensor):
            tensor = value.detach()
            key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
            if not tensor.numel() or key not in self._copied:
                # The original is kept with it: no other tensor gets its address before `wait_copied`.
                self._copied[key] = (tensor, tensor.to("cpu", copy=True))
            return self._copied[key][1]
        if isinstance(value, dict):
            clone = copy.copy(value)  # of the same class, with the attributes that torch gives a state_dict
            clone.update({key: self.on_host(child) for key, child in value.items()})
            return clone
        if isinstance(value, (list, tuple)):
            parts = [self.on_host(child) for child in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return copy.deepcopy(value)

    def wait_copied(self) -> None:
        """Everything is copied: the originals may change from here on, and their memory be used again."""
        self._copied.clear()

    def write(self) -> None:
        """Into the files, on any thread. Each part leaves memory when it is written, all of them when one fails."""
        try:
            while self._writers:
                self._writers.pop(0)()
        finally:
            self._writers.clear()


@contextmanager
def saving_into(snapshot: Snapshot, engine: Any) -> Iterator[Any]:
    """The engine. Inside, its `save_checkpoint` copies what it would write.

    DeepSpeed's own engine that writes during training shares the live tensors with its process and waits for it before
    the next step.
    """
    from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

    class Copying(TorchCheckpointEngine):  # type: ignore[misc]
        def save(self, state_dict: Any, path: str) -> None:
            content = snapshot.on_host(state_dict)
            snapshot.then(lambda: torch.save(content, Path(path)))

        def preserves_storage_sharing(self) -> bool:
            return False  # copies are no views of a larger buffer

    usual, engine.checkpoint_engine = engine.checkpoint_engine, Copying()
    try:
        yield engine
    finally:
        engine.checkpoint_engine = usual


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
        detail = lines[0][:200] if lines else "unreadable"
        raise BadInput(f"not a checkpoint of rlsys: it holds more than data ({detail})", where=folder) from None
    finally:
        del os.environ[_DATA_ONLY]
        os.environ.update(before)
