"""What tests of the learner share: one thread, a small model in a folder.

Matrices this small are slower on two threads than on one, and much slower on a busy machine.
"""

from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.set_num_threads(1)


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small model in a folder, as the hub has them."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=request.param,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "source")
    (tmp_path / "source" / "tokenizer.json").write_text('{"not": "read here"}')
    return tmp_path / "source"
