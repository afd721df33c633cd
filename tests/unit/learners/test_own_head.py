"""Heads that scale or cap their logits: a chunk at a time, the same numbers and gradients, and never a row's logits."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM, Gemma2ForCausalLM

from launch.checks.gpu_memory import RankPlan, rank_memory, shape_of, total
from learners import attention
from learners.kernels import product_of
from learners.own_head import own_product
from learners.policy import PolicyModel, head_logprobs, load_policy
from learners.proofs import examine_head
from learners.rows import pack_ids
from tests.refused import refused

SHAPE = dict(
    vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, initializer_range=0.2,
)  # fmt: skip
# Each changes the logits, or what the head is given, in a way of its own.
HEADS = {
    "gemma2": dict(final_logit_softcapping=2.0, query_pre_attn_scalar=8, attn_logit_softcapping=None),
    "gemma3_text": dict(final_logit_softcapping=2.0, query_pre_attn_scalar=8),
    "cohere": dict(logit_scale=0.25),
    "cohere2": dict(logit_scale=0.25),
    "granite": dict(logits_scaling=4.0),
    "minicpm3": dict(  # hidden states are divided by 32 / 8
        dim_model_base=8,
        num_key_value_heads=4,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=16,
    ),
}
OPT = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "pad_token_id")
SAMPLES = ([3, 14, 15, 9, 26, 5], [35, 8], [9, 7, 9, 3, 2, 3, 8, 46, 26, 43, 3], [38, 32, 7])


def save(kind: str, folder: Path, **changes: object) -> str:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **(SHAPE | HEADS[kind] | changes))
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:2]
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def load(path: str, **options: object) -> PolicyModel:
    return load_policy(path, dtype="float32", attention_key="packed_sdpa", **options)  # type: ignore[arg-type]


def computed(policy: PolicyModel, chunk: int) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """(log-probabilities, entropies, gradients of a sum of both)."""
    policy.zero_grad()
    logp_T, entropy_T = policy(*pack_ids(list(SAMPLES), "cpu"), 0.7, chunk, None, True)
    (logp_T.sum() + 0.1 * entropy_T.sum()).backward()
    gradients = {name: tensor.grad for name, tensor in policy.model.named_parameters() if tensor.grad is not None}
    return logp_T.detach(), entropy_T.detach(), gradients


def plain(path: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Of transformers alone, each sample by itself and its logits whole: (log-probabilities, gradients)."""
    model, logps = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager"), []
    for sample in SAMPLES:
        ids = torch.tensor([sample])
        logp_TV = (model(ids).logits[0, :-1] / 0.7).log_softmax(-1)
        logp_T = logp_TV.gather(1, ids[0, 1:, None]).squeeze(1)
        entropy_T = -(logp_TV.exp() * logp_TV).sum(-1)
        (logp_T.sum() + 0.1 * entropy_T.sum()).backward()
        logps.append(torch.cat([torch.zeros(1), logp_T.detach()]))
    return torch.cat(logps), {name: tensor.grad for name, tensor in model.named_parameters() if tensor.grad is not None}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", HEADS)
def test_in_chunks_it_gives_the_numbers_and_gradients_of_the_whole_computation(
    kind: str, checkpointing: bool, tmp_path: Path
) -> None:
    path = save(kind, tmp_path)
    policy = load(path, gradient_checkpointing=checkpointing)
    assert not policy.linear_head
    own_logp, own_gradients = plain(path)
    for chunk in (1, 3, 1000):
        logp, _, gradients = computed(policy, chunk)
        torch.testing.assert_close(logp, own_logp, rtol=0, atol=1e-5)
        assert gradients.keys() == own_gradients.keys()
        for name, expected in own_gradients.items():
            most = 1e-4 * float(expected.abs().max())
            torch.testing.assert_close(gradients[name], expected, rtol=0, atol=most, msg=name)
    assert dict(policy.model.named_modules())["lm_head"] is policy.model.get_output_embeddings()


