"""Every number of a recipe has bounds, and a value just outside of them is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from launch.config.compose import compose
from launch.config.keys import recipe_keys
from rlsys.config.curriculum import CurriculumConfig
from rlsys.config.evaluation import EvalSet
from rlsys.config.model import ScratchModel
from rlsys.config.recipe import AboutConfig, RecipeConfig
from rlsys.errors import BadInput
from tests.refused import refused

# Key: the values just outside of its bounds; with what else has to be given for them.
OUTSIDE: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(
        [
            "about.answer_tokens",
            "model.scratch.hidden_size",
            "model.scratch.intermediate_size",
            "model.scratch.num_layers",
            "model.scratch.num_kv_heads",
            "model.scratch.num_heads",
            "model.lora.alpha",
            "model.lora.lr_scale",
            "window.prompt",
            "engine.max_num_seqs",
            "engine.kv_cache_mb",
            "engine.tensor_parallel",
            "rollout.workers",
            "rollout.threads",
            "rollout.max_turn_tokens",
            "rollout.max_response_tokens",
            "rollout.in_flight",
            "rollout.infra_attempts",
            "rollout.grader_workers",
            "learner.ranks",
            "learner.sequence_parallel",
            "learner.threads",
            "learner.tokens_per_row",
            "learner.logit_chunk",
            "learner.reference_gpus",
            "loop.groups_per_step",
            "loop.group_size",
            "curriculum.max_rest",
            "curriculum.pass_groups",
            "eval.tasks",
            "eval.seeds",
            "eval.max_turn_tokens",
            "eval.max_response_tokens",
            "eval.concurrency",
            "eval.budget_tokens",
            "generate.samples",
            "generate.tasks",
            "generate.concurrency",
            "generate.per_task",
            "generate.teacher.requests_per_minute",
            "generate.teacher.attempts",
            "generate.teacher.max_steps",
            "verdicts.trajectories",
            "checkpoint.every",
            "checkpoint.every_s",
            "incidents.stall_floor_s",
            "checkpoint.keep",
            "wandb.samples_every",
            "rollout.grader_deadline_s",
            "rollout.episode_timeout_s",
            "rollout.block_timeout_s",
            "rollout.call_timeout_s",
            "rollout.start_timeout_s",
            "learner.lr",
            "learner.critic_lr",
            "learner.clip_grad",
            "learner.rope_theta_scale",
            "learner.update_timeout_s",
            "learner.ping_timeout_s",
            "learner.start_timeout_s",
            "loop.mismatch_limit",
            "loop.publish_deadline_s",
            "eval.deadline_s",
            "generate.teacher.deadline_s",
            "generate.teacher.outage_s",
            "checkpoint.stop_deadline_s",
            "trajectories.keep_mb",
            "cluster.gpu_memory_gb",
            "cluster.placement_timeout_s",
        ],
        (0,),
    ),
    **dict.fromkeys(
        [
            "about.prefill_tokens",
            "rollout.infra_retries",
            "rollout.data_retries",
            "learner.warmup_steps",
            "incidents.keep",
            "learner.max_restarts",
            "loop.max_policy_lag",
            "loop.max_token_lag",
            "eval.samples",
            "eval.every",
            "trajectories.keep",
            "trajectories.compress_mb",
            "wandb.samples",
            "learner.weight_decay",
            "model.lora.rank",
        ],
        (-1,),
    ),
    **dict.fromkeys(("engine.gpu_memory_utilization", "eval.share"), (0, 1)),
    **dict.fromkeys(("learner.final_lr_ratio", "loop.max_failed_share", "learner.warmup_ratio"), (-0.001, 1.001)),
    **dict.fromkeys(("rollout.top_p", "eval.top_p", "generate.top_p", "curriculum.floor"), (0, 1.001)),
    **dict.fromkeys(("rollout.temperature", "eval.temperature", "generate.temperature"), (0, 2.001)),
    "rollout.min_workers": (0, 2),
    **dict.fromkeys(("loop.oversample", "incidents.stall_factor"), (0.999,)),
    "engine.max_model_len": (15,),
    "model.scratch.head_dim": (31, 33),
    "model.scratch.vocab_size": (299,),
    "window.tokens": (2048,),
    "cluster.object_store_mb": (79,),
    "cluster.dashboard_port": (0, 65536),
}
FREE = {"seed", "eval.seed", "curriculum.pass_at", "generate.min_reward"}  # any number of 64 bits


def sections(schema: type, prefix: str = "") -> Iterator[tuple[str, type]]:
    yield prefix, schema
    for field in fields(schema):
        value = getattr(schema(), field.name)
        if is_dataclass(value):
            yield from sections(type(value), f"{prefix}{field.name}.")


SECTIONS = dict(sections(RecipeConfig))


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in OUTSIDE.items() for value in values])
def test_a_value_just_outside_of_its_bounds_is_refused_by_its_name(key: str, value: float) -> None:
    prefix, _, name = key.rpartition(".")
    with pytest.raises(BadInput, match=rf"^{key}={value}: expected"):
        SECTIONS[f"{prefix}."](**{name: value})


# Key: the values that are just inside. Of a number above 0 that is not whole there is none.
INSIDE: dict[str, tuple[float, ...]] = {
    **{key: (0,) for key, outside in OUTSIDE.items() if outside == (-1,)},
    **dict.fromkeys(("learner.final_lr_ratio", "loop.max_failed_share", "learner.warmup_ratio"), (0, 1)),
    **dict.fromkeys(("rollout.top_p", "eval.top_p", "generate.top_p", "curriculum.floor"), (1,)),
    **dict.fromkeys(("rollout.temperature", "eval.temperature", "generate.temperature"), (2,)),
    "rollout.min_workers": (1,),
    **dict.fromkeys(("loop.oversample", "incidents.stall_factor"), (1,)),
    "engine.max_model_len": (16,),
    "model.scratch.vocab_size": (300,),
    "window.tokens": (2049,),
    "cluster.object_store_mb": (80,),
    "cluster.dashboard_port": (1, 65535),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in INSIDE.items() for value in values])
def test_a_value_on_a_bound_is_taken(key: str, value: float) -> None:
    prefix, _, name = key.rpartition(".")
    assert getattr(SECTIONS[f"{prefix}."](**{name: value}), name) == value


def test_the_prefilled_part_of_an_answer_is_below_the_whole() -> None:
    assert AboutConfig(answer_tokens=2, prefill_tokens=1).prefill_tokens == 1
    for answer_tokens in (None, 1):
        with refused("about.prefill_tokens"):
            AboutConfig(answer_tokens=answer_tokens, prefill_tokens=1)


def test_heads_are_as_wide_as_vllm_has_kernels_for_and_one_is_enough() -> None:
    def fits(width: int) -> bool:
        try:
            return ScratchModel(head_dim=width, num_heads=1, num_kv_heads=1).num_heads == 1
        except BadInput:
            return False

    assert list(filter(fits, range(1, 1025))) == [32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512]


def test_shares_of_levels_are_weights_of_which_some_may_be_none() -> None:
    assert CurriculumConfig(name="mixed", weights={"1": 0.0, "2": 0.25}).weights["2"] == 0.25
    for weights in ({"1": 0.0}, {"1": -0.5, "2": 1.0}, {}):
        with refused("curriculum.weights"):
            CurriculumConfig(name="mixed", weights=weights)


NUMBERS = [key for key in recipe_keys() if key.kind.removesuffix(" or null") in ("a number", "a whole number")]


def test_every_number_of_a_recipe_has_bounds_here() -> None:
    named = {key.name for key in NUMBERS if not key.name.startswith(("eval.sets.", "envs."))}
    assert named == {*OUTSIDE, *FREE}


@pytest.mark.parametrize("name", ["tasks", "samples", "seeds", "temperature", "top_p", "max_turn_tokens"])
def test_a_set_of_tasks_has_the_bounds_of_an_evaluation(name: str) -> None:
    with pytest.raises(BadInput, match=f"eval.sets: {name}="):
        EvalSet(**{name: -1})


def test_a_message_leaves_room_for_a_prompt() -> None:
    with refused("rollout.max_turn_tokens", found=640):
        compose("quickstart", ["rollout.max_turn_tokens=640", "engine.max_model_len=640"])
    assert compose("quickstart", ["rollout.max_turn_tokens=639", "engine.max_model_len=640"])


def test_what_a_window_says_may_be_said_again_and_not_otherwise() -> None:
    """Of 640 tokens, 128 for the prompt: 512 are left for the response."""
    window = ["window.tokens=640", "window.prompt=128", "reward.name=answer"]
    window += ["reward.overlong_buffer=16", "reward.max_length=512"]
    agreeing = (
        "engine.max_model_len=640",
        "rollout.max_response_tokens=512",
        "reward.max_length=512",
        "rollout.max_turn_tokens=500",
    )
    assert compose("quickstart", [*window, *agreeing]).recipe.rollout.max_turn_tokens == 500
    wrong = ("engine.max_model_len=639", "rollout.max_response_tokens=511", "rollout.max_turn_tokens=513")
    for other in (*wrong, "reward.max_length=511"):
        with pytest.raises(BadInput, match=other.partition("=")[0]):
            compose("quickstart", [*window, *agreeing, other])


@pytest.mark.parametrize("key", [key.name for key in NUMBERS if ".NAME." not in key.name])
def test_no_key_takes_an_infinity_a_nan_or_more_digits_than_a_machine_counts(key: str) -> None:
    for value in (".inf", "100000000000000000000"):
        with pytest.raises(BadInput) as error:
            compose("quickstart", [f"{key}={value}"])
        assert key in str(error.value) and len(str(error.value)) < 200


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e999"])
def test_nor_one_that_is_spelled_as_a_text(value: str) -> None:
    with refused("learner.lr", expected="a finite number"):
        compose("quickstart", [f"learner.lr={value}"])


def refusal(text: str) -> Any:
    with pytest.raises(BadInput) as error:
        compose("quickstart", [f"name={text}"])
    return str(error.value)


def test_what_cannot_be_read_for_its_depth_or_its_length_is_one_line() -> None:
    assert "nested too deeply" in refusal("[" * 3000 + "]" * 3000)
    assert "not readable" in refusal("1" * 5000)
