"""DeepSpeed engines: one for each model that is trained, and one for a frozen model that ZeRO-3 partitions."""

from __future__ import annotations

from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from learners import redivide
from rlsys.config.learner import LearnerConfig
from rlsys.system.device import Device

if TYPE_CHECKING:
    from learners.policy import CriticModel, PolicyModel


def make_engine(
    model: PolicyModel | CriticModel, learner: LearnerConfig, device: Device, *, dtype: str, lr: float
) -> Any:
    """A DeepSpeed engine with its own AdamW. It clips gradients in its step (elsewhere `clip_grad_norm`)."""
    import deepspeed

    if learner.zero_stage == 3:
        _register_head(model)
    # torch's fused kernel: DeepSpeed's own build is never needed
    groups = parameter_groups(model, learner.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=learner.betas, fused=True)
    trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
    num_parameters = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in trained)
    config = deepspeed_config(learner, device, dtype=dtype, num_parameters=num_parameters)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def frozen(model: PolicyModel, learner: LearnerConfig, *, dtype: str) -> Any:
    """A DeepSpeed engine without an optimizer, which partitions the weights over the ranks as ZeRO-3 does."""
    import deepspeed

    _register_head(model)
    engine, _, _, _ = deepspeed.initialize(model=model, config=stage_3_config(dtype, offload=learner.offload_reference))
    return engine.eval()


def stage_3_config(dtype: str, *, offload: bool) -> dict[str, Any]:
    """Weights divided over the ranks, on their devices or in host memory."""
    zero: dict[str, Any] = {"stage": 3}
    if offload:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": dtype == "bfloat16"},
        "steps_per_print": None,
        "zero_optimization": zero,
    }


def deepspeed_config(learner: LearnerConfig, device: Device, *, dtype: str, num_parameters: int) -> dict[str, Any]:
    # the default bucket reserves a gigabyte for the smallest model; DeepSpeed wants an even number
    bucket_size = min(num_parameters + num_parameters % 2, 200_000_000)
    zero: dict[str, Any] = {
        "stage": learner.zero_stage,
        # stage 1 refuses overlap together with unmanaged accumulation
        "overlap_comm": device.overlap_comm and learner.zero_stage >= 2,
        "contiguous_gradients": True,
        "reduce_bucket_size": bucket_size,
        "allgather_bucket_size": bucket_size,
    }
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed wants a number; our rows are packed
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,  # step() ends the accumulation, whatever the number of rows
        "gradient_clipping": learner.clip_grad,  # elsewhere `max_grad_norm`, `grad_clip`
        "bf16": {"enabled": dtype == "bfloat16"},
        # DeepSpeed would add the ranks' gradients in the weights' format, after dividing by their number.
        "communication_data_type": {"float32": "fp32", "bfloat16": "bf16"}[learner.reduce_dtype],
        "steps_per_print": None,
        "zero_optimization": zero,
    }
    if dtype == "bfloat16":
        config["data_types"] = {"grad_accum_dtype": "fp32"}  # many small rows add up to one gradient
    if learner.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        config["zero_force_ds_cpu_optimizer"] = False  # torch's AdamW runs on CPUs too, and needs no compiler
    if learner.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return config


def leave_card(engine: Any) -> None:
    """Everything that it keeps on the GPU goes to host memory, until `engine.reload_states()`.

    Of ZeRO-2: DeepSpeed's stage 1 in bfloat16 cannot, and its stage 3 only with an optimizer of its own.
    """
    engine.offload_states(pin_memory=engine.device.type == "cuda")  # without pages to pin a CPU has nothing to move


def load(
    engine: Any, folder: Path, tag: str, *, frozen_too: bool = True, divided: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Weights and the optimizer's moments, as they were saved; how it moves the weights (weight decay, betas, clipping)
    stays as the engine was made. Returns what was saved with them.

    frozen_too: whether the checkpoint holds every weight; not that of an adapter, whose model was loaded before.
    divided: the number of ranks and the ZeRO stage that it was saved with, where those are others.
    """
    optimizer = engine.optimizer
    ours = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    clip_grad = optimizer.clip_grad  # which ZeRO below 3 saves and loads, too
    client_state: dict[str, Any]
    if divided is not None:
        client_state = redivide.load(engine, folder / tag, ranks=divided[0], zero_stage=divided[1])
    else:
        more = {} if frozen_too else {"load_module_strict": False}
        _, client_state = engine.load_checkpoint(str(folder), tag=tag, **more)
    optimizer.clip_grad = clip_grad
    for group, settings in zip(optimizer.param_groups, ours, strict=True):
        group.update(settings)
    return client_state


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay on matrices only: norms and biases keep their scale. A group without any is left out."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [len(getattr(param, "ds_shape", param.shape)) >= 2 for param in trained]  # none has a shape under ZeRO-3
    groups: list[dict[str, Any]] = [
        {"params": list(compress(trained, matrices)), "weight_decay": weight_decay},
        {"params": [param for param, matrix in zip(trained, matrices, strict=True) if not matrix], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _register_head(model: PolicyModel | CriticModel) -> None:
    """The head's weight is used outside its module, where stage 3 would gather it."""
    import deepspeed

    if hasattr(model, "linear_head"):  # a policy: a critic's head is used as a module
        for parameter in model.model.get_output_embeddings().parameters():
            deepspeed.zero.register_external_parameter(model, parameter)
