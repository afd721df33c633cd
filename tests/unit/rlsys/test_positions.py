"""The longest sequence of a model, as vLLM reads it from config.json."""

from typing import Any

import pytest

from rlsys.positions import positions_of, rope_change_of


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({}, None),
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),  # Cohere's
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.0}}, 8192),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, 4096),
        # These have the stretched length in the file.
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 131072, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, 131072),
        ({"max_position_embeddings": 131072, "rope_scaling": {"type": "longrope", "factor": 32.0}}, 131072),
        (
            {
                "model_type": "gemma3_text",
                "max_position_embeddings": 131072,
                "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 4096,
                "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2}, "sliding_attention": {}},
            },
            8192,
        ),
    ],
)
def test_positions_and_the_stretch_of_rope(config: dict[str, Any], longest: int | None) -> None:
    assert positions_of(config) == longest


@pytest.mark.parametrize(
    ("config", "change"),
    [
        ({"max_position_embeddings": 4096}, None),
        ({"max_position_embeddings": 131072, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, None),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 4.0}}, (4096, "dynamic")),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope", "long_factor": [1.0]},
            },
            (4096, "longrope"),
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 4096},
            },
            (4096, "longrope"),
        ),
    ],
)
def test_beyond_which_positions_a_rope_changes(config: dict[str, Any], change: tuple[int, str] | None) -> None:
    assert rope_change_of(config) == change
