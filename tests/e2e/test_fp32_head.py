"""`model.fp32_head`: what vLLM's head makes of the override that an engine gets, and the learner's head beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actors.engine_arguments import engine_arguments
from learners.kernels import wide_linear
from tests import device
from tests.e2e.learner_cases import spawn
from tests.e2e.test_engine_contract import spec
from tests.e2e.tiny_models import save_tiny

VOCABULARY, WIDTH = 132, 64


def heads(rank: int, world_size: int, port: int, folder: str, output: str) -> None:
    """In a process of its own: vLLM's parallel state is the process's."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.model_executor.layers.logits_processor import LogitsProcessor
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    target = device.device()
    torch.set_default_device(target.torch_device)
    torch.manual_seed(0)
    hidden_NK = torch.randn(64, WIDTH, dtype=torch.bfloat16)
    weight_MK = torch.randn(VOCABULARY, WIDTH, dtype=torch.bfloat16)
    scores = {"exact": (hidden_NK.double() @ weight_MK.double().t()).cpu()}
    scores["learner"] = wide_linear(hidden_NK, weight_MK, None).cpu()
    for wide in (False, True):
        config = engine_arguments(spec(Path(folder), dtype="bfloat16", fp32_head=wide)).create_model_config()
        with set_current_vllm_config(VllmConfig(model_config=config)):
            if not torch.distributed.is_initialized():
                init_distributed_environment(1, 0, f"tcp://127.0.0.1:{port}", 0, target.dist_backend)
                ensure_model_parallel_initialized(1, 1)
            head = ParallelLMHead(VOCABULARY, WIDTH, params_dtype=torch.bfloat16)
            head.weight.data[:VOCABULARY] = weight_MK
            head.quant_method.process_weights_after_loading(head)
            logits = LogitsProcessor(VOCABULARY)._apply_head(head, hidden_NK, None)
            scores["wide" if wide else "narrow"] = logits[:, :VOCABULARY].cpu()
    torch.save(scores, output)


@pytest.mark.slow
def test_the_engine_s_wide_head_gives_the_logits_of_the_learner_s(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", "qwen3", seed=0)
    spawn(heads, 1, str(folder), str(tmp_path / "found.pt"), deadline_s=120)
    scores = torch.load(tmp_path / "found.pt")
    errors = {name: float((logits.double() - scores["exact"]).abs().mean()) for name, logits in scores.items()}
    assert (scores["narrow"].dtype, scores["wide"].dtype) == (torch.bfloat16, torch.float32)
    assert errors["wide"] < 1e-5 < 1e-3 < errors["narrow"]
    assert float((scores["wide"] - scores["learner"]).abs().max()) < 1e-4  # equal on a CPU
