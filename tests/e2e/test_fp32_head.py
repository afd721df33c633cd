"""`model.fp32_head`: engine and learner with bfloat16 weights agree better when neither rounds its logits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from actors.engine import Engine
from learners.policy import load_policy, pack_ids
from tests import device
from tests.e2e.test_engine_contract import spec
from tests.e2e.tiny_models import Kind, save_tiny

pytestmark = pytest.mark.slow
IDS = list(range(2, 120))


def of_engine(folder: Path, *, wide: bool) -> list[float]:
    async def scored() -> list[float]:
        engine = await Engine.start(spec(folder, dtype="bfloat16", fp32_head=wide))
        try:
            return await engine.prompt_logprobs(IDS)
        finally:
            engine.stop()

    return asyncio.run(scored())


@torch.no_grad()
def of_learner(folder: Path, *, wide: bool) -> list[float]:
    policy = load_policy(
        str(folder), dtype="bfloat16", attention_key="packed_sdpa", fp32_head=wide, device=device.name()
    )
    found: list[float] = policy(*pack_ids([IDS], device.name()), 1.0, 1000)[0][1:].tolist()
    return found


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_tied"])
def test_an_engine_with_a_wide_head_says_what_the_learner_with_one_says(kind: Kind, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / kind, kind, seed=0)
    gaps = {}
    for wide in (False, True):
        pairs = zip(of_engine(folder, wide=wide), of_learner(folder, wide=wide), strict=True)
        gaps[wide] = sum(abs(ours - theirs) for ours, theirs in pairs) / (len(IDS) - 1)
    print(f"{kind}: mean gap {gaps[False]:.2g} with bfloat16 logits, {gaps[True]:.2g} with float32 logits")
    assert gaps[True] < 0.5 * gaps[False]
