"""Where ranks meet, how long they wait for each other, and what is said of the links between them."""

import psutil
import pytest
import torch

from learners import meeting
from learners.meeting import collective_timeout_s, describe_links, is_timeout, measure_gbps, open_store

GLOO = "[unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"


def test_the_store_listens_on_its_address_alone() -> None:
    store = open_store("127.0.0.1")
    listening = [
        connection.laddr
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {place.ip for place in listening if place.port == store.port} == {"127.0.0.1"}
    store.set("here", "1")
    assert store.get("here") == b"1"


def test_a_collective_ends_before_the_call_that_it_hangs_in() -> None:
    assert collective_timeout_s(1800.0) == 1740.0
    assert collective_timeout_s(20.0) == 15.0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(GLOO), True),
        (RuntimeError("Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)"), True),
        (RuntimeError("Connection closed by peer"), False),
        (RuntimeError("ncclInternalError in a collective operation"), False),
        (RuntimeError("Timeout while reading a file"), False),
        (ValueError("Timed out waiting"), False),
        (None, False),
    ],
)
def test_a_collective_that_waited_in_vain_is_known_by_what_torch_says(error: Exception | None, expected: bool) -> None:
    assert is_timeout(error) is expected


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_measurement_is_of_the_second_time_and_of_ranks_that_begin_together(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    times = iter([0.0, 9.0, 10.0, 10.5])  # the first time warms up
    ones = torch.ones
    monkeypatch.setitem(meeting.MEASURED_MB, device, 1)
    monkeypatch.setattr(torch, "ones", lambda size, dtype, device: ones(size, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append("finished"))
    monkeypatch.setattr(meeting.time, "perf_counter", lambda: next(times))
    monkeypatch.setattr(torch.distributed, "barrier", lambda: calls.append("barrier"))
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda buffer: calls.append(f"reduce {buffer.nbytes}"))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    assert measure_gbps(torch.device(device)) == pytest.approx(1.5 * 2**20 / 0.5 / 1e9)
    assert calls == ["barrier", f"reduce {2**20}", *["finished"] * (device == "cuda")] * 2


def test_a_slow_link_between_gpus_names_the_variables() -> None:
    for gbps, nodes, expected in [(3.0, "aa", False), (2.9, "aa", True), (2.0, "ab", False), (1.9, "ab", True)]:
        assert describe_links(gbps, list(nodes), on_gpus=True)[1] is expected
    text, slow = describe_links(0.1, ["a", "b"], on_gpus=True)
    assert slow and "NCCL_SOCKET_IFNAME" in text and "several nodes" in text
    assert describe_links(0.1, ["a", "a"], on_gpus=False)[1] is False
