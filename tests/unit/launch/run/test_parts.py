"""What a run says of where its parts are."""

from __future__ import annotations

from launch.run.parts import on_nodes


def test_ranks_on_their_nodes_in_one_line() -> None:
    assert on_nodes(["10.0.0.2"] * 2 + ["10.0.0.3"]) == "0-1 on 10.0.0.2, 2 on 10.0.0.3"
