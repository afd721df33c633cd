"""A driver sees no card, and what it starts sees those that it was given."""

import os
import subprocess
import sys

import pytest

from rlsys.system import cards
from rlsys.system.cards import VISIBLE, cards_shown, hide_cards

CHILD = [sys.executable, "-c", f"import os; print(repr(os.environ.get('{VISIBLE}')))"]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "found_before", None)
    monkeypatch.setenv(VISIBLE, "before")  # put back afterwards
    monkeypatch.delenv(VISIBLE)


def seen_by_a_child() -> str:
    return subprocess.run(CHILD, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("given", [None, "1,3", ""])
def test_hidden_from_this_process_and_shown_to_what_it_starts_for_them(given: str | None) -> None:
    if given is not None:
        os.environ[VISIBLE] = given
    hide_cards()
    assert os.environ[VISIBLE] == "" and seen_by_a_child() == "''"
    with cards_shown():
        assert os.environ.get(VISIBLE) == given and seen_by_a_child() == repr(given)
    assert os.environ[VISIBLE] == ""
    hide_cards()  # a second time: what was given is not forgotten
    with cards_shown():
        assert os.environ.get(VISIBLE) == given


def test_hidden_again_after_an_error() -> None:
    os.environ[VISIBLE] = "2"
    hide_cards()
    with pytest.raises(ValueError), cards_shown():
        raise ValueError
    assert os.environ[VISIBLE] == ""


def test_a_process_that_hides_nothing_is_left_as_it_is() -> None:
    os.environ[VISIBLE] = "2"
    with cards_shown():
        assert os.environ[VISIBLE] == "2"
    assert os.environ[VISIBLE] == "2"
