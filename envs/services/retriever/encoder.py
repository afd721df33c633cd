"""Texts to vectors with any Hugging Face encoder: pooled, L2-normalised, so that an inner product is a cosine."""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from envs.services.retriever.encoder_spec import EncoderSpec
from rlsys.errors import BadInput

# Padded tokens of one forward pass. On a CPU more than this only adds padding and leaves the cache.
TOKENS_AT_ONCE = {"cpu": 512, "cuda": 65536}
# Lengths and rows are rounded up to it: torch's CPU kernels are made per shape and kept, so that a server which sees
# every shape would grow by gigabytes.
STEP = 8


class Encoder:
    """May be used by several threads at once. Raises BadInput for a checkpoint that cannot be loaded."""

    def __init__(
        self,
        spec: EncoderSpec,
        *,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        query_tokens: int | None = None,
    ):
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(spec.path, trust_remote_code=False)
            model: Any = AutoModel.from_pretrained(spec.path, trust_remote_code=False)
        except (OSError, ValueError, pickle.UnpicklingError) as error:
            reason = " ".join(str(error).split())[:160]
            raise BadInput(
                f"cannot be loaded ({reason}); encoder=minilm needs no network", key="encoder", found=spec.path
            ) from error
        self.spec = spec
        self._tokenizing = threading.Lock()  # a tokenizer is not safe among threads
        self.dimension = int(model.config.hidden_size)
        self.identity = _fingerprint(spec, model)
        cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
        self._device = "cuda" if cuda else "cpu"
        self.threads = torch.get_num_threads() if not cuda else 1
        fast = torch.cuda.is_bf16_supported() if cuda else torch.cpu._is_avx512_bf16_supported()
        self.dtype = ("bfloat16" if fast else "float32") if dtype == "auto" else dtype
        self._model = model.to(device=self._device, dtype=getattr(torch, self.dtype)).eval()
        positions = getattr(model.config, "max_position_embeddings", spec.max_tokens)
        most = min(spec.max_tokens, int(self._tokenizer.model_max_length), int(positions))
        self._max_tokens = most // STEP * STEP
        self._query_tokens = min(most, query_tokens or most) // STEP * STEP

    def limit_threads(self, threads: int) -> None:
        """Of the forward passes that the calling thread makes; threads that this process starts later begin with it."""
        torch.set_num_threads(threads)

    def queries(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """float32 `[len(texts), dimension]`, each of length 1."""
        return self._encode([self.spec.query_prefix + text for text in texts], self._query_tokens)

    def passages(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """float32 `[len(texts), dimension]`, each of length 1."""
        return self._encode([self.spec.passage_prefix + text for text in texts], self._max_tokens)

    def _encode(self, texts: list[str], max_tokens: int) -> np.ndarray[Any, Any]:
        with self._tokenizing:
            # A [SEP] in a passage is text, and no mark of the encoder's.
            as_text = {"truncation": True, "max_length": max_tokens, "split_special_tokens": True}
            ids = self._tokenizer(texts, **as_text)["input_ids"]
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for rows in batches_by_length([len(row) for row in ids], TOKENS_AT_ONCE[self._device]):
            vectors[rows] = self._forward([ids[row] for row in rows])
        return vectors

    def _forward(self, ids: list[list[int]]) -> np.ndarray[Any, Any]:
        length = -(-max(len(row) for row in ids) // STEP) * STEP
        num_rows = len(ids)
        ids = ids + ids[:1] * (padded_rows(num_rows) - num_rows)
        pad = self._tokenizer.pad_token_id or 0
        tokens_BT = torch.tensor([row + [pad] * (length - len(row)) for row in ids], device=self._device)
        mask_BT = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in ids], device=self._device)
        with torch.inference_mode():
            hidden_BTD = self._model(input_ids=tokens_BT, attention_mask=mask_BT).last_hidden_state.float()
            if self.spec.pooling == "cls":
                pooled_BD = hidden_BTD[:, 0]
            elif self.spec.pooling == "lasttoken":
                pooled_BD = hidden_BTD[torch.arange(len(ids)), mask_BT.sum(1) - 1]
            else:
                pooled_BD = (hidden_BTD * mask_BT[..., None]).sum(1) / mask_BT.sum(1, keepdim=True)
            result: np.ndarray[Any, Any] = torch.nn.functional.normalize(pooled_BD, dim=-1).cpu().numpy()
        return result[:num_rows]


def padded_rows(rows: int) -> int:
    """1, 2, 4, then multiples of 8."""
    return 1 << (rows - 1).bit_length() if rows < STEP else -(-rows // STEP) * STEP


def batches_by_length(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Rows, shortest first, in groups of at most `tokens` padded tokens (one row where it alone is longer)."""
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[row] <= tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _fingerprint(spec: EncoderSpec, model: Any) -> str:
    """Equal for equal weights and text treatment, wherever they were loaded from: a hash over a part of each tensor."""
    digest = hashlib.blake2b(digest_size=16)
    treatment = [spec.pooling, spec.query_prefix, spec.passage_prefix, spec.max_tokens]
    digest.update(json.dumps(treatment).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten()[:64].float().numpy().tobytes())
    return digest.hexdigest()
