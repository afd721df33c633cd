"""What a run says of its own account at its end."""

from __future__ import annotations

from pathlib import Path

from launch.tools.audit.files import read_run
from launch.tools.audit.properties import audit
from rlsys.errors import describe_error

MOST_SHOWN = 5  # of what does not fit


def audit_lines(path: Path, shown: str) -> list[str]:
    """One where the cheap part of the audit holds. It costs no run its end: what cannot be read is said.

    shown: the path, as a command would name it.
    """
    try:
        found = audit(read_run(path, own=True), cheap=True)
    except Exception as error:  # fault boundary: a run that is done stays done, whatever breaks in its audit
        return [f"audit: not possible: {describe_error(error)}"]
    offenders = [f"audit: {each.name}: {offender}" for each in found for offender in each.offenders]
    if not offenders:
        names = ", ".join(each.name for each in found)
        return [f"audit: {names} hold; `rlsys audit {shown}` compares checkpoints and episodes too"]
    more = [f"audit: and {len(offenders) - MOST_SHOWN} more"] * (len(offenders) > MOST_SHOWN)
    return [*offenders[:MOST_SHOWN], *more]
