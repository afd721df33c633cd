"""A tool service on its own; what a cluster does with it is in tests/ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.services import ServiceSpec, ToolService, start_world
from rlsys.system.calls import SERVICE_TOKEN
from tests.fakes.served import EchoConfig


def test_a_ping_does_not_go_through_the_machines_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVICE_TOKEN, "an earlier one's")  # put back afterwards
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    service = ToolService(ServiceSpec(name="echo", config=EchoConfig(), start=start_world), {SERVICE_TOKEN: "secret"})
    service.start("127.0.0.1", "")
    assert repr(service) == "echo"
    try:
        service.ping()
    finally:
        service.stop()
    with pytest.raises(OSError):
        service.ping()


def test_a_server_that_never_started_has_nothing_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []
    monkeypatch.setenv(SERVICE_TOKEN, "an earlier one's")
    server: Any = SimpleNamespace(url="http://127.0.0.1:9", stop=lambda: stopped.append(1))
    spec = ServiceSpec(name="echo", config=EchoConfig(), start=lambda *_, **__: server)
    service = ToolService(spec, {SERVICE_TOKEN: "secret"})
    service.stop()
    assert stopped == []
    service.start("127.0.0.1", "")
    service.stop()
    assert stopped == [1]
