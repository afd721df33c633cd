"""Supervised training on two ranks, by hand."""

import os
import sys

import torch

from learners.algorithms.sft import SFT, SFTConfig
from learners.meeting import RankSpec
from learners.rank import LearnerRank
from rlsys.batch import build_batch
from rlsys.config.learner import LearnerConfig
from rlsys.metrics import merge, values
from rlsys.plan import plan_samples, shard_plan
from rlsys.system.device import DEVICES
from rlsys.types import Sample

TEXTS = [[5, 6, 7, 8, 9], [10, 11, 12], [13, 14]]  # the first token of each is context


def demonstration(ids: list[int]) -> Sample:
    mask, nothing = (0,) + (1,) * (len(ids) - 1), (0.0,) * len(ids)
    return Sample(
        token_ids=tuple(ids), loss_mask=mask, behavior_logprobs=nothing, advantages=nothing, versions=(-1,) * len(ids)
    )


spec = RankSpec(
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
    master_addr=os.environ["MASTER_ADDR"],
    master_port=int(os.environ["MASTER_PORT"]),
    device=DEVICES["cpu"],
    dtype="float32",
    gradient_checkpointing=False,
    seed=0,
)
learner = LearnerRank(spec)
learner.begin(sys.argv[1], LearnerConfig(zero_stage=3, lr=1e-3), SFT(SFTConfig()), total_steps=3, temperature=1.0)
plan = plan_samples([demonstration(ids) for ids in TEXTS], tokens_per_row=5, version=0)
mine = shard_plan(plan, spec.world_size)[spec.rank]
batch = build_batch(mine, mine.sources)
for step in range(3):
    report = learner.update(batch)
    parts = [{} for _ in range(spec.world_size)]
    torch.distributed.all_gather_object(parts, report.metrics)
    if spec.rank == 0:
        found = values(merge(parts))
        print(f"step {step}: loss {found['loss/total']:.6f}, gradient {found['learner/grad_norm']:.6f}")
learner.close()
