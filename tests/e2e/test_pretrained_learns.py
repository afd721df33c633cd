"""A pretrained model learns what it nearly could: docs/results/pretrained.md, with fewer steps."""

import subprocess
from pathlib import Path

import pytest

from tests import smollm2
from tests.e2e.runs import rlsys
from tests.makers.made import records

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.parametrize(
    ("recipe", "steps", "kind"),
    [
        ("worlds/sums_said", 30, "greedy"),  # .11 to .45 and .53 after 25; of 100, 95 % of draws are within .09
        ("worlds/calculator_smollm2", 20, "sampled"),  # .33 to .63
    ],
)
def test_a_pretrained_model_learns(tmp_path: Path, recipe: str, steps: int, kind: str) -> None:
    try:
        model = smollm2.fetch()
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"SmolLM2 cannot be fetched: {error}")
    run, keys = tmp_path / "run", [f"stages.rl.steps={steps}", "stages.rl.eval.every=0"]
    result = rlsys("train", recipe, f"model.path={model}", "--run-dir", str(run), *keys)
    assert result.code == 0, result.output[-3000:]
    lines = records(run / "evaluations.jsonl")
    accuracy = {line["when"]: line[f"{kind}/accuracy"] for line in lines if line["stage"] == "rl"}
    assert accuracy["after"] > accuracy["before"] + 0.12
