"""An update of two real ranks is left between two rows: what is saved then is the last step's, bit for bit, and the
update that is taken again is the one that was left."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from learners.actor import PINGS, LearnerActor
from learners.algorithms import ALGORITHMS, make_algorithm
from learners.group import GroupOptions, LearnerGroup, rank_specs
from learners.leaving import RowGate, UpdateLeft
from learners.rank import LearnerRank
from rlsys.batch import Batch
from rlsys.choices import choose
from rlsys.config.learner import LearnerConfig
from rlsys.plan import plan_samples
from tests.device import device, name, need_gpus
from tests.e2e.learner_cases import bare_process, save_model, spawn, spec
from tests.e2e.test_learner_rank import CONFIG, sample, save, tensors
from tests.makers.made import make_shards

pytestmark = [pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]
MANY = {"epochs": 2, "minibatches": 2}
# algorithm, its keys, dtype, ZeRO stage, the rows after which the update is left: in the pass of the reference, of the
# critic's values, of the proximal policy, or in the first minibatch's gradient
CASES: list[tuple[str, dict[str, Any], str, int, int]] = [
    ("sft", {}, "bfloat16", 2, 6),
    ("sft", {}, "bfloat16", 1, 5),
    ("grpo", {}, "float32", 2, 3),
    ("grpo", {"kl_coef": 0.1}, "float32", 3, 9),
    ("swirl", {}, "bfloat16", 3, 4),
    ("dpo", {}, "float32", 2, 5),
    ("ppo", MANY, "float32", 1, 8),
    ("ppo", MANY, "float32", 2, 9),
    ("ppo", MANY | {"is_correction": "tis"}, "float32", 3, 14),
]


def leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from leaves(value[key])
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from leaves(element)


def saved(folder: Path) -> dict[str, list[torch.Tensor]]:
    """Every tensor of a checkpoint: weights, masters, moments."""
    files = sorted(folder.rglob("*.pt"))
    return {str(path.relative_to(folder)): list(leaves(torch.load(path, weights_only=False))) for path in files}


def same(first: dict[str, list[torch.Tensor]], second: dict[str, list[torch.Tensor]]) -> bool:
    assert first.keys() == second.keys() and first
    pairs = zip(first.values(), second.values(), strict=True)
    return all(len(ours) == len(theirs) and all(map(torch.equal, ours, theirs)) for ours, theirs in pairs)


def shard(step: int, rank: int, algorithm: Any) -> Batch:
    """Rows of one sample, or one pair, of two ranks: 6 each of 12."""
    paired = {"samples_per_unit": 2} if type(algorithm).__name__ == "DPO" else {}
    samples = [sample(index) for index in range(step, step + (24 if paired else 12))]
    return make_shards(samples, 1, 0, 2, minibatches=algorithm.minibatches, **paired)[rank]


def leave_one(learner: LearnerRank, path: str, folder: Path, case: tuple[str, dict[str, Any], str, int, int]) -> None:
    kind, keys, _, zero_stage, after = case
    algorithm = make_algorithm(choose("algorithm", ALGORITHMS, kind).schema(**keys))
    config, rank = dataclasses.replace(CONFIG, zero_stage=zero_stage), learner.spec.rank

    def begin() -> None:
        learner.begin(path, config, algorithm, 6, 1.0)
        assert learner.update(shard(0, rank, algorithm)).applied

    begin()
    learner.update(shard(1, rank, algorithm))
    expected = tensors(learner)

    begin()
    save(learner, folder / "before")
    gate = RowGate()
    gate.hold(120.0)
    gate.resume(after)
    with pytest.raises(UpdateLeft):
        learner.update(shard(1, rank, algorithm), gate)
    assert gate.rows[0] == after <= gate.rows[1] and learner.step == 1
    save(learner, folder / "left")
    torch.distributed.barrier()
    assert same(saved(folder / "before"), saved(folder / "left"))
    learner.update(shard(1, rank, algorithm))
    resumed = tensors(learner)
    assert all(torch.equal(expected[key], resumed[key]) for key in expected)


def leave_all(rank: int, world_size: int, port: int, path: str, folder: str) -> None:
    bare_process(rank)
    learner = LearnerRank(spec(rank, world_size, port))
    rank_device = dataclasses.replace(device(), held_dtype=None)  # a CPU's rank would hold float32, whatever `dtype` is
    for number, case in enumerate(CASES):
        learner.spec = dataclasses.replace(learner.spec, dtype=case[2], device=rank_device)
        leave_one(learner, path, Path(folder) / str(number), case)
    learner.close()


@pytest.mark.slow
def test_what_is_left_is_as_if_it_had_not_begun(tmp_path: Path) -> None:
    need_gpus(2)
    spawn(leave_all, 2, save_model(tmp_path / "model"), str(tmp_path), deadline_s=900)
    assert len(list(tmp_path.glob("[0-9]*/left"))) == len(CASES)
    shutil.rmtree(tmp_path)  # a hundred megabytes


class WaitingGate(RowGate):
    """Waits before a row until it is asked to leave: one rank is farther then."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self._row = row

    def begin_row(self) -> None:
        if self.rows[0] == self._row:
            with self.changed:
                assert self.changed.wait_for(lambda: self._held or self._stop_after is not None, 100)
        super().begin_row()


