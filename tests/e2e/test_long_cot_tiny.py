"""Long CoT's recipe in a few steps: PPO with token streams and a model verifier; REINFORCE++, a stretched RoPE."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import left_behind, rlsys, rows, trajectories
from tests.fakes.judge_endpoint import scripted

pytestmark = pytest.mark.slow
FIRST = """extends: long_cot/tiny
name: verified
reward: {name: long_cot, repetition_ngram: 4, repetition_discount: 0.99, judge: {endpoint: URL, model: verifier}}
algorithm: {name: ppo, discount: 1.0, minibatches: 2, kl_coef: 0.01}
eval: {tasks: 8, samples: 1}
stages:
  - {name: sft, kind: sft, steps: 60, loop: {groups_per_step: 32}, learner: {lr: 3.0e-3}}
  - {name: rl, kind: rl, steps: 3, loop: {groups_per_step: 8, group_size: 4}, learner: {lr: 3.0e-4, critic_lr: 3.0e-3}}
"""
SECOND = """extends: long_cot/tiny
name: longer
model: {path: MODEL}
reward: {name: long_cot}
algorithm: {name: reinforce_pp, clip_low: 0.1, clip_high: 0.1, discount: 1.0, minibatches: 4, kl_coef: 0.01}
learner: {rope_theta_scale: 10.0}
eval: {tasks: 8, samples: 1}
stages:
  - {name: rl, kind: rl, steps: 3, loop: {groups_per_step: 8, group_size: 4}, learner: {lr: 1.0e-3}}
"""


def verify(prompt: str) -> str:
    """A verdict by the length of the question, as no rule would give it."""
    return f"Judgement: {'correct' if len(prompt) % 2 else 'wrong'}"


def train(folder: Path, name: str, recipe: str) -> Path:
    (folder / f"{name}.yaml").write_text(recipe)
    result = rlsys("train", str(folder / f"{name}.yaml"), "--run-dir", str(folder / name))
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    return folder / name


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The run, and what its verifier was asked."""
    with scripted(verify) as endpoint:
        run = train(tmp_path_factory.mktemp("long_cot"), "verified", FIRST.replace("URL", f'"{endpoint.url}"'))
        return run, [request["messages"][0]["content"] for request in endpoint.asked]


@pytest.fixture(scope="module")
def longer(verified: tuple[Path, list[str]]) -> Path:
    """From the first run's weights, of which RoPE is stretched."""
    return train(verified[0].parent, "longer", SECOND.replace("MODEL", str(newest_model(verified[0]))))


def newest_model(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*")) / "hf"


def trained(run: Path) -> list[dict[str, Any]]:
    return [row for row in rows(run) if row["stage"] == "rl"]


def test_ppo_trains_a_critic_on_two_streams(verified: tuple[Path, list[str]]) -> None:
    steps = trained(verified[0])
    assert len(steps) == 3
    for row in steps:
        assert row["learner/grad_norm"] > 0 and row["critic/grad_norm"] > 0 and row["value/error"] > 0
        assert (row["critic/lr"], row["critic/skipped"], row["learner/steps"]) == (pytest.approx(3e-3), 0, 2)
    assert min(row["reward/stream/repetition"] for row in steps) < 0  # per token, with a discount of its own
    assert {row["value/explained_variance"] for row in steps} != {0.0}


def test_advantages_are_normalised_over_the_whole_batch(verified: tuple[Path, list[str]], longer: Path) -> None:
    for row in [*trained(verified[0]), *trained(longer)]:
        assert row["advantage/mean"] == pytest.approx(0.0, abs=1e-3)
        assert row["advantage/std"] == pytest.approx(1.0, abs=1e-2)


def test_a_model_verifies_the_answers_and_the_reward_follows_it(verified: tuple[Path, list[str]]) -> None:
    run, prompts = verified
    assert prompts and all("The reference solution:" in text for text in prompts)
    played = [t for t in trajectories(run) if t.get("correct") is not None]  # not one over the limit
    verdicts = {t["correct"] for t in played}
    assert verdicts == {True, False}
    for trajectory in played:
        assert (trajectory["parts"]["outcome"] > 0) is trajectory["correct"]


def test_reinforce_pp_trains_without_a_critic(longer: Path) -> None:
    steps = trained(longer)
    assert len(steps) == 3 and not any(key.startswith(("critic/", "value/")) for row in steps for key in row)
    assert all(row["learner/grad_norm"] > 0 and row["learner/steps"] == 4 for row in steps)
    assert any(row["clip/low"] + row["clip/high"] > 0 for row in steps)  # the clip of 0.1, in later minibatches


def test_a_stretched_rope_is_trained_delivered_and_saved(verified: tuple[Path, list[str]], longer: Path) -> None:
    before, after = (
        json.loads((newest_model(run) / "config.json").read_text())["rope_parameters"]["rope_theta"]
        for run in (verified[0], longer)
    )
    assert after == 10 * before
    assert all(row["mismatch/probe_max"] < 1e-3 for row in trained(longer))  # the engines stretch it too
