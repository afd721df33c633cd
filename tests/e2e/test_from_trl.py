"""The page for users of TRL, run as it stands: rows, reward function and recipe, on a policy from nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.runs import rlsys
from tests.makers.made import records
from tests.unit.test_page_code import HOW_TO, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_a_data_set_and_a_reward_function_of_trl_train(tmp_path: Path) -> None:
    (recipe,), (code, _) = (blocks(HOW_TO / "from-trl.md", language) for language in ("yaml", "python"))
    (tmp_path / "grpo.yaml").write_text(recipe)
    (tmp_path / "my_rewards.py").write_text(code)
    rows = [{"prompt": [{"role": "user", "content": f"{n} + 63?"}], "answer": str(n + 63)} for n in range(60)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    overrides = [f"env.data={tmp_path / 'tasks.jsonl'}", "model.path=null", "env.held_out_tasks=20", "eval.tasks=4"]
    overrides += ["stages.rl.steps=2", "loop.groups_per_step=4", "tracker=none"]
    result = rlsys("train", str(tmp_path / "grpo.yaml"), f"--run-dir={tmp_path / 'run'}", *overrides)
    assert result.code == 0, result.output
    steps = records(tmp_path / "run" / "metrics.jsonl")
    assert [step["stage"] for step in steps] == ["rl", "rl"] and all(step["failures/data"] == 0 for step in steps)
    for step in steps:
        right, brief = step["reward/part/right"], step["reward/part/brief"]
        assert step["reward/mean"] == pytest.approx(right + brief) and brief < 0
        assert step["reward/solved"] == right  # 1 where an answer is right, with a weight of 1
    assert "correct" in result.output
