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
    assert (share(185 / 200), share(0.5)) == ("93 %", "50 %")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0 %"), (1e-9, "< 0.1 %"), (0.0009, "< 0.1 %"), (0.001, "0.1 %"), (0.004, "0.4 %")),
        *((0.997, "99.7 %"), (0.999, "99.9 %"), (0.9994, "> 99.9 %"), (0.9996, "> 99.9 %"), (1 - 1e-9, "> 99.9 %")),
        (1.0, "100 %"),
    ],
)
def test_what_is_not_quite_nothing_or_all_does_not_look_so(value: float, text: str) -> None:
    assert share(value) == text
