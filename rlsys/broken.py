"""What ends an episode other than the policy, and how often it is tried again."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlsys.errors import BadInput
from rlsys.types import Failure, FailureKind
from rlsys.untrusted import describe_exception, trace


class EpisodeBroken(Exception):
    """Raised by `generate` or a tool when something other than the policy broke. Carries the typed failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class CrashedEnvWorker(EpisodeBroken):
    """It ended the process that other episodes were played in: it is not tried again."""


class EvictedByCrash(EpisodeBroken):
    """Another episode ended the process that it was played in: it is played again, and its budget stays whole."""


class CutShort(EpisodeBroken):
    """Its time ended while the model wrote, and what was written is lost. It is not tried again: another answer would
    be kept the more likely, the shorter it is."""


def failure_of(error: BaseException, where: str) -> Failure:
    """What broke, whatever was raised: never a zero."""
    if isinstance(error, EpisodeBroken):
        return error.failure
    kind = FailureKind.TIMEOUT if isinstance(error, TimeoutError) else FailureKind.DATA
    if isinstance(error, BadInput):
        return Failure(kind=kind, where=where, detail=str(error))
    return Failure(kind=kind, where=where, detail=describe_exception(error), trace=trace(error))


@dataclass(slots=True)
class Budget:
    """How often one episode may still be tried again. Failures of kind `data` and all others are counted apart.

    What another episode did costs nothing, for as long as one attempt may take.
    """

    infra_retries: int
    data_retries: int
    timeout_s: float  # of one attempt
    spent: list[Failure] = field(default_factory=list)
    spared: list[Failure] = field(default_factory=list)
    ran_s: float = 0.0  # what its attempts have taken, without their waits for a turn

    def allows(self, broken: EpisodeBroken) -> bool:
        """Whether to try again after this failure. If so, it is counted."""
        failure = broken.failure
        if isinstance(broken, (CrashedEnvWorker, CutShort)):
            return False
        if isinstance(broken, EvictedByCrash) and self.ran_s < self.timeout_s:
            self.spared.append(failure)
            return True
        by_data = failure.kind is FailureKind.DATA
        used = sum((earlier.kind is FailureKind.DATA) == by_data for earlier in self.spent)
        if used >= (self.data_retries if by_data else self.infra_retries):
            return False
        self.spent.append(failure)
        return True
