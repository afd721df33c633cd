"""SWiRL end to end, every part real: played once, judged once, trained from offline states, killed in its midst."""

import json
import signal
from pathlib import Path

import pytest

from launch.cli import run as command
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from rlsys.journal import ledger, read_journal, surviving_rows
from tests.e2e.runs import left_behind, rlsys, rows, steps_of, summary
from tests.makers.made import records

pytestmark = pytest.mark.slow
SHORT = ["stages.sft.steps=60", "stages.tries.generate.tasks=40", "stages.tries.generate.samples=3", "eval.tasks=8"]
SWIRL = [
    *(f"stages.swirl.{key}" for key in ("steps=8", "loop.groups_per_step=8", "checkpoint.every=3")),
    "verdicts.keep=none",
    "verdicts.equal=false",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed while it trains, and continued."""
    folder = tmp_path_factory.mktemp("swirl") / "run"
    command = ["train", "swirl/tiny", "--run-dir", str(folder), *SHORT, *SWIRL]
    killed = rlsys(*command, send=signal.SIGKILL, when=lambda: steps_of(folder, "swirl") >= 4)
    assert killed.code == -signal.SIGKILL, killed.output[-3000:]
    result = rlsys(*command)
    assert result.code == 0, result.output[-3000:]
    assert "playing 40 tasks" in killed.output and "playing 40 tasks" not in result.output
    assert left_behind() == []
    return folder


def test_every_step_has_its_verdict(run: Path) -> None:
    tries, judged = (records(run / "generated" / f"{name}.jsonl") for name in ("tries", "judged"))
    assert [t["messages"] for t in judged] == [t["messages"] for t in tries]
    for trajectory in judged:
        replies = [message for message in trajectory["messages"] if message["role"] == "assistant"]
        assert len(trajectory["judgements"]) == len(replies) and isinstance(trajectory["correct"], bool)
    counts = summary(run)["generated"]["judged"]
    assert counts["none"] == len(judged) >= counts["process"] >= counts["both"]


def test_states_are_offline_actions_are_fresh_and_the_account_closes(run: Path) -> None:
    trained = [row for row in rows(run) if row["stage"] == "swirl"]
    assert [row["stage_step"] for row in trained] == list(range(1, 9))
    book = ledger(surviving_rows(read_journal(run / "journal.jsonl")))
    assert (book.in_flight, book.problems) == (0, ())
    states = {f"{t['task']['task_id']}/{t['sibling']}" for t in records(run / "generated" / "judged.jsonl")}
    for path in (run / "trajectories").glob("step-*"):
        for trajectory in records(path):
            assert trajectory["task"]["task_id"].rpartition("/")[0] in states
            assert [message["role"] for message in trajectory["messages"]] == ["assistant"]  # one action, and no result
            assert trajectory["reward"] in (0.0, 1.0) and len(trajectory["judgements"]) == 1


def test_another_set_and_another_learner_take_no_further_episode(run: Path) -> None:
    """Appendix C: supervised training on a set of the same generation."""
    model = sorted((run / "checkpoints").glob("step-*"))[0] / "hf"
    data = run / "generated" / "judged.jsonl"
    recipe = run.parent / "again.yaml"
    recipe.write_text(
        f"extends: swirl/tiny\nname: again\nmodel: {{path: {model}}}\n"
        "verdicts: {keep: none, equal: false, trajectories: 20}\n"
        f"stages: [{{name: sft, kind: sft, data: {data}, steps: 2, loop: {{groups_per_step: 4}}}}]\n"
    )
    result = rlsys("train", str(recipe), "--run-dir", str(run.parent / "again"))
    assert result.code == 0, result.output[-3000:]
    assert "2 supervised steps of 4 answers from 20 (judged.jsonl)" in result.output
    assert left_behind() == []


GEMMA = {  # its config.json
    "model_type": "gemma2",
    "num_hidden_layers": 46,
    "hidden_size": 4608,
    "intermediate_size": 36864,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "vocab_size": 256000,
    "tie_word_embeddings": True,
    "attn_logit_softcapping": 50.0,
    "max_position_embeddings": 8192,
}


def test_the_papers_model_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models--google--gemma-2-27b-it"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / "config.json").write_text(json.dumps(GEMMA))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert command(["train", "swirl", "--dry-run"]) == 2  # its data is not here
    out, err = capsys.readouterr()
    assert "27.23 G parameters" in out and "8 engines x 2 + 16 ranks + 2 of services = 34" in out
    assert out.count("ZeRO-3, in stage swirl)") == 1 and "data/swirl/train.jsonl: no such file" in err


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONFIGS / "swirl" / "ablations").glob("*.yaml")))
def test_an_ablation_resolves(name: str) -> None:
    last = compose(f"swirl/ablations/{name}", []).stages[-1]
    assert last.kind == {"sft": "sft", "base": "eval"}.get(name, "stepwise")
    assert last.config.env.name == ("calculator" if name == "gsm8k" else "search_qa")
