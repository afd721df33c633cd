"""Thirty steps of each algorithm against stored curves: a change that was not meant to change training shows here."""

import json

import pytest

from learners.algorithms import ALGORITHMS
from tests.golden.regenerate import CASES, FOLDER, build

# Of numbers that begin at 0.001 to 3. Weights that differ by 1e-11 at the start stay within a hundredth of this.
RELATIVE, ABSOLUTE = 1e-5, 1e-6


@pytest.mark.parametrize("case", CASES)
def test_the_curve_is_the_stored_one(case: str) -> None:
    stored, ours = json.loads((FOLDER / f"{case}.json").read_text()), build(case)
    assert stored.keys() == ours.keys() and stored["algorithm"] == ours["algorithm"]
    for key in stored.keys() - {"algorithm"}:
        again = f"{case}.json, {key}: if training was meant to change, run python -m tests.golden.regenerate"
        assert ours[key] == pytest.approx(stored[key], rel=RELATIVE, abs=ABSOLUTE), again
    assert len(ours["even"]) == 30 and ours["even"][-1] > ours["even"][0] + 0.05  # it learns what it is rewarded for


def test_every_algorithm_has_a_curve_and_every_curve_a_case() -> None:
    assert {name for name, _ in CASES.values()} == set(ALGORITHMS)
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CASES)
