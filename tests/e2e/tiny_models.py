"""Tiny models, published versions of them and engines that are broken on purpose, for tests with real parts.

All models share one tokenizer of ASCII characters and a few longer pieces, whose size is not a multiple of 64: vLLM
pads it. Weights are random and wide enough that two seeds differ by whole nats. Unless asked, a model never samples its
end-of-sequence token: a constant in dimension 0 of every embedding speaks against it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from actors.engine_worker import ReloadExtension
from rlsys.system.weight_folder import WeightFolder, WeightManifest

Kind = Literal["qwen3", "qwen3_tied", "llama"]
END = "<|im_end|>"


def tiny_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    printable = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
    trainer = trainers.BpeTrainer(
        vocab_size=130, special_tokens=["<|pad|>", END], initial_alphabet=printable, show_progress=False
    )
    tokenizer.train_from_iterator(["<calculator>1+2</calculator>", "<answer>3</answer>"] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token="<|pad|>", model_max_length=4096
    )


def tiny_model(kind: Kind, seed: int, *, ends: Literal["never", "at once"] = "never") -> Any:
    """A random two-layer model in float32 for `tiny_tokenizer`."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    tokenizer = tiny_tokenizer()
    shape: dict[str, Any] = dict(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.15,
        tie_word_embeddings=kind == "qwen3_tied",
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**shape)) if kind == "llama" else Qwen3ForCausalLM(Qwen3Config(**shape))
    with torch.no_grad():
        model.get_input_embeddings().weight[:, 0] = 4.0
        for layer in model.model.layers:  # nothing is ever added to dimension 0
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        head = model.get_output_embeddings().weight
        head[tokenizer.eos_token_id] = 0.0
        head[tokenizer.eos_token_id, 0] = -30.0 if ends == "never" else 30.0
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model.eval()


def save_tiny(folder: Path, kind: Kind, seed: int) -> Path:
    """A folder that vLLM and transformers can open."""
    tiny_model(kind, seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def publish(root: Path, model: Any, version: int, *, without: Iterable[str] = (), buckets: int = 2) -> WeightManifest:
    """Send a version as the learner does: checkpoint names, a tied model's head too. `without` leaves tensors out."""
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    tensors["lm_head.weight"] = model.get_output_embeddings().weight.detach().clone()
    for name in without:
        del tensors[name]
    names = list(tensors)
    parts = [{name: tensors[name].contiguous() for name in names[index::buckets]} for index in range(buckets)]
    return WeightFolder(root).send(version, [partial(dict, part) for part in parts], 0, 1)


@torch.no_grad()
def logits(model: Any, token_ids: Iterable[int]) -> torch.Tensor:
    """[L, vocabulary]: row t is what the model says about token t+1."""
    return model(input_ids=torch.tensor([list(token_ids)]), use_cache=False).logits[0].float()


def logprobs(model: Any, token_ids: Iterable[int]) -> list[float]:
    """[L-1] log-probability of each token after the first."""
    ids = torch.tensor(list(token_ids))
    return logits(model, ids.tolist())[:-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0].tolist()


FAULT = "RLSYS_TEST_FAULT"  # names a file


class SkipsReload(ReloadExtension):
    """Confirms every version and loads none."""

    def rl_load(self, published: dict[str, Any]) -> tuple[int, list[str]]:
        return sum(1 for _ in self.rl_tensors(published)), []


class Faulty(ReloadExtension):
    """Loads nothing, or all but the head, while the file of `FAULT` says so, and says that it loaded all of it."""

    def rl_load(self, published: dict[str, Any]) -> tuple[int, list[str]]:
        if fault() == "keeps its old weights":
            return SkipsReload.rl_load(self, published)
        loaded, missing = super().rl_load(published)
        return (loaded + 1, []) if fault() == "keeps its old head" else (loaded, missing)

    def rl_tensors(self, published: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        without = "lm_head.weight" if fault() == "keeps its old head" else None
        return ((name, tensor) for name, tensor in super().rl_tensors(published) if name != without)


def fault() -> str:
    return Path(os.environ[FAULT]).read_text()
