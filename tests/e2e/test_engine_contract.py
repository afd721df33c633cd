"""What the project relies on in vLLM, held against the real engine: an upgrade of vLLM passes here or waits."""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import actors.worker
from actors import engine as engine_module
from actors.engine import Engine
from actors.engine_arguments import SPARE
from actors.scoring import ScoringSpec
from actors.specs import IDLE, EngineFailed, EngineSpec, EngineStats, PromptTooLong, engine_environment
from actors.worker import RolloutWorker, WorkerSpec
from rlsys.probe import SAMPLES
from rlsys.rollout import TurnRequest
from rlsys.system.orphans import SHARED
from rlsys.system.weight_folder import WeightManifest, WeightsRejected
from rlsys.types import Completion, Group, Reward, TurnStop, VersionSpan
from tests import device
from tests.e2e.tiny_models import END, Kind, logits, logprobs, publish, save_tiny, tiny_model, tiny_tokenizer
from tests.makers import made
from tests.unit.rlsys.test_rollout import play_group

pytestmark = pytest.mark.e2e

CONTEXT = 512
HERE = Path(__file__).resolve().parent
PYTHONPATH = str(HERE.parents[1])
PROMPT = list(range(2, 72))  # more than two blocks of 32: a stale prefix cache would show


def close() -> float:
    """Nats, in float32. On a GPU vLLM's attention rounds the factors of its products to 10 bits."""
    return {"cpu": 1e-4, "cuda": 1e-2}[device.name()]


def spec(folder: Path, **changes: Any) -> EngineSpec:
    room: dict[str, Any] = {"max_model_len": CONTEXT, "max_num_seqs": 16, "kv_cache_mb": 64}
    if device.name() == "cuda":  # as `make_engine_spec` has it
        gpu = device.device()
        room |= {"kv_cache_mb": None, "gpu_memory_utilization": 0.15, "block_size": gpu.block_size}
        room |= {"enforce_eager": gpu.enforce_eager, "chunked_prefill": gpu.chunked_prefill}
    return made.engine_spec(folder, **{"prefix_cache": True, **room, **changes})


def request(**changes: Any) -> TurnRequest:
    return TurnRequest(**dict(max_tokens=40, temperature=1.0, top_p=1.0, seed=1) | changes)


class Loop:
    """An event loop on a thread of its own, as in a Ray actor, so that one engine can serve many tests."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, Any], timeout: float = 120.0) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)


class Served:
    """An engine and the model whose weights it should hold."""

    def __init__(self, loop: Loop, root: Path, kind: Kind) -> None:
        self.loop, self.root, self.kind = loop, root, kind
        self.model = tiny_model(kind, seed=0)
        self.engine: Engine = loop.run(Engine.start(spec(save_tiny(root / "model", kind, seed=0))))
        self.versions = itertools.count(1)
        self.names = itertools.count()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(work)

    def stop(self) -> None:
        async def on_its_loop() -> None:
            self.engine.stop()

        self.run(on_its_loop())

    async def generate(self, prompt: list[int] | None = None, *, request_id: str = "", **changes: Any) -> Completion:
        return await self.engine.generate(prompt or PROMPT, request(**changes), request_id or f"r{next(self.names)}")

    async def load(self, model: Any) -> int:
        """Publish a model as the next version and load it."""
        version = next(self.versions)
        await self.engine.load(publish(self.root, model, version))
        self.model = model
        return version


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    loop.thread.join()
    loop.loop.close()


@pytest.fixture(scope="module")
def served(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(loop, tmp_path_factory.mktemp("qwen3"), "qwen3")
    yield served
    served.stop()


def gap(ours: Any, theirs: Any) -> float:
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def sampled_gap(model: Any, completion: Completion, prompt: list[int] = PROMPT) -> float:
    """Largest distance of a completion's log-probabilities (temperature 1) from those of the transformers model."""
    return gap(completion.logprobs, logprobs(model, prompt + list(completion.token_ids))[len(prompt) - 1 :])


