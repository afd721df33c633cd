"""The service of a judge: what it is made of, and that it ends with its engine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import actors.alone
from actors.judge import JudgeServiceConfig, engine_spec, make_service
from envs.services.judge.config import JudgeConfig
from rlsys.config.engine import EngineConfig
from tests.refused import refused

ENGINE = EngineConfig(max_model_len=640, max_num_seqs=6, kv_cache_mb=64)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the service was made of."""
    parts: dict[str, Any] = {"closed": 0}

    class Judge:
        def __init__(self, chat: Any, config: JudgeConfig) -> None:
            parts.update(chat=chat, config=config)

        async def close(self) -> None:
            parts["closed"] += 1

    class Chat:
        @staticmethod
        async def start(spec: Any) -> Any:
            parts["spec"] = spec
            return "engine"

    monkeypatch.setattr(actors.alone, "longest_context", lambda model: None)  # else the hub is asked for "m"
    monkeypatch.setattr(actors.judge, "Judge", Judge)
    monkeypatch.setattr(actors.judge, "EngineChat", Chat)
    monkeypatch.setattr(actors.judge, "Endpoint", lambda *args: args)
    monkeypatch.setattr(actors.judge, "make_judge_app", lambda core, server, token: ("app", token))
    monkeypatch.setattr(
        actors.judge, "HttpService", lambda name, opened, **how: SimpleNamespace(name=name, opened=opened, **how)
    )
    return parts


def opened(config: JudgeServiceConfig) -> Any:
    service: Any = make_service(config, host="127.0.0.1", port=5, token="t")

    async def story() -> Any:
        async with service.opened() as app:
            return app

    assert asyncio.run(story()) == ("app", "t")
    return service


def test_one_with_a_model_has_an_engine_and_asks_it_no_more_than_it_can_take(made: dict[str, Any]) -> None:
    judge = JudgeConfig(model="m", max_concurrent=99, outage_s=50.0)
    service = opened(JudgeServiceConfig(judge=judge, engine=ENGINE, device="cpu"))
    assert (made["chat"], made["config"].max_concurrent, made["closed"]) == ("engine", 6, 1)
    assert (made["spec"].model_path, made["spec"].max_num_seqs) == ("m", 6)
    assert (service.name, service.host, service.port, service.stop_s) == ("judge", "127.0.0.1", 5, 30.0)
    assert service.start_s >= 60 and service.arrive_s == JudgeServiceConfig().server.arrive_s


def test_one_with_an_address_has_none(made: dict[str, Any]) -> None:
    judge = JudgeConfig(endpoint="http://there", model="m", max_concurrent=99, outage_s=5.0)
    service = opened(JudgeServiceConfig(judge=judge, engine=ENGINE))
    assert made["chat"][:2] == ("http://there", "m") and made["config"].max_concurrent == 99
    assert "spec" not in made and service.stop_s == 5.0


def test_one_without_a_model_is_refused() -> None:
    with refused("judge.model", expected="a model folder or hub name"):
        make_service(JudgeServiceConfig(), host="127.0.0.1", port=0, token=None)


@pytest.mark.parametrize(("given", "threads"), [({}, 1), ({"threads": 3}, 3)])
def test_its_engine_has_the_threads_and_devices_that_are_asked_for(
    made: dict[str, Any], given: dict[str, Any], threads: int
) -> None:
    divided = EngineConfig(max_model_len=640, max_num_seqs=6, kv_cache_mb=64, tensor_parallel=2)
    spec = engine_spec(JudgeServiceConfig(judge=JudgeConfig(model="m"), engine=divided, device="cpu", **given), "m")
    assert (spec.threads, spec.tensor_parallel, spec.seed) == (threads, 2, 0)
