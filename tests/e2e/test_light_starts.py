"""What a command loads before it has something to say: each in a process of its own."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from launch.cli import COMMANDS

QUIET = """
import sys
from launch.cli import run
try:
    print(run(sys.argv[1:]))
except SystemExit:
    pass
heavy = ("torch", "ray", "vllm", "transformers", "fastapi", "scipy", "statsmodels", "omegaconf")
print([name for name in heavy if name in sys.modules])
print([name for name in sys.modules if name.startswith("launch.commands.")])
"""


def in_a_process(*argv: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", QUIET, *argv], capture_output=True, text=True).stdout.splitlines()


def test_help_imports_nothing() -> None:
    assert in_a_process("--help")[-2:] == ["[]", "[]"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_imports_its_module_alone(command: str) -> None:
    *help_lines, heavy, modules = in_a_process(command, "--help")
    assert "examples:" in help_lines
    assert heavy == "[]"
    loaded = set(modules.strip("[]").replace("'", "").split(", "))
    assert loaded & {module for module, _ in COMMANDS.values()} == {COMMANDS[command][0]}
    module = importlib.import_module(COMMANDS[command][0])
    assert module.HELP.startswith(COMMANDS[command][1])


WRONG = (
    *("learner.lrr=1", "learner.lr=x", "algorithm.clip=1"),
    *("stages.rl.learner.lrr=1", "env.nam=1", "reward.correkt=1", "stages.sft.curriculum.name=mixed"),
)


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_key_or_value_is_said_without_heavy_imports(key: str) -> None:
    code, heavy, _ = in_a_process("train", "quickstart", key, "--dry-run")
    assert (code, heavy) == ("2", "['omegaconf']")


def test_a_dry_run_needs_no_torch() -> None:
    *_, code, heavy, _ = in_a_process("train", "quickstart", "--dry-run")
    assert (code, heavy) == ("0", "['omegaconf']")


def test_every_config_class_of_ours_is_known_without_heavy_imports() -> None:
    code = """
import sys
from launch.config.compose import TABLES
from launch.driver.stages import STAGES
from launch.driver.stages.base import stage_of
from rlsys.choices import choose
for key, table in TABLES.items():
    for name in table:
        choose(key, table, name).schema()
for kind in STAGES:
    stage_of(kind)
heavy = ("torch", "ray", "vllm", "transformers", "deepspeed", "fastapi")
sys.exit(str([name for name in heavy if name in sys.modules]))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == "[]\n"


def test_a_reward_is_scored_without_torch(tmp_path: Path) -> None:
    line = {"task": {"question": "48 / 2?", "answers": ["24"]}, "response": "<answer>24</answer>"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(line) + "\n")
    result, code, heavy, _ = in_a_process("score", "quickstart", "--input", str(tmp_path / "answers.jsonl"))
    assert (code, "torch" in heavy, "ray" in heavy) == ("0", False, False)
    assert json.loads(result)["parts"]["correct"] == 1.0


def test_an_episode_is_played_by_hand_without_an_engine(tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_text("<math_exp>48 / 2</math_exp>\n<answer>24</answer>\n")
    *_, last, code, heavy, _ = in_a_process("play", "quickstart", "--answers", str(tmp_path / "said.txt"))
    assert (code, heavy) == ("0", "['omegaconf']")
    assert last.startswith("correct ")


def test_a_driver_can_know_the_ranks_without_deepspeed_or_transformers() -> None:
    code = "import sys, learners.group; sys.exit(any(name in sys.modules for name in ('deepspeed', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
