"""What a run's own services take: figures by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from envs.papers.swirl.reward import SwirlRewardConfig
from envs.services.guard import GuardConfig
from envs.services.judge.config import JudgeConfig
from envs.tools.search import SearchConfig
from envs.worlds.search_config import SearchQAConfig
from launch.checks.service_needs import (
    Load,
    ServiceNeed,
    check_needs,
    of_reference,
    service_needs,
    with_every_core,
)
from launch.config.compose import compose
from rlsys.config.recipe import RecipeConfig
from rlsys.system.device import DEVICES
from tests.refused import refused

WIKI = {"corpus": "data/wiki18/corpus.jsonl", "index": "indexes/none", "kind": "dense"}


def searching(*keys: str, **retriever: Any) -> RecipeConfig:
    plain = compose("quickstart", list(keys)).recipe
    config = SearchQAConfig(data="none.jsonl", retriever=SearchConfig(**retriever))
    return replace(plain, env=config)


def needs(recipe: RecipeConfig, device: str = "cuda") -> list[ServiceNeed]:
    return service_needs([recipe, recipe], DEVICES[device])


def test_a_flat_index_of_wikipedia_is_too_much_for_a_few_threads() -> None:
    """36.4 GFLOP a search: 320 of them 36 s on 8 threads of 40 GFLOP/s, 291 s on one."""
    keys = ("rollout.workers=8", "loop.groups_per_step=64", "loop.group_size=5")
    (slow,) = needs(searching(*keys, **WIKI))
    assert (slow.cpus, slow.gpus, slow.problem) == (8, 0, None) and slow.warning is not None
    (never,) = needs(searching(*keys, **WIKI, threads=1))
    assert never.problem is not None and "env.retriever.gpus=1" in never.problem
    (fast,) = needs(searching(*keys, **WIKI, threads=16))
    assert fast.problem is fast.warning is None
    (on_gpu,) = needs(searching(*keys, **WIKI, gpus=1))
    assert on_gpu.problem is on_gpu.warning is None and "32.3 GB" in on_gpu.holds
    assert on_gpu.host_bytes == 21_015_324 * 768 * 4
    (too_small,) = needs(searching(*keys, "cluster.gpu_memory_gb=24", **WIKI, gpus=1))
    assert too_small.problem is not None and "env.retriever.gpus=2" in too_small.problem
    (without,) = needs(searching(*keys, **WIKI, gpus=1, threads=16), "cpu")
    assert (without.gpus, without.problem) == (0, None)
    (graph,) = needs(searching(*keys, **WIKI, faiss="HNSW32"))
    assert graph.problem is graph.warning is None


def test_patience_is_part_of_keeping_up() -> None:
    keys = ("rollout.workers=8", "loop.groups_per_step=64", "loop.group_size=5")
    patient = searching(*keys, **WIKI)
    guard = replace(patient.env.retriever.guard, deadline_s=60.0)
    patient = replace(patient, env=replace(patient.env, retriever=replace(patient.env.retriever, guard=guard)))
    assert needs(patient)[0].warning is None


def test_a_small_corpus_and_words_need_nothing_special() -> None:
    (words,) = needs(searching(corpus="none.jsonl"))
    assert (words.cpus, words.gpus, words.problem, words.warning) == (1, 0, None, None)
    (wiki,) = needs(searching(corpus=WIKI["corpus"]))
    assert wiki.cpus == 1 and "10.1 GB" in wiki.holds  # 21.0 M passages x 60 words x 8 bytes
    (unknown,) = needs(searching(corpus="none.jsonl", kind="dense"))
    assert (unknown.cpus, unknown.problem) == (8, None) and "none.jsonl" in unknown.holds


@pytest.mark.parametrize(("gpus", "fits"), [(1, False), (2, True)])
def test_a_judge_has_to_fit_on_its_gpus(gpus: int, fits: bool) -> None:
    """Gemma-2-27b has 54 GB of weights."""
    judge = JudgeConfig(model="google/gemma-2-27b-it", gpus=gpus)
    recipe = replace(compose("quickstart", ["cluster.gpu_memory_gb=40"]).recipe, reward=SwirlRewardConfig(judge=judge))
    (need,) = needs(recipe)
    assert (need.problem is None) == fits and (need.gpus, need.cpus) == (gpus, 8)


def test_what_plays_decides_how_many_search_at_once() -> None:
    """0.91 s a search on one thread: 330 of them fill the 300 s that three attempts of 100 s give."""
    keys = ("rollout.workers=2", "loop.groups_per_step=64", "loop.group_size=8")
    recipe = searching(*keys, **WIKI, threads=1, guard=GuardConfig(deadline_s=100.0, max_concurrent=100))

    def of(**load: int) -> ServiceNeed:
        return service_needs([recipe], DEVICES["cpu"], Load(**load))[0]

    assert (of().problem, of().warning is None) == (None, False)  # 200: two workers with 100 each
    assert of(episodes=16).warning is of(workers=1).warning is None  # 16, and 100
    assert of(workers=9).problem is not None  # 512: the episodes of a step
    (need,) = service_needs([searching(*keys, **WIKI)], with_every_core(DEVICES["cpu"]))
    assert need.cpus == len(os.sched_getaffinity(0))


def test_a_server_that_may_be_too_slow_is_said_at_a_start() -> None:
    slow = ServiceNeed(name="retriever", gpus=0, cpus=1, warning="two minutes a search")
    warnings: list[str] = []
    check_needs([slow, ServiceNeed(name="judge", gpus=1, cpus=1)], warnings.append)
    assert warnings == ["retriever: two minutes a search"]
    with refused(says="no room"):
        check_needs([replace(slow, problem="no room")], warnings.append)


def test_one_server_has_one_size() -> None:
    plain = compose("quickstart", []).recipe
    judges = [JudgeConfig(model="own", gpus=gpus, attempts=gpus) for gpus in (1, 1, 2)]
    first, twin, other = (replace(plain, reward=SwirlRewardConfig(judge=judge)) for judge in judges)
    (need,) = service_needs([first, twin], DEVICES["cuda"])
    assert need.problem is None
    (need,) = service_needs([first, twin, other], DEVICES["cuda"])
    assert need.gpus == 1 and need.problem is not None and "2 GPUs" in need.problem
    (need,) = service_needs([first, other], DEVICES["cpu"])  # no GPU there, whatever they ask for
    assert need.problem is None


def test_a_served_reference_takes_its_weights_on_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 billion parameters in bfloat16 are 64 GB, and 0.9 of a card of 40 GB has no room for them."""
    monkeypatch.setattr("launch.checks.service_needs.teacher_parameters", lambda path: 32_000_000_000)
    keys = ["algorithm.name=opd", "learner.reference=/teacher", "learner.serve_reference=true"]
    one, two = (
        of_reference(compose("quickstart", [*keys, "cluster.gpu_memory_gb=40", *more]).recipe, DEVICES["cuda"])
        for more in ([], ["learner.reference_gpus=2"])
    )
    assert one.problem is not None and "learner.reference_gpus=2" in one.problem
    assert (two.gpus, two.problem) == (2, None) and "32.0 GB" in two.holds


def test_a_served_reference_needs_room_for_a_sequence_next_to_its_weights() -> None:
    """7.6 G parameters in bfloat16 and one step take 17.4 GB. Of a card of 22 the scores of 1907 tokens for 152,064
    words of 10 bytes take 2.9, and CUDA 1.5: vLLM may have 0.80 of it. With one token more it may have 0.79, 17.4, and
    no sequence fits. In float32 the weights alone are 30 GB."""
    keys = ["algorithm.name=opd", "learner.reference=Qwen/Qwen2.5-7B", "learner.serve_reference=true"]

    def problem(*more: str) -> str:
        recipe = compose("quickstart", [*keys, "cluster.gpu_memory_gb=22", "engine.max_num_seqs=128", *more]).recipe
        return of_reference(recipe, DEVICES["cuda"]).problem or ""

    assert not problem("engine.max_model_len=1907")
    assert "try learner.reference_gpus=2" in problem("engine.max_model_len=1908")
    assert "try learner.reference_gpus=2" in problem("model.dtype=float32")
