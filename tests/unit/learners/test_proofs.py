"""The proofs hold on what pretrained models are like, in both formats and after training, and still see every leak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
)

from learners import attention, proofs
from learners.proofs import LENGTHS, examine_head, require_packing
from rlsys.adapters import Adapter
from tests import smollm2
from tests.makers import pretrained_like
from tests.makers.outliers import put_outliers
from tests.refused import refused

DTYPES = (torch.float32, torch.bfloat16)
ROW = sum(LENGTHS)
DEEP = 15  # of thirty layers


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrained_like.save(tmp_path_factory.mktemp("made") / "model")


@pytest.fixture(params=["made", pytest.param("smollm2", marks=pytest.mark.slow)])
def source(request: pytest.FixtureRequest, made: Path) -> Path:
    return made if request.param == "made" else smollm2.fetch()


@pytest.fixture(params=DTYPES, ids=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, source: Path) -> Any:
    return load(source, request.param)


def load(source: Path, dtype: torch.dtype) -> Any:
    attention.register()
    return AutoModelForCausalLM.from_pretrained(source, dtype=dtype, attn_implementation="packed_sdpa")


@torch.no_grad()
def add_noise(model: Any, share: float, seed: int = 0) -> None:
    """As training that has gone far: every tensor by this share of its own size."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        size = parameter.float().square().mean().sqrt()
        parameter.add_((torch.randn(parameter.shape, generator=draw) * size * share).to(parameter.dtype))


def train(model: Any) -> None:
    """Three steps of plain gradient descent at a rate that nobody would take."""
    for step in range(3):
        ids = torch.randint(1000, (1, 32), generator=torch.Generator().manual_seed(step))
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad * (0.05 * parameter.norm() / parameter.grad.norm().clamp(min=1e-9)))
                parameter.grad = None


