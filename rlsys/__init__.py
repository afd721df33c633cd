"""The core: records, maths and bookkeeping. Imports torch and omegaconf at most."""

VERSION = "0.1.0"  # also in pyproject.toml, CITATION.cff and CHANGELOG.md
