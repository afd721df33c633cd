"""The core: records, maths and bookkeeping. Imports torch and omegaconf at most."""

import sys
from pathlib import Path

VERSION = "0.1.0"  # also in pyproject.toml, CITATION.cff and CHANGELOG.md
OURS = ("rlsys", "envs", "actors", "learners", "launch")

# `envs` is a name that other folders have too. Whatever the working folder holds, and whatever Ray puts before it in a
# worker, ours are found first. The other four packages import this one before anything else.
_ROOT = str(Path(__file__).resolve().parent.parent)
if sys.path[:1] != [_ROOT]:
    sys.path.insert(0, _ROOT)
