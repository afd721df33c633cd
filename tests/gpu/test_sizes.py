"""Parts at the sizes of a 7B model, with random weights: memory against the plan, a full queue, a death in it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.engine import Engine
from actors.specs import EngineFailed
from launch.checks.gpu_memory import GIGA, RankPlan, rank_memory, shape_of, total
from learners.algorithms.grpo import GRPO, GRPOConfig
from learners.rank import LearnerRank
from rlsys.config.learner import LearnerConfig
from rlsys.rollout import TurnRequest
from rlsys.types import Sample
from tests import device
from tests.e2e.learner_cases import bare_process, spawn
from tests.e2e.learner_cases import spec as rank_spec
from tests.e2e.test_engine_contract import Loop, spec
from tests.e2e.tiny_models import publish
from tests.makers.made import make_batch

pytestmark = pytest.mark.slow

SIZES = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4,
    "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
LAYERS, FEW = 28, 4  # of the model, and of what one rank alone has room to train
ROW = 16_384
PROBE_S = 5.0  # in which a delivery's probe is answered, whatever waits


def tokenizer() -> Any:
    """With a text for every number that a random model may say."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"t{index}": index for index in range(SIZES["vocab_size"])}
    word_level = Tokenizer(models.WordLevel(words, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=word_level, unk_token="t0", eos_token="t1")


def save(folder: Path, layers: int) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(Qwen2Config(**SIZES, num_hidden_layers=layers)).to(torch.bfloat16)
    model.cpu().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    torch.cuda.empty_cache()
    return model


def update(rank: int, world_size: int, port: int, path: str, folder: str) -> None:
    """One step on a full row for each rank."""
    bare_process(rank)
    learner = LearnerRank(rank_spec(rank, world_size, port, dtype="bfloat16", gradient_checkpointing=True))
    config = LearnerConfig(ranks=world_size, zero_stage=2, tokens_per_row=ROW)
    learner.begin(path, config, GRPO(GRPOConfig()), 10, 1.0)
    half = ROW // 2
    sample = Sample(
        token_ids=tuple(range(1000, 1000 + half)), loss_mask=(0,) * 100 + (1,) * (half - 100),
        behavior_logprobs=(-12.0,) * half, advantages=(1.0,) * half, versions=(0,) * half, reward=1.0,
    )  # fmt: skip
    batch = make_batch([sample, sample], ROW, version=0)
    for _ in range(2):  # AdamW makes its moments in the first
        torch.cuda.reset_peak_memory_stats()
        started = time.monotonic()
        report = learner.update(batch)
    seconds = time.monotonic() - started
    torch.save((torch.cuda.max_memory_allocated(), seconds, report.applied), f"{folder}/{rank}.pt")
    learner.close()


def plan(ranks: int) -> RankPlan:
    return RankPlan(
        ranks=ranks, zero_stage=2, dtype="bfloat16", checkpointing=True, row_tokens=ROW, logit_chunk=1024,
        reference=False, critic=False, offload="none", offload_reference=False,
    )  # fmt: skip


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("ranks", "layers"), [(1, FEW), (4, LAYERS)])
def test_an_update_takes_the_memory_that_a_dry_run_prints(ranks: int, layers: int, tmp_path: Path) -> None:
    device.need_gpus(ranks)
    save(tmp_path / "model", layers)
    spawn(update, ranks, str(tmp_path / "model"), str(tmp_path), deadline_s=1500)
    shape = shape_of(SIZES | {"num_hidden_layers": layers})
    assert shape is not None
    parts = rank_memory(shape, plan(ranks))
    for rank in range(ranks):
        peak, seconds, applied = torch.load(tmp_path / f"{rank}.pt")
        print(
            f"rank {rank}: {peak / GIGA:.1f} GB at most, planned {total(parts) / GIGA:.1f} GB of {dict(parts)}; "
            f"{ROW / seconds:.0f} tokens/s"
        )
        assert applied and peak == pytest.approx(total(parts), rel=0.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("7b")
    return folder, save(folder / "model", LAYERS)


def start(loop: Loop, folder: Path) -> Engine:
    sizes = {"max_model_len": 6144, "max_num_seqs": 128, "gpu_memory_utilization": 0.85, "running_kv": "keep"}
    engine: Engine = loop.run(Engine.start(spec(folder / "model", dtype="bfloat16", **sizes)), timeout=900)
    return engine


def stop(loop: Loop, engine: Engine) -> None:
    async def on_its_loop() -> None:
        engine.stop()

    loop.run(on_its_loop())


async def opened(engine: Engine, count: int, running: int) -> list[asyncio.Task[Any]]:
    """That many answers of 4,096 tokens under way, of which so many are in the batch and the rest waits."""
    tasks = [
        asyncio.create_task(engine.generate(
            list(range(1000 + index, 1512 + index)),
            TurnRequest(max_tokens=4096, temperature=1.0, top_p=1.0, seed=index), f"open-{index}",
        ))
        for index in range(count)
    ]  # fmt: skip
    async with asyncio.timeout(300):
        while engine.stats().running < running:
            await asyncio.sleep(0.1)
    return tasks


@pytest.mark.timeout(1800)
def test_a_delivery_is_proved_at_once_beside_a_full_queue(model: tuple[Path, Any]) -> None:
    folder, weights = model
    loop = Loop()
    engine = start(loop, folder)

    async def deliver() -> tuple[float, float]:
        waiting = await opened(engine, 256, 128)
        begin = time.monotonic()
        await engine.load(publish(folder / "versions", weights, 1))
        loaded = time.monotonic()
        await engine.prompt_logprobs(list(range(2000, 2064)))
        proved = time.monotonic()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return loaded - begin, proved - loaded

    try:
        load_s, probe_s = loop.run(deliver(), timeout=900)
    finally:
        stop(loop, engine)
    print(f"256 requests, 128 at a time: loaded in {load_s:.1f} s, the probe answered {probe_s:.1f} s later")
    assert probe_s < PROBE_S


@pytest.mark.timeout(1800)
def test_an_engine_that_dies_under_many_episodes_fails_each_of_them(model: tuple[Path, Any]) -> None:
    folder, _ = model
    loop = Loop()
    engine = start(loop, folder)

    async def die() -> list[Any]:
        waiting = await opened(engine, 512, 128)
        for pid in engine.core_pids():
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            return await asyncio.gather(*waiting, return_exceptions=True)

    try:
        answers = loop.run(die(), timeout=900)
    finally:
        stop(loop, engine)
    assert len(answers) == 512 and {type(answer) for answer in answers} == {EngineFailed}
