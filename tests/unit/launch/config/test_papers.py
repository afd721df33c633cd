"""The papers' files hold the papers' numbers. The second column of each table is what was published, by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run
from launch.config.compose import compose
from launch.data.sets import SETS as DATA_SETS
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
RESULTS = {  # exact match: ReSearch-7B-Instruct; ICRL with Qwen2.5-7B
    "research": {"hotpotqa": 0.4352, "2wiki": 0.4759, "musique": 0.2230, "bamboogle": 0.4240},
    "icrl": {"triviaqa": 0.754, "hotpotqa": 0.426, "2wiki": 0.536, "musique": 0.260, "bamboogle": 0.480},
}


SETS = ("hotpotqa", "2wiki", "musique", "bamboogle")
JUDGED = {  # ReSearch's main table, exact match and judge in percent, by file and by way of asking
    ("research", ""): "43.52/63.62 47.59/54.22 22.30/33.43 42.40/54.40",
    ("research/ablations/7b-base", ""): "40.57/60.26 44.67/50.06 21.68/32.19 43.20/54.40",
    ("research/ablations/32b-base", ""): "42.77/64.27 38.52/45.59 26.40/37.57 54.40/66.40",
    ("research/ablations/32b", ""): "46.73/67.70 44.90/50.30 26.40/38.56 56.80/67.20",
    ("research/ablations/baselines", "direct-"): "19.18/30.64 25.76/27.87 3.76/10.38 10.40/22.40",
    ("research/ablations/baselines", "rag-"): "31.90/49.59 25.78/29.52 6.21/12.78 20.80/32.00",
    ("research/ablations/baselines", "iter_retgen-"): "34.36/52.22 27.92/31.86 8.69/16.14 21.60/35.20",
    ("research/ablations/baselines", "ircot-"): "30.33/52.06 21.57/30.65 6.99/14.19 24.80/36.80",
    ("research/ablations/baselines-32b", "direct-"): "24.63/38.26 27.23/29.68 6.12/14.23 18.40/29.60",
    ("research/ablations/baselines-32b", "rag-"): "36.46/55.73 30.38/34.87 9.27/15.97 23.20/40.80",
    ("research/ablations/baselines-32b", "iter_retgen-"): "39.81/58.80 33.64/38.22 12.49/20.11 29.60/44.80",
    ("research/ablations/baselines-32b", "ircot-"): "28.44/55.44 13.53/29.50 7.82/18.20 31.20/47.20",
}


def value(config: RunConfig, key: str) -> Any:
    """As it holds in the first stage."""
    found: Any = config.stages[0].config
    for part in key.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("name", "table"), [("research", RESEARCH), ("icrl", ICRL)])
def test_a_papers_file_holds_its_numbers(name: str, table: dict[str, Any]) -> None:
    config = compose(name, [])
    assert {key: value(config, key) for key in table} == table
    assert set(config.recipe.about.data) <= DATA_SETS.keys()
    test = config.stages[-1].config.eval.sets
    assert {each: found.paper["exact_match"] for each, found in test.items()} == RESULTS[name]


@pytest.mark.parametrize("file", sorted({file for file, _ in JUDGED}))
def test_each_set_of_research_has_the_papers_exact_match_and_judge(file: str) -> None:
    stage = compose(file, []).stages[-1]
    assert stage.config.eval.tasks >= 12_576 and stage.config.eval.greedy and stage.config.eval.samples == 0
    sets, trained = stage.config.eval.sets, stage.config.reward
    for way, figures in ((way, figures) for (of, way), figures in JUDGED.items() if of == file):
        for name, both in zip(SETS, figures.split(), strict=True):
            exact, judge = (float(number) / 100 for number in both.split("/"))
            found = sets[f"{way}{name}"]
            assert found.paper == pytest.approx({"exact_match": exact, "part/judge": judge})
            asked = {"protocol": way.removesuffix("-")} if way else {}
            assert found.env == asked | {"eval_data": f"data/research/eval/{name}.jsonl"}
            reward = found.reward or asdict(trained)
            assert (reward["name"], reward["answer"], reward["judge"]["model"]) == ("judged", "boxed", "gpt-4o-mini")


def test_steps_are_the_papers() -> None:
    assert compose("research", []).stages[0].steps == 2 * (19_938 // 256)
    shots = [(stage.steps, stage.config.env.demonstrations.count) for stage in compose("icrl", []).stages[:-1]]
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


@pytest.mark.parametrize(("name", "gpus"), [("research", 64), ("icrl", 4)])
def test_it_fits_on_the_papers_gpus(name: str, gpus: int, downloaded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (downloaded / "examples.txt").write_text(
        "".join(
            f"===============Example {n}===============\nExample Problem: q\nExample Solution: a\n" for n in (1, 2, 3)
        )
    )
    held = downloaded / "eval.jsonl"
    keys = [f"env.data={downloaded / 'train.jsonl'}", f"env.eval_data={held}", "model.path=Qwen/Qwen2.5-7B-Instruct"]
    keys += [f"stages.test.eval.sets.{each}.env.eval_data={held}" for each in RESULTS[name]]
    keys += [f"env.demonstrations.file={downloaded / 'examples.txt'}"] * (name == "icrl")
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
