"""What the log-probability pass holds: its memory is measured, in a process that does nothing else.

The numbers in docs/algorithms.md: `python -m pytest -s tests/e2e/test_logprob_memory.py`.
"""

import resource
import sys
from pathlib import Path

import pytest
import torch

from tests.e2e.learner_cases import bare_process, spawn

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


def run(rank: int, world_size: int, port: int, path: str, output: str) -> None:
    """What each pass takes at its peak, in MiB beyond weights, gradients and a short pass; the smallest first."""
    from learners.policy import load_policy
    from learners.rows import pack_ids

    bare_process(rank)
    policy = load_policy(path, dtype="float32", attention_key="packed_sdpa")

    def once(length: int, chunk: int, backward: bool) -> float:
        row = pack_ids([list(range(length))] * 8, "cpu")
        with torch.set_grad_enabled(backward):
            logp, _ = policy(*row, 1.0, chunk, None)
            if backward:
                logp.sum().backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before = once(8, CHUNK, True)
    passes = [(CHUNK, False), (CHUNK, True), (TOKENS, False)]  # a peak never falls: what is left out would show nothing
    torch.save({key: once(TOKENS // 8, *key) - before for key in passes}, output)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_neither_scoring_nor_training_holds_the_logits_of_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is freed goes back at once: by itself glibc keeps freed blocks of this size, and they would count as held.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))
    spawn(run, 1, save_model(tmp_path / "model"), str(tmp_path / "grown.pt"), deadline_s=240)
    grown = torch.load(tmp_path / "grown.pt")
    print(f"\none [tokens, vocabulary] tensor: {LOGITS_MB:.0f} MiB")
    for (chunk, backward), number in grown.items():
        label = "forward and backward" if backward else "forward"
        print(f"{label}, logit_chunk={chunk}: {number:.0f} MiB")
        if chunk == CHUNK:
            assert number < LOGITS_MB / 2
        else:
            assert number > LOGITS_MB  # what the chunks save is something that this measurement sees
