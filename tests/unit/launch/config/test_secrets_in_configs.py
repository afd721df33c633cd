"""No secret gets into a configuration, nor from it to the terminal, the run directory or the tracker."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.cli import run
from launch.config.compose import compose, to_yaml
from launch.driver.observe.trackers.base import TrackedRun
from launch.driver.observe.trackers.wandb_tracker import WandbTracker
from launch.driver.run.rundir import RunDir
from rlsys.config.output import WandbConfig
from tests.refused import refused
from tests.unit.launch.driver.stages.test_rl import play

SECRET = "sk-9f31c0de"
ASKS = "${oc.env:PLAIN_TEST_KEY}"
STAGES = "stages: [{name: rl, kind: rl, steps: 1}]\n"


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_TEST_KEY", SECRET)


def refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path, *argv: str) -> str:
    """The line about it, of a dry run and of a real one: neither shows the secret, nothing is written."""
    lines = set()
    for flags in (["--dry-run"], ["--run-dir", str(tmp_path / "run")]):
        assert run(["train", *argv, *flags]) == 2
        out, err = capsys.readouterr()
        assert out == "" and SECRET not in err and err.count("\n") == 1
        lines.add(err)
    assert not (tmp_path / "run").exists()
    (line,) = lines
    return line


LEVELS = {  # key -> a file that asks for a variable there
    "name": f"name: {ASKS}\n{STAGES}",
    "seed": f"seed: {ASKS}\n{STAGES}",
    "env.protocol": f"env: {{name: search_qa, protocol: '{ASKS}'}}\n{STAGES}",
    "env.retriever.url": f"env: {{name: search_qa, retriever: {{url: 'http://{ASKS}@host'}}}}\n{STAGES}",
    "learner.betas.1": f"learner: {{betas: [0.9, '{ASKS}']}}\n{STAGES}",
    "stages.0.name": f"stages: [{{name: '{ASKS}', kind: rl, steps: 1}}]\n",
    "stages.rl.data": f"stages: [{{name: rl, kind: rl, steps: 1, data: '{ASKS}'}}]\n",
    "stages.rl.model.path": f"stages: [{{name: rl, kind: rl, steps: 1, model: {{path: '{ASKS}'}}}}]\n",
    "extends": f"extends: '{ASKS}'\n{STAGES}",
}


@pytest.mark.parametrize("key", LEVELS)
def test_a_file_that_asks_for_a_variable_is_refused_at_every_level(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, above = tmp_path / "recipe.yaml", tmp_path / "above.yaml"
    recipe.write_text(LEVELS[key])
    above.write_text("extends: recipe.yaml\n")
    for file in (recipe, above):
        assert f"recipe.yaml: {key}: ${{..}} is not looked up" in refusal(capsys, tmp_path, str(file))


@pytest.mark.parametrize("key", ["name", "learner.betas", "env.instruction", "stages.rl.steps", "stages.rl.env.data"])
def test_so_is_an_override(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = f"[0.9, 'a {ASKS} b']" if key.endswith("betas") else ASKS
    line = refusal(capsys, tmp_path, "quickstart", f"{key}={value}")
    assert f"command line: {key}{'.1' * key.endswith('betas')}: ${{..}} is not looked up" in line


@dataclass(frozen=True, kw_only=True)
class LeakyConfig:
    name: str = "tests.unit.launch.config.test_secrets_in_configs.LeakyWorld"
    title: str = ASKS


class LeakyWorld:
    def __init__(self, config: LeakyConfig) -> None: ...


def test_so_is_a_default_of_an_environment_of_one_s_own() -> None:
    with refused("env.title", says="${..} is not looked up"):
        compose("quickstart", [f"env.name={LeakyConfig.name}"])


@pytest.mark.parametrize(
    ("override", "key"),
    [
        (f"env.retriever.url=http://me:{SECRET}@host:8000", "env.retriever.url"),
        (f"env.retriever.url=ftp://{SECRET}@host", "env.retriever.url"),
        (f"env.retriever.url=me:{SECRET}@host:8000", "env.retriever.url"),
        (f"env.retriever.url=http://host/?key={SECRET}", "env.retriever.url"),
        (f"stages.rl.env.retriever.url=http://me:{SECRET}@host:8000", "stages.rl.env.retriever.url"),
        (f"model.path=https://me:{SECRET}@host/model", "model.path"),
        (f"reward.judge.endpoint=https://{SECRET}@host/v1", "reward.judge.endpoint"),
        (f"reward.judge.service=me:{SECRET}@host", "judge.service"),
        (f"reward.judge.key_env={SECRET}", "reward.judge.key_env"),
        (f"env.retriever.token_env={SECRET}", "env.retriever.token_env"),
        (f"stages.rl.env.retriever.token_env={SECRET}", "stages.rl.env.retriever.token_env"),
        (f"reward.judge.key_env=[{SECRET}", "reward.judge.key_env"),
        (f"env.tools=[{{mcp: 'https://host/mcp', token_env: {SECRET}}}]", "env.tools.0.token_env"),
        (f"env.tools=[{{mcp: 'https://me:{SECRET}@host/mcp'}}]", "env.tools.0.mcp"),
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_by_its_key_and_not_shown(
    override: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["env.name=search_qa", "reward.name=swirl", "reward.judge.model=m"]
    assert f"{key}: " in refusal(capsys, tmp_path, "quickstart", *chosen, override)


@pytest.mark.parametrize("service", [["retriever", "--corpus", "none.jsonl"], ["judge", "--model", "m"]])
def test_a_key_in_place_of_a_name_is_refused_on_the_command_line_of_a_service(
    service: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", *service, "--token-env", SECRET]) == 2
    out, err = capsys.readouterr()
    assert "--token-env: expected the name of an environment variable" in err and SECRET not in out + err


def test_a_secret_that_is_named_reaches_no_file_no_terminal_and_no_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = "reward: {name: swirl, judge: {endpoint: 'https://host/v1', model: m, key_env: PLAIN_TEST_KEY}}\n"
    config = compose(str(_written(tmp_path, judge + STAGES)), [])
    payload: dict[str, Any] = {}
    tracked = SimpleNamespace(define_metric=lambda *a, **k: None, log=payload.update)
    wandb = SimpleNamespace(init=lambda **options: payload.update(options) or tracked, Settings=dict, Table=dict)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    assert play(tmp_path, stages=judge + STAGES).error is None
    directory = RunDir(tmp_path / "run")
    directory.write("config.yaml", to_yaml(config))
    content = {"config": to_yaml(config)}
    settings = WandbConfig(mode="offline")
    WandbTracker(TrackedRun(directory=directory.path, name="n", config=content, step=0, settings=settings)).log(
        {"step": 1}
    )
    directory.close()
    assert run(["train", str(tmp_path / "recipe.yaml"), "--dry-run"]) == 0
    output = "".join(capsys.readouterr()) + repr(config) + repr(payload)
    files = [file for file in directory.path.rglob("*") if file.is_file()]
    assert {"config.yaml", "journal.jsonl", "metrics.jsonl"} <= {file.name for file in files}
    for text in (output, *(file.read_text(errors="replace") for file in files)):
        assert SECRET not in text
    assert "key_env: PLAIN_TEST_KEY" in output and "PLAIN_TEST_KEY" in payload["config"]["config"]
    assert compose(str(directory.path / "config.yaml"), []) == config


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!!python/module:os"])
def test_yaml_builds_no_objects(tag: str, tmp_path: Path) -> None:
    value = f"{tag} ['touch {tmp_path / 'ran'}']" if "apply" in tag else f"{tag} ''"
    for config, overrides in (
        (str(_written(tmp_path, f"name: {value}\n{STAGES}")), []),
        ("quickstart", [f"name={value}"]),
    ):
        with refused(says="not readable as YAML"):
            compose(config, overrides)
    assert not (tmp_path / "ran").exists()


def _written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return path
