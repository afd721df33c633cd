"""Several evaluations together: groups, single steps, tests and correlations."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch.cli import run
from launch.driver.evaluation.against import Paired, compare_with_earlier, pair_settings
from launch.driver.evaluation.compare import ComparedSetting, cells, comparison_lines, increases
from launch.driver.evaluation.report import averages, count_solved_steps
from launch.run_dir.played import EvalResult, Number, Test, differ
from launch.run_dir.significance import paired_test

# Table 2 of arXiv 2506.00845, Qwen2.5-7B-Instruct.
ZERO = [0.702, 0.504, 0.067, 0.431, 0.829, 0.592, 0.114, 0.450]
SFT = [0.615, 0.268, 0.069, 0.531, 0.668, 0.488, 0.226, 0.706]


def play(value: float, count: float = 1000, group: str = "real", metric: str = "accuracy", **more: float) -> EvalResult:
    numbers = {metric: value, **more}
    return EvalResult(
        measure="accuracy",
        numbers={name: Number(value=number, count=count) for name, number in numbers.items()},
        tasks={},
        group=group,
    )


def test_the_average_increase_is_the_papers() -> None:
    ours, zero = ({f"{n}/greedy": play(value) for n, value in enumerate(row)} for row in (SFT, ZERO))
    means = averages(ours | {"graphs/greedy": play(0.7, group="")}, zero)
    assert means["real/greedy"].increase == pytest.approx(0.106, abs=5e-4) and means["real/greedy"].sets == 8
    assert means["real/greedy"].describe() == "mean 0.446 over 8 sets, average increase +10.6%"
    assert averages(ours, dict(list(zero.items())[:7]))["real/greedy"].increase is None  # not of all eight
    assert averages(ours, zero | {"0/greedy": play(0.0)})["real/greedy"].increase is None


def test_a_pooled_share_stands_for_its_set_and_is_tested_with_its_own_count() -> None:
    """Table 6: single against whole constraints of ProScript."""
    single, whole = play(0.627, 6968), play(0.2, 1000, constraints_pooled=0.488)
    assert whole.key == "constraints_pooled"
    whole = EvalResult(measure="accuracy", numbers={"constraints_pooled": Number(value=0.488, count=6968)}, tasks={})
    assert differ(Number(value=0.627, count=6968), Number(value=0.488, count=6968))[1] == pytest.approx(
        2.7e-61, rel=0.02
    )
    assert single.number is not None and whole.number is not None
    tasks = {"t:0": 1.0, "t:1": 0.0}  # whether all constraints of a task hold: not what the share is of
    plays = {"a": replace(whole, tasks=tasks)}
    comparison, paper = compare_with_earlier(plays, plays)["a"], compare_with_earlier(plays, plays, "paper")["a"]
    assert comparison.paired is None and "a share over all" in str(comparison.why_not) and paper.unpaired is not None


def test_single_steps_beside_their_tasks() -> None:
    def scored(tasks: dict[str, float]) -> EvalResult:
        mean = math.fsum(tasks.values()) / len(tasks)
        return EvalResult(measure="accuracy", numbers={"accuracy": Number(value=mean, count=len(tasks))}, tasks=tasks)

    whole = scored({"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0, "unasked": 1.0})
    single = scored({"a1": 1.0, "a2": 1.0, "b1": 1.0, "c1": 1.0, "c2": 0.0, "d1": 0.0, "e1": 1.0})
    steps = count_solved_steps("whole/greedy", single, whole, {name: name[0] for name in single.tasks})
    assert steps is not None
    assert (steps.both, steps.steps_alone, steps.task_alone, steps.neither) == (1, 1, 1, 1)
    assert (steps.single, steps.whole, steps.p) == (pytest.approx(5 / 7), 0.6, pytest.approx(0.679, abs=1e-3))
    assert "steps and task right 1, steps alone 1, task alone 1, neither 1" in steps.describe()
    assert (
        count_solved_steps("whole/greedy", single, scored({"x": 1.0}), {name: name[0] for name in single.tasks}) is None
    )
    more = {name: name[0] for name in (*single.tasks, "b2", "d2", "unasked1", "x1")}  # that were not graded
    steps = count_solved_steps("whole/greedy", single, whole, more | {"unasked1": "unasked"})
    assert steps is not None and "left out 3" in steps.describe()
    assert (steps.both, steps.steps_alone, steps.task_alone, steps.neither, steps.left_out) == (1, 0, 1, 0, 3)


def result(path: Path, graphs: float, reward: float, real: float) -> str:
    def entry(group: str, value: float, **more: float) -> dict[str, Any]:
        metrics = {key: {"value": number, "count": 1000} for key, number in {"accuracy": value, **more}.items()}
        return {"measure": "accuracy", "metrics": metrics, "tasks": {}, "group": group}

    plays = {
        "graphs/greedy": entry("synthetic", graphs, mean_reward=reward),
        "bw/greedy": entry("real", real, mean_reward=real),
    }
    counts = {"episodes": dict.fromkeys(plays, 1000), "failures": dict.fromkeys(plays, 0)}
    path.write_text(json.dumps({"plays": plays} | counts))
    return str(path)


def test_results_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zero = result(tmp_path / "zero.json", 0.7, 0.8, 0.10)
    seeds = [result(tmp_path / f"{n}.json", 0.79 + 0.01 * n, 0.9 + 0.01 * n, 0.11) for n in (1, 2)]
    output = tmp_path / "table.json"
    assert run(["compare", zero, f"sft={','.join(seeds)}", "--output", str(output), "--test", "paper"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["graphs/greedy", "bw/greedy", "synthetic/greedy", "increase", "real/greedy", "increase"]
    assert lines[1] == ["zero", "0.700", "0.100", "-", "-"]
    assert lines[2] == ["sft", "0.805", "±0.007+", "0.110", "±0.000", "+15.0%", "+10.0%"]
    assert "reward and accuracy of graphs/greedy: r =" in " ".join(lines[4]) and lines[4][-2:] == ["3", "evaluations"]
    report = json.loads(output.read_text())
    p = differ(Number(value=0.805, count=2000), Number(value=0.7, count=1000))[1]  # two seeds
    assert report["settings"]["sft"]["graphs/greedy"]["p"] == pytest.approx(p)
    assert report["correlations"]["real/greedy and synthetic/greedy"]["count"] == 3
    assert "reward and accuracy of bw/greedy" not in report["correlations"]  # they are the same


def test_the_mark_of_the_papers_test_is_of_what_it_tests() -> None:
    """900 of 1000 and 0 of 10: a mean over seeds of 0.45, and 0.891 of all episodes, against 0.6."""
    zero = ComparedSetting(name="zero", seeds=[{"x": play(0.6)}])
    ours = ComparedSetting(name="ours", seeds=[{"x": play(0.9)}, {"x": play(0.0, count=10)}])
    cell = cells([zero, ours], "paper")["ours"]["x"]
    assert (cell.value, cell.better) == (0.45, True)
    assert cell.p is not None and cell.p < 1e-6


def of_tasks(values: list[float], prompts: str = "", **way: Any) -> EvalResult:
    number = Number(value=math.fsum(values) / len(values), count=len(values))
    return EvalResult(
        measure="accuracy",
        numbers={"accuracy": number},
        tasks={f"t:{n}": value for n, value in enumerate(values)},
        contents={f"t:{n}": str(n) for n in range(len(values))},
        prompts=prompts,
        way=way,
    )


def side_by_side(*seeds: list[EvalResult]) -> dict[str, Any]:
    settings = [ComparedSetting(name=str(at), seeds=[{"x": seed} for seed in own]) for at, own in enumerate(seeds)]
    return {name: row["x"] for name, row in cells(settings).items()}


def test_settings_are_compared_task_by_task_and_seeds_are_no_tasks() -> None:
    zero = of_tasks([0.0] * 4 + [1.0] * 26)
    ours = of_tasks([1.0] * 30)  # four tasks gained: 2 / 2**4
    once, thrice = side_by_side([zero], [ours])["1"], side_by_side([zero] * 3, [ours] * 3)["1"]
    assert once.p == thrice.p == pytest.approx(0.125) and once.better
    assert differ(Number(value=1, count=90), Number(value=26 / 30, count=90))[1] < 0.001  # seeds pooled as if they were
    # three tasks of many samples, where pooled samples would differ
    half, more = of_tasks([0.5, 0.5, 0.5]), of_tasks([0.75, 0.75, 1.0])
    assert side_by_side([half], [more])["1"].p == pytest.approx(2 / 2**3)
    # seeds are averaged first: 0 and 1 come to the half of the other setting
    assert side_by_side([half], [of_tasks([0.0] * 3), of_tasks([1.0] * 3)])["1"].p == 1.0
    # only tasks of all seeds
    assert side_by_side([half], [more, of_tasks([1.0, 1.0])])["1"].paired.tasks == 2


def test_another_way_of_evaluating_is_told_by_its_keys() -> None:
    base, other = of_tasks([0.0, 1.0], "3:a", turns=1, top_p=1.0), of_tasks([1.0, 1.0], "3:b", turns=2, top_p=1.0)
    seed, fewer = replace(base, prompts="3:c"), of_tasks([1.0], "3:d", turns=1, top_p=1.0)
    assert side_by_side([base], [other])["1"].other_way == "evaluated in another way: turns"
    for ours in ([base], [seed], [fewer], [seed, fewer]):  # other seeds, or fewer tasks: the same way
        assert side_by_side([base], ours)["1"].other_way == ""
    assert side_by_side([base, seed], [base, other])["1"].other_way  # one seed of the four
    earlier = of_tasks([0.0, 1.0], "2:a")  # whose digest holds the seed too, and nothing else tells the way
    assert "not known" in side_by_side([earlier], [base])["1"].other_way
    assert "not known" in side_by_side([earlier], [of_tasks([1.0, 1.0], "2:b")])["1"].other_way
    assert side_by_side([earlier], [of_tasks([1.0, 1.0], "2:a")])["1"].other_way == ""
    settings = [ComparedSetting(name=name, seeds=[{"x": side}]) for name, side in (("zero", base), ("ours", other))]
    text = "\n".join(comparison_lines(settings, 0.01, "paired"))
    assert "warning: ours against the first, x: evaluated in another way: turns" in text
    assert "ours, x: on the 2 tasks of both +0.500" in text


def test_an_unpaired_test_says_where_its_tasks_are_others() -> None:
    def text(ours: EvalResult, test: Test) -> str:
        settings = [ComparedSetting(name=name, seeds=[{"x": side}]) for name, side in (("two", two), ("ours", ours))]
        return "\n".join(comparison_lines(settings, 0.01, test))

    two = of_tasks([0.0, 1.0])
    assert "of 3 and 2 tasks 2 are in both" in text(of_tasks([0.0, 1.0, 1.0]), "paper")
    assert "are in both" not in text(of_tasks([1.0, 1.0]), "paper") + text(of_tasks([0.0, 1.0, 1.0]), "paired")
    others = replace(two, contents={task: f"other {task}" for task in two.tasks})
    assert "of 2 and 2 tasks 0 are in both" in text(others, "paper")
    assert "not tested: 2 tasks of the same id" in text(others, "paired")


def finished_run(folder: Path, graphs: float) -> Path:
    (folder / "evaluations").mkdir(parents=True)
    rows = [{"stage": "sft", "when": "after", "step": 5}, {"stage": "rl", "when": "during", "step": 7}]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result(folder / "evaluations" / "sft-after.json", 0.1, 0.1, 0.1)
    result(folder / "evaluations" / "rl-step-000007.json", graphs, 0.1, 0.1)
    return folder


def test_runs_are_compared_by_their_last_evaluations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = finished_run(tmp_path / "a", 0.7), finished_run(tmp_path / "b", 0.8)

    def table(*given: object) -> list[list[str]]:
        assert run(["compare", *map(str, given)]) == 0
        return [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:3]]

    assert table(a, b) == [["a", "0.700"], ["b", "0.800"]]
    assert table(a / "evaluations" / "sft-after.json", b / "evaluations" / "sft-after.json") == [
        ["a", "0.100"],
        ["b", "0.100"],
    ]
    assert table(a / "evaluations" / "sft-after.json", a) == [["a/sft-after", "0.100"], ["a/rl-step-000007", "0.700"]]
    assert table(f"two={a},{b}", a)[0] == ["two", "0.750"]
    (b / "evaluations.jsonl").write_text('{"stage": "sft", "when": "after", "step": 5}\n')
    assert table(a, b) == [["a", "0.700"], ["b", "0.100"]]
    (tmp_path / "c").mkdir()
    assert run(["compare", str(a), str(tmp_path / "c")]) == 2
    assert "c: a folder without evaluations.jsonl" in capsys.readouterr().err


def rewarded(value: float, **more: float) -> EvalResult:
    """Of a set whose reward has no right and wrong."""
    numbers = {"mean_reward": Number(value=value, count=1000)}
    return EvalResult(measure="mean reward", numbers=numbers, tasks={"a": value}, group="real")


def test_only_numbers_of_one_metric_are_compared() -> None:
    right = play(0.5, mean_reward=0.7)
    settings = [
        ComparedSetting(name=name, seeds=[{"x/greedy": side}])
        for name, side in (("zero", rewarded(1.4)), ("ours", right))
    ]
    rows = cells(settings)
    assert [(row["x/greedy"].value, row["x/greedy"].p) for row in rows.values()] == [(1.4, None), (0.7, None)]
    assert increases(settings)["ours"] == {}  # an accuracy over a mean reward is no increase
    assert cells(settings[::-1])["zero"] == {}
    assert increases(settings[::-1])["zero"] == {"real/greedy": pytest.approx(1.0)}  # mean rewards, of both
    tasks = EvalResult(measure="accuracy", numbers=right.numbers, tasks={"a": 1.0}, group="real")
    assert compare_with_earlier({"x": rewarded(1.4)}, {"x": tasks})["x"].paired is None


def test_names_of_a_foreign_result_cannot_drive_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zero = Path(result(tmp_path / "zero.json", 0.7, 0.8, 0.1))
    zero.write_text(zero.read_text().replace("bw/greedy", "\\u001b[2J"))
    assert run(["compare", f"\x1b]0;x={zero}"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_path_may_have_an_equals_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zero = result(tmp_path / "lr=3.json", 0.7, 0.8, 0.1)
    assert run(["compare", zero, f"ours={zero}"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:3]] == ["lr=3", "ours"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["{zero}", "{zero}"], "two results of one name, expected NAME=FILE"),
        (["/no/such.json"], "/no/such.json: cannot be read"),
        (["{odd}"], "odd.json: not as rlsys eval --output writes it (KeyError: 'metrics')"),
        (["{over}"], "over.json: not as rlsys eval --output writes it (ValueError: accuracy of 'graphs/greedy' is 1.2"),
        (["{zero}", "--alpha", "2"], "--alpha 2.0: expected between 0 and 1"),
    ],
)
def test_what_cannot_be_compared(
    given: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zero, over = (result(tmp_path / f"{name}.json", share, 0.8, 0.1) for name, share in (("zero", 0.7), ("over", 1.2)))
    odd = tmp_path / "odd.json"
    odd.write_text('{"plays": {"a": {}}, "episodes": {"a": 1}, "failures": {"a": 0}}')
    assert run(["compare", *(arg.format(zero=zero, odd=odd, over=over) for arg in given)]) == 2
    assert line in capsys.readouterr().err


def test_equal_settings_with_a_seed_effect_rarely_differ() -> None:
    """Nominal .05. The test over tasks alone finds one in a fifth of them and more."""
    generator = np.random.default_rng(3)
    tasks, trials, findings, by_tasks = 200, 120, 0, 0
    for _ in range(trials):
        ease = generator.beta(2, 2, tasks)
        sides = []
        for _ in range(2):
            chances = [np.clip(ease + generator.normal(0, 0.05), 0, 1) for _ in range(4)]
            sides.append([of_tasks((generator.random(tasks) < chance).astype(float).tolist()) for chance in chances])
        paired = pair_settings(*sides)
        assert isinstance(paired, Paired) and paired.p_seeds is not None and paired.p >= paired.p_seeds
        alone = [
            sum(seed.tasks[t] for seed in sides[0]) - sum(seed.tasks[t] for seed in sides[1]) for t in sides[0][0].tasks
        ]
        findings, by_tasks = findings + (paired.p < 0.05), by_tasks + (paired_test(alone)[1] < 0.05)
    assert findings <= 0.1 * trials < 0.2 * trials <= by_tasks


def test_a_difference_beyond_the_spread_of_seeds_is_shown() -> None:
    high, low = [
        [of_tasks([1.0] * (90 + n) + [0.0] * (10 - n)) for n in range(3)],
        [of_tasks([1.0] * (40 + n) + [0.0] * (60 - n)) for n in range(3)],
    ]
    paired = pair_settings(high, low)
    assert isinstance(paired, Paired) and paired.p < 0.01 and paired.low > 0 and paired.holds_for.endswith("seeds")
    alone = pair_settings(high[:1], low)
    assert isinstance(alone, Paired) and alone.p_seeds is None and "seeds" not in alone.holds_for
    equal = pair_settings(high[:1] * 2, low[:1] * 2)  # no spread: exchanging two and two seeds allows no less
    assert isinstance(equal, Paired) and equal.p_seeds == pytest.approx(1 / 3)


def test_what_is_not_finite_is_an_error() -> None:
    assert "finite" in str(pair_settings([of_tasks([1.0, math.nan])], [of_tasks([1.0, 0.0])]))
    with pytest.raises(ValueError, match="finite"):
        paired_test([1.0, math.nan])


def test_the_table_says_what_its_signs_hold_for() -> None:
    right, other = of_tasks([1.0] * 20), of_tasks([0.0] * 20)
    single = [ComparedSetting(name="a", seeds=[{"x": right}]), ComparedSetting(name="b", seeds=[{"x": other}])]
    several = [ComparedSetting(name="a", seeds=[{"x": right}] * 2), ComparedSetting(name="b", seeds=[{"x": other}] * 2)]
    assert "not for other training seeds" in "\n".join(comparison_lines(single, 0.05, "paired"))
    assert "not for other" not in "\n".join(comparison_lines(several, 0.05, "paired"))
