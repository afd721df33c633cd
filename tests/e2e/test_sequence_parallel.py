"""Ranks that share each row train what one rank trains: under every ZeRO stage, with every model and pass."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from learners.policy import load_policy
from learners.proofs import require_shared_rows
from learners.rank import LearnerRank
from learners.sequence_parallel import make_sequence_group
from rlsys.errors import BadInput
from rlsys.metrics import Mean, Sum
from tests.e2e.learner_cases import bare_process, save_model, spawn, spec
from tests.e2e.test_learner_rank import ActorCritic, WeightedLogprob, begin_actor_critic, samples_of, tensors
from tests.makers.made import make_shards

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TIMES = ("time/", "memory/", "learner/tokens_per_s", "learner/flops_per_s", "learner/mfu", "learner/tokens_shared")


def run_rank(
    rank: int, world_size: int, port: int, path: str, folder: str, sharing: int, zero_stage: int, algorithm: Any
) -> None:
    """Two updates; the rows of 21 tokens at most have lengths that neither 2 nor 4 divides."""
    bare_process(rank)
    checkpointing = zero_stage == 3
    learner = LearnerRank(spec(rank, world_size, port, gradient_checkpointing=checkpointing))
    more = {"zero_stage": zero_stage, "ranks": world_size, "sequence_parallel": sharing}
    begin_actor_critic(learner, path, algorithm, **more)
    shard, reports = rank // sharing, []
    for step in range(2):
        batch = make_shards(samples_of(step), 21, 0, world_size // sharing, minibatches=algorithm.minibatches)[shard]
        reports.append(learner.update(batch))
    torch.save((reports, tensors(learner)), Path(folder) / f"{rank}.pt")
    learner.close()


def play(folder: Path, path: str, world_size: int, sharing: int, zero_stage: int, algorithm: Any) -> list[Any]:
    folder.mkdir()
    spawn(run_rank, world_size, path, str(folder), sharing, zero_stage, algorithm, deadline_s=300)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]


@pytest.mark.parametrize(
    ("world_size", "sharing", "zero_stage", "algorithm"),
    [
        (2, 2, 2, ActorCritic()),
        (2, 2, 3, ActorCritic()),
        (4, 2, 1, WeightedLogprob()),
        (4, 4, 3, WeightedLogprob()),  # of 2 heads of keys, which are repeated
    ],
)
def test_ranks_that_share_rows_train_what_one_rank_trains(
    tmp_path: Path, world_size: int, sharing: int, zero_stage: int, algorithm: Any
) -> None:
    path = save_model(tmp_path / "model")
    [(expected, weights)] = play(tmp_path / "one", path, 1, 1, zero_stage, algorithm)
    ranks = play(tmp_path / "shared", path, world_size, sharing, zero_stage, algorithm)
    for reports, shared_weights in ranks:
        for name, weight in weights.items():
            assert (shared_weights[name] - weight).abs().max() < 2e-5, name  # steps of 1e-3
        for report, plain in zip(reports, expected, strict=True):
            assert report.applied
            norm = plain.metrics["learner/grad_norm"]
            assert report.metrics.get("learner/grad_norm", norm).value == pytest.approx(norm.value, rel=1e-5)
    for step, plain in enumerate(expected):  # rows and tokens are counted once, by the first rank of each group
        counted = [reports[step].metrics for reports, _ in ranks]
        assert all(isinstance(metric, (Mean, Sum)) is False for metric in counted[1].values())
        for name, metric in plain.metrics.items():
            if isinstance(metric, Sum) and not name.startswith((*TIMES, "learner/rows", "learner/padding_rows")):
                total = sum(metrics[name].value for metrics in counted if name in metrics)
                assert total == pytest.approx(metric.value, rel=1e-4, abs=1e-6), name


def refuse_rank(rank: int, world_size: int, port: int, path: str) -> None:
    """A layer that adds to each token the one before it, as a convolution does: the first rank's part is as it was."""
    bare_process(rank)
    learner = LearnerRank(spec(rank, world_size, port))
    group = make_sequence_group(world_size, timedelta(seconds=60))
    assert group is not None
    model = load_policy(path, dtype="float32", attention_key="packed_sdpa").model
    require_shared_rows(model, group)
    model.base_model.layers[0].mlp.register_forward_hook(lambda _module, _inputs, out: out + out.roll(1, dims=1))
    with pytest.raises(BadInput, match="learner.sequence_parallel=2: .* mixes the tokens"):
        require_shared_rows(model, group)
    learner.close()


def test_a_model_that_mixes_tokens_elsewhere_is_refused_by_every_rank(tmp_path: Path) -> None:
    spawn(refuse_rank, 2, save_model(tmp_path / "model"), deadline_s=120)
