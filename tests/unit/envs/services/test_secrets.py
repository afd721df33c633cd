"""envs.services.secrets: one rule for every key and token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

import pytest

from envs.services.secrets import check_address, check_text, check_variable, read_secret, secret_variables
from rlsys.errors import BadInput
from tests.refused import refused


@pytest.mark.parametrize(
    ("held", "found"),
    [
        (None, "is not set"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("two words", "holds characters that no key has"),
        ("a\nb: c", "holds characters that no key has"),
        ("schlüssel", "holds characters that no key has"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(monkeypatch: pytest.MonkeyPatch, held: str | None, found: str) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    if held is not None:
        monkeypatch.setenv("SOME_KEY", held)
    with pytest.raises(BadInput) as caught:
        read_secret("judge.key_env", "SOME_KEY")
    assert str(caught.value) == f"judge.key_env: the environment variable SOME_KEY {found}"


def test_blanks_around_it_are_not_the_key_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", " k3y\n")
    assert read_secret("judge.key_env", "SOME_KEY") == "k3y"
    assert read_secret("judge.key_env", None) is None


@pytest.mark.parametrize(
    "name", ["K", "JUDGE_KEY", "_TOKEN2", "AZURE_OPENAI_API_KEY", "KEY_OF_TEAM_42", "SERPERAPIACCESSKEY"]
)
def test_a_variable_s_name(name: str) -> None:
    check_variable("judge.key_env", name)


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-4fQ9", "hf_aBcDeFgHiJ", "d41d8cd98f00b204e9800998ecf8427e", "AKIAIOSFODNN7EXAMPLE", "", "a key",
        "JBSWY3DPEHPK3PXPJBSWY3DP", "eyJhbGciOi.eyJzdWIi.abc", "KEY=value", "KEY\n", "K" * 65,
    ],
)  # fmt: skip
def test_a_key_in_place_of_a_name_is_not_shown(key: str) -> None:
    with refused(says="judge.key_env: expected the name") as caught:
        check_variable("judge.key_env", key)
    assert not key.strip() or key not in str(caught.value)
    with refused(expected="the name"):
        read_secret("judge.key_env", key)


def test_a_key_travels_encrypted_on_this_machine_or_where_the_user_says_so() -> None:
    named = ("judge.key_env", "JUDGE_KEY")
    for url in (
        "https://far.example/v1",
        "HTTPS://far.example",
        "http://127.0.0.9:80",
        "http://[::1]:1",
        "http://localhost",
    ):
        check_address("judge.endpoint", url, named)
    check_address("judge.endpoint", "http://far.example", ("judge.key_env", None))
    check_address("judge.endpoint", "http://far.example", named, plain_http=True)
    for url in ("http://far.example", "http://localhost.far.example", "http://127.0.0.1.far.example", "http://0x7f.1"):
        with refused("judge.key_env", found="JUDGE_KEY", says="judge.plain_http=true"):
            check_address("judge.endpoint", url, named)


@pytest.mark.parametrize(
    "url", ["far.example:80", "http://", "http://[::1", "http://host:port", "http://host:99999", ""]
)
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(
        BadInput, match="judge.endpoint: expected an http or https address .what was found is not shown"
    ):
        check_address("judge.endpoint", url, ("judge.key_env", None))


def test_variables_are_found_at_any_depth_of_anybody_s_configuration() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Inner:
        token_env: Optional[str] = None

    @dataclass(frozen=True, kw_only=True)
    class Outer:
        my_key_env: str = "A"
        conda_env: str = "b"
        first: Inner = field(default_factory=lambda: Inner(token_env="C"))
        second: Inner = field(default_factory=Inner)
        others: list[Inner] = field(default_factory=lambda: [Inner(), Inner(token_env="D")])

    assert list(secret_variables(Outer())) == ["A", "C", "D"]


@pytest.mark.parametrize("option", ["judge.key_env.0", "judge.key_env.x", "env.retriever.token_env.a.b"])
def test_a_key_in_a_list_or_a_mapping_is_not_shown_either(option: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_text(option, "sk-SECRET")
    assert "SECRET" not in str(caught.value)


def test_an_address_with_a_password_is_found_anywhere_in_a_text() -> None:
    with refused(says="wandb.notes"):
        check_text("wandb.notes", "see https://u:pw@host")
