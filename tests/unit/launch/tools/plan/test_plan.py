"""`rlsys plan`: its sums add up, its memory is that of --dry-run, and what it offers fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.checks import machine
from launch.checks.gpu_memory import GIGA
from launch.cli import run
from launch.tools.plan.published import ACCURACY

TWO_NODES = ["gpu/qwen2.5-7b-16xa100", "--nodes", "2x8xA100-80G"]


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(machine, "DRIVERS", ())


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["plan", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in found["memory"]}


@pytest.mark.parametrize("words", [TWO_NODES, ["quickstart", "--nodes", "1x2cpu-24G"]])
def test_every_row_adds_up_to_its_sum(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, report = plan(capsys, *words)
    assert code == 0 and report["fits"]
    for row in report["memory"]:
        assert row["bytes"] == pytest.approx(sum(part["bytes"] for part in row["parts"]))


def test_the_numbers_are_those_of_the_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    """7.6 G parameters: the rows of docs/gpu.md for 10 ranks under ZeRO-2."""
    _, report = plan(capsys, *TWO_NODES)
    count = report["parameters"]
    weights, gradients, optimizer, _ = rows(report)["rank"]["parts"]
    ends = 2 * 152064 * 3584 * 2  # embedding and head, whole before they are divided
    assert weights["bytes"] == 2 * count
    assert gradients["bytes"] == pytest.approx(2 * 4 * count / 10 + 2 * 2e8 * 2 + ends)
    assert optimizer["bytes"] == pytest.approx(12 * count / 10)
    assert rows(report)["/dev/shm"]["parts"][0]["bytes"] == 2 * 2 * count
    assert rows(report)["disk"]["bytes"] == 3 * 16 * count
    assert rows(report)["rank"]["of_bytes"] == 80 * GIGA


def test_the_rows_are_those_of_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", *TWO_NODES])
    planned = " ".join(capsys.readouterr().out.split())
    run(["train", TWO_NODES[0], "--dry-run"])
    dry = [" ".join(line.split()[3:]) for line in capsys.readouterr().out.splitlines() if "memory (GPU)" in line]
    rows = [line for line in dry if line.split()[0] in ("rank", "engine", "/dev/shm", "reading", "host")]
    assert len(rows) == 5 and all(row in planned for row in rows)


def test_the_time_of_a_step_is_that_of_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", *TWO_NODES])
    planned = capsys.readouterr().out
    run(["train", TWO_NODES[0], "--dry-run"])
    dry = [
        line for line in capsys.readouterr().out.splitlines() if "time (GPU)" in line and "tokens an answer" not in line
    ]
    assert len(dry) == 6 and all(" ".join(line.split()[3:]) in " ".join(planned.split()) for line in dry)


def test_the_best_split_comes_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TWO_NODES, "--answer-tokens", "8192"]
    _, report = plan(capsys, *words)
    own = report["time"]["forecast"]
    best = next(split for split in report["splits"] if split["split"]["placement"] == "split")
    assert (best["split"]["ranks"], best["split"]["workers"]) == (7, 9)
    assert best["forecast"]["seconds"] < own["seconds"] and own["learner_idle"] > 0.4
    assert report["command"] == "rlsys train gpu/qwen2.5-7b-16xa100 learner.ranks=7 rollout.workers=9"
    assert own["tokens_per_s"] == pytest.approx(2048 * 8192 / own["seconds"])
    assert own["steps_a_day"] == pytest.approx(86400 / own["seconds"])
    _, report = plan(capsys, *words, "learner.ranks=7", "rollout.workers=9")
    assert report["command"] == "rlsys train gpu/qwen2.5-7b-16xa100 learner.ranks=7 rollout.workers=9"
    assert ACCURACY in report["accuracy"]
    assert plan(capsys, "quickstart", "--nodes", "1x2cpu-24G")[1]["accuracy"] is None


def test_lengths_above_a_limit_are_refused_or_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A response ends at 14,336 tokens, and the window holds 16,384 with the prompt."""
    assert run(["plan", *TWO_NODES, "--answer-tokens", "16385"]) == 2
    line = capsys.readouterr().err
    assert "--answer-tokens 16385" in line and "engine.max_model_len" in line and line.count("\n") == 1
    above = plan(capsys, *TWO_NODES, "--answer-tokens", "16000")[1]["time"]["assumes"][0]
    assert above.startswith("answers of 16,000 tokens") and "14,336" in above


