"""What this machine has of what docs/gpu.md says that a node needs. Figures are printed, and not judged."""

import os
import shutil
import sysconfig
from pathlib import Path

import psutil
import pytest
import torch

from launch.checks import machine, preflight
from learners.algorithms.sft import SFTConfig
from rlsys.config.model import ModelConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.system import memory
from tests.device import device, need_gpus


def test_the_driver_knows_the_cuda_of_torch_and_no_variable_hides_gpus_from_actors() -> None:
    print(f"driver {machine.driver_release()}, CUDA up to {machine.driver_cuda()}; torch {torch.__version__}")
    machine.check_cuda()


def test_triton_can_compile() -> None:
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "no C compiler: install gcc"
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    assert header.is_file(), f"{header} is missing: install the headers of this Python (python3.x-dev)"


def test_versions_of_a_7b_model_have_room() -> None:
    recipe = RecipeConfig(model=ModelConfig(path="Qwen/Qwen2.5-7B"), algorithm=SFTConfig())
    free, ram = shutil.disk_usage(memory.memory_root()).free, psutil.virtual_memory().total
    print(f"{memory.memory_root()}: {free / 1e9:.0f} GB free; RAM {ram / 1e9:.0f} GB")
    preflight.check_weights_room(recipe, device())


def test_gpus_of_a_node_reach_each_other() -> None:
    need_gpus(2)
    count = torch.cuda.device_count()
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    apart = [pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)]
    print(f"{len(pairs) - len(apart)} of {len(pairs)} pairs have access to each other's memory")
    source = torch.ones(1 << 28, device="cuda:0")
    target = torch.empty_like(source, device="cuda:1")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    target.copy_(source)
    torch.cuda.synchronize(0)
    begin.record(torch.cuda.current_stream(0))
    for _ in range(4):
        target.copy_(source)
    end.record(torch.cuda.current_stream(0))
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    assert float(target.sum()) == pytest.approx(float(1 << 28))
    print(f"GPU 0 to GPU 1: {4 * source.nbytes / begin.elapsed_time(end) / 1e6:.0f} GB/s")
