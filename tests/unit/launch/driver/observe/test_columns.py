"""The rows of a run on a terminal: no row is broken, and what has no room is what matters least."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from launch.driver.observe.columns import COLUMNS, lay_out
from launch.driver.observe.progress import Progress
from launch.driver.observe.row import StepRow, StepTime

RL = {
    "reward/mean": 0.91567,
    "reward/solved": 0.816,
    "kl/reference": 0.0123,
    "tokens/generated_per_s": 12516.4,
    "lag/max": 1,
    "mismatch/probe_mean": 6e-06,
}


def row(step: int, stage: str = "rl") -> StepRow:
    spent = StepTime(phases={"update": 0.71, "wait_rollout": 1.62}, total=2.5)
    metrics = RL if stage == "rl" else {"loss/nll": 6.886}
    return StepRow(stage=stage, step=step, stage_step=step, trained=1390, packed=2000, time=spent, metrics=metrics)


@pytest.mark.parametrize("width", [80, 140])
def test_rows_fit_and_their_titles_are_said_once(width: int) -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, force_terminal=True, width=width, highlight=False, soft_wrap=True))
    for stage, steps in (("sft", 2), ("rl", 3)):
        for step in range(1, steps + 1):
            progress.step(row(step, stage), steps)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if "/3" in line or "/2" in line]
    assert [line.split()[2:4] for line in rows][:2] == [["sft", "1/2"], ["sft", "2/2"]]
    heads = [line for line in lines if " step " in line and "left" in line]
    assert len(heads) == 2  # of each stage
    text = " ".join(out.getvalue().split())
    assert text.count("engine against learner") == text.count("versions behind") == 1
    assert "0.916" in text and "6e-06" in text


def test_the_columns_that_matter_stay_longest() -> None:
    whole = lay_out("rl", 45, [column.key for column in COLUMNS if "loss" not in column.title], 200)
    assert len(whole.header()) > 80
    narrow = lay_out("rl", 45, [column.key for column in whole.columns], 40)
    assert [column.title for column in narrow.columns][:2] == ["reward", "correct"]
    assert len(narrow.header()) <= 40 and len(narrow.line(45, RL, "1:02:03")) <= 40
    assert lay_out("a-stage-with-a-very-long-name", 45, ["reward/mean"], 10).columns == ()


def test_a_number_that_a_row_lacks_is_a_dash_in_its_place() -> None:
    layout = lay_out("sft", 200, ["loss/nll", "eval/loss"], 100)
    assert layout.line(7, {"loss/nll": 0.5}, "1:00").split() == ["sft", "7/200", "0.500", "-", "1:00"]
