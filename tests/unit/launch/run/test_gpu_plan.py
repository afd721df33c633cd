"""`--dry-run` for GPUs on a machine that has none: every rank and engine is shown, what cannot fit is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.cli import run
from launch.config.layers import CONFIGS
from tests.unit.launch.run.test_gpu_memory import QWEN_7B, QWEN_32B

BIG = ["model.path=Qwen/Qwen2.5-32B", "learner.zero_stage=3"]
RECIPES = sorted((CONFIGS / "gpu").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two models config.json alone is here, as after `hf download`; nothing asks the hub."""
    for name, config in (("Qwen2.5-7B", QWEN_7B), ("Qwen2.5-32B", QWEN_32B)):
        folder = tmp_path / f"models--Qwen--{name}"
        (folder / "snapshots" / "abc").mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("abc")
        (folder / "snapshots" / "abc" / "config.json").write_text(json.dumps({"model_type": "qwen2", **config}))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))


def dry(capsys: pytest.CaptureFixture[str], config: str, *overrides: str) -> tuple[int, str, str]:
    code = run(["train", config, "--dry-run", *overrides])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_for_gpus_fits_and_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = dry(capsys, str(path))
    assert code == 0
    memory = [line.split(maxsplit=3)[3] for line in out.splitlines() if "memory (GPU)" in line]
    assert [line.split()[0] for line in memory] == ["model", "rank", "engine", "versions", "host", "host"]
    assert "of 80" in memory[1] and "of 80" in memory[2]
    assert "gradient_checkpointing: true" in out and "enforce_eager: false" in out


def test_the_comment_of_a_recipe_is_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    row = "11.5 activations of a row of 16384 tokens"
    _, one, _ = dry(capsys, "gpu/qwen2.5-7b-8xa100")
    assert f"4 x (15.2 weights + 18.2 gradients + 22.8 optimizer + {row} = 67.8 GB) of 80" in one
    assert "4 x (15.2 weights + 2.2 one step + 50.6 KV cache = 68.0 GB) of 80; room for 882," in one
    assert "121.8 GB over all ranks while a checkpoint is written" in one  # 7.6 G x (12 + 2 + 2)
    row_32b = "21.3 activations of a row of 16384 tokens"
    _, four, _ = dry(capsys, "gpu/qwen2.5-32b-32xa100")
    assert f"16 x (7.7 weights + 8.2 gradients + 24.6 optimizer + {row_32b} = 61.7 GB) of 80" in four
    assert "458.7 GB over all ranks while a checkpoint is written" in four  # 32.8 G x (12 + 2)
    assert "4 x 4 x (16.4 weights + 0.9 one step + 50.7 KV cache = 68.0 GB) of 80; room for 774," in four
    _, two, _ = dry(capsys, "gpu/qwen2.5-7b-16xa100")
    assert f"8 x (15.2 weights + 10.6 gradients + 11.4 optimizer + {row} = 48.8 GB) of 80" in two


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["learner.ranks=1"], "needs about 182 GB of a GPU's 80 (cluster.gpu_memory_gb): try learner."),
        (["model.gradient_checkpointing=false"], "try model.gradient_checkpointing=true"),
        (["learner.zero_stage=1"], "try learner.zero_stage=2"),
        (["algorithm.kl_coef=0.01"], "try learner.offload_reference=true"),
        (["learner.ranks=1", "model.gradient_checkpointing=false"], "model.gradient_checkpointing=true and"),
        (["engine.gpu_memory_utilization=0.2"], "try engine.gpu_memory_utilization=0.92"),
        ([*BIG, "learner.ranks=16", "cluster.gpu_memory_gb=70"], "try engine.tensor_parallel=2"),
        ([*BIG, "learner.ranks=8"], "try learner.ranks=16"),
        (["cluster.gpu_memory_gb=24"], "a learner rank needs"),
    ],
)  # fmt: skip
def test_what_cannot_fit_is_refused_with_the_key_to_change(
    changes: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = dry(capsys, "gpu/qwen2.5-7b-8xa100", *changes)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert said in err
    assert "memory (GPU)" in out  # the arithmetic is shown before it is refused


def test_the_key_that_is_proposed_helps(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["learner.ranks=1", "model.gradient_checkpointing=false"]
    for _ in range(3):
        code, _, err = dry(capsys, "gpu/qwen2.5-7b-8xa100", *changes)
        if code == 0:
            break
        changes += err.strip().rsplit("try ", 1)[1].split(" and ")
    assert code == 0, err


def test_a_model_that_is_not_here_cannot_be_counted(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = dry(capsys, "gpu/qwen2.5-7b-8xa100", "model.path=nobody/nothing")
    assert code == 0
    assert "memory (GPU)              unknown: model.path='nobody/nothing' is not on this machine" in out


def test_on_a_cpu_nothing_of_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = dry(capsys, "quickstart", "cluster.device=cpu")
    assert "memory (CPU)" in out and "memory (GPU)" not in out
    assert "cpu: model.gradient_checkpointing=false, engine.enforce_eager=true, rollout.threads=1" in out
