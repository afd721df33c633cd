"""Another model as the reference: its tokens are the policy's, and an algorithm looks at it."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from launch.checks import teachers
from launch.checks.gpu_memory import RankPlan, host_memory, rank_memory, shape_of
from launch.checks.teachers import check_teachers, compare_tokens, served_to, teachers_of
from launch.config.compose import compose
from rlsys.config.learner import LearnerConfig
from tests.refused import refused

VOCABULARY = {"a": 0, "b": 1, "<end>": 2}


@dataclass(frozen=True)
class Tokens:
    vocabulary: dict[str, int] = field(default_factory=lambda: VOCABULARY)
    eos_token_id: int = 2
    bos_token_id: int | None = None

    def get_vocab(self) -> dict[str, int]:
        return dict(self.vocabulary)


@pytest.mark.parametrize(
    ("teacher", "says"),
    [
        (Tokens({"a": 0, "c": 1, "<end>": 2}), "id 1 is 'c', and 'b' in the policy"),
        (Tokens({"b": 0, "a": 1, "<end>": 2}), "id 0 is 'b', and 'a' in the policy"),
        (Tokens({"a": 0, "b": 1}), "id 2 is 'none', and '<end>' in the policy"),
        (Tokens(VOCABULARY | {"d": 3}), "id 3 is 'd', and 'none' in the policy"),
        (Tokens(eos_token_id=1), "eos_token_id is 1, expected 2"),
        (Tokens(bos_token_id=0), "bos_token_id is 0, expected None"),
    ],
)
def test_a_teacher_with_other_tokens_is_refused_with_the_first_difference(teacher: Tokens, says: str) -> None:
    with refused("learner.reference", found="/teacher", says=says.split(", expected")[0]) as caught:
        compare_tokens(teacher, Tokens(), "/teacher", "the policy")
    assert says.partition(", expected ")[2] in str(caught.value)
    compare_tokens(Tokens(), Tokens(), "/teacher", "the policy")


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    recipe = compose("quickstart", []).recipe
    learner = replace(recipe.learner, reference=str(tmp_path))
    with refused("learner.reference", found=str(tmp_path), says="no config.json"):
        check_teachers([replace(recipe, learner=learner)], None, "")
    assert teachers_of([recipe, replace(recipe, learner=learner)]) == [str(tmp_path)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["algorithm.name=opd"], "a folder or hub name"),
        (["algorithm.name=opd", "learner.reference=run"], "a folder or hub name"),
        (["learner.reference=/teacher"], "looks at no reference where algorithm.kl_coef is 0"),
    ],
)
def test_a_teacher_is_neither_missed_nor_unread(changes: list[str], expected: str) -> None:
    with refused("learner.reference", expected=expected):
        compose("quickstart", changes)


def test_a_teacher_with_a_kl_term_or_for_distillation_composes() -> None:
    for changes in (["algorithm.kl_coef=0.1", "algorithm.kl_kind=k2"], ["algorithm.name=opd"]):
        stage = compose("quickstart", [*changes, "learner.reference=/teacher"]).stages[-1]
        assert stage.config.learner.teacher == "/teacher"
    assert LearnerConfig().teacher is None is LearnerConfig(reference="run").teacher
    with refused("learner.rope_theta_scale", found=10.0):
        LearnerConfig(reference="/teacher", rope_theta_scale=10.0)
    with refused("learner.reference", found=""):
        LearnerConfig(reference="")


def test_the_memory_plan_counts_the_teacher_and_not_the_policy_twice() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    shape = shape_of({**sizes, "vocab_size": 32}, 1000)
    assert shape is not None
    plan = RankPlan(
        ranks=2, zero_stage=2, dtype="bfloat16", checkpointing=True, row_tokens=8, logit_chunk=8, reference=True,
        critic=False, offload="none", offload_reference=False, teacher=70_000,
    )  # fmt: skip

    def reference(parts: Any) -> float:
        return dict(parts).get("reference", 0.0)

    assert reference(rank_memory(shape, plan)) == 2 * 70_000
    assert reference(rank_memory(shape, replace(plan, zero_stage=3))) == 70_000
    assert reference(rank_memory(shape, replace(plan, teacher=None))) == 2 * 1000
    assert reference(host_memory(shape, replace(plan, offload_reference=True), 2)) == 2 * 2 * 70_000


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (["learner.serve_reference=true"], "another model"),
        (
            ["algorithm.name=opd", "learner.reference=/t", "learner.serve_reference=true", "rollout.temperature=0.7"],
            "1",
        ),
    ],
)
def test_an_engine_of_its_own_is_for_a_teacher_at_temperature_1(keys: list[str], says: str) -> None:
    with refused("learner.serve_reference", expected=says):
        compose("quickstart", keys)


def test_gpus_of_an_engine_that_is_not_there_are_refused() -> None:
    recipe = compose("quickstart", ["learner.reference_gpus=4"]).recipe
    with refused("learner.reference_gpus", found=4):
        served_to([recipe])
    served = compose(
        "quickstart",
        [
            "learner.reference_gpus=4",
            "learner.reference=/teacher",
            "learner.serve_reference=true",
            "algorithm.kl_coef=0.1",
        ],
    ).recipe
    without = replace(served, learner=replace(served.learner, serve_reference=False))
    assert served_to([without, served]) is served  # a stage that asks no engine may lie between those that do


def test_a_teacher_that_is_served_is_not_loaded_by_the_ranks() -> None:
    keys = ["algorithm.name=opd", "learner.reference=/teacher"]
    loaded, served = (compose("quickstart", [*keys, *more]).recipe for more in ([], ["learner.serve_reference=true"]))
    assert teachers_of([loaded, served]) == teachers_of([loaded], loaded_by_ranks=True) == ["/teacher"]
    assert teachers_of([served], loaded_by_ranks=True) == []


def test_a_teacher_of_packed_rows_is_refused_where_its_rope_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teachers.preflight, "check_model", lambda *_, **__: None)  # there are no weights
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 512, "factor": 8.0}
    config = {"model_type": "phi3", "max_position_embeddings": 4096, "rope_parameters": rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    recipe = compose("quickstart", ["engine.max_model_len=513"]).recipe
    learner = LearnerConfig(reference=str(tmp_path))
    with refused("engine.max_model_len", found=513, says="longrope"):
        check_teachers([replace(recipe, learner=learner)], None, "")