@contextmanager
def other_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sample alone is multiplied by another kernel, which makes each sum in two parts."""
    plain = F.linear

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if x.shape[-2] != LENGTHS[0]:
            return plain(x, weight, bias)
        cut = x.shape[-1] // 2 + 7
        return plain(x[..., :cut], weight[:, :cut], bias) + plain(x[..., cut:], weight[:, cut:])

    with monkeypatch.context() as patch:
        patch.setattr(F, "linear", linear)
        yield


CHANGES: dict[str, Callable[[Any], None]] = {
    "as it is": lambda model: None,
    "trained": train,
    "noise of 1 %": lambda model: add_noise(model, 0.01),
    "noise of 5 %": lambda model: add_noise(model, 0.05, seed=1),
    "noise of 20 %": lambda model: add_noise(model, 0.2, seed=2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_honest_model_passes_whatever_its_weights_are(model: Any, change: str, monkeypatch) -> None:
    CHANGES[change](model)
    with other_kernels(monkeypatch):
        require_packing(model)
        assert examine_head(model) == (True, model.config.hidden_size)


@pytest.mark.parametrize("layers", [2, 80])
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_passes_with_few_layers_and_with_many(layers: int, dtype: torch.dtype, made: Path, monkeypatch) -> None:
    model = load(made, dtype)
    own = list(model.model.layers)
    model.model.layers = torch.nn.ModuleList([own[number * len(own) // layers] for number in range(layers)])
    with other_kernels(monkeypatch):
        require_packing(model)


def test_it_passes_with_an_adapter_and_with_a_head_of_its_own(made: Path) -> None:
    from learners import lora

    model = load(made, torch.float32)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    require_packing(model)
    lora.inject(model, Adapter(rank=4, alpha=8, targets=("q_proj", "down_proj"), base=str(made)), seed=0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    require_packing(model)
    assert examine_head(model)[0]


# -- leaks -------------------------------------------------------------------------------------------------------------


def no_bounds(module: Any, inputs: Any, known: dict[str, Any]) -> Any:
    """One sample, from the first token of the row to the last."""
    bounds = known["packed_layout"].cu_seqlens
    return inputs, known | {"packed_layout": attention.packed_layout(torch.stack([bounds[0], bounds[-1]]))}


def in_all_layers(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(no_bounds, with_kwargs=True)


def in_one_layer(model: Any) -> None:
    model.model.layers[DEEP].self_attn.register_forward_pre_hook(no_bounds, with_kwargs=True)


def of_the_first_token(model: Any) -> None:
    """A hundredth of what the row's first token gets in one layer, which in pretrained models is nearly the same
    for every token."""
    model.model.layers[DEEP].self_attn.register_forward_hook(
        lambda module, inputs, output: (output[0] + 0.01 * output[0][:, :1], *output[1:])
    )


def into_what_follows(model: Any) -> None:
    """A convolution over three tokens."""
    model.model.layers[DEEP].mlp.register_forward_hook(
        lambda module, inputs, output: output + 0.1 * output.roll(1, 1) + 0.1 * output.roll(2, 1)
    )


def from_what_follows(model: Any) -> None:
    model.model.layers[DEEP].mlp.register_forward_hook(lambda module, inputs, output: output + 0.1 * output.roll(-1, 1))


def through_a_state(model: Any) -> None:
    """A recurrence that keeps nine tenths of its state, also where a sample ends."""

    def carry(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        state, states = torch.zeros_like(output[:, 0]), []
        for token in output.unbind(1):
            state = 0.9 * state + 0.1 * token
            states.append(state)
        return output + torch.stack(states, 1)

    model.model.layers[DEEP].mlp.register_forward_hook(carry)


@pytest.mark.parametrize(
    "leak", [in_all_layers, in_one_layer, of_the_first_token, into_what_follows, from_what_follows, through_a_state]
)
def test_every_leak_is_found(model: Any, leak: Callable[[Any], None]) -> None:
    leak(model)
    with refused(says="see each other"):
        require_packing(model)


def test_a_leak_is_found_in_weights_that_were_changed(model: Any) -> None:
    add_noise(model, 0.2)
    of_the_first_token(model)
    with refused(says="see each other"):
        require_packing(model)


def test_a_model_that_counts_positions_over_the_row_is_refused(model: Any) -> None:
    def count(module: Any, inputs: Any, known: Any) -> Any:
        return (inputs[0],), {"position_ids": torch.arange(inputs[0].shape[1])[None]}

    model.model.rotary_emb.register_forward_pre_hook(count, with_kwargs=True)
    with refused(says="position_ids"):
        require_packing(model)


@pytest.mark.parametrize("dtype", DTYPES)
def test_learned_positions_that_go_on_where_the_neighbour_ended_are_noticed(dtype: torch.dtype, monkeypatch) -> None:
    model = gpt2(dtype)
    require_packing(model)
    whole = proofs.pack_ids

    def running(samples: Any, device: Any) -> Any:
        token_ids, _, cu_seqlens = whole(samples, device)
        return token_ids, torch.arange(len(token_ids)), cu_seqlens

    monkeypatch.setattr(proofs, "pack_ids", running)
    with refused(says="not what it is alone"):
        require_packing(model)


def gpt2(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    attention.register()
    config = GPT2Config(vocab_size=320, n_embd=64, n_layer=12, n_head=4, n_positions=128, initializer_range=0.1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="packed_sdpa")
    put_outliers(model)
    return model.to(dtype).eval()


def test_a_sample_that_does_not_see_its_own_beginning_is_noticed(model: Any) -> None:
    """A border in the middle of the sample, where it is packed."""

    def cut(module: Any, inputs: Any, known: dict[str, Any]) -> Any:
        bounds = known["packed_layout"].bounds
        if len(bounds) != 4:
            return None
        inside = torch.tensor([*bounds[:2], bounds[1] + 3, *bounds[2:]], dtype=torch.int32)
        return inputs, known | {"packed_layout": attention.packed_layout(inside)}

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(cut, with_kwargs=True)
    with refused(says="not what it is alone"):
        require_packing(model)


def test_numbers_that_are_not_finite_are_called_that(made: Path) -> None:
    model = load(made, torch.float32)
    with torch.no_grad():
        model.model.layers[3].mlp.up_proj.weight[5, 5] = float("nan")
    with refused(says="not finite"):
        require_packing(model)


@pytest.mark.parametrize(
    "broken", [lambda ids: len(ids) == LENGTHS[0], lambda ids: ids[0] == 4], ids=["alone", "beside others"]
)
def test_numbers_that_are_not_finite_prove_nothing(broken: Callable[[list[int]], bool], made: Path) -> None:
    """The sample alone, or beside other neighbours, whose tokens are one higher: row and sample are sound before."""
    model = load(made, torch.float32)
    spoilt = False

    def look(module: Any, inputs: Any) -> None:
        nonlocal spoilt
        spoilt = broken(inputs[0][0].tolist())

    model.model.embed_tokens.register_forward_pre_hook(look)
    model.model.norm.register_forward_hook(lambda module, inputs, output: output * float("nan") if spoilt else None)
    with refused():
        require_packing(model)


def test_a_rounding_that_is_not_finite_is_no_measure(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(made, torch.float32)

    @contextmanager
    def overflowing(*_: Any) -> Iterator[None]:
        hook = model.model.norm.register_forward_hook(lambda module, inputs, output: output * float("nan"))
        yield
        hook.remove()

    monkeypatch.setattr(proofs, "round_again", overflowing)
    with refused(says="not finite"):
        require_packing(model)


# -- heads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cap", [30.0, 1000.0])
def test_a_capped_head_is_seen_beside_outliers(cap: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention.register()
    shape = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4)
    config = Gemma2Config(
        **shape, num_key_value_heads=2, head_dim=16, final_logit_softcapping=cap, initializer_range=0.1
    )
    for capped in (True, False):
        config.final_logit_softcapping = cap if capped else None
        model = AutoModelForCausalLM.from_config(config, attn_implementation="packed_sdpa")
        put_outliers(model)
        assert examine_head(model.to(dtype).eval())[0] is not capped


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0625, 1.0])
def test_a_scaled_head_is_seen_beside_outliers(scale: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention.register()
    shape = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4)
    config = CohereConfig(**shape, num_key_value_heads=2, logit_scale=scale)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="packed_sdpa")
    put_outliers(model)
    assert examine_head(model.to(dtype).eval())[0] is (scale == 1.0)


def test_a_scale_before_the_head_is_seen(model: Any) -> None:
    model.lm_head.register_forward_pre_hook(lambda module, inputs: (inputs[0] * (1 - 2**-6),))
    assert not examine_head(model)[0]
