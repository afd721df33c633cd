"""A short run of a made model with what pretrained ones have, in both formats: every proof of the start, two stages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from learners.scratch import CHAT_TEMPLATE
from tests.e2e.runs import left_behind, rlsys, rows, summary
from tests.makers import pretrained_like

SHORT = ["stages.sft.steps=1", "stages.sft.loop.groups_per_step=2", "stages.rl.steps=1", "eval.tasks=2"]
SHORT += ["stages.rl.loop.groups_per_step=2", "stages.rl.loop.group_size=2", "eval.samples=0", "tracker=none"]
SHORT += ["engine.max_num_seqs=8", "engine.kv_cache_mb=64", "stages.sft.learner.lr=1e-4", "stages.rl.learner.lr=1e-4"]
SHORT += [f"engine.max_model_len={pretrained_like.POSITIONS}", "rollout.max_turn_tokens=8"]


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_a_run_ends_as_it_does_with_random_weights(dtype: str, tmp_path: Path) -> None:
    model, run = pretrained_like.save(tmp_path / "model", dtype), tmp_path / "run"
    template = tmp_path / "own.jinja"
    template.write_text("{{- (manner or 'at length') + '\\n' -}}" + CHAT_TEMPLATE)
    keys = [f"model.chat_template={template}", "env.template_args={manner: briefly}"]
    result = rlsys(
        "train", "quickstart", f"--run-dir={run}", f"model.path={model}", f"model.dtype={dtype}", *keys, *SHORT
    )
    assert result.code == 0, result.output[-3000:]
    assert "| briefly\n" in result.output  # the first prompt, as the engines get it
    saved = max((run / "checkpoints").glob("*/hf"))
    assert (saved / "chat_template.jinja").read_text() == template.read_text()
    assert json.loads((saved / "rlsys.json").read_text())["template_args"] == {"manner": "briefly"}
    assert summary(run)["status"] == "done" and [row["stage"] for row in rows(run)] == ["sft", "rl"]
    assert left_behind() == []
    shutil.rmtree(run)
