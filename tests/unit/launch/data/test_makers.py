"""Which command makes a file that a recipe reads."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from launch.cli import run
from launch.config.layers import CONFIGS
from launch.data.makers import maker_of, with_maker

NAMED = re.compile(r"\bdata/[\w./-]+\.jsonl")


def test_every_file_that_a_recipe_reads_is_made_by_a_command() -> None:
    named = {path for file in CONFIGS.rglob("*.yaml") for path in NAMED.findall(file.read_text())}
    assert len(named) > 30
    assert [path for path in sorted(named) if maker_of(path) is None] == []


def test_a_file_is_made_by_its_own_command() -> None:
    assert maker_of("data/graph_rl/real/sft_300.jsonl") == "rlsys data prepare graph_rl"
    assert maker_of("data/wiki18/corpus.jsonl") == "rlsys data prepare wiki18"
    assert str(maker_of("data/long_cot/webinstruct_filtered.jsonl")).startswith("rlsys data solved ")
    others = ("data/icrl/other.jsonl", "data/mine/train.jsonl", "/data/icrl/train.jsonl", "icrl/train.jsonl", "data")
    assert [maker_of(path) for path in others] == [None] * len(others)


def test_only_a_missing_file_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "eval.sets.a: data/icrl/train.jsonl: cannot be read (No such file or directory), expected a path"
    explanation = "eval.sets.a: data/icrl/train.jsonl: no such file: `rlsys data prepare icrl` makes it"
    assert with_maker(line) == explanation
    assert with_maker(line.replace("No such file or directory", "Permission denied")).endswith("expected a path")
    (tmp_path / "data" / "icrl").mkdir(parents=True)
    (tmp_path / "data" / "icrl" / "train.jsonl").touch()
    assert with_maker(line) == line


COMMANDS = (
    ["train", "swirl"],
    ["train", "swirl", "--dry-run"],
    ["generate", "swirl", "--output", "o.jsonl"],
    ["play", "swirl"],
    ["eval", "swirl", "--checkpoint", "model"],
)


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_every_command_names_what_makes_its_missing_data(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("envs.made_worlds", {})
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    save_file({"weight": np.zeros(1, np.float32)}, tmp_path / "model" / "model.safetensors")
    code = run(argv)
    err = capsys.readouterr().err
    assert code == 2 and "`rlsys data prepare swirl` makes it" in err and err.count("\n") == 1
