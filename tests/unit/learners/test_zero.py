"""What is asked of DeepSpeed, and what is refused before it is asked."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from learners.zero import deepspeed_config, frozen, load, make_engine, parameter_groups, stage_3_config
from rlsys.config.learner import LearnerConfig
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES, require_device
from tests.refused import refused


def config(learner: LearnerConfig, device: str = "cuda", dtype: str = "bfloat16"):
    return deepspeed_config(learner, DEVICES[device], dtype=dtype, num_parameters=1001)


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (LearnerConfig(offload="optimizer"), r"learner\.offload='optimizer'"),
        (LearnerConfig(offload="all", zero_stage=3), r"learner\.offload='all'"),
        (LearnerConfig(offload_reference=True), r"learner\.offload_reference=True"),
        (LearnerConfig(compile=True), r"learner\.compile=True"),
    ],
)
def test_offloading_and_compiling_mean_something_on_gpus_only(learner, message) -> None:
    with pytest.raises(BadInput, match=message):
        require_device(learner, DEVICES["cpu"])
    require_device(learner, DEVICES["cuda"])


def test_layers_are_compiled_below_zero_3_only() -> None:
    with refused("learner.compile", found=True):
        LearnerConfig(compile=True, zero_stage=3)


def test_weights_are_offloaded_under_zero_3_only() -> None:
    with refused("learner.offload", found="all"):
        LearnerConfig(offload="all", zero_stage=2)


def test_offloading_reaches_deepspeed() -> None:
    assert "offload_optimizer" not in config(LearnerConfig())["zero_optimization"]
    some = config(LearnerConfig(offload="optimizer"))
    assert some["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert "offload_param" not in some["zero_optimization"]
    assert some["zero_force_ds_cpu_optimizer"] is False  # else DeepSpeed compiles an optimizer of its own
    everything = config(LearnerConfig(offload="all", zero_stage=3))["zero_optimization"]
    assert everything["offload_param"] == everything["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert stage_3_config("float32", offload=True)["zero_optimization"]["offload_param"] == everything["offload_param"]
    assert "offload_param" not in stage_3_config("float32", offload=False)["zero_optimization"]


def test_bfloat16_adds_gradients_up_in_float32() -> None:
    assert config(LearnerConfig())["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "data_types" not in config(LearnerConfig(), "cpu", "float32")


def test_an_odd_number_of_parameters_gets_an_even_bucket() -> None:
    assert config(LearnerConfig())["zero_optimization"]["allgather_bucket_size"] == 1002


def test_no_bucket_is_larger_than_a_card_has_room_for() -> None:
    zero = deepspeed_config(LearnerConfig(), DEVICES["cuda"], dtype="bfloat16", num_parameters=7_000_000_000)
    assert zero["zero_optimization"]["reduce_bucket_size"] == 200_000_000


@pytest.mark.parametrize(
    ("device", "stage", "overlap"), [("cuda", 1, False), ("cuda", 2, True), ("cuda", 3, True), ("cpu", 2, False)]
)
def test_communication_overlaps_on_gpus_from_the_stage_on_that_takes_it(device: str, stage: int, overlap: bool) -> None:
    settings = config(LearnerConfig(zero_stage=stage), device)["zero_optimization"]
    assert (settings["stage"], settings["overlap_comm"]) == (stage, overlap)


def test_ranks_add_gradients_up_in_the_format_that_is_asked_for_and_rows_make_one_step() -> None:
    whole, half = (config(LearnerConfig(reduce_dtype=dtype)) for dtype in ("float32", "bfloat16"))
    assert (whole["communication_data_type"], half["communication_data_type"]) == ("fp32", "bf16")
    assert whole["zero_optimization"]["contiguous_gradients"]  # else memory falls to pieces in the backward pass
    assert whole["managed_gradient_accumulation"] is False and whole["gradient_clipping"] == LearnerConfig().clip_grad
    assert (whole["bf16"], config(LearnerConfig(), "cpu", "float32")["bf16"]) == ({"enabled": True}, {"enabled": False})


class Headed(torch.nn.Module):
    """A policy, whose head is multiplied with outside of its module, whether or not the model does more behind it."""

    def __init__(self, linear_head: bool) -> None:
        super().__init__()
        self.linear_head, self.body, self.head = linear_head, torch.nn.Linear(2, 3), torch.nn.Linear(3, 4)
        self.model = SimpleNamespace(get_output_embeddings=lambda: self.head)


@pytest.mark.parametrize(
    ("stage", "linear_head", "registered"), [(3, True, 2), (3, False, 2), (2, True, 0), (1, True, 0)]
)
def test_a_model_and_its_own_optimizer_become_an_engine(
    stage: int, linear_head: bool, registered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {}
    external: list[Any] = []

    def initialize(**options: Any) -> tuple[Any, None, None, None]:
        arguments.update(options)
        return SimpleNamespace(eval=lambda: "evaluated"), None, None, None

    deepspeed = ModuleType("deepspeed")
    vars(deepspeed).update(
        initialize=initialize, zero=SimpleNamespace(register_external_parameter=lambda *args: external.append(args))
    )
    monkeypatch.setitem(sys.modules, "deepspeed", deepspeed)
    model: Any = Headed(linear_head)
    learner = LearnerConfig(zero_stage=stage, weight_decay=0.1, betas=(0.8, 0.9))  # type: ignore[arg-type]
    make_engine(model, learner, DEVICES["cpu"], dtype="float32", lr=0.25)
    assert [(owner, id(parameter)) for owner, parameter in external] == [
        (model, id(parameter)) for parameter in list(model.head.parameters())[:registered]
    ]
    optimizer = arguments["optimizer"]
    assert {(group["lr"], group["betas"]) for group in optimizer.param_groups} == {(0.25, (0.8, 0.9))}
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    # 2 x 3 + 3 of the body, 3 x 4 + 4 of the head: an even number is wanted
    assert arguments["model"] is model and arguments["config"]["zero_optimization"]["reduce_bucket_size"] == 26
    external.clear()
    assert frozen(model, learner, dtype="bfloat16") == "evaluated"
    assert len(external) == 2 and arguments["config"]["bf16"] == {"enabled": True}


def test_the_optimizers_steps_are_adamws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loshchilov and Hutter 2019, algorithm 2, with veRL's betas and decay: by hand, and torch's own AdamW."""
    arguments: dict[str, Any] = {}
    deepspeed = ModuleType("deepspeed")
    vars(deepspeed).update(initialize=lambda **options: (arguments.update(options), None, None, None))
    monkeypatch.setitem(sys.modules, "deepspeed", deepspeed)
    model, lr, (fast, slow), decay = torch.nn.Linear(2, 1), 0.1, (0.9, 0.999), 0.01
    whole: Any = model
    learner = LearnerConfig(betas=(fast, slow), weight_decay=decay)
    make_engine(whole, learner, DEVICES["cpu"], dtype="float32", lr=lr)
    weight, bias = model.weight[0, 0].item(), model.bias[0].item()
    plain = torch.nn.Parameter(model.weight.detach().clone())
    torchs = torch.optim.AdamW([plain], lr=lr, betas=(fast, slow), weight_decay=decay)
    first = second = 0.0
    for step, slope in enumerate((2.0, -1.0, 0.5), start=1):
        model.weight.grad, model.bias.grad = torch.full((1, 2), slope), torch.full((1,), slope)
        plain.grad = torch.full((1, 2), slope)
        arguments["optimizer"].step()
        torchs.step()
        first, second = fast * first + (1 - fast) * slope, slow * second + (1 - slow) * slope**2
        moved = lr * (first / (1 - fast**step)) / ((second / (1 - slow**step)) ** 0.5 + 1e-8)
        weight, bias = weight * (1 - lr * decay) - moved, bias - moved  # a bias does not decay
        assert model.weight[0, 0].item() == pytest.approx(weight, abs=1e-6)
        assert model.bias[0].item() == pytest.approx(bias, abs=1e-6)
        torch.testing.assert_close(model.weight, plain)


