"""Hints for keys that are none: other systems' names, other sections, other spellings."""

import pytest

from launch.config.compose import TABLES, compose
from launch.config.keys import known_names
from launch.config.layers import find_config
from launch.config.synonyms import ABSENT, SYNONYMS, meant
from learners.algorithms.grpo import GRPOConfig
from rlsys.errors import BadInput

KNOWN = known_names(TABLES, {})


def test_every_target_is_a_key_and_no_name_leads_to_two() -> None:
    assert [ours for ours in SYNONYMS if ours not in KNOWN] == []
    theirs = [name for others in SYNONYMS.values() for name in others] + list(ABSENT)
    assert sorted(theirs) == sorted(set(theirs))
    assert [name for name in theirs if name in KNOWN] == []


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("learner.learning_rate", " (did you mean 'learner.lr'?)"),
        ("learning_rate", " (did you mean 'learner.lr'?)"),
        ("lr", " (did you mean 'learner.lr'?)"),
        ("beta", " (did you mean 'algorithm.kl_coef' or 'algorithm.beta'?)"),
        ("max_prompt_length", " (did you mean 'window.prompt'?)"),
        ("reward.nope", ""),  # no reward has a key like it: not 'wandb.notes'
        ("num_generations", " (did you mean 'loop.group_size'?)"),
        ("num_generation", " (did you mean 'loop.group_size'?)"),
        ("loop.batch_size", " (did you mean 'loop.groups_per_step'?)"),
        ("kl_coef", " (did you mean 'algorithm.kl_coef'?)"),
        ("trainer.total_epochs", " (did you mean 'stages.NAME.epochs'?)"),
        ("actor_rollout_ref.rollout.n", " (did you mean 'loop.group_size'?)"),
        ("engine.tensor_parallel_size", " (did you mean 'engine.tensor_parallel'?)"),
        (
            "engine.pipeline_parallel_size",
            ": ranks divide weights and data alone: learner.ranks, learner.zero_stage",
        ),
        (
            "temperature",
            " (did you mean 'rollout.temperature', 'eval.temperature' or 'generate.temperature'?)",
        ),
        ("engine.groups_per_stop", " (did you mean 'loop.groups_per_step'?)"),
        ("quux", ""),
    ],
)
def test_what_was_meant(typed: str, hint: str) -> None:
    assert meant(typed, KNOWN) == hint


@pytest.mark.parametrize("typed", ["tensorboard", "vllm_mode", "use_vllm", "lora", "logging_steps"])
def test_what_there_is_not_is_said_not_to_be(typed: str) -> None:
    assert meant(typed, KNOWN).startswith(": there is no")


def test_a_key_of_another_algorithm_is_not_proposed() -> None:
    known = known_names(TABLES, {"algorithm": GRPOConfig})
    assert meant("algorithm.gamma", known) == "" and "discount" in meant("algorithm.gamma", KNOWN)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("trainer.total_epochs=3", "unknown key 'trainer.total_epochs' (did you mean 'stages.NAME.epochs'?)"),
        ("algorithm.epsilon=0.1", "unknown key 'algorithm.epsilon' (did you mean 'algorithm.clip_low'?)"),
        ("quux=1", "unknown key 'quux' (`rlsys config` lists the keys)"),
        ("learner.quux=1", "unknown key 'learner.quux' (`rlsys config learner` lists the keys)"),
    ],
)
def test_an_error_says_it(override: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("quickstart", [override])
    assert str(caught.value) == f"command line: {line}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("answer", "; a config picks it with reward.name=answer"), ("sums", " (did you mean 'worlds/sums'?)")],
)
def test_a_name_of_a_table_is_no_config_and_is_said_to_be_one(name: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_config(name)
    assert str(caught.value).endswith(f"under configs/{hint}")
