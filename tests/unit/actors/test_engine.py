"""What the engine asks of vLLM, in which order, and what it makes of the answers: over a vLLM that is a few lines here.

Whether the real one does what is asked of it: tests/e2e/test_engine_contract.py.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import runpy
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

import actors.engine
import actors.engine_worker
import rlsys.system.orphans
from actors.engine import Engine, leave_out_token_texts
from actors.engine_arguments import engine_arguments
from actors.engine_worker import PARENT_VARIABLE, ReloadExtension, once
from actors.specs import IDLE, EngineFailed, EngineSpec, EngineStats, Gauges, PromptTooLong
from rlsys.adapters import Adapter
from rlsys.rollout import TurnRequest
from rlsys.system.weight_folder import WeightManifest, WeightsRejected
from tests.makers.made import engine_spec

VERSION = WeightManifest(version=7, tensors=3)
ASKED = TurnRequest(max_tokens=6, temperature=0.5, top_p=0.9, seed=4, stop=("</a>",))


class Dead(Exception):
    """vLLM's word for a process that is broken."""


def fields(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(**given)


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The names that the engine takes from vLLM, without its import."""
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"SamplingParams": fields, "AsyncEngineArgs": fields},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY="final")},
        "vllm.inputs": {"tokens_input": lambda ids, *, cache_salt: (ids, cache_salt)},
        "vllm.v1.engine.exceptions": {"EngineDeadError": Dead, "EngineGenerateError": Dead},
        "vllm.v1.engine.async_llm": {"AsyncLLM": LLM},
    }
    for name, names in modules.items():
        module = ModuleType(name)
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(actors.engine, "WeightFolder", SimpleNamespace(check=LLM.check))
    LLM.missing = False
    yield


class LLM:
    """Answers at once, and writes down what it was asked."""

    missing = False  # a published version is not there
    broken_start = False
    made: list[LLM]

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.requests: list[tuple[Any, Any, str, int]] = []
        self.adapters: list[Any] = []  # of the requests
        self.described: list[str] = []
        self.closed: list[str] = []
        self.unfinished, self.reloaded = 0, [(3, [])]  # type: tuple[int, Any]
        self.error: Exception | None = None
        self.silent = False
        self.hook: Callable[[], Any] | None = None
        self.output_processor = SimpleNamespace(
            request_states={},
            get_num_unfinished_requests=lambda: self.unfinished,
            propagate_error=lambda error: self.described.append(str(error)),
            add_request=lambda request: None,
        )
        resources = SimpleNamespace(ctx=SimpleNamespace(term=lambda: self.closed.append("context")))
        self.engine_core = SimpleNamespace(resources=Sockets(resources, self.closed))

    @classmethod
    def from_engine_args(cls, arguments: Any, stat_loggers: Any) -> LLM:
        assert os.environ[PARENT_VARIABLE] == str(os.getpid())
        llm = cls()
        llm.asked.append(arguments.model)
        llm.error = ValueError("no room") if cls.broken_start else None
        (logger,) = stat_loggers
        logger("config", 0).record(fields(num_running_reqs=1, num_waiting_reqs=2, kv_cache_usage=0.5))
        cls.made.append(llm)
        return llm

    @classmethod
    def check(cls, published: WeightManifest) -> None:
        if cls.missing:
            raise WeightsRejected("not there")

    async def generate(
        self, prompt: Any, parameters: Any, name: str, *, lora_request: Any, priority: int
    ) -> AsyncIterator[Any]:
        self.requests.append((prompt, parameters, name, priority))
        self.adapters.append(lora_request)
        if self.hook is not None:
            self.hook()
        if self.error is not None:
            raise self.error
        if self.silent:
            return
        flat = SimpleNamespace(logprobs=[-0.5, -2.0], start_indices=[0, 1])
        spans = [SimpleNamespace(version="7", start=0, end=2)]
        sampled = SimpleNamespace(
            token_ids=[5, 6], logprobs=flat, weight_versions=spans, text="ab", finish_reason="length", stop_reason=None
        )
        scored = [None, *({token: fields(logprob=-float(token)), 99: fields(logprob=0.0)} for token in prompt[0][1:])]
        yield SimpleNamespace(outputs=[], prompt_logprobs=None)  # only the last one counts
        yield SimpleNamespace(outputs=[sampled], prompt_logprobs=scored)

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        self.asked.append(("pause", mode, clear_cache))

    async def resume_generation(self) -> None:
        self.asked.append("resume")

    async def update_weight_version(self, version: str) -> None:
        self.asked.append(("version", version))

    async def abort(self, names: list[str]) -> None:
        self.asked.append(("abort", names))

    async def collective_rpc(self, method: str, args: Any = ()) -> Any:
        self.asked.append(
            (method, *(argument["version"] if isinstance(argument, dict) else argument for argument in args))
        )
        if method == "rl_pid":
            return [1, 2]
        await asyncio.sleep(0)
        if isinstance(self.reloaded, Exception):
            raise self.reloaded
        if self.reloaded is None:
            await asyncio.Event().wait()
        return self.reloaded

    def shutdown(self, *, timeout: float) -> None:
        self.closed.append(f"vllm in {timeout:g} s")
        raise psutil.NoSuchProcess(1)


class Sockets:
    def __init__(self, resources: SimpleNamespace, closed: list[str]) -> None:
        self.ctx, self._closed = resources.ctx, closed

    def __call__(self) -> None:
        self._closed.append("sockets")
        raise AttributeError("the loop is closed")


class Process:
    """An EngineCore, as Python's multiprocessing shows one."""

    def __init__(self, pid: int = 1, *, immortal: bool = False) -> None:
        self.sentinel, self._end = os.pipe()
        self.pid, self.ended, self._immortal = pid, False, immortal

    def kill(self) -> None:
        if not self.ended:
            os.close(self._end)
        self.ended = True

    def join(self, timeout: float) -> None:
        assert timeout == 10.0

    def is_alive(self) -> bool:
        return self._immortal or not self.ended


def run(scenario: Callable[[Engine, LLM, Process], Coroutine[Any, Any, None]], **changes: Any) -> None:
    async def whole() -> None:
        llm, process = LLM(), Process()
        engine = Engine(engine_spec(**changes), llm, [process], Gauges())
        try:
            await scenario(engine, llm, process)
        finally:
            engine.stop()
            with suppress(OSError):
                os.close(process.sentinel)

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_a_request_asks_for_what_the_context_leaves_and_comes_back_as_a_completion() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        completion = await engine.generate([1, 2, 3], ASKED, "w-1")
        assert (completion.token_ids.tolist(), completion.text, completion.logprobs.tolist()) == (
            [5, 6],
            "ab",
            [-0.5, -2.0],
        )
        await engine.generate([1] * 7, ASKED, "w-2")
        await engine.generate([1], ASKED, "w-3")
        (prompt, parameters, name, priority), second, third = llm.requests
        assert (prompt, name, priority) == (([1, 2, 3], "0"), "w-1", 0)
        assert vars(parameters) == {
            "output_kind": "final", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "seed": 4, "stop": ["</a>"],
            "skip_special_tokens": True, "logprobs": 0, "flat_logprobs": True,
        }  # fmt: skip
        assert (second[1].max_tokens, third[1].max_tokens) == (1, 6)
        with pytest.raises(PromptTooLong) as refused:
            await engine.generate([1] * 8, ASKED, "w-4")
        assert (refused.value.length, refused.value.limit, len(llm.requests)) == (8, 8, 3)

    run(scenario)


def test_a_probe_is_of_each_token_after_the_first_and_passes_the_queue() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        assert await engine.prompt_logprobs([3, 4, 5]) == [-4.0, -5.0]
        ((_, parameters, _, priority),) = llm.requests
        assert (parameters.max_tokens, parameters.temperature, parameters.prompt_logprobs) == (1, 0.0, 0)
        assert not parameters.detokenize and priority < 0
        with pytest.raises(PromptTooLong):
            await engine.prompt_logprobs([1] * 8)

    run(scenario)


def test_a_load_pauses_swaps_names_the_version_and_goes_on_and_prefixes_are_new() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        await engine.load(VERSION)
        assert llm.asked == [("pause", "keep", True), ("rl_load", 7), ("version", "7"), "resume"]
        await engine.load(VERSION)
        await engine.generate([1], ASKED, "w-1")
        assert llm.requests[0][0] == ([1], "2") and llm.described == []

    run(scenario)


def test_where_running_requests_keep_their_cache_those_without_a_token_are_sent_anew() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        begun, waits = (fields(external_req_id=name, is_prefilling=name == "w-2") for name in ("w-1", "w-2"))
        llm.output_processor.request_states = {1: begun, 2: waits}
        await engine.load(VERSION)
        assert llm.asked[:3] == [("pause", "keep", False), ("rl_load", 7), ("abort", ["w-2"])]
        await engine.generate([1], ASKED, "w-1")
        await engine.generate([1], ASKED, "w-2")  # as it comes back from its abortion
        assert [name for _, _, name, _ in llm.requests] == ["w-1", "w-2", "w-2"]

    run(scenario, running_kv="keep")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([(3, []), (3, ["head: 1 of 2 elements"] * 6)], "version 7: 6 layers not refreshed whole"),
        ([(3, []), (2, [])], "version 7: 2 tensors loaded, 3 were published"),
        (ValueError("tensor x comes twice"), "version 7: the reload failed: tensor x comes twice"),
    ],
)
def test_a_version_that_was_not_loaded_whole_ends_the_engine(answer: Any, says: str) -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        llm.reloaded = answer
        with pytest.raises(WeightsRejected, match=says) as refused:
            await engine.load(VERSION)
        assert str(refused.value).count("elements") in (0, 5)
        assert "resume" not in llm.asked and llm.described == ["version 7 was not loaded whole"]
        for call in (engine.load(VERSION), engine.generate([1], ASKED, "w-1")):
            with pytest.raises(EngineFailed, match="version 7 was not loaded whole"):
                await call
        assert not llm.requests

    run(scenario)
    assert not LLM.missing


