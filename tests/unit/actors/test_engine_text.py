"""The text of what was sampled, by vLLM's own detokenizer: a special token may begin a call, an end token is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from actors.engine import Engine
from actors.renderer import ChatRenderer
from actors.specs import Gauges
from rlsys.rollout import TurnRequest
from rlsys.types import Completion, Message, ToolCall, ToolOffer, TurnStop
from tests.makers.made import engine_spec
from tests.makers.played import tokenizer_in
from tests.unit.actors.test_renderer_tools import MISTRAL, OFFER

detokenizer = pytest.importorskip("vllm.v1.engine.detokenizer")
CALL = '[TOOL_CALLS][{"name": "search", "arguments": {"query": "a lamp"}}]'


class LLM:
    """Samples these tokens; their text is vLLM's matter."""

    def __init__(self, tokenizer: Any, sampled: list[int]) -> None:
        self._tokenizer, self._sampled = tokenizer, sampled

    async def generate(self, prompt: Any, parameters: Any, name: str, **_: Any) -> AsyncIterator[Any]:
        request = SimpleNamespace(
            request_id=name, sampling_params=parameters, prompt_token_ids=prompt["prompt_token_ids"]
        )
        text = detokenizer.IncrementalDetokenizer.from_new_request(self._tokenizer, request)
        stop, finish = None, "length"
        for token in self._sampled:
            ended = token == self._tokenizer.eos_token_id
            stop = text.update([token], ended)
            if ended or stop:
                finish = "stop"
                break
        count = len(text.output_token_ids)
        yield SimpleNamespace(
            outputs=[
                SimpleNamespace(
                    token_ids=text.output_token_ids,
                    text=text.get_next_output_text(finished=True, delta=False),
                    logprobs=SimpleNamespace(logprobs=[-1.0] * count, start_indices=range(count)),
                    weight_versions=[SimpleNamespace(version="1", start=0, end=count)],
                    finish_reason=finish,
                    stop_reason=stop,
                )
            ]
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in the way of Mistral, in whose tokenizer the mark of a call is a special token."""
    folder = tokenizer_in(tmp_path_factory.mktemp("mistral"), [CALL, "<answer>5</answer>"] * 20, ("<answer>",))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["[TOOL_CALLS]"]})
    tokenizer.chat_template = MISTRAL
    tokenizer.save_pretrained(folder)
    return folder


def generate(renderer: ChatRenderer, sampled: list[int], offer: ToolOffer | None, *stop: str) -> Completion:
    async def whole() -> Completion:
        engine = Engine(engine_spec(max_model_len=512), LLM(renderer.tokenizer, sampled), [], Gauges())
        request = TurnRequest(max_tokens=200, temperature=1.0, top_p=1.0, seed=0, stop=stop, offer=offer)
        prompt = renderer.prompt_ids([Message(role="user", content="What does a lamp cost?")], offer)
        return await engine.generate(prompt, request, "r")

    return asyncio.run(whole())


def test_a_call_that_begins_with_a_special_token_is_read(folder: Path) -> None:
    renderer = ChatRenderer(str(folder))
    mark = renderer.tokenizer.convert_tokens_to_ids("[TOOL_CALLS]")
    sampled = [*renderer.encode(CALL), renderer.tokenizer.eos_token_id]
    assert mark in renderer.tokenizer.all_special_ids and sampled[0] == mark
    completion = generate(renderer, sampled, OFFER)
    assert (completion.text, completion.stop, completion.token_ids.tolist()) == (CALL, TurnStop.EOS, sampled)
    (call,) = renderer.read_calls(completion.text, OFFER)
    assert call == ToolCall(name="search", arguments={"query": "a lamp"})
    assert generate(renderer, sampled, None).text == CALL.removeprefix("[TOOL_CALLS]")  # where no call is looked for


@pytest.mark.parametrize("offer", [None, OFFER], ids=["no tools", "tools"])
def test_a_text_ends_with_its_stop_string_and_without_its_end_token(folder: Path, offer: ToolOffer | None) -> None:
    renderer = ChatRenderer(str(folder))
    answer = renderer.encode("<answer>5</answer>")
    ended = generate(renderer, [*answer, renderer.tokenizer.eos_token_id], offer, "</no>")
    assert (ended.text, ended.stop) == ("<answer>5</answer>", TurnStop.EOS)
    assert ended.token_ids.tolist() == [*answer, renderer.tokenizer.eos_token_id]
    stopped = generate(renderer, [*answer, *answer], offer, "</no>", "</answer>")
    assert (stopped.text, stopped.stop) == ("<answer>5</answer>", TurnStop.STOP)
    assert stopped.token_ids.tolist() == list(answer)
    cut = generate(renderer, list(answer[:-1]), offer, "</answer>")
    assert (cut.text, cut.stop) == (renderer.decode(answer[:-1]), TurnStop.LENGTH)
