"""A checkpoint of two ranks goes on with one, three, or under another ZeRO stage, to the weights of one rank."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learners.rank import LearnerRank
from tests.device import device, need_gpus
from tests.e2e.learner_cases import bare_process, save_model, spawn, spec
from tests.e2e.runs import rlsys, rows
from tests.e2e.test_learner_rank import begin, samples_of, save, tensors
from tests.makers.made import make_shards

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SFT = """
name: sft
env: {name: calculator, train_tasks: 64, held_out_tasks: 8}
reward: {name: answer}
learner: {threads: 1, lr: 2.0e-3}
loop: {groups_per_step: 8}
eval: {tasks: 8, every: 2}
stages: [{name: sft, kind: sft, steps: 4}]
"""
Weights = dict[str, torch.Tensor]


def run_rank(
    rank: int, world_size: int, port: int, path: str, folder: str, zero_stage: int, saved: str, dtype: str
) -> None:
    """Steps 0 and 1 to a checkpoint, or steps 2 and 3 from one."""
    bare_process(rank)
    rank_device = dataclasses.replace(device(), held_dtype=None)  # a CPU's rank would hold float32, whatever `dtype` is
    learner = LearnerRank(spec(rank, world_size, port, dtype=dtype, device=rank_device))
    begin(learner, path, zero_stage=zero_stage)
    if saved:
        learner.load(Path(saved))
    weights = [tensors(learner)]
    for step in range(learner.step, learner.step + 2):
        shard = make_shards(samples_of(step), 40, 0, world_size)[rank]
        assert learner.update(shard).applied
        weights.append(tensors(learner))
    save(learner, Path(folder) / "learner")
    if rank == 0:
        torch.save((learner.step, weights), Path(folder) / "weights.pt")
    learner.close()


def played(
    folder: Path, path: str, world_size: int, zero_stage: int, saved: Path | None = None, dtype: str = "float32"
) -> tuple[int, list[Weights]]:
    folder.mkdir()
    source = str(saved / "learner") if saved is not None else ""
    spawn(run_rank, world_size, path, str(folder), zero_stage, source, dtype, deadline_s=300)
    result: tuple[int, list[Weights]] = torch.load(folder / "weights.pt")
    return result


def apart(ours: Weights, theirs: Weights) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((tensor.float() - theirs[name].float()).abs().max()) for name, tensor in ours.items())


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_a_run_of_two_ranks_goes_on_with_others(zero_stage: int, tmp_path: Path) -> None:
    """Steps are of 1e-3. Three ranks divide hardly any parameter evenly."""
    need_gpus(3)
    path = save_model(tmp_path / "model")
    undivided = tmp_path / "undivided"
    played(undivided, path, 1, 2)
    _, expected = played(tmp_path / "reference", path, 1, 2, undivided)
    _, before = played(tmp_path / "two", path, 2, zero_stage)
    for ranks, stage in ((1, 2), (1, 3), (2, 1), (3, 5 - zero_stage), (3, zero_stage)):
        folder = tmp_path / f"{ranks}-{stage}"
        step, after = played(folder, path, ranks, stage, tmp_path / "two")
        assert step == 4 and apart(after[0], before[-1]) == 0.0
        assert apart(after[-1], expected[-1]) < 2e-5, (ranks, stage)
        if ranks == 3:  # and back again
            _, back = played(tmp_path / f"{ranks}-{stage}-back", path, 2, zero_stage, folder)
            assert apart(back[0], after[-1]) == 0.0


def test_weights_in_16_bits_are_those_that_were_saved(tmp_path: Path) -> None:
    """Under ZeRO-1 DeepSpeed has another optimizer for them, with parts of another form."""
    need_gpus(2)
    path = save_model(tmp_path / "model")
    _, before = played(tmp_path / "two", path, 2, 1, dtype="bfloat16")
    _, baseline = played(tmp_path / "same", path, 2, 1, tmp_path / "two", dtype="bfloat16")
    for ranks, stage in ((1, 1), (2, 3), (1, 2)):
        folder = tmp_path / f"{ranks}-{stage}"
        _, after = played(folder, path, ranks, stage, tmp_path / "two", dtype="bfloat16")
        assert apart(after[0], before[-1]) == 0.0
        assert apart(after[-1], baseline[-1]) < 4e-3, (ranks, stage)
        _, back = played(tmp_path / f"{ranks}-{stage}-back", path, 2, 1, folder, dtype="bfloat16")
        assert apart(back[0], after[-1]) == 0.0


def test_the_command_continues_a_run_of_two_ranks_with_one(tmp_path: Path) -> None:
    recipe, resumed, plain = tmp_path / "recipe.yaml", tmp_path / "there", tmp_path / "here"
    recipe.write_text(SFT)
    argv = ["train", str(recipe), "--run-dir"]
    assert rlsys(*argv, str(plain)).code == 0
    assert rlsys(*argv, str(resumed), "learner.ranks=2", "stages.sft.steps=2").code == 0
    result = rlsys(*argv, str(resumed), "learner.ranks=1", "learner.zero_stage=3", "--resume")
    assert result.code == 0, result.output
    assert "learner.ranks=2 learner.zero_stage=2, now learner.ranks=1 learner.zero_stage=3" in result.output
    ours, theirs = ([row["loss/nll"] for row in rows(run)] for run in (resumed, plain))
    assert ours == pytest.approx(theirs, abs=1e-4) and len(ours) == 4
    (mine,), (expected,) = ((run / "checkpoints/step-000004/hf").glob("*.safetensors") for run in (resumed, plain))
    assert apart(load_file(mine), load_file(expected)) < 1e-4  # steps of 2e-3
