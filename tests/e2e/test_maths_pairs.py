"""The maths verifier against a table of answers by family: how often it is wrong, with the algebra in this process."""

from pathlib import Path

import pytest

from benchmarks.maths import FRESH, HELD_OUT, NEWEST, Pair, cases, pairs, rates, shares, wrong
from envs.rewards.maths.compare import decide

UNTUNED_MISSED = 0.12
MISSED, ACCEPTED = 0.08, 0.01  # at most, of the equal and of the unequal pairs


@pytest.mark.slow
def test_the_verifier_is_seldom_wrong_in_any_family() -> None:
    table = pairs() + pairs(FRESH) + pairs(NEWEST)
    wrongly = wrong(table)
    rows = rates(table, wrongly)
    every = rows[-1]
    report = "\n".join((*map(str, rows), *(f"{pair.family}: {pair.given!r} for {pair.gold!r}" for pair in wrongly)))
    assert every.missed <= MISSED * every.equal, report
    assert every.accepted <= ACCEPTED * every.unequal, report
    blind = rates([pair for pair in table if pair.blind], [pair for pair in wrongly if pair.blind])[-1]
    assert blind.missed <= MISSED * blind.equal and blind.accepted <= ACCEPTED * blind.unequal, report
    # What is told at once is what the algebra says, too.
    for pair in table:
        assert decide(pair.given, (pair.gold,)) in (None, pair.equal is not (pair in wrongly)), pair


@pytest.mark.slow
def test_on_pairs_that_no_rule_was_tuned_on_it_is_seldom_wrong() -> None:
    table = pairs(HELD_OUT)
    wrongly = wrong(table)
    every = rates(table, wrongly)[-1]
    assert every.equal >= 200 and every.unequal >= 130
    assert every.missed <= UNTUNED_MISSED * every.equal and every.accepted <= ACCEPTED * every.unequal, wrongly


def test_the_cases_of_another_grader_are_read_without_running_them(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(
        "import nowhere\n\n"
        '@pytest.mark.parametrize("gold, pred, expected, more", [("$5$", "not $4$ but $5$", 1, 2), (a, "5", 0, 1)])\n'
        "def test_numbers(gold, pred, expected, more): ...\n"
        '@pytest.mark.parametrize("other", [1])\ndef test_other(other): ...\n'
    )
    assert cases(tmp_path) == [Pair(family="test_numbers", given="5", gold="$5$", equal=True, blind=True)]


def test_the_table_asks_both_ways_in_every_family() -> None:
    table = pairs()
    assert len(table) >= 400 and len({(pair.given, pair.gold) for pair in table}) == len(table)
    *families, every = rates(table, [])
    assert every.unequal >= 0.4 * len(table)
    for row in families:
        assert row.equal >= 5 and row.unequal >= 5 and 3 * row.unequal >= row.equal + row.unequal, row


def test_the_rates_count_what_the_table_says() -> None:
    table = [
        Pair(family="a", given="1", gold="1", equal=True, blind=True),
        Pair(family="a", given="1", gold="2", equal=True, blind=True),
        Pair(family="b", given="3", gold="3", equal=False, blind=False),
    ]
    (a, b, every) = rates(table, wrong(table))
    assert (a.equal, a.missed, a.unequal, a.accepted) == (2, 1, 0, 0)
    assert (b.equal, b.missed, b.unequal, b.accepted) == (0, 0, 1, 1)
    assert (every.equal, every.missed, every.unequal, every.accepted) == (2, 1, 1, 1)
    assert "missed 50.0 % of the equal, accepted 100.0 % of the unequal" in shares(every)
