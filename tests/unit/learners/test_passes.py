"""Which passes an update makes before its first gradient."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learners.algorithms.base import PROXIMAL, REFERENCE, VALUES
from learners.leaving import RowGate, UpdateLeft, common_row
from learners.served_reference import ServedReference
from learners.stage import Phases
from learners.update import count_rows, equal_rows, forward_first, forward_passes
from rlsys.batch import MicroBatch, make_row
from rlsys.metrics import values
from tests.makers import made


@pytest.mark.parametrize(
    ("behavior", "epochs", "minibatches", "needs", "expected"),
    [
        ("engine", 1, 1, (), False),
        ("engine", 2, 2, (REFERENCE, VALUES), False),
        ("engine", 1, 1, (PROXIMAL,), True),
        ("learner", 1, 1, (), False),  # its training pass gives the same numbers
        ("learner", 2, 1, (), True),
        ("learner", 1, 2, (), True),
        ("learner", 1, 1, (REFERENCE,), True),
    ],
)
def test_the_policy_makes_a_pass_of_its_own_where_training_would_change_it_before(
    behavior: str, epochs: int, minibatches: int, needs: tuple[str, ...], expected: bool
) -> None:
    algorithm = SimpleNamespace(epochs=epochs, minibatches=minibatches, needs=frozenset(needs))
    stage: Any = SimpleNamespace(algorithm=algorithm, learner=SimpleNamespace(behavior=behavior))
    assert forward_first(stage) == expected


def stage_of(behavior: str, needs: tuple[str, ...], epochs: int = 1) -> Any:
    """Its policy gives every sampled token -0.5; what the engine said is -1."""

    def policy(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return -0.5 * given[5].float(), torch.zeros(len(given[0]))

    return SimpleNamespace(
        algorithm=SimpleNamespace(epochs=epochs, minibatches=1, needs=frozenset(needs)),
        learner=SimpleNamespace(behavior=behavior, logit_chunk=5),
        models=SimpleNamespace(policy_engine=policy, critic_engine=None, reference=None),
        temperature=1.0,
        torch_device=torch.device("cpu"),
        group=None,
    )


@pytest.mark.parametrize(
    ("behavior", "needs", "proximal", "expected"),
    [
        ("engine", (), None, [-1.0, -1.0]),
        ("engine", (PROXIMAL,), [-0.5, -0.5], [-1.0, -1.0]),
        ("learner", (), None, [-1.0, -0.5]),  # of the token that these weights sampled; the other is older
        ("learner", (PROXIMAL,), [-0.5, -0.5], [-1.0, -0.5]),
    ],
)
def test_the_pass_before_fills_in_what_is_asked_of_it_and_is_compared_with_the_engine(
    behavior: str, needs: tuple[str, ...], proximal: list[float] | None, expected: list[float]
) -> None:
    row = make_row([made.sample((0, 1, 1), logprobs=-1.0, versions=(2, 3))])
    phases = Phases(torch.device("cpu"))
    (result,), metrics = forward_passes(stage_of(behavior, needs, epochs=2), [row], 3, phases, RowGate())
    logprobs = None if result.proximal_logprobs is None else result.proximal_logprobs[1:].tolist()
    assert logprobs == proximal and result.behavior_logprobs[1:].tolist() == expected
    assert result.reference_logprobs is None and result.values is None
    compared = [values(part)["mismatch/mean"] for part in metrics]
    assert compared == ([] if (behavior, needs) == ("engine", ()) else [0.5])
    assert list(phases.seconds) == ["proximal"] * len(compared)


def test_the_passes_before_the_first_gradient_may_be_left_too() -> None:
    gate, phases = RowGate(), Phases(torch.device("cpu"))
    rows = [make_row([made.sample((0, 1))])] * 3
    gate.begin_row()
    gate.resume(2)
    with pytest.raises(UpdateLeft):
        forward_passes(stage_of("engine", (PROXIMAL,)), rows, 3, phases, gate)
    assert gate.rows[0] == 2


class Asked(ServedReference):
    """Answers at once; `while_asked` happens before."""

    def __init__(self, while_asked: Callable[[Callable[[], None]], None]) -> None:
        self._while_asked = while_asked

    def logprobs(self, rows: Sequence[MicroBatch], check: Callable[[], None] = lambda: None) -> list[torch.Tensor]:
        self._while_asked(check)
        return [torch.zeros(row.num_tokens) for row in rows]


def test_none_leaves_before_its_answers_where_one_has_them_and_is_in_sums_over_all() -> None:
    """One rank has its reference's answers and is in `credit`, whose sums need the other, which still asks."""
    ahead, behind = gates = RowGate(), RowGate()
    rows = [make_row([made.sample((0, 1))])] * 3
    stage = stage_of("engine", (REFERENCE,))

    def stop(check: Callable[[], None]) -> None:
        place = common_row([gate.hold(120.0) for gate in gates])
        assert place == 1
        for gate in gates:
            gate.resume(place)
        check()

    for gate, while_asked in ((ahead, lambda check: check()), (behind, stop)):
        stage.models.reference = Asked(while_asked)
        forward_passes(stage, rows, 3, Phases(torch.device("cpu")), gate)
    for gate in gates:
        with pytest.raises(UpdateLeft):
            gate.begin_row()
        assert gate.rows[0] == 1


@pytest.mark.parametrize(
    ("reference", "expected"),
    [(None, 3 + 2), (SimpleNamespace(), 3 + 3 + 2), (Asked(lambda check: check()), 1 + 3 + 2)],
)
def test_an_update_knows_how_often_it_begins_a_row(reference: Any, expected: int) -> None:
    """Three rows: the reference's pass, the proximal policy's, and a gradient of the two that have a weight."""
    stage = stage_of("engine", (PROXIMAL,))
    stage.models.reference = reference
    row = make_row([made.sample((0, 1))])
    batch: Any = SimpleNamespace(denominators=(1.0, 0.0))
    assert count_rows(stage, batch, [row, row, replace(row, minibatch=1)]) == expected


def test_every_rank_gets_as_many_rows_of_each_minibatch_and_none_may_have_nothing() -> None:
    def rows(counts: list[int], most: list[float]) -> list[tuple[int, float]]:
        """Of a rank with this many rows of each minibatch, where the most on any rank is given."""
        template = make_row([made.sample((0, 1))])
        mine = [replace(template, minibatch=index) for index, count in enumerate(counts) for _ in range(count)]
        batch: Any = SimpleNamespace(rows=mine[::-1], denominators=(1.0,) * len(counts))
        calls: list[list[float]] = []
        stage: Any = SimpleNamespace(max_over_ranks=lambda numbers: calls.append(numbers) or most)
        pairs = [(row.minibatch, float(row.loss_mask.sum())) for row in equal_rows(stage, batch)]
        assert calls == [[*map(float, counts), float(not mine)]]
        return pairs

    assert rows([2, 1], [2.0, 3.0, 0.0]) == [(0, 1.0), (0, 1.0), (1, 1.0), (1, 0.0), (1, 0.0)]
    assert rows([0, 1], [1.0, 1.0, 0.0]) == [(0, 0.0), (1, 1.0)]
    for counts in ([1, 0], [0, 0]):
        with pytest.raises(ValueError, match="without rows"):
            rows(counts, [1.0, 1.0, 1.0])
