"""Seeds derived from names, so that a request samples the same whatever runs beside it."""

from __future__ import annotations

import hashlib


def derive(*parts: object) -> int:
    """A stable 31-bit seed from (run, purpose, task, sibling, turn ...)."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF
