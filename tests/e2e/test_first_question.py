"""A model that is not at its address ends a command with one line, before a run directory has a stage in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import left_behind, rlsys
from tests.fakes.judge_endpoint import scripted

GONE: Any = (404, {"x": "y"}, json.dumps({"error": {"message": "the model `gone` does not exist"}}))


def judged_set(url: str) -> str:
    judge = f"{{endpoint: '{url}', model: gone}}"
    return f"eval.sets={{sums: {{reward: {{name: judged, kind: outcome_math, judge: {judge}}}}}}}"


@pytest.mark.slow
def test_a_retired_model_of_a_later_evaluation_ends_a_run_before_it_begins(tmp_path: Path) -> None:
    with scripted(lambda prompt: "YES") as endpoint:
        endpoint.greet = lambda model: GONE
        result = rlsys("train", "quickstart", "--run-dir", str(tmp_path / "run"), judged_set(endpoint.url))
        assert result.code == 2 and endpoint.greeted == ["gone"] and endpoint.asked == []
        error = result.output.strip().splitlines()[-1]
        assert "eval.sets.sums.reward.judge.model='gone'" in error and "does not exist" in error
        assert not list((tmp_path / "run").glob("checkpoints/*")) and not (tmp_path / "run" / "metrics.jsonl").exists()
        evaluated = rlsys("eval", "quickstart", judged_set(endpoint.url))
        assert evaluated.code == 2 and endpoint.greeted == ["gone"] * 2 and endpoint.asked == []
    assert not left_behind()


@pytest.mark.slow
def test_a_teacher_that_is_not_there_ends_generating(tmp_path: Path) -> None:
    keys = ["generate.teacher.endpoint=http://127.0.0.1:9/v1", "generate.teacher.model=m"]
    result = rlsys("generate", "worlds/sums", "--output", str(tmp_path / "long.jsonl"), "--tasks", "4", *keys)
    assert result.code == 2 and "generate.teacher.endpoint='http://127.0.0.1:9/v1'" in result.output
    assert not list(tmp_path.iterdir())
