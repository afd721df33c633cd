"""A soft-capped head under ZeRO-3: ranks whose rows have other numbers of chunks make equally many collectives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from learners.rank import LearnerRank
from tests.e2e.learner_cases import bare_process, spawn, spec
from tests.e2e.test_learner_rank import PROBE, begin, samples_of, tensors
from tests.makers.made import make_shards

pytestmark = pytest.mark.e2e


def save(folder: Path) -> str:
    """Gemma 2, whose embedding and head (one matrix of 131,072 numbers) ZeRO-3 really divides."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=1024, hidden_size=128, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=32, final_logit_softcapping=1.0,
        initializer_range=0.1, pad_token_id=0,
    )  # fmt: skip
    Gemma2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def run_rank(rank: int, world_size: int, port: int, path: str, zero_stage: int, output: str) -> None:
    """Two steps. Of the 11 samples one rank's rows have two chunks of 4 tokens more than the other's."""
    bare_process(rank)
    learner = LearnerRank(spec(rank, world_size, port, gradient_checkpointing=True))
    begin(learner, path, zero_stage=zero_stage, logit_chunk=4, tokens_per_row=5)
    reports = [learner.update(make_shards(samples_of(step), 40, 0, world_size)[rank]) for step in range(2)]
    assert all(report.applied for report in reports)
    norms = [report.metrics["learner/grad_norm"].value for report in reports]
    mine = PROBE if world_size == 1 else (PROBE[:3], PROBE[3:])[rank]  # two rows of five tokens, and one
    torch.save((tensors(learner), norms, learner.logprobs(mine)), f"{output}-{rank}.pt")
    learner.close()


@pytest.mark.slow
def test_two_ranks_of_zero_3_give_the_weights_of_one(tmp_path: Path) -> None:
    path = save(tmp_path / "model")
    spawn(run_rank, 1, path, 2, str(tmp_path / "one"), deadline_s=200)
    spawn(run_rank, 2, path, 3, str(tmp_path / "two"), deadline_s=200)
    expected, norms, scores = torch.load(tmp_path / "one-0.pt")
    for rank, expected_scores in enumerate((scores[:3], scores[3:])):
        weights, rank_norms, rank_scores = torch.load(tmp_path / f"two-{rank}.pt")
        assert rank_norms == pytest.approx(norms, rel=1e-4)
        assert sum(rank_scores, []) == pytest.approx(sum(expected_scores, []), abs=2e-3)
        for name, tensor in expected.items():
            assert (weights[name] - tensor).abs().max() < 5e-5, name  # of steps of 1e-3
