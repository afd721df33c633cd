"""What is uploaded, what the job is, what is refused before anything is sent, and how a job is followed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socketserver
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import ray
import requests

from launch.cli import run as rlsys
from launch.config.layers import CONFIGS, list_files
from launch.tools.submit import session
from launch.tools.submit.folder import MOST_BYTES, Upload, check_size, check_uploaded, measure_upload
from launch.tools.submit.follow import End, Log, end_of, follow
from launch.tools.submit.job import (
    Job,
    check_address,
    check_config_files,
    check_run_dir,
    describe_command,
    name_job,
    train_arguments,
)
from launch.tools.submit.server import JobState, NoSuchJob, Server, Unreachable, choose_token
from launch.tools.submit.session import follow_job, stop_job
from rlsys.errors import BadInput
from tests.refused import refused

FOLDER = Path("/home/me/project")


def job(upload: bool = True) -> Job:
    return Job(
        id="rlsys-r1-seed1-7f3a",
        address="http://10.0.0.1:8265",
        folder=FOLDER,
        upload=upload,
        train=train_arguments("research", "/shared/runs/r1", ["seed=1", "env.system=say it's so"]),
        run_dir="/shared/runs/r1",
        stop_wait=50,
    )


def words_of(line: str) -> list[str]:
    """As a shell has them, which joins lines at a backslash."""
    return shlex.split(line.replace("\\\n", ""))


# -- the job ------------------------------------------------------------------------------------------------------


def test_the_printed_command_means_the_job() -> None:
    words = words_of(describe_command(job(), {}))
    assert words[:3] == ["ray", "job", "submit"]
    entry = words.index("--")
    assert tuple(words[entry + 1 :]) == job().command
    options = dict(zip(words[3:entry:2], words[4:entry:2], strict=True))
    assert options["--submission-id"] == "rlsys-r1-seed1-7f3a" and options["--working-dir"] == "."
    assert json.loads(options["--runtime-env-json"])["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "50"}


def test_a_submission_that_is_not_confirmed_names_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head node may have begun it: to submit it again would be refused by its run directory, minutes later."""

    class Late:
        _server_ray_version = ray.__version__

        def __init__(self, address: str) -> None: ...

        def submit_job(self, **_: object) -> None:
            raise requests.Timeout("timed out")

    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", Late)
    server = Server("http://10.0.0.1:8265")
    with pytest.raises(Unreachable, match="timed out.*--attach rlsys-r1-seed1-7f3a"):
        server.submit(job())


def test_no_variable_of_this_process_is_sent() -> None:
    environment = {"HF_TOKEN": "hf_x", "WANDB_API_KEY": "abc", "RAY_AUTH_TOKEN": "secret", "RAY_AUTH_MODE": "token"}
    line = describe_command(job(), environment)
    assert not any(value in line for value in ("hf_x", "abc", "secret"))
    assert line.startswith("RAY_AUTH_MODE=token ray job submit")
    assert set(job().environment["env_vars"]) == {"RAY_JOB_STOP_WAIT_TIME_S"}  # type: ignore[call-overload]


def test_an_address_in_the_environment_does_not_win_over_the_given_one() -> None:
    assert describe_command(job(), {"RAY_ADDRESS": "10.9.9.9:6379"}).startswith("env -u RAY_ADDRESS ray job submit")


def test_a_folder_that_all_nodes_see_is_entered_and_not_sent() -> None:
    words = words_of(describe_command(job(upload=False), {}))
    assert "--working-dir" not in words and "working_dir" not in job(upload=False).environment
    script = shlex.split(words[-1])
    assert script[:4] == ["cd", str(FOLDER), "&&", "exec"] and script[-1] == "/shared/runs/r1"
    assert "env.system=say it's so" in script


def test_an_id_says_which_run_it_is() -> None:
    assert name_job("/shared/runs/r1", 1, "7f3a") == "rlsys-r1-seed1-7f3a"
    assert name_job("/shared/my run;x/", 0, "0000") == "rlsys-my-run-x-seed0-0000"


