"""Actors without Ray: plain objects in the test's event loop, whose calls are tasks and whose deaths are exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

import actors.pool
import actors.services
import actors.worker_registry
from rlsys.system import supervisor


class Handle:
    """An actor that was started; `handle.method.remote(...)` is a future of what its method gives or raises."""

    def __init__(self, actor: Any, name: str) -> None:
        self.actor, self.name, self.killed = actor, name, False
        self.calls: set[asyncio.Future[Any]] = set()
        actor.die = self.die

    def __getattr__(self, method: str) -> Method:
        return Method(self, method)

    def die(self) -> None:
        """As a process that ends: whoever waits for an answer hears it, and so does whoever asks from now on."""
        self.killed = True
        for answer in list(self.calls):
            if not answer.done():
                answer.set_exception(ActorDiedError())
                answer.exception()  # nobody may be waiting

    async def answer(self, method: str, arguments: Any, kwargs: Any, answer: asyncio.Future[Any]) -> None:
        try:
            value = getattr(self.actor, method)(*arguments, **kwargs)
            value = await value if hasattr(value, "__await__") else value
            if not answer.done():
                answer.set_result(value)
        except Exception as error:
            if not answer.done():
                answer.set_exception(RayTaskError(method, "", error, proctitle="fake", pid=1, ip="here"))
                answer.exception()


class Method:
    def __init__(self, handle: Handle, name: str, returns: int = 1) -> None:
        self.handle, self.name, self.returns = handle, name, returns

    def options(self, *, num_returns: int) -> Method:
        return Method(self.handle, self.name, num_returns)

    def remote(self, *arguments: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if self.handle.killed:
            answer.set_exception(ActorDiedError())
            answer.exception()
        else:
            self.handle.calls.add(answer)
            answer.add_done_callback(self.handle.calls.discard)
            answering = loop.create_task(self.handle.answer(self.name, arguments, kwargs, answer))
            answer.add_done_callback(lambda _: answering.cancel())
        return answer if self.returns == 1 else [self._part(answer, index) for index in range(self.returns)]

    @staticmethod
    def _part(answer: asyncio.Future[Any], index: int) -> asyncio.Future[Any]:
        async def part() -> Any:
            return (await answer)[index]

        task = asyncio.ensure_future(part())
        task.add_done_callback(lambda future: future.cancelled() or future.exception())
        return task


class FakeRay:
    """In the place of the module `ray`, for whoever starts and kills actors."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.options: dict[str, Any] = {}
        self.placed: Callable[[], bool] = lambda: True

    def remote(self, actor: type | None = None, **options: Any) -> Any:
        """As `ray.remote`: wraps a class, or with options alone returns a decorator for one."""
        return partial(FakeRay.Starter, self) if actor is None else FakeRay.Starter(self, actor)

    def kill(self, handle: Handle) -> None:
        handle.die()

    class Starter:
        def __init__(self, ray: FakeRay, actor: type, name: str = "") -> None:
            self.ray, self.actor, self.name = ray, actor, name

        def options(self, **options: Any) -> FakeRay.Starter:
            self.ray.options[options["name"]] = options
            return FakeRay.Starter(self.ray, self.actor, options["name"])

        def remote(self, *arguments: Any) -> Handle:
            handle = Handle(self.actor(*arguments), self.name)
            self.ray.handles.append(handle)
            return handle


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    ray = FakeRay()
    for module in (actors.pool, actors.worker_registry, actors.services):
        monkeypatch.setattr(module, "ray", ray)
    monkeypatch.setattr(actors.pool, "has_place", lambda where: ray.placed())
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.001)
    return ray
