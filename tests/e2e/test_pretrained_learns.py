"""A pretrained model learns what it nearly could: docs/results/pretrained.md, with a third of its steps."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import smollm2
from tests.e2e.runs import rlsys

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
STEPS = 30  # greedy .06 to .33 of 100 sums by hand, with 0.09 for 95 % of draws on either side


def test_sums_of_two_numbers_that_are_said_freely(tmp_path: Path) -> None:
    try:
        model = smollm2.fetch()
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"SmolLM2 cannot be fetched: {error}")
    run, steps = tmp_path / "run", [f"stages.rl.steps={STEPS}", "stages.rl.eval.every=0"]
    done = rlsys("train", "worlds/sums_said", f"model.path={model}", "--run-dir", str(run), *steps)
    assert done.code == 0, done.output[-3000:]
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    greedy = {each["when"]: each["greedy/accuracy"] for each in lines}
    assert greedy["after"] > greedy["before"] + 0.12
