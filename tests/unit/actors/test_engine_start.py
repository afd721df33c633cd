"""What an engine does before it serves, as far as it needs no vLLM."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from actors import specs
from actors.engine import Engine


def test_both_kinds_of_request_are_made_before_anybody_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    async def generate(self: Engine, prompt: Any, request: Any, name: str) -> None:
        made.append(name)

    async def prompt_logprobs(self: Engine, token_ids: Any) -> None:
        made.append(f"logprobs of {len(token_ids)}")

    monkeypatch.setattr(Engine, "generate", generate)
    monkeypatch.setattr(Engine, "prompt_logprobs", prompt_logprobs)
    asyncio.run(Engine.warm_up(object.__new__(Engine)))
    assert made == ["warm-up", "logprobs of 2"]


def test_two_nodes_that_share_a_home_compile_into_two_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = []
    for node in ("a", "b"):
        monkeypatch.setattr(specs.platform, "node", lambda node=node: node)
        folders.append(specs.compile_cache())
    assert len(set(folders)) == 2 and all(folder.startswith(f"{tmp_path}/vllm/") for folder in folders)
