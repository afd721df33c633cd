"""Tool services on a real Ray cluster: one that dies or hangs comes back, at its address where that can be had."""

import asyncio
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import ray

from actors.services import Services, ServiceSpec, Tell, start_world
from rlsys.errors import BadInput, RunFailed
from rlsys.system import supervisor
from tests.fakes.served import EchoConfig


@asynccontextmanager
async def started(*envs: EchoConfig, host: str | None = None, tell: Tell | None = None) -> AsyncIterator[Services]:
    served = [env for env in envs if env.server]
    specs = [ServiceSpec(name=env.server, config=env, start=start_world, threads=env.threads) for env in served]
    services = Services(specs, env_vars={}, start_timeout_s=60, ping_timeout_s=2, host=host)
    try:
        await services.start(tell=tell)
        yield services
    finally:
        await services.stop()


def ask(services: Services, env: EchoConfig, path: str = "/", token: str | None = None) -> str:
    request = urllib.request.Request(services.addresses[env.server] + path)
    request.add_header("Authorization", f"Bearer {services.token if token is None else token}")
    # Short, for it is asked again: who has taken the address of a service that is gone never answers.
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


async def after_restart(services: Services, env: EchoConfig, restarts: int) -> str:
    async with asyncio.timeout(120):
        while True:
            await asyncio.sleep(0.2)
            try:
                if services.restarts[env.server] == restarts:
                    return await asyncio.to_thread(ask, services, env)
            except OSError:
                continue


def test_a_service_that_dies_or_hangs_comes_back_at_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.5)
    env = EchoConfig()

    async def story() -> None:
        async with started(env, EchoConfig(), EchoConfig(server="")) as services:
            assert len(services.servers) == 1  # the same server for both, none for the third
            url, first = services.addresses["echo"], int(ask(services, env))
            assert url.startswith("http://127.0.0.1:")  # the cluster has one node
            os.kill(first, signal.SIGKILL)
            second = int(await after_restart(services, env, 1))
            assert second != first and services.addresses == {"echo": url}
            ask(services, env, "/hang")
            third = int(await after_restart(services, env, 2))
            assert third != second and services.addresses == {"echo": url}
            assert services.restarts == {"echo": 2}

    asyncio.run(story())


def test_a_service_has_the_threads_that_it_reserves() -> None:
    async def story() -> None:
        two, as_an_engine = EchoConfig(server="two", threads=2), EchoConfig(server="as an engine", threads=None)
        all_cpus = ray.cluster_resources()["CPU"]
        async with started(two, as_an_engine) as services:
            assert [ask(services, env, "/threads") for env in (two, as_an_engine)] == ["2", "1"]
            async with asyncio.timeout(40):
                while ray.available_resources().get("CPU", 0) != all_cpus - 3:  # Ray reports it a moment later
                    await asyncio.sleep(0.1)

    asyncio.run(story())


def test_a_service_whose_address_is_taken_comes_back_at_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.5)
    env, announced = EchoConfig(), []

    async def tell(addresses: Mapping[str, str]) -> None:
        announced.append(dict(addresses))

    async def story() -> None:
        node = ray.util.get_node_ip_address()
        async with started(env, host="0.0.0.0", tell=tell) as services:
            place = urlsplit(services.addresses["echo"])
            assert place.hostname == node and announced == [services.addresses]
            os.kill(int(ask(services, env)), signal.SIGKILL)
            with taken("0.0.0.0", place.port or 0):
                await after_restart(services, env, 1)
                moved = urlsplit(services.addresses["echo"])
            assert (moved.hostname, announced[1:]) == (node, [services.addresses]) and moved.port != place.port

    asyncio.run(story())


@contextmanager
def taken(host: str, port: int) -> Iterator[None]:
    """Another program has the port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind((host, port))
                break
            except OSError:  # its process is not gone yet
                time.sleep(0.001)
        listener.listen()
        yield


def test_an_address_that_the_node_does_not_have_is_bad_input() -> None:
    async def story() -> None:
        async with started(EchoConfig(), host="192.0.2.1"):
            pass

    with pytest.raises(BadInput, match=r"echo could not start: cluster.service_host: 192.0.2.1 on node "):
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
