"""What ICRL's miniature shows: what examples in the prompt teach stays without them. Its study has more seeds."""

from pathlib import Path

import pytest

from tests.e2e.runs import rlsys
from tests.makers.made import records

# The order of the paper. With a step of one example between, the first step without any searches in most episodes
# already (docs/icrl.json, arm `examples`), and could not say what is learned after it.
NO_STEP_BETWEEN = ("stages.shots_1=null", "stages.shots_2.steps=12")


@pytest.mark.slow
def test_the_search_is_learned_where_no_example_shows_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = rlsys("train", "icrl/tiny", "--run-dir", str(run), "seed=100", "env.seed=100", *NO_STEP_BETWEEN)
    assert result.code == 0, result.output[-3000:]
    rows = records(run / "evaluations.jsonl")
    assert rows[0]["zero_shot/sampled/exact_match"] < 0.05  # before any example was rewarded
    assert rows[-1]["zero_shot/greedy/exact_match"] >= 0.8
    steps = records(run / "metrics.jsonl")
    first = next(row for row in steps if row["stage"] == "shots_3")
    assert first["episode/calls"] < 0.4
    alone = [row.get("episode/calls", 0.0) for row in steps if row["stage"] == "shots_0"]
    assert alone[0] < 0.6  # what three and two examples taught is hardly there without them
    assert min(alone[-5:]) > 0.8  # searches for each episode, without examples
