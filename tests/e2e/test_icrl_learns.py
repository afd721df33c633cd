"""What ICRL's tiny recipe shows: what examples in the prompt teach stays when they go. Its study has more seeds."""

from pathlib import Path

import pytest

from tests.e2e.runs import rlsys
from tests.makers.made import records


@pytest.mark.slow
def test_the_search_stays_when_the_examples_go(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = rlsys("train", "icrl/tiny", "--run-dir", str(run), "seed=100", "env.seed=100")
    assert result.code == 0, result.output[-3000:]
    rows = records(run / "evaluations.jsonl")
    assert rows[0]["zero_shot/sampled/exact_match"] < 0.05  # before any example was rewarded
    assert rows[-1]["zero_shot/greedy/exact_match"] >= 0.8
    steps = records(run / "metrics.jsonl")
    first = next(row for row in steps if row["stage"] == "shots_3")
    assert first["episode/calls"] < 0.4
    alone = [row.get("episode/calls", 0.0) for row in steps if row["stage"] == "shots_0"]
    assert min(alone[-5:]) > 0.8  # searches for each episode, without examples
