"""A checkpoint of another division, as files on the disk, given to an engine: by hand, without DeepSpeed."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learners import redivide
from rlsys.errors import BadInput

SHAPES = [OrderedDict(w=torch.Size([2, 3])), OrderedDict(b=torch.Size([3]))]
# Of two ranks under ZeRO-3: six numbers in threes; three numbers in twos, with a zero.
PARTS = [([1, 2, 3], [7, 8]), ([4, 5, 6], [9, 0])]


def flat(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def moments(numbers: list[int]) -> dict[str, torch.Tensor]:
    return {
        "step": torch.tensor(5.0),
        "exp_avg": flat(*(10 * number for number in numbers)),
        "exp_avg_sq": flat(*(100 * number for number in numbers)),
    }


def save(folder: Path, *, stepped: bool = True, **more: Any) -> Path:
    """The files of two ranks under ZeRO-3."""
    folder.mkdir(parents=True)
    for rank, part in enumerate(PARTS):
        state = {group: moments(numbers) for group, numbers in enumerate(part)} if stepped else {}
        optimizer = {
            "fp32_flat_groups": [flat(*numbers) for numbers in part],
            "optimizer_state_dict": {"state": state, "param_groups": []},
            **more,
        }
        name = f"zero_pp_rank_{rank}_mp_rank_00"
        torch.save({"optimizer_state_dict": optimizer}, folder / f"{name}_optim_states.pt")
        torch.save({"param_shapes": SHAPES, "step": 5}, folder / f"{name}_model_states.pt")
    return folder


class Optimizer:
    """What DeepSpeed's of ZeRO-1 shows of one rank of two: the first group in fours, the second in twos."""

    def __init__(self) -> None:
        self.single_partition_of_fp32_groups = [torch.zeros(4), torch.zeros(2)]
        self.given: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"base_optimizer_state": {"state": {}, "param_groups": ["own"]}, "clip_grad": 0.5}

    def load_state_dict(self, states: list[Any], *, load_from_fp32_weights: bool) -> None:
        assert load_from_fp32_weights and len(states) == 2
        self.given = states[1]


def engine(shapes: Any = SHAPES) -> Any:
    parameters = {torch.nn.Parameter(torch.zeros(shape)): name for group in shapes for name, shape in group.items()}
    return SimpleNamespace(
        optimizer=Optimizer(), param_names=parameters, zero_optimization_stage=lambda: 1,
        _get_zero_param_shapes=lambda: shapes,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _second_of_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)


def test_a_rank_gets_what_it_would_have_saved_and_whole_weights(tmp_path: Path) -> None:
    target = engine()
    assert redivide.load(target, save(tmp_path / "state"), ranks=2, zero_stage=3)["step"] == 5
    optimizer_state = target.optimizer.given
    assert [part.tolist() for part in optimizer_state["single_partition_of_fp32_groups"]] == [[5, 6, 0, 0], [9, 0]]
    state = optimizer_state["base_optimizer_state"]["state"]
    assert state[0]["exp_avg"].tolist() == [50, 60, 0, 0] and state[1]["exp_avg_sq"].tolist() == [900, 0]
    assert [entry["step"].item() for entry in state.values()] == [5, 5]
    assert state[0]["step"] is not state[1]["step"]  # AdamW counts in place
    assert optimizer_state["base_optimizer_state"]["param_groups"] == ["own"] and optimizer_state["clip_grad"] == 0.5
    weights = {name: parameter.tolist() for parameter, name in target.param_names.items()}
    assert weights == {"w": [[1, 2, 3], [4, 5, 6]], "b": [7, 8, 9]}


def test_there_are_no_moments_before_the_first_step(tmp_path: Path) -> None:
    target = engine()
    redivide.load(target, save(tmp_path / "state", stepped=False), ranks=2, zero_stage=3)
    assert target.optimizer.given["base_optimizer_state"]["state"] == {}
    assert target.optimizer.given["single_partition_of_fp32_groups"][0].tolist() == [5, 6, 0, 0]


def test_what_cannot_be_right_is_one_line(tmp_path: Path) -> None:
    folder = save(tmp_path / "state")
    with pytest.raises(BadInput, match=r"0 files .*rank_2.*expected 1"):
        redivide.load(engine(), folder, ranks=3, zero_stage=3)
    with pytest.raises(BadInput, match="b has 3 numbers, expected 4"):
        redivide.load(engine([SHAPES[0], OrderedDict(b=torch.Size([4]))]), folder, ranks=2, zero_stage=3)
    with pytest.raises(BadInput, match="c has 0 numbers, expected 1"):
        redivide.load(engine([*SHAPES, OrderedDict(c=torch.Size([1]))]), folder, ranks=2, zero_stage=3)
    with pytest.raises(BadInput, match="parameter_alignment"):
        redivide.load(engine(), save(tmp_path / "aligned", param_alignment_paddings=[[0], [1]]), ranks=2, zero_stage=3)
    cut_short = save(tmp_path / "short", fp32_flat_groups=[flat(1, 2), flat(7, 8)])
    with pytest.raises(BadInput, match="damaged: master: 4 of 6"):
        redivide.load(engine(), cut_short, ranks=2, zero_stage=3)
