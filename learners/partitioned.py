"""A model that no rank could hold is loaded under ZeRO-3: rank 0 reads, every rank keeps its part of each parameter.

Rank 0 maps the files, which takes more memory only where numbers have to change: another dtype, or experts that
transformers joins. The other ranks build the same modules without numbers. On the device one module at a time is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


def hollow(config: PretrainedConfig, dtype: torch.dtype, attention_key: str) -> PreTrainedModel:
    """What `from_pretrained` makes of this configuration, with one zero for all the numbers of a weight."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        shapes = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention_key)
    zeros = {
        name: torch.zeros((), dtype=tensor.dtype).expand(tensor.shape) for name, tensor in shapes.state_dict().items()
    }
    model: PreTrainedModel = type(shapes).from_pretrained(
        None, config=config, state_dict=zeros, dtype=dtype, attn_implementation=attention_key
    )
    return model


def partition(model: nn.Module, deepspeed_config: Mapping[str, Any], device: torch.device | str) -> None:
    """Keep this rank's part of every parameter, and buffers whole, as rank 0 has them. A collective."""
    import deepspeed

    convert: Any = None  # the first parameter knows how the others are converted
    for module in reversed(list(model.modules())):  # a module after those inside it, which `Init` would convert too
        params = [parameter for parameter in module.parameters(recurse=False) if not hasattr(parameter, "ds_id")]
        for parameter in params:
            tensor = parameter.data.to(device)
            hollow_one = 0 in tensor.stride()  # a tensor of one element is contiguous whatever its stride
            parameter.data = tensor.clone(memory_format=torch.contiguous_format) if hollow_one else tensor.contiguous()
        if params and convert is None:
            deepspeed.zero.Init(module=module, config_dict_or_path=dict(deepspeed_config))
            convert = getattr(params[0], "convert_to_zero_parameters")  # noqa: B009 (DeepSpeed gives it to a tensor)
        elif params:
            convert(param_list=params)
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = moved = buffer.to(device).contiguous()
            torch.distributed.broadcast(moved, 0)


@contextmanager
def whole_in_forward(model: nn.Module) -> Iterator[None]:
    """Inside, a module's own parameters are whole while it computes: before DeepSpeed has an engine for the model.

    Nothing is done for a model that is not partitioned.
    """
    import deepspeed

    gathered: dict[nn.Module, Any] = {}

    def enter(module: nn.Module, _inputs: Any) -> None:
        gathered[module] = deepspeed.zero.GatheredParameters(list(module.parameters(recurse=False)))
        gathered[module].__enter__()

    def leave(module: nn.Module, _inputs: Any, _output: Any) -> None:
        gathered.pop(module).__exit__(None, None, None)

    hooks: list[Any] = []
    for module in model.modules():
        if any(hasattr(parameter, "ds_id") for parameter in module.parameters(recurse=False)):
            hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
