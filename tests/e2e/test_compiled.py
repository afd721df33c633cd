"""`learner.compile`: a compiled policy has the numbers of the same one that is not, to the rounding of bfloat16.

In bfloat16 a policy's linear layers and norms are a GPU's on a CPU too, so that torch compiles the same graphs there.
Backend `eager` finds the graphs and their guards, and computes them as written; `inductor` makes the kernels.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch._dynamo import config
from torch._dynamo.utils import counters
from transformers import Qwen3Config, Qwen3ForCausalLM

from learners import lora
from learners.attention import first_usable
from learners.policy import PolicyModel, load_policy
from learners.rounding import round_again
from learners.rows import pack_ids
from rlsys.adapters import Adapter
from rlsys.system.device import RoundingUnits
from tests.device import device, name
from tests.refused import refused

VOCAB = 512
ROWS = ((60, 50, 70), (200,), (33, 2, 91, 40, 7), (120, 121))  # lengths of the samples of four rows
CHUNK = 64  # the logits of a row are computed in parts


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, sliding_window=32, use_sliding_window=True, max_window_layers=2,
        initializer_range=0.06, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen3ForCausalLM(shape).to(torch.bfloat16).save_pretrained(folder)
    return folder


def load(path: str, dtype: str = "bfloat16", **more: Any) -> PolicyModel:
    key = first_usable(device().attention, getattr(torch, dtype))
    return load_policy(path, dtype=dtype, attention_key=key, device=name(), **more)


def row(number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    samples = [torch.randint(VOCAB, (length,), generator=generator).tolist() for length in ROWS[number]]
    return pack_ids(samples, name())


def learn(policy: PolicyModel) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities, gradient) of all rows, in 64 bits."""
    logprobs = []
    for number in range(len(ROWS)):
        logp_T, entropy_T = policy(*row(number), 0.7, CHUNK, entropy_gradient=True)
        (logp_T.sum() + 0.1 * entropy_T.sum()).backward()
        logprobs.append(logp_T.detach().double().cpu())
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    gradient = torch.cat([part.double().flatten().cpu() for part in gradients])
    policy.zero_grad()
    return torch.cat(logprobs), gradient


@torch.no_grad()
def score(policy: PolicyModel) -> torch.Tensor:
    return torch.cat([policy(*row(number), 0.7, CHUNK)[0].double().cpu() for number in range(len(ROWS))])


def distance(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result - exact).norm() / exact.norm())


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_it_is_as_near_to_float32_as_the_policy_as_it_is_written(path: str, backend: str) -> None:
    exact, plain, compiled = (
        load(path, "float32"),
        load(path),
        load(path, gradient_checkpointing=True, compiled=backend == "inductor"),
    )
    if backend != "inductor":  # which `load_policy` takes
        compiled.compile_parts(backend)
    (logp, gradient), of_plain, of_compiled = learn(exact), learn(plain), learn(compiled)
    for number, of_exact in enumerate((logp, gradient)):
        error, usual = distance(of_compiled[number], of_exact), distance(of_plain[number], of_exact)
        print(f"{backend}: {error:.2e} from float32, as written {usual:.2e}")
        assert 0 < error < 1.3 * usual


def test_rows_of_other_lengths_are_compiled_once(path: str) -> None:
    policy = load(path)
    policy.compile_parts("eager")
    learn(policy)
    graphs = counters["stats"]["unique_graphs"]
    learn(policy)
    policy(*pack_ids([[1] * 17, [2] * 310, [3] * 5], name()), 0.7, CHUNK, entropy_gradient=True)[0].sum().backward()
    assert counters["stats"]["unique_graphs"] == graphs > 0


@pytest.mark.slow
def test_an_adapter_that_is_put_in_afterwards_is_trained_switched_off_and_swapped(path: str) -> None:
    """In the order of a stage: `load_policy` compiles, then the adapter comes."""
    exact, policy = load(path, "float32"), load(path)
    policy.compile_parts("eager")
    for model in (exact, policy):
        model.take_adapter(Adapter(rank=4, alpha=8.0, targets=("q_proj", "up_proj"), base=path), seed=3)
    before = learn(policy)[0]
    with torch.no_grad():
        for parameter in (*lora.parameters(exact.model).values(), *lora.parameters(policy.model).values()):
            parameter.fill_(0.05)
    logp, gradient = learn(policy)
    exact_logp, exact_gradient = learn(exact)
    assert distance(logp, exact_logp) < 0.02 and distance(gradient, exact_gradient) < 0.1
    assert distance(logp, before) > 0.05
    with lora.switched_off(policy.model):
        assert distance(score(policy), before) < 1e-6
    nothing = {name: torch.zeros_like(parameter) for name, parameter in lora.parameters(policy.model).items()}
    with lora.swap_adapter(policy.model, nothing):
        assert distance(score(policy), before) < 1e-6
    assert distance(score(policy), logp) < 1e-6


@pytest.mark.slow
def test_layers_are_recomputed_in_another_thread_under_the_same_limit(path: str) -> None:
    """As autograd does for GPUs. torch's own limit is of a thread alone."""
    policy = load(path, gradient_checkpointing=True)
    policy.compile_parts("eager")
    with config.patch(recompile_limit=1):
        plain = learn(policy)[1]
        logprobs, entropies = zip(
            *(policy(*row(number), 0.7, CHUNK, entropy_gradient=True) for number in range(len(ROWS))), strict=True
        )
    thread = threading.Thread(target=(torch.cat(logprobs).sum() + 0.1 * torch.cat(entropies).sum()).backward)
    thread.start()
    thread.join()
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    assert distance(torch.cat([part.double().flatten().cpu() for part in gradients]), plain) < 0.01


def test_a_model_without_known_layers_is_refused(path: str) -> None:
    policy = load(path)
    policy.model.model.layers = torch.nn.ModuleList()
    with refused("learner.compile", found=True):
        policy.compile_parts("eager")


def test_the_measure_of_rounding_reaches_into_its_layers(path: str) -> None:
    policy = load(path)
    policy.compile_parts("eager")
    plain = score(policy)
    with round_again(policy, RoundingUnits(products=2.0**-4, rest=2.0**-8)):
        disturbed = score(policy)
    assert distance(disturbed, plain) > 1e-3
    assert torch.equal(score(policy), plain)
