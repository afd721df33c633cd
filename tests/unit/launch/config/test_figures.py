"""A paper's figures: next to the runs of its setting, and removed by a command line that changes it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from launch.config.compose import compose, to_yaml

TEXT = """
name: paper
model: {path: org/model-7B}
env: {name: search_qa, protocol: icrl, data: data/icrl/train.jsonl, retriever: {corpus: data/wiki18/corpus.jsonl}}
reward: {name: icrl}
eval: {paper: {accuracy: 0.1}}
stages:
  - {name: start, kind: sft, steps: 1, data: data/icrl/start.jsonl}
  - {name: rl, kind: rl, steps: 1, algorithm: {kl_coef: 0.01}}
  - name: test
    kind: eval
    eval:
      sets:
        one: {env: {eval_data: data/icrl/eval/one.jsonl}, paper: {accuracy: 0.5}}
        two: {env: {eval_data: data/icrl/eval/two.jsonl}, paper: {accuracy: 0.6}}
        none: {env: {eval_data: data/icrl/eval/none.jsonl}}
"""
ALL = {"": 0.1, "one": 0.5, "two": 0.6}


def shown(tmp_path: Path, *overrides: str, served: str | None = None) -> dict[str, float]:
    """By set, and "" for the held-out tasks of the rl stage: the figures that are left."""
    path = tmp_path / "paper.yaml"
    path.write_text(TEXT)
    config = compose(str(path), list(overrides), served=served)
    *_, rl, test = config.stages
    assert not rl.config.eval.sets  # those of the other stage have not come into it
    written = tmp_path / "config.yaml"
    written.write_text(to_yaml(config))
    assert to_yaml(compose(str(written), [], saved=True)) == to_yaml(config)
    papers = {"": rl.config.eval.paper} | {name: eval_set.paper for name, eval_set in test.config.eval.sets.items()}
    figures = {name: paper.get("accuracy") for name, paper in papers.items()}
    return {name: figure for name, figure in figures.items() if figure is not None}


@pytest.mark.parametrize(
    "override",
    [
        "model.path=org/other-8B",
        "env.data=data/icrl/code_train.jsonl",
        "env.topk=1",
        "env.retriever.kind=dense",
        "reward.clamp=false",
        "algorithm.kl_coef=0.1",
        "stages.rl.algorithm.kl_coef=0.1",
        "env.data=data/research/train.jsonl",  # another recipe's
        "learner.rope_theta_scale=10",
        "stages.start=null",
        "stages.rl.kind=sft",
        "stages.start.data=data/icrl/other.jsonl",
    ],
)
def test_another_setting_has_no_figures_of_the_paper(
    override: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rlsys.config"):
        assert shown(tmp_path, override) == {}
    warnings = [record.getMessage() for record in caplog.records if "figures" in record.getMessage()]
    assert len(warnings) == 1 and override.partition("=")[0].split(".")[-1] in warnings[0]


@pytest.mark.parametrize(
    "override",
    [
        "model.path=/shared/models/model-7B",  # a folder, here or on a cluster: a copy
        "model.path=runs/sft/checkpoints/step-000100/hf",
        "env.data=/elsewhere/icrl/train.jsonl",
        "stages.start.data=/elsewhere/icrl/start.jsonl",
        "env.retriever.url=http://127.0.0.1:8000",
        "algorithm.kl_coef=0.01",  # what the stage has
        "learner.ranks=2",
        "rollout.workers=1",
        "seed=1",
        "stages.rl.steps=2",
    ],
)
def test_the_same_setting_elsewhere_keeps_them(override: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert shown(tmp_path, override) == ALL
    assert "figures" not in caplog.text


def test_a_change_of_one_set_removes_its_figures_alone(tmp_path: Path) -> None:
    assert shown(tmp_path, "stages.test.eval.sets.one.env.topk=1") == {"": 0.1, "two": 0.6}
    assert shown(tmp_path, "stages.test.eval.sets.one.env.eval_data=/copy/eval/one.jsonl") == ALL
    assert shown(tmp_path, "stages.test.eval.sets.one=null", "env.topk=1") == {}
    overrides = ("env.topk=1", "stages.test.eval.sets.two.paper.accuracy=0.7")
    assert shown(tmp_path, *overrides) == {"two": 0.7}


def test_stages_of_an_earlier_run_are_left_out_with_its_model(tmp_path: Path) -> None:
    assert shown(tmp_path, "stages.start=null", "model.path=runs/start/checkpoints/step-000001/hf") == ALL


def test_a_stage_that_no_figure_waits_for_may_be_left_out(tmp_path: Path) -> None:
    """The figures of the first stage are measured before the second begins."""
    path = tmp_path / "two.yaml"
    path.write_text(TEXT.partition("  - name: test")[0].replace("{paper: {accuracy: 0.1}}", "{}"))
    path.write_text(path.read_text().replace("start.jsonl}", "start.jsonl, eval: {paper: {accuracy: 0.2}}}"))
    (start,) = compose(str(path), ["stages.rl=null"]).stages
    assert dict(start.config.eval.paper) == {"accuracy": 0.2}


def test_a_file_in_the_place_of_a_stage_may_be_what_it_made(tmp_path: Path) -> None:
    path = tmp_path / "generated.yaml"
    tries = "  - {name: tries, kind: generate}\n  - {name: start"
    path.write_text(TEXT.replace("  - {name: start", tries).replace("data/icrl/start.jsonl", "tries"))
    *_, test = compose(str(path), ["stages.tries=null", "stages.start.data=runs/a/generated/tries.jsonl"]).stages
    assert test.config.eval.sets["one"].paper["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("served", "left"),
    [("org/model-7B", ALL), ("model-7B", ALL), ("other-8B", {}), ("org/other-8B", {}), (None, ALL)],
)
def test_another_model_behind_an_address_has_no_figures_of_the_paper(
    served: str | None, left: dict[str, float], tmp_path: Path
) -> None:
    assert shown(tmp_path, served=served) == left
