"""DeepSpeed looks at all of its ops for a list that only a CPU needs."""

import sys
from types import ModuleType

import pytest

from learners.rank import leave_op_unbuilt
from rlsys.system.device import DEVICES


def test_ops_are_looked_at_on_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    package, ops = ModuleType("deepspeed"), ModuleType("deepspeed.ops")
    package.ops = ops  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed", package)
    monkeypatch.setitem(sys.modules, "deepspeed.ops", ops)
    leave_op_unbuilt(DEVICES["cuda"])  # the module has no such list: looking for it would fail
    with pytest.raises(AttributeError):
        leave_op_unbuilt(DEVICES["cpu"])
    ops.__compatible_ops__ = {}  # type: ignore[attr-defined]
    leave_op_unbuilt(DEVICES["cpu"])
    assert ops.__compatible_ops__ == {"deepspeed_shm_comm": False}  # type: ignore[attr-defined]