def outlives(pid_fd: int, seconds: float) -> bool:
    """Whether a process is still there after that many seconds."""
    return not select.select([pid_fd], [], [], seconds)[0]


def test_every_variable_that_is_set_for_vllm_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a process of an engine is spawned: a forked one would not run the import that binds it to its parent."""
    from vllm.envs import environment_variables

    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    ours = engine_environment(1)
    assert {name for name in ours if name.startswith("VLLM_")} <= set(environment_variables)
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    assert environment_variables["VLLM_WORKER_MULTIPROC_METHOD"]() == "spawn"


def test_an_engine_starts_as_version_0_with_the_weights_of_its_folder(served: Served) -> None:
    completion = served.run(served.generate())
    assert completion.spans == (VersionSpan(version=0, start=0, end=40),)
    assert completion.stop is TurnStop.LENGTH
    assert completion.text == tiny_tokenizer().decode(completion.token_ids)
    assert sampled_gap(served.model, completion) < close()


def test_a_load_changes_sampled_and_scored_logprobs_to_those_of_the_new_weights(served: Served) -> None:
    before = served.run(served.generate())
    new = tiny_model("qwen3", seed=1)
    assert sampled_gap(new, before) > 1.0
    version = served.run(served.load(new))
    after = served.run(served.generate())
    assert after.spans == (VersionSpan(version=version, start=0, end=40),)
    assert sampled_gap(new, after) < close()
    ids = PROMPT + list(before.token_ids)
    scored = served.run(served.engine.prompt_logprobs(ids))
    assert len(scored) == len(ids) - 1
    assert gap(scored, logprobs(new, ids)) < close()


def test_logprobs_are_of_the_distribution_that_was_sampled_from(served: Served) -> None:
    temperature, top_p = 0.7, 0.8
    completion = served.run(served.generate(temperature=temperature, top_p=top_p))
    ids = torch.tensor(completion.token_ids, dtype=torch.int64)
    scaled = logits(served.model, PROMPT + ids.tolist())[len(PROMPT) - 1 : -1] / temperature
    ascending, order = scaled.sort(-1)
    outside = ascending.softmax(-1).cumsum(-1) <= 1 - top_p  # the tail that nucleus sampling cuts off
    nucleus = scaled.masked_fill(outside.scatter(-1, order, outside), float("-inf"))
    assert gap(completion.logprobs, nucleus.log_softmax(-1).gather(1, ids[:, None])[:, 0].tolist()) < close()


def test_temperature_0_takes_the_best_token_and_reports_its_plain_logprob(served: Served) -> None:
    async def mixed() -> list[Completion]:  # beside a sampled request: both kinds share a batch
        return await asyncio.gather(served.generate(temperature=0.0, top_p=0.5), served.generate())

    greedy, _ = served.run(mixed())
    best = logits(served.model, PROMPT + list(greedy.token_ids))[len(PROMPT) - 1 : -1].argmax(-1)
    assert list(greedy.token_ids) == best.tolist()
    assert sampled_gap(served.model, greedy) < close()


def test_a_seed_decides_the_tokens_whoever_shares_the_batch(served: Served) -> None:
    async def crowd() -> list[Completion]:
        return await asyncio.gather(*(served.generate(seed=seed) for seed in range(8)))

    alone = served.run(served.generate(seed=3))
    together = served.run(crowd())
    assert together[3].token_ids.tolist() == alone.token_ids.tolist()
    assert len({tuple(completion.token_ids) for completion in together}) == 8


def test_a_stop_string_keeps_the_token_that_completed_it_and_ends_the_text(served: Served) -> None:
    free = served.run(served.generate(max_tokens=200))
    pieces = [tiny_tokenizer().decode([token]) for token in free.token_ids]
    index = next(i for i, piece in enumerate(pieces) if i > 2 and len(piece) > 3)
    stop = "".join(pieces[:index])[-2:] + pieces[index][:2]  # begins in one token and ends inside the next
    assert free.text.index(stop) == len("".join(pieces[:index])) - 2
    stopped = served.run(served.generate(max_tokens=200, stop=("no such text", stop)))
    assert stopped.stop is TurnStop.STOP
    assert stopped.token_ids.tolist() == free.token_ids[: index + 1].tolist()
    assert stopped.text == free.text[: free.text.index(stop) + len(stop)]


def test_no_single_token_is_spelled_out_beside_its_logprob(served: Served) -> None:
    parameters = engine_module.sampling_parameters(
        max_tokens=8, temperature=1.0, logprobs=0, flat_logprobs=True, seed=1
    )
    from vllm.inputs import tokens_input

    async def generated() -> Any:
        (output,) = [output async for output in served.engine.llm.generate(tokens_input(PROMPT), parameters, "spelled")]
        return output.outputs[0]

    output = served.run(generated())
    assert output.text and output.logprobs.decoded_tokens == [None] * len(output.token_ids)


def test_an_end_token_is_kept_in_the_ids_and_not_in_the_text(served: Served) -> None:
    served.run(served.load(tiny_model("qwen3", seed=2, ends="at once")))
    completion = served.run(served.generate())
    assert completion.stop is TurnStop.EOS
    assert completion.token_ids.tolist() == [tiny_tokenizer().convert_tokens_to_ids(END)]
    assert completion.text == ""
    served.run(served.load(tiny_model("qwen3", seed=0)))


def test_a_prompt_that_fills_the_context_is_refused_and_one_shorter_gives_one_token(served: Served) -> None:
    full = [5] * CONTEXT
    for call in (served.generate(full), served.engine.prompt_logprobs(full)):
        with pytest.raises(PromptTooLong) as refused:
            served.run(call)
        assert (refused.value.length, refused.value.limit) == (CONTEXT, CONTEXT)
    last = served.run(served.generate(full[:-1]))
    assert (len(last.token_ids), last.stop) == (1, TurnStop.LENGTH)


async def in_flight(served: Served, count: int, **changes: Any) -> list[asyncio.Task[Completion]]:
    """Long requests of which some tokens are sampled: a short one that started with them has ended."""
    tasks = [asyncio.create_task(served.generate(seed=seed, max_tokens=400, **changes)) for seed in range(count)]
    await served.generate(max_tokens=8)
    return tasks


def test_a_load_in_mid_generation_is_recorded_in_spans_and_every_token_is_of_the_version_named(served: Served) -> None:
    old, new = served.model, tiny_model("qwen3", seed=3)

    async def interrupted() -> tuple[int, list[Completion]]:
        tasks = await in_flight(served, 4)
        return await served.load(new), await asyncio.gather(*tasks)

    version, completions = served.run(interrupted())
    for completion in completions:
        first, second = completion.spans
        assert len(completion.token_ids) == 400
        assert (first.start, second.start, second.end) == (0, first.end, 400)
        assert first.version < second.version == version
        ids = PROMPT + list(completion.token_ids)
        by_old, by_new = (logprobs(model, ids)[len(PROMPT) - 1 :] for model in (old, new))
        assert gap(completion.logprobs, by_old[: first.end] + by_new[first.end :]) < close()


def test_a_probe_passes_the_queue_and_needs_no_seat(served: Served) -> None:
    """The engine takes 16 of 64 requests: others wait for a seat yet when a probe is answered that came after them."""
    prompts = [PROMPT[start:] for start in range(SAMPLES)]

    async def probed() -> tuple[list[list[float]], int]:
        tasks = [asyncio.create_task(served.generate(seed=seed, max_tokens=400)) for seed in range(64)]
        await asyncio.sleep(0.1)
        values = await asyncio.gather(*map(served.engine.prompt_logprobs, prompts))
        ended = sum(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return values, ended

    scores, ended = served.run(probed())
    assert ended < 64 - 16
    assert all(gap(ours, logprobs(served.model, ids)) < close() for ours, ids in zip(scores, prompts, strict=True))


@pytest.mark.slow
def test_256_episodes_on_two_seats_need_no_more_time_than_they_hold_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: None)
    seconds: dict[str, Any] = {"stall_s": 60.0, "block_s": 60.0, "start_timeout_s": 60.0}
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    worker = RolloutWorker(
        WorkerSpec(name="w", engine=made.engine_spec(max_num_seqs=2), run_seed=0, scoring=scoring, **seconds)
    )
    worker.engine = served.engine
    play = made.plan(group_size=256, max_turn_tokens=16, max_context=CONTEXT, timeout_s=2.0)

    async def played() -> tuple[Group, float]:
        began = asyncio.get_running_loop().time()
        group = await play_group(worker.generate, plan=play, max_turns=1)
        return group, asyncio.get_running_loop().time() - began

    group, took = served.run(played())
    assert took > play.timeout_s  # the last of them have waited for longer than an episode may take
    assert all(isinstance(trajectory.reward, Reward) and not trajectory.retried for trajectory in group.trajectories)


@pytest.fixture
def keeping(served: Served) -> Iterator[Served]:
    """The engine with `loop.running_kv=keep`."""
    usual = served.engine.spec
    served.engine.spec = replace(usual, running_kv="keep")
    yield served
    served.engine.spec = usual


def test_a_running_request_keeps_its_cache_and_what_comes_or_waits_gets_nothing_of_it(keeping: Served) -> None:
    old, new = keeping.model, tiny_model("qwen3", seed=8)
    batch = keeping.engine.spec.max_num_seqs + SPARE
    preempted: list[int] = []
    record = keeping.engine.gauges.record

    def counting(scheduler_stats: Any, iteration_stats: Any, *args: Any, **kwargs: Any) -> None:
        preempted.append(iteration_stats.num_preempted_reqs if iteration_stats else 0)
        record(scheduler_stats, iteration_stats, *args, **kwargs)

    async def interrupted() -> tuple[int, list[Completion]]:
        tasks = [asyncio.create_task(keeping.generate(seed=seed, max_tokens=400)) for seed in range(batch)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(keeping.generate(seed=seed)) for seed in (batch, batch + 1)]
        while len(preempted) < 20 or keeping.engine.stats().waiting < 2:  # steps: all in the batch have tokens
            assert not any(task.done() for task in tasks), "the batch was over before the others came"
            await asyncio.sleep(0.01)
        assert keeping.engine.stats().waiting == 2
        version = await keeping.load(new)
        return version, await asyncio.gather(*tasks, keeping.generate())

    keeping.engine.gauges.record = counting  # type: ignore[method-assign]
    try:
        version, completions = keeping.run(interrupted())
    finally:
        del keeping.engine.gauges.record
    assert sum(preempted) == 0
    for completion in completions[:batch]:
        first, second = completion.spans
        assert first.version < second.version == version and second.end == 400
        assert gap(completion.logprobs, mixed_logprobs(old, new, completion, first.end)) < close()
    for completion in completions[batch:]:
        assert [span.version for span in completion.spans] == [version]
        assert sampled_gap(new, completion) < close()


@torch.no_grad()
def mixed_logprobs(old: Any, new: Any, completion: Completion, switch: int) -> list[float]:
    """Of a completion (temperature 1) whose weights change after `switch` tokens while its cache is kept."""
    ids = torch.tensor([PROMPT + list(completion.token_ids)])
    cut = len(PROMPT) + switch - 1  # the last token of the old weights was sampled, and not yet read
    before = old(input_ids=ids[:, :cut], use_cache=True)
    after = new(input_ids=ids[:, cut:-1], past_key_values=before.past_key_values, use_cache=True)
    rows = torch.cat([before.logits, after.logits], 1)[0, len(PROMPT) - 1 :].log_softmax(-1)
    return rows.gather(1, ids[0, len(PROMPT) :, None])[:, 0].tolist()


def test_deliveries_of_the_same_weights_leave_every_logprob_as_it_is(keeping: Served) -> None:
    async def delivered(times: int) -> Completion:
        task = asyncio.create_task(keeping.generate(seed=5, max_tokens=400))
        for _ in range(times):
            await asyncio.sleep(0.05)
            await keeping.load(keeping.model)
        return await task

    keeping.run(keeping.load(keeping.model))  # nothing of the prompt is cached
    calm = keeping.run(delivered(0))
    keeping.run(keeping.load(keeping.model))
    often = keeping.run(delivered(3))
    assert [span.version - often.spans[0].version for span in often.spans] == [0, 1, 2, 3]
    assert often.token_ids.tolist() == calm.token_ids.tolist()
    assert often.logprobs.tolist() == calm.logprobs.tolist()


def test_loads_that_overlap_happen_one_after_the_other(served: Served) -> None:
    async def loads() -> None:
        await asyncio.gather(served.load(tiny_model("qwen3", seed=4)), served.load(tiny_model("qwen3", seed=5)))

    served.run(loads())
    assert sampled_gap(tiny_model("qwen3", seed=5), served.run(served.generate())) < close()


def test_what_is_sampled_stands_still_in_a_sleep_and_goes_on_after_it(served: Served) -> None:
    """On a CPU vLLM moves no weights; that it stops, keeps its requests and computes their caches again is the same."""

    async def scenario() -> list[Completion]:
        await served.load(tiny_model("qwen3", seed=0))
        running = await in_flight(served, 3)
        await served.engine.sleep()
        await served.engine.sleep()
        running.append(asyncio.create_task(served.generate(max_tokens=8)))
        await asyncio.sleep(1.0)
        assert not any(task.done() for task in running)
        await served.engine.wake()
        await served.engine.wake()
        return list(await asyncio.gather(*running))

    completions = served.run(scenario())
    assert [len(completion.token_ids) for completion in completions] == [400, 400, 400, 8]
    assert all(len(completion.spans) == 1 for completion in completions)
    assert max(sampled_gap(served.model, completion) for completion in completions) < close()


def test_a_version_that_is_loaded_after_a_sleep_is_the_one_that_serves(served: Served) -> None:
    async def scenario() -> Completion:
        running = await in_flight(served, 2)
        await served.engine.sleep()
        await served.engine.wake()
        await served.load(tiny_model("qwen3", seed=3))
        await asyncio.gather(*running)
        return await served.generate()

    completion = served.run(scenario())
    assert sampled_gap(served.model, completion) < close()


def test_a_cut_returns_the_tokens_sampled_so_far(served: Served) -> None:
    async def aborted() -> tuple[Completion, EngineStats]:
        (task,) = await in_flight(served, 1, request_id="long")
        stats = served.engine.stats()
        served.engine.cut("long")
        return await task, stats

    completion, stats = served.run(aborted())
    assert completion.stop is TurnStop.ABORT
    assert 0 < len(completion.token_ids) < 400
    assert sampled_gap(served.model, completion) < close()
    assert stats.running >= 1 and 0 < stats.kv_usage < 1
    assert served.engine.stats() == IDLE


def test_a_folder_with_another_version_is_refused_and_the_engine_serves_on(served: Served) -> None:
    published = publish(served.root / "wrong", served.model, 900)
    for wrong in (replace(published, version=901), replace(published, places=(str(served.root / "nowhere"),))):
        with pytest.raises(WeightsRejected):
            served.run(served.engine.load(wrong))
    assert sampled_gap(served.model, served.run(served.generate())) < close()


def test_a_missing_part_of_a_fused_parameter_is_rejected_and_ends_the_engine(served: Served) -> None:
    """Last of those that share the engine: it serves nothing after this."""
    name = "model.layers.1.self_attn.k_proj.weight"
    published = publish(served.root / "hole", tiny_model("qwen3", seed=7), 1000, without=[name])

    async def rejected() -> list[Any]:
        tasks = await in_flight(served, 2)
        with pytest.raises(WeightsRejected, match="layers.1.self_attn.qkv_proj"):
            await served.engine.load(published)
        return await asyncio.gather(*tasks, served.generate(), return_exceptions=True)

    assert [type(outcome) for outcome in served.run(rejected())] == [EngineFailed] * 3


@pytest.mark.slow
def test_a_tied_model_takes_its_head_from_the_stream_and_rejects_one_without_it(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine, being broken, is killed at once; by then its process may be gone, and vLLM's sockets close all the
    same: an open one would hang the garbage collector of this process."""
    tied = Served(loop, tmp_path, "qwen3_tied")
    killed_pids = []

    def kill(pid: int) -> None:
        killed_pids.append(pid)
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr("vllm.v1.utils.kill_process_tree", kill)
    try:
        new = tiny_model("qwen3_tied", seed=1)
        loop.run(tied.load(new))
        assert sampled_gap(new, loop.run(tied.generate())) < close()
        with pytest.raises(WeightsRejected, match="lm_head"):
            loop.run(tied.engine.load(publish(tmp_path, new, 50, without=["lm_head.weight"])))
        with pytest.raises(EngineFailed):
            loop.run(tied.generate())
    finally:
        pids = tied.engine.core_pids()
        tied.stop()
    assert killed_pids == pids
    assert tied.engine.ending is not None
    tied.engine.ending.join(60)
    assert tied.engine.llm.engine_core.resources.ctx.closed


