"""Adapters in the real engine: loaded as adapters, in place, and never left out without a word."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.engine import Engine
from actors.engine_worker import ReloadExtension
from actors.one_adapter import add_adapter
from learners import lora
from rlsys.adapters import Adapter
from rlsys.config.model import LoraConfig
from rlsys.system.weight_folder import WeightFolder, WeightManifest, WeightsRejected
from rlsys.types import Completion
from tests.e2e.test_engine_contract import PROMPT, Loop, close, gap, request, sampled_gap, spec
from tests.e2e.test_engine_contract import loop as loop
from tests.e2e.tiny_models import logprobs, publish, save_tiny, tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LORA = LoraConfig(rank=5, alpha=12.0)  # no rank that vLLM has buffers of


class NoAdapter(ReloadExtension):
    """Confirms every adapter and leaves it out: one of zeros adds nothing."""

    def rl_adapt(self, adapter: Adapter, tensors: Any) -> tuple[int, list[str]]:
        return super().rl_adapt(adapter, ((name, torch.zeros_like(tensor)) for name, tensor in tensors))


def adapted(base: Any, folder: str, seed: int, config: LoraConfig = LORA) -> tuple[Any, Adapter]:
    """The model with an adapter that moves its log-probabilities by whole nats."""
    model, adapter = deepcopy(base), Adapter.on(folder, config)
    lora.inject(model, adapter, seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in lora.parameters(model).items():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    return model.eval(), adapter


def send(root: Path, model: Any, adapter: Adapter, version: int) -> WeightManifest:
    tensors = {name: parameter.detach().clone() for name, parameter in lora.parameters(model).items()}
    names = list(tensors)
    parts = [{name: tensors[name] for name in names[index::2]} for index in range(2)]
    published = WeightFolder(root).send(version, [partial(dict, part) for part in parts], 0, 1)
    return WeightManifest(**{name: getattr(published, name) for name in published.__slots__} | {"adapter": adapter})


class Adapting:
    """An engine that takes adapters, and the folder of the model that they stand on."""

    def __init__(self, loop: Loop, root: Path) -> None:
        self.loop, self.root = loop, root
        self.folder = str(save_tiny(root / "model", "qwen3_tied", seed=0))
        self.base = tiny_model("qwen3_tied", seed=0)
        self.engine: Engine = loop.run(Engine.start(spec(Path(self.folder), lora=LORA)))
        self.versions, self.names = itertools.count(1), itertools.count()

    async def generate(self, **changes: Any) -> Completion:
        return await self.engine.generate(PROMPT, request(**changes), f"r{next(self.names)}")

    async def load(self, seed: int) -> Any:
        model, adapter = adapted(self.base, self.folder, seed)
        await self.engine.load(send(self.root / "versions", model, adapter, next(self.versions)))
        return model

    def run(self, work: Any) -> Any:
        return self.loop.run(work)

    async def while_running(self, requests: int, seed: int) -> tuple[Any, list[Completion]]:
        """An adapter is loaded while so many long requests run: the model with it, and what became of them."""
        running = [asyncio.ensure_future(self.generate(seed=index, max_tokens=200)) for index in range(requests)]
        while self.engine.stats().running < requests:
            await asyncio.sleep(0.01)
        return await self.load(seed), await asyncio.gather(*running)


@pytest.fixture(scope="module")
def served(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapting]:
    served = Adapting(loop, tmp_path_factory.mktemp("lora"))
    yield served

    async def stop() -> None:
        served.engine.stop()

    loop.run(stop())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_products_with_one_adapter_are_those_of_vllm(dtype: torch.dtype) -> None:
    """Of three layers next to each other; and a request without an adapter gets none of it."""
    from vllm.lora.layers import LoRAMapping
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    torch.manual_seed(0)
    tokens, width, rank, widths = 7, 24, 5, (16, 8, 8)
    wrapper = PunicaWrapperCPU(max_num_batched_tokens=32, max_batches=8, device="cpu")
    of = [1] * tokens  # the number of each token's adapter
    wrapper.update_metadata(LoRAMapping(tuple(of), tuple(of), is_prefill=True), [1], 1, 32)
    inputs, base = torch.randn(tokens, width, dtype=dtype), torch.randn(tokens, sum(widths), dtype=dtype)
    down = [torch.randn(1, 1, rank, width, dtype=dtype) for _ in widths]
    up = [torch.randn(1, 1, size, rank, dtype=dtype) for size in widths]
    theirs, ours = base.clone(), base.clone()
    PunicaWrapperCPU.add_lora_linear(wrapper, theirs, inputs, down, up, 0.5, widths)
    add_adapter(wrapper, ours, inputs, down, up, 0.5, widths)
    torch.testing.assert_close(ours, theirs)
    assert not torch.equal(ours, base)

    of[2] = 0
    wrapper.update_metadata(LoRAMapping(tuple(of), tuple(of), is_prefill=True), [1], 1, 32)
    mixed = base.clone()
    add_adapter(wrapper, mixed, inputs, down, up, 0.5, widths)
    assert torch.equal(mixed[2], base[2]) and torch.equal(mixed[3], ours[3])

    with pytest.raises(ValueError, match="2 adapters"):
        add_adapter(wrapper, mixed, inputs, [weight.repeat(2, 1, 1, 1) for weight in down], up, 0.5, widths)


def test_the_engine_says_what_peft_says_on_the_base_on_an_adapter_and_on_the_next_in_its_place(served) -> None:
    assert sampled_gap(served.base, served.run(served.generate())) < close()
    for seed in (1, 2):
        model = served.run(served.load(seed))
        completion = served.run(served.generate())
        assert sampled_gap(model, completion) < close()
        assert sampled_gap(served.base, completion) > 0.5
        ids = PROMPT + list(completion.token_ids)
        assert gap(served.run(served.engine.prompt_logprobs(ids)), logprobs(model, ids)) < close()


def test_weights_of_the_whole_model_and_then_an_adapter_again(served) -> None:
    """As a run has it whose first stage trains all weights. vLLM's loaders do not know the names of wrapped layers."""
    served.run(served.load(1))
    new_model = tiny_model("qwen3_tied", seed=7)
    served.run(served.engine.load(publish(served.root / "versions", new_model, next(served.versions))))
    assert sampled_gap(new_model, served.run(served.generate())) < close()
    model = served.run(served.load(2))  # the base comes from its folder
    assert sampled_gap(model, served.run(served.generate())) < close()


