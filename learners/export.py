"""The learner's weights leave it as a published version for the engines (`learners.hub_folder`: for everybody).

Works at any ZeRO stage. Under stage 3 every rank must call, in the same order: gathering a parameter is a collective.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from rlsys.adapters import file_name, is_adapter_name
from rlsys.plan import consecutive

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlsys.system.weight_folder import Bucket, WeightFolder, WeightManifest

BUCKET_BYTES = 64 << 20  # gathered and written at once; a larger tensor is one by itself
# Noise of the start-up canary where a tensor is near zero: relative noise would leave a fresh bias where it is.
_MIN_VECTOR_NOISE = 0.1
# Embeddings, head and vectors (norms) reach every token at full strength. With less noise they move log-probabilities
# about as far as one matrix of a layer does, so that no tensor hides behind another (benchmarks/canary.py).
WORDS_SHARE, VECTOR_SHARE = 0.3, 0.4
# Then an adapter's product has about the size of a matrix's own noise, for an A as peft draws it: sqrt(1/3) of what
# keeps the size of a vector.
ADAPTER_NOISE = 2.0


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter or persistent buffer and every name it has: a tied head has two."""

    names: tuple[str, ...]
    tensor: torch.Tensor  # under ZeRO-3 empty outside of `gather_parameters`

    @property
    def is_divided(self) -> bool:
        """By ZeRO-3, over the ranks."""
        return hasattr(self.tensor, "ds_id")

    @property
    def num_bytes(self) -> int:
        return int(getattr(self.tensor, "ds_numel", self.tensor.numel())) * self.tensor.element_size()


def weights(model: PreTrainedModel) -> list[Weight]:
    """In the model's order, each tensor once. Of a model with an adapter the adapter's alone, as peft names them: the
    others never change."""
    by_id: dict[int, Weight] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        weight = by_id.get(id(tensor))
        by_id[id(tensor)] = Weight((*weight.names, name) if weight else (name,), tensor)
    items = list(by_id.values())
    of_adapter = [Weight((file_name(item.names[0]),), item.tensor) for item in items if is_adapter_name(item.names[0])]
    return of_adapter or items


def buckets(items: Sequence[Weight], limit: int) -> list[list[Weight]]:
    """Consecutive weights of at most `limit` bytes together; a larger one is a bucket by itself."""
    return consecutive(items, lambda item: item.num_bytes * len(item.names), limit)


def gather_parameters(items: Sequence[Weight], modifier_rank: int | None = None) -> AbstractContextManager[None]:
    """Inside, the tensors are whole on every rank; with a `modifier_rank`, its changes reach every rank."""
    partitioned = [item.tensor for item in items if item.is_divided]
    if not partitioned:
        return nullcontext()
    import deepspeed

    gathered: AbstractContextManager[None] = deepspeed.zero.GatheredParameters(partitioned, modifier_rank=modifier_rank)
    return gathered


