"""Tool services on a real Ray cluster: one that dies or hangs comes back at its address."""

import asyncio
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import ray

import actors.services
from actors.services import Services, ServiceSpec, start_world
from rlsys.errors import RunFailed
from tests.served import EchoConfig


@asynccontextmanager
async def started(*envs: EchoConfig) -> AsyncIterator[Services]:
    specs = [ServiceSpec(name=env.server, config=env, start=start_world) for env in envs if env.server]
    services = Services(specs, env_vars={}, start_timeout_s=60, ping_timeout_s=2)
    try:
        await services.start()
        yield services
    finally:
        await services.stop()


def ask(services: Services, env: EchoConfig, path: str = "/", token: str | None = None) -> str:
    request = urllib.request.Request(services.url(env) + path)
    request.add_header("Authorization", f"Bearer {services.token if token is None else token}")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


async def after_restart(services: Services, env: EchoConfig, restarts: int) -> str:
    async with asyncio.timeout(40):
        while True:
            await asyncio.sleep(0.2)
            try:
                if services.restarts[env.server] == restarts:
                    return await asyncio.to_thread(ask, services, env)
            except OSError:
                continue


def test_a_service_that_dies_or_hangs_comes_back_at_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors.services, "PING_EVERY_S", 0.5)
    env = EchoConfig()

    async def story() -> None:
        async with started(env, EchoConfig(), EchoConfig(server="")) as services:
            assert len(services.needs) == 1  # the same server for both, none for the third
            assert services.url(EchoConfig(server="")) == ""
            url, first = services.url(env), int(ask(services, env))
            os.kill(first, signal.SIGKILL)
            second = int(await after_restart(services, env, 1))
            assert second != first and services.url(env) == url
            ask(services, env, "/hang")
            third = int(await after_restart(services, env, 2))
            assert third != second and services.url(env) == url
            assert services.restarts == {"echo": 2}

    asyncio.run(story())


def test_a_service_answers_its_token_only_and_does_not_show_it() -> None:
    env = EchoConfig()

    async def story() -> None:
        async with started(env) as services:
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask(services, env, token="guess")
            assert services.token not in repr(services)
            session = Path(ray._private.worker._global_node.get_session_dir_path())
            logs = [path.read_bytes() for path in (session / "logs").rglob("*") if path.is_file()]
            assert logs and not any(services.token.encode() in log for log in logs)

    asyncio.run(story())


def test_a_service_that_cannot_start_says_why() -> None:
    async def story() -> None:
        async with started(EchoConfig(server="broken")):
            pass

    with pytest.raises(RunFailed, match="broken could not start: OSError: no such corpus"):
        asyncio.run(story())
