"""ICRL beside its main file: the code half and the ablations hold what the paper prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run
from launch.config.compose import compose
from launch.data.sets import SETS
from tests.unit.launch.checks.test_gpu_memory import QWEN_7B
from tests.unit.launch.config.test_papers import ICRL, cards_filled, value

CODE = {  # section 4.3 prints the model; sampling and length of the evaluation are those of its baseline, ReTool
    "model.path": "Qwen/Qwen3-8B",
    "reward.tool": "code",
    "reward.alpha": 0.8,
    "eval.greedy": False,
    "eval.samples": 32,
    "eval.temperature": 1.0,
    "eval.top_p": 0.7,
    "eval.max_response_tokens": 16384,
    "rollout.max_response_tokens": 16384,
}
SAME = ("loop.", "learner.", "algorithm.", "rollout.temperature")  # as in the search half
ABLATIONS = {  # model, examples of the stages, exact match: tables 3 and 6, section 4.1
    "3b": ("Qwen/Qwen2.5-3B-Instruct", (3, 2, 0), (0.726, 0.354, 0.392, 0.200, 0.336)),
    "14b": ("Qwen/Qwen2.5-14B-Instruct", (3, 2, 0), (0.750, 0.432, 0.618, 0.256, 0.536)),
    "3210": ("Qwen/Qwen2.5-7B-Instruct", (3, 2, 1, 0), (0.208, None, 0.268, None, None)),
    "no-examples": ("Qwen/Qwen2.5-7B-Instruct", (0,), (None,) * 5),
    "printed-prompt": ("Qwen/Qwen2.5-7B-Instruct", (3, 2, 0), (0.754, 0.426, 0.536, 0.260, 0.480)),
}


def shots(name: str) -> list[tuple[int, int]]:
    return [(stage.config.env.demonstrations.count, stage.steps) for stage in compose(name, []).stages[:-1]]


def test_the_code_half_holds_the_papers_numbers() -> None:
    config = compose("icrl/code", [])
    table = CODE | {key: ICRL[key] for key in ICRL if key.startswith(SAME)}
    assert {key: value(config, key) for key in table} == table
    assert set(config.recipe.about.data) <= SETS.keys() and shots("icrl/code") == [(3, 100), (2, 100), (0, 100)]
    sets = config.stages[-1].config.eval.sets
    assert {name: found.paper["accuracy"] for name, found in sets.items()} == {"aime24": 0.641, "aime25": 0.517}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_the_paper_but_for_what_it_says(name: str) -> None:
    model, counts, figures = ABLATIONS[name]
    config = compose(f"icrl/ablations/{name}", [])
    test = config.stages[-1].config.eval.sets
    assert (config.recipe.model.path, tuple(count for count, _ in shots(f"icrl/ablations/{name}"))) == (model, counts)
    assert [each.paper.get("exact_match") for each in test.values()] == list(figures)


def test_the_printed_prompt_and_ours_differ_in_their_words_alone() -> None:
    printed, ours = (compose(name, []).stages[0].config.env for name in ("icrl/ablations/printed-prompt", "icrl"))
    assert printed.instruction.startswith("Solve the following problem step by step. You must conduct reasoning")
    assert (printed.demonstrations.before, ours.instruction) == ("Here are some examples:", None)
    assert printed.demonstrations.file == ours.demonstrations.file == "configs/icrl/examples/search.txt"


def test_the_code_half_fits_on_four_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models--Qwen--Qwen3-8B"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    shape: dict[str, Any] = {"hidden_size": 4096, "num_hidden_layers": 36, "intermediate_size": 12288, "head_dim": 128}
    shape |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151936, "model_type": "qwen3"}
    (folder / "snapshots" / "abc" / "config.json").write_text(json.dumps(QWEN_7B | shape))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in ("train", "eval"):
        lines = [json.dumps({"id": f"{n}", "question": f"{name} {n}", "golden_answers": ["1"]}) for n in range(2)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    keys = [f"stages.test.eval.sets.{name}.env.eval_data={tmp_path}/eval.jsonl" for name in ("aime24", "aime25")]
    keys += [f"env.data={tmp_path}/train.jsonl", f"env.eval_data={tmp_path}/eval.jsonl"]
    assert run(["train", "icrl/code", "--dry-run", *keys]) == 0
    out = capsys.readouterr().out
    assert " = 4\n" in out and cards_filled(out) == 2
