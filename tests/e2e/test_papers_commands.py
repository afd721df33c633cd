"""Every command that docs/papers.md names, run dry: on small data that `rlsys data prepare` made, without engines.

A recipe as it is, without another key, is started by tests/e2e/test_ablations.py.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.cli import parse, run
from launch.commands.generate import FLAGS
from launch.config.compose import compose
from rlsys.errors import BadInput
from tests.makers.made import jsonl
from tests.makers.public_sets import FEWER, prepare_all
from tests.makers.run_directory import result, run_directory
from tests.papers_page import ROOT, commands

pytestmark = pytest.mark.slow
SAID = {"task": {"question": "2 + 3?", "answers": ["5"]}, "response": "<answer>\\boxed{5}</answer>"}
ROWS = [
    {"step": step, "reward/mean": 1.0, "kl/reference": 0.1, "episode/tokens": 9.0, "episode/token_limit": 0.5}
    | {"episode/calls": 2.0, "episode/valid_calls": 1.0, "episode/repeated_calls": 0.0, "episode/answered_by_1": 0.5}
    for step in (1, 2, 3, 4)
]
RESULTS = [
    {
        "step": step,
        "stage": "rl",
        "when": "during",
        "greedy/accuracy": 0.1 * step,
        "greedy/mean_reward": step**2,
        "greedy/episodes": 4,
    }
    for step in (1, 2, 3, 4)
]
EPISODE = {
    "task": {}, "sequence": 0, "sibling": 0, "prompt": [], "end": "answered", "truncated": False, "reward": 1.0,
    "messages": [{"role": "assistant", "content": "Wait, alternatively, ```python```"}], "judgements": ["GOOD"],
    "num_tokens": 10, "weight_versions": [],
}  # fmt: skip
AS_IT_IS = re.compile(r"rlsys train [\w./-]+( --dry-run)?")
COMMANDS = [command for command in commands() if not AS_IT_IS.fullmatch(command)]
WHOLE = ("generate", "judge-errors")  # nothing of them is dry: their words are read, and their config
UNKNOWN = "--no-such-option"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare_all(folder)
    jsonl(folder / "answers.jsonl", [SAID])
    (folder / "said.txt").write_text("I do not know.\n" * 20)
    for name in ("RUN_DIR", *"ABCD"):
        run = run_directory(folder / name, ROWS, evaluations=RESULTS)
        jsonl(run / "trajectories" / "step-000001.jsonl", [EPISODE])
        result(run, "rl-after", {"a": 1.0, "b": 0.0})
    for name in ("A.json", "B.json", "C.json", "b.json"):
        (folder / name).write_text((folder / "A" / "evaluations" / "rl-after.json").read_text())
    return folder


def dry(words: list[str], folder: Path) -> list[str]:
    """The command with options that keep it small and from starting a run, as --dry-run and --answers."""
    command, *rest = words
    small = {"DIR": "downloads", "env.data_tasks=100": "env.data_tasks=5"}
    argv = [small.get(word, word) for word in rest]
    if "--help" in argv:
        return [command, *argv]
    if command in ("train", "eval"):
        return [command, *argv, *FEWER.get(argv[0], []), *([] if "--dry-run" in argv else ["--dry-run"])]
    if command == "play":
        return [command, *argv, "--answers", str(folder / "said.txt")]
    if argv[:1] == ["prepare"]:
        return [command, *argv, "--output", str(folder / f"again-{argv[1]}"), "--partial", "--eval-tasks", "5"]
    return [command, *argv]


def read_words(words: list[str]) -> None:
    """Raises BadInput for an option, a recipe or a key that the command does not know."""
    options = parse(words)
    flags = [f"generate.{key}={value}" for key, value in vars(options).items() if key in FLAGS and value is not None]
    compose(options.config, [*options.overrides, *flags])


def read_by_script(words: list[str]) -> None:
    """Run a script with an unknown option added: its error must name that one alone, so that it knows the others."""
    script, *arguments = words
    argv = [sys.executable, str(ROOT / script), *arguments, *([] if "--help" in arguments else [UNKNOWN])]
    process = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    if "--help" in arguments:
        assert process.returncode == 0, process.stderr
    else:
        assert process.stderr.endswith(f"unrecognized arguments: {UNKNOWN}\n"), process.stderr


def test_a_misspelt_word_of_a_command_is_noticed() -> None:
    read_words(["generate", "quickstart", "--output", "x.jsonl", "--keep", "correct"])
    for words in (["--keeep", "correct"], ["--keep", "rigth"], ["generate.toppp=0.9"]):
        with pytest.raises(BadInput):
            read_words(["generate", "quickstart", "--output", "x.jsonl", *words])
    read_by_script(["benchmarks/reasoning_gym.py", "--seeds", "0", "--draw"])
    for options in (["--sedes", "0"], ["--seeds", "one"]):
        with pytest.raises(AssertionError):
            read_by_script(["benchmarks/reasoning_gym.py", *options])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[:80])
def test_it_runs_dry(
    command: str, prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(prepared)
    monkeypatch.setenv("SEARCH_KEY", "abc123")
    monkeypatch.setenv("OPENAI_API_KEY", "abc123")
    monkeypatch.setattr("envs.made_worlds", {})  # by paths that are relative to that folder
    program, *words = shlex.split(command)
    if program == "python":
        read_by_script(words)
        return
    if words[0] in WHOLE:
        read_words(words)
        return
    try:
        code = run(dry(words, prepared))
    except SystemExit as helped:
        code = helped.code
    assert code == 0, capsys.readouterr().err
