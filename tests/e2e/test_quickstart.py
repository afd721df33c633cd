"""The main job, shrunken, with every part real: it learns, keeps its bounds, and leaves docs/run-directory.md."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlsys.journal import ledger, read_journal, surviving_rows
from rlsys.records import unpack_floats
from tests import device, wandb_file
from tests.e2e.runs import left_behind, rlsys, rows, summary, trajectories
from tests.makers.made import jsonl, records

SUPERVISED, STEPS, GROUPS = 150, 12, 32  # steps of each stage, and groups of one of the second's
SHRUNKEN = [f"stages.sft.steps={SUPERVISED}", f"stages.rl.steps={STEPS}", "eval.tasks=60", "checkpoint.every=6"]
SHRUNKEN.append("stages.rl.learner.schedule=constant")  # over so few steps it would fall before much is learned
SHRUNKEN.append("engine.max_num_seqs=64")  # so that a batch outlasts an update, and updates find it in flight


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    result = rlsys("train", "quickstart", "--run-dir", str(folder), *SHRUNKEN)
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    return folder


def rl_rows(run: Path) -> list[dict[str, Any]]:
    return [row for row in rows(run) if row["stage"] == "rl"]


def test_the_policy_learns(run: Path) -> None:
    run_summary = summary(run)
    assert (run_summary["status"], run_summary["steps"]) == ("done", SUPERVISED + STEPS)
    before, after = run_summary["eval"]["before"]["sampled"], run_summary["eval"]["after"]["sampled"]
    assert before < 0.65
    assert after > before + 0.15
    supervised = [row["loss/nll"] for row in rows(run) if row["stage"] == "sft"]
    assert supervised[-1] < 0.2 * supervised[0]


def test_engine_and_learner_agree_in_every_row(run: Path) -> None:
    assert sum("weights/publish_s" in row for row in rl_rows(run)) >= STEPS - 2
    assert all(row["mismatch/probe_max"] < 1e-4 for row in rl_rows(run))
    on_version = [row["mismatch/max"] for row in rl_rows(run) if "mismatch/max" in row]
    assert on_version and max(on_version) < 1e-3  # sampled under the very version that is trained


def test_the_lag_stays_within_its_bound_and_versions_only_grow_within_a_completion(run: Path) -> None:
    assert max(row["lag/max"] for row in rl_rows(run)) == summary(run)["lag"]["max"] == 1
    turns = [spans for t in trajectories(run) for spans in t["weight_versions"]]
    assert all(spans[0][1] == 0 for spans in turns)
    assert all(a[2] == b[1] and a[0] < b[0] for spans in turns for a, b in zip(spans, spans[1:], strict=False))


def test_every_prompt_is_accounted_for(run: Path) -> None:
    prompts = summary(run)["prompts"]
    assert prompts["dispatched"] == STEPS * GROUPS == prompts["trained"] + prompts["filtered"]
    assert prompts["failed"] == prompts["in_flight"] == 0
    assert ledger(surviving_rows(read_journal(run / "journal.jsonl"))).problems == ()
    result = rlsys("audit", str(run))
    assert (result.code, result.output.count("ok ")) == (0, 9), result.output


def test_trajectories_are_readable_and_token_exact(run: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    played = trajectories(run)
    assert len(played) == STEPS * GROUPS * 8
    two_calls = [t for t in played if len(t["token_ids"]) == 3 and t["end"] == "answered"]
    assert two_calls, "some problems need two tool calls"
    for t in two_calls[:20]:
        roles = [message["role"] for message in t["prompt"] + t["messages"]]
        assert roles == ["user", *["assistant", "user"] * 2, "assistant"]
        texts = [message["content"] for message in t["messages"] if message["role"] == "assistant"]
        assert [tokenizer.decode(ids) for ids in t["token_ids"]] == texts
        assert t["reward"] == pytest.approx(sum(t["parts"].values()))
        assert t["num_tokens"] == sum(map(len, t["token_ids"]))
        logprobs = [unpack_floats(turn) for turn in t["logprobs"]]
        assert [len(turn) for turn in logprobs] == [len(ids) for ids in t["token_ids"]]
        assert all(np.isfinite(turn).all() and (turn <= 0).all() for turn in logprobs)
        by_part = {part: sum(f["value"] for f in t["findings"] if f["part"] == part) for part in t["parts"]}
        assert by_part == pytest.approx(t["parts"])


def test_the_run_says_what_it_was_and_what_happened(run: Path) -> None:
    (attempt,) = json.loads((run / "run.json").read_text())["attempts"]
    (node,) = attempt["nodes"]
    assert node["parts"] == ["driver", "learner rank 0", "rollout:0"] and attempt["from_step"] == 0
    events = records(run / "events.jsonl")
    kinds = [event["kind"] for event in events]
    assert (kinds[0], kinds[-1], kinds.count("stage"), kinds.count("evaluation")) == ("begin", "end", 2, 2)
    assert not {"lost", "restart", "refused"} & set(kinds)
    saved = {f"{event['text'].split()[0]}" for event in events if event["kind"] == "checkpoint"}
    assert {path.name for path in (run / "checkpoints").glob("step-*")} <= saved
    times = [row["time"] for row in rows(run)]
    assert times == sorted(times) and attempt["time"] < times[0] < times[-1] <= events[-1]["time"]


def test_what_the_run_left_behind_is_scored_again_to_the_same_rewards(run: Path, tmp_path: Path) -> None:
    files = sorted((run / "trajectories").glob("step-*.jsonl"))
    for step in (files[0], files[-1]):
        output = tmp_path / step.name
        result = rlsys("score", "quickstart", "--input", str(step), "--output", str(output))
        assert result.code == 0, result.output[-3000:]
        rescored = records(output)
        before = records(step)
        assert len(before) == GROUPS * 8
        assert [(t["reward"], t["parts"]) for t in rescored] == [(t["reward"], t["parts"]) for t in before]


def test_the_seconds_and_the_tokens_of_a_row_add_up(run: Path) -> None:
    for row in rl_rows(run):
        kinds = [row[f"tokens/in_{kind}_groups"] for kind in ("trained", "filtered", "failed")]
        assert sum(kinds) == row["tokens/generated"]
        assert row["tokens/trained"] == kinds[0]
        apart = ("time/step", "time/episode_", "time/learner_")  # averages, and phases within time/update
        parts = [value for key, value in row.items() if key.startswith("time/") and not key.startswith(apart)]
        assert math.fsum(parts) == pytest.approx(row["time/step"])
        assert (
            row["episode/response_tokens"] > row["episode/tokens"]
            and row["episode/calls"] >= row["episode/valid_calls"] > 0
        )


def test_the_prompt_that_siblings_share_is_computed_once(run: Path) -> None:
    trained = [row for row in rl_rows(run) if "learner/tokens" in row]
    assert trained
    for row in trained if device.name() == "cpu" else ():
        assert 0.2 * row["learner/tokens"] < row["learner/tokens_shared"] < row["learner/tokens"]


def test_the_account_of_sampled_tokens_closes(run: Path) -> None:
    steps, evaluations = trajectories(run), trajectories(run, "eval-*.jsonl")
    tokens = summary(run)["tokens"]
    assert tokens["generated"] == sum(t["num_tokens"] for t in steps + evaluations)
    assert sum(t["num_tokens"] for t in steps) == sum(row["tokens/generated"] for row in rl_rows(run))
    assert (tokens["trained"], tokens["discarded"]) == (sum(row["tokens/trained"] for row in rows(run)), 0)


def test_of_a_healthy_run_nothing_bad_is_said_and_its_evaluations_are_kept(run: Path) -> None:
    run_summary = summary(run)
    assert run_summary["health"] == []
    assert run_summary["eval"]["measure"] == {"before": "accuracy", "after": "accuracy"}
    assert run_summary["eval"]["failures"]["after"] == {"greedy": 0, "sampled": 0}
    lines = records(run / "evaluations.jsonl")
    assert [(line["when"], line["step"]) for line in lines] == [("before", SUPERVISED), ("after", SUPERVISED + STEPS)]
    assert round(lines[1]["sampled/accuracy"], 4) == run_summary["eval"]["after"]["sampled"]


def test_checkpoints_are_hugging_face_folders_and_wandb_is_offline(run: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = run / "checkpoints" / f"step-{SUPERVISED + STEPS:06d}" / "hf"
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = AutoTokenizer.from_pretrained(folder)("2 + 3", return_tensors="pt").input_ids
    assert model(ids).logits.isfinite().all()
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
    assert len(list((run / "checkpoints").iterdir())) == 2
    logged = wandb_file.rows(run)
    assert [row["step"] for row in logged if "time/step" in row] == list(range(1, SUPERVISED + STEPS + 1))
    evaluated = [row["held_out/greedy/accuracy"] for row in logged if "held_out/greedy/accuracy" in row]
    assert evaluated == pytest.approx([summary(run)["eval"][when]["greedy"] for when in ("before", "after")], abs=1e-4)
    assert list((run / "wandb").glob("offline-run-*/files/media/table/samples*.json"))


def test_a_finished_run_says_so_and_more_is_refused_for_another_seed(run: Path) -> None:
    rerun = rlsys("train", "quickstart", "--run-dir", str(run), *SHRUNKEN)
    assert (rerun.code, "is finished" in rerun.output) == (0, True)
    other_seed = rlsys("train", "quickstart", "--run-dir", str(run), "seed=7", *SHRUNKEN)
    assert (other_seed.code, "seed=0, not 7" in other_seed.output) == (2, True)


def test_eval_plays_a_file_in_gsm8k_format_from_the_checkpoint(run: Path, tmp_path: Path) -> None:
    problems = [
        {
            "question": f"Ann has {n} pens and buys 4 more. How many pens does Ann have?",
            "answer": f"{n} + 4 = {n + 4}\n#### {n + 4}",
        }
        for n in range(10, 22)
    ]
    data, output = tmp_path / "problems.jsonl", tmp_path / "result.json"
    jsonl(data, problems)
    result = rlsys("eval", "quickstart", "--checkpoint", str(run), f"env.data={data}", "--output", str(output))
    assert result.code == 0, result.output[-3000:]
    report = json.loads(output.read_text())
    assert report["tasks"] == 12
    assert report["episodes"] == {"greedy": 12, "sampled": 24}
    assert report["failures"] == {"greedy": 0, "sampled": 0}
    assert report["measure"] == "accuracy" and set(report["accuracy"]) == {"greedy", "sampled"}
    episodes = [line for path in report["transcripts"].values() for line in Path(path).read_text().splitlines()]
    assert len(episodes) == 36
    assert left_behind() == []
