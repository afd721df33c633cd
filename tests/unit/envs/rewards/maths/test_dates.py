"""envs.rewards.maths.dates: days, times of day and scores, in every form by hand."""

import pytest

from envs.rewards.maths.dates import Time, is_no_arithmetic, parse_date, parse_time, same_time

YEAR = "January February March April May June July August September October November December"
MONTHS = YEAR.split()


def test_every_month_has_its_number_in_every_form() -> None:
    for number, name in enumerate(MONTHS, 1):
        day = (number, 4, "1776")
        forms = [f"{name} 4, 1776", f"{name[:3]} 4th, 1776", f"4 {name} 1776", f"the 4th of {name}, 1776"]
        forms += [f"1776-{number:02d}-04", f"{number}/4/1776", f"1776.{number}.4", f"Monday, {name} 4, 1776"]
        assert [parse_date(form) for form in forms] == [day] * len(forms)
        assert parse_date(f"{name} 4") == (number, 4, "") and parse_date(f"{name} 1776") == (number, 0, "1776")
        assert parse_date(f"{number}/1776") == (number, 0, "1776")
        assert parse_date(f"1776年{number}月4日") == day and parse_date(f"{number}月4号") == (number, 4, "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12/31/2020", (12, 31, "2020")),
        ("12/32/2020", None),
        ("13/12/2020", (12, 13, "2020")),
        ("31/12/2020", (12, 31, "2020")),
        ("13/13/2020", None),
        ("0/12/2020", None),
        ("2020-13-01", (1, 13, "2020")),
        ("2020-12/01", None),
        ("May 32", None),
        ("Maybe 3", None),
        ("sept 9", (9, 9, "")),
        ("3020-05-01", None),
        ("5", None),
    ],
)
def test_what_is_a_date(text: str, found: tuple[int, int, str] | None) -> None:
    assert parse_date(text) == found


def test_every_hour_with_and_without_its_half_of_the_day() -> None:
    for hour in range(1, 13):
        morning, evening = hour % 12, hour % 12 + 12
        assert (
            parse_time(f"{hour}:07 AM")
            == parse_time(f"{hour}.07 a.m.")
            == Time(morning, 7, 0, certain=True, marked=True)
        )
        assert parse_time(f"{hour}pm") == Time(evening, 0, 0, certain=True, marked=True)
        assert parse_time(f"at {hour}:59:58") == Time(hour, 59, 58, certain=False, marked=False)
        assert parse_time(f"{hour} in the morning") == Time(morning, 0, 0, certain=True, marked=True)
        assert parse_time(f"{hour} in the evening") == Time(evening, 0, 0, certain=True, marked=True)
        assert parse_time(f"{hour} o'clock") == Time(hour, 0, 0, certain=False, marked=False)
    for hour in (0, *range(13, 24)):
        assert parse_time(f"{hour}:30") == Time(hour, 30, 0, certain=True, marked=False)
    assert parse_time("24:00") == Time(0, 0, 0, certain=True, marked=False)
    assert parse_time("09:30") == Time(9, 30, 0, certain=True, marked=False)
    assert parse_time("noon") == parse_time("12 midday") == Time(12, 0, 0, certain=True, marked=True)
    assert parse_time("at midnight") == Time(0, 0, 0, certain=True, marked=True)


@pytest.mark.parametrize("text", ["3", "25:00", "13 pm", "0 am", "3:60", "3.30", "3:5", "", "pm"])
def test_what_is_no_time(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("3:45", "3:45 PM", True),
        ("3:45", "3:45 AM", True),
        ("3:45", "15:45", False),
        ("15:45", "3:45 PM", True),
        ("3:45 AM", "3:45 PM", False),
        ("3:45", "3:45", True),
        ("3:45", "3:46", False),
        ("3:45:01", "3:45:02", False),
        ("3:45:00", "3:45", True),
        ("4:45", "3:45 PM", False),
        ("12:00", "noon", True),
        ("12:00", "midnight", True),
        ("0:00", "midnight", True),
        ("03:45", "3:45", True),
    ],
)
def test_the_same_time_with_half_of_the_day_left_out(one: str, other: str, same: bool) -> None:
    ours, theirs = parse_time(one), parse_time(other)
    assert ours is not None and theirs is not None
    assert same_time(ours, theirs) is same_time(theirs, ours) is same


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4-1", True),
        ("4 - 1", True),
        ("12345-1", False),
        ("10:30", True),
        ("1:10", False),
        ("3:10", False),
        ("02:15", True),
        ("10:30:00", True),
        ("10:30 am", True),
        ("10/5", False),
        ("10/5/2020", True),
        ("5/2020", False),
        ("May 5", True),
        ("1/2", False),
        ("5", False),
    ],
)
def test_what_nothing_is_computed_of(text: str, expected: bool) -> None:
    assert is_no_arithmetic(text) is expected
