"""What a checkpoint copies stays as it was, whatever happens to the originals."""

from collections import OrderedDict, namedtuple

import pytest
import torch

from learners.snapshot import Snapshot

Pair = namedtuple("Pair", "first second")


def test_copies_keep_values_classes_and_ties_and_share_nothing_with_the_originals() -> None:
    tensor, buffer = torch.arange(6.0), torch.arange(100.0)
    state = OrderedDict(tied=tensor, again=tensor, view=buffer[10:13], parts=[Pair(tensor.clone(), 2), (3, {"a": [4]})])
    state._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    snapshot = Snapshot()
    copied = snapshot.on_host(state)
    expected = torch.arange(6.0)
    tensor.zero_()
    buffer.zero_()
    state["parts"][1][1]["a"].append(5)
    assert type(copied) is OrderedDict and copied._metadata == {"": {"version": 1}}
    assert torch.equal(copied["tied"], expected) and copied["tied"] is copied["again"]
    assert copied["view"].tolist() == [10.0, 11.0, 12.0]
    assert copied["view"].untyped_storage().nbytes() == 12  # not the buffer that it was a view of
    assert isinstance(copied["parts"][0], Pair) and torch.equal(copied["parts"][0].first, expected)
    assert copied["parts"][1] == (3, {"a": [4]})


def test_a_tensor_is_copied_once_until_the_originals_may_change() -> None:
    tensor, snapshot = torch.ones(3), Snapshot()
    first = snapshot.on_host(tensor)
    assert snapshot.on_host({"hf": tensor})["hf"] is first
    snapshot.copied()
    tensor.zero_()
    assert snapshot.on_host(tensor).tolist() == [0, 0, 0] and first.tolist() == [1, 1, 1]


def test_writers_run_in_order_once_and_none_is_left_after_one_that_fails() -> None:
    done: list[int] = []
    snapshot = Snapshot()
    snapshot.then(lambda: done.append(1))
    snapshot.then(lambda: done.append(2))
    snapshot.write()
    snapshot.then(lambda: 1 / 0)
    snapshot.then(lambda: done.append(3))
    with pytest.raises(ZeroDivisionError):
        snapshot.write()
    snapshot.write()
    assert done == [1, 2]
