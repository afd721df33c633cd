"""What a tool gives back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolError:
    """A tool's answer to a call that it could not carry out: the model reads `text`, the call counts as invalid."""

    text: str


Result = str | ToolError
