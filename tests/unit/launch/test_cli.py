"""The command line's endings: one line, and the exit codes (docs/laws.md, law 11)."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import launch.cli
from launch.cli import COMMANDS, run
from launch.config.layers import CONFIGS, find_config
from launch.data.recipes import RECIPES
from rlsys.errors import BadInput, RunFailed
from tests.paths import ROOT


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
        (["train", "quickstart", "model.path=./nowhere", "--run-dir", "NEW"], "no such folder"),
        (["train", "quickstart", "env.data=/no/such.jsonl", "--run-dir", "NEW"], "/no/such.jsonl"),
        (
            ["train", "quickstart", "engine.kv_cache_mb=99999999", "--run-dir", "NEW"],
            "too little memory",
        ),
        (
            ["train", "quickstart", "cluster.weights_dir=/dev/null/made"],
            "/dev/null/made: versions of the weights cannot lie",
        ),
        (["train", "quickstart", "cluster.weights_dir=made"], "cluster.weights_dir='made': expected a whole path"),
        (["train", "quickstart", "--resume", "--run-dir", "NEW"], "there is no run directory"),
        (["eval", "quickstart", "--checkpoint", "/no/where"], "no such folder"),
        ([], "required: COMMAND"),
        (["train"], "required: CONFIG (see"),
        (["serve", "judge", "--model", "/no/such/model"], "--model /no/such/model: no such folder"),
        (["fly"], "no command 'fly'"),
        (["trian", "quickstart"], "no command 'trian' (did you mean 'train'?)"),
        (
            ["train", "quickstart", "--lr", "1e-5"],
            "'--lr': keys are given as key=value, without dashes (did you mean 'lear",
        ),
        (["train", "quickstart", "--learner.lr=1e-5"], "without dashes (learner.lr=...)"),
        (["train", "my"], "no config 'my': neither a file nor a name under configs/; quickstart is one"),
        (["train", "--resume", "stages.rl.steps=+20"], "no CONFIG in front of 'stages.rl.steps=+20'"),
        (["config", "nonsense_key"], "'nonsense_key' is no key, and no config 'nonsense_key'"),
        (["eval", "quickstart", "--checkpoint", "nowhere"], "--checkpoint='nowhere': "),
        (["train", "quickstart", "cluster.device=cuda", "--run-dir", "NEW"], "no GPU on this machine"),
        (
            ["train", "quickstart", "learner.offload=optimizer", "cluster.device=cpu"],
            "learner.offload='optimizer': expected",
        ),
        (["train", "research", "--run-dir", "NEW"], "`rlsys data prepare research` makes it"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], part: str
) -> None:
    code, out, err = rlsys(capsys, *(str(tmp_path / "never-made") if word == "NEW" else word for word in argv))
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [BadInput, RunFailed, ValueError])
def test_a_last_line_rules_no_terminal(
    kind: type[Exception], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise kind("no move \x1b]0;owned\x07\x1b[2J")

    monkeypatch.setattr(launch.cli, "parse", lambda _: SimpleNamespace(run=fail))
    run([])
    err = capsys.readouterr().err
    assert "no move \\x1b]0;owned\\x07\\x1b[2J\n" in err and "\x1b" not in err


def test_a_reader_that_has_seen_enough_is_a_quiet_end() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "launch", "recipes"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_pipe_that_breaks_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(options: argparse.Namespace) -> int:
        raise BrokenPipeError("a tool's")

    monkeypatch.setattr("launch.commands.recipes.run", breaks)
    code, _, err = rlsys(capsys, "recipes")
    assert code == 1 and "failed: BrokenPipeError: a tool's" in err


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
    overrides = ["loop.max_policy_lag=2", "engine.tensor_parallel=2", "rollout.workers=3"]
    code, out, _ = rlsys(capsys, "train", "quickstart", *overrides, "--dry-run", "--run-dir", str(tmp_path / "run"))
    assert code == 0
    assert "3 engines x 2 + 1 ranks = 7" in out
    assert "slots = 32 x (1 + lag 2) = 96 groups open" in out
    assert "max_policy_lag: 2" in out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("recipe", "steps"),
    [
        ("worlds/sums", ["stages.sft.steps=0"]),
        ("worlds/sums", ["stages.sft.epochs=1", "stages.sft.steps=null"]),
        ("worlds/search", []),
    ],
)
def test_a_dry_run_of_own_data_says_how_to_do_without_demonstrations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str, steps: list[str]
) -> None:
    data, corpus = tmp_path / "qa.jsonl", tmp_path / "corpus.jsonl"
    data.write_text("".join(f'{{"question": "2 + {n}?", "answer": "{2 + n}"}}\n' for n in range(4)))
    corpus.write_text('{"id": "1", "contents": "Sums."}\n')
    own = [f"env.data={data}", *[f"env.retriever.corpus={corpus}"] * (recipe == "worlds/search"), "--dry-run"]
    code, out, err = rlsys(capsys, "train", recipe, *steps, *own)
    assert (code, err.count("\n")) == (2, 1)
    assert "not known: " in out and "memory (CPU)" in out  # the rest of the arithmetic is shown
    assert out.count("no training task has a demonstration") == 0  # the error says it once
    assert "no training task has a demonstration" in err and "leave the stage out with stages.sft=null" in err
    code, out, _ = rlsys(capsys, "train", recipe, "stages.sft=null", *own)
    assert code == 0 and "epochs of 2; 2 others are held out for evaluation)" in out


def test_a_person_reads_a_dry_run_on_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a terminal the resolved config is left out: a program that reads it still gets it, and -v too."""
    shown: dict[bool, str] = {}
    for terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        code, shown[terminal], _ = rlsys(capsys, "train", "quickstart", "--dry-run")
        assert code == 0 and shown[terminal].splitlines()[-1].split() == ["#", "verdict", "it", "can", "start"]
    assert "tokens_per_row:" in shown[False] and "tokens_per_row:" not in shown[True]
    assert len(shown[True].splitlines()) < 50
    assert "tokens_per_row:" in rlsys(capsys, "train", "quickstart", "--dry-run", "-v")[1]


