"""`rlsys merge` of what cannot be merged."""

import json
from pathlib import Path

import pytest

from launch.cli import run
from rlsys.adapters import CONFIG, WEIGHTS, Adapter


def test_the_folder_of_an_adapter_alone_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As peft writes it: without config.json and tokenizer of the model under it."""
    folder, output = tmp_path / "adapter", tmp_path / "merged"
    folder.mkdir()
    (folder / WEIGHTS).touch()
    words = ["merge", "--checkpoint", str(folder), "--output", str(output)]
    (folder / CONFIG).write_text(json.dumps({"r": 4}))
    assert run(words) == 2 and CONFIG in capsys.readouterr().err
    Adapter(base="Qwen/Qwen3-1.7B", rank=4, alpha=8.0, targets=("q_proj",)).write(folder)
    assert run(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(part in error for part in ("config.json", "Qwen/Qwen3-1.7B", str(folder)))
    (folder / CONFIG).unlink()
    assert run(words) == 2 and "neither a run directory" in capsys.readouterr().err
    assert not output.exists()
