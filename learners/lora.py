"""Low-rank adapters in the learner: peft's layers inside the model, whose own weights are frozen.

What is trained, published, compared by the canary and saved is then the adapter alone. The frozen reference needs no
second model: it is this one with the adapter off, or for a moment with another adapter's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rlsys.adapters import PREFIX, WEIGHTS, Adapter, file_name, is_adapter_name, read_adapter
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def inject(model: PreTrainedModel, adapter: Adapter, seed: int) -> None:
    """Freeze the model and put an adapter that adds nothing yet next to every target.

    Its numbers follow from `seed` alone, whatever was drawn before: every rank has the same, and so has every run of
    that seed. Raises BadInput for a target that the model does not have.
    """
    from peft import LoraConfig, inject_adapter_in_model

    _check_targets(model, adapter)
    model.requires_grad_(False)
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,  # type: ignore[arg-type]  # a float is as good to peft
        target_modules=list(adapter.targets),
        lora_dropout=0.0,  # engines sample without dropout
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "lora"))  # right before the numbers are drawn, which happens on the CPU
        inject_adapter_in_model(config, model)


def load_adapter(model: PreTrainedModel, folder: str | Path) -> None:
    """The numbers of a saved adapter, each of them. Raises BadInput where a tensor is missing, unknown or of another
    shape."""
    with torch.no_grad():
        copy_into(model, read_tensors(folder), where=folder)


def read_tensors(folder: str | Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise BadInput("no adapter weights in it", where=folder, expected=WEIGHTS)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise BadInput(f"damaged: {error}", where=path) from error


def copy_into(model: PreTrainedModel, tensors: Mapping[str, torch.Tensor], where: object) -> None:
    adapter_weights = parameters(model)
    if adapter_weights.keys() != tensors.keys():
        name = sorted(adapter_weights.keys() ^ tensors.keys())[0]
        problem = "has no place in the model" if name in tensors else "is missing"
        raise BadInput(f"adapter tensor {name} {problem}", where=where)
    for name, parameter in adapter_weights.items():
        if parameter.shape != tensors[name].shape:
            shape, expected = tuple(tensors[name].shape), tuple(parameter.shape)
            raise BadInput(f"adapter tensor {name} has the shape {shape}", where=where, expected=str(expected))
        parameter.data.copy_(tensors[name])


def parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The adapter's, under the names of peft's files; {} for a model without one."""
    return {file_name(name): parameter for name, parameter in model.named_parameters() if is_adapter_name(name)}


@contextmanager
def switched_off(model: nn.Module) -> Iterator[None]:
    """Inside, the model computes as it did before the adapter.

    peft's own switch would also turn `requires_grad` off and on, under DeepSpeed's hooks.
    """
    layers = _adapter_layers(model)
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


@contextmanager
@torch.no_grad()
def swap_adapter(model: PreTrainedModel, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Inside, the adapter has these numbers; afterwards its own are back, bit for bit."""
    originals = {name: parameter.detach().clone() for name, parameter in parameters(model).items()}
    copy_into(model, tensors, where="the reference")
    try:
        yield
    finally:
        copy_into(model, originals, where="the policy")


class AdapterReference:
    """The frozen model that the policy is compared with, where both stand on the same base."""

    def __init__(self, policy: Any, folder: str | None, device: torch.device) -> None:
        """folder: of the adapter that the policy had at the stage's beginning; None: it had none."""
        self.policy = policy
        self._tensors = None
        if folder is not None:
            self._tensors = {name: tensor.to(device) for name, tensor in read_tensors(folder).items()}

    @contextmanager
    def ready(self) -> Iterator[Any]:
        """The model to call, which is the policy's own: no gradient may be taken inside."""
        model = self.policy.model
        with switched_off(model) if self._tensors is None else swap_adapter(model, self._tensors):
            yield self.policy

    def destroy(self) -> None:
        """It has nothing that is not the policy's."""


@torch.no_grad()
def merge(model: PreTrainedModel, tensors: Mapping[str, torch.Tensor], adapter: Adapter) -> float:
    """Add an adapter to a plain model's weights. The sum is made in float32 and rounded once, to the model's format.

    Made in bfloat16 it loses most of a small update: a weight of 0.02 has no neighbour nearer than 1e-4. Returns the
    size (root of the squares' sum) of what rounding took, as a share of the update's. Raises BadInput for a tensor
    without a place in the model or of another shape, and for an adapter without any.
    """
    weights, unused = dict(model.named_parameters()), {*tensors}
    lost = total = 0.0
    for name, lora_a in tensors.items():
        if ".lora_A." not in name:
            continue
        module = name.removeprefix(PREFIX).partition(".lora_A.")[0]
        weight, lora_b = weights.get(f"{module}.weight"), tensors.get(name.replace(".lora_A.", ".lora_B."))
        if weight is None or lora_b is None:
            raise BadInput(f"adapter tensor {name} has no place in the model", where=adapter.base)
        unused -= {name, name.replace(".lora_A.", ".lora_B.")}
        shapes = (*lora_b.shape, *lora_a.shape)
        if shapes != (weight.shape[0], adapter.rank, adapter.rank, *weight.shape[1:]):  # torch might repeat a row
            expected = f"a product of the shape {tuple(weight.shape)}, of rank {adapter.rank}"
            raise BadInput(f"adapter of {module} with the shapes {shapes}", where=adapter.base, expected=expected)
        update = (lora_b.float() @ lora_a.float()) * adapter.scaling
        merged = weight.float() + update
        weight.copy_(merged)
        lost += float((weight.float() - merged).square().sum())
        total += float(update.square().sum())
    if unused or not tensors:
        raise BadInput(f"adapter tensor {min(unused, default='')} has no place in the model", where=adapter.base)
    return math.sqrt(lost / total) if total else 0.0


def reference_folder(reference_path: str, adapter: Adapter) -> tuple[bool, str | None]:
    """(whether the policy's own model can stand in for the reference, the folder of the adapter that it then needs)."""
    if reference_path == adapter.base:
        return True, None
    saved = read_adapter(reference_path)
    return saved is not None and saved == adapter, reference_path


def _adapter_layers(model: nn.Module) -> list[Any]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [module for module in model.modules() if isinstance(module, BaseTunerLayer)]


def _check_targets(model: PreTrainedModel, adapter: Adapter) -> None:
    head = model.get_output_embeddings()
    names = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    missing = [target for target in adapter.targets if target not in names]
    if missing:
        raise BadInput(
            f"{type(model).__name__} has no linear layer {missing[0]!r}", key="model.lora.targets",
            found=list(adapter.targets), expected=f"some of {', '.join(sorted(names))}",
        )  # fmt: skip