def test_a_stepwise_stage_is_planned_as_one_of_rl_is(capsys: pytest.CaptureFixture[str]) -> None:
    """SWiRL's window is 8,192 tokens, a step 1,024 actions; it waits 3,600 s for an update."""
    assert run(["plan", "swirl", "--answer-tokens", "8193"]) == 2
    assert "engine.max_model_len=8192" in capsys.readouterr().err
    assert run(["plan", "swirl", "--answer-tokens", "1500"]) == 0
    assert "1,024 answers a step of 1,500 tokens" in " ".join(capsys.readouterr().out.split())


def test_the_command_is_one_that_a_shell_takes(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = plan(capsys, "quickstart", "--nodes", "1x2cpu-24G", "env.instruction=Give the answer.")
    assert report["command"] == "rlsys train quickstart 'env.instruction=Give the answer.'"


@pytest.mark.parametrize(
    ("words", "key"),
    [(["--network", "fast"], "--network"), (["--network", "0G"], "--network"), (["--answer-tokens", "0"], "--answer"),
     (["--from", "/no/run", "--answer-tokens", "9"], "--answer"), (["--prefill-tokens", "1"], "--prefill"),
     (["--answer-tokens", "9", "--prefill-tokens", "9"], "--prefill"),
     (["--from", "/no/run"], "/no/run"), (["--shape", "9b"], "--shape")],
)  # fmt: skip
def test_bad_options_are_one_line(words: list[str], key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *TWO_NODES, *words]) == 2
    err = capsys.readouterr().err
    assert key in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["gpu/qwen2.5-32b-32xa100", "--nodes", "2x8xA100-80G"],
        ["gpu/qwen2.5-7b-8xa100", "--nodes", "1x4xA100-40G"],
        ["gpu/qwen2.5-7b-16xa100", "--nodes", "1x2xH200"],
        ["gpu/qwen2.5-32b-16xa100", "--nodes", "2x8xA100-80G", "learner.offload=none"],
        ["quickstart", "--nodes", "1x2cpu-24G", "rollout.workers=20"],
        ["quickstart", "--nodes", "1x2cpu-6G", "rollout.workers=2", "rollout.min_workers=2"],
        ["gpu/qwen2.5-32b-32xa100", "--nodes", "2x8xA100-80G", "rollout.min_workers=3"],
    ],
)
def test_the_keys_that_are_offered_fit(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, report = plan(capsys, *words)
    assert code == 2 and report["problem"] and report["offers"]
    for offer in report["offers"]:
        again, other = plan(capsys, *words, *offer["keys"])
        assert again == 0 and other["fits"], offer


def test_several_nodes_are_not_one_large_node(capsys: pytest.CaptureFixture[str]) -> None:
    """An engine of quickstart takes 2,617 MiB, a node has 1,907, and three of them have more than the run needs."""
    code, report = plan(capsys, "quickstart", "--nodes", "3x2cpu-2G")
    assert code == 2 and "engine" in report["problem"]
    assert [row["of_bytes"] for row in report["memory"][:4]] == [2e9, 2e9, 2e9, 6e9]
    assert plan(capsys, "quickstart", "--nodes", "3x2cpu-3G")[0] == 0


@pytest.mark.parametrize(("nodes", "device"), [("1x8xA100-80G", "cpu"), ("1x2cpu-24G", "cuda")])
def test_a_device_that_the_machines_do_not_have_is_refused(
    nodes: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "quickstart", "--nodes", nodes, f"cluster.device={device}"]) == 2
    assert "cluster.device" in capsys.readouterr().err


def test_thousands_of_engines_are_not_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = plan(capsys, TWO_NODES[0], "--nodes", "4096x4xA100-80G", "rollout.workers=4000")
    assert code == 0 and report["time"] is None and "engines" in report["untimed"]


def test_a_refusal_is_said_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "gpu/qwen2.5-32b-16xa100", "--nodes", "1x8xL4"]) == 2
    out = capsys.readouterr().out
    assert "does not fit: 2 engines x 4 + 8 ranks = 16 GPUs, 8 are there (1x8xL4)" in out
    assert "no division of these machines fits" in out


def test_the_ram_of_a_node_is_a_limit_where_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gpu/qwen2.5-32b-16xa100", "--nodes"]
    assert plan(capsys, *words, "2x8xA100-80G:1500G")[0] == 0
    code, report = plan(capsys, *words, "2x8xA100-80G:1000G")
    assert code == 2 and "1114 GB in its RAM of 1000 GB" in report["problem"]