@torch.no_grad()
def export_version(
    model: PreTrainedModel,
    folder: WeightFolder,
    version: int,
    *,
    rank: int,
    num_ranks: int,
    dtype: torch.dtype | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> WeightManifest:
    """Send the weights through `folder` as `version`. Returns what this rank sent of it. dtype: as `outer_dtype`."""
    with closing(_buckets_to_send(model, bucket_bytes, dtype)) as stream:
        share = folder.send(version, stream, rank, num_ranks)
        for _ in stream:  # a rank that sends nothing takes part in every gather all the same (docs/laws.md, law 7)
            pass
    return share


def outer_dtype(model: PreTrainedModel, item: Weight, dtype: torch.dtype | None) -> torch.dtype:
    """What a weight has outside of the learner: `dtype` where the learner holds another one. An adapter stays as it is,
    and so does what the architecture keeps in float32 (the correction of a router, say)."""
    learner_dtype, name = item.tensor.dtype, item.names[0]
    if dtype is None or learner_dtype == dtype or not learner_dtype.is_floating_point or is_adapter_name(name):
        return learner_dtype
    fp32_modules = model._keep_in_fp32_modules_strict or ()
    return learner_dtype if any(re.search(rf"(^|\.){part}(\.|$)", name) for part in fp32_modules) else dtype


def _buckets_to_send(
    model: PreTrainedModel, bucket_bytes: int, dtype: torch.dtype | None
) -> Generator[Bucket, None, None]:
    for bucket in buckets(weights(model), bucket_bytes):
        with gather_parameters(bucket):
            yield partial(_on_cpu, model, bucket, dtype)


def _on_cpu(model: PreTrainedModel, bucket: Sequence[Weight], dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
    """Hub names, as the engine's loader expects them. A tied head stands there under its own name too: vLLM's reload
    on a CPU would leave it stale."""
    local = {
        name: _to_cpu(item.tensor, outer_dtype(model, item, dtype), copy=name != item.names[0])
        for item in bucket
        for name in item.names
    }
    return as_in_files(model, local)


def as_in_files(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Under the names of files, and as files have them: transformers keeps some models fused in memory (experts, say);
    files and engines know the parts."""
    from transformers.core_model_loading import revert_weight_conversion

    if not any(map(is_adapter_name, tensors)):
        tensors = revert_weight_conversion(model, tensors)
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


@contextmanager
def perturb_weights(
    model: PreTrainedModel, scale: float, adapter_scaling: float = 1.0, seed: int = 0
) -> Iterator[None]:
    """Inside, every matrix of a layer carries noise of about `scale` of its own size, and every other tensor the share
    of it that stands above; the same in every process. Afterwards the originals are back, bit for bit. For proving that
    weights arrive: a stale tensor is a wrong log-probability.

    adapter_scaling: of the model's adapter (alpha / rank), whose second matrices are zero at first: their noise is the
    larger the less of it reaches the layers.

    The ranks keep the originals in host memory, each its share of the tensors. Where several of them work together and
    one fails, nothing is put back: the others may never hear of it, and the learner is lost with it.
    """
    rank, num_ranks = 0, 1
    if torch.distributed.is_initialized():
        rank, num_ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    items = [item for item in weights(model) if item.tensor.is_floating_point()]
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    embeddings = [part.weight for part in ends if part is not None]
    owners = [number % num_ranks for number in range(len(items))]
    originals: list[torch.Tensor] = []  # of those that are this rank's
    completed = False
    try:
        for item, owner in zip(items, owners, strict=True):
            with torch.no_grad(), gather_parameters([item], modifier_rank=owner):
                if owner == rank:
                    originals.append(item.tensor.detach().to("cpu", copy=True))
                if owner == rank or not item.is_divided:
                    up = item.names[0].endswith(".lora_B.weight")
                    share = ADAPTER_NOISE / adapter_scaling if up else _noise_share(item, embeddings)
                    item.tensor.add_(noise_for(item, scale * share, seed))
        yield
        completed = True
    finally:
        if completed or num_ranks == 1:
            back = iter(originals)
            for item, owner in zip(items, owners, strict=True):
                with torch.no_grad(), gather_parameters([item], modifier_rank=owner):
                    if owner == rank and (original := next(back, None)) is not None:  # one could not be changed
                        item.tensor.copy_(original)
                    if num_ranks > 1 and not item.is_divided:
                        torch.distributed.broadcast(item.tensor.detach(), owner)


def _noise_share(item: Weight, embeddings: Sequence[torch.Tensor]) -> float:
    if any(item.tensor is tensor for tensor in embeddings):
        return WORDS_SHARE
    return VECTOR_SHARE if len(getattr(item.tensor, "ds_shape", item.tensor.shape)) < 2 else 1.0


def noise_for(item: Weight, scale: float, seed: int = 0) -> torch.Tensor:
    tensor = item.tensor.float()
    generator = torch.Generator(device=tensor.device).manual_seed(zlib.crc32(item.names[0].encode(), seed))
    noise = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    least = tensor.shape[-1] ** -0.5 if tensor.ndim >= 2 else _MIN_VECTOR_NOISE
    size = max(float(torch.linalg.vector_norm(tensor.detach())) / max(1, tensor.numel()) ** 0.5, least)
    return noise.mul_(scale * size).to(item.tensor.dtype)


def _to_cpu(tensor: torch.Tensor, dtype: torch.dtype, *, copy: bool) -> torch.Tensor:
    """Two names of one tensor need two copies: safetensors refuses shared memory."""
    return tensor.detach().to("cpu", dtype, copy=copy or hasattr(tensor, "ds_id"))
