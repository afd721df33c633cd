"""Run directories of another user: what hangs, fills the memory or names no value is refused, or noted and left out."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from launch.config.compose import compose, to_yaml
from launch.run_dir.directory import read_directory
from launch.run_dir.lines import LONGEST, DamageLog, read_lines
from launch.run_dir.runs import DEEPEST, read_config
from launch.run_dir.state import is_locked
from tests.makers.run_directory import run_directory
from tests.refused import refused


@pytest.mark.parametrize(
    "text",
    [
        "x: &a [1]\ny: *a\n",
        "x: &a {y: *a}\n",
        "x: 2024-99-99\n",
        "x: " + "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
        "x: \xff",
    ],
)
def test_a_configuration_that_no_run_writes_is_refused(tmp_path: Path, text: str) -> None:
    file = run_directory(tmp_path / "a") / "config.yaml"
    file.write_bytes(file.read_bytes() + text.encode("latin-1"))
    with refused(where="config.yaml", says="YAML"):
        read_config(tmp_path / "a")


def test_the_configuration_of_a_run_has_no_alias(tmp_path: Path) -> None:
    file = run_directory(tmp_path / "a") / "config.yaml"
    file.write_text(to_yaml(compose("quickstart", [])))
    assert read_config(tmp_path / "a")["stages"]


def test_a_pipe_is_no_lock(tmp_path: Path) -> None:
    path = run_directory(tmp_path / "a")
    os.mkfifo(path / ".lock")
    assert not is_locked(path) and read_directory(path).state == "killed"


def test_a_line_of_any_length_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "step-000001.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as lines:
        lines.write(b'{"a": 1}\n')
        lines.write(bytes(LONGEST + 10) + b"\n")
        lines.write(b'{"a": 2}\n')
    damage = DamageLog()
    assert [record["a"] for record in read_lines(file, damage)] == [1, 2]
    assert len(damage.lines()) == 1 and "line 2" in damage.lines()[0]