@pytest.mark.parametrize(
    "address",
    [
        None,
        "10.0.0.1:8265",
        "http://10.0.0.1",
        "ray://10.0.0.1:10001",
        "auto",
        "http://10.0.0.1:0",
        "http://10.0.0.1:65536",
        "http://me:secret@10.0.0.1:8265",
        "http://me@10.0.0.1:8265",
    ],
)
def test_an_address_without_scheme_or_port_is_refused(address: str | None) -> None:
    with pytest.raises(BadInput, match="8265"):
        check_address(address)
    assert check_address("https://[::1]:8265/") == "https://[::1]:8265"


@pytest.mark.parametrize("run_dir", [None, "runs/r1"])
def test_a_relative_run_directory_is_refused(run_dir: str | None) -> None:
    with pytest.raises(BadInput, match="absolute"):
        check_run_dir(run_dir)


def test_the_options_are_checked_before_anything_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert rlsys(["submit", "quickstart", "--run-dir", "/shared/r"]) == 2
    assert rlsys(["submit", "quickstart", "--address", "http://a:1", "--run-dir", "r"]) == 2
    assert rlsys(["submit", "--address", "http://a:1", "--run-dir", "/r"]) == 2
    assert rlsys(["submit", "quickstart", "--attach", "x", "--address", "http://a:1"]) == 2
    named = [line.split()[2].rstrip(":") for line in capsys.readouterr().err.splitlines()]
    assert named == ["--address", "--run-dir", "CONFIG", "--attach"]


# -- config files -------------------------------------------------------------------------------------------------


def test_a_config_outside_of_the_folder_is_refused_with_a_remedy(tmp_path: Path) -> None:
    folder, outside = tmp_path / "project", tmp_path / "base.yaml"
    folder.mkdir()
    outside.write_text("extends: quickstart\n")
    own = folder / "own.yaml"
    own.write_text(f"extends: {outside}\n")
    files = list_files(str(own))
    assert files == [own, outside, CONFIGS / "quickstart.yaml"]
    with pytest.raises(BadInput, match=r"base\.yaml.*--no-upload"):
        check_config_files(str(own), files, folder, CONFIGS, upload=True)
    assert check_config_files(str(own), files, folder, CONFIGS, upload=False) == str(own)


