"""Calls to actors: deadlines, and errors as Ray 2.60 raises them, built by its own classes."""

from __future__ import annotations

import ast
import asyncio
import importlib
import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    RayError,
    RayTaskError,
)

from launch.config.keys import recipe_keys
from rlsys.errors import RunFailed
from rlsys.system import calls
from rlsys.system.calls import (
    DELIVERY,
    FIXED,
    LISTEN_S,
    RANK_CALL,
    RANK_START,
    WORKER_CALL,
    WORKER_START,
    Turnstile,
    call,
    describe_lost_node,
    is_node_lost,
    reason,
    within,
)
from tests.paths import ROOT

NODE = "5e3c0f5a71d4b8f0a8f3c1d2"


def test_what_answers_in_time_is_heard_and_what_does_not_is_cancelled() -> None:
    async def answer() -> int:
        return 7

    async def scenario() -> None:
        assert await within(answer(), 60.0) == 7
        silent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await within(silent, 0.001)
        assert silent.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("late", "waits"),
    [
        (0.05, [8.0]),  # a timer that fires on time: nobody answered
        (0.5, [8.0, 0.5]),  # the loop was busy: as long as that again
        (90.0, [8.0, LISTEN_S]),
    ],
)
def test_a_loop_that_was_held_up_listens_once_more(
    late: float, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited = iter([100.0, 108.0 + late]), []

    async def wait(_: Any, timeout: float) -> None:
        waited.append(timeout)

    monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def scenario() -> None:
        silent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patched, pytest.raises(TimeoutError):
            patched.setattr(asyncio, "wait", wait)
            await within(silent, 8.0)

    asyncio.run(scenario())
    assert waited == pytest.approx(waits)


def test_one_caller_goes_through_a_turnstile_in_a_round_of_the_loop() -> None:
    """All that became ready beside them, a timer too, is heard between two of them."""

    async def go() -> list[int]:
        turnstile, through, rounds = Turnstile(), 0, list[int]()

        async def send() -> None:
            nonlocal through
            await turnstile.enter()
            through += 1

        sending = [asyncio.create_task(send()) for _ in range(100)]
        while through < 100:
            before = through
            await asyncio.sleep(0)
            rounds.append(through - before)
        await asyncio.gather(*sending)
        return rounds

    assert max(asyncio.run(go())) == 1


def test_who_gives_up_at_a_turnstile_keeps_nobody_else_out() -> None:
    async def go() -> bool:
        turnstile = Turnstile()
        waiting = [asyncio.create_task(turnstile.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        await asyncio.wait_for(waiting[2], timeout=60)
        return waiting[0].cancelled() and waiting[1].cancelled()

    assert asyncio.run(go())


def died(message: str) -> ActorDiedError:
    return ActorDiedError(
        ActorDiedErrorContext(
            class_name="LearnerActor", actor_id=b"0" * 16, pid=12, node_ip_address="10.0.0.1", error_message=message
        )
    )


KILLED = died("The actor is dead because it was killed by `ray.kill`.")
ALONE = died(
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file."
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            died(
                f"The actor died because its node has died. Node Id: {NODE}\n\tthe actor's node was terminated "
                "unexpectedly: health check failed due to missing too many heartbeats"
            ),
            "the Ray node 5e3c0f5a died (terminated unexpectedly: health check failed due to missing too many "
            "heartbeats)",
        ),
        (
            died(f"The actor died because its node has died. Node Id: {NODE}\n\tthe actor's node was preempted: spot"),
            "the Ray node 5e3c0f5a died (preempted: spot)",
        ),
        (
            NodeDiedError(
                "Task failed because the node it was running on is dead or unavailable. "
                f"Node IP: 10.0.0.1, node ID: {NODE}."
            ),
            "the Ray node 5e3c0f5a died",
        ),
        (  # what a driver hears when its own raylet is killed
            died(
                f"The actor is dead because its owner has died. Owner Id: 01000000{'f' * 48} "
                "Owner Ip address: 10.0.0.1 Owner worker exit type: SYSTEM_ERROR "
                "Worker exit detail: Owner's node has crashed."
            ),
            "the Ray node died",
        ),
        (LocalRayletDiedError(), "the Ray node died"),
        (
            ActorUnavailableError("RpcError: connection reset rpc_code: 14", b"0" * 16),
            "the connection broke: its process or its Ray node is gone",
        ),
    ],
)
def test_a_lost_node_is_called_so(error: RayError, said: str) -> None:
    assert describe_lost_node(error) == reason(error) == said
    assert is_node_lost(error) is not isinstance(error, ActorUnavailableError)  # of that one Ray learns later


@pytest.mark.parametrize("error", [KILLED, ALONE, ActorDiedError()])
def test_an_actor_that_died_alone_is_not_its_node(error: RayError) -> None:
    assert describe_lost_node(error) == "" and is_node_lost(error) is False
    assert reason(error).startswith(f"{type(error).__name__}: ")


def test_what_code_in_an_actor_says_of_nodes_is_its_own_error() -> None:
    cause = ValueError("its node has died")
    error = RayTaskError("step", "Traceback\nValueError: its node has died\n", cause).as_instanceof_cause()
    assert describe_lost_node(error) == "" and reason(error) == "ValueError: its node has died"


def test_a_call_without_an_answer_says_who_what_how_long_and_what_to_try() -> None:
    async def wait() -> None:
        await call(asyncio.Future(), "rollout:1 ping", 0.01, WORKER_CALL)

    with pytest.raises(RunFailed, match=r"^rollout:1 ping: no answer after 0.01 s \(rollout.call_timeout_s\)"):
        asyncio.run(wait())


PACKAGES = ("actors", "launch", "learners", "rlsys")
SETS = {  # the field of an options record, and the key that it is made from
    "start_timeout_s": (WORKER_START, RANK_START),
    "call_timeout_s": (WORKER_CALL, RANK_CALL),
    "fetch_timeout_s": (DELIVERY,),
    "publish_deadline_s": (DELIVERY,),
    "placement_timeout_s": ("cluster.placement_timeout_s",),
    "seconds": ("--seconds",),
}


def list_waits() -> Iterator[tuple[str, str, str]]:
    """Every call with a deadline in the sources: (where, what sets its seconds, the key that it names)."""
    waits = {"call": 2, "await_start": 3, "self._wait": 2, "self.call_all": 2}  # and which argument is its seconds
    for path in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        if "system.calls import" not in text and "await_start" not in text:
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            assigned = {
                target.id: ast.unparse(node.value)
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for node in ast.walk(function):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                own = name in waits and not (name == "call" and module.__dict__.get("call") is not call)
                passes_on = function.name in ("await_start", "call_all")  # what its own callers give it
                if not isinstance(node, ast.Call) or not own or passes_on or len(node.args) < 3:
                    continue
                seconds = ast.unparse(node.args[waits[name]])
                key = getattr(module, ast.unparse(node.args[waits[name] + 1]))
                yield f"{path.relative_to(ROOT)}:{node.lineno}", assigned.get(seconds, seconds), key


def test_every_wait_for_an_actor_names_the_key_that_sets_it() -> None:
    known = {key.name for key in recipe_keys()} | {FIXED, "--seconds"}
    waits = list(list_waits())
    assert len(waits) > 20
    for where, seconds, key in waits:
        assert all(part in known for part in key.split(" + ")), where
        sets = [keys for field, keys in SETS.items() if re.search(rf"\b{field}\b", seconds)]
        assert bool(sets) == (key != FIXED), f"{where}: {seconds}, {key}"
        assert all(any(name in key for name in keys) for keys in sets), f"{where}: {seconds}, {key}"


async def after_a_block(timeout_s: float, answer_s: float, block_s: float) -> str:
    """A call that is answered after `answer_s`, while the loop stands still for `block_s`, past the deadline."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    loop.call_later(answer_s, answer.set_result, "here")
    calling = asyncio.ensure_future(call(answer, "rollout:1 ping", timeout_s, FIXED))
    await asyncio.sleep(0)
    time.sleep(block_s)
    return await calling


def test_an_answer_that_came_while_the_driver_was_busy_was_in_time() -> None:
    assert asyncio.run(after_a_block(timeout_s=0.01, answer_s=0.005, block_s=0.03)) == "here"


def test_a_driver_that_was_busy_past_the_deadline_listens_once_more() -> None:
    assert asyncio.run(after_a_block(timeout_s=0.01, answer_s=0.2, block_s=0.15)) == "here"


def test_after_that_it_is_late() -> None:
    with pytest.raises(RunFailed, match="no answer after 0.01 s"):
        asyncio.run(after_a_block(timeout_s=0.01, answer_s=60.0, block_s=0.12))
