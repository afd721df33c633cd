"""What an update gave single tokens comes to the tokens that the policy sampled, and to no other."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from launch.driver.run.episodes import TokenCredit
from learners.algorithms import ALGORITHMS, make_algorithm
from rlsys.batch import build_batch, token_advantages
from rlsys.choices import choose
from rlsys.plan import plan_batch
from rlsys.records import make_record, unpack_floats
from rlsys.samples import advantages_by_turn, sample_refs
from rlsys.summaries import summarize
from rlsys.types import Reward, Trajectory, VersionSpan
from tests.makers import made

REWARD = Reward(value=1.0, parts={"correct": 1.0})


def two_turns() -> Trajectory:
    """Sampled are 5, 6 under version 1 and 7, 8, 9, of which version 1 sampled the first."""
    first, second = made.turn((1, 2), (5, 6)), made.turn((1, 2, 5, 6, 3), (7, 8, 9))
    spans = (VersionSpan(version=1, start=0, end=1), VersionSpan(version=3, start=1, end=3))
    second = replace(second, completion=replace(second.completion, spans=spans))
    early = (VersionSpan(version=1, start=0, end=2),)
    first = replace(first, completion=replace(first.completion, spans=early))
    return made.trajectory(first, second, reward=REWARD)


def test_values_are_spread_over_turns_and_tokens_too_old_have_none() -> None:
    played, values = two_turns(), np.array([0.5, -0.5, 1.0, 2.0, 3.0], np.float16)
    whole = advantages_by_turn(played, {0: values}, version=3, max_token_lag=None)
    assert [part.tolist() for part in whole] == [[0.5, -0.5], [1.0, 2.0, 3.0]]
    young = advantages_by_turn(played, {0: values[:2]}, version=3, max_token_lag=1)
    assert np.isnan(young[0]).all() and math.isnan(young[1][0]) and young[1][1:].tolist() == [0.5, -0.5]
    assert advantages_by_turn(played, {0: values}, version=3, max_token_lag=1) == []  # more values than tokens
    assert advantages_by_turn(played, {0: values[:4]}, version=3, max_token_lag=None) == []


def test_from_the_plan_over_the_ranks_rows_into_the_file() -> None:
    group = made.group(made.ticket(7), replace(two_turns(), sibling=0), replace(two_turns(), sibling=1))
    refs = [
        ref
        for trajectory in group.trajectories
        for ref in sample_refs(summarize(trajectory), group_id=7, advantage=0.0, version=3, max_token_lag=1)[0]
    ]
    plan = replace(plan_batch(refs, {7: group}, 64, 3, max_token_lag=1, discounts=(1.0,)), shown=frozenset({7}))
    rows = [
        replace(row, advantages=torch.arange(row.num_tokens, dtype=torch.float32))
        for row in build_batch(plan, {7: group}).rows
    ]
    advantages = token_advantages(rows)
    assert set(advantages) == {(7, 0, 0), (7, 1, 0)} and all(len(values) == 2 for values in advantages.values())
    line = make_record(
        group.trajectories[1],
        group,
        token_advantages=TokenCredit(found=advantages, version=3, max_token_lag=1).of(group.trajectories[1], 7),
    )
    turns = [unpack_floats(text) for text in line.token_advantages]
    assert np.isnan(turns[0]).all() and np.isnan(turns[1][0])
    assert turns[1][1:].tolist() == advantages[7, 1, 0].tolist()
    assert token_advantages(build_batch(replace(plan, shown=frozenset()), {7: group}).rows) == {}


def test_only_algorithms_that_tell_tokens_apart_are_asked() -> None:
    by_name = {name: make_algorithm(choose("algorithm", ALGORITHMS, name).schema()) for name in ALGORITHMS}
    assert {name for name, algorithm in by_name.items() if algorithm.credits_tokens} == {"ppo", "reinforce_pp", "opd"}
    assert TokenCredit().of(two_turns(), 7) == []
