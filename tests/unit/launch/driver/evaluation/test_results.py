"""What an evaluation comes to: numbers that are called what they are, their intervals, and failures that are shown."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.papers.research.reward import ResearchRewardConfig
from envs.rewards.answer import AnswerRewardConfig
from launch.driver.evaluation.against import against_lines, compare_with_earlier, read_earlier
from launch.driver.evaluation.report import (
    combine_plays,
    describe_results,
    evaluation_report,
    failure_lines,
    metric_lines,
    paper_figures_of,
    results_table,
)
from launch.driver.evaluation.results import Result, result_of
from launch.driver.evaluation.sets import Play, TaskSet
from launch.driver.run.rundir import RunDir
from launch.run_dir.played import EvalResult
from rlsys.config.evaluation import EvalConfig
from rlsys.config.loop import LoopConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.harvest import check_failure_share
from rlsys.records import TrajectoryRecord
from rlsys.types import EpisodeEnd, Failure, FailureKind, Message, Reward

BROKEN = Failure(kind=FailureKind.DATA, where="reward", detail="ValueError: it\nbroke")
MAZE = SimpleNamespace(name="tests.unit.launch.driver.evaluation.test_results.MazeReward")


@dataclass(frozen=True)
class MazeConfig:
    name: str = ""


class MazeReward:
    """Somebody's own: the exit, and something for form. It does not say which part is right."""

    def __init__(self, config: MazeConfig) -> None: ...


def played(
    reward: Any = None,
    *,
    samples: int = 1,
    seeds: int = 1,
    paper: Any = None,
    temperature: float = 0.0,
    by: str | None = None,
) -> Play:
    recipe = SimpleNamespace(reward=reward or AnswerRewardConfig(), loop=LoopConfig(), eval=EvalConfig(by=by))
    return Play(
        TaskSet(name="", recipe=recipe, split="held_out", drawn=False, paper=paper or {}),  # type: ignore[arg-type]
        "sampled" if temperature else "greedy",
        samples,
        seeds,
        temperature,
    )


def episode(
    reward: Reward | Failure,
    task: int = 0,
    sibling: int = 0,
    *said: str,
    end: EpisodeEnd = EpisodeEnd.ANSWERED,
    **more: Any,
) -> TrajectoryRecord:
    graded = reward if isinstance(reward, Reward) else None
    return TrajectoryRecord(
        task={"task_id": f"t:{task}", "question": f"{task} + 3?", "answers": ["5"]},
        sequence=task,
        sibling=sibling,
        prompt=(),
        messages=tuple(Message(role="assistant", content=text) for text in said),
        end=EpisodeEnd.FAILED if graded is None else end,
        truncated=False,
        reward=None if graded is None else graded.value,
        parts={} if graded is None else graded.parts,
        failure=reward if isinstance(reward, Failure) else None,
        num_tokens=more.pop("tokens", 3),
        weight_versions=more.pop("weight_versions", ()),
        **more,
    )


def reward(goal: float, form: float = 0.0, right: str = "correct") -> Reward:
    return Reward(value=goal + form, parts={right: goal, "format": form})


def of(*rewards: Reward | Failure, config: Any = None) -> Result:
    """One task of these samples."""
    return result_of([episode(score, 0, at) for at, score in enumerate(rewards)], played(config, samples=len(rewards)))


def test_an_accuracy_is_over_those_that_were_graded() -> None:
    result = of(reward(1.0, 0.1), reward(0.0, 0.1), BROKEN)
    assert (result.measure, result.value, result.metrics["mean_reward"].value) == ("accuracy", 0.5, pytest.approx(0.6))
    assert (result.episodes, result.failures, result.tokens, result.partial) == (3, 1, 9, False)
    row = result.row()
    assert (row["accuracy"], row["episodes"], row["failures"], row["part/format"]) == (0.5, 3, 1, pytest.approx(0.1))


