"""Where the project lies, and where slices of public data lie if `RLSYS_TEST_DATA` names a folder of them."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("RLSYS_TEST_DATA") or ROOT / "no-test-data")
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="RLSYS_TEST_DATA names no folder; docs/test-data.md says which public files go into it"
)
