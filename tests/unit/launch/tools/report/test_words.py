"""Numbers of a report: a half is rounded away from 0, as a reader does it, whatever the bits of it are."""

import pytest

from launch.tools.report.words import score, share, signed


@pytest.mark.parametrize(
    ("right", "tasks", "text"),
    [(193, 200, "0.97"), (183, 200, "0.92"), (1, 8, "0.13"), (97, 100, "0.97"), (0, 9, "0.00"), (964, 1000, "0.96")],
)
def test_a_half_of_the_last_digit_goes_up(right: int, tasks: int, text: str) -> None:
    assert score(right / tasks) == text and score(-right / tasks).lstrip("-") == text


def test_differences_and_shares_are_rounded_as_scores() -> None:
    assert (signed(193 / 200 - 144 / 200), signed(144 / 200 - 193 / 200), signed(0.0)) == ("+0.25", "-0.25", "+0.00")
    assert (share(185 / 200), share(0.5), share(0.9996)) == ("93 %", "50 %", "100.0 %")