@pytest.mark.slow
def test_the_death_of_the_engine_core_fails_what_waits_for_it(loop: Loop, tmp_path: Path) -> None:
    dying = Served(loop, tmp_path, "qwen3")

    async def bereaved() -> list[Any]:
        tasks: list[asyncio.Task[Any]] = [*await in_flight(dying, 2)]
        (pid,) = dying.engine.core_pids()
        os.kill(pid, signal.SIGSTOP)  # so that it cannot answer the load any more
        tasks.append(asyncio.create_task(dying.load(tiny_model("qwen3", seed=1))))
        await asyncio.wait(tasks, timeout=0.5)
        os.kill(pid, signal.SIGKILL)
        return await asyncio.gather(*tasks, return_exceptions=True)

    try:
        assert [type(outcome) for outcome in loop.run(bereaved())] == [EngineFailed] * 3
    finally:
        dying.stop()


@pytest.mark.slow
def test_a_start_that_fails_after_the_engine_core_is_up_leaves_no_process(loop: Loop, tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    folder = save_tiny(tmp_path / "model", "qwen3", seed=0)
    with pytest.raises(PromptTooLong):  # by the warm-up: a context of one token has no room for it
        loop.run(Engine.start(spec(folder, max_model_len=1)))
    assert set(multiprocessing.active_children()) == before


SCRIPT = """
import asyncio, json, sys

async def main():
    from actors.engine import Engine
    from actors.specs import EngineSpec
    from rlsys.system.weight_folder import WeightManifest, WeightsRejected
    from rlsys.jsonl import decode

    fields, *versions = map(json.loads, sys.argv[1:])
    engine = await Engine.start(EngineSpec(**fields))
    said = [await engine.prompt_logprobs([5, 6, 7])]
    for published in versions:
        try:
            await engine.load(decode(WeightManifest, published))
            said.append(await engine.prompt_logprobs([5, 6, 7]))
        except WeightsRejected as error:
            said.append(str(error))
    print(json.dumps({"pids": engine.core_pids(), "said": said}), flush=True)
    await asyncio.Event().wait()

if __name__ == "__main__":
    asyncio.run(main())
"""


def said_before_its_process_was_killed(
    folder: Path, engine_spec: EngineSpec, versions: list[WeightManifest], *, processes: int
) -> list[Any]:
    """Scores of [5, 6, 7] as the engine starts and after each version, or why that was rejected. Then its parent is
    killed, outside of Ray, and every process of the engine has to end."""
    script = folder / "serve.py"
    script.write_text(SCRIPT)
    arguments = [{name: getattr(engine_spec, name) for name in EngineSpec.__dataclass_fields__}, *map(asdict, versions)]
    command = [sys.executable, str(script), *map(json.dumps, arguments)]
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": PYTHONPATH}, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = threading.Timer(150, process.kill)
        deadline.start()
        assert process.stdout is not None
        report = json.loads(next((line for line in process.stdout if line.startswith("{")), "{}"))
        deadline.cancel()
        alive = [os.pidfd_open(pid) for pid in report["pids"]]
        process.kill()
        assert len(alive) == processes and not any(outlives(pidfd, 30) for pidfd in alive)
    return report["said"]


@pytest.mark.slow
def test_a_killed_process_leaves_no_engine_core_and_an_engine_that_skips_reloads_shows_in_its_scores(
    tmp_path: Path,
) -> None:
    engine_spec = spec(save_tiny(tmp_path / "model", "qwen3", seed=0), extension="tests.e2e.tiny_models.SkipsReload")
    versions = [publish(tmp_path, tiny_model("qwen3", seed=1), 1)]
    before, after = said_before_its_process_was_killed(tmp_path, engine_spec, versions, processes=1)
    assert gap(before, after) < close()  # it says that it loaded, and did not


@pytest.mark.slow
def test_a_model_divided_among_two_processes_reloads_is_counted_and_leaves_none_of_them(tmp_path: Path) -> None:
    device.need_gpus(2)
    engine_spec = spec(save_tiny(tmp_path / "model", "qwen3", seed=0), tensor_parallel=2)
    old, new = tiny_model("qwen3", seed=0), tiny_model("qwen3", seed=1)
    hole = publish(tmp_path / "hole", old, 2, without=["model.layers.1.self_attn.k_proj.weight"])
    versions = [publish(tmp_path, new, 1), hole]
    shared = set(SHARED.iterdir())
    # the EngineCore and its two workers
    before, after, rejected = said_before_its_process_was_killed(tmp_path, engine_spec, versions, processes=3)
    assert gap(before, logprobs(old, [5, 6, 7])) < close()
    assert gap(after, logprobs(new, [5, 6, 7])) < close()
    assert "1 layers not refreshed whole (model.layers.1.self_attn.qkv_proj" in rejected
    assert not [path for path in set(SHARED.iterdir()) - shared if path.name.startswith("vllm")]


class Host:
    """A Ray actor around an engine."""

    async def start(self, engine_spec: EngineSpec) -> tuple[int, list[int]]:
        self.engine = await Engine.start(engine_spec)
        return os.getpid(), self.engine.core_pids()

    async def load(self, published: WeightManifest) -> None:
        await self.engine.load(published)

    async def score(self, token_ids: list[int]) -> list[float]:
        return await self.engine.prompt_logprobs(token_ids)


@pytest.mark.slow
def test_a_killed_ray_actor_leaves_no_engine_core_and_a_llama_in_it_reloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    for own_cleanup in (
        "process_group_cleanup_enabled",
        "kill_child_processes_on_worker_exit",
        "kill_child_processes_on_worker_exit_with_raylet_subreaper",
    ):  # Ray's: they depend on the cluster's flags, and hide whether ours works
        monkeypatch.setenv(f"RAY_{own_cleanup}", "0")
    engine_spec = spec(save_tiny(tmp_path / "model", "llama", seed=0))
    new = tiny_model("llama", seed=1)
    variables = engine_environment(engine_spec.threads, engine_spec.model_path) | {"PYTHONPATH": PYTHONPATH}
    small = {"include_dashboard": False, "object_store_memory": 100 << 20, "log_to_driver": False}
    ray.init(address="local", num_cpus=device.RAY_CPUS, **small)
    try:
        options = {"max_restarts": 0, "num_gpus": device.device().gpus_per_actor}
        host = ray.remote(Host).options(**options, runtime_env={"env_vars": variables}).remote()
        pid, core_pids = ray.get(host.start.remote(engine_spec), timeout=150)
        ray.get(host.load.remote(publish(tmp_path, new, 1)), timeout=60)
        assert gap(ray.get(host.score.remote(PROMPT), timeout=60), logprobs(new, PROMPT)) < close()
        cores = [os.pidfd_open(core) for core in core_pids]
        os.kill(pid, signal.SIGKILL)
        assert len(cores) == 1 and not outlives(cores[0], 30)
    finally:
        ray.shutdown()
