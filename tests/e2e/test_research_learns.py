"""What ReSearch's tiny recipe shows: the reward alone teaches a second search. Its study has more seeds."""

from pathlib import Path

import pytest

from tests.e2e.runs import rlsys
from tests.makers.made import records


@pytest.mark.slow
def test_the_reward_alone_teaches_a_second_search(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = rlsys("train", "research/tiny", "--run-dir", str(run), "seed=100", "env.seed=100")  # the study has 0 to 4
    assert result.code == 0, result.output[-3000:]
    rows = records(run / "evaluations.jsonl")
    before, after = (next(row for row in rows if row["stage"] == stage) for stage in ("before", "test"))
    assert after["research/greedy/exact_match"] > before["research/greedy/exact_match"] + 0.4
    assert before["research/greedy/calls"] < 1.2 and after["research/greedy/calls"] > 1.8
    assert max(after[f"{way}/greedy/exact_match"] for way in ("direct", "cot", "rag")) < 0.1  # not by heart
