"""The papers' files hold the papers' numbers. The second column of each table is what was published, by hand."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.cli import run
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from launch.data.sets import SETS
from launch.driver.evaluation.sets import plays_of
from rlsys.config.recipe import RunConfig, StageConfig
from tests.unit.launch.checks.test_gpu_memory import QWEN_7B

RESEARCH = {  # table 4 of arXiv 2503.19470, and the settings of its code
    "model.path": "Qwen/Qwen2.5-7B-Instruct",
    "env.topk": 5,
    "env.retriever.encoder": "e5",
    "env.retriever.query_tokens": 128,
    "loop.groups_per_step": 256,
    "loop.group_size": 5,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "rollout.max_response_tokens": 8192,
    "engine.max_model_len": 512 + 8192,
    "learner.lr": 1e-6,
    "learner.schedule": "constant",
    "learner.betas": (0.9, 0.999),  # veRL's defaults, as is the next
    "learner.weight_decay": 0.01,
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
    "learner.betas": (0.9, 0.999),
    "learner.weight_decay": 0.01,
    "learner.reference": "stage",
    "algorithm.kl_coef": 0.001,
    "algorithm.minibatches": 2,
    "algorithm.reduction": "group_total",
    "eval.temperature": 0.1,
    "eval.max_turn_tokens": 512,
    "eval.tasks": 500,
}
SWIRL = {  # sections 2 and 4, appendix A; model, sizes and limits: nothing else is published
    "model.path": "google/gemma-2-27b-it",
    "env.topk": 1,
    "env.max_turns": 5 + 1,
    "generate.samples": 5,
    "verdicts.keep": "process",
    "verdicts.equal": True,
    "eval.tasks": 300,
}
SWIRL_TABLES = {  # table 2, on HotpotQA; table 3
    "hotpotqa": {"accuracy": 0.73},
    "musique": {"accuracy": 0.50},
    "gsm8k": {"accuracy": 0.76},
    "hotpotqa_steps": {"part/process": 0.910},
    "gsm8k_steps": {"part/process": 0.916},
    "hotpotqa_without_tool": {},  # figure 5, whose numbers are not printed
    "gsm8k_without_tool": {},
}
SWIRL_ON_GSM8K = {"hotpotqa": 0.71, "musique": 0.49, "gsm8k": 0.79}  # table 2
SWIRL_BASE = {"hotpotqa": 0.65, "musique": 0.45, "gsm8k": 0.65, "hotpotqa_steps": 0.825, "gsm8k_steps": 0.875}
SWIRL_ROWS = {"gsm8k": SWIRL_ON_GSM8K, "base": SWIRL_BASE}  # of tables 2 and 3, by ablation
LONG_COT = {  # tables 6, 7 and 13 of arXiv 2502.03373, appendix K; clips, schedule and betas are its code's
    "model.path": "meta-llama/Llama-3.1-8B",
    "window.tokens": 16384,
    "window.prompt": 2048,
    "rollout.max_turn_tokens": 14336,
    "rollout.max_response_tokens": 14336,
    "reward.max_length": 14336,
    "reward.kind": "cosine",
    "reward.preset": "default",
    "reward.exceed": -10.0,
    "reward.on_repetition": -0.05,
    "reward.repetition_ngram": 40,
    "reward.repetition_discount": 0.99,
    "algorithm.name": "ppo",
    "algorithm.discount": 1.0,
    "algorithm.lam": 1.0,
    "algorithm.clip_low": 0.2,
    "algorithm.clip_high": 0.2,
    "algorithm.value_clip": 0.2,
    "algorithm.kl_coef": 0.01,
    "algorithm.kl_kind": "k1",
    "algorithm.kl_in": "reward",
    "algorithm.reward_clip": 10.0,
    "algorithm.normalize_advantages": True,
    "algorithm.reduction": "sequence_mean",
    "algorithm.minibatches": 512 * 4 // 512,
    "learner.lr": 5e-7,
    "learner.critic_lr": 9e-6,
    "learner.schedule": "cosine",
    "learner.warmup_ratio": 0.03,
    "learner.final_lr_ratio": 0.1,
    "learner.betas": (0.9, 0.95),
    "learner.clip_grad": 1.0,
    "loop.groups_per_step": 512,
    "loop.group_size": 4,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "eval.temperature": 0.7,
    "eval.top_p": 0.95,
    "eval.max_turn_tokens": 16384,
    "eval.greedy": False,
}
RESULTS = {  # exact match: ReSearch-7B-Instruct; ICRL with Qwen2.5-7B
    "research": {"hotpotqa": 0.4352, "2wiki": 0.4759, "musique": 0.2230, "bamboogle": 0.4240},
    "long_cot": {
        "math500": 0.578,
        "aime24": 0.038,
        "theoremqa": 0.245,
        "mmlu_pro": 0.333,
    },  # table 4: discounts 1, 0.99
    "icrl": {"triviaqa": 0.754, "hotpotqa": 0.426, "2wiki": 0.536, "musique": 0.260, "bamboogle": 0.480},
}


def rl_of(config: RunConfig) -> StageConfig:
    """The first stage of reinforcement learning."""
    return next(stage for stage in config.stages if stage.kind in ("rl", "stepwise"))


def value(config: RunConfig, key: str) -> Any:
    """As it holds there."""
    section: Any = rl_of(config).config
    for part in key.split("."):
        section = getattr(section, part)
    return section


def cards_filled(shown: str) -> int:
    """Lines of a dry run that say what a rank or an engine needs of a card of 80 GB."""
    return len(re.findall(r" (?:rank|engine) +[\d.]+ +80 ", shown))


@pytest.mark.parametrize(("name", "table"), [("research", RESEARCH), ("icrl", ICRL), ("long_cot", LONG_COT)])
def test_a_papers_file_holds_its_numbers(name: str, table: dict[str, Any]) -> None:
    config = compose(name, [])
    assert {key: value(config, key) for key in table} == table
    assert set(config.recipe.about.data) <= SETS.keys()
    test = config.stages[-1].config.eval.sets
    assert {set_name: next(iter(eval_set.paper.values())) for set_name, eval_set in test.items()} == RESULTS[name]


def test_steps_are_the_papers() -> None:
    assert compose("research", []).stages[0].steps == 2 * (19_938 // 256)
    shots = [(stage.steps, stage.config.env.demonstrations.count) for stage in compose("icrl", []).stages[:-1]]
    assert shots == [(100, 3), (100, 2), (100, 0)]
    distil, sft, start, rl, test = compose("long_cot", []).stages
    assert start.config.eval.sets.keys() == test.config.eval.sets.keys()
    generation, tested = distil.config.generate, test.config.eval
    assert (generation.samples, generation.temperature, generation.top_p, generation.keep) == (32, 1.0, 0.95, "correct")
    assert (distil.config.rollout.max_turn_tokens, generation.teacher.model) == (8192, "Qwen/QwQ-32B-Preview")
    assert (sft.data, sft.epochs, sft.config.loop.groups_per_step, sft.config.learner.lr) == ("distil", 2, 256, 5e-6)
    assert rl.steps == math.ceil(4 * 7500 / 512)
    assert (tested.seeds, tested.sets["aime24"].samples) == (4, 16)


LONG_COT_ABLATIONS = {  # of tables 8 to 16, what differs: samples, updates an epoch, the critic's rate, steps
    "classic": (8, 8, 4.5e-6, math.ceil(8 * 7500 / 512)),
    "cosine": (8, 8, 4.5e-6, math.ceil(8 * 7500 / 512)),
    "window-4k": (8, 8, 9e-6, math.ceil(8 * 7500 / 512)),
    "preset-b": (4, 4, 9e-6, math.ceil(4 * 7500 / 512)),
    "base-model": (8, 1024 * 8 // 128, 9e-6, math.ceil(20 * 8000 / 1024)),
    "rope": (8, 8, 4.5e-6, math.ceil(8 * 7500 / 512)),
    "qwen-classic": (8, 8, 4.5e-6, math.ceil(8 * 7500 / 512)),
    "samples-16-classic": (16, 16, 9e-6, math.ceil(8 * 7500 / 512)),
    "samples-16-cosine": (16, 16, 9e-6, math.ceil(8 * 7500 / 512)),
    "samples-16-penalty": (16, 16, 9e-6, math.ceil(8 * 7500 / 512)),
}


def test_ablations_of_long_cot() -> None:
    configs = {name: compose(f"long_cot/ablations/{name}", []) for name in LONG_COT_ABLATIONS}
    keys = ("loop.group_size", "algorithm.minibatches", "learner.critic_lr")
    settings = {name: tuple(value(config, key) for key in keys) for name, config in configs.items()}
    assert {name: (*settings[name], rl_of(config).steps) for name, config in configs.items()} == LONG_COT_ABLATIONS
    small = configs["window-4k"]
    assert [value(small, key) for key in ("rollout.max_turn_tokens", "reward.max_length")] == [2048, 2048]
    base = rl_of(configs["base-model"]).config
    assert (base.window.response, base.algorithm.lam, base.reward.kind) == (3072, 0.95, "base_model")
    assert [stage.name for stage in configs["base-model"].stages] == ["start", "rl", "test"]
    assert {rl_of(configs[name]).config.learner.rope_theta_scale for name in ("rope", "qwen-classic")} == {10}
    rewards = {name: rl_of(configs[f"samples-16-{name}"]).config.reward for name in ("classic", "cosine", "penalty")}
    assert {name: (reward.kind, reward.on_repetition) for name, reward in rewards.items()} == {
        "classic": ("classic", 0.0),
        "cosine": ("cosine", 0.0),
        "penalty": ("cosine", -0.05),
    }
    assert {value(configs[f"samples-16-{name}"], "algorithm.epochs") for name in rewards} == {2}
    assert rl_of(configs["qwen-classic"]).config.reward.kind == "classic"
    for name in ("classic", "qwen-classic", "window-4k", "base-model"):  # figures 2, 5 to 7
        during = rl_of(configs[name]).config.eval
        assert during.every == 20 and during.sets["math500"].reward == {"kind": "base_model"}


LONG_COT_TABLES = {  # 1, 3, 4, 2 and 5: what each ablation that the paper has numbers of shows beside ours, in percent
    "constructed": "52.4 2.7 21.0 19.2",
    "noisy-sft-0": "59.4 4.0 25.2 34.6",
    "noisy-sft-50": "57.3 3.8 25.1 42.0",
    "noisy-sft-100": "44.6 1.9 22.5 43.3",
    "discounts-1-1": "55.7 5.0 25.7 34.5",
    "discounts-1-0.999": "58.0 4.6 26.0 36.5",
    "discounts-0.999-0.999": "53.5 2.1 19.5 30.7",
    "discounts-0.999-0.99": "55.2 1.7 18.5 32.0",
    "discounts-0.99-0.99": "47.9 0.2 15.6 25.5",
    "verifier-rule": "48.6 3.3 28.1 41.4",
    "verifier-model": "47.9 3.8 26.9 41.4",
    "verifier-rule-unfiltered": "45.4 3.3 25.9 35.1",
    "verifier-model-unfiltered": "47.9 3.5 26.2 40.4",
    "base-model": "77.4 23.3 43.5 19.7",
    "rope": "85.9 26.9 45.4 40.6",
}
LONG_COT_STARTS = {  # the same before rl
    "constructed": "48.2 2.9 21.0 18.1",
    "noisy-sft-0": "54.1 3.5 21.8 32.0",
    "noisy-sft-50": "53.6 4.4 23.5 41.7",
    "noisy-sft-100": "41.2 0.8 21.9 41.1",
    **dict.fromkeys(["verifier-rule", "verifier-model"], "46.6 1.0 23.0 28.3"),
    **dict.fromkeys(["verifier-rule-unfiltered", "verifier-model-unfiltered"], "46.6 1.0 23.0 28.3"),
    "base-model": "52.0 13.3 17.1 2.4",
    **dict.fromkeys(["rope", "qwen-classic"], "84.0 24.4 42.2 38.5"),
}
LONG_COT_SFT = "50.4 3.5 20.6 32.4"  # table 4


def test_no_ablation_of_long_cot_stands_beside_figures_of_another_setting() -> None:
    main = compose("long_cot", [])
    taught = {stage.name: stage for stage in main.stages}
    for path in (CONFIGS / "long_cot" / "ablations").glob("[!t]*.yaml"):  # tiny-*: miniatures
        config = compose(str(path), [])
        stages = {stage.name: stage for stage in config.stages}
        assert shown_by(stages["test"]) == LONG_COT_TABLES.get(path.stem), path.stem
        own = stages.get("distil", taught["distil"]).config
        is_main = own.generate == taught["distil"].config.generate and own.model == main.recipe.model
        expected = LONG_COT_STARTS.get(path.stem, LONG_COT_SFT if is_main else None)
        assert shown_by(stages["start"]) == expected, path.stem


def shown_by(stage: StageConfig) -> str | None:
    """The paper's figures that an evaluation of all four sets shows, in percent."""
    sets = stage.config.eval.sets
    figures = [sets[name].paper.get("accuracy") for name in RESULTS["long_cot"]]
    return None if figures == [None] * 4 else " ".join(f"{100 * figure:.1f}" for figure in figures)


