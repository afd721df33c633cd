"""What a run says of its own account at its end."""

from __future__ import annotations

from pathlib import Path

from launch.tools.audit.files import read_run
from launch.tools.audit.properties import audit
from rlsys.errors import describe_error

MOST_SHOWN = 5  # of what does not fit


def audit_lines(path: Path, display_path: str) -> list[str]:
    """Lines about the cheap checks of the audit, a single one if all hold. An error is a line too and is not raised.

    display_path: the path, as a command would name it.
    """
    try:
        checks = audit(read_run(path, after_summary=True), cheap=True)
    except Exception as error:  # fault boundary: a run that is done stays done, whatever breaks in its audit
        return [f"audit: not possible: {describe_error(error)}"]
    offenders = [f"audit: {check.name}: {offender}" for check in checks for offender in check.offenders]
    if not offenders:
        names = ", ".join(check.name for check in checks)
        return [f"audit: {names} hold; `rlsys audit {display_path}` compares checkpoints and episodes too"]
    more = [f"audit: and {len(offenders) - MOST_SHOWN} more"] * (len(offenders) > MOST_SHOWN)
    return [*offenders[:MOST_SHOWN], *more]
