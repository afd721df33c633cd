"""Parts of a version reach every node, each node passing on what it has."""

import pytest

from actors.weights.relay import Relay


def rounds(owners: list[str], nodes: list[str], uploads: int = 1) -> int:
    """Until every node has every part, when each may fetch `uploads` parts and send as many in one round."""
    relay, count = Relay(owners, uploads), 0
    while any(relay.lacking(node) for node in nodes):
        count += 1
        under_way = []
        for _ in range(uploads):
            for node in nodes:
                begun = relay.begin(node)
                if begun is not None:
                    under_way.append((node, begun[0]))
        assert under_way, "nobody moves"
        for node, part in under_way:
            relay.end(node, part, arrived=True)
    return count


def test_one_receiver_takes_a_round_for_each_part() -> None:
    assert rounds(["a"] * 60, ["b"]) == 60


@pytest.mark.parametrize("receivers", [2, 8, 24])
def test_the_time_does_not_grow_with_the_number_of_nodes(receivers: int) -> None:
    nodes = [f"n{index}" for index in range(receivers)]
    assert rounds(["a"] * 120, nodes, uploads=8) <= 19  # 15 for one receiver
    assert rounds(["a"] * 60, nodes) <= 84
    assert rounds(["a", "b"] * 30, nodes) <= 72


def test_the_first_who_asks_gets_a_part_from_its_owner_and_the_next_from_whoever_has_it() -> None:
    relay = Relay(["a"], uploads=2)
    assert relay.begin("b") == (0, "a")
    assert relay.begin("c") is None  # b will have it sooner than two halves of the link would bring it to both
    relay.end("b", 0, arrived=True)
    assert relay.begin("c") == (0, "a") and relay.begin("d") == (0, "b")


def test_rare_parts_come_first() -> None:
    relay = Relay(["a", "a", "a"], uploads=3)
    relay.mark_found("b", [0, 1])
    assert relay.begin("c") == (2, "a")


def test_a_part_on_its_way_is_no_longer_as_rare_as_one_that_is_not() -> None:
    relay = Relay(["a", "b", "a"], uploads=3)
    relay.mark_found("c", [0, 2])
    assert relay.begin("d") == (1, "b")
    relay.mark_found("c", [])
    # Part 1 has one holder and one on the way, the others one holder each: the idle source of those that are alike.
    assert relay.begin("e") == (0, "a") and relay.begin("f") == (2, "a")
    relay.end("d", 1, arrived=True)
    assert relay.begin("f") == (1, "b")  # two have it, as two have or will have part 0: its sources send less


def test_nobody_sends_more_than_it_may_and_each_gives_first_what_it_alone_has() -> None:
    relay = Relay(["a"] * 3, uploads=2)
    assert [relay.begin("b") for _ in range(3)] == [(0, "a"), (1, "a"), None]
    relay.end("b", 0, arrived=True)
    assert relay.begin("b") == (2, "a")
    assert relay.begin("c") == (0, "b")  # a has no room
    assert relay.lacking("b") == [1, 2] and relay.list_orphaned("c") == []


def test_a_source_that_fails_is_passed_over_for_the_next() -> None:
    relay = Relay(["a"], uploads=1)
    relay.mark_found("b", [0])
    assert relay.begin("c") == (0, "a")
    relay.mark_failed(0, "a")
    relay.end("c", 0, arrived=False)
    assert relay.begin("c") == (0, "b")


def test_a_part_that_nobody_has_is_an_orphan_once_nobody_brings_it() -> None:
    relay = Relay(["a", "a"], uploads=2)
    assert relay.begin("b") == (0, "a") and relay.list_orphaned("b") == []
    relay.mark_failed(0, "a")
    assert relay.list_orphaned("b") == []  # it may still be found where it was
    relay.end("b", 0, arrived=False)
    assert relay.list_orphaned("b") == [0] and relay.list_orphaned("a") == [0]
    relay.mark_found("a", [0, 1])
    assert relay.list_orphaned("b") == []


def test_a_source_that_fails_again_and_again_is_believed_no_more() -> None:
    relay = Relay(["a"], uploads=1)
    for _ in range(2):
        assert relay.begin("b") == (0, "a")
        relay.mark_failed(0, "a")
        relay.mark_found("a", [0])
        relay.end("b", 0, arrived=False)
    assert relay.begin("b") is None and relay.list_orphaned("b") == [0]


def test_a_node_that_lost_everything_lacks_everything() -> None:
    relay = Relay(["a", "b"], uploads=1)
    relay.mark_found("b", [])
    assert relay.lacking("b") == [0, 1] and relay.list_orphaned("b") == [1]