def test_without_a_word_on_what_is_right_the_number_is_a_mean_reward() -> None:
    """The maze of a newcomer: 4 of 30 at the exit, and an answer tag for all. It was reported as an accuracy of 1."""
    result = of(*[reward(1.0, 0.1, "goal")] * 4, *[reward(0.0, 0.1, "goal")] * 26, config=MAZE)
    assert (result.measure, result.value) == ("mean reward", pytest.approx(7 / 30))
    assert "accuracy" not in result.row() and "pass@1" not in result.row()
    head, line = results_table({"greedy": result})
    assert "mean reward" in head and "accuracy" not in head and line.split()[:2] == ["greedy", "0.233"]
    assert "accuracy" in results_table({"greedy": of(reward(1.0))})[0]


def test_failures_are_told_with_the_first_reason() -> None:
    whole = of(*[reward(1.0)] * 3)
    assert describe_results({"greedy": whole, "sampled": whole}) == "greedy 1.000, sampled 1.000"
    some = of(*[reward(1.0), reward(0.0), BROKEN] * 8)
    assert describe_results({"greedy": some, "sampled": whole}) == (
        "greedy 0.500, sampled 1.000; greedy: 16 of 24 graded, 8 failed; "
        "the first: data in reward: ValueError: it broke"
    )
    (line,) = failure_lines({"greedy": some, "sampled": whole})
    assert line.startswith("greedy: 8 of 24 failed; the first: ") and "it broke" in line


def test_above_the_limit_there_is_no_number() -> None:
    most = of(*[reward(1.0), BROKEN, BROKEN] * 8)
    assert (most.value, dict(most.metrics), most.row()) == (None, {}, {"episodes": 24, "failures": 16})
    assert describe_results({"greedy": most}).startswith(
        "greedy none; greedy: 8 of 24 graded, 16 failed, above loop.max_failed_share=0.5; the first:"
    )
    with pytest.raises(RunFailed, match=r"^16 of 24 episodes failed \(limit .*=0.5\); the first: .* it broke$"):
        check_failure_share(most.failed, most.episodes, most.limit, "episodes")  # as `rlsys eval` does
    assert results_table({"greedy": most})[1].split()[:4] == ["greedy", "-", "24", "16"]


# two tasks, two seeds of two samples: the first 3 of 4 right, the second 1 of 4
SAMPLED = [episode(reward(float(right)), task, at)
           for task, rights in enumerate(((1, 1, 0, 1), (0, 0, 1, 0))) for at, right in enumerate(rights)]  # fmt: skip


def test_samples_seeds_and_passes_by_hand() -> None:
    metrics = result_of(SAMPLED, played(samples=2, seeds=2)).metrics
    assert (metrics["accuracy"].value, metrics["mean@4"]) == (0.5, metrics["accuracy"])
    assert metrics["accuracy"].spread == 0.0  # each seed has 2 of 4
    # of pairs: the first task has 0 wrong ones (one wrong sample), the second 3 of 6
    assert metrics["pass@2"].value == (1 + 0.5) / 2
    assert (metrics["pass@1"].value, metrics["pass@4"].value) == (0.5, 1.0)
    assert (metrics["accuracy"].low, metrics["accuracy"].high) == (0.25, 0.75)  # two tasks, whose samples stay together
    swapped = [replace(record, sibling=(record.sibling + 2) % 4) for record in SAMPLED[:4]] + SAMPLED[4:]
    # seed 0 has 1 and 0 of 2, seed 1 has 2 and 1: means 1/4 and 3/4
    assert result_of(swapped, played(samples=2, seeds=2)).metrics["accuracy"].spread == pytest.approx(0.5 / 2**0.5)


def test_a_task_of_which_too_few_were_graded_is_in_no_pass_that_needs_more() -> None:
    records = [*SAMPLED[:4], *SAMPLED[4:6], episode(BROKEN, 1, 2), episode(BROKEN, 1, 3)]
    metrics = result_of(records, played(samples=4)).metrics
    assert (metrics["pass@2"].value, metrics["pass@4"].value) == ((1 + 0) / 2, 1.0)


def test_numbers_do_not_depend_on_the_order_of_the_episodes() -> None:
    result, other = (result_of(records, played(samples=2, seeds=2)) for records in (SAMPLED, SAMPLED[::-1]))
    assert result.metrics["accuracy"].value == other.metrics["accuracy"].value
    assert result.tasks == other.tasks == {"t:0": 0.75, "t:1": 0.25}


