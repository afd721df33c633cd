"""`rlsys train smollm2`, shortened: a pretrained model is shown a tool in two examples, and then uses it without them.

Slow: the model is fetched and unpacked once, and the run takes some ten minutes on two cores. The study has whole runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsys.errors import BadInput
from tests import smollm2
from tests.e2e.runs import left_behind, rlsys
from tests.makers.made import records


@pytest.mark.slow
def test_what_two_examples_show_is_done_without_them(tmp_path: Path) -> None:
    try:
        smollm2.fetch()
    except BadInput as error:
        pytest.skip(str(error))
    run = tmp_path / "run"
    result = rlsys(
        "train", "smollm2", "--run-dir", str(run), "seed=100", "env.seed=100", "tracker=none", "eval.tasks=24",
        "stages.examples.steps=2", "stages.examples.eval.sets.shown.tasks=16", "stages.alone=null",
        "stages.distil.epochs=6",
    )  # fmt: skip
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    attempts = records(run / "generated" / "tries.jsonl")
    (account,) = [row for row in records(run / "events.jsonl") if row["stage"] == "distil" and "taught" in row]
    assert (account["taught"], account["too_long"], account["rewritten"]) == (len(attempts), 0, 0)
    assert account["after"] < account["before"] / 20  # a question, in the place of two solved problems and a question
    first, *_, last = records(run / "evaluations.jsonl")
    assert first["alone/sampled/accuracy"] == first["alone/greedy/accuracy"] == 0
    assert last["alone/greedy/calls"] >= 0.8  # searches for each episode
    assert last["alone/greedy/accuracy"] >= 0.15
