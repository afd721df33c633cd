"""What an evaluation says of an answer beside its reward: the papers' numbers, for every reward that gives an answer.

A reward takes part by one of two methods, which look at a transcript that it has scored: `given` reads a short answer
out of it, "" for none; `pooled` gives a share that belongs to the whole set, {"constraints_pooled": (5, 7)} for 5 of 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from envs.rewards.qa import Style, best_f1, cover_match, exact_match
from envs.rewards.transcript import answers
from rlsys.metrics import Mean
from rlsys.types import Transcript

Shares = Mapping[str, tuple[float, float]]


def measures(reward: Any, transcript: Transcript) -> dict[str, Mean]:
    """Exact match, cover match and the three F1s of the answer that the reward gives, and its pooled shares.

    "Paris, France" to the key Paris: exact_match 0, cover_match 1, f1 0.667. Each merges over tasks. Raises BadInput
    for a task that the reward cannot score either.
    """
    found: dict[str, Mean] = {}
    given: Callable[[Transcript], str] | None = getattr(reward, "given", None)
    pooled: Callable[[Transcript], Shares] | None = getattr(reward, "pooled", None)
    if given is not None:
        said, golds = given(transcript), answers(transcript.task)
        found = {
            "exact_match": Mean(float(bool(said) and exact_match(said, golds))),
            "cover_match": Mean(float(cover_match(said, golds))),
        }
        for style in get_args(Style):
            name = "f1" if style == "hotpotqa" else f"f1_{style}"
            found[name] = Mean(best_f1(said, golds, style=style) if said else 0.0)
    if pooled is not None:
        found |= {name: Mean(part, whole) for name, (part, whole) in pooled(transcript).items()}
    return found
