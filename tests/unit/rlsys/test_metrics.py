import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.metrics import Max, Mean, Min, Sum, finite, merge, values


def test_each_kind_states_its_own_reduction() -> None:
    first = {"mean": Mean(6.0, 4), "sum": Sum(1.0), "max": Max(3.0), "min": Min(3.0)}
    second = {"mean": Mean(4.0, 1), "sum": Sum(2.0), "max": Max(5.0), "min": Min(5.0)}
    assert values(merge([first, second])) == {"mean": 2.0, "sum": 3.0, "max": 5.0, "min": 3.0}


def test_a_metric_may_be_missing_from_some_parts() -> None:
    assert values(merge([{"a": Sum(1.0)}, {}, {"b": Max(2.0)}, {"a": Sum(3.0)}])) == {"a": 4.0, "b": 2.0}


def test_a_mean_over_nothing_is_no_metric() -> None:
    assert merge([{"a": Mean(0.0, 0)}]) == {}
    assert values({"a": Mean(0.0, 0)}) == {}
    assert merge([{"a": Mean(0.0, 0)}, {"a": Mean(3.0, 2)}]) == {"a": Mean(3.0, 2)}


def test_two_kinds_under_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="'a' is a Sum and a Mean"):
        merge([{"a": Sum(1.0)}, {"a": Mean(1.0)}])


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 9)), min_size=1), st.integers(0, 20))
def test_merging_in_any_grouping_gives_the_same_mean(pairs: list[tuple[int, int]], cut: int) -> None:
    parts = [{"a": Mean(float(total), weight)} for total, weight in pairs]
    assert merge([merge(parts[:cut]), merge(parts[cut:])]) == merge(parts)
    assert values(merge(parts))["a"] == sum(total for total, _ in pairs) / sum(weight for _, weight in pairs)


@pytest.mark.parametrize("kind", [Mean, Sum, Max, Min])
def test_a_part_that_is_not_a_number_is_not_forgotten_and_its_whole_is_left_out(kind) -> None:
    for part, other in ((1.0, math.nan), (math.nan, 1.0)):
        whole = merge([{"a": kind(part), "b": Sum(1.0)}, {"a": kind(other), "b": Sum(2.0)}])
        assert math.isnan(whole["a"].value)
        assert finite(whole) == {"b": Sum(3.0)}
    assert finite({"a": kind(math.inf)}) == {}
