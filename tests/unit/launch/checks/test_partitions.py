"""Which models can be divided among the processes of an engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.checks import partitions
from launch.config import compose
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput


@pytest.mark.parametrize(("heads", "kv_heads", "inner", "ways"), [(4, 2, 384, 4), (6, 2, 384, 2), (28, 4, 18944, 2)])
def test_partitions_of_whole_heads_are_fine(heads: int, kv_heads: int, inner: int, ways: int, tmp_path: Path) -> None:
    partitions.check(divided(tmp_path, heads, kv_heads, inner, ways), str(tmp_path))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "inner", "ways", "said"),
    [
        (4, 2, 384, 3, "=3: expected a divisor of the model's 4 attention heads"),
        (12, 4, 384, 6, "a divisor or multiple of its 4 key-value heads"),
        (4, 2, 386, 4, "=4: expected a divisor of the model's intermediate_size=386"),
    ],
)
def test_partitions_that_would_cut_a_head_are_refused(
    heads: int, kv_heads: int, inner: int, ways: int, said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=said):
        partitions.check(divided(tmp_path, heads, kv_heads, inner, ways), str(tmp_path))


def divided(folder: Path, heads: int, kv_heads: int, inner: int, ways: int) -> RecipeConfig:
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": inner}
    (folder / "config.json").write_text(json.dumps(sizes))
    return compose.compose("quickstart", [f"model.path={folder}", f"engine.tensor_parallel={ways}"]).recipe


def test_what_is_not_here_is_left_to_the_engine(tmp_path: Path) -> None:
    asked = divided(tmp_path, 4, 2, 384, 3)
    partitions.check(asked, "nobody/never-fetched")
    (tmp_path / "config.json").write_text(json.dumps({"n_head": 4}))
    partitions.check(asked, str(tmp_path))
    with pytest.raises(BadInput, match="the model's 4 attention heads"):
        partitions.check(asked, None)  # the scratch model's
