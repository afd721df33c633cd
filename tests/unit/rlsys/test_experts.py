"""A mixture of experts is known by any of the keys that families count theirs with."""

from typing import Any

import pytest

from rlsys.experts import has_experts


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_experts": 128}, True),
        ({"num_local_experts": 8}, True),
        ({"n_routed_experts": 64}, True),
        ({"moe_num_experts": 2}, True),
        ({"num_local_experts": 1}, False),  # every token goes through it
        ({"num_experts": 0, "num_local_experts": None}, False),
        ({"hidden_size": 64}, False),
    ],
)
def test_a_mixture_of_experts_has_more_than_one(config: dict[str, Any], expected: bool) -> None:
    assert has_experts(config) is expected
