"""What runs in vLLM's own processes: the EngineCore that it spawns, and its children where they share the model."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.one_adapter import add_adapter
from rlsys.adapters import WEIGHTS, Adapter
from rlsys.system.orphans import die_with, unname
from rlsys.system.weight_folder import WeightFolder, WeightManifest

if TYPE_CHECKING:
    import torch

ADAPTER = 1  # vLLM's number of the one adapter that an engine has
PARENT_VARIABLE = "RLSYS_ENGINE_PARENT"  # set while an EngineCore is being spawned: the pid that it must not outlive


# Runs at import, in a process that vLLM started. `ImportHere` brings the import about while the process unpickles its
# arguments: the extension class comes only after a handshake, in which an orphan waits five minutes for its parent.
# The processes that an EngineCore divides a model among are bound to it in the same way.
if os.environ.get(PARENT_VARIABLE, str(os.getpid())) != str(os.getpid()):
    die_with(int(os.environ[PARENT_VARIABLE]))
    os.environ[PARENT_VARIABLE] = str(os.getpid())


class ImportHere:
    """Rides along in the EngineCore's configuration, so that unpickling it imports this file there."""

    def compute_hash(self) -> str:  # vLLM asks it of an `additional_config` that is no dict
        return ""


class ReloadExtension:
    """Mixed into vLLM's worker; `Engine` calls `rl_load` over `collective_rpc`. Plain values only go in and out.

    Weights go through vLLM's layerwise reload: on a CPU the linear layers are packed copies, which writing into the
    parameters would not reach; on a GPU it keeps the storage that captured graphs point to.
    """

    vllm_config: Any
    model_config: Any
    model_runner: Any

    def rl_pid(self) -> int:
        unname(os.environ.get("VLLM_DIST_IDENT"))  # of vLLM's CPU worker: both sides have opened what bears it
        return os.getpid()

    def rl_load(self, published: dict[str, Any]) -> tuple[int, list[str]]:
        """Replace all weights, or the adapter. Returns the number of tensors read and the layers that did not get every
        element."""
        if published.get("adapter") is not None:
            return self.rl_adapt(Adapter(**published["adapter"]), self.rl_tensors(published))
        return self.rl_reload(self.rl_tensors(published))

    def rl_load_base(self, folder: str) -> tuple[int, list[str]]:
        """Replace all weights but the adapter's by those of a Hugging Face folder."""
        return self.rl_reload(self.rl_folder(folder))

    def rl_load_adapter(self, folder: str, adapter: dict[str, Any]) -> tuple[int, list[str]]:
        """The adapter of a folder."""
        return self.rl_adapt(Adapter(**adapter), read_file(Path(folder) / WEIGHTS))

    def rl_adapt(self, adapter: Adapter, tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[int, list[str]]:
        """LoRA: put these numbers in the place of the adapter's, within the buffers that captured graphs point to.

        vLLM leaves out without a word what has no place in its layers: those are what is missing here.
        """
        from vllm.lora.lora_model import LoRAModel
        from vllm.lora.peft_helper import PEFTHelper

        if self.vllm_config.device_config.device_type == "cpu":
            from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

            PunicaWrapperCPU.add_lora_linear = add_adapter
        manager = self.model_runner.lora_manager
        inner, names = manager._adapter_manager, set[str]()
        helper = PEFTHelper.from_dict(adapter.peft_config())
        helper.validate_legal(manager.lora_config)
        mapper = getattr(inner.model, "hf_to_vllm_mapper", None)
        copies = {name: tensor.clone() for name, tensor in once(iter(tensors), names)}  # vLLM scales them in place
        loaded = LoRAModel.from_lora_tensors(
            ADAPTER, copies, helper, device="cpu", dtype=manager.lora_config.lora_dtype,
            model_vocab_size=manager.vocab_size, weights_mapper=mapper and mapper.get_rename_mapper(),
        )  # fmt: skip
        places = {place for name in inner.modules for place in inner.packed_modules.get(name, [name])}
        missing = [f"{name}: the engine has no adapter there" for name in loaded.loras if name not in places]
        halves = [name for name, layer in loaded.loras.items() if layer.lora_a is None or layer.lora_b is None]
        missing += [f"{name}: half of it" for name in halves]
        if not missing:
            inner.remove_adapter(ADAPTER)
            inner.add_adapter(loaded)
            inner.activate_adapter(ADAPTER)
        return len(names), missing

    def rl_reload(self, tensors: Iterator[tuple[str, torch.Tensor]]) -> tuple[int, list[str]]:
        """All weights of the model by these (elsewhere `update_weights`): how many there are, and which are missing."""
        import torch
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        # Its warnings name the rotary embedding at every reload, which has no weights; what counts is checked here.
        logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
        model = self.model_runner.get_model()
        names: set[str] = set()
        device = next(model.parameters()).device
        wrapped = getattr(self.model_runner, "lora_manager", None) is not None
        plain = without_adapters(model) if wrapped else nullcontext()
        with torch.no_grad(), device, set_current_vllm_config(self.vllm_config), plain:
            initialize_layerwise_reload(model)
            model.load_weights(once(tensors, names))
            missing = self.rl_missing(model)
            finalize_layerwise_reload(model, self.model_config)
        return len(names), missing

    def rl_tensors(self, published: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """The version's tensors under their checkpoint names. vLLM carries the record of it as a dict."""
        return WeightFolder.receive(WeightManifest(**published))

    def rl_folder(self, folder: str) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of a Hugging Face folder; a tied head under its own name too, as in a published version."""
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"no folder {folder}, and this engine has other weights")
        embedding, head = "model.embed_tokens.weight", "lm_head.weight"
        tied = getattr(self.model_config.hf_config.get_text_config(), "tie_word_embeddings", False)
        for file in sorted(Path(folder).glob("*.safetensors")):
            for name, tensor in read_file(file):
                if not (tied and name == head):
                    yield name, tensor
                if tied and name == embedding:
                    yield head, tensor

    def rl_missing(self, model: Any) -> list[str]:
        """Layers with parameters that are still waiting for elements. vLLM would keep their old weights with a warning.

        Counted in elements, per layer: a name in the set that `load_weights` returns says nothing about the k in a
        fused qkv. A vocabulary's padding rows are never sent.
        """
        from vllm.model_executor.layers.attention import is_deferred_attention_layer
        from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
        from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

        missing = []
        for name, layer in model.named_modules():
            info = get_layerwise_info(layer)
            if not info.can_load() or not layer._parameters or is_deferred_attention_layer(layer):
                continue  # complete, or nothing to load
            expected = info.load_numel_total or 0
            if isinstance(layer, VocabParallelEmbedding):
                expected = expected // layer.num_embeddings_per_partition * layer.shard_indices.num_org_elements
            if info.load_numel < expected:
                missing.append(f"{name}: {info.load_numel} of {expected} elements")
        return missing


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Inside, the model has the names that it was loaded under: vLLM wraps each layer that an adapter may be on, and
    its loaders would look for the layer's weights in vain."""
    from vllm.lora.layers import BaseLayerWithLoRA

    wrapped: Mapping[str, Any] = {
        name: module for name, module in model.named_modules() if isinstance(module, BaseLayerWithLoRA)
    }

    def put(name: str, module: Any) -> None:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, module)

    for name, module in wrapped.items():
        put(name, module.base_layer)
    try:
        yield
    finally:
        for name, module in wrapped.items():
            put(name, module)


def read_file(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118 (it is no mapping)
            yield name, opened.get_tensor(name)


def once(tensors: Iterator[tuple[str, torch.Tensor]], names: set[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Pass tensors on and collect their names; a second one of the same name would stand in for a missing one."""
    for name, tensor in tensors:
        if name in names:
            raise ValueError(f"tensor {name} comes twice")
        names.add(name)
        yield name, tensor
