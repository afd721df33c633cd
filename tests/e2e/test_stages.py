"""The stages that sample and prefer, every part real: sft, generate, dpo on its pairs, sft on what it kept.

The run is killed among the preferences, and continued.
"""

import json
import math
import signal
from pathlib import Path

import pytest

from launch.driver.checkpoints.checkpoint import step_of
from tests.e2e.runs import left_behind, rlsys, rows, summary
from tests.makers.made import records

SFT_STEPS = 40
RECIPE = """
extends: quickstart
name: stages
env: {train_tasks: 256, demo_error_rate: 0.5}
eval: {tasks: 16}
checkpoint: {every: 4}
stages:
  - {name: sft, kind: sft, steps: 40, loop: {groups_per_step: 32}, learner: {lr: 2.0e-3}, eval: {every: 20}}
  - {name: tries, kind: generate, generate: {samples: 4, tasks: 96, keep: correct, per_task: 2}}
  - {name: prefer, kind: dpo, data: tries, epochs: 2, loop: {groups_per_step: 8}, learner: {lr: 1e-4}, eval: {every: 4}}
  - {name: again, kind: sft, data: tries, steps: 4, loop: {groups_per_step: 8}, learner: {lr: 1.0e-4}}
  - name: distil
    kind: sft
    data: tries
    prompts: env
    steps: 2
    env: {instruction: "Use the calculator."}
    loop: {groups_per_step: 8}
    learner: {lr: 1.0e-4}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    (folder / "stages.yaml").write_text(RECIPE)
    run = folder / "run"
    command = ["train", str(folder / "stages.yaml"), "--run-dir", str(run)]
    checkpoints = run / "checkpoints"
    killed = rlsys(*command, send=signal.SIGKILL, when=lambda: (checkpoints / f"step-{SFT_STEPS + 4:06d}").is_dir())
    assert killed.code == -signal.SIGKILL, killed.output[-3000:]
    newest = max(step_of(path) for path in checkpoints.glob("step-*"))
    result = rlsys(*command)  # and tidies up, which nobody could
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    assert [attempt["from_step"] for attempt in json.loads((run / "run.json").read_text())["attempts"]] == [0, newest]
    return run


def test_the_killed_run_goes_on_from_its_newest_checkpoint(run: Path) -> None:
    assert [row["step"] for row in rows(run)] == list(range(1, summary(run)["steps"] + 1))
    assert rlsys("audit", str(run)).code == 0
    start_step = json.loads((run / "run.json").read_text())["attempts"][-1]["from_step"]
    first = next(row for row in rows(run) if row["step"] == start_step + 1)
    assert abs(first["loss/dpo"] - math.log(2)) > 1e-3  # not against the weights that it was continued with


def test_what_is_kept_was_sampled_by_these_weights_and_solved(run: Path) -> None:
    from transformers import AutoTokenizer

    counts = summary(run)["generated"]["tries"]
    assert (counts["tasks"], counts["trajectories"], counts["failed"]) == (96, 384, 0)
    attempts = records(run / "generated" / "tries.jsonl")
    assert 0 < len(attempts) == counts["kept"] <= counts["solved"]
    assert all(row["parts"]["correct"] == 1.0 for row in attempts)
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    for attempt in attempts:
        (sample,) = attempt["samples"]
        texts = [tokenizer.decode(sample["token_ids"][start:end]) for start, end in sample["sampled"]]
        assert texts == [message["content"] for message in attempt["messages"] if message["role"] == "assistant"]
    assert summary(run)["tokens"]["generated"] >= sum(
        trajectory["num_tokens"]
        for task in records(run / "generated" / "tries.played.jsonl")[1:]
        for trajectory in task["trajectories"]
    )


def test_preferences_are_learned_against_the_weights_that_the_stage_began_with(run: Path) -> None:
    pairs = records(run / "generated" / "tries.pairs.jsonl")
    assert len(pairs) == summary(run)["generated"]["tries"]["pairs"]
    assert all(pair["chosen_reward"] > pair["rejected_reward"] for pair in pairs)
    prefer = [row for row in rows(run) if row["stage"] == "prefer"]
    held_out = max(int(len(pairs) * 0.1), 1)
    assert len(prefer) == math.ceil(2 * (len(pairs) - held_out) / 8)
    assert prefer[0]["loss/dpo"] == pytest.approx(math.log(2), abs=1e-4)
    assert prefer[-1]["loss/dpo"] < 0.6
    assert "eval/accuracy" in prefer[-1]
    for row in prefer:
        assert row["dpo/chosen_reward"] - row["dpo/rejected_reward"] == pytest.approx(row["dpo/margin"], abs=1e-5)


def test_answers_are_learned_and_the_last_stage_is_measured(run: Path) -> None:
    steps = [row for row in rows(run) if row["stage"] == "again"]
    assert len(steps) == 4
    assert steps[-1]["loss/nll"] < steps[0]["loss/nll"]
    run_summary = summary(run)
    assert run_summary["status"] == "done"
    assert set(run_summary["eval"]["before"]) == set(run_summary["eval"]["after"]) == {"greedy", "sampled"}
    assert any("eval/loss" in row for row in rows(run) if row["stage"] == "sft")
    assert len(list((run / "checkpoints").iterdir())) == 2


def test_answers_are_taught_under_the_prompts_of_the_stage(run: Path) -> None:
    attempts = records(run / "generated" / "tries.jsonl")
    (account,) = [row for row in records(run / "events.jsonl") if row["stage"] == "distil" and "taught" in row]
    assert (account["taught"], account["too_long"], account["rewritten"]) == (len(attempts), 0, 0)
    sampled = [end - start for attempt in attempts for start, end in attempt["samples"][0]["sampled"]]
    assert account["tokens"] == sum(sampled)
    assert account["before"] == sum(attempt["samples"][0]["sampled"][0][0] for attempt in attempts)
    assert account["after"] > account["before"]  # an instruction stands before each question now
    distil = [row for row in rows(run) if row["stage"] == "distil"]
    assert len(distil) == 2 and all(row["data/too_long"] == 0 for row in distil)


@pytest.mark.slow
def test_generate_plays_a_checkpoint_and_filters_without_playing_again(run: Path) -> None:
    output = run.parent / "best.jsonl"
    command = ["generate", str(run.parent / "stages.yaml"), "--checkpoint", str(run), "--output", str(output)]
    command += ["--samples", "3", "--tasks", "16"]
    played = rlsys(*command, "--keep", "best", "--per-task", "1")
    assert played.code == 0, played.output[-3000:]
    assert len(records(output)) == 16
    rerun = rlsys(*command, "--keep", "all")
    assert rerun.code == 0, rerun.output[-3000:]
    assert "all 16 tasks have been played" in rerun.output
    assert len(records(output)) > 16
    assert left_behind() == []
