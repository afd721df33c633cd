"""A whole run with an adapter: killed in its middle, finished, played, merged, and read by other programs."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import psutil
import pytest
import torch

from launch.driver.run import cleanup
from rlsys.adapters import BASES, read_adapter
from rlsys.journal import ledger, read_journal, surviving_rows
from tests.e2e.runs import left_behind, rlsys, rows, steps_of, summary

pytestmark = pytest.mark.slow

SHORT = ["model.lora.rank=8", "stages.sft.steps=40", "stages.rl.steps=14", "eval.tasks=16", "checkpoint.every=2"]
SHORT += ["stages.sft.checkpoint.every=40", "stages.rl.loop.groups_per_step=8", "loop.group_size=4"]
SHORT += ["algorithm.kl_coef=0.001"]


def end_engine(run: Path) -> bool:
    """SIGKILL to the engine's process of this run."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, KeyError):
            driver = psutil.Process(int(process.environ()[cleanup.VARIABLE].split(":")[1]))
            if "EngineCore" in " ".join(process.cmdline()) and str(run) in driver.cmdline():
                process.kill()
                return True
    return False


def test_a_run_with_an_adapter_outlives_its_engine_and_its_driver(tmp_path: Path) -> None:
    run, killed = tmp_path / "run", []
    command = ["train", "quickstart", "--run-dir", str(run), *SHORT]

    def engine_then_driver() -> bool:
        if not killed and steps_of(run, "rl") >= 3 and end_engine(run):
            killed.append("engine")
        return bool(killed) and steps_of(run, "rl") >= 8

    ended = rlsys(*command, send=signal.SIGKILL, when=engine_then_driver)
    assert killed and ended.code == -signal.SIGKILL, ended.output[-3000:]
    result = rlsys(*command, "--resume")
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    steps = [row for row in rows(run) if row["stage"] == "rl"]
    assert [row["step"] for row in rows(run)] == list(range(1, 55))
    assert all(row["mismatch/probe_max"] < 1e-4 for row in steps)
    assert all(row["kl/reference"] >= 0 for row in steps if row["tokens/trained"])
    assert any(row["learner/lr"] > 5e-4 for row in steps)  # ten times that of all weights
    book = ledger(surviving_rows(read_journal(run / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.problems) == (14 * 8, 0, ())
    assert summary(run)["status"] == "done"

    # the adapter stands on what the supervised stage left, which outlives that checkpoint
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    adapter = read_adapter(newest / "hf")
    assert adapter is not None and Path(adapter.base).parent == run.resolve() / BASES
    assert not (newest / "hf" / "model.safetensors").exists()

    # played from its folder, and merged
    output, merged = tmp_path / "eval.json", tmp_path / "merged"
    played = rlsys("eval", "quickstart", "--checkpoint", str(run), "--output", str(output), "eval.tasks=16")
    assert played.code == 0, played.output[-3000:]
    assert json.loads(output.read_text())["tasks"] == 16
    first_merge = rlsys("merge", "--checkpoint", str(run), "--output", str(merged))
    assert first_merge.code == 0, first_merge.output[-3000:]

    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids = AutoTokenizer.from_pretrained(newest / "hf")("2 + 3", return_tensors="pt").input_ids
    with torch.no_grad():
        merged_logits = AutoModelForCausalLM.from_pretrained(merged)(ids).logits
        adapted = AutoPeftModelForCausalLM.from_pretrained(newest / "hf")(ids).logits
    assert torch.allclose(merged_logits, adapted, atol=1e-4)
    second_merge = rlsys("merge", "--checkpoint", str(run), "--output", str(merged))
    assert (second_merge.code, "does not exist yet" in second_merge.output) == (2, True)