def test_swirls_file_holds_its_numbers() -> None:
    config = compose("swirl", [])
    assert {key: value(config, key) for key in SWIRL} == SWIRL
    assert set(config.recipe.about.data) <= SETS.keys()
    assert [(stage.kind, stage.data) for stage in config.stages] == [
        ("generate", None),
        ("judge", "tries"),
        ("stepwise", "judged"),
    ]
    swirl = config.stages[-1].config
    assert {name: dict(eval_set.paper) for name, eval_set in swirl.eval.sets.items()} == SWIRL_TABLES
    plays = plays_of(swirl)
    assert plays["gsm8k/greedy"].of.recipe.env.max_turns == 10 + 1
    steps = plays["hotpotqa_steps/sampled"]
    assert steps.samples * steps.of.recipe.eval.tasks == 500
    assert (swirl.reward.judged_by, swirl.reward.outcome, swirl.reward.judge.prompts) == ("judge", None, "swirl")


EQUAL_STEPS = {"swirl": {"epochs": None, "steps": math.ceil(10_000 * 3 / 256)}}  # whatever the number of trajectories


def test_swirls_ablations_change_one_thing() -> None:
    """They are composed in tests/e2e/test_swirl.py."""
    files = (CONFIGS / "swirl" / "ablations").glob("*.yaml")
    for path in (path for path in files if not path.stem.startswith("tiny")):
        changed = yaml.safe_load(path.read_text())
        subject, _, which = path.stem.partition("-")
        assert changed.pop("extends") == "../paper.yaml" and changed.pop("name") == f"swirl-{which or subject}"
        dotted = [key for key in changed if key.startswith("eval.sets.")]
        papers = {
            key.removeprefix("eval.sets."): changed.pop(key)["paper"] for key in dotted
        }  # not those of paper.yaml
        own = SWIRL_ROWS.get(subject, {})
        printed = {name: paper for name, paper in SWIRL_TABLES.items() if paper}
        assert papers == {name: {key: own.get(name) for key in paper} for name, paper in printed.items()}, path.stem
        if subject == "filter":
            assert changed == {"verdicts": {"keep": which}}
        elif subject == "trajectories":
            verdicts = {"equal": False, "trajectories": int(which)}
            assert changed == {"verdicts": verdicts, "stages": EQUAL_STEPS}
        elif subject in ("2b", "9b"):
            assert changed["model"] == {"path": f"google/gemma-2-{subject}-it"}
        elif subject == "base":
            assert [stage["kind"] for stage in changed["stages"]] == ["eval"]
        else:
            assert [stage["kind"] for stage in changed["stages"][:2]] == ["generate", "judge"]


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
        lines = [
            json.dumps(
                {"id": f"{n}", "question": f"{name} {n}", "golden_answers": ["a"], "options": {"A": "a", "B": "b"}}
            )
            for n in range(2)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_without_its_data_a_dry_run_shows_the_rest_and_says_what_is_missing(
    downloaded: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "research", "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert cards_filled(out) == 2
    assert err.startswith("rlsys: error: data/research/train.jsonl: no such file") and err.count("\n") == 1


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes"]) == 0
    out = capsys.readouterr().out
    assert not [line for line in out.splitlines() if line.endswith("-") or len(line) > 120]  # names stay whole
    assert {"quickstart", "worlds/sums", "gpu/qwen2.5-7b-8xa100"} <= {line.split()[0] for line in out.splitlines()}
    assert "`rlsys data prepare icrl`" in out  # in one line
    assert "arXiv 2503.19470" in out and "research/ablations/NAME: 32b" in out and "rl (rl 154), test (eval)" in out
