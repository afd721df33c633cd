"""What a run shows to others holds no value of a secret, wherever it stood: one place takes it out of every file."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml

from launch.checks.shareable import HIDDEN, Hider, known_secrets, redact_arguments

KEY = "Zk81-plain-value/x"  # of no known form: it is found because it is known


@pytest.mark.parametrize(
    "line",
    [
        "judge.key_env resolved, header Authorization: Bearer abcDEF12345678",
        "GET http://10.0.0.2:8000/v1?api_key=Q1w2e3r4t5&x=1",
        "https://user:pa55word@host.example/v1 refused",
        "https://ghp0123456789abcdef@github.example/x.git",
        "wandb: Appending key: using api_key='9f8e7d6c5b4a'",
        '{"access_token": "y7y7y7y7", "n": 3}',
        "WANDB_API_KEY=local-0123456789",
        "serve --token s3cr3t-t0k --port 80",
        "prompt: my key is sk-abcdefghijklmnop1234, keep it",
        "aws AKIAIOSFODNN7EXAMPLE0 in a log",
        f"a stack that says {KEY} in the middle",
        "password: hunter2hunter2",
        "ssh-passphrase=opensesame99",
    ],
)
def test_a_secret_is_taken_out_of_a_line(line: str) -> None:
    text = Hider([KEY]).hide(line)
    assert HIDDEN in text
    planted = (
        KEY, "abcDEF12345678", "Q1w2e3r4t5", "pa55word", "ghp0123456789abcdef", "9f8e7d6c5b4a", "y7y7y7y7",
        "local-0123456789", "s3cr3t-t0k", "sk-abcdefghijklmnop1234", "AKIAIOSFODNN7EXAMPLE0", "hunter2hunter2",
        "opensesame99",
    )  # fmt: skip
    assert not [value for value in planted if value in text]


def test_a_hostile_line_takes_no_time_to_speak_of() -> None:
    hostile = "a." * 8_000 + "://" + ":" * 8_000 + "--a-" * 4_000 + "token" * 5_000
    assert len(Hider([KEY]).hide(hostile)) > 0


@pytest.mark.parametrize(
    "line",
    [
        "loop.max_token_lag: 4 and tokens: 128, max_tokens=512",
        '"token_ids": [1, 2, 3], "num_tokens": 7168, "tokens/trained": 12.5',
        "judge: {key_env: null}",
        "step 12 of stage rl: wait_rollout has taken 75 s",
        "Stepper.step (launch/driver/stages/rl_loop.py:141)",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert Hider([KEY]).hide(line) == line


def test_homes_and_the_name_of_the_host_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-of-anna")
    text = Hider().hide("/home/anna/run/x.py on node-of-anna, not node-of-annabel\n")
    assert text == "~/run/x.py on this-host, not node-of-annabel\n"


def test_secrets_are_known_by_the_names_of_variables_and_from_the_files_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password netrc-0123456789\n")
    (tmp_path / ".netrc").chmod(0o600)
    (tmp_path / ".cache" / "huggingface").mkdir(parents=True)
    (tmp_path / ".cache" / "huggingface" / "token").write_text("hub-0123456789\n")
    variables = {"MY_API_KEY": "v1v1v1v1", "JUDGE": "v2v2v2v2", "PATH": "/bin:/usr/bin", "SSH_AUTH_SOCK": str(tmp_path)}
    secrets = known_secrets([variables], named=["JUDGE"])
    assert secrets == {"v1v1v1v1", "v2v2v2v2", "netrc-0123456789", "hub-0123456789"}


@pytest.mark.parametrize(
    "secret", ['pa"ss\\word-1', "it's-a-secret", "two\nlines-of-it", "schlüssel-1234", "both'\"quotes"]
)
def test_a_known_value_is_taken_out_however_a_file_quotes_it(secret: str) -> None:
    """A line of JSON, the configuration as YAML, and what Python prints of a text."""
    record = {"said": secret}
    written = [json.dumps(record), json.dumps(record, ensure_ascii=False), repr(record), secret]
    if "\n" not in secret:  # YAML folds lines
        written += [yaml.safe_dump(record, default_style=style, allow_unicode=True) for style in ("'", '"')]
    for text in written:
        hidden = Hider([secret]).hide(text)
        assert HIDDEN in hidden and not any(part in hidden for part in ("word", "secret", "lines", "1234", "quotes"))


@pytest.mark.parametrize(
    "name",
    [
        "PGPASSWORD", "MYTOKEN", "SSH_PASSPHRASE", "GH_PAT", "GITHUB_PAT", "SSHPASS", "CLIENTSECRET", "AWS_CREDS",
        "SMTP_PASSWD", "OPENAI_API_KEY", "APIKEY", "HF_TOKEN", "WANDB_API_KEY", "DB_PWD", "BASIC_AUTH", "api_token",
        "GIT_OAUTH_TOKEN", "AWS_SECRET_ACCESS_KEY",
    ],
)  # fmt: skip
def test_a_name_says_that_its_value_is_secret(name: str) -> None:
    assert known_secrets([{name: "v1v1v1v1"}]) >= {"v1v1v1v1"}
    assert redact_arguments([f"--{name}=v1v1v1v1"]) == [f"--{name}={HIDDEN}"]


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM", "KEYBOARD", "MAX_TOKENS", "TOKENS_PER_ROW", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH",
        "OLDPWD", "COMPASS", "BYPASS", "AUTHOR", "GIT_AUTHOR_NAME", "KEYMAP", "PASSED", "PASSENGERS", "PATCH",
        "PATTERN", "CREDIT", "SECRETARY", "OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF", "TOKENIZER", "COMPAT", "SPAT",
    ],
)  # fmt: skip
def test_a_name_of_no_secret_is_none(name: str) -> None:
    assert "v1v1v1v1" not in known_secrets([{name: "v1v1v1v1"}])
    assert redact_arguments([f"{name}=v1v1v1v1"]) == [f"{name}=v1v1v1v1"]
