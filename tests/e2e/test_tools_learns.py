"""A policy from nothing learns which of three tools an errand takes, with a function and with an MCP server."""

from pathlib import Path

import pytest

from tests.e2e.runs import rlsys, rows, summary
from tests.makers.made import records


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["worlds/tools", "worlds/tools_mcp"])
def test_the_reward_alone_teaches_which_tool_fits(recipe: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = rlsys("train", recipe, "--run-dir", str(run), "seed=100", "env.seed=100")  # 0 to 4 are the study's
    assert result.code == 0, result.output[-3000:]
    lines = records(run / "evaluations.jsonl")
    before, after = ([line for line in lines if line["when"] == when][-1] for when in ("before", "after"))
    assert after["sampled/accuracy"] > before["sampled/accuracy"] + 0.3
    for kind in ("price", "made", "sum"):  # one tool each
        key = f"sampled/accuracy_by_level/{kind}"
        assert after[key] > before[key] + 0.2
    steps = [row for row in rows(run) if row["stage"] == "rl"]
    assert steps[-1]["env/several_calls"] > 0  # two prices are asked for in one message
    assert steps[-1]["episode/valid_calls"] / steps[-1]["episode/calls"] > 0.9
    run_summary = summary(run)
    assert run_summary["prompts"]["failed"] == 0 and not run_summary["health"]
