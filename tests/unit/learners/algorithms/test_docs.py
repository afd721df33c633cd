"""docs/algorithms.md: the example is an algorithm, the settings are valid, and the table names what there is."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml

from launch.config.compose import compose
from learners.algorithms import ALGORITHMS, make_algorithm
from rlsys.choices import choose
from tests.golden.tiny import curve
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "algorithms.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("block", blocks("yaml"))
def test_the_settings_of_the_papers_are_valid(block: str) -> None:
    options = yaml.safe_load(block)["algorithm"]
    make_algorithm(choose("algorithm", ALGORITHMS, options["name"]).schema(**options))


def test_the_table_names_every_algorithm() -> None:
    assert set(ALGORITHMS) <= set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))


def test_the_example_is_chosen_by_name_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [block for block in blocks("python") if "class Raft" in block]
    (tmp_path / "raft.py").write_text(code)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    run = compose("quickstart", ["algorithm.name=raft.Raft", "algorithm.min_reward=0.5"])
    (config,) = [stage.config.algorithm for stage in run.stages if stage.kind == "rl"]
    algorithm = make_algorithm(config)
    assert type(algorithm).__name__ == "Raft" and config.min_reward == 0.5
    torch.set_num_threads(1)
    even = curve(algorithm, lambda groups: groups)["even"]
    assert even[-1] > even[0] + 0.05
    del sys.modules["raft"]
