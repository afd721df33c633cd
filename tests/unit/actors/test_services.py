"""A tool service on its own; what a cluster does with it is in tests/ray."""

from __future__ import annotations

import pytest

from actors.calls import SERVICE_TOKEN
from actors.services import ServiceSpec, ToolService, start_world
from tests.served import EchoConfig


def test_a_ping_does_not_go_through_the_machines_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVICE_TOKEN, "an earlier one's")  # put back afterwards
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    service = ToolService(ServiceSpec(name="echo", config=EchoConfig(), start=start_world), {SERVICE_TOKEN: "secret"})
    service.start("127.0.0.1", "")
    try:
        service.ping()
    finally:
        service.stop()
