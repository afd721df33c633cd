"""Tool services: the servers that environments call, each in a Ray actor that is watched and brought back.

A service that died or hangs is found by a ping with a deadline, killed, and started again: at the same address where
that is still to be had, and else every worker gets the new one. Its callers wait, retry and break their circuit
meanwhile (`envs.services.guard`): an outage costs the calls that it outlasts a typed failure each, never a step.
"""

from __future__ import annotations

import asyncio
import logging
import os
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import RayError

from actors.addresses import LOOPBACK, free_port, interfaces, only_node, resolve_listen_address
from actors.placement import ResourceRequest, actor_name
from actors.specs import openmp
from envs import new_player
from envs.base import Service
from rlsys.errors import BadInput, RunFailed
from rlsys.system import stack_signal
from rlsys.system.calls import FIXED, SERVICE_TOKEN, WORKER_START, ask_to_stop, call, reason
from rlsys.system.device import DEVICES, gpu_env
from rlsys.system.parts import of_part
from rlsys.system.supervisor import Supervised, keep_pinging

log = logging.getLogger("rlsys.services")

HEALTH_DEADLINE_S = 10.0  # for one word from an event loop that blocks nowhere for long
Tell = Callable[[Mapping[str, str]], Awaitable[None]]  # addresses by the name of the service
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the machine's proxy is for the web


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A server that a run keeps alive. `launch.driver.run.wire` makes one of each world and judge that asks for it."""

    name: str  # those with the same name are one server
    config: Any  # of what asks for it
    start: Callable[..., Service]  # (config, host=.., port=.., token=..), in its own process, until it answers
    check: Callable[[Any], None] = lambda config: None  # on its node: raises BadInput where it could not start
    gpus: int = 0  # that it takes where there are any
    threads: int | None = 1  # of its process, and CPUs that it reserves; None: as many as an engine has
    models: tuple[str, ...] = ()  # folders or hub names of what it loads
    lower: str = "gpus or threads of env.retriever or reward.judge"  # keys, where a cluster has less

    def cpus(self, *, on_gpus: bool) -> int:
        return self.threads or DEVICES["cuda" if on_gpus else "cpu"].engine_threads


def check_world(config: Any) -> None:
    new_player(config).check_service()


def start_world(config: Any, *, host: str, port: int, token: str) -> Service:
    """The server of an environment's tool."""
    return new_player(config).start_service(host=host, port=port, token=token)


class ToolService:
    """Plain class; `Services` makes it a Ray actor. One server."""

    def __init__(self, spec: ServiceSpec, secrets: Mapping[str, str]) -> None:
        """`secrets`: variables of the environment that must not stand in Ray's logs, where `env_vars` do."""
        stack_signal.answer()
        os.environ.update(secrets)
        self._spec = spec
        self._service: Service | None = None
        self._url = ""

    def __repr__(self) -> str:
        """What Ray's dashboard calls it."""
        return self._spec.name

    def start(self, host: str | None, earlier: str) -> str:
        """Its address, once it answers there: the `earlier` one where it can be had again.

        host: as `actors.addresses.resolve_listen_address` takes it. Raises BadInput for one that is not of this node.
        """
        place = resolve_listen_address(host, ray.util.get_node_ip_address(), interfaces())
        port, token = free_port(place, earlier), os.environ[SERVICE_TOKEN]
        self._service = self._spec.start(self._spec.config, host=place.bind, port=port, token=token)
        self._url = place.url(urlsplit(self._service.url).port or 0)
        return self._url

    def ping(self) -> None:
        """Raises when the server does not answer `/health` where others look for it."""
        assert self._service is not None, "ping before start"
        request = urllib.request.Request(f"{self._url}/health")
        request.add_header("Authorization", f"Bearer {os.environ[SERVICE_TOKEN]}")
        with _DIRECT.open(request, timeout=HEALTH_DEADLINE_S) as answer:
            answer.read()

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()


@dataclass(slots=True)
class _Server:
    spec: ServiceSpec
    life: Supervised[Any]
    placement: Any = "DEFAULT"
    url: str = ""


