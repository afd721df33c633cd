"""What begins two samples alike is computed once, and no number shows it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from learners import attention
from learners.attention import find_shared_starts
from learners.policy import CriticModel, PolicyModel, load_policy
from learners.rows import pack_ids

PROMPT = [9, 8, 7, 6, 5]
# Siblings; one that is the start of the one before, one that is the same; another prompt with the same first words.
ROW = [[*PROMPT, 1, 2, 3], [*PROMPT, 1, 4], [*PROMPT, 1, 4], PROMPT, [9, 8, 1, 1], [3, 9, 8]]
SHAPE = dict(vocab_size=20, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
SHAPE |= dict(num_key_value_heads=2, initializer_range=0.2)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Gemma 2 looks back through a window, and caps its scores and its logits."""
    folder: Path = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    models = {
        "llama": LlamaForCausalLM(LlamaConfig(**SHAPE)),
        "gemma2": Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8, sliding_window=4, query_pre_attn_scalar=8)),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
    return {name: str(folder / name) for name in models}


@example([[0], [1], [1, 1]])  # a sample that is longer than the one before it, and begins with all of it
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), min_size=1, max_size=6))
def test_what_stands_in_for_a_token_follows_the_same_tokens(row: list[list[int]]) -> None:
    ids, positions, bounds = pack_ids(row, "cpu")
    shared = find_shared_starts(ids, bounds)
    starts = [[*sample[: end + 1]] for sample in row for end in range(len(sample))]
    alike = any(a[0] == b[0] for a, b in zip(row, row[1:], strict=False))
    assert (shared is not None) == alike
    if shared is not None:
        assert all(starts[shared.kept[by]] == start for by, start in zip(shared.stand_in, starts, strict=True))
        assert torch.equal(positions[shared.kept][shared.stand_in], positions)
        assert sorted([*shared.kept.tolist(), *shared.repeats.tolist()]) == list(range(len(ids)))
        assert torch.equal(shared.originals, shared.stand_in[shared.repeats])


def scores(policy: PolicyModel, row: list[list[int]]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """(log-probabilities and entropies, gradients) of all tokens, each weighted differently."""
    policy.zero_grad()
    ids, positions, bounds = pack_ids(row, "cpu")
    outputs = torch.stack(policy(ids, positions, bounds, 1.0, 1000, None, True))
    (outputs * torch.linspace(0.5, 2, outputs.numel()).view_as(outputs)).sum().backward()
    return outputs.detach(), {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}


@pytest.mark.parametrize(("kind", "checkpointing"), [("llama", False), ("llama", True), ("gemma2", False)])
def test_log_probabilities_and_gradients_are_those_of_a_row_that_shares_nothing(
    paths: dict[str, str], kind: str, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_policy(
        paths[kind], dtype="float32", attention_key="packed_sdpa", gradient_checkpointing=checkpointing
    )
    assert policy.linear_head == (kind == "llama")
    sizes: list[int] = []
    policy.model.get_input_embeddings().register_forward_hook(lambda _, ids, out: sizes.append(ids[0].numel()))
    result, gradients = scores(policy, ROW)
    monkeypatch.setattr("learners.rows.find_shared_starts", lambda ids, bounds: None)
    expected, plain = scores(policy, ROW)
    whole = sum(map(len, ROW))
    assert sizes == [whole - 6 - 7 - 5 - 2, whole]
    torch.testing.assert_close(result, expected, atol=1e-6, rtol=0)
    for name, gradient in plain.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-6 * float(gradient.abs().max()), rtol=0, msg=name)


def test_a_critic_shares_too(paths: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    critic = CriticModel(load_policy(paths["llama"], dtype="float32", attention_key="packed_sdpa"))
    torch.nn.init.normal_(critic.head.weight)
    ids, positions, bounds = pack_ids(ROW, "cpu")
    needed = torch.ones_like(ids, dtype=torch.bool)
    result = critic(ids, positions, bounds, needed)
    monkeypatch.setattr("learners.rows.find_shared_starts", lambda ids, bounds: None)
    torch.testing.assert_close(result, critic(ids, positions, bounds, needed), atol=1e-5, rtol=0)


def test_a_new_critic_values_everything_at_nothing_and_no_critic_the_first_token(paths: dict[str, str]) -> None:
    critic = CriticModel(load_policy(paths["llama"], dtype="float32", attention_key="packed_sdpa"))
    ids, positions, bounds = pack_ids(ROW, "cpu")
    needed = torch.ones_like(ids, dtype=torch.bool)
    assert (critic(ids, positions, bounds, needed) == 0).all()
    torch.nn.init.ones_(critic.head.bias)
    values = critic(ids, positions, bounds, needed)
    assert (values == 0).nonzero().flatten().tolist() == bounds[:-1].tolist() and (values.abs() <= 1).all()
    needed[2:] = False
    assert critic(ids, positions, bounds, needed).nonzero().flatten().tolist() == [1]


@pytest.mark.parametrize(
    ("given", "is_cuda", "varlen"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"softcap": 5.0}, True, False),
        ({"s_aux": 1.0}, True, False),
        ({"position_bias": 1.0}, True, False),
        ({"s_aux": None, "sliding_window": 3}, True, True),
        ({"packed_layout": None}, True, False),
    ],
)
def test_the_kernel_of_variable_lengths_is_asked_for_what_it_knows_and_on_gpus_alone(
    given: dict[str, Any], is_cuda: bool, varlen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(attention, "attend_varlen", lambda *args: calls.append(args) or "by the kernel")
    monkeypatch.setattr(attention, "packed_sdpa", lambda *args, **named: ("by sdpa", named))
    query, layout, module = SimpleNamespace(is_cuda=is_cuda), object(), object()
    result, named = attention.packed_varlen(
        *(module, query, "k", "v", None, 0.5),
        **({"packed_layout": layout} | given),  # type: ignore[arg-type]
    )
    assert result == ("by the kernel" if varlen else "by sdpa")
    if varlen:
        assert calls == [(query, "k", "v", layout, 0.5, given.get("sliding_window"))] and named is None
    else:
        assert given.items() <= named.items()  # type: ignore[union-attr]