def test_an_adapter_goes_along_with_each_request_and_stands_on_its_own_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it comes or goes every request is sent again, and in its place those without a token; the weights under it
    are loaded where the engine has others."""
    monkeypatch.setattr(actors.engine, "adapter_request", lambda: "policy")
    adapter = Adapter(base="nowhere", rank=4, alpha=8.0, targets=("q_proj",))

    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        async def load(version: int, on: Adapter | None) -> list[Any]:
            llm.asked.clear()
            await engine.load(WeightManifest(version=version, tensors=3, adapter=on))
            await engine.generate([1], ASKED, f"w-{version}")
            return [call for call in llm.asked if call[0] in ("abort", "rl_load", "rl_load_base")]

        def state(name: str, waiting: bool) -> Any:
            return SimpleNamespace(external_req_id=name, is_prefilling=waiting)

        llm.output_processor.request_states = {1: state("a", False), 2: state("b", True)}
        assert await load(1, adapter) == [("rl_load", 1), ("abort", ["a", "b"])]  # the folder that it was started from
        assert await load(2, adapter) == [("rl_load", 2), ("abort", ["b"])]
        other = replace(adapter, base="/run/bases/x")
        assert await load(3, other) == [("rl_load_base", "/run/bases/x"), ("rl_load", 3), ("abort", ["b"])]
        assert await load(4, None) == [("rl_load", 4), ("abort", ["a", "b"])]
        assert await load(5, other) == [("rl_load_base", "/run/bases/x"), ("rl_load", 5), ("abort", ["a", "b"])]
        assert llm.adapters == ["policy", "policy", "policy", None, "policy"]
        llm.reloaded = [(3, ["layer: the engine has no adapter there"])]
        with pytest.raises(WeightsRejected, match="no adapter there"):
            await engine.load(WeightManifest(version=6, tensors=3, adapter=other))
        with pytest.raises(EngineFailed):
            await engine.generate([1], ASKED, "w-6")

    run(scenario, running_kv="keep")


def test_a_version_that_is_not_there_ends_nothing() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        LLM.missing = True
        with pytest.raises(WeightsRejected, match="not there"):
            await engine.load(VERSION)
        assert llm.asked == []
        await engine.generate([1], ASKED, "w-1")

    run(scenario)


def test_the_death_of_the_process_is_heard_by_whoever_waits_for_it() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        llm.reloaded = None
        loading = asyncio.create_task(engine.load(VERSION))
        while ("rl_load", 7) not in llm.asked:
            await asyncio.sleep(0)
        process.kill()
        with pytest.raises(EngineFailed, match="the EngineCore died"):
            await loading
        assert llm.described == ["the EngineCore died"]  # frozen requests hear it too
        engine.stop()
        assert llm.closed[0] == "vllm in 0 s"  # it does not hear the signal

    run(scenario)


@pytest.mark.parametrize(("cause", "says"), [(None, "broke: gone"), (OSError("out of memory"), "broke: out of memory")])
def test_vllms_own_words_for_a_broken_process_are_ours(cause: Exception | None, says: str) -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        llm.error = Dead("gone")
        llm.error.__cause__ = cause
        with pytest.raises(EngineFailed, match=says):
            await engine.generate([1], ASKED, "w-1")
        llm.error, llm.silent = None, True
        with pytest.raises(EngineFailed, match="ended without an output"):
            await engine.generate([1], ASKED, "w-1")

    run(scenario)


def test_a_cut_is_asked_for_once_and_its_failure_is_told_by_the_request_alone() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        async def fail(name: str) -> None:
            asked.append(name)
            raise Dead("gone")

        asked: list[str] = []
        unheard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        llm.abort = fail  # type: ignore[assignment,method-assign]
        engine.cut("w-1")
        await asyncio.sleep(0.01)  # it has ended, and nobody holds it
        gc.collect()
        assert (asked, unheard) == (["w-1"], [])

    run(scenario)


def test_an_engine_that_ran_dry_is_idle_whatever_it_said_last() -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        engine.gauges.record(None)
        assert engine.gauges.latest == IDLE
        engine.gauges.record(fields(num_running_reqs=1, num_waiting_reqs=2, kv_cache_usage=0.5), None, engine_idx=0)
        assert engine.stats() == IDLE
        llm.unfinished = 1
        assert engine.stats() == EngineStats(running=1, waiting=2, kv_usage=0.5)

    run(scenario)


def test_a_stop_ends_the_process_for_certain_and_closes_what_vllm_left_open(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(engine: Engine, llm: LLM, process: Process) -> None:
        engine.stop()
        engine.stop()
        assert engine.ending is not None
        engine.ending.join(60)
        assert process.ended and llm.described == ["it was stopped"]
        # Another file may get the number of the process's: nobody listens to it any more.
        assert not asyncio.get_running_loop().remove_reader(process.sentinel)
        assert llm.closed == ["vllm in 5 s", "sockets", "context", "vllm in 0 s"]
        with pytest.raises(EngineFailed, match="it was stopped"):
            await engine.generate([1], ASKED, "w-1")

    run(scenario)
    assert not [record for record in caplog.records if "SIGKILL" in record.getMessage()]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """One child that is there before, and one that vLLM starts."""
    older, core = Process(11), Process(1)
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [older, core] if LLM.made else [older])
    monkeypatch.setattr(actors.engine.psutil, "Process", lambda pid: fields(pid=pid))
    monkeypatch.setattr(
        actors.engine.psutil, "wait_procs", lambda parts, s: waited.append([part.pid for part in parts])
    )
    for name in ("VLLM_CACHE_ROOT", "VLLM_LOGGING_LEVEL", "TORCH_COMPILE_DISABLE", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    waited: list[Any] = []
    LLM.made, LLM.broken_start = [], False
    core.waited = waited  # type: ignore[attr-defined]
    return [older, core]


def test_a_start_warms_it_up_as_version_0_and_knows_its_own_processes(children: list[Process]) -> None:
    async def scenario() -> None:
        engine = await Engine.start(engine_spec("m", threads=6, tensor_parallel=2, max_model_len=8))
        (llm,) = LLM.made
        assert llm.asked == ["m", ("version", "0"), ("rl_pid",)]
        assert [(prompt[0], parameters.max_tokens) for prompt, parameters, _, _ in llm.requests] == [
            ([0], 2),
            ([0, 0], 1),
        ]
        assert engine.core_pids() == [1, 2]
        assert PARENT_VARIABLE not in os.environ and os.environ["OMP_NUM_THREADS"] == "3"
        assert os.environ["TORCH_COMPILE_DISABLE"] == "1" and os.environ["VLLM_LOGGING_LEVEL"] == "WARNING"
        llm.unfinished = 1
        assert engine.stats() == EngineStats(running=1, waiting=2, kv_usage=0.5)
        engine.stop()
        assert children[1].ended and not children[0].ended
        assert children[1].waited == [[2]]  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_a_start_that_fails_leaves_no_process(children: list[Process]) -> None:
    """And a part of a model has one thread at least."""
    LLM.broken_start = True
    with pytest.raises(ValueError, match="no room"):
        asyncio.run(Engine.start(engine_spec("m", enforce_eager=False, threads=1, tensor_parallel=2)))
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert children[1].ended and not children[0].ended
    assert "TORCH_COMPILE_DISABLE" not in os.environ and PARENT_VARIABLE not in os.environ


def arguments(**changes: Any) -> dict[str, Any]:
    spec: EngineSpec = engine_spec("m", **changes)
    return vars(engine_arguments(spec))


def test_what_vllm_is_told_is_what_the_engine_is_built_from() -> None:
    options = arguments(seed=3, max_num_seqs=4, fp32_head=True)
    assert options.pop("additional_config").compute_hash() == ""
    assert options == {
        "model": "m", "dtype": "float32", "max_model_len": 8, "max_num_seqs": 8, "scheduling_policy": "priority",
        "seed": 3, "enable_prefix_caching": False, "enforce_eager": True, "gpu_memory_utilization": 0.5,
        "logprobs_mode": "processed_logprobs", "tensor_parallel_size": 1, "disable_log_stats": True,
        "worker_extension_cls": "actors.engine_worker.ReloadExtension", "kv_cache_memory_bytes": 1 << 20,
        "block_size": 32, "hf_overrides": {"head_dtype": "float32"},
    }  # fmt: skip


def test_what_is_left_open_is_vllms_choice_and_its_own_arguments_come_last() -> None:
    options = arguments(kv_cache_mb=None, block_size=None, tensor_parallel=2, vllm={"seed": 9})
    assert not options.keys() & {"kv_cache_memory_bytes", "block_size", "hf_overrides", "enable_chunked_prefill"}
    assert (options["distributed_executor_backend"], options["tensor_parallel_size"], options["seed"]) == ("mp", 2, 9)
    whole = arguments(chunked_prefill=False)
    assert (whole["enable_chunked_prefill"], whole["max_num_batched_tokens"]) == (False, 8192)
    assert arguments(chunked_prefill=False, max_model_len=9000)["max_num_batched_tokens"] == 9000


def test_no_token_is_spelled_out_beside_its_logprob() -> None:
    states = {"r": fields(logprobs_processor=fields(tokenizer="t"))}
    seen: list[Any] = []
    processor = fields(request_states=states, add_request=lambda *args, **more: seen.append((args, more)))
    leave_out_token_texts(processor)
    request = fields(request_id="r")
    processor.add_request(request, 1, extra=2)
    assert states["r"].logprobs_processor.tokenizer is None and seen == [((request, 1), {"extra": 2})]


def test_a_tensor_that_comes_twice_is_refused() -> None:
    seen: set[str] = set()
    tensors: Any = iter([("a", 1), ("b", 2)])
    assert list(once(tensors, seen)) == [("a", 1), ("b", 2)] and seen == {"a", "b"}
    again: Any = iter([("c", 3), ("a", 4)])
    with pytest.raises(ValueError, match="tensor a comes twice"):
        list(once(again, seen))


def test_the_side_within_vllm_says_who_it_is_and_reads_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    unnamed: list[Any] = []
    monkeypatch.setenv("VLLM_DIST_IDENT", "mark")
    monkeypatch.setattr(actors.engine_worker, "unname", unnamed.append)
    assert ReloadExtension().rl_pid() == os.getpid() and unnamed == ["mark"]
    monkeypatch.setattr(actors.engine_worker, "WeightFolder", fields(receive=lambda manifest: manifest))
    assert ReloadExtension().rl_tensors({"version": 7, "tensors": 3}) == VERSION


class Embedding:
    """A vocabulary of 10 words, of 16 rows of 2 numbers on this process, 8 of them of words."""

    num_embeddings_per_partition = 16
    shard_indices = SimpleNamespace(num_org_elements=8)


def layer(kind: type, load: int, total: int | None, *, loadable: bool = True, parameters: bool = True) -> Any:
    module: Any = kind()
    module.info = fields(can_load=lambda: loadable, load_numel=load, load_numel_total=total)
    module._parameters = {"weight": 1} if parameters else {}
    return module


@pytest.fixture
def reload(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to a model, in order."""
    done: list[str] = []
    layers = "vllm.model_executor.layers"
    modules: dict[str, dict[str, Any]] = {
        f"{layers}.attention": {"is_deferred_attention_layer": lambda layer: isinstance(layer, Deferred)},
        f"{layers}.vocab_parallel_embedding": {"VocabParallelEmbedding": Embedding},
        "vllm.model_executor.model_loader.reload.layerwise": {"get_layerwise_info": lambda layer: layer.info},
        "vllm.model_executor.model_loader.reload": {
            "initialize_layerwise_reload": lambda model: done.append("begin"),
            "finalize_layerwise_reload": lambda model, config: done.append(f"end of {config}"),
        },
        "vllm.config": {"set_current_vllm_config": lambda config: nullcontext()},
    }
    for name, names in modules.items():
        module = ModuleType(name)
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, module)
    return done


