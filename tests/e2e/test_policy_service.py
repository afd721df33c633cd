"""`rlsys serve policy`: a trained model behind OpenAI's two APIs, with a real engine and the real SDK."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from openai import OpenAI

from actors.renderer import ChatRenderer
from rlsys.types import Message
from tests.e2e.tiny_models import save_tiny
from tests.paths import ROOT

FIRST = {"role": "user", "content": "what is 2 + 3?"}


def serve(*arguments: str, log: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "launch", "serve", "policy", *arguments, "--port", "0", "--kv-cache-mb", "64"]
    command += ["--token-env", "POLICY_TOKEN"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"POLICY_TOKEN": "t0ken"}, stdout=subprocess.PIPE, stderr=errors,
            text=True,
        )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if (match := re.search(r"on (http://[0-9.]+:[0-9]+/v1)", line)) is not None:
            return process, match.group(1)
    raise AssertionError(log.read_text()[-2000:])


def test_a_conversation_goes_on_behind_what_was_sampled(tmp_path: Path) -> None:
    folder = str(save_tiny(tmp_path / "model", "qwen3", 1))
    process, url = serve(folder, log=tmp_path / "log")
    try:
        client: Any = OpenAI(base_url=url, api_key="t0ken", max_retries=0)
        ask = client.chat.completions.create
        assert [model.id for model in client.models.list()] == [folder]
        with pytest.raises(openai.AuthenticationError):
            OpenAI(base_url=url, api_key="other", max_retries=0).models.list()
        options = {"model": "any", "temperature": 0, "max_tokens": 5, "logprobs": True}
        first = ask(messages=[FIRST], **options)
        again = ask(messages=[FIRST], n=2, **options)
        text = first.choices[0].message.content
        assert [choice.message.content for choice in again.choices] == [text, text]
        assert first.choices[0].finish_reason == "length" and first.usage.completion_tokens == 5
        assert len(first.choices[0].logprobs.content) == 5
        renderer = ChatRenderer(folder)
        prompt = renderer.prompt_ids((Message(role="user", content=FIRST["content"]),))
        assert first.usage.prompt_tokens == len(prompt)
        # What follows is tokenised alone; the end of the turn, which was cut, belongs to it.
        second = ask(messages=[FIRST, first.choices[0].message, {"role": "user", "content": "and?"}], **options)
        follows = renderer.prompt_ids((Message(role="user", content="and?"),))
        assert second.usage.prompt_tokens - len(prompt) - 5 in range(len(follows) - 2, len(follows) + 3)
        streamed = "".join(
            chunk.choices[0].delta.content or "" for chunk in ask(messages=[FIRST], stream=True, **options)
        )
        assert streamed == text
        cut = {"model": "any", "temperature": 0, "max_output_tokens": 5}
        response = client.responses.create(input=[FIRST], **cut)
        assert (response.output_text, response.status) == (text, "incomplete")
        follow = client.responses.create(input=[FIRST, *response.output, {"role": "user", "content": "and?"}], **cut)
        assert follow.usage.input_tokens == second.usage.prompt_tokens
        assert follow.output_text == second.choices[0].message.content
        for wrong, name in (({"top_k": 5}, "top_k"), ({"temperature": 3}, "temperature"), ({"top_p": 0}, "top_p")):
            with pytest.raises(openai.BadRequestError, match=name):
                client.chat.completions.create(model="any", messages=[FIRST], extra_body=wrong)
        with pytest.raises(openai.BadRequestError, match="tokens"):
            ask(messages=[{"role": "user", "content": "what " * 5000}], model="any")
        for child in psutil.Process(process.pid).children():
            if "EngineCore" in " ".join(child.cmdline()):
                child.kill()
        with pytest.raises(openai.InternalServerError, match="engine"):
            ask(messages=[FIRST], **options)
        assert httpx.get(url.removesuffix("/v1") + "/health").status_code == 503
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode in (143, -signal.SIGTERM, -signal.SIGKILL)


@pytest.mark.parametrize("model, says", [("nowhere/at/all", "no such folder"), ("tests", "neither a run directory")])
def test_a_model_that_cannot_be_served_is_one_line(model: str, says: str) -> None:
    command = [sys.executable, "-m", "launch", "serve", "policy", model]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
