"""`engine.vllm`: further arguments of vLLM's engine, checked against vLLM's own list without importing it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput, nearest

SOURCE = "engine/arg_utils.py"  # of the package: importing it takes ten seconds
# What rlsys gives vLLM itself, with the key that decides on it; None: the loop relies on the value.
OWN: dict[str, str | None] = {
    "model": "model.path",
    "tokenizer": "model.path",
    "dtype": "model.dtype",
    "seed": "seed",
    "max_model_len": "engine.max_model_len",
    "max_num_seqs": "engine.max_num_seqs",
    "kv_cache_memory_bytes": "engine.kv_cache_mb",
    "gpu_memory_utilization": "engine.gpu_memory_utilization",
    "enable_prefix_caching": "engine.prefix_cache",
    "enforce_eager": "engine.enforce_eager",
    "tensor_parallel_size": "engine.tensor_parallel",
    "hf_overrides": "model.fp32_head",
    "logprobs_mode": None,
    "worker_extension_cls": None,
    "additional_config": None,
    "disable_log_stats": None,
    "distributed_executor_backend": None,
    "scheduling_policy": None,
    "pipeline_parallel_size": None,
    "data_parallel_size": None,
    "data_parallel_size_local": None,
    "decode_context_parallel_size": None,
    "enable_chunked_prefill": None,
    "enable_lora": "model.lora.rank",
    "max_lora_rank": "model.lora.rank",
    "lora_target_modules": "model.lora.targets",
    "max_loras": None,
    "max_cpu_loras": None,
    "lora_dtype": None,
    "enable_sleep_mode": None,
    "hf_token": None,
    "load_format": None,
    "revision": None,
    "skip_tokenizer_init": None,
    "tokenizer_revision": None,
    "trust_remote_code": None,
    "worker_cls": None,
}


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raises BadInput for a name that rlsys sets, and for one that vLLM does not have, where it is installed."""
    for name in arguments:
        if name in OWN:
            key = OWN[name]
            raise BadInput(f"say {key}" if key else "rlsys relies on the value that it sets", key=f"engine.vllm.{name}")
        names = known_arguments()
        if names and name not in names:
            raise BadInput(f"no argument of vLLM's{nearest(name, names, otherwise='')}", key=f"engine.vllm.{name}")


@cache
def known_arguments() -> frozenset[str]:
    """The fields of vLLM's EngineArgs and AsyncEngineArgs, read from its source; none without vLLM."""
    package = find_spec("vllm")
    if package is None or package.origin is None:
        return frozenset()
    tree = ast.parse((Path(package.origin).parent / SOURCE).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("EngineArgs")]
    fields = [node for definition in classes for node in definition.body if isinstance(node, ast.AnnAssign)]
    return frozenset(field.target.id for field in fields if isinstance(field.target, ast.Name))
