"""Errors as Ray 2.60 raises them, built by its own classes from what its processes send."""

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

from actors.calls import reason
from rlsys.system.lost_nodes import is_node_lost, lost_node

NODE = "5e3c0f5a71d4b8f0a8f3c1d2"


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
    assert lost_node(error) == reason(error) == said
    assert is_node_lost(error) is not isinstance(error, ActorUnavailableError)  # of that one Ray learns later


@pytest.mark.parametrize("error", [KILLED, ALONE, ActorDiedError()])
def test_an_actor_that_died_alone_is_not_its_node(error: RayError) -> None:
    assert lost_node(error) == "" and is_node_lost(error) is False
    assert reason(error).startswith(f"{type(error).__name__}: ")


def test_what_code_in_an_actor_says_of_nodes_is_its_own_error() -> None:
    cause = ValueError("its node has died")
    error = RayTaskError("step", "Traceback\nValueError: its node has died\n", cause).as_instanceof_cause()
    assert lost_node(error) == "" and reason(error) == "ValueError: its node has died"
