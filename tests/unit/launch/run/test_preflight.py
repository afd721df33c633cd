"""What a node holds of the weights is counted before anything starts."""

import json
from pathlib import Path

import pytest

from launch.run import preflight
from learners.algorithms.sft import SFTConfig
from rlsys.config import ClusterConfig, ModelConfig, RecipeConfig
from rlsys.device import DEVICES
from rlsys.errors import BadInput


def recipe(path: Path) -> RecipeConfig:
    return RecipeConfig(model=ModelConfig(path=str(path)), algorithm=SFTConfig())


@pytest.mark.parametrize(("tied", "numbers"), [(False, 1000), (True, 1000 + 10 * 5)])
def test_two_versions_are_counted_with_a_tied_head_in_each(
    tied: bool, numbers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "parameters", lambda _: 1000)
    config = {"tie_word_embeddings": tied, "vocab_size": 10, "hidden_size": 5, "architectures": ["Qwen3ForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "qwen3"}))
    assert preflight.weights_bytes(recipe(tmp_path), DEVICES["cpu"]) == 2 * 4 * numbers
    assert preflight.weights_bytes(recipe(tmp_path), DEVICES["cuda"]) == 2 * 2 * numbers


def test_a_place_without_room_for_them_is_one_line(tmp_path: Path) -> None:
    preflight.check_room("shm", str(tmp_path), 1)
    with pytest.raises(BadInput, match="docker run --shm-size"):
        preflight.check_room("shm", None, 10**18)
    with pytest.raises(BadInput, match="expected a whole path"):
        ClusterConfig(weights_dir="here")