def test_a_name_that_nothing_describes_is_refused_and_a_size_helps(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "gpu/qwen2.5-7b-8xa100", "--nodes", "1x8xA100-80G", "model.path=nobody/nothing"]
    assert run(words) == 2
    err = capsys.readouterr().err
    assert "nobody/nothing" in err and "--shape 7b" in err and err.count("\n") == 1
    assert run([*words, "--shape", "7b"]) == 0
    out = capsys.readouterr().out
    assert "of the sizes of Qwen/Qwen2.5-7B" in out and "model.path=nobody/nothing" in out


def test_a_folder_needs_config_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 1000}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    code, report = plan(capsys, "quickstart", "--nodes", "1x2cpu-24G", f"model.path={tmp_path}")
    # embedding and head, two layers of 4 x 64^2 attention, 3 x 64 x 128 and two norms, and a last norm
    assert (code, report["parameters"]) == (0, 2 * 64 * 1000 + 2 * (4 * 64**2 + 3 * 64 * 128 + 2 * 64) + 64)


def test_without_nodes_a_recipe_for_gpus_gets_the_usual_ones(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = plan(capsys, "gpu/qwen2.5-7b-16xa100")
    assert report["nodes"] == {"text": "2x8xA100-80G", "assumed": True}
    _, report = plan(capsys, "quickstart")
    assert "cpu-" in report["nodes"]["text"] and not report["nodes"]["assumed"]


def test_on_cpus_a_model_of_unknown_size_is_said_to_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    run(["train", "quickstart", "cluster.device=cpu", "model.path=nobody/nothing", "--dry-run"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "together" in line]
    assert "without the model, whose size is not known" in line
    run(["train", "quickstart", "cluster.device=cpu", "--dry-run"])
    assert "without the model" not in capsys.readouterr().out


def test_a_rank_and_an_engine_that_share_their_gpu_are_planned_on_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gpu/qwen2.5-7b-8xa100", "model.lora.rank=32", "cluster.placement=shared", "learner.ranks=1"]
    words += ["rollout.workers=1", "engine.gpu_memory_utilization=0.4"]
    code, report = plan(capsys, *words, "--nodes", "1x1xA100-80G")
    assert code == 0 and report["fits"]
    code, report = plan(capsys, *words)  # on the machine that it needs
    assert code == 0 and report["fits"]
    code, report = plan(capsys, *words, "--nodes", "1x2xA100-80G", "engine.gpu_memory_utilization=0.9")
    assert code == 2 and any("cluster.placement=split" in offer["keys"] for offer in report["offers"])
    assert all("learner.zero_stage=3" not in offer["keys"] for offer in report["offers"])


def test_one_gpu_is_enough_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gpu/qwen2.5-7b-8xa100", "--shape", "1.5b", "--nodes", "1x1xA100-80G", "--answer-tokens", "1024"]
    alone = ["learner.ranks=1", "rollout.workers=1"]
    code, report = plan(capsys, *words, *alone)
    assert code == 2 and ["cluster.placement=sleep"] in [offer["keys"] for offer in report["offers"]]
    code, report = plan(capsys, *words, *alone, "cluster.placement=sleep")
    assert code == 0 and report["fits"]
    host = next(row for row in report["memory"] if row["name"] == "host")
    moved = next(part["bytes"] for part in host["parts"] if part["what"] == "off the cards")
    rank = next(row for row in report["memory"] if row["name"] == "rank")
    parts = {part["what"]: part["bytes"] for part in rank["parts"]}
    assert moved == 1.5 * (2 * parts["weights"] + parts["optimizer"]) > 0  # of a rank, and an engine's weights


def test_divisions_in_space_and_in_time_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gpu/qwen2.5-7b-8xa100", "--nodes", "1x8xA100-80G", "--answer-tokens", "2048"]
    code, report = plan(capsys, *words)
    assert code == 0 and {split["split"]["placement"] for split in report["splits"]} == {"split", "sleep"}
    in_turn = next(split for split in report["splits"] if split["split"]["placement"] == "sleep")
    assert in_turn["split"]["ranks"] == in_turn["split"]["workers"] == 8
    # What a step takes then is the sum, and a turn is what the cards carry over their links.
    speed, forecast = in_turn["speed"], in_turn["forecast"]
    assert speed["change_s"] > 0 and forecast["seconds"] > forecast["update_s"] + forecast["full_s"]
    code, report = plan(capsys, *words, "learner.zero_stage=3")  # which cannot
    assert {split["split"]["placement"] for split in report["splits"]} == {"split"}