def test_an_adapter_that_changes_under_requests_in_flight_breaks_none_of_them(served) -> None:
    """TRL 7017: an adapter was unloaded while requests of it were running."""
    served.run(served.load(1))
    model, answers = served.run(served.while_running(6, 2))
    newest = max(answer.spans[-1].version for answer in answers)
    crossed = [answer for answer in answers if answer.spans[0].version < newest == answer.spans[-1].version]
    assert len(answers) == 6 and all(len(answer.token_ids) == 200 for answer in answers)
    assert crossed, "none was running while the adapter changed"
    for completion in crossed:  # what was sampled after the change is of the new adapter, on a recomputed cache
        start, ids = completion.spans[-1].start, PROMPT + list(completion.token_ids)
        assert gap(completion.logprobs[start:], logprobs(model, ids)[len(PROMPT) - 1 + start :]) < close()


def test_no_request_continues_without_the_adapter_that_has_come(served) -> None:
    """verl 5220: rollouts ran without the adapter, and nothing said so. A request keeps what it was sent with, so those
    that run when an adapter comes are sent again."""
    manifest = publish(served.root / "versions", served.base, next(served.versions))
    served.run(served.engine.load(manifest))
    model, answers = served.run(served.while_running(4, 3))
    later = [answer for answer in answers if answer.spans[-1].version > manifest.version]
    assert later
    for completion in later:
        begin = completion.spans[-1].start  # what came before the adapter was sampled by the base
        expected = logprobs(model, PROMPT + list(completion.token_ids))[len(PROMPT) - 1 :]
        assert gap(completion.logprobs[begin:], expected[begin:]) < close()


def test_tensors_without_a_place_in_the_engine_are_refused(loop, tmp_path) -> None:
    """vLLM leaves them out without a word. The engine serves nothing afterwards: it is half of a version."""
    folder = str(save_tiny(tmp_path / "model", "qwen3", seed=0))
    narrow = LoraConfig(rank=5, alpha=12.0, targets=("q_proj", "v_proj"))
    engine: Engine = loop.run(Engine.start(spec(Path(folder), lora=narrow)))
    model, adapter = adapted(tiny_model("qwen3", seed=0), folder, 1)

    async def load() -> None:
        try:
            await engine.load(send(tmp_path, model, adapter, 1))
        finally:
            engine.stop()

    with pytest.raises(WeightsRejected, match="no adapter there"):
        loop.run(load())


def test_an_engine_that_confirms_an_adapter_and_loads_none_is_as_far_from_the_learner_as_its_base(
    loop, tmp_path
) -> None:
    """The gap of every delivery, and the canary before the first, compare exactly these numbers."""
    folder = str(save_tiny(tmp_path / "model", "qwen3", seed=0))
    extension = f"{NoAdapter.__module__}.{NoAdapter.__qualname__}"
    engine: Engine = loop.run(Engine.start(spec(Path(folder), lora=LORA, extension=extension)))
    base = tiny_model("qwen3", seed=0)
    model, adapter = adapted(base, folder, 1)

    async def engine_logprobs() -> list[float]:
        try:
            await engine.load(send(tmp_path, model, adapter, 1))
            return await engine.prompt_logprobs(PROMPT)
        finally:
            engine.stop()

    served = loop.run(engine_logprobs())
    assert gap(served, logprobs(base, PROMPT)) < close()
    assert gap(served, logprobs(model, PROMPT)) > 0.5