def test_a_config_of_the_folder_is_named_as_the_job_finds_it(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("extends: quickstart\n")
    assert check_config_files(str(own), list_files(str(own)), tmp_path, CONFIGS, upload=True) == "own.yaml"
    named = check_config_files("quickstart", list_files("quickstart"), tmp_path, CONFIGS, upload=True)
    assert named == "quickstart"


# -- the folder ---------------------------------------------------------------------------------------------------


def test_what_the_ignore_files_leave_is_counted(tmp_path: Path) -> None:
    for name, size in (("a.py", 10), ("data/big", 1000), ("runs/x/log", 500), (".git/objects", 300), ("sub/b.py", 5)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / ".rayignore").write_text("/data\nruns\n")
    upload = measure_upload(tmp_path, lambda *_: None)
    ignore = len("/data\nruns\n")
    assert (upload.files, upload.size) == (3, 10 + 5 + ignore)
    assert upload.left_out >= {"data", "runs", ".git"}
    with pytest.raises(BadInput, match=r"env\.data.*not uploaded"):
        check_uploaded({"env.data": "data/big"}, upload, tmp_path)
    check_uploaded({"env.data": "a.py", "model.path": "Qwen/Qwen2.5-7B", "x.data": None}, upload, tmp_path)
    with refused("env.data", says="is not in the folder that is uploaded"):
        check_uploaded({"env.data": "data/never_made.jsonl"}, upload, tmp_path)
    check_uploaded({"env.data": str(tmp_path / "data" / "big")}, upload, tmp_path)  # absolute: storage of all nodes


def test_a_folder_that_is_too_large_names_its_largest_parts() -> None:
    sizes = {"a": 90 * 10**6, "b": 20 * 10**6, "c": 5, "d": 10}
    with pytest.raises(BadInput, match=r"110 MB.*a 90, b 20.*\.rayignore"):
        check_size(Upload(4, sum(sizes.values()), sizes, frozenset()), FOLDER)
    check_size(Upload(1, MOST_BYTES - 1, {}, frozenset()), FOLDER)


# -- the token ----------------------------------------------------------------------------------------------------


def test_a_token_that_is_there_is_used_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    assert choose_token({"RAY_AUTH_TOKEN_PATH": str(file)}) == ("token", f"token from {file}")
    assert choose_token({"RAY_AUTH_TOKEN": "secret"}) == ("token", "token from RAY_AUTH_TOKEN")
    assert choose_token({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "secret"})[0] == "disabled"
    with pytest.raises(BadInput, match="no token"):
        choose_token({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})


HTTP2 = b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\x04\x00?\x00\x00\x00\x03\x7f\xff\xff\xff"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
ANSWERS = [
    (HTTP2, "speaks no HTTP"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks no HTTP"),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
    (JSON + b"<html>", "another server"),
    (JSON + b'{"version": 1}', "another server"),
    (JSON + b"[]", "another server"),
    (b"", "(Remote end closed"),
]


@pytest.mark.parametrize(("answer", "says"), ANSWERS)
def test_what_is_no_dashboard_is_refused_in_one_line_with_the_port(answer: bytes, says: str) -> None:
    class Answers(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(BadInput) as caught:
            Server(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    message = str(caught.value)
    assert "--address" in message and says in message and "8265" in message
    assert message.isprintable() and "\\x" not in message


def test_the_token_is_chosen_before_the_folder_is_looked_at_which_imports_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object) -> str:
        seen.append(os.environ.get("RAY_AUTH_MODE"))
        raise BadInput("this far")

    seen: list[str | None] = []
    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("RAY_AUTH_MODE", "")  # put back afterwards
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setattr("launch.commands.submit.check_upload", look)
    monkeypatch.setattr("launch.tools.doctor.examine.examine_cluster", look)
    assert rlsys(["submit", "quickstart", "--address", "http://a:1", "--run-dir", "/shared/r"]) == 2
    os.environ.pop("RAY_AUTH_MODE")
    assert rlsys(["doctor", "--cluster"]) == 2
    assert seen == ["token", "token"]


# -- following ----------------------------------------------------------------------------------------------------


class Cluster:
    """A server of made-up answers: None is one that does not come."""

    def __init__(self, states: list[JobState | None], pieces: list[list[str]]) -> None:
        self._states, self._pieces = states, pieces

    def state(self, job: str) -> JobState:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if state is None:
            raise Unreachable("refused")
        return state

    async def tail(self, job: str) -> AsyncIterator[str]:
        for piece in self._pieces.pop(0) if self._pieces else []:
            yield piece
        if self._pieces:
            raise ConnectionError


def followed(cluster: Cluster, **given: float) -> tuple[End, str, list[str]]:
    log: list[str] = []
    lines: list[str] = []
    end = asyncio.run(follow(cluster, "j", log.append, lines.append, ask_s=0.0, **given))
    return end, "".join(log), lines


RUNNING, DONE = JobState("RUNNING"), JobState("SUCCEEDED", 0)


def test_a_log_that_comes_again_is_written_once() -> None:
    states = [RUNNING, RUNNING, None, None, RUNNING, RUNNING, DONE]
    end, log, lines = followed(Cluster(states, [["one\n", "tw"], ["one\ntwo\n", "three\n"]]))
    assert (end.code, log) == (0, "one\ntwo\nthree\n")
    assert len(lines) == 2  # lost, and found


def test_a_connection_that_stays_lost_ends_with_the_job_going_on() -> None:
    end, _, lines = followed(Cluster([RUNNING, None], [["one\n"]]), try_again_s=0.0)
    assert end.code is None and "continues" in end.said
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (JobState("SUCCEEDED", 0), 0),
        (JobState("FAILED", 1), 1),
        (JobState("FAILED", 2), 2),
        (JobState("FAILED", 127), 127),
        (JobState("FAILED", 130), 130),
        (JobState("STOPPED"), 143),
        (JobState("FAILED", -9), 137),
        (JobState("FAILED", -15), 143),
        (JobState("FAILED", None, "no room\nfor the runtime environment"), 1),
    ],
)
def test_the_exit_code_is_that_of_the_run(state: JobState, code: int) -> None:
    assert end_of(state).code == code


def test_an_end_by_a_signal_is_named() -> None:
    assert "SIGKILL" in end_of(JobState("FAILED", -9)).said
    for code in (130, 143, -15):
        assert end_of(JobState("FAILED", code)).said.startswith("stopped")


class Refusing(Cluster):
    """It answers with an error."""

    def __init__(self, error: BadInput) -> None:
        super().__init__([RUNNING], [])
        self.error = error

    def state(self, job: str) -> JobState:
        raise self.error


def test_only_a_job_that_is_not_known_has_ended() -> None:
    assert followed(Refusing(NoSuchJob("there is no such job")))[0].code == 1
    end = followed(Refusing(BadInput("the token was changed")))[0]
    assert end.code is None and "the token was changed" in end.said


def test_a_piece_that_is_half_known_is_written_from_there_on() -> None:
    log: list[str] = []
    writer = Log(log.append)
    writer.take("abc")
    writer.begin()
    writer.take("ab")
    writer.take("cde")
    assert "".join(log) == "abcde"


class Running(Cluster):
    """A job that continues until it is stopped."""

    address = "http://10.0.0.1:8265"

    def __init__(self) -> None:
        super().__init__([RUNNING], [])
        self.stopped = False

    def stop(self, job: str) -> bool:
        self._states, self.stopped = [JobState("STOPPED")], True
        return True


class Interrupted(Running):
    """Ctrl-C comes when the job is looked at first."""

    def state(self, job: str) -> JobState:
        if not self.looked:
            self.looked = True
            signal.raise_signal(signal.SIGINT)
        return super().state(job)

    looked = False


def test_an_interrupt_detaches_and_says_how_to_return(capsys: pytest.CaptureFixture[str]) -> None:
    server = Interrupted()
    assert follow_job(server, "j", "/shared/runs/r1", again_s=0.1, ask_s=0.01) == 130
    assert not server.stopped
    err = capsys.readouterr().err
    assert "--attach j --address http://10.0.0.1:8265" in err and "--stop j" in err


def test_a_second_interrupt_stops_the_job_and_waits_for_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, say = Interrupted(), session.say

    def say_and_interrupt(line: str) -> None:
        say(line)
        if "Ctrl-C again" in line:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(session, "say", say_and_interrupt)
    assert follow_job(server, "j", "/shared/runs/r1", again_s=60.0, ask_s=0.01) == 143
    assert server.stopped and "continues the run in /shared/runs/r1" in capsys.readouterr().out


def test_a_stop_is_asked_for_and_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    server = Running()
    assert stop_job(server, "j", ask_s=0.0) == 0 and server.stopped
    assert stop_job(server, "j", ask_s=0.0) == 0  # again: it has ended
    assert "has ended before" in capsys.readouterr().out


class Finishing(Running):
    """It has ended by itself when it is asked to stop."""

    def stop(self, job: str) -> bool:
        self._states, self.stopped = [JobState("SUCCEEDED", 0, run_dir="/shared/runs/r1")], True
        return False


def test_a_job_that_ends_before_its_stop_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert stop_job(Finishing(), "j", ask_s=0.0) == 0
    assert "done, exit code 0; rlsys report /shared/runs/r1" in capsys.readouterr().out
