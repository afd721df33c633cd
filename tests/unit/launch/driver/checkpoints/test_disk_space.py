"""Room for a run's checkpoints: the sum by hand, and a disk that is too small refused before anything starts."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch.checks import machine
from launch.checks.model_size import parameters
from launch.cli import run
from launch.config.compose import compose
from launch.driver.checkpoints.disk_space import Room, check_disk, room_for, when_full
from rlsys.config.cluster import ClusterConfig
from rlsys.system.device import DEVICES
from tests.refused import refused

QUICK = ["stages.sft=null", "stages.rl.steps=100", "checkpoint.every=20"]


def room(*overrides: str, device: str = "cpu") -> Room:
    need = room_for(compose("quickstart", [*QUICK, *overrides]), DEVICES[device])
    assert need is not None
    return need


def test_a_checkpoint_is_the_model_and_what_adam_knows() -> None:
    count = parameters(compose("quickstart", QUICK).recipe)
    assert count is not None
    assert room().each == 20 * count  # 4 for the hub; 4, their copy and two moments for the ranks
    assert room(device="cuda").each == 16 * count  # in 16 bits: 122 GB of 7.6e9 parameters
    ppo = room("algorithm.name=ppo")
    assert room("learner.zero_stage=3").each == 16 * count  # which keeps no second copy of the weights
    assert room("learner.zero_stage=3", device="cuda").each == 14 * count
    assert ppo.each == 36 * count and ppo.extra == 0  # a critic has no copy for the hub
    assert room("checkpoint.best=greedy/accuracy").extra == 4 * count


def test_of_a_cluster_that_is_joined_the_smaller_weights_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "local_gpus", lambda: 0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert machine.smallest_device(ClusterConfig()) == DEVICES["cpu"]
    assert machine.smallest_device(ClusterConfig(address="10.0.0.1:6379")) == DEVICES["cuda"]
    assert machine.smallest_device(ClusterConfig(address="10.0.0.1:6379", device="cpu")) == DEVICES["cpu"]


def test_a_model_to_compare_with_takes_room_where_a_checkpoint_holds_it() -> None:
    kl = "algorithm.kl_coef=0.01"
    count = parameters(compose("quickstart", QUICK).recipe)
    assert count is not None
    assert room(kl).extra == 0  # the first stage is compared with the model that the run began with
    second = ("stages.sft.steps=5", "stages.rl.steps=100", "checkpoint.every=20", kl)

    def beside(*overrides: str) -> int:
        need = room_for(compose("quickstart", [*second, *overrides]), DEVICES["cpu"])
        assert need is not None
        return need.extra

    assert beside("learner.reference=stage") == 4 * count
    assert beside("learner.reference=stage", "checkpoint.best=greedy/accuracy") == 8 * count
    assert beside("learner.reference=run") == 0
    assert beside("learner.reference=stage", "algorithm.kl_coef=0") == 0


def test_one_more_than_are_kept_lies_there_while_it_is_written_and_no_more_than_are_made() -> None:
    assert room("checkpoint.keep=3").most == 4
    assert room("checkpoint.keep=3", "stages.rl.steps=40").most == 4  # one may come by time after each step
    assert room("checkpoint.keep=3", "stages.rl.steps=3").most == 3
    by_steps = "checkpoint.every_s=null"
    assert room("checkpoint.keep=3", "stages.rl.steps=40", by_steps).most == 2
    assert room("stages.rl.steps=5", by_steps).most == 1
    assert room("stages.rl.steps=5", by_steps, "checkpoint.every=null").most == 1


def test_a_disk_that_is_too_small_is_refused_with_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need = room()
    old = tmp_path / "run" / "checkpoints" / "step-000020" / "hf"
    old.mkdir(parents=True)
    (old / "model.safetensors").write_bytes(b"x" * 1000)
    free = SimpleNamespace(free=need.needed - 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    check_disk(need, tmp_path / "run")  # its own checkpoints make room for newer ones
    check_disk(None, tmp_path / "run")
    free.free -= 1
    with refused(says="lower checkpoint.keep=2, free some"):
        check_disk(need, tmp_path / "run")
    free.free = need.each
    with refused(says="are free: free some, or give"):
        check_disk(room("checkpoint.keep=1"), tmp_path / "elsewhere" / "run")
    assert "lower checkpoint.keep=2" in when_full(need)


def test_the_plan_has_the_line_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["train", "quickstart", "--dry-run", "--run-dir", str(tmp_path / "run"), *QUICK]
    assert run(argv) == 0
    assert f"checkpoints (disk)        {room().describe()}; " in capsys.readouterr().out
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=9_000_000))
    assert run(argv) == 2
    assert "too little room for checkpoints" in capsys.readouterr().err
    assert run([*argv, "cluster.device=cuda"]) == 0  # to be run on a machine that has GPUs, whose disk is another
    assert "are free in" not in capsys.readouterr().out
    assert run([arg for arg in argv if arg != "--dry-run"]) == 2  # before Ray
    assert "too little room for checkpoints" in capsys.readouterr().err
