"""Adapters within vLLM's worker, without vLLM: what its reload sees of wrapped layers, and what a folder holds."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from actors.engine_worker import ReloadExtension, without_adapters
from rlsys.adapters import WEIGHTS, Adapter


class Wrapped(nn.Module):
    """As vLLM wraps a layer that an adapter may be on."""

    def __init__(self, base_layer: nn.Module) -> None:
        super().__init__()
        self.base_layer = base_layer


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, names in {"vllm": {}, "vllm.lora": {}, "vllm.lora.layers": {"BaseLayerWithLoRA": Wrapped}}.items():
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)


def names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def test_a_reload_finds_the_names_of_the_plain_model_and_leaves_the_wrapped_one() -> None:
    model = nn.ModuleDict({"first": nn.Sequential(Wrapped(nn.Linear(2, 2)), nn.LayerNorm(2)), "head": nn.Linear(2, 2)})
    wrapped, order = model["first"][0], names(model)
    with pytest.raises(RuntimeError), without_adapters(model):
        assert names(model) == ["first.0.weight", "first.0.bias", *order[2:]]
        assert model["first"][0] is wrapped.base_layer
        raise RuntimeError("the reload failed")
    assert names(model) == order and model["first"][0] is wrapped


def worker(*, tied: bool = False) -> Any:
    extension: Any = ReloadExtension()
    config = SimpleNamespace(tie_word_embeddings=tied)
    extension.model_config = SimpleNamespace(hf_config=SimpleNamespace(get_text_config=lambda: config))
    return extension


@pytest.mark.parametrize("tied", [False, True])
def test_the_base_of_an_adapter_is_read_whole_and_a_tied_head_under_its_own_name(tied: bool, tmp_path: Path) -> None:
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    tensors = {embedding: torch.ones(2, 2), "model.norm.weight": torch.ones(2)}
    save_file(tensors | ({} if tied else {head: torch.zeros(2, 2)}), tmp_path / "model.safetensors")
    weights = list(worker(tied=tied).rl_folder(str(tmp_path)))
    assert sorted(name for name, _ in weights) == sorted([head, *tensors])
    assert torch.equal(dict(weights)[head], torch.ones(2, 2) if tied else torch.zeros(2, 2))
    with pytest.raises(FileNotFoundError, match="this engine has other weights"):
        list(worker().rl_folder(str(tmp_path / "gone")))


def test_a_version_with_an_adapter_and_a_folder_of_one_are_loaded_as_adapters(tmp_path: Path) -> None:
    adapter = Adapter(base="b", rank=1, alpha=2.0, targets=("q_proj",))
    extension, seen = worker(), []
    extension.rl_adapt = lambda lora, tensors: (seen.append((lora, dict(tensors))), (1, []))[1]
    save_file({"a": torch.ones(1)}, tmp_path / WEIGHTS)
    extension.rl_tensors = lambda published: iter({"b": torch.ones(1)}.items())
    plain = {"base": "b", "rank": 1, "alpha": 2.0, "targets": ["q_proj"]}  # as it comes out of msgpack
    assert extension.rl_load({"version": 1, "adapter": plain}) == (1, [])
    assert extension.rl_load_adapter(str(tmp_path), plain) == (1, [])
    assert [(lora.peft_config(), list(tensors)) for lora, tensors in seen] == [
        (adapter.peft_config(), ["b"]), (adapter.peft_config(), ["a"])
    ]  # fmt: skip
