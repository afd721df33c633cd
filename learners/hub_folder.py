"""The learner's weights as a Hugging Face folder, which transformers, vLLM and the next stage load; of a model with an
adapter the folder of the adapter alone.

The weights are divided among the ranks: each copies and writes its share of the files, and none holds a whole model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from learners.export import BUCKET_BYTES, Weight, as_in_files, buckets, gather_parameters, outer_dtype, weights
from learners.rope import local_folder
from learners.snapshot import Snapshot
from rlsys import adapters
from rlsys.files import as_readable_as_its_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from learners.policy import PolicyModel

SHARD_BYTES = 4 << 30  # of one file, at most
ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER_FILES: tuple[str, ...] = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template*")
TOKENIZER_FILES += ("vocab*", "merges.txt", "*.model")
GENERATION_FILE = "generation_config.json"


def copy_hf(
    policy: PolicyModel,
    folder: Path,
    tokenizer_from: str,
    snapshot: Snapshot,
    *,
    rank: int,
    num_ranks: int,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Into the snapshot: this rank's share of the weights; from rank 0 also the model's own config, the index of the
    files, and tokenizer and generation config of `tokenizer_from`, a folder or hub name that outlives every checkpoint.

    Every rank calls: under ZeRO-3 gathering a weight is a collective.
    """
    model = policy.model
    items = _weights_to_save(model)
    shards = buckets(items, shard_bytes)
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    if policy.adapter is not None:
        shards, files = [items], [adapters.WEIGHTS]  # peft and vLLM look for one file
    elif len(shards) == 1:
        files = [ONE_FILE]
    places: dict[str, str] = {}  # of this rank's weights: name on the hub -> file
    total = 0
    for number, (file, shard) in enumerate(zip(files, shards, strict=True)):
        content = _copy_parameters(policy, shard, snapshot if number % num_ranks == rank else None)
        places |= dict.fromkeys(content, file)
        total += sum(tensor.nbytes for tensor in content.values())
        if content:
            snapshot.then(lambda content=content, file=file: _write_tensors(content, folder / file))  # type: ignore[misc]
    if len(shards) > 1:
        places, total = gather_places(places, total, num_ranks)
    if rank == 0:
        snapshot.then(lambda: _write_model_files(policy, folder, tokenizer_from))
        if len(shards) > 1:
            index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
            snapshot.then(lambda: (folder / INDEX).write_text(json.dumps(index, indent=2)))


def _weights_to_save(model: PreTrainedModel) -> list[Weight]:
    ignored = set(model._keys_to_ignore_on_save or ())
    return [item for item in weights(model) if item.names[0] not in ignored]


def _copy_parameters(
    policy: PolicyModel, shard: Sequence[Weight], snapshot: Snapshot | None
) -> dict[str, torch.Tensor]:
    """On the host, by hub name; nothing without a snapshot. A tied weight stands there once, as transformers has it."""
    model, local = policy.model, dict[str, torch.Tensor]()
    for bucket in buckets(shard, BUCKET_BYTES):
        with gather_parameters(bucket):
            if snapshot is not None:
                formats = [outer_dtype(model, item, policy.dtype) for item in bucket]
                pairs = zip(bucket, formats, strict=True)
                local |= {item.names[0]: _on_host(item, dtype, snapshot) for item, dtype in pairs}
    return as_in_files(model, local)


def _on_host(item: Weight, dtype: torch.dtype, snapshot: Snapshot) -> torch.Tensor:
    if hasattr(item.tensor, "ds_id") or item.tensor.dtype != dtype:
        # gathered for a moment: its address says nothing; or in a format that DeepSpeed's own file does not have
        return item.tensor.detach().to("cpu", dtype, copy=True)
    tensor: torch.Tensor = snapshot.on_host(item.tensor)
    return tensor


def gather_places(places: dict[str, str], total: int, num_ranks: int) -> tuple[dict[str, str], int]:
    """Which file each tensor lies in, and all their bytes: of every rank, on every rank."""
    if num_ranks == 1:
        return places, total
    shares: list[tuple[dict[str, str], int] | None] = [None] * num_ranks
    torch.distributed.all_gather_object(shares, (places, total))
    parts = [share for share in shares if share is not None]
    return {name: file for part, _ in parts for name, file in part.items()}, sum(size for _, size in parts)


def _write_tensors(content: Mapping[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(dict(content), path, metadata={"format": "pt"})
    as_readable_as_its_folder(path)


def _write_model_files(policy: PolicyModel, folder: Path, tokenizer_from: str) -> None:
    from transformers import GenerationConfig

    folder.mkdir(parents=True, exist_ok=True)
    model, config = policy.model, policy.own_config()
    config.dtype, config.architectures = str(policy.dtype).removeprefix("torch."), [type(model).__name__]
    config.save_pretrained(folder)
    if policy.adapter is not None:
        policy.adapter.write(folder)
    # transformers refuses to write what many hubs hold (a temperature without do_sample): the plain one stands in.
    original = model.generation_config
    GenerationConfig(eos_token_id=original.eos_token_id, pad_token_id=original.pad_token_id).save_pretrained(folder)
    source = local_folder(tokenizer_from, [*TOKENIZER_FILES, GENERATION_FILE])
    for pattern in (*TOKENIZER_FILES, GENERATION_FILE):
        for file in sorted(source.glob(pattern)):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
