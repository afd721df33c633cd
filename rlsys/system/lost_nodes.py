"""Whether a Ray error means that a whole node is gone. Told by its class and text: nothing here needs Ray.

Ray raises the same error for an actor that died alone and for one that went with its node, and says which on one of the
last of its lines.
"""

from __future__ import annotations

import re

_CLASSES = {"NodeDiedError", "LocalRayletDiedError"}
_UNCLEAR = "ActorUnavailableError"  # Ray itself learns some seconds later which of the two it was
_SAYS = re.compile(
    r"its node has died|node has crashed|node was (preempted|terminated)|node it was running on is dead"
    r"|raylet (is dead|died|has died|crashed|is unavailable)",
    re.IGNORECASE,
)
_NODE = re.compile(r"node id:? ?([0-9a-f]{8})", re.IGNORECASE)
_WHY = re.compile(r"the actor's node was (.+)")


def lost_node(error: BaseException) -> str:
    """`the Ray node 5e3c0f5a died (terminated unexpectedly: health check failed)`; empty where no node was lost.

    Where Ray does not know yet: that the process, or its node, is gone.
    """
    if getattr(error, "cause", None) is not None:  # what code in an actor raised
        return ""
    text = str(error)
    if type(error).__name__ == _UNCLEAR:
        return "the connection broke: its process or its Ray node is gone"
    if type(error).__name__ not in _CLASSES and not _SAYS.search(text):
        return ""
    node, why = _NODE.search(text), _WHY.search(text)
    name = f"the Ray node {node[1]}" if node else "the Ray node"
    return f"{name} died ({why[1].strip()[:200]})" if why else f"{name} died"


def is_node_lost(error: BaseException) -> bool:
    """Whether its node is gone, and not the process alone."""
    return bool(lost_node(error)) and type(error).__name__ != _UNCLEAR
