"""One vLLM engine. Every call to vLLM in the project is in this file, `engine_arguments.py` and `engine_worker.py`: an
upgrade of vLLM is a change of the three, and at most of what reads its answers: `specs.py`.

`tests/e2e/test_engine_contract.py` holds what the rest relies on. vLLM is imported only when an engine starts.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from actors import engine_start
from actors.engine_arguments import engine_arguments
from actors.engine_worker import ADAPTER, PARENT_VARIABLE
from actors.specs import (
    IDLE,
    EngineFailed,
    EngineSpec,
    EngineStats,
    Gauges,
    PromptTooLong,
    compile_cache,
    completion,
    engine_environment,
)
from rlsys.adapters import Adapter, read_adapter
from rlsys.rollout import TurnRequest
from rlsys.system import orphans
from rlsys.system.card_memory import naming_holders
from rlsys.system.weight_folder import WeightFolder, WeightManifest, WeightsRejected
from rlsys.types import Completion, Ints

log = logging.getLogger("rlsys.engine")

STOP_GRACE_S = 5.0  # for vLLM to leave a step, which takes a part of a second, and its cards
KILL_DEADLINE_S = 10.0  # for the kernel to end a process after SIGKILL
# vLLM's priorities: of a probe, for a delivery ends when it is answered, and of what goes before other episodes.
PROBE, PRIORITY, OTHERS = -2, -1, 0


class Engine:
    """A running vLLM engine. Belongs to one event loop. Build it with `Engine.start`, end it with `stop`."""

    def __init__(
        self, spec: EngineSpec, llm: Any, processes: Sequence[Any], gauges: Gauges, own_sockets: Path | None = None
    ) -> None:
        """own_sockets: the folder of vLLM's, where it is this engine's alone."""
        self.spec = spec
        self.llm = llm
        self._processes = processes
        self._parts: list[psutil.Process] = []  # children of the EngineCore that share the model, if it is divided
        self.gauges = gauges
        self._control = asyncio.Lock()  # one load at a time
        self._loads = 0  # prefixes are shared by requests that came between the same two
        self._again: set[str] = set()  # requests to be sent again: see `_restart`
        self._cutting: set[asyncio.Task[None]] = set()
        self._base: str | None = spec.model_path  # the model that an adapter may be put on; None: published weights
        self._adapter: Any = None  # goes along with every request once there is one
        self._sockets = own_sockets
        self.asleep = False
        self.failure: str | None = None  # why it can answer nothing any more
        self.ending: threading.Thread | None = None  # of vLLM's connections
        loop = asyncio.get_running_loop()
        self._death: asyncio.Future[None] = loop.create_future()
        for process in processes:
            loop.add_reader(process.sentinel, self._on_core_end, process)

    @classmethod
    async def start(cls, spec: EngineSpec) -> Engine:
        """Spawn the EngineCore and warm it up, as version 0. Blocks the event loop for the 10 to 40 s that this takes;
        `actors.engine_start.phase` says meanwhile how far it is.

        The EngineCore dies with the calling thread: call it on a thread that lives as long as the process.
        """
        own_sockets = orphans.make_sockets()
        with engine_start.track_start_phase(own_sockets, spec.model_path):
            return await cls._start(spec, own_sockets)

    @classmethod
    async def _start(cls, spec: EngineSpec, own_sockets: Path | None) -> Engine:
        os.environ.update(engine_environment(max(1, spec.threads // spec.tensor_parallel), spec.model_path))
        os.environ.setdefault("VLLM_CACHE_ROOT", compile_cache())
        if spec.enforce_eager:
            # vLLM compiles some helpers all the same: 20 s at the first request, and it needs a C++ compiler.
            os.environ["TORCH_COMPILE_DISABLE"] = "1"
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        engine_start.enter(engine_start.IMPORTING)
        # On another thread: an exception kept by one of vLLM's optional imports would hold this frame, and the engine.
        await asyncio.to_thread(importlib.import_module, "vllm.v1.engine.async_llm")
        from vllm.v1.engine.async_llm import AsyncLLM

        orphans.tag_own()
        engine_start.enter(engine_start.SPAWNING)
        gauges = Gauges()
        other_children = set(multiprocessing.active_children())
        os.environ[PARENT_VARIABLE] = str(os.getpid())
        try:
            with naming_holders(any_error=True):  # of its process the error says nothing
                llm = AsyncLLM.from_engine_args(engine_arguments(spec), stat_loggers=[lambda *_: gauges])
        finally:
            del os.environ[PARENT_VARIABLE]
        leave_out_token_texts(llm.output_processor)
        processes = [child for child in multiprocessing.active_children() if child not in other_children]
        engine = cls(spec, llm, processes, gauges, own_sockets)
        try:
            await engine._ask(llm.update_weight_version("0"))
            await engine.warm_up()
            if spec.adapter:
                await engine._start_adapter(Path(spec.adapter))
            pids = await engine._ask(llm.collective_rpc("rl_pid"))
            engine._parts = [psutil.Process(pid) for pid in pids if pid not in engine.core_pids()]
        except BaseException:  # no caller holds the engine yet
            engine.stop()
            raise
        return engine

    async def _start_adapter(self, folder: Path) -> None:
        adapter = read_adapter(folder)
        assert adapter is not None, f"{folder} holds no adapter"
        await self._call("rl_load_adapter", str(folder), asdict(adapter), label=f"the adapter of {folder}")
        self._adapter = adapter_request()
        await self.generate([0], TurnRequest(max_tokens=2, temperature=1.0, top_p=1.0, seed=0), "warm-up-adapter")

    async def warm_up(self) -> None:
        """The first request of each kind pays for what is built lazily: no episode should wait for that later."""
        await self.generate([0], TurnRequest(max_tokens=2, temperature=1.0, top_p=1.0, seed=0), "warm-up")
        await self.prompt_logprobs([0, 0])

    async def generate(self, prompt_ids: Sequence[int] | Ints, request: TurnRequest, request_id: str) -> Completion:
        """Sample one completion. Raises PromptTooLong and EngineFailed; cancelling it aborts the request.

        The token budget shrinks to what the context window leaves. After a stop string the text ends with it, and
        `token_ids` with the token that completed it. An end-of-sequence token is in `token_ids` and not in the text.
        Other special tokens are in the text where the request offers tools.
        """
        parameters = sampling_parameters(
            max_tokens=min(request.max_tokens, self._tokens_left(prompt_ids)),
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            stop=list(request.stop),  # `completion` puts the one that ended it back
            skip_special_tokens=request.offer is None,  # a call may begin with one: Mistral's [TOOL_CALLS]
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
        )
        output = await self._run(prompt_ids, parameters, request_id, PRIORITY if request.priority else OTHERS)
        return completion(output.outputs[0])

    def cut(self, request_id: str) -> None:
        """End a request of `generate` with the tokens that it has, as ABORT."""
        self._again.discard(request_id)
        cutting = asyncio.ensure_future(self.llm.abort(request_id))
        self._cutting.add(cutting)
        cutting.add_done_callback(self._cutting.discard)
        cutting.add_done_callback(lambda task: task.cancelled() or task.exception())  # of a dead one its callers hear

    async def prompt_logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probability of each token after the first ([L-1]) under the current weights, at temperature 1."""
        self._tokens_left(token_ids)
        parameters = sampling_parameters(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        output = await self._run(token_ids, parameters, f"logprobs-{id(parameters)}", PROBE)
        return [entry[token].logprob for entry, token in zip(output.prompt_logprobs[1:], token_ids[1:], strict=True)]

    async def load(self, published: WeightManifest) -> None:
        """Swap in a published version between two tokens of whatever is being generated.

        Raises WeightsRejected and EngineFailed. When it does, or is cancelled, the engine stays paused and serves
        nothing more, for it may hold half of a version; unless nothing was touched, for the version is not there.
        """
        async with self._control:
            self._require_alive()
            WeightFolder.check(published)
            keep = self.spec.running_kv == "keep"
            try:
                await self._ask(self.llm.pause_generation(mode="keep", clear_cache=not keep))
                self._loads += 1  # not the version: one that is delivered twice was wrong the first time
                switches = (published.adapter is None) != (self._adapter is None)
                await self._reload(published)
                if keep or switches:  # after the reload, so that what is sent again goes with what was loaded
                    await self._ask(self._restart(waiting_alone=not switches))
                await self._ask(self.llm.update_weight_version(str(published.version)))
                await self._ask(self.llm.resume_generation())
            except BaseException:  # a cancellation too: the worker may be anywhere in the reload
                self._fail(f"version {published.version} was not loaded whole")
                raise

    async def _restart(self, *, waiting_alone: bool) -> None:
        """Resend the requests without a token: under their old salt they would read prefixes of the old weights.

        Where an adapter comes or goes, all of them: a request keeps to the end what it was sent with.
        """
        states = self.llm.output_processor.request_states.values()
        request_ids = [state.external_req_id for state in states if state.is_prefilling or not waiting_alone]
        self._again.update(request_ids)
        await self.llm.abort(request_ids)

    async def _reload(self, published: WeightManifest) -> None:
        label, adapter = f"version {published.version}", published.adapter
        if adapter is not None and adapter.base != self._base:
            await self._reload_base(adapter, label)
        for loaded in await self._call("rl_load", asdict(published), label=label):
            if loaded != published.tensors:
                raise WeightsRejected(f"{label}: {loaded} tensors loaded, {published.tensors} were published")
        self._adapter = None if adapter is None else adapter_request()
        if adapter is None:
            self._base = None

    async def _reload_base(self, adapter: Adapter, label: str) -> None:
        """The weights under an adapter, where this engine has others."""
        await self._call("rl_load_base", adapter.base, label=f"{label}: the model under its adapter, {adapter.base}")
        self._base = adapter.base

    async def _call(self, method: str, *arguments: Any, label: str) -> list[int]:
        """Have the workers load something. Returns how many tensors each has read; raises WeightsRejected."""
        try:
            answers = await self._ask(self.llm.collective_rpc(method, args=arguments))
        except EngineFailed:
            raise
        except Exception as error:  # fault boundary: a worker's exception arrives as text
            raise WeightsRejected(f"{label}: the reload failed: {error}") from error
        for _, missing in answers:
            if missing:
                names = ", ".join(missing[:5])
                raise WeightsRejected(
                    f"{label}: {len(missing)} layers not refreshed whole ({names}); send tied heads too"
                )
        return [loaded for loaded, _ in answers]

    async def sleep(self) -> None:
        """Leave the device to others: the weights go to host memory, the KV cache is dropped, and what is being sampled
        stands still. On a CPU, where vLLM moves nothing, only that. Raises EngineFailed, and serves nothing more then.
        """
        await self._change_sleep(True, lambda: self.llm.sleep(level=1, mode="keep"))

    async def wake(self) -> None:
        """Go on where `sleep` stopped: keys and values of what stood still are computed again. Fails as it does."""
        await self._change_sleep(False, self.llm.wake_up)

    async def _change_sleep(self, asleep: bool, change: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        async with self._control:
            self._require_alive()
            if self.asleep is asleep:
                return
            try:
                await self._ask(change())
            except BaseException:  # a cancellation too: its memory may be anywhere
                self._fail("it was left half asleep")
                raise
            self.asleep = asleep

    def stats(self) -> EngineStats:
        if self.llm.output_processor.get_num_unfinished_requests() == 0:
            return IDLE  # an engine that ran dry reports no more: its last word is old
        return self.gauges.latest

    def core_pids(self) -> list[int]:
        """Processes that vLLM started for this engine."""
        return [process.pid for process in [*self._processes, *self._parts]]

    def stop(self) -> None:
        """End the EngineCore for certain and fail what is in flight. Blocks for some seconds; may be called twice."""
        grace_s = STOP_GRACE_S if self.failure is None else 0.0  # a broken one does not hear the signal
        self._fail("it was stopped")
        with suppress(psutil.NoSuchProcess):  # vLLM looks for the children of one that may just have ended
            self.llm.shutdown(timeout=grace_s)
        for process in self._processes:
            self._on_core_end(process)
            process.kill()
            process.join(KILL_DEADLINE_S)
            if process.is_alive():  # the kernel holds it, in a driver's call perhaps: waiting on would hold us too
                log.warning("the EngineCore %d is there %g s after SIGKILL", process.pid, KILL_DEADLINE_S)
        psutil.wait_procs(self._parts, KILL_DEADLINE_S)  # the kernel ends them with the EngineCore
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        if self.ending is None:
            self.ending = _disconnect(self.llm.engine_core.resources)

    def _tokens_left(self, token_ids: Sequence[int] | Ints) -> int:
        room = self.spec.max_model_len - len(token_ids)
        if room < 1:
            raise PromptTooLong(len(token_ids), self.spec.max_model_len)
        return room

    def _require_alive(self) -> None:
        if self.failure is not None:
            raise EngineFailed(self.failure)

    def _fail(self, reason: str) -> None:
        """Mark the engine unusable and wake its callers: frozen requests would wait for ever."""
        if self.failure is None:
            self.failure = reason
            self.llm.output_processor.propagate_error(EngineFailed(reason))

    def _on_core_end(self, process: Any) -> None:
        """Called by the loop when a process of the engine has ended."""
        self._death.get_loop().remove_reader(process.sentinel)
        self._fail("the EngineCore died")
        if not self._death.done():
            self._death.set_result(None)

    async def _ask(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Await the EngineCore's answer. Raises EngineFailed when it dies before: vLLM would wait on."""
        answer = asyncio.ensure_future(call)
        # It is not awaited when the death comes first: without this the loop would complain of an error not retrieved.
        answer.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            with self._translate_errors():
                await asyncio.wait({answer, self._death}, return_when=asyncio.FIRST_COMPLETED)
                self._require_alive()
                return answer.result()
        finally:
            answer.cancel()

    async def _run(self, token_ids: Sequence[int] | Ints, parameters: Any, request_id: str, priority: int) -> Any:
        output = await self._request(token_ids, parameters, request_id, priority)
        while request_id in self._again:
            self._again.remove(request_id)
            output = await self._request(token_ids, parameters, request_id, priority)
        return output

    async def _request(self, token_ids: Sequence[int] | Ints, parameters: Any, request_id: str, priority: int) -> Any:
        from vllm.inputs import tokens_input

        self._require_alive()
        last = None
        # The salt makes only prefixes of the same weights equal: a new request never reads what older ones left.
        prompt = tokens_input(np.asarray(token_ids, np.int32).tolist(), cache_salt=str(self._loads))
        with self._translate_errors():
            stream = self.llm.generate(prompt, parameters, request_id, lora_request=self._adapter, priority=priority)
            async for output in stream:
                last = output
        if last is None:
            raise EngineFailed(self.failure or "a request ended without an output")
        return last

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Fault boundary: vLLM's ways to say that its process is broken become EngineFailed."""
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        try:
            yield
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineFailed(self.failure or f"the EngineCore broke: {error.__cause__ or error}") from error


def adapter_request() -> Any:
    """What a request says to be answered with the adapter. Its folder is never read: `rl_adapt` loaded the numbers."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name="policy", lora_int_id=ADAPTER, lora_path="/published/by/the/learner")


def _disconnect(resources: Any) -> threading.Thread:
    """Close the sockets of vLLM's client and end their ZeroMQ context: left to the garbage collector, a context with an
    open socket would hang whatever thread that runs on. vLLM ends no context, and after an error in its shutdown, or
    when its own thread began that at the death of a process, the sockets may be open yet."""
    with suppress(AttributeError):  # of its second call, where the loop is closed
        resources()
    ending = threading.Thread(target=resources.ctx.term, name="zmq-term", daemon=True)
    ending.start()  # should it hang, then this thread alone
    return ending


def leave_out_token_texts(processor: Any) -> None:
    """vLLM looks up each token's own text with its log-probability. That is never read, and it takes longer than the
    text of the completion. `detokenize=False` would leave out both, and stop strings with them."""
    add_request = processor.add_request

    def add(request: Any, *args: Any, **kwargs: Any) -> None:
        add_request(request, *args, **kwargs)
        processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    processor.add_request = add


def sampling_parameters(**fields: Any) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **fields)
