"""A terminal shows what a log shows, and a clock with what is awaited below it."""

import io
import re
import time
from typing import Any

import pytest
from rich.console import Console

from launch.driver.observe.progress import Bar, Progress, duration
from launch.driver.observe.row import StepRow, StepTime


def row(step: int, **metrics: float) -> StepRow:
    spent = StepTime(phases={"update": 0.5}, total=1.0)
    return StepRow(
        stage="rl", step=step, stage_step=step, trained=10, packed=20, time=spent, metrics=metrics, version=1
    )


class Clock:
    """The seconds that `launch.driver.observe.progress` reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def shown(progress: Any) -> str:
    return str(progress.clock())


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=200, highlight=False, soft_wrap=True), out


@pytest.mark.parametrize("terminal", [False, True])
def test_a_failure_s_text_rules_no_terminal(terminal: bool) -> None:
    to, out = console(terminal=terminal)
    Progress(to).say("failed: \x1b]0;owned\x07\x1b[2J\0\u202e\nthe next line")
    assert out.getvalue() == "[ 0:00] failed: \\x1b]0;owned\\x07\\x1b[2J\\x00\\u202e\nthe next line\n"


def play(progress: Progress, clock: Clock) -> None:
    progress.say("run directory runs/q")
    for step in (1, 2, 3, 4):
        clock.now += 1.5
        progress.step(row(step, **{"reward/mean": step / 4}), 4)
    progress.say("done")


def test_rows_stay_in_the_scrollback_of_a_terminal_as_in_a_log(clock: Clock) -> None:
    on_screen, out = console(terminal=True)
    with Progress(on_screen) as progress:
        progress.live.auto_refresh = False  # type: ignore[union-attr]  the clock's own thread
        play(progress, clock)
    (log, lines) = console(terminal=False)
    with Progress(log) as progress:
        play(progress, clock)
    expected = lines.getvalue().splitlines()
    rows = [line for line in expected if " rl  " in line]
    assert [line.split()[3] for line in rows] == ["1/4", "3/4", "4/4"]
    titles = next(line for line in expected if line.split()[2:3] == ["step"])
    for title, value in (("reward", "0.250"), ("update", "0.5s")):  # under its title
        assert rows[0].index(value) + len(value) == titles.index(title) + len(title)
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line).strip() for line in out.getvalue().splitlines()]
    assert [line for line in plain if line in [entry.strip() for entry in expected]] == [e.strip() for e in expected]


def test_the_clock_says_what_is_awaited_and_for_how_long(clock: Clock) -> None:
    progress = Progress(console(terminal=False)[0])
    assert shown(progress) == ""  # nothing is
    progress.say("run directory runs/q")
    progress.doing("starting Ray")
    clock.now += 65
    assert shown(progress) == "[ 1:05] starting Ray, 1:05"
    progress.begin("evaluating before, greedy: tasks played")
    progress.count(15, 200)
    clock.now += 5
    assert shown(progress) == "[ 1:10] evaluating before, greedy: tasks played: 15/200, 0:05"
    progress.step(row(1), 4)
    assert shown(progress).startswith("[ 1:10] stage rl: step 2 of 4; the stage ends in …")
    progress.step(row(4), 4)
    assert "its end" in shown(progress)  # and no row of a step that is over


def test_counts_in_a_log_say_what_they_count(clock: Clock) -> None:
    log, out = console(terminal=False)
    progress = Progress(log)
    progress.doing("evaluating after, sampled: tasks played")
    for done in range(1, 30):
        clock.now += 1
        progress.count(done, 200)
    assert out.getvalue().splitlines() == [
        f"[{duration(at):>5}] evaluating after, sampled: tasks played: {at}/200" for at in (1, 11, 21)
    ]


def test_how_far_a_step_is_goes_along_with_what_is_said_anyway(clock: Clock) -> None:
    log, out = console(terminal=False)
    progress = Progress(log)
    progress.doing("stage rl: step 3 of 200")
    for done in range(128):
        progress.within_step(done, 128, "groups")
        clock.now += 1
        progress.sign_of_life()
    assert out.getvalue().splitlines() == [
        "[ 1:00] stage rl: step 3 of 200: 59 of 128 groups, 1:00",
        "[ 2:00] stage rl: step 3 of 200: 119 of 128 groups, 2:00",
    ]
    assert shown(progress) == "[ 2:08] stage rl: step 3 of 200: 127 of 128 groups, 2:08"
    progress.end_within_step()
    assert shown(progress) == "[ 2:08] stage rl: step 3 of 200, 2:08"
    progress.within_step(0, 0, "rows")  # before a rank has said how many it has
    assert shown(progress) == "[ 2:08] stage rl: step 3 of 200, 2:08"


def test_a_terminal_breaks_lines_between_words_and_a_log_breaks_none() -> None:
    text = "stage rl  step 3/30  reward 0.250  tok/s generated 812  tok/s trained 640  lag 1  stage ends in 1:50"
    for terminal in (True, False):
        out = io.StringIO()
        Progress(Console(file=out, force_terminal=terminal, width=40, highlight=False, soft_wrap=True)).say(text)
        lines = out.getvalue().splitlines()
        assert " ".join(out.getvalue().split()) == " ".join(f"[ 0:00] {text}".split())
        assert len(lines) > 1 if terminal else len(lines) == 1
        assert not terminal or max(map(len, lines)) <= 40


def test_a_log_says_what_is_awaited_when_it_was_silent_for_a_minute(clock: Clock) -> None:
    to, out = console(terminal=False)
    progress = Progress(to)
    progress.sign_of_life()
    progress.begin("starting Ray")
    clock.now += 59
    progress.sign_of_life()
    assert len(out.getvalue().splitlines()) == 1
    clock.now += 2
    progress.sign_of_life()
    progress.sign_of_life()
    assert out.getvalue().splitlines()[1:] == ["[ 1:01] starting Ray, 1:01"]


def test_a_stage_of_hours_gets_a_row_each_half_minute(clock: Clock) -> None:
    to, out = console(terminal=False)
    progress = Progress(to)
    for step in range(1, 3601):
        clock.now += 1
        progress.step(row(step), 7200)
    rows = [line for line in out.getvalue().splitlines() if "rl " in line]
    assert 30 + 54 + 100 - 3 <= len(rows) <= 30 + 54 + 100 + 3  # a minute of 2 s, nine of 10 s, the rest of 30 s


def test_its_clock_may_begin_before_it_does(clock: Clock) -> None:
    to, out = console(terminal=False)
    Progress(to, since=clock.now - 5).say("run directory runs/q")
    assert out.getvalue() == "[ 0:05] run directory runs/q\n"


def test_the_clock_runs_from_the_start_and_does_not_begin_anew(clock: Clock) -> None:
    to, out = console(terminal=False)
    progress = Progress(to)
    clock.now += 10
    progress.say("run directory runs/q")
    assert out.getvalue() == "[ 0:10] run directory runs/q\n"


def test_a_bar_stays_until_something_else_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "launch.driver.observe.progress.Console", lambda **_: Console(file=io.StringIO(), force_terminal=True)
    )
    with Bar() as show:
        show("encode", 1, 4)
        first = show.bar
        show("encode", 2, 4)
        assert first is not None and show.bar is first and first.tasks[0].completed == 2
        show("write", 1, None)
        assert show.bar is not first and first.live.is_started is False
        show("write", 3, 3)
        assert show.bar is None
