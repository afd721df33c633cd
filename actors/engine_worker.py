"""What runs in vLLM's own processes: the EngineCore that it spawns, and its children where they share the model."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlsys.system.orphans import die_with, unname
from rlsys.system.weight_folder import WeightFolder, WeightManifest

if TYPE_CHECKING:
    import torch

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
        """Replace all weights. Returns the number of tensors read and the layers that did not get every element."""
        import torch
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        # Its warnings name the rotary embedding at every reload, which has no weights; what counts is checked here.
        logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
        model = self.model_runner.get_model()
        seen: set[str] = set()
        device = next(model.parameters()).device
        with torch.no_grad(), device, set_current_vllm_config(self.vllm_config):
            initialize_layerwise_reload(model)
            model.load_weights(once(self.rl_tensors(published), seen))
            missing = self.rl_missing(model)
            finalize_layerwise_reload(model, self.model_config)
        return len(seen), missing

    def rl_tensors(self, published: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """The version's tensors under their checkpoint names. vLLM carries the record of it as a dict."""
        return WeightFolder.receive(WeightManifest(**published))

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


def once(tensors: Iterator[tuple[str, torch.Tensor]], seen: set[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Pass tensors on and collect their names; a second one of the same name would stand in for a missing one."""
    for name, tensor in tensors:
        if name in seen:
            raise ValueError(f"tensor {name} comes twice")
        seen.add(name)
        yield name, tensor