class Plain: ...


class Deferred: ...


def test_a_layer_that_waits_for_elements_is_named_and_padding_is_never_waited_for(reload: list[str]) -> None:
    layers = {
        "whole": layer(Plain, 6, 6),
        "short": layer(Plain, 4, 6),
        "done": layer(Plain, 0, 6, loadable=False),
        "empty": layer(Plain, 0, 6, parameters=False),
        "deferred": layer(Deferred, 0, 6),
        "unknown": layer(Plain, 0, None),
        "words": layer(Embedding, 16, 32),
        "few words": layer(Embedding, 15, 32),
    }
    model = fields(named_modules=layers.items)
    assert ReloadExtension().rl_missing(model) == ["short: 4 of 6 elements", "few words: 15 of 16 elements"]


def test_a_reload_counts_the_tensors_it_read_and_looks_before_it_ends(
    reload: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_weights(tensors: Iterator[tuple[str, Any]]) -> None:
        reload.append(", ".join(name for name, _ in tensors))

    parameters = [fields(device=torch.device("cpu"))]
    model = fields(parameters=lambda: iter(parameters), load_weights=load_weights)
    extension = ReloadExtension()
    extension.model_runner = fields(get_model=lambda: model)
    extension.vllm_config, extension.model_config = "vllm", "model"
    monkeypatch.setattr(extension, "rl_tensors", lambda published: iter([("a", 1), ("b", 2)]))
    monkeypatch.setattr(extension, "rl_missing", lambda model: [reload.append("look") or "head"])  # type: ignore[func-returns-value]
    assert extension.rl_load({}) == (2, ["head"])
    assert reload == ["begin", "a, b", "look", "end of model"]


def test_a_process_of_an_engine_is_bound_to_the_one_that_it_was_spawned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the import alone; its own children are bound to it in turn."""
    bound: list[int] = []
    monkeypatch.setattr(rlsys.system.orphans, "die_with", bound.append)
    for parent, expected in ((None, []), (str(os.getpid()), []), ("4711", [4711])):
        if parent is None:
            monkeypatch.delenv(PARENT_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(PARENT_VARIABLE, parent)
        runpy.run_path(actors.engine_worker.__file__)
        assert bound == expected
    assert os.environ[PARENT_VARIABLE] == str(os.getpid())
