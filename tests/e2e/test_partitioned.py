"""Under ZeRO-3 a model is read by one rank and divided: the same weights, buffers and scores as loaded whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from launch.checks.models import TRAINED
from learners.export import gather_parameters, weights
from learners.partitioned import hollow
from learners.policy import PolicyModel, load_policy
from learners.rank import LearnerRank
from learners.stage import Loading
from rlsys.config.learner import LearnerConfig
from tests.device import need_gpus
from tests.e2e.learner_cases import bare_process, spawn, spec
from tests.e2e.test_architectures import small

pytestmark = pytest.mark.e2e

SAMPLES = [[1, 2, 3, 4, 5], [6, 7, 8]]


def folder(kind: str, root: Path, **changes: Any) -> Path:
    """A small model of a kind ("qwen3, tied", "qwen3, in bfloat16"), its weights visibly apart from one another."""
    name, _, how = kind.partition(", ")
    path = root / kind.replace(", ", "-").replace(" ", "-")
    model = small(name, path)
    if how == "tied":
        model.config.tie_word_embeddings = True
        model = type(model)(model.config)
    if how == "in bfloat16":
        model.to(torch.bfloat16)
    model.save_pretrained(path)
    return path


def state(policy: PolicyModel) -> dict[str, torch.Tensor]:
    """Every weight and every buffer, whole."""
    items = weights(policy.model)
    with gather_parameters(items):
        tensors = {name: item.tensor.detach().clone().cpu() for item in items for name in item.names}
    return tensors | {name: buffer.clone().cpu() for name, buffer in policy.model.named_buffers()}


def run_rank(rank: int, world_size: int, port: int, paths: list[str], rope: float, output: str) -> None:
    bare_process(rank)
    learner = LearnerRank(spec(rank, world_size, port))
    loaded: dict[str, Any] = {}
    config = LearnerConfig(zero_stage=3, rope_theta_scale=rope, tokens_per_row=64)
    for path in paths:
        loading = Loading(learner=config, spec=learner.spec, torch_device=learner.torch_device)
        policy = loading.policy(path)
        parameters = list(policy.parameters())
        assert all(param.numel() == 0 and param.ds_tensor.numel() == -(-param.ds_numel // 2) for param in parameters)
        loaded[path] = policy.linear_head, policy.hidden_size, state(policy)
    torch.save(loaded, f"{output}/{rank}.pt")
    learner.close()


def compare(kinds: list[str], tmp_path: Path, rope: float = 1.0) -> None:
    need_gpus(2)
    paths = [str(folder(kind, tmp_path)) for kind in kinds]
    spawn(run_rank, 2, paths, rope, str(tmp_path), deadline_s=300)
    for rank in range(2):
        loaded = torch.load(tmp_path / f"{rank}.pt")
        for path in paths:
            full_policy = load_policy(path, dtype="float32", attention_key="packed_sdpa", rope_theta_scale=rope)
            linear_head, hidden_size, tensors = loaded[path]
            expected = state(full_policy)
            assert (linear_head, hidden_size) == (full_policy.linear_head, full_policy.hidden_size)
            assert tensors.keys() == expected.keys()
            for name, tensor in expected.items():
                assert tensors[name].dtype == tensor.dtype and torch.equal(tensors[name], tensor), (path, rank, name)


@pytest.mark.slow
def test_what_is_divided_is_what_would_be_loaded_whole(tmp_path: Path) -> None:
    """Untied, tied, of another dtype, with experts that are joined, with an embedding that is scaled."""
    compare(["qwen3", "qwen3, tied", "llama, in bfloat16", "qwen3_moe", "gemma2"], tmp_path, rope=10.0)


@pytest.mark.slow
def test_every_architecture_that_is_trained_is_divided(tmp_path: Path) -> None:
    compare(list(TRAINED), tmp_path)


def test_a_rank_that_does_not_read_holds_no_numbers(tmp_path: Path) -> None:
    from transformers import AutoConfig

    path = folder("qwen3", tmp_path)
    model = hollow(AutoConfig.from_pretrained(path), torch.bfloat16, "sdpa")
    assert all(param.dtype == torch.bfloat16 for param in model.parameters())
    assert sum(param.untyped_storage().nbytes() for param in model.parameters()) == 2 * len(list(model.parameters()))