class Largest(TorchDispatchMode):
    """The largest tensor that any operation gives, in the backward pass as well."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        outputs = result if isinstance(result, (tuple, list)) else [result]
        self.numel = max([self.numel, *(output.numel() for output in outputs if torch.is_tensor(output))])
        return result


@pytest.mark.parametrize("kind", HEADS)
def test_no_tensor_of_tokens_by_vocabulary_exists(kind: str, tmp_path: Path) -> None:
    tokens, vocab, chunk = 384, 3000, 32
    policy = load(save(kind, tmp_path, vocab_size=vocab, max_position_embeddings=tokens))
    with Largest() as largest:
        logp, entropy = policy(*pack_ids([list(range(tokens // 2))] * 2, "cpu"), 1.0, chunk, None, True)
        (logp.sum() + entropy.sum()).backward()
    assert chunk * vocab <= largest.numel <= max(chunk * vocab, vocab * SHAPE["hidden_size"]) < tokens * vocab / 5


def test_a_row_of_which_nothing_is_needed_still_reaches_every_parameter(tmp_path: Path) -> None:
    policy = load(save("gemma2", tmp_path))
    row = pack_ids(list(SAMPLES), "cpu")
    logp, _ = policy(*row, 1.0, 4, torch.zeros_like(row[0], dtype=torch.bool))
    logp.sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in policy.parameters())


def test_the_parts_come_back_where_a_call_fails(tmp_path: Path) -> None:
    policy = load(save("gemma2", tmp_path))
    before = dict(policy.model.named_modules())
    product = own_product(policy.model, lambda *_: torch.zeros(1) / "no number")  # type: ignore[operator]
    with pytest.raises(TypeError):
        product(torch.zeros(2, 32), policy.model.get_output_embeddings().weight, None)
    assert dict(policy.model.named_modules()) == before


def test_logits_that_need_more_than_the_last_hidden_states_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, forward = save("gemma2", tmp_path), Gemma2ForCausalLM.forward

    def biased(self, input_ids=None, **inputs):  # type: ignore[no-untyped-def]
        output = forward(self, input_ids=input_ids, **inputs)
        if input_ids is not None:
            output.logits = output.logits + input_ids[..., None]
        return output

    monkeypatch.setattr(Gemma2ForCausalLM, "forward", biased)
    with refused(says="do not follow from the hidden states"):
        load(path)


def test_a_changed_head_over_a_base_model_that_is_not_called_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPT's forward calls the decoder inside of its base model: nothing can stand in for that."""
    attention.register()
    shape = dict(ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=64, dropout=0.0)
    config = AutoConfig.for_model("opt", **{key: SHAPE[key] for key in SHAPE if key in OPT}, **shape)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="packed_sdpa").eval()
    assert examine_head(model) == (True, 32)
    forward = type(model).forward

    def halved(self, **inputs):  # type: ignore[no-untyped-def]
        output = forward(self, **inputs)
        output.logits = output.logits / 2
        return output

    monkeypatch.setattr(type(model), "forward", halved)
    with refused(says="do not follow from the hidden states"):
        examine_head(model)


@pytest.mark.parametrize("failing", [1, 2])
def test_where_a_pass_of_the_proof_fails_nothing_is_kept_of_later_ones(failing: int, tmp_path: Path) -> None:
    """A hook that stayed would hold what the model computes, or change it."""
    model, passes = load(save("gemma2", tmp_path)).model, 0

    def fail(*_: object) -> None:
        nonlocal passes
        passes += 1
        if passes == failing:
            raise MemoryError

    def logits() -> torch.Tensor:
        result: torch.Tensor = model(input_ids=torch.tensor([SAMPLES[0]]), use_cache=False).logits
        return result

    expected = logits()
    hook = model.model.norm.register_forward_hook(fail)
    with pytest.raises(MemoryError):
        examine_head(model)
    hook.remove()
    assert torch.equal(logits(), expected)
    with torch.no_grad():
        hidden = weakref.ref(model.base_model(input_ids=torch.tensor([SAMPLES[0]]), use_cache=False)[0])
    gc.collect()
    assert hidden() is None


@pytest.mark.parametrize("kind", ["gemma2", "cohere"])
def test_the_memory_plan_covers_the_chunks_of_such_a_head(kind: str, tmp_path: Path) -> None:
    """Of 64 tokens and 40,000 words in bfloat16: 16 bytes a logit are measured."""
    tokens, vocab, chunk = 192, 40_000, 64
    policy = load_policy(save(kind, tmp_path, vocab_size=vocab), dtype="bfloat16", attention_key="packed_sdpa")
    head = policy.model.get_output_embeddings()
    hidden = torch.randn(tokens, head.weight.shape[1], dtype=torch.bfloat16, requires_grad=True)

    def compute() -> None:
        logp, _ = head_logprobs(
            hidden, head.weight, head.bias, torch.arange(tokens), temperature=1.0, chunk=chunk,
            product=own_product(policy.model, product_of(head)),
        )  # fmt: skip
        logp.sum().backward()

    shape = shape_of(SHAPE | {"vocab_size": vocab, "tie_word_embeddings": True})
    assert shape is not None
    plan = RankPlan(
        ranks=1, zero_stage=2, dtype="bfloat16", checkpointing=True, row_tokens=tokens, logit_chunk=chunk,
        reference=False, critic=False, offload="none", offload_reference=False,
    )  # fmt: skip
    chunks = total(rank_memory(shape, plan)) - total(rank_memory(shape, replace(plan, logit_chunk=0)))
    of_weight = 2 * vocab * 32
    assert 0.5 * chunks < peak_bytes(compute, tmp_path / "trace.json") <= chunks + of_weight < 2 * tokens * vocab * 4


def peak_bytes(compute: Callable[[], None], trace: Path) -> int:
    """That it allocates at its fullest moment, beyond what was there."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        compute()
    profiler.export_chrome_trace(str(trace))
    events = [event["args"] for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "[memory]"]
    totals: list[int] = [event["Total Allocated"] for event in events]
    return max(totals) - (totals[0] - int(events[0]["Bytes"]))