def test_use_of_tools_and_what_came_of_how_many_messages() -> None:
    records = [
        episode(reward(1.0), 0, 0, "call", "5", metrics={"calls": 1.0, "reply_tokens": 4.0}),
        episode(reward(0.0), 1, 0, "6"),
        episode(reward(0.0), 2, 0, "call", "call", metrics={"calls": 2.0}, end=EpisodeEnd.TURN_LIMIT),
    ]
    result = result_of(records, played())
    assert result.metrics["calls"].value == 1.0
    assert (result.metrics["tokens"].value, result.metrics["response_tokens"].value) == (3.0, pytest.approx(13 / 3))
    assert {n: metric.value for n, metric in result.by_turns.items()} == {1: 0.0, 2: 0.5}
    assert result.episodes_by_turns == {1: 1, 2: 2}
    assert result.answered_by == {1: pytest.approx(1 / 3), 2: pytest.approx(2 / 3)}


def test_the_share_of_one_text_is_of_all_that_the_policy_wrote_in_an_episode() -> None:
    said = [("call", "5"), ("call", "6"), ("5",), ("call", "5"), ("5", "call")]
    records = [episode(reward(1.0), task, 0, *texts) for task, texts in enumerate(said)]
    assert result_of(records, played()).metrics["same_text"].value == 0.4


def test_the_number_stands_for_each_value_of_a_field_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = {"t:0": "10", "t:1": "2", "t:2": "2", "t:3": "none"}
    monkeypatch.setattr(TaskSet, "values", lengths)
    monkeypatch.setattr(Play, "digest", lambda self: "")
    monkeypatch.setattr(Play, "way", lambda self: {})
    records = [episode(reward(float(task in (0, 1))), task) for task in range(3)] + [episode(BROKEN, 3)]
    result = result_of(records, played(by="plan_length"))
    assert {value: metric.value for value, metric in result.by_value.items()} == {"2": 0.5, "10": 1.0}
    assert (list(result.by_value), result.episodes_by_value) == (["2", "10"], {"2": 2, "10": 1})
    assert result.row()["accuracy_by_plan_length/2"] == 0.5
    lines = [line.split() for line in results_table({"greedy": result})]
    assert lines[2:] == [["plan_length", "2", "0.500", "0.095", "to", "0.905", "2"],
                         ["plan_length", "10", "1.000", "0.207", "to", "1.000", "1"]]  # fmt: skip
    assert "; greedy by plan_length  2: 0.500 of 2, 10: 1.000 of 1; greedy: 3 of 4 graded" in describe_results(
        {"greedy": result}
    )
    written = evaluation_report({}, {"greedy": played(by="plan_length")}, {"greedy": result})["plays"]["greedy"]
    assert (written["by"], written["by_value"]["10"]["value"]) == ("plan_length", 1.0)


def test_a_short_answer_is_measured_in_every_way_and_the_versions_are_counted() -> None:
    reply = "<think>x</think><answer>\\boxed{the 5}</answer>"
    spans = (((4, 0, 2), (5, 2, 3)),)
    config = ResearchRewardConfig()
    result = result_of(
        [episode(Reward(value=1.0, parts={"f1": 1.0, "format": 0.0}), 0, 0, reply, weight_versions=spans)],
        played(config),
    )
    assert (result.metrics["exact_match"].value, result.metrics["f1_icrl"].value) == (1.0, 1.0)
    assert result.versions == {4: 2, 5: 1}


def test_part_of_an_evaluation_is_called_that_with_its_bounds() -> None:
    half = result_of([episode(reward(1.0), 0), episode(reward(0.0), 1)], played(), planned=4)
    assert half.partial and half.bounds == (0.25, 0.75)
    assert half.row()["planned"] == 4
    assert describe_results({"greedy": half}) == (
        "greedy 0.500; greedy: partial, 2 of 4 episodes, 0.095 to 0.905, with the rest 0.250 to 0.750"
    )
    assert (
        describe_results({"greedy": result_of([], played(), planned=4)})
        == "greedy none; greedy: partial, 0 of 4 episodes"
    )