class WaitingRank(LearnerActor):
    waits = True

    def build(self, plan: Any) -> frozenset[int]:
        lost = super().build(plan)
        if self.waits:
            self.gate = WaitingGate(2 + self.rank.spec.rank)
        return lost

    @ray.method(concurrency_group=PINGS)
    def hold(self, ping_timeout_s: float) -> int | None:
        place, self.waits = super().hold(ping_timeout_s), False
        with self.gate.changed:
            self.gate.changed.notify_all()
        return place


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_ranks_agree_on_the_row_at_which_they_leave(tmp_path: Path) -> None:
    need_gpus(2)
    path = save_model(tmp_path / "model")
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": name()}
    options = GroupOptions(
        cpus=1, gpus=float(name() == "cuda"), env_vars=variables, start_timeout_s=300, call_timeout_s=300,
        ping_timeout_s=100,
    )  # fmt: skip
    samples = [sample(index) for index in range(12)]
    config, algorithm = LearnerConfig(lr=1e-3, logit_chunk=16), choose("algorithm", ALGORITHMS, "sft").schema()

    async def checkpoint(ranks: LearnerGroup, folder: Path) -> dict[str, list[torch.Tensor]]:
        folder.mkdir()
        await ranks.snapshot(folder, path)
        await ranks.write()
        return saved(folder)

    async def scenario() -> None:
        ranks = LearnerGroup(rank_specs(spec(world_size=2), 2), options, actor=WaitingRank)
        await ranks.start()
        await ranks.begin(path, config, algorithm, total_steps=4, temperature=1.0)
        before = await checkpoint(ranks, tmp_path / "before")
        assert await ranks.build(plan_samples(samples, 1, 0)) == frozenset()
        updating = asyncio.create_task(ranks.update(0))
        pings = [rank.ping.remote() for rank in ranks.actors]
        while min(rows for rows, _ in await asyncio.gather(*pings)) < 2:
            pings = [rank.ping.remote() for rank in ranks.actors]
        place = await ranks.leave()
        assert place is not None and 2 <= place < 6
        assert await updating is None
        assert [await rank.ping.remote() for rank in ranks.actors] == [(place, 6), (place, 6)]
        assert same(before, await checkpoint(ranks, tmp_path / "left"))
        assert not await ranks.build(plan_samples(samples, 1, 0))
        report = await ranks.update(0)
        assert report is not None and report.applied
        assert await ranks.leave() is None  # nothing is in progress
        assert not same(before, await checkpoint(ranks, tmp_path / "after"))
        await ranks.stop()

    asyncio.run(asyncio.wait_for(scenario(), 300))
