"""What a checkpoint copies stays as it was, whatever happens to the originals."""

import os
import sys
from collections import OrderedDict, namedtuple
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from learners.snapshot import Snapshot, as_data
from rlsys.errors import BadInput

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
    snapshot.wait_copied()
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


class Commands:
    """What a pickle may hold besides data: a call."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.fixture
def without_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its modules, the three whose classes a checkpoint may hold."""
    known = {"fp16.loss_scaler": "LossScaler", "zero.config": "ZeroStageEnum"}
    classes = {f"deepspeed.runtime.{module}": name for module, name in known.items()}
    for path, name in (classes | {"deepspeed.utils.tensor_fragment": "fragment_address"}).items():
        for end in range(1, path.count(".") + 2):
            package = ".".join(path.split(".")[:end])
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
        setattr(sys.modules[path], name, type(name, (), {}))


@pytest.mark.usefixtures("without_deepspeed")
@pytest.mark.parametrize("forced", [{}, {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}])
def test_a_checkpoint_is_read_as_data_whatever_its_reader_asks_for(
    forced: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    for name in names:
        monkeypatch.setenv(name, forced.get(name, ""))
        if name not in forced:
            monkeypatch.delenv(name)
    torch.save({"w": torch.ones(2), "step": 3}, tmp_path / "plain.pt")
    torch.save({"w": Commands()}, tmp_path / "hostile.pt")
    with as_data(tmp_path):
        assert torch.load(tmp_path / "plain.pt", weights_only=False)["step"] == 3
    with pytest.raises(BadInput, match=r"more than data \(.*\bsystem\b") as caught, as_data(tmp_path):
        torch.load(tmp_path / "hostile.pt", weights_only=False)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
    assert {name: os.environ[name] for name in names if name in os.environ} == forced
