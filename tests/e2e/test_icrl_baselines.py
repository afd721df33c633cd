"""ICRL's rows that are not the method, played: asked in other ways, taught the answers, taught its own right attempts.

The ablations are the paper's, with a tiny policy, made-up questions and a real retriever in the place of theirs.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import left_behind, rlsys, rows, summary, trajectories
from tests.makers.made import records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SETS = ("triviaqa", "hotpotqa", "2wiki", "musique", "bamboogle")
WAYS = ("direct", "cot", "rag", "ircot")
# It searches without examples, and copies what it reads: else none of its attempts would be right.
TAUGHT = [
    *(f"stages.{name}=null" for name in ("follow", "shots_3", "shots_2", "shots_1", "shots_0", "test")),
    *("stages.read.env.demonstrations.count=0", "stages.read.env.demo_follow_rate=null", "engine.max_model_len=1024"),
]
# What the machine and the made-up world ask for; the data files of the paper are not there.
SMALL = [
    *("cluster.device=cpu", "cluster.gpu_memory_gb=null", "model.dtype=float32"),
    *("engine.max_model_len=1024", "engine.max_num_seqs=64", "engine.kv_cache_mb=256"),
    *("rollout.workers=1", "rollout.max_turn_tokens=48"),
    *("learner.ranks=1", "learner.zero_stage=1", "learner.offload=none"),
    *("env.data=null", "env.knowledge.entities=1500", "env.knowledge.hops=1", "env.demo_error_rate=0.0"),
    *("env.train_tasks=3900", "env.held_out_tasks=200", "env.retriever.corpus=null", "env.retriever.index=null"),
    *("eval.tasks=4", "eval.max_turn_tokens=48"),
]
AS_TAUGHT = [  # the keys of icrl/tiny that its prompt and its passages follow from
    *("env.topk=1", "env.max_turns=4", "env.max_reply_tokens=64", "env.demonstrations.file=null"),
    "env.instruction='You can search for what you do not know, as often as you want.'",
]
TESTED = [f"stages.test.eval.sets.{name}.env.eval_data=null" for name in SETS]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("icrl") / "taught"
    result = rlsys("train", "icrl/tiny", "--run-dir", str(run), *TAUGHT)
    assert result.code == 0, result.output[-3000:]
    return max((run / "checkpoints").glob("step-*")) / "hf"


def play(ablation: str, run: Path, taught: Path, *changes: str) -> dict[str, Any]:
    """Train an ablation from the taught checkpoint and return its last row of evaluations."""
    overrides = [*SMALL, f"model.path={taught}", *changes]
    result = rlsys("train", f"icrl/ablations/{ablation}", "--run-dir", str(run), *overrides)
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    *_, row = map(json.loads, (run / "evaluations.jsonl").read_text().splitlines())
    evaluation: dict[str, Any] = row
    return evaluation


def check_tested(row: dict[str, Any]) -> None:
    assert row["stage"] == "test"
    for name in SETS:
        assert row[f"{name}/sampled/failures"] == 0 and 0.0 <= row[f"{name}/sampled/exact_match"] <= 1.0


def test_every_other_way_to_ask_is_played_on_every_set(taught: Path, tmp_path: Path) -> None:
    sets = [f"eval.sets.{way}-{name}.env.eval_data=null" for way in WAYS for name in SETS]
    row = play("baselines", tmp_path / "run", taught, *sets)
    for way in WAYS:
        for name in SETS:
            assert row[f"{way}-{name}/sampled/failures"] == 0
            assert 0.0 <= row[f"{way}-{name}/sampled/exact_match"] <= 1.0
            if way != "ircot":
                assert row[f"{way}-{name}/sampled/turns"] == 1.0
    for way, has_passages in (("direct", False), ("cot", False), ("rag", True), ("ircot", True)):
        played = trajectories(tmp_path / "run", f"eval-baselines-*-{way}-triviaqa-sampled*")
        assert len(played) == 4
        for trajectory in played:  # a retriever that is down gives no passages here, and no failure
            assert ("\nThe " in trajectory["prompt"][0]["content"]) is has_passages
            assert f"Question: {trajectory['task']['question']}" in trajectory["prompt"][0]["content"]


def test_answers_alone_are_taught_without_the_tool(taught: Path, tmp_path: Path) -> None:
    short = ["stages.sft.steps=3", "stages.sft.loop.groups_per_step=4"]
    row = play("sft", tmp_path / "run", taught, *short, *TESTED)
    check_tested(row)
    assert [step["stage"] for step in rows(tmp_path / "run")] == ["sft"] * 3
    assert all(row[f"{name}/sampled/turns"] == 1.0 for name in SETS)
    assert not any(f"{name}/sampled/calls" in row for name in SETS)  # nothing counted: no call was made


def test_right_attempts_with_the_tool_are_what_is_trained_on(taught: Path, tmp_path: Path) -> None:
    short = ["generate.tasks=32", "stages.sft.loop.groups_per_step=8"]
    row = play("rejection-sampling", tmp_path / "run", taught, *AS_TAUGHT, *short, *TESTED)
    check_tested(row)
    counts = summary(tmp_path / "run")["generated"]["tries"]
    assert (counts["tasks"], counts["trajectories"]) == (32, 5 * 32)
    attempts = records(tmp_path / "run" / "generated" / "tries.jsonl")
    assert 0 < len(attempts) == counts["kept"] <= counts["solved"]
    assert all(attempt["parts"]["accuracy"] > 0 for attempt in attempts)
    assert any("<search>" in message["content"] for attempt in attempts for message in attempt["messages"])
    assert {step["stage"] for step in rows(tmp_path / "run")} == {"sft"}
