"""`rlsys train research/tiny`, cut short: a policy and its baselines in one table, over one real retriever."""

from pathlib import Path

import pytest

from tests.e2e.runs import left_behind, rlsys, trajectories
from tests.makers.made import records

SHORT = ["stages.sft.steps=40", "stages.rl.steps=2", "stages.rl.loop.groups_per_step=4", "eval.tasks=4"]
MORE = ["iter_retgen", "ircot", "o2_searcher"]  # that tiny does not teach


@pytest.mark.slow
def test_every_baseline_is_a_row_beside_the_policy(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sets = [f"stages.test.eval.sets.{name}.env.protocol={name}" for name in MORE]
    sets += [f"stages.test.eval.sets.{name}.reward.format_gate=false" for name in MORE]
    result = rlsys("train", "research/tiny", "--run-dir", str(run), *SHORT, *sets)
    assert result.code == 0, result.output[-3000:]
    evaluations = records(run / "evaluations.jsonl")
    (test,) = [row for row in evaluations if row["stage"] == "test"]
    names = ["research", "direct", "cot", "rag", *MORE]
    assert all(f"{name}/greedy/exact_match" in test and test[f"{name}/greedy/failures"] == 0 for name in names)
    for name in ("direct", "cot", "rag"):
        assert test[f"{name}/greedy/turns"] == 1.0
    assert test["iter_retgen/greedy/turns"] > 1.0
    for name, has_passages in (("direct", False), ("rag", True), ("ircot", True), ("iter_retgen", True)):
        for played in trajectories(run, f"eval-test-*-{name}-greedy*"):
            prompts = [played["prompt"][0], *(message for message in played["messages"] if message["role"] == "user")]
            assert all(("\nThe " in message["content"]) is has_passages for message in prompts)
            assert f"Question: {played['task']['question']}" in prompts[0]["content"]
    assert left_behind() == []
