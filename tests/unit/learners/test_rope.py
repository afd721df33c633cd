"""A larger RoPE base makes a longer window, for a model that was made for fewer positions than the window has."""

import json
import shutil
from pathlib import Path

from learners.rope import copy_scaled
from rlsys.positions import positions_of
from tests.refused import refused


def test_a_scaled_copy_has_the_positions_of_the_window(source: Path, tmp_path: Path) -> None:
    short = shortened(source, tmp_path / "short", 64)
    copy = copy_scaled(short, 10.0, tmp_path / "copy", 256)
    config = json.loads((Path(copy) / "config.json").read_text())
    assert (positions_of(config), config["rope_parameters"]["rope_theta"]) == (256, 100_000)
    assert copy_scaled(copy, 10.0, tmp_path / "other", 256) == copy and positions_of(config) == 256
    again = json.loads((Path(copy_scaled(copy, 10.0, tmp_path / "again", 512)) / "config.json").read_text())
    assert (positions_of(again), again["rope_parameters"]) == (512, config["rope_parameters"])
    longer = copy_scaled(short, 10.0, tmp_path / "longer", 32)  # a shorter window takes nothing away
    assert positions_of(json.loads((Path(longer) / "config.json").read_text())) == 64


def test_rope_that_counts_from_the_models_own_positions_is_not_lengthened_in_addition(
    source: Path, tmp_path: Path
) -> None:
    short = shortened(source, tmp_path / "short", 64, {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    with refused("learner.rope_theta_scale", says="dynamic"):
        copy_scaled(short, 10.0, tmp_path / "copy", 256)
    assert copy_scaled(short, 10.0, tmp_path / "copy", 64) == str(tmp_path / "copy")


def shortened(source: Path, folder: Path, positions: int, rope: dict[str, object] | None = None) -> str:
    """The model with fewer positions, and perhaps a stretched RoPE."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": positions}
    (folder / "config.json").write_text(json.dumps(config | ({"rope_parameters": rope} if rope else {})))
    return str(folder)