def test_columns_of_a_csv_file_are_renamed_by_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "qa.csv"
    path.write_text("instruction,output\n" + "".join(f"2 + {n}?,{2 + n}\n" for n in range(4)))
    command = ["train", "quickstart", f"env.data={path}", "stages.sft=null", "--dry-run"]
    code, _, err = rlsys(capsys, *command)
    assert code == 2 and "in no known format. Fields found: instruction, output" in err and "env.columns" in err
    columns = ["env.columns.question=instruction", "env.columns.answer=output"]
    code, out, err = rlsys(capsys, *command, *columns)
    assert code == 0 and "epochs of 2; 2 others are held out for evaluation)" in out
    code, _, err = rlsys(capsys, *command, *columns, "env.columns.answer=answers")
    assert code == 2 and "env.columns.answer='answers': no such column. Columns found: instruction, output" in err
    for keys, expected in (
        (["env.data=null", *columns], "none without env.data or env.eval_data"),
        ([*columns, "env.columns.prompt=output"], "one name for the column 'output'"),
    ):
        code, _, err = rlsys(capsys, *command, *keys)
        assert code == 2 and expected in err
    code, _, err = rlsys(capsys, "train", "quickstart", "-v")
    assert code == 2 and "--dry-run with it" in err


def test_a_relative_run_directory_is_refused_inside_a_ray_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    code, _, err = rlsys(capsys, "train", "quickstart", "--run-dir", "runs/x")
    assert code == 2
    assert "absolute --run-dir" in err


def test_a_run_directory_of_another_recipe_is_told_in_a_few_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints" / "step-000001").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-000001" / "driver.json").write_text("{}")
    (tmp_path / "config.yaml").write_text((CONFIGS / "worlds" / "search.yaml").read_text())
    code, _, err = rlsys(capsys, "train", "quickstart", "--run-dir", str(tmp_path))
    assert code == 2 and len(err) < 800
    assert "it was begun with stages.sft.loop.groups_per_step=32, not 64; " in err and " more: choose another" in err


GOES_ON = {
    "train": ("submit",),
    "judge": ("generate", "train"),
    "new": ("play", "score", "train"),
    "play": ("score",),
    "show": ("score",),
}  # what one does next


