"""A run's own config.yaml is a CONFIG like any other, also as an older writer left it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launch.config.compose import compose, to_yaml
from rlsys.errors import BadInput
from tests.refused import refused


def write_older(folder: Path, recipe: str) -> Path:
    """Every stage had its algorithm, and what its kind does not read."""
    config = compose(recipe, [])
    content = yaml.safe_load(to_yaml(config))
    for stage in content["stages"]:
        if stage["kind"] in ("eval", "generate", "judge"):
            stage["algorithm"] = {"name": "sft"}
            stage["learner"] = {"lr": 0.002, "ping_timeout_s": 7.0}
    (folder / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / "config.yaml"


@pytest.mark.parametrize("recipe", ["research/tiny", "swirl/tiny", "icrl/paper", "research/ablations/baselines-32b"])
def test_what_an_older_writer_said_in_a_stage_that_trains_nothing_is_let_through(recipe: str, tmp_path: Path) -> None:
    path = write_older(tmp_path, recipe)
    config, expected = compose(str(path), []), compose(recipe, [])
    assert [(stage.name, stage.kind, stage.config.eval) for stage in config.stages] == [
        (stage.name, stage.kind, stage.config.eval) for stage in expected.stages
    ]
    (tmp_path / "again.yaml").write_text(to_yaml(config))
    assert compose(str(tmp_path / "again.yaml"), []) == config


def test_only_what_the_file_says_is_let_through(tmp_path: Path) -> None:
    path = write_older(tmp_path, "research/tiny")
    with refused(where="stages.before", says="learner.lr has no effect in a"):
        compose(str(path), ["stages.before.learner.lr=1e-3"])
    with refused("learner.lrr"):
        compose(str(path), ["learner.lrr=1"])
    brief = yaml.safe_load(path.read_text())
    del brief["cluster"]  # by hand
    path.write_text(yaml.safe_dump(brief))
    with pytest.raises(BadInput, match="has no effect in a stage of kind eval|holds for the whole run"):
        compose(str(path), [])


URL = "env.retriever.url=http://127.0.0.1:9"


def test_a_server_that_runs_already_takes_the_place_of_the_recipes_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: research\nenv: {retriever: {url: 'http://127.0.0.1:9'}}\n")
    config = compose("research", [URL])
    assert config.recipe.env.retriever.url == compose(str(tmp_path / "mine.yaml"), []).recipe.env.retriever.url
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert compose(str(tmp_path / "config.yaml"), []) == config
    assert compose(str(tmp_path / "config.yaml"), [], saved=True) == config


def test_another_kind_takes_the_place_of_the_recipes_own() -> None:
    retriever = compose("research", ["env.retriever.kind=bm25"]).recipe.env.retriever
    assert (retriever.options.kind, retriever.options.query_tokens) == ("bm25", None)


@pytest.mark.parametrize(
    ("recipe", "keys", "line"),
    [
        ("research", [URL, "env.retriever.kind=hybrid"], "env.retriever.kind='hybrid': no effect with"),
        ("research", [URL, "env.retriever.k1=0.9"], "env.retriever.k1=0.9: no effect with env.retriever.url"),
        ("research", [URL, "stages.rl.env.retriever.index=x"], "env.retriever.index='x': no effect with"),
        ("research", ["env.retriever.k1=0.9", "env.retriever.b=0.4"], "k1=0.9, env.retriever.b=0.4: no effect with"),
        ("icrl", ["env.retriever.encoder=minilm"], "encoder='minilm': no effect with env.retriever.kind=bm25"),
        ("worlds/search", ["env.retriever.gpus=1"], "gpus=1: no effect with env.retriever.kind=bm25"),
        ("swirl", [URL], r"eval.sets.hotpotqa.env.retriever.corpus='\S+', .*: no effect with env.retriever.url"),
    ],
)
def test_a_key_without_effect_that_is_given_there_or_later_is_refused(recipe: str, keys: list[str], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        compose(recipe, keys)


def test_a_file_that_says_both_is_refused_unless_a_run_wrote_it(tmp_path: Path) -> None:
    retriever = "{url: 'http://127.0.0.1:9', encoder: minilm}"
    (tmp_path / "mine.yaml").write_text(f"extends: research\nenv: {{retriever: {retriever}}}\n")
    with refused(says="env.retriever.encoder='minilm': no"):
        compose(str(tmp_path / "mine.yaml"), [])
    assert compose(str(tmp_path / "mine.yaml"), [], saved=True).recipe.env.retriever.url
    (tmp_path / "config.yaml").write_text(to_yaml(compose("research", [URL])))
    with refused(says="env.retriever.encoder='minilm': no"):
        compose(str(tmp_path / "config.yaml"), ["env.retriever.encoder=minilm"])


def test_arguments_of_the_engine_are_checked_where_they_are_new(tmp_path: Path) -> None:
    content = yaml.safe_load(to_yaml(compose("quickstart", [])))
    content["engine"]["vllm"] = {"an_argument_of_yesterday": 1}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    compose(str(tmp_path / "config.yaml"), [], saved=True)
    with refused("engine.vllm.an_argument_of_yesterday"):
        compose(str(tmp_path / "config.yaml"), [])
