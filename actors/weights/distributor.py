"""The weight stores of a run: a version comes to every node that has engines, while these continue to generate.

bring(version, node)   a relay says which part this node fetches next, and from whom: `actors.weights.relay`
a weight store dies    it is started again and keeps what lies whole in its folder, from the kept version on
a source fails         the next one that has the part
a newer version comes  callers that wait for the older one get Superseded
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.placement import actor_name
from actors.weights.relay import Relay
from actors.weights.store import NodeWeightStore
from actors.weights.transfer import SourceFailed
from rlsys.errors import RunFailed
from rlsys.system.calls import DELIVERY, WORKER_START, ask_to_stop, call, reason
from rlsys.system.parts import of_part
from rlsys.system.supervisor import Supervised
from rlsys.system.weight_folder import WeightFolder, WeightManifest

log = logging.getLogger("rlsys.weights")

STREAMS = 8  # to a node at a time, and from it
# What arrives is allocated chunk by chunk: without these the C library gives every chunk back and maps the next one,
# which is a sixth of what a fetch costs.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": f"{1 << 30}", "MALLOC_TRIM_THRESHOLD_": f"{1 << 30}"}
MARGIN_S = 10.0  # past a fetch's own deadline


class Superseded(Exception):
    """A newer version is on its way: this one is no longer needed."""


class _Unable(RunFailed):
    """A weight store answered that it cannot: its node's memory is full, perhaps. It lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributorOptions:
    env_vars: dict[str, str]
    start_timeout_s: float
    fetch_timeout_s: float  # of one part from one source
    run: str = ""  # names the actors
    host: str | None = None  # cluster.service_host


@dataclass(slots=True)
class _Node:
    """A node of Ray's with a folder of ours."""

    name: str
    life: Supervised[Any]
    address: str = ""  # of its transfer


@dataclass(slots=True)
class _Delivery:
    """One version on its way."""

    published: WeightManifest
    relay: Relay
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None  # when the last part came so far
    carried: int = 0  # bytes that crossed the network
    nodes: dict[str, asyncio.Task[None]] = field(default_factory=dict)


