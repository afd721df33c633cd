"""A fall of what is measured on held-out tasks: the same prompts, and more than the draw of the tasks explains."""

import random
from functools import cache
from typing import Any

from launch.config.compose import compose
from launch.driver.observe.held_out import find_cut_off, find_drop, find_in_evaluations, find_one_text, largest_drop
from launch.run_dir.significance import share_interval

STAGES = compose("quickstart", ["stages.rl.learner.lr=0.03"]).stages


def row(step: int, greedy: float, sampled: float = 0.5, *, width: float = 0.03, prompts: str = "a") -> dict[str, Any]:
    record: dict[str, Any] = {"step": step, "stage": "rl", "when": "during"}
    record |= {"prompts": {"greedy": prompts, "sampled": "b"}}
    for play, value in (("greedy", greedy), ("sampled", sampled)):
        ends = {"": value, "_low": value - width, "_high": value + width}
        record |= {f"{play}/accuracy{end}": number for end, number in ends.items()}
    return record


def test_the_newest_is_compared_with_the_best_before_it() -> None:
    drop = largest_drop([row(0, 0.7), row(10, 0.95), row(20, 0.9), row(30, 0.0, 0.4)])
    assert drop is not None and (drop.play, drop.best, drop.best_step, drop.now) == ("greedy", 0.95, 10, 0.0)
    assert drop.describe() == "held-out accuracy fell from 0.950 to 0.000 (greedy, from step 10 to 30)"
    (finding,) = find_drop([row(0, 0.95), row(12, 0.0)], STAGES)
    assert (finding.stage, finding.what, finding.first_step, finding.last_step) == ("rl", "held_out", 0, 12)
    assert "lower stages.rl.learner.lr (now 0.03)" in finding.describe() and finding.describe().startswith(
        "after step 12 of stage rl"
    )


def test_what_rose_what_the_draw_explains_and_other_prompts_are_no_fall() -> None:
    assert largest_drop([]) is None and largest_drop([row(0, 0.9)]) is None
    assert largest_drop([row(0, 0.2), row(10, 0.95)]) is None
    assert largest_drop([row(0, 0.95), row(10, 0.91)]) is None  # the intervals meet
    assert largest_drop([row(0, 0.95), row(10, 0.1, prompts="other")]) is None
    old = {key: value for key, value in row(0, 0.95).items() if key != "prompts"}  # of an earlier rlsys
    assert largest_drop([old, row(10, 0.1)]) is None
    assert find_drop([row(0, 0.95), row(10, 0.1) | {"stage": "gone"}], STAGES) == []


def test_answers_of_an_evaluation_that_are_cut_off_are_said_with_their_limit() -> None:
    """A tenth of 200 greedy answers, a fifth of sampled ones; not of few, nor of weights that nothing has trained."""

    def played(greedy: float, sampled: float, episodes: int = 200, when: str = "after") -> list[dict[str, Any]]:
        shares = {"greedy/truncated": greedy, "sampled/truncated": sampled}
        return [
            row(0, 0.9),
            row(9, 0.9) | shares | {f"{n}/episodes": episodes for n in ("greedy", "sampled")} | {"when": when},
        ]

    (finding,) = find_cut_off(played(0.1, 0.19), STAGES)
    assert (finding.what, finding.stage, finding.last_step) == ("held_out_cut", "rl", 9)
    assert (
        "10% of greedy" in finding.says
        and "sampled" not in finding.says
        and "rollout.max_turn_tokens (now" in finding.says
    )
    assert "20% of sampled" in find_cut_off(played(0.09, 0.2), STAGES)[0].says
    assert find_cut_off(played(0.09, 0.19), STAGES) == find_cut_off(played(0.9, 0.9, episodes=99), STAGES) == []
    assert find_cut_off(played(0.9, 0.9, when="before"), STAGES) == find_cut_off([], STAGES) == []


def test_the_limit_of_answers_that_are_cut_off_is_that_of_their_evaluation() -> None:
    keys = ["eval.max_turn_tokens=48", "eval.sets={own: {max_response_tokens: 96}, plain: {}}"]
    stages = compose("quickstart", ["rollout.max_turn_tokens=64", "engine.max_model_len=512", *keys]).stages

    def limits(play: str) -> str:
        cut = {f"{play}/truncated": 0.9, f"{play}/episodes": 200}
        (finding,) = find_cut_off([row(9, 0.9) | {"when": "after"} | cut], stages)
        return finding.says.partition(": raise ")[2]

    turn, window = "eval.max_turn_tokens (now 48)", "engine.max_model_len (now 512)"
    assert limits("own/greedy") == f"{turn} or eval.sets.own.max_response_tokens (now 96) or {window}"
    assert limits("plain/greedy") == f"{turn} or {window}"


TASKS, EVALUATIONS = 50, 20


@cache
def interval(right: int) -> tuple[float, float]:
    return share_interval([1] * right + [0] * (TASKS - right))


def counted(step: int, right: int) -> dict[str, Any]:
    low, high = interval(right)
    accuracy = {"greedy/accuracy": right / TASKS, "greedy/accuracy_low": low, "greedy/accuracy_high": high}
    return {"step": step, "stage": "rl", "prompts": {"greedy": "a"}} | accuracy


def test_the_best_of_many_evaluations_at_one_accuracy_is_luck_and_no_fall() -> None:
    draw, runs, false = random.Random(0), 0, 0
    for accuracy in (0.05, 0.2, 0.5, 0.8, 0.95):
        for _ in range(60):
            shares = [sum(draw.random() < accuracy for _ in range(TASKS)) for _ in range(EVALUATIONS)]
            rows = [counted(step, right) for step, right in enumerate(shares)]
            runs, false = (
                runs + 1,
                false + any(largest_drop(rows[:end]) is not None for end in range(2, EVALUATIONS + 1)),
            )
    assert false <= 0.02 * runs
    lost = [*(counted(step, 47 + step % 2) for step in range(EVALUATIONS)), counted(EVALUATIONS, 0)]
    assert largest_drop(lost) is not None and largest_drop(lost[-2:]) is not None


def test_one_text_for_all_tasks_is_said_where_it_is_not_what_they_ask_for() -> None:
    """Also of the untrained model; not of few episodes, and not where one text is right for nearly all tasks."""

    def played(same: float, right: float, episodes: int = 100, when: str = "before") -> list[dict[str, Any]]:
        texts = {"greedy/same_text": same, "greedy/episodes": episodes, "sampled/same_text": 0.5}
        return [row(9, right) | texts | {"when": when}]

    (finding,) = find_one_text(played(0.97, 0.4), STAGES)
    assert (finding.what, finding.stage, finding.last_step) == ("held_out_one_text", "rl", 9)
    assert "97% of greedy, 40% right" in finding.says and "sampled" not in finding.says and "lr" not in finding.says
    (trained,) = find_in_evaluations(played(0.97, 0.4, when="during"), STAGES)
    assert trained.what == finding.what and "lower stages.rl.learner.lr (now 0.03)" in trained.says
    damaged = [row(9, 0.4) | {"greedy/same_text": None, "greedy/episodes": "many"}]
    for sound in (damaged, played(0.89, 0.4), played(0.97, 0.95), played(0.97, 0.4, episodes=99), []):
        assert find_one_text(sound, STAGES) == []
