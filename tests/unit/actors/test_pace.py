"""A delivery's deadline, by hand."""

from actors.pace import Pace


def test_the_first_delivery_of_a_large_model_gets_what_a_slow_link_takes() -> None:
    assert Pace().deadline_s(60.0, 15_200_000_000) == 3 * 152.0
    assert Pace().deadline_s(60.0, 100_000_000) == 60.0


def test_later_ones_get_three_times_what_the_last_one_took_and_no_less_than_the_key_says() -> None:
    pace = Pace()
    pace.note(65_500_000_000, 62.0)
    assert round(pace.deadline_s(60.0, 65_500_000_000), 6) == 186.0
    pace.note(65_500_000_000, 5.0)
    assert pace.deadline_s(60.0, 65_500_000_000) == 60.0
    pace.note(0, 5.0)  # nothing that a rate could be read from
    assert pace.deadline_s(60.0, 65_500_000_000) == 60.0