def test_an_evaluation_that_is_made_again_has_one_line_and_a_lost_one_none(tmp_path: Path) -> None:
    directory = RunDir(tmp_path / "run")

    def lines() -> list[tuple[str, int, float]]:
        rows = map(json.loads, (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines())
        return [(row["when"], row["step"], row["greedy/accuracy"]) for row in rows]

    for when, step, accuracy in (("before", 150, 0.1), ("after", 162, 0.9), ("before", 150, 0.2)):
        directory.save_evaluation({"step": step, "stage": "rl", "when": when, "greedy/accuracy": accuracy})
    assert lines() == [("before", 150, 0.2), ("after", 162, 0.9)]
    directory.rewind_metrics(156)  # to the newest checkpoint
    assert lines() == [("before", 150, 0.2)]
    directory.close()


# -- beside a paper, and another evaluation ----------------------------------------------------------------------------


def test_a_papers_figure_stands_beside_ours() -> None:
    play = played(paper={"accuracy": 0.4, "sampled/pass@2": 0.9, "judge": 0.7}, samples=2, seeds=2, temperature=1.0)
    assert paper_figures_of(play) == {"accuracy": 0.4, "pass@2": 0.9, "judge": 0.7}
    lines = metric_lines({"sampled": result_of(SAMPLED, play)}, {"sampled": paper_figures_of(play)})
    rows = {line.split()[1]: line.split() for line in lines}
    assert rows["accuracy"][2] == "0.500" and rows["accuracy"][-2:] == ["paper", "0.400"]
    assert rows["pass@2"][2] == "0.750" and rows["pass@2"][-1] == "0.900"
    assert rows["judge"][2:] == ["-", "paper", "0.700"]  # which this reward does not have
    assert "mean_reward" in rows and "part/correct" not in rows
    assert (rows["tokens"][2], rows["truncated"][2]) == ("3.0", "0.000")  # a number, and a share


def written(tmp_path: Path, records: list[TrajectoryRecord]) -> dict[str, EvalResult]:
    play = played()
    results = evaluation_report({}, {"greedy": play}, {"greedy": result_of(records, play)})
    (tmp_path / "result.json").write_text(json.dumps(results))
    return read_earlier(str(tmp_path / "result.json"))


def test_another_evaluation_is_compared_by_task_and_as_two_proportions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Play, "digest", lambda self: "")
    monkeypatch.setattr(Play, "way", lambda self: {})
    before = written(tmp_path, [episode(reward(float(task < 2)), task) for task in range(5)])  # 2 of 5
    after = result_of([episode(reward(float(task < 4)), task) for task in range(5)], played())  # 4 of 5
    assert before["greedy"].numbers["accuracy"].value == 0.4 and before["greedy"].tasks["t:0"] == 1.0
    paper = compare_with_earlier({"greedy": after.played}, before, "paper")["greedy"]
    comparison = compare_with_earlier({"greedy": after.played}, before)["greedy"]
    assert paper.unpaired and comparison.paired and (paper.paired, comparison.unpaired) == (None, None)
    assert (comparison.ours, comparison.theirs, comparison.difference) == (0.8, 0.4, pytest.approx(0.4))
    # pooled 6 of 10: z = 0.4 / sqrt(0.24 * 2/5); paired differences 0 0 1 1 0: of 4 ways two gained or two lost
    assert paper.unpaired.z == pytest.approx(0.4 / (0.24 * 0.4) ** 0.5)
    assert (comparison.paired.tasks, comparison.paired.test, comparison.paired.p) == (5, "McNemar", 0.5)
    (line,) = against_lines({"greedy": comparison}, "a.json")
    assert line.startswith("against a.json: greedy 0.800, there 0.400; on the 5 tasks of both +0.400 (")
    assert line.endswith("McNemar p = 0.5")
    assert "two-proportion z-test p = 0.197" in against_lines({"greedy": paper}, "a.json")[0]
    assert compare_with_earlier({"other/greedy": after.played}, before) == {}
    assert against_lines({}, "a.json") == ["against a.json: no play with a number in both"]


