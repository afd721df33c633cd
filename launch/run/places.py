"""What of a configuration may differ from machine to machine."""

from __future__ import annotations

from typing import Any


def without_places(values: dict[str, Any]) -> dict[str, Any]:
    """Configuration without what may differ between machines: addresses, numbers of processes, patience, secrets."""
    return {
        key: without_places(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in ("url", "token_env", "guard", "endpoint", "service", "key_env", "plain_http", "workers")
    }
