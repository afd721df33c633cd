"""The bar of commands without steps."""

import io

import pytest
from rich.console import Console

from launch.observe.bar import Bar


def test_a_bar_stays_until_something_else_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.observe.bar.Console", lambda **_: Console(file=io.StringIO(), force_terminal=True))
    with Bar() as show:
        show("encode", 1, 4)
        first = show._bar
        show("encode", 2, 4)
        assert first is not None and show._bar is first and first.tasks[0].completed == 2
        show("write", 1, None)
        assert show._bar is not first and first.live.is_started is False
        show("write", 3, 3)
        assert show._bar is None