def test_tasks_are_the_same_where_they_ask_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Play, "digest", lambda self: "")
    monkeypatch.setattr(Play, "way", lambda self: {})
    before = written(tmp_path, [episode(reward(float(task < 2)), task) for task in range(5)])
    again = [episode(reward(1.0), task) for task in range(3)]
    moved = [replace(record, task={**record.task, "task_id": f"other.jsonl:{record.sequence}"}) for record in again]
    comparison = compare_with_earlier({"greedy": result_of(moved, played()).played}, before)["greedy"]
    assert comparison.paired and (comparison.paired.tasks, comparison.paired.difference) == (3, pytest.approx(1 / 3))
    drawn = [replace(record, task={**record.task, "question": "another?"}) for record in again]
    comparison = compare_with_earlier({"greedy": result_of(drawn, played()).played}, before)["greedy"]
    assert (
        comparison.paired is None and comparison.why_not == "3 tasks of the same id ask something else, the first: t:0"
    )
    assert comparison.why_not in against_lines({"greedy": comparison}, "a.json")[0]
    unknown = {"greedy": replace(before["greedy"], contents={})}  # of before there were contents: by their ids
    paired = compare_with_earlier({"greedy": result_of(drawn, played()).played}, unknown)["greedy"].paired
    assert paired is not None and paired.tasks == 3


def test_the_mean_reward_stands_beside_the_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Play, "digest", lambda self: "")
    monkeypatch.setattr(Play, "way", lambda self: {})
    rewarded = result_of([episode(Reward(value=1.1, parts={"correct": 1.0, "format": 0.1}))], played())
    none = result_of([episode(BROKEN)], played())
    results = evaluation_report({}, {"a": played(), "b": played()}, {"a": rewarded, "b": none})
    assert results["accuracy"] == {"a": 1.0, "b": None} and results["mean_reward"] == {"a": 1.1, "b": None}
    assert "mean_reward" not in evaluation_report({}, {"b": played()}, {"b": none})


def test_nothing_right_has_an_interval() -> None:
    none = result_of([episode(reward(0.0), task) for task in range(30)], played())
    metrics = none.metrics
    assert (metrics["accuracy"].low, metrics["accuracy"].high) == (0.0, pytest.approx(0.1135, abs=1e-4))
    assert none.row()["accuracy_high"] == metrics["accuracy"].high
    assert metrics["truncated"].high > 0 and metrics["mean_reward"].low == metrics["mean_reward"].high == 0
    assert "0.000 to 0.114" in results_table({"greedy": none})[1]
    assert not any("0.000 to 0.000" in line for line in metric_lines({"greedy": none}, {"greedy": {}}))
    alike = result_of([episode(reward(float(n)), task, n) for task in range(30) for n in (0, 1)], played(samples=2))
    assert alike.metrics["accuracy"].low < 0.5 < alike.metrics["accuracy"].high


def test_what_sets_say_together_stands_in_lines_and_in_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskSet, "parents", {"t:2": "t:0", "t:3": "t:1"})
    plays = {name: played() for name in ("whole/greedy", "steps/greedy")}
    plays["steps/greedy"] = replace(plays["steps/greedy"], of=replace(played().of, steps_of="whole"))
    whole = result_of([episode(reward(1.0), 0), episode(reward(0.0), 1)], played())
    steps = result_of([episode(reward(1.0), 2), episode(reward(1.0), 3)], played())
    ours = {"whole/greedy": replace(whole, group="g").played, "steps/greedy": steps.played}
    lines, totals = combine_plays(plays, ours)
    assert lines[0].startswith("steps/greedy: single steps of whole/greedy: steps and task right 1, steps alone 1,")
    assert lines[1] == "g/greedy  mean 0.500 over 1 sets"
    assert totals["steps"]["steps/greedy"]["steps_alone"] == 1 and totals["groups"]["g/greedy"]["increase"] is None
    assert combine_plays({"whole/greedy": plays["whole/greedy"]}, {"whole/greedy": steps.played}) == ([], {})


@pytest.mark.parametrize(("text", "line"), [("{}", 'no "plays"'), ("[", "not JSON"), (None, "cannot be read")])
def test_what_is_no_result_is_refused(text: str | None, line: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadInput, match=line):
        read_earlier(str(tmp_path / "a.json"))
