"""What the log-probability pass holds: its memory is measured, in processes that do nothing else.

The numbers in docs/algorithms.md: `python -m pytest -s tests/e2e/test_logprob_memory.py`.
"""

import resource
import sys
from pathlib import Path

import pytest
import torch
from learner_cases import bare_process, spawn

TOKENS, VOCABULARY, CHUNK = 4096, 32_000, 256
LOGITS_MB = TOKENS * VOCABULARY * 4 / 2**20  # float32, of one [tokens, vocabulary] tensor


def save_model(folder: Path) -> str:
    """A small body below a head of usual width."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def run(rank: int, world_size: int, port: int, path: str, chunk: int, backward: bool, output: str) -> None:
    """One pass after a short one that has every weight and gradient in memory; the growth of the peak, in MiB."""
    from learners.policy import load_policy, pack_ids

    bare_process()
    torch.set_num_threads(2)
    policy = load_policy(path, dtype="float32", attention_key="packed_sdpa")

    def once(length: int) -> None:
        row = pack_ids([[token % VOCABULARY for token in range(length)]] * 8, "cpu")
        with torch.set_grad_enabled(backward):
            logp, _ = policy(*row, 1.0, chunk, None)
            if backward:
                logp.sum().backward()

    once(8)
    before = peak_mb()
    once(TOKENS // 8)
    torch.save(peak_mb() - before, output)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
@pytest.mark.parametrize("backward", [False, True], ids=["scoring", "training"])
def test_the_pass_never_holds_the_logits_of_a_row(backward: bool, tmp_path: Path) -> None:
    path = save_model(tmp_path / "model")
    grown = {}
    for chunk in (CHUNK, TOKENS):
        spawn(run, 1, path, chunk, backward, str(tmp_path / "grown.pt"), deadline_s=120)
        grown[chunk] = torch.load(tmp_path / "grown.pt")
    what = "forward and backward" if backward else "forward"
    print(f"\n{what}: {grown[CHUNK]:.0f} MiB with logit_chunk={CHUNK}, {grown[TOKENS]:.0f} MiB with all {TOKENS} tokens "
          f"at once; one [tokens, vocabulary] tensor has {LOGITS_MB:.0f} MiB")  # fmt: skip
    assert grown[CHUNK] < LOGITS_MB / 2
    assert grown[TOKENS] > LOGITS_MB  # what the chunks save: the measurement would see it
