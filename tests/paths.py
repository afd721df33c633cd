"""Where the project lies, and where slices of public data lie if somebody put them there."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("RLSYS_TEST_DATA", ROOT.parent / "shared" / "data"))