@dataclass(slots=True)
class Services:
    """One server for each different name among `specs`."""

    specs: Sequence[ServiceSpec]
    env_vars: dict[str, str]  # no secrets: Ray logs them
    start_timeout_s: float
    run: str = ""  # names the actors
    host: str | None = None  # cluster.service_host
    on_gpus: bool = False  # known once the cluster is
    ping_timeout_s: float = 2 * HEALTH_DEADLINE_S  # the call to the actor around that
    actor: type = ToolService
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # by environment variable
    token: str = field(default_factory=lambda: token_urlsafe(24), repr=False)
    _servers: dict[str, _Server] = field(default_factory=dict)
    _watching: list[asyncio.Task[None]] = field(default_factory=list)
    _tell: Tell | None = None

    def __post_init__(self) -> None:
        for spec in self.specs:
            if spec.name not in self._servers:
                self._servers[spec.name] = self._supervise(spec)

    def _supervise(self, spec: ServiceSpec) -> _Server:
        create, start = lambda: self._create(server), lambda handle: self._start(server, handle)
        server: _Server = _Server(spec, Supervised(spec.name, create, start, ray.kill, max_restarts=None, pause_s=1.0))
        return server

    @property
    def servers(self) -> list[ServiceSpec]:
        """One for each name, in the order in which they are placed."""
        return [server.spec for server in self._servers.values()]

    def needs(self, *, on_gpus: bool) -> list[ResourceRequest]:
        return [
            ResourceRequest(what=spec.name, cpus=spec.cpus(on_gpus=on_gpus), gpus=spec.gpus * on_gpus, lower=spec.lower)
            for spec in self.servers
        ]

    @property
    def restarts(self) -> dict[str, int]:
        return {name: server.life.restarts for name, server in self._servers.items()}

    @property
    def addresses(self) -> dict[str, str]:
        """Where they listen, by their names."""
        return {name: server.url for name, server in self._servers.items()}

    async def start(self, placement: Sequence[Any] | None = None, tell: Tell | None = None) -> None:
        """Start every server; one that cannot start is an error of the run. `tell` hears of every new address."""
        servers = list(self._servers.values())
        for server, where in zip(servers, placement or ["DEFAULT"] * len(servers), strict=True):
            server.placement = where
        await asyncio.gather(*(server.life.ensure() for server in servers))
        self._tell = tell
        if tell is not None and servers:
            await tell(self.addresses)
        self._watching = [asyncio.create_task(self._keep(server)) for server in servers]

    async def stop(self) -> None:
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await asyncio.gather(*(server.life.stop(ask_to_stop) for server in self._servers.values()))

    def _create(self, server: _Server) -> Any:
        gpus, cpus = server.spec.gpus * self.on_gpus, server.spec.cpus(on_gpus=self.on_gpus)
        actor = ray.remote(self.actor).options(
            name=actor_name(self.run, server.spec.name, server.life.restarts),
            num_cpus=cpus,
            num_gpus=gpus,
            max_restarts=0,
            max_concurrency=4,  # a ping must not wait for a start
            scheduling_strategy=server.placement,
            # torch and faiss read OMP_NUM_THREADS when they are imported
            runtime_env={"env_vars": openmp(cpus) | self.env_vars | gpu_env(gpus) | of_part(server.spec.name)},
        )
        return actor.remote(server.spec, {**self.secrets, SERVICE_TOKEN: self.token})

    async def _start(self, server: _Server, handle: Any) -> None:
        earlier, host = server.url, self.host or (LOOPBACK if only_node() else None)
        try:
            starting = handle.start.remote(host, earlier)
            server.url = await call(starting, f"{server.spec.name} starting", self.start_timeout_s, WORKER_START)
        except RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, BadInput):
                raise BadInput(f"{server.spec.name} could not start: {cause}") from error
            raise RunFailed(f"{server.spec.name} could not start: {reason(error)}") from error
        if self._tell is not None and server.url != earlier:
            log.warning("%s is at %s now", server.spec.name, server.url)
            await self._tell(self.addresses)

    async def _keep(self, server: _Server) -> None:
        """Ping one server for ever, and start it again when it does not answer."""
        while True:
            handle = server.life.handle
            try:
                await keep_pinging(partial(self._ping, server, handle))
            except (RayError, RunFailed) as error:
                server.life.declare_dead(handle, reason(error))
                await server.life.revive()

    async def _ping(self, server: _Server, handle: Any) -> None:
        await call(handle.ping.remote(), f"{server.spec.name} answering a ping", self.ping_timeout_s, FIXED)
        server.life.note_progress()