class WeightDistributor:
    """Belongs to the driver's event loop."""

    def __init__(self, folder: WeightFolder, options: DistributorOptions) -> None:
        self._folder, self._options = folder, options
        self._token = secrets.token_hex(16)
        self.nodes: dict[str, _Node] = {}
        self._delivery: _Delivery | None = None
        self._kept: int | None = None  # the version that may not go
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[Any]] = set()

    # -- weight stores -------------------------------------------------------------------------------------------------

    async def ensure(self, nodes: Iterable[str]) -> None:
        """Each of these nodes has a weight store that lives. Raises RunFailed where one cannot be had."""
        await asyncio.gather(*(self._ensure_node(node) for node in set(nodes)))

    async def _ensure_node(self, name: str) -> _Node:
        if name not in self.nodes:
            self.nodes[name] = self._supervise(name)
        await self.nodes[name].life.ensure()
        return self.nodes[name]

    def _supervise(self, name: str) -> _Node:
        create, start = lambda: self._create(node), lambda handle: self._start(node, handle)
        life = Supervised(f"the weight store of node {name[:8]}", create, start, ray.kill, goal="keeping a version")
        node: _Node = _Node(name, life)
        return node

    def _create(self, node: _Node) -> Any:
        options, node.address = self._options, ""
        store = ray.remote(NodeWeightStore)
        placed = store.options(
            name=actor_name(options.run, f"weights:{node.name[:8]}", node.life.restarts),
            num_cpus=0,
            max_restarts=0,
            max_concurrency=2 * STREAMS + 4,  # to it and from it, and what is asked meanwhile
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.name, soft=False),
            runtime_env={"env_vars": options.env_vars | ALLOCATOR | of_part(f"weights:{node.name[:8]}")},
        )
        return placed.remote(self._folder.on_node(node.name), options.host)

    async def _start(self, node: _Node, handle: Any) -> None:
        label = f"{node.life.name} starting"
        try:
            await call(handle.start.remote(self._kept), label, self._options.start_timeout_s, WORKER_START)
        except (RayError, RunFailed) as error:  # it is killed: it may yet take the lock that the next one needs
            raise RunFailed(f"{label}: {reason(error)}") from error
        self._spawn(self._watch(node, handle))

    async def _watch(self, node: _Node, handle: Any) -> None:
        """Start it again as soon as it dies: what lies in its folder is removed unless the next one takes it over."""
        try:
            await handle.stand.remote()
        except RayError as error:
            self._declare_dead(node, handle, reason(error))

    def _declare_dead(self, node: _Node, handle: Any, why: str) -> None:
        if node.life.declare_dead(handle, why) and self._delivery is not None:
            self._spawn(self._mark_present(self._delivery, node.name))

    async def _ask(self, node: _Node, method: str, *arguments: Any) -> Any:
        """A call to a weight store. Without an answer it is as good as dead. Raises RunFailed then, or SourceFailed."""
        handle, label = node.life.handle, f"{node.life.name} doing {method}"
        if handle is None:
            raise RunFailed(f"{label}: it died")
        try:
            ref = getattr(handle, method).remote(*arguments)
            return await call(ref, label, self._options.fetch_timeout_s + MARGIN_S, DELIVERY)
        except RayTaskError as error:
            if isinstance(error.cause, SourceFailed):
                raise error.cause from error
            raise _Unable(f"{label}: {reason(error)}") from error
        except (RayError, RunFailed) as error:
            self._declare_dead(node, handle, reason(error))
            raise RunFailed(f"{label}: {reason(error)}") from error

    async def _address(self, name: str) -> str:
        node = await self._ensure_node(name)
        if not node.address:
            node.address = await self._ask(node, "serve", self._token)
        return node.address

    # -- versions -----------------------------------------------------------------------------------------------------

    async def bring(self, published: WeightManifest, node: str) -> WeightManifest:
        """The version as it lies on that node, once it is whole there.

        Raises Superseded when a newer one is asked for meanwhile, and RunFailed when it cannot be had there.
        """
        delivery = self._delivery
        if delivery is None or delivery.published is not published:  # of one that was sent again the files are new
            delivery = _Delivery(published, Relay([part.node for part in published.parts], STREAMS))
            self._delivery = delivery
            await self._notify()
        filling = delivery.nodes.get(node)
        if filling is None or (filling.done() and (_has_failed(filling) or delivery.relay.lacking(node))):
            filling = delivery.nodes[node] = asyncio.create_task(self._fill(delivery, node))
        await asyncio.shield(filling)
        return self._folder.on_node(node).here(published)

    @property
    def folder(self) -> WeightFolder:
        """As a rank writes into it now."""
        return replace(self._folder, digests=len(self.nodes) > 1)

    async def keep(self, version: int) -> None:
        """Every engine has it, or will have a newer one: what is older leaves all nodes."""
        self._kept = version
        up = [node for node in self.nodes.values() if node.life.handle is not None]
        answers = await asyncio.gather(*(self._ask(node, "keep", version) for node in up), return_exceptions=True)
        for node, answer in zip(up, answers, strict=True):  # one that died keeps nothing else when it is back
            if not isinstance(answer, BaseException):
                node.life.note_progress()

    def transfer_progress(self) -> tuple[int, float]:
        """Of the newest version: bytes that crossed the network so far, and the seconds until the last of them."""
        now = self._delivery
        return (now.carried, (now.ended or now.started) - now.started) if now is not None else (0, 0.0)

    async def stop(self) -> None:
        """Nothing of the run's stays in any node's memory."""
        filling = list(self._delivery.nodes.values()) if self._delivery is not None else []
        for task in [*self._background, *filling]:
            task.cancel()
        stops = [node.life.stop(ask_to_stop) for node in self.nodes.values()]
        await asyncio.gather(*stops, return_exceptions=True)

    async def _fill(self, delivery: _Delivery, node: str) -> None:
        await self._ensure_node(node)
        published = delivery.published
        await self._mark_present(delivery, node)  # also for what its ranks wrote: a weight store may have died since
        lacking = delivery.relay.lacking(node)
        if not lacking:
            return  # its ranks wrote all of it, or an earlier weight store brought it
        if any(published.parts[part].digest is None for part in lacking):
            raise RunFailed(f"version {published.version}, sent when the run had one node, is not on node {node[:8]}")
        streams = [asyncio.create_task(self._stream(delivery, node)) for _ in range(STREAMS)]
        try:
            await asyncio.gather(*streams)
        finally:
            for stream in streams:
                stream.cancel()

    async def _mark_present(self, delivery: _Delivery, node: str) -> None:
        """See what a node has: a new weight store has what an earlier one brought, and a lost node has nothing."""
        parts: list[int] | None = None
        while parts is None:
            try:
                parts = await self._ask_parts(await self._ensure_node(node), delivery.published)
            except RunFailed as error:
                log.warning("%s", error)
                parts = []
        delivery.relay.mark_found(node, parts)
        await self._notify()

    async def _ask_parts(self, store: _Node, published: WeightManifest) -> list[int] | None:
        """None: it died under the question."""
        try:
            parts: list[int] = await self._ask(store, "list_present", published)
            return parts
        except _Unable:
            raise
        except RunFailed:
            return None

    async def _stream(self, delivery: _Delivery, node: str) -> None:
        """Fetch one part after another until the node lacks none."""
        relay, version = delivery.relay, delivery.published.version
        while True:
            async with self._changed:
                while True:
                    if self._delivery is not delivery:
                        raise Superseded(version)
                    if not relay.lacking(node):
                        return
                    if orphans := relay.list_orphaned(node):
                        name = delivery.published.parts[orphans[0]].name
                        raise RunFailed(f"{name} of version {version} lies on no node that can send it")
                    if (assignment := relay.begin(node)) is not None:
                        break
                    await self._changed.wait()
            part, source = assignment
            arrived = False
            try:
                arrived = await self._fetch(delivery, node, part, source)
            finally:
                relay.end(node, part, arrived=arrived)
                await self._notify()

    async def _fetch(self, delivery: _Delivery, node: str, number: int, source: str) -> bool:
        """Whether the part came. Raises RunFailed for what is wrong with the node that it should come to."""
        published, part = delivery.published, delivery.published.parts[number]
        try:
            address = await self._address(source)
        except RunFailed as error:
            return await self._blame(delivery, number, source, error)
        try:
            await self._address(node)
            receiver = await self._ensure_node(node)
            await self._ask(receiver, "fetch", published, number, address, self._options.fetch_timeout_s)
        except SourceFailed as error:
            return await self._blame(delivery, number, source, error)
        except _Unable:
            raise
        except RunFailed:
            await self._mark_present(delivery, node)  # its weight store died, and has what it had once it is back
            return False
        delivery.carried += part.bytes
        delivery.ended = time.monotonic()
        return True

    async def _blame(self, delivery: _Delivery, number: int, source: str, error: Exception) -> bool:
        log.warning("%s", error)
        delivery.relay.mark_failed(number, source)
        await self._mark_present(delivery, source)  # it may be back by now, with all that it had
        return False

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def node_of(_: object) -> str:
    """Called in an actor, by `__ray_call__`: Ray's name for the node that it is on."""
    node: str = ray.get_runtime_context().get_node_id()
    return node