class Engine:
    """What DeepSpeed's does with an optimizer: it loads the saved one over its own."""

    def __init__(self, learner: LearnerConfig, saved: Any = None) -> None:
        model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, learner.weight_decay), lr=learner.lr, betas=learner.betas
        )
        self.optimizer.clip_grad = learner.clip_grad
        model(torch.ones(2)).sum().backward()
        self.saved = saved

    def load_checkpoint(self, folder: str, tag: str) -> tuple[str, dict[str, Any]]:
        self.optimizer.load_state_dict(self.saved)
        self.optimizer.clip_grad = 99.0
        return folder, {"step": 3}


def test_a_loaded_optimizer_moves_weights_as_its_configuration_says() -> None:
    before = Engine(LearnerConfig(weight_decay=0.0, betas=(0.9, 0.95)))
    before.optimizer.step()
    engine = Engine(LearnerConfig(weight_decay=0.1, betas=(0.8, 0.99), clip_grad=0.5), before.optimizer.state_dict())
    assert load(engine, Path("learner"), "state") == {"step": 3}
    groups = engine.optimizer.param_groups
    assert [(group["weight_decay"], group["betas"]) for group in groups] == [(0.1, (0.8, 0.99)), (0.0, (0.8, 0.99))]
    assert engine.optimizer.clip_grad == 0.5
    (weight,) = groups[0]["params"]
    assert engine.optimizer.state[weight]["step"] == 1  # and the moments are those that were saved
