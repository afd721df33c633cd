"""Headers of safetensors files: the count is exact, and a file that is not whole is named."""

import json
from pathlib import Path

import pytest

from launch.checks.safetensors_files import INDEX, parameters_in
from rlsys.errors import BadInput


def save(path: Path, **shapes: list[int]) -> bytes:
    import torch
    from safetensors.torch import save_file

    save_file({name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}, path)
    return path.read_bytes()


def test_parameters_are_counted_over_all_files(tmp_path: Path) -> None:
    assert parameters_in(tmp_path, "m") is None
    save(tmp_path / "a.safetensors", wide=[7, 3], bias=[5], scalar=[])
    save(tmp_path / "b.safetensors", more=[2, 2, 2])
    assert parameters_in(tmp_path, "m") == 21 + 5 + 1 + 8
    save(tmp_path / "model.safetensors", wide=[2, 2])  # the others are the same weights in another cut
    assert parameters_in(tmp_path, "m") == 4
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"more": "b.safetensors"}}))
    assert parameters_in(tmp_path, "m") == 8


def test_what_is_not_whole_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    whole = save(path, w=[4, 4])
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    damaged = json.dumps({"w": {"dtype": "BF16", "shape": [4, 4]}}).encode()
    for content in (whole[:-1], whole + b"x", whole[:20], b"", pointer, len(damaged).to_bytes(8, "little") + damaged):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="no whole safetensors file") as caught:
            parameters_in(tmp_path, "model.path='m'")
        assert "model.path='m': model.safetensors" in str(caught.value)


def test_a_shard_that_the_index_names_has_to_be_there(tmp_path: Path) -> None:
    save(tmp_path / "model-00001-of-00002.safetensors", w=[4, 4])
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"w": names[0], "v": names[1]}}))
    with pytest.raises(BadInput, match=f"{names[1]} is missing, which {INDEX} names"):
        parameters_in(tmp_path, "m")
    (tmp_path / INDEX).write_text("{}")
    with pytest.raises(BadInput, match="not readable"):
        parameters_in(tmp_path, "m")
