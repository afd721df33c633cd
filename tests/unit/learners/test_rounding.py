"""Rounding as the learner measures it is what two right implementations differ by, and a stale tensor is more."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from actors.weights.check import allowed_gap
from learners.export import perturb_weights, weights
from learners.policy import PolicyModel, load_policy
from learners.rounding import round_again
from learners.rows import pack_ids
from rlsys.system.device import UNITS, RoundingUnits
from tests.makers import pretrained_like

NOISE = 0.25  # what the canary tries first


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(pretrained_like.save(tmp_path_factory.mktemp("made") / "model"))


def samples() -> list[list[int]]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randint(49_152, (64,), generator=draw).tolist() for _ in range(4)]


@torch.no_grad()
def learned(policy: PolicyModel) -> torch.Tensor:
    logprobs, _ = policy(*pack_ids(samples(), "cpu"), 1.0, 256)
    return torch.cat([part[1:] for part in logprobs.split(64)])


@torch.no_grad()
def another(model: torch.nn.Module) -> torch.Tensor:
    """By transformers' own attention, a sample at a time, everything in the format of its weights."""
    rows = [model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].float() for ids in samples()]
    return torch.cat(
        [
            row.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
            for row, ids in zip(rows, samples(), strict=True)
        ]
    )


def gap(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().mean())


@pytest.mark.parametrize("noise", [0.0, NOISE])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_another_implementation_is_within_the_limit_and_one_that_kept_its_weights_is_not(
    source: str, dtype: str, noise: float
) -> None:
    policy = load_policy(source, dtype=dtype, held="float32", attention_key="packed_sdpa")
    model = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype))
    units = RoundingUnits(products=UNITS[dtype], rest=UNITS[dtype])
    old = another(model)
    with perturb_weights(policy.model, noise), perturb_weights(model, noise):
        ours = learned(policy)
        with round_again(policy.model, units):
            limit = allowed_gap(gap(ours, learned(policy)))
        assert gap(ours, another(model)) < limit
        if noise:
            assert gap(ours, old) > 5 * limit
    assert torch.equal(learned(policy), learned(policy))  # nothing stays on the model


def test_the_errors_are_of_the_seed_and_of_the_unit(source: str) -> None:
    policy = load_policy(source, dtype="float32", attention_key="packed_sdpa")
    true = learned(policy)

    def measured(unit: float, seed: int) -> torch.Tensor:
        with round_again(policy.model, RoundingUnits(products=unit, rest=unit), seed):
            return learned(policy)

    assert torch.equal(measured(2**-12, 0), measured(2**-12, 0))
    assert not torch.equal(measured(2**-12, 0), measured(2**-12, 1))
    assert gap(true, measured(2**-12, 0)) == pytest.approx(16 * gap(true, measured(2**-16, 0)), rel=0.5)


def test_a_coarse_cache_rounds_keys_and_values_alone(source: str) -> None:
    policy = load_policy(source, dtype="float32", attention_key="packed_sdpa")
    true, fine, coarse = learned(policy), 2**-12, 2**-4

    def moved(products: float, cached: float | None) -> float:
        with round_again(policy.model, RoundingUnits(products=products, rest=fine, cached=cached)):
            return gap(true, learned(policy))

    assert moved(fine, fine) == moved(fine, None) < moved(fine, coarse) < moved(coarse, None)


@torch.no_grad()
def test_the_products_of_gpt2_are_products_too() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2))
    layer, inputs = model.transformer.h[0].attn.c_attn, torch.ones(1, 1, 32)
    plain = layer(inputs)
    for units in (RoundingUnits(products=2**-4, rest=2**-23), RoundingUnits(products=2**-8, rest=2**-8, cached=2**-4)):
        with round_again(model, units):
            error = ((layer(inputs) - plain) / plain).abs().max()
        assert 2**-6 < error <= 2**-4 * 1.001


def test_every_part_of_a_result_is_rounded(source: str) -> None:
    """Positions are a cosine and a sine."""
    policy = load_policy(source, dtype="float32", attention_key="packed_sdpa")
    rotary = policy.model.model.rotary_emb
    inputs = torch.zeros(1, 5, 1), torch.arange(1, 6)[None]  # at 0 every sine is 0, and stays it
    plain = rotary(*inputs)
    with round_again(policy.model, RoundingUnits(products=2**-8, rest=2**-8)):
        rounded = rotary(*inputs)
    for part, other in zip(rounded, plain, strict=True):
        assert not torch.equal(part, other)
        torch.testing.assert_close(part, other, rtol=2**-8, atol=0)


def test_in_float32_each_tensor_that_stays_stale_is_seen(source: str) -> None:
    """Of every kind, in the first, a middle and the last layer."""
    policy = load_policy(source, dtype="float32", attention_key="packed_sdpa")
    items = weights(policy.model)
    originals = [item.tensor.detach().clone() for item in items]
    looked = [at for at, item in enumerate(items) if not (".layers." in item.names[0] and ".0." not in item.names[0])]
    with perturb_weights(policy.model, NOISE), torch.no_grad():
        ours = learned(policy)
        with round_again(policy.model, RoundingUnits(products=UNITS["float32"], rest=UNITS["float32"])):
            limit = allowed_gap(gap(ours, learned(policy)))
        missed = []
        for at in looked:
            backup = items[at].tensor.clone()
            items[at].tensor.copy_(originals[at])
            missed += [items[at].names[0]] * (gap(ours, learned(policy)) <= limit)
            items[at].tensor.copy_(backup)
    assert missed == []
