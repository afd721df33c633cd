"""What breaks while a run is in progress, as a line of the log that also carries its numbers.

The parts that notice it know no run directory: `warn` says the line, with an `Incident` on the record, from which
`launch.driver.observe.events` takes it into the run's account. In other processes it is a line of a log alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

ATTRIBUTE = "incident"  # of the log record

# lost: found dead. restart: it serves again. refused: weights that an engine does not compute what the learner does
# with. stall: it takes long, or does not answer and is waited for. delivery_late: without the newest weights.
Kind = Literal["lost", "restart", "refused", "stall", "delivery_late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    kind: Kind
    who: str  # "rollout:0", "retriever"
    text: str
    detected_s: float | None = None  # between its last sign of life and the moment at which it was known
    recovered_s: float | None = None  # from then until it serves again
    groups: int | None = None  # that are played again


def warn(log: logging.Logger, incident: Incident) -> None:
    log.warning("%s", incident.text, extra={ATTRIBUTE: incident})
