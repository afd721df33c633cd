"""`rlsys analyse` on run directories made by hand: numbers worked out on paper, and what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.cli import run
from launch.run_dir.runs import Measurement, Run, read_run
from launch.run_dir.settings import group_runs
from launch.tools.analysis.curves import add_derived, any_calls, average_finish, build_charts
from launch.tools.analysis.draw import moving_average
from launch.tools.analysis.episodes import average_episodes, find_files, measure_episode
from launch.tools.analysis.figures import FIGURES, PANELS, Panel, select_keys
from launch.tools.analysis.results import collect_results, common_paper_figures, correlate_rewards
from rlsys.metrics import merge, values
from rlsys.records import read_trajectory
from tests.makers.made import jsonl
from tests.refused import refused

STAGES = [{"name": "sft", "kind": "sft", "steps": 2}, {"name": "rl", "kind": "rl", "steps": 2}]
ALL = select_keys(list(FIGURES))


def made(path: Path, rewards: tuple[float, float] = (1.0, 2.0), **config: Any) -> Path:
    """Two steps of sft, two of rl, and an evaluation before and after rl."""
    path.mkdir(parents=True)
    whole = {"name": "q", "seed": 0, "stages": STAGES, "learner": {"lr": 1.0}, "reward": {"name": "answer"}} | config
    (path / "config.yaml").write_text(yaml.safe_dump(whole))
    rows: list[dict[str, Any]] = [
        {"step": n, "stage": "sft", "stage_step": n, "loss/nll": 3.0 - n, "wall_s": 9} for n in (1, 2)
    ]
    for n, reward in enumerate(rewards, start=1):
        rows.append({"step": 2 + n, "stage": "rl", "stage_step": n, "reward/mean": reward, "episode/tokens": 10 * n})
    jsonl(path / "metrics.jsonl", rows)
    return path


def evaluated(path: Path, *found: Mapping[str, float], when: tuple[str, ...] = ("before", "after")) -> Path:
    steps = {"before": 2, "during": 3, "after": 4}
    jsonl(
        path / "evaluations.jsonl",
        [{"step": steps[at], "stage": "rl", "when": at, **row} for at, row in zip(when, found, strict=True)],
    )
    return path


def opened(*paths: Path) -> list[Run]:
    return [read_run(path, ALL) for path in paths]


def said(*content: str, **more: Any) -> dict[str, Any]:
    """A line of a trajectory file."""
    messages = [{"role": "assistant", "content": text} for text in content]
    begin = {"task": {}, "sequence": 0, "sibling": 0, "prompt": [], "messages": messages, "end": "turn_limit"}
    return begin | {"truncated": False, "reward": 1.0, "num_tokens": 10, "weight_versions": []} | more


def means(*lines: Mapping[str, Any]) -> dict[str, float]:
    return values(merge(measure_episode(read_trajectory(line, "")) for line in lines))


def read(found: Run, episodes: str) -> list[Measurement]:
    return [average_episodes(row, path) for row, path in find_files(found, episodes)]


# -- runs and settings -------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_seed_alone_are_one_setting_with_mean_and_spread(tmp_path: Path) -> None:
    runs = opened(made(tmp_path / "a"), made(tmp_path / "b", (3.0, 2.0), seed=1), made(tmp_path / "c", name="other"))
    settings = group_runs(runs, [])
    assert [(setting.label, len(setting.runs)) for setting in settings] == [("q", 2), ("other", 1)]
    (chart,) = build_charts(PANELS["reward"], settings, lambda run: run.rows, "step", {})
    first, other = chart.curves
    assert [(p.x, p.stage, p.mean, p.seeds) for p in first.points] == [(3, "rl", 2.0, 2), (4, "rl", 2.0, 2)]
    assert first.points[0].spread == pytest.approx(2**0.5) and first.points[1].spread == 0
    assert first.runs == {str(tmp_path / "a"): {3: 1.0, 4: 2.0}, str(tmp_path / "b"): {3: 3.0, 4: 2.0}}
    assert [(p.mean, p.spread, p.seeds) for p in other.points] == [(1.0, None, 1), (2.0, None, 1)]


def test_settings_of_one_name_are_called_after_the_keys_that_differ(tmp_path: Path) -> None:
    runs = opened(made(tmp_path / "a"), made(tmp_path / "b", learner={"lr": 2.0}))
    assert [setting.label for setting in group_runs(runs, [])] == ["learner.lr=1.0", "learner.lr=2.0"]
    many = opened(made(tmp_path / "c", x=1, y=1, z=1), made(tmp_path / "d", x=2, y=2, z=2))
    assert [setting.label for setting in group_runs(many, [])] == ["c", "d"]


def test_settings_that_differ_in_an_empty_mapping_keep_their_directories_as_names(tmp_path: Path) -> None:
    runs = opened(made(tmp_path / "a", x={}), made(tmp_path / "b"))
    assert [setting.label for setting in group_runs(runs, [])] == ["a", "b"]


def test_names_of_a_foreign_run_cannot_drive_a_terminal_or_a_picture(tmp_path: Path) -> None:
    stages = [{"name": "\x07rl", "kind": "rl"}]
    path = made(tmp_path / "a", name="\x1b]0;x\n", stages=stages)
    jsonl(path / "metrics.jsonl", [{"step": 1, "stage": "\x07rl", "stage_step": 1, "reward/part/\x1b[2J": 1.0}])
    (setting,) = group_runs(opened(path), [])
    assert (setting.label, setting.runs[0].stages) == ("\\x1b]0;x\\n", ("\\x07rl",))
    (row,) = setting.runs[0].rows
    assert (row.stage, list(row.values)) == ("\\x07rl", ["reward/part/\\x1b[2J"])


def test_what_is_no_finite_number_is_left_out(tmp_path: Path) -> None:
    path = made(tmp_path / "a")
    row = '{"step": 1, "stage": "rl", "stage_step": 1, "reward/mean": NaN, "kl/reference": 1%s, "entropy/mean": 2}\n'
    (path / "metrics.jsonl").write_text(row % ("0" * 400))
    assert opened(path)[0].rows[0].values == {"entropy/mean": 2.0}


def test_labels_make_the_settings(tmp_path: Path) -> None:
    runs = opened(*(made(tmp_path / name, name=name) for name in "abc"))
    assert [(setting.label, len(setting.runs)) for setting in group_runs(runs, ["x", "y", "x"])] == [("x", 2), ("y", 1)]
    with refused("--labels", says="2 for 3 runs"):
        group_runs(runs, ["x", "y"])


def test_a_torn_last_line_is_left_out_and_a_damaged_one_before_it_is_named(tmp_path: Path) -> None:
    path = made(tmp_path / "a")
    whole = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(whole + '{"step": 5, "sta')
    assert [row.step for row in opened(path)[0].rows] == [1, 2, 3, 4]
    (path / "metrics.jsonl").write_text('{"step": 5, "sta\n' + whole)
    with refused(where="metrics.jsonl line 1", says="not JSON"):
        opened(path)


# -- what a command says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["absent"], "absent: there is no such directory, expected a run directory"),
        (["empty"], "empty: no config.yaml in it, expected a run directory"),
        (["foreign"], "config.yaml: no list of stages"),
        (["begun"], "begun: no step and no evaluation in it yet"),
        (["a", "--figures", "rewards"], "--figures: no figure 'rewards' (did you mean 'reward'?)"),
        (["a", "--figures", "verdicts"], "a: no numbers for verdicts"),
        (["a", "--episodes", "greedy"], "--episodes greedy: expected training, or a play of these runs (known: none)"),
        (["a", "--smooth", "0"], "--smooth 0: expected 1 or more"),
        (["a", "./a"], "a: given twice, expected each run once"),
        (["odd"], "config.yaml: eval=[1]: expected keys and values"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], line: str
) -> None:
    made(tmp_path / "a")
    for name in ("empty", "foreign", "begun"):
        (tmp_path / name).mkdir()
    made(tmp_path / "odd", eval=[1])
    (tmp_path / "foreign" / "config.yaml").write_text("version: 3\n")
    (tmp_path / "begun" / "config.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    monkeypatch.chdir(tmp_path)
    assert run(["analyse", *argv]) == 2
    err = capsys.readouterr().err
    assert line in err and err.count("\n") == 1


def test_pictures_numbers_and_lines_of_two_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [made(tmp_path / "a"), made(tmp_path / "b", (3.0, 2.0), seed=1)]
    folder = tmp_path / "out"
    options = ["--figures", "reward,keywords", "--output", str(folder)]
    assert run(["analyse", *map(str, paths), *options]) == 0
    out = capsys.readouterr().out
    assert "no numbers for: keywords" in out and "2.000 -> 2.000 ± 0.000" in out
    assert (folder / "reward.png").read_bytes().startswith(b"\x89PNG") and not (folder / "keywords.png").exists()
    with (folder / "reward.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(row["x"], row["mean"], row["seeds"]) for row in lines] == [("3", "2.0", "2"), ("4", "2.0", "2")]
    figure = json.loads((folder / "reward.json").read_text())
    assert figure["question"] == FIGURES["reward"].question
    assert figure["charts"][0]["curves"][0]["runs"][str(paths[1])] == {"3": 3.0, "4": 2.0}


def test_by_stage_each_stage_is_a_curve_from_its_own_begin(tmp_path: Path) -> None:
    (setting,) = group_runs(opened(made(tmp_path / "a")), [])
    charts = build_charts([Panel("", "", "*")], [setting], lambda run: run.rows, "stage", {})
    assert {chart.key: [(c.label, [p.x for p in c.points]) for c in chart.curves] for chart in charts} == {
        "loss/nll": [("sft", [1, 2])],
        "reward/mean": [("rl", [1, 2])],
        "episode/tokens": [("rl", [1, 2])],
    }


def test_smoothing_is_the_mean_of_the_last_points() -> None:
    assert moving_average([1.0, 3.0, 5.0], 2).tolist() == [1.0, 2.0, 4.0]


# -- tools -------------------------------------------------------------------------------------------------------------


def rl(path: Path, *rows: Mapping[str, float]) -> Run:
    made(path)
    whole = [{"step": n, "stage": "rl", "stage_step": n, **row} for n, row in enumerate(rows, start=1)]
    jsonl(path / "metrics.jsonl", whole)
    return read_run(path, ALL)


def test_a_step_without_any_call_has_none_where_others_have(tmp_path: Path) -> None:
    tokens = {"episode/tokens": 9.0}
    with_calls = rl(tmp_path / "a", {"episode/calls": 2.0, "episode/valid_calls": 1.5, **tokens}, tokens)
    first, second = (row.values for row in add_derived(with_calls.rows, any_calls([with_calls])))
    assert first["derived/valid_share"] == 0.75 and first["episode/repeated_calls"] == 0
    assert second["episode/calls"] == 0 and "derived/valid_share" not in second
    silent = rl(tmp_path / "b", {"reward/mean": 1.0, **tokens}, {"loss/nll": 1.0})
    episodes, examples = (row.values for row in add_derived(silent.rows, any_calls([with_calls, silent])))
    assert episodes["episode/calls"] == 0 and "episode/calls" not in examples
    assert "episode/calls" not in add_derived(silent.rows, any_calls([silent]))[0].values


def test_a_seed_that_never_calls_is_a_curve_at_0_and_in_the_mean(tmp_path: Path) -> None:
    searching = rl(tmp_path / "a", {"episode/calls": 2.0, "episode/tokens": 9.0})
    silent = rl(tmp_path / "b", {"episode/tokens": 5.0})
    folder = tmp_path / "out"
    labels = ["--labels", "x,x", "--figures", "searches,kl", "--output", str(folder)]
    assert run(["analyse", str(searching.path), str(silent.path), *labels]) == 0
    chart = json.loads((folder / "searches.json").read_text())["charts"][0]
    (point,) = chart["curves"][0]["points"]
    assert (point["mean"], point["seeds"]) == (1.0, 2)


def test_an_accuracy_of_one_run_has_the_interval_of_its_evaluation(tmp_path: Path) -> None:
    ends = {"greedy/accuracy_low": 0.1, "greedy/accuracy_high": 0.4}
    for name in "ab":
        path = evaluated(made(tmp_path / name), {"greedy/accuracy": 0.2, **ends}, {"greedy/accuracy": 0.3, **ends})
    figure, folder = ["--figures", "accuracy", "--output", str(tmp_path / "out")], tmp_path / "out"
    assert run(["analyse", str(path), *figure]) == 0
    with (folder / "accuracy.csv").open() as file:
        assert [(row["low"], row["high"]) for row in csv.DictReader(file)] == [("0.1", "0.4")] * 2
    assert run(["analyse", str(tmp_path / "a"), str(path), "--labels", "x,x", *figure]) == 0
    with (folder / "accuracy.csv").open() as file:
        assert [(row["spread"], row["low"]) for row in csv.DictReader(file)] == [("0.0", "")] * 2


def test_without_a_reference_no_figure_speaks_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = rl(tmp_path / "a", {"kl/behavior": 0.1})
    assert run(["analyse", str(directory.path), "--figures", "kl,behavior"]) == 0
    assert "no numbers for: kl\n" in capsys.readouterr().out


def test_kl_of_the_reference_lengths_and_cuts_are_curves(tmp_path: Path) -> None:
    keys = {"kl": "kl/reference", "length": "episode/tokens", "cut": "episode/token_limit"}
    values = {"kl/reference": (0.1, 0.2), "episode/tokens": (9.0, 12.0), "episode/token_limit": (0.25, 0.5)}
    steps = [{key: pair[step] for key, pair in values.items()} for step in (0, 1)]
    path, folder = rl(tmp_path / "a", *steps).path, tmp_path / "out"
    assert run(["analyse", str(path), "--figures", ",".join(keys), "--output", str(folder)]) == 0
    for figure, key in keys.items():
        charts = json.loads((folder / f"{figure}.json").read_text())["charts"]
        (chart,) = [entry for entry in charts if entry["key"] == key]
        assert [point["mean"] for point in chart["curves"][0]["points"]] == list(values[key])


def test_the_share_of_groups_with_a_signal(tmp_path: Path) -> None:
    (row,) = add_derived(rl(tmp_path / "a", {"groups/trained": 5.0, "groups/filtered": 27.0}).rows, False)
    assert row.values["derived/signal_share"] == 5 / 32


def test_finish_by_turn_carries_the_last_column_of_shorter_steps_on(tmp_path: Path) -> None:
    two = {"episode/answered_by_1": 0.5, "episode/answered_by_2": 0.8}
    three = {"episode/answered_by_1": 0.1, "episode/answered_by_2": 0.4, "episode/answered_by_3": 1.0}
    rows = average_finish(rl(tmp_path / "a", two, three).rows, "step", last=2)
    assert [row.step for row in rows] == [1, 2, 3]
    assert [row.values["episode/answered_by_*"] for row in rows] == pytest.approx([0.3, 0.6, 0.9])


# -- texts -------------------------------------------------------------------------------------------------------------


def test_keywords_branching_and_code_of_episodes() -> None:
    lines = [
        said("Wait, no. Alternatively, 3. alternatively, 4", num_tokens=30),
        said("await the waiter", "However so", num_tokens=10),  # no whole word
        said("```python\nprint(1)\n```", num_tokens=50)
        | {"messages": [{"role": "assistant", "content": "```python"}, {"role": "tool", "content": "wait, retry"}]},
        said("recheck") | {"reward": None},  # it failed
    ]
    shares = means(*lines)
    assert {name: shares[f"word/{name}"] for name in ("wait", "however", "alternatively", "retry", "recheck")} == {
        "wait": 1 / 3,
        "however": 1 / 3,
        "alternatively": 1 / 3,
        "retry": 0,
        "recheck": 0,
    }
    assert shares["branching"] == pytest.approx(2 / 3) and shares["coding/rate"] == 1 / 3
    assert (shares["coding/tokens_code"], shares["coding/tokens_text"]) == (50, 20)


def test_episodes_of_an_evaluation_say_with_which_message_they_answered() -> None:
    lines = [said("a", "b", end="answered"), said("a", end="answered"), said("a", "b", end="turn_limit")]
    shares = means(*lines)
    assert [shares[f"episode/answered_by_{turn}"] for turn in (1, 2, 8)] == pytest.approx([1 / 3, 2 / 3, 2 / 3])


def test_process_labels_are_the_mean_over_episodes_of_their_mean() -> None:
    lines = [said("a", "b", "c", judgements=["GOOD", "It is GOOD", "no: BAD"]), said("a", judgements=["GOOD"])]
    shares = means(*lines)
    assert shares["verdict/macro"] == pytest.approx(0.8333, abs=1e-4)  # the mean over steps would be 0.75
    assert (shares["verdict/all_good"], shares["verdict/unparsable"]) == (0.5, 0)
    assert means(said("a", "b", judgements=["?", "GOOD"]))["verdict/unparsable"] == 0.5


def test_summaries_of_answers_are_no_process_labels(tmp_path: Path) -> None:
    path = made(tmp_path / "a")
    (path / "trajectories").mkdir()
    jsonl(path / "trajectories" / "step-000003.jsonl", [said("a", judgements=["YES"]), said("a", judgements=["NO"])])
    (row,) = read(opened(path)[0], "training")
    assert "word/wait" in row.values and not any(key.startswith("verdict/") for key in row.values)


def test_files_of_steps_and_of_evaluations_are_found_packed_or_torn(tmp_path: Path) -> None:
    path = made(tmp_path / "a")
    evaluated(path, {"greedy/episodes": 1}, {"greedy/episodes": 1}, when=("before", "during"))
    texts = path / "trajectories"
    texts.mkdir()
    jsonl(texts / "step-000003.jsonl", [said("wait")])
    (texts / "step-000004.jsonl.gz").write_bytes(gzip.compress(json.dumps(said("no")).encode() + b'\n{"mess'))
    jsonl(texts / "step-000009.jsonl", [said("taken back")])
    jsonl(texts / "eval-rl-before-greedy.jsonl", [said("no")])
    jsonl(texts / "eval-rl-step-000003-greedy.jsonl", [said("wait"), said("no")])
    (directory,) = opened(path)
    training, greedy = (read(directory, play) for play in ("training", "greedy"))
    assert [(row.stage_step, row.values["word/wait"]) for row in training] == [(1, 1.0), (2, 0.0)]
    assert [(row.stage_step, row.values["word/wait"]) for row in greedy] == [(0, 0.0), (1, 0.5)]
    (texts / "step-000003.jsonl").write_text('{"mess\n{}\n')
    with refused(where="step-000003.jsonl line 1", says="not JSON"):
        read(directory, "training")


@pytest.mark.parametrize(
    "wrong",
    [{"messages": 3}, {"messages": [{"role": "assistant", "content": 3}]}, {"num_tokens": "a"}, {"judgements": [1]}],
)
def test_a_line_that_is_no_trajectory_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = made(tmp_path / "a")
    (path / "trajectories").mkdir()
    jsonl(path / "trajectories" / "step-000003.jsonl", [said("wait"), said() | wrong])
    (directory,) = opened(path)
    with refused(where="step-000003.jsonl line 2", says="not a trajectory"):
        read(directory, "training")


# -- evaluations -------------------------------------------------------------------------------------------------------


def test_papers_figures_stand_beside_the_last_evaluation(tmp_path: Path) -> None:
    sets = {"musique": {"paper": {"exact_match": 0.2230, "greedy/f1": 0.3, "accuracy": None}}}
    stages = [*STAGES[:1], {"name": "rl", "kind": "rl", "eval": {"sets": sets}}]
    path = made(tmp_path / "a", stages=stages, eval={"paper": {"accuracy": 0.9}, "sets": {"musique": {"tasks": 3}}})
    plays = ("musique/greedy", "musique/sampled")
    last = {f"{play}/{key}": 0.5 for play in plays for key in ("exact_match", "f1", "episodes", "accuracy")}
    first = {"greedy/accuracy": 0.1, "greedy/episodes": 4, "greedy/accuracy_low": 0.05, "greedy/accuracy_high": 0.2}
    evaluated(path, first | {f"{plays[0]}/f1": 0.4}, last)  # the second one is of other sets
    results = {result.key: result for result in collect_results(group_runs(opened(path), []))}
    assert {key: (result.value, result.paper) for key, result in results.items()} == {
        "musique/greedy/exact_match": (0.5, 0.223),
        "musique/sampled/exact_match": (0.5, 0.223),
        "musique/greedy/f1": (0.5, 0.3),
        "greedy/accuracy": (0.1, 0.9),
    }
    assert (results["greedy/accuracy"].low, results["greedy/accuracy"].high) == (0.05, 0.2)


def test_each_setting_has_its_own_papers_figure(tmp_path: Path) -> None:
    row = {"greedy/accuracy": 0.5, "greedy/episodes": 9}
    papers = {"sft": 0.7, "grpo": 0.967}
    paths = [
        evaluated(made(tmp_path / name, name=name, eval={"paper": {"accuracy": value}}), row, when=("after",))
        for name, value in papers.items()
    ]
    settings = group_runs(opened(*paths), [])
    assert {result.label: result.paper for result in collect_results(settings)} == papers
    assert common_paper_figures(settings) == {} and common_paper_figures(settings[:1]) == {"greedy/accuracy": 0.7}


def test_results_of_seeds_are_their_mean_and_spread(tmp_path: Path) -> None:
    rows = [{"greedy/accuracy": share, "greedy/accuracy_low": 0.0, "greedy/episodes": 9} for share in (0.7, 0.8)]
    paths = [evaluated(made(tmp_path / f"{n}", seed=n), row, when=("after",)) for n, row in enumerate(rows)]
    (result,) = collect_results(group_runs(opened(*paths), []))
    assert (result.value, result.seeds, result.low) == (pytest.approx(0.75), 2, None)
    assert result.spread == pytest.approx(0.0707, abs=1e-4)


def test_an_evaluation_that_failed_leaves_no_older_number_in_its_place(tmp_path: Path) -> None:
    good, failed = {"greedy/accuracy": 0.5, "greedy/episodes": 4}, {"greedy/episodes": 4, "greedy/failures": 4}
    assert collect_results(group_runs(opened(evaluated(made(tmp_path / "a"), good, failed)), [])) == []


def test_one_seed_of_two_with_a_number_has_its_own_interval(tmp_path: Path) -> None:
    row = {"greedy/accuracy": 0.5, "greedy/accuracy_low": 0.4, "greedy/accuracy_high": 0.6, "greedy/episodes": 4}
    paths = [made(tmp_path / "a"), evaluated(made(tmp_path / "b", seed=1), row, when=("after",))]
    (result,) = collect_results(group_runs(opened(*paths), []))
    assert (result.seeds, result.low, result.high) == (1, 0.4, 0.6)


def test_a_seed_that_is_not_there_yet_is_in_no_result(tmp_path: Path) -> None:
    before, after = {"greedy/accuracy": 0.1, "greedy/episodes": 9}, {"greedy/accuracy": 0.9, "greedy/episodes": 9}
    done = [evaluated(made(tmp_path / f"{n}", seed=n), before, after) for n in range(2)]
    begun = evaluated(made(tmp_path / "2", seed=2), before, when=("before",))
    (result,) = collect_results(group_runs(opened(*done, begun), []))
    assert (result.value, result.seeds, result.spread) == (pytest.approx(0.9), 2, 0.0)


def test_a_part_of_the_reward_is_no_accuracy(tmp_path: Path) -> None:
    rows = [{f"greedy/{key}": 0.5 for key in ("accuracy", "part/accuracy", "episodes")} for _ in range(2)]
    (setting,) = group_runs(opened(evaluated(made(tmp_path / "a"), *rows)), [])
    charts = build_charts(PANELS["accuracy"], [setting], lambda run: run.evaluations, "step", {})
    assert [chart.key for chart in charts] == ["greedy/accuracy"]


def test_reward_and_accuracy_are_correlated_under_one_reward_only(tmp_path: Path) -> None:
    def run_with(name: str, reward: float, right: float, kind: str = "answer") -> Path:
        row = {"greedy/mean_reward": reward, "greedy/accuracy": right, "greedy/episodes": 9}
        return evaluated(made(tmp_path / name, name=name, reward={"name": kind}), row, when=("after",))

    paths = [run_with(name, at, at / 10) for name, at in zip("abcd", (1, 2, 3, 4), strict=True)]
    (scatter,) = correlate_rewards(group_runs(opened(*paths, run_with("e", -9, 0.9, "icrl")), []))
    assert scatter.title == "greedy, answer" and scatter.points[0] == ("a", 1.0, 0.1)
    assert (scatter.correlation.count, scatter.correlation.r) == (4, pytest.approx(1.0))


def test_a_reward_is_the_same_whatever_the_order_of_its_keys(tmp_path: Path) -> None:
    rewards: list[dict[str, Any]] = [{"name": "answer", "w": 1}, {"w": 1.0, "name": "answer"}]
    paths = [
        evaluated(
            made(tmp_path / str(at), name=str(at), reward=rewards[at % 2]),
            {"greedy/mean_reward": float(at), "greedy/accuracy": at / 10, "greedy/episodes": 9},
            when=("after",),
        )
        for at in range(6)
    ]
    (scatter,) = correlate_rewards(group_runs(opened(*paths), []))
    assert scatter.correlation.count == 6


def test_of_two_stages_at_one_step_the_later_stage_counts(tmp_path: Path) -> None:
    path = made(tmp_path / "a", stages=[{"name": "rl", "kind": "rl"}, {"name": "final", "kind": "eval"}])
    rows = [{"step": 20, "stage": "rl", "when": "after"}, {"step": 20, "stage": "final", "when": "eval"}]
    jsonl(
        path / "evaluations.jsonl",
        [{**row, "greedy/accuracy": value, "greedy/episodes": 9} for row, value in zip(rows, (0.5, 0.9), strict=True)],
    )
    (chart,) = build_charts(PANELS["accuracy"], group_runs(opened(path), []), lambda run: run.evaluations, "step", {})
    assert [(point.stage, point.mean) for point in chart.curves[0].points] == [("rl", 0.5), ("final", 0.9)]
    assert list(chart.curves[0].runs.values()) == [{20: 0.9}]


def test_a_stage_with_a_reward_of_its_own_is_correlated_apart(tmp_path: Path) -> None:
    other = {"name": "icrl"}
    stages = [{"name": "a", "kind": "rl"}, {"name": "b", "kind": "rl", "reward": other}]
    path = made(tmp_path / "a", stages=stages)
    rows = [
        {"step": n, "stage": stage, "when": "during", "greedy/mean_reward": float(at), "greedy/accuracy": n / 10}
        for n, (stage, at) in enumerate([*(("a", n) for n in range(4)), *(("b", 90 - n) for n in range(4))])
    ]
    jsonl(path / "evaluations.jsonl", [{**row, "greedy/episodes": 9} for row in rows])
    scatters = correlate_rewards(group_runs(opened(path), []))
    assert [(scatter.title, scatter.correlation.r) for scatter in scatters] == [
        ("greedy, answer", pytest.approx(1.0)),
        ("greedy, icrl", pytest.approx(-1.0)),
    ]
