"""What vLLM sampled, as our record: every token has its log-probability and its version, or it is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.completions import completion
from actors.specs import EngineFailed
from rlsys.types import TurnStop


def output(*spans: tuple[str, int, int], **changes: Any) -> SimpleNamespace:
    """Three tokens; the second came with the log-probability of the likeliest one behind its own."""
    flat = SimpleNamespace(logprobs=[-0.5, -2.0, -0.25, -1.0], start_indices=[0, 1, 3])
    versions = [SimpleNamespace(version=version, start=start, end=end) for version, start, end in spans]
    fields = {"finish_reason": "stop", "stop_reason": None} | changes
    return SimpleNamespace(token_ids=[5, 6, 7], logprobs=flat, weight_versions=versions, text="abc", **fields)


def test_each_token_has_its_own_log_probability_and_the_version_that_sampled_it() -> None:
    found = completion(output(("3", 0, 2), ("4", 2, 3)))
    assert found.token_ids.tolist() == [5, 6, 7] and found.logprobs.tolist() == [-0.5, -2.0, -1.0]
    assert [(span.version, span.start, span.end) for span in found.spans] == [(3, 0, 2), (4, 2, 3)]


@pytest.mark.parametrize(
    "spans",
    [(), (("3", 0, 2),), (("3", 0, 1), ("4", 2, 3)), (("3", 1, 3),), (("3", 0, 4),)],
    ids=["none", "too short", "a gap", "a late start", "too long"],
)
def test_a_token_without_a_version_is_refused(spans: tuple[tuple[str, int, int], ...]) -> None:
    with pytest.raises(EngineFailed, match="3 tokens came with 3 log-probabilities and versions"):
        completion(output(*spans))


@pytest.mark.parametrize(
    ("finish", "reason", "stop"),
    [
        ("stop", "</answer>", TurnStop.STOP),
        ("stop", 151645, TurnStop.EOS),
        ("stop", None, TurnStop.EOS),
        ("length", None, TurnStop.LENGTH),
        ("abort", None, TurnStop.ABORT),
    ],
)
def test_why_a_turn_ended(finish: str, reason: Any, stop: TurnStop) -> None:
    assert completion(output(("3", 0, 3), finish_reason=finish, stop_reason=reason)).stop is stop


def test_an_end_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(EngineFailed, match="'repetition'"):
        completion(output(("3", 0, 3), finish_reason="repetition"))
