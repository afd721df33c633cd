"""The papers' files hold the papers' numbers. The second column of each table is what was published, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run
from launch.config.compose import compose
from launch.data.sets import SETS
from rlsys.config import RunConfig
from tests.unit.launch.run.test_gpu_memory import QWEN_7B

RESEARCH = {  # table 4 of arXiv 2503.19470, and the settings of its code
    "model.path": "Qwen/Qwen2.5-7B-Instruct",
    "env.topk": 5,
    "loop.groups_per_step": 256,
    "loop.group_size": 5,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "rollout.max_response_tokens": 8192,
    "engine.max_model_len": 512 + 8192,
    "learner.lr": 1e-6,
    "learner.schedule": "constant",
    "learner.clip_grad": 1.0,
    "algorithm.clip_low": 0.2,
    "algorithm.clip_high": 0.2,
    "algorithm.kl_coef": 0.001,
    "algorithm.kl_kind": "k3",
    "algorithm.kl_clamp": 10.0,
    "algorithm.entropy_coef": 0.001,
    "algorithm.reduction": "token_mean",
    "algorithm.minibatches": 1,
    "eval.every": 10,
    "eval.tasks": 100,
    "eval.seed": 42,
    "eval.greedy": True,
}
ICRL = {  # section 4.1 and equation 3; warm-up, two minibatches and the entropy term are its code's
    "env.topk": 3,
    "env.max_turns": 6 + 1,
    "env.max_reply_tokens": 500,
    "loop.groups_per_step": 64,
    "loop.group_size": 8,
    "rollout.temperature": 1.0,
    "rollout.max_turn_tokens": 2048,
    "learner.lr": 1e-6,
    "learner.warmup_ratio": 0.1,
    "learner.reference": "stage",
    "algorithm.kl_coef": 0.001,
    "algorithm.minibatches": 2,
    "algorithm.reduction": "group_total",
    "eval.temperature": 0.1,
    "eval.max_turn_tokens": 512,
    "eval.tasks": 500,
}
ICRL_CODE = {  # section 4.3 prints the model; the sampling of the evaluation and its length are ReTool's
    "model.path": "Qwen/Qwen3-8B",
    "reward.tool": "code",
    "reward.alpha": 0.8,
    "eval.greedy": False,
    "eval.samples": 32,
    "eval.temperature": 1.0,
    "eval.top_p": 0.7,
    "eval.max_response_tokens": 16384,
    "rollout.max_response_tokens": 16384,
} | {key: ICRL[key] for key in ICRL if key.startswith(("loop.", "learner.", "algorithm.", "rollout.temp"))}
RESULTS = {  # exact match: ReSearch-7B-Instruct; ICRL with Qwen2.5-7B
    "research": {"hotpotqa": 0.4352, "2wiki": 0.4759, "musique": 0.2230, "bamboogle": 0.4240},
    "icrl": {"triviaqa": 0.754, "hotpotqa": 0.426, "2wiki": 0.536, "musique": 0.260, "bamboogle": 0.480},
    "icrl/code": {"aime24": 0.641, "aime25": 0.517},  # accuracy, mean@32; Qwen3-8B
}


def value(config: RunConfig, key: str) -> Any:
    """As it holds in the first stage."""
    found: Any = config.stages[0].config
    for part in key.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("name", "table"), [("research", RESEARCH), ("icrl", ICRL), ("icrl/code", ICRL_CODE)])
def test_a_papers_file_holds_its_numbers(name: str, table: dict[str, Any]) -> None:
    config = compose(name, [])
    assert {key: value(config, key) for key in table} == table
    assert set(config.recipe.about.data) <= SETS.keys()
    test = config.stages[-1].config.eval.sets
    assert {each: next(iter(found.paper.values())) for each, found in test.items()} == RESULTS[name]


def test_steps_are_the_papers() -> None:
    assert compose("research", []).stages[0].steps == 2 * (19_938 // 256)
    for name in ("icrl", "icrl/code"):
        shots = [(stage.steps, stage.config.env.demonstrations.count) for stage in compose(name, []).stages[:-1]]
        assert shots == [(100, 3), (100, 2), (100, 0)]


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's config.json, and data sets of two questions."""
    folder = tmp_path / "models--Qwen--Qwen2.5-7B-Instruct"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / "config.json").write_text(json.dumps({"model_type": "qwen2", **QWEN_7B}))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in ("train", "eval"):
        lines = [json.dumps({"id": f"{n}", "question": f"{name} {n}", "golden_answers": ["a"]}) for n in range(2)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize(("name", "gpus"), [("research", 64), ("icrl", 4), ("icrl/code", 4)])
def test_it_fits_on_the_papers_gpus(name: str, gpus: int, downloaded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = downloaded / "eval.jsonl"
    keys = [f"env.data={downloaded / 'train.jsonl'}", f"env.eval_data={held}", "model.path=Qwen/Qwen2.5-7B-Instruct"]
    keys += [f"stages.test.eval.sets.{each}.env.eval_data={held}" for each in RESULTS[name]]
    code = run(["train", name, "--dry-run", *keys])
    out, err = capsys.readouterr()
    assert (code, err) == (0, ""), err
    assert f" = {gpus}\n" in out
    assert out.count("of 80") >= 2


def test_without_its_data_a_dry_run_shows_the_rest_and_says_what_is_missing(
    downloaded: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "research", "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert out.count("of 80") == 2
    assert err.startswith("rlsys: error: data/research/train.jsonl: cannot be read") and err.count("\n") == 1


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes"]) == 0
    out = capsys.readouterr().out
    assert "arXiv 2503.19470" in out and "research/ablations/32b" in out and "rl (rl 154), test (eval)" in out
