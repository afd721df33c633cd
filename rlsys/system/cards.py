"""Which cards this process sees. A driver computes nothing, so it sees none: a library that takes a card as soon as it
is used, and most of its memory (JAX does), takes nothing from the ranks and engines.

Ray counts a machine's cards in the process that starts it, and what it starts inherits the variable: both happen where
the cards are shown again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

VISIBLE = "CUDA_VISIBLE_DEVICES"

found_before: tuple[str | None] | None = None  # what the variable was, of a process that has hidden its cards


def hide_cards() -> None:
    """From this process and its children, until the end; `cards_shown` excepted."""
    global found_before
    if found_before is None:
        found_before = (os.environ.get(VISIBLE),)
        os.environ[VISIBLE] = ""


@contextmanager
def cards_shown() -> Iterator[None]:
    """What counts the cards, or starts what uses them, sees those that this process was given."""
    if found_before is None:
        yield
        return
    if found_before[0] is None:
        del os.environ[VISIBLE]
    else:
        os.environ[VISIBLE] = found_before[0]
    try:
        yield
    finally:
        os.environ[VISIBLE] = ""
