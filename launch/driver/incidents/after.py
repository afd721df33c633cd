"""Collects an incident of a driver that is gone, for its parent: `python -m launch.driver.incidents.after RUN PID WHY`.

Prints the folder, or nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from launch.driver.incidents.now import collect_after
from rlsys.errors import BadInput

if __name__ == "__main__":
    try:
        folder = collect_after(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
        print(folder or "", end="")
    except (OSError, BadInput):
        sys.exit(1)
