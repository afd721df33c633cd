"""envs.services.secrets: one rule for every key and token."""

from __future__ import annotations

import pytest

from envs.services.secrets import read_secret
from rlsys.errors import BadInput


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