def test_the_help_of_every_command_shows_its_own_examples_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            run([command, "--help"])
        text = capsys.readouterr().out
        examples = text.split("\nexamples:\n")[1]
        assert f"rlsys {command}" in examples
        others = set(COMMANDS) - {command, "serve", *GOES_ON.get(command, ())}
        assert all(f"\n  rlsys {other} " not in examples for other in others)
    with pytest.raises(SystemExit):
        run(["generate", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "CONFIG [key=value ...]" in text and "(default: the config's generate.samples, or 4)" in text


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
    (begun / "config.yaml").write_text("env: {name: of_another_user.World}\nstages: [{kind: rl, steps: 1}]\n")
    (tmp_path / "of_another_user.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "of_another_user", raising=False)
    stat = Path.stat

    def owned(self: Path, **more: bool) -> os.stat_result:
        status = stat(self, **more)
        return os.stat_result((*status[:4], 54321 if self == begun / theirs else os.geteuid(), *status[5:]))

    monkeypatch.setattr(Path, "stat", owned)
    argv = ("train", "quickstart", "--run-dir", str(begun))
    code, _, err = rlsys(capsys, *argv)
    assert code == 2 and "belongs to uid 54321" in err and err.count("\n") == 1
    assert not (tmp_path / "ran").exists()
    code, _, err = rlsys(capsys, *argv, "--trust-run-dir")
    assert code == 2 and "env.name='of_another_user.World'" in err and (tmp_path / "ran").exists()


def test_what_a_cpu_has_no_use_for_is_refused_in_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = rlsys(
        capsys, "train", "quickstart", "learner.offload=optimizer", "cluster.device=cpu", "--dry-run"
    )
    assert code == 2 and "# what follows from it" in out and "expected 'none' on a CPU" in err


DENSE = "--retriever dense --encoder e5"
INDEXES = {  # the end of the commands that build what each reads
    "swirl": [f"indexes/{name} {DENSE}" for name in ("hotpotqa_train", "hotpotqa_dev", "musique_dev")],
    "research": [f"indexes/wiki18 {DENSE}"],
    "icrl": ["indexes/wiki18-bm25 --k1 0.9 --b 0.4"],
}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_missing_data_are_said_with_their_command_behind_what_is_known(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    if not (CONFIGS / name / "paper.yaml").is_file():
        pytest.skip("no recipe of its own")
    code, out, err = rlsys(capsys, "train", name, "--dry-run")
    assert code == 2 and f"`rlsys data prepare {name}` makes it" in err and err.count("\n") == 1
    assert "devices (GPU)" in out
    listed = [line.partition(": rlsys ")[2] for line in out.splitlines() if line.startswith("#   missing ")]
    assert listed[0] == f"data prepare {name}"
    assert [line.partition("--index ")[2] for line in listed if line.startswith("index ")] == INDEXES.get(name, [])


def test_a_path_below_configs_is_found_from_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config("configs/quickstart.yaml") == CONFIGS / "quickstart.yaml"


def test_analyze_is_analyse(capsys: pytest.CaptureFixture[str]) -> None:
    assert rlsys(capsys, "analyze", "/no/such/run") == rlsys(capsys, "analyse", "/no/such/run")


def test_a_working_folder_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run(["train", "quickstart", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("rlsys: error: the working folder ") and err.count("\n") == 1
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert run(["train", "quickstart"]) == 2
    assert "without --working-dir" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["plan", "x" * 300], ["plan", "quickstart", "--from", "x" * 300], ["new", "world", "x" * 300],
     ["submit", "x" * 300, "--address", "http://127.0.0.1:1", "--run-dir", "/shared/r"]],
)  # fmt: skip
def test_a_name_that_is_too_long_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and len(err) < 150


HIDES = """
import os, sys
import launch.cli as cli
cli.run = lambda argv: print(argv[0], repr(os.environ.get("CUDA_VISIBLE_DEVICES"))) or 0
cli.main()
"""


@pytest.mark.parametrize("command", ["train", "eval", "generate", "serve", "plan"])
def test_a_driver_sees_no_card_and_other_commands_all(command: str) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "1,2"}
    done = subprocess.run([sys.executable, "-c", HIDES, command], capture_output=True, text=True, env=env, check=True)
    seen = "" if command in launch.cli.STARTING_RAY else "1,2"
    assert done.stdout.split() == [command, repr(seen)]
