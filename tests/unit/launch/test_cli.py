"""The command line's endings: one line, and the exit codes (docs/laws.md, law 11)."""

import argparse
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch.cli import COMMANDS, run
from rlsys.errors import BadInput


def rlsys(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["train", "quickstar"], "did you mean 'quickstart'"),
        (["train", "quickstart", "learner.lrr=1", "--dry-run"], "did you mean 'learner.lr'"),
        (["train", "quickstart", "engine.tensor_parallel=3", "--dry-run"], "engine.tensor_parallel=3: expected"),
        (["eval", "quickstart", "engine.tensor_parallel=3"], "engine.tensor_parallel=3: expected"),
        (["train", "quickstart", "stages.rl.loop.running_kv=keep"], "loop.running_kv holds for the whole run"),
        (["train", "quickstart", "--rundir", "x"], "--rundir"),
        (["train", "quickstart", "model.path=./nowhere", "--run-dir", "/tmp/never-made"], "no such folder"),
        (["train", "quickstart", "env.data=/no/such.jsonl", "--run-dir", "/tmp/never-made"], "/no/such.jsonl"),
        (["train", "quickstart", "engine.kv_cache_mb=99999999", "--run-dir", "/tmp/never-made"], "too little memory"),
        (["train", "quickstart", "--resume", "--run-dir", "/tmp/never-made"], "there is no run directory"),
        (["eval", "quickstart", "--checkpoint", "/no/where"], "no such folder"),
        ([], "required: COMMAND"),
        (["fly"], "invalid choice"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], argv: list[str], part: str) -> None:
    code, out, err = rlsys(capsys, *argv)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert not Path("/tmp/never-made").exists()


def test_a_malformed_record_is_named_by_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n{"question": "2 + 2?"}\n')
    code, _, err = rlsys(capsys, "train", "quickstart", f"env.data={data}", "--run-dir", str(tmp_path / "run"))
    assert code == 2
    assert "line 2" in err
    assert not (tmp_path / "run").exists()


def test_a_model_folder_without_a_tokenizer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("")
    code, _, err = rlsys(capsys, "train", "quickstart", f"model.path={tmp_path}", "--run-dir", str(tmp_path / "run"))
    assert code == 2
    assert "no tokenizer" in err


def test_a_port_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = rlsys(
            capsys, "train", "quickstart", f"cluster.dashboard_port={port}", "--run-dir", str(tmp_path / "run")
        )
    assert code == 2
    assert f"cluster.dashboard_port={port}" in err


def test_dry_run_prints_config_and_arithmetic_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["loop.max_policy_lag=2", "engine.tensor_parallel=2", "rollout.workers=3"]
    code, out, _ = rlsys(capsys, "train", "quickstart", *asked, "--dry-run", "--run-dir", str(tmp_path / "run"))
    assert code == 0
    assert "3 engines x 2 + 1 ranks = 7" in out
    assert "slots = 32 x (1 + lag 2) = 96 groups open" in out
    assert "max_policy_lag: 2" in out
    assert not (tmp_path / "run").exists()


def test_a_relative_run_directory_is_refused_inside_a_ray_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    code, _, err = rlsys(capsys, "train", "quickstart", "--run-dir", "runs/x")
    assert code == 2
    assert "absolute --run-dir" in err


def test_a_new_command_is_a_module_and_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("overrides", nargs="*")
        parser.add_argument("--loud", action="store_true")

    def greet(options: argparse.Namespace) -> int:
        if options.name == "nobody":
            raise BadInput("nobody is there")
        print(f"hello {options.name}, {options.overrides}, {options.loud}")
        return 7

    module = SimpleNamespace(HELP="say hello", EXAMPLES="examples:\n", add=add, run=greet)
    monkeypatch.setitem(sys.modules, "greetings", module)  # type: ignore[arg-type]
    monkeypatch.setitem(COMMANDS, "greet", ("greetings", "say hello"))
    assert rlsys(capsys, "greet", "you", "a=1", "--loud", "b=2") == (7, "hello you, ['a=1', 'b=2'], True\n", "")
    assert rlsys(capsys, "greet", "nobody") == (2, "", "rlsys: error: nobody is there\n")
    assert rlsys(capsys, "greet", "you", "--quiet")[0] == 2
    assert rlsys(capsys, "gret")[0] == 2


STEP = "checkpoints/step-000003"


@pytest.mark.parametrize("theirs", ["", f"{STEP}/learner/a.pt"])
def test_a_run_of_another_user_is_continued_on_request_only(
    theirs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that it names is imported before."""
    begun = tmp_path / "run"
    (begun / STEP / "learner").mkdir(parents=True)
    (begun / "checkpoints" / "step-000003" / "learner" / "a.pt").write_text("")
    (begun / "checkpoints" / "step-000003" / "driver.json").write_text("{}")
    (begun / "config.yaml").write_text("env: {name: theirs.World}\nstages: [{kind: rl, steps: 1}]\n")
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    stat = Path.stat

    def owned(self: Path, **more: bool) -> os.stat_result:
        found = stat(self, **more)
        return os.stat_result((*found[:4], 54321 if self == begun / theirs else os.geteuid(), *found[5:]))

    monkeypatch.setattr(Path, "stat", owned)
    argv = ("train", "quickstart", "--run-dir", str(begun))
    code, _, err = rlsys(capsys, *argv)
    assert code == 2 and "belongs to uid 54321" in err and err.count("\n") == 1
    assert not (tmp_path / "ran").exists()
    code, _, err = rlsys(capsys, *argv, "--trust-run-dir")
    assert code == 2 and "env.name='theirs.World'" in err and (tmp_path / "ran").exists()
