"""envs.papers.graph_rl.proscript: satisfied constraints, by the paper's own examples and hostile orders."""

import pytest

from envs.papers.graph_rl.proscript import ProscriptReward, ProscriptRewardConfig
from rlsys.errors import BadInput
from tests.makers.made import transcript

REWARD = ProscriptReward(ProscriptRewardConfig())
MILK = {
    "goal": "drink milk",
    "steps": ["step1: fetch the milk", "step2: pour it", "step3: find a glass"],
    "constraints": [["step3", "step2"], ["step1", "step2"]],
}


def score(*said, record=MILK) -> float:
    return REWARD(transcript(*said, record=record)).value


@pytest.mark.parametrize(
    ("order", "value"),
    [
        ("step3->step1->step2", 1.0),
        ("step1->step3->step2", 1.0),
        ("step1->step2->step3", 0.5),
        ("step2->step1->step3", 0.0),
        ("Step 3 -> STEP1 --> step2", 1.0),
        ("step3 \u2192 step1 \u2192 step2", 1.0),
        ("$step3 \\rightarrow step1 \\to step2$", 1.0),
        ("step1 -> step2", 0.5),  # step3 is missing
        ("step3 -> step1 -> step2 -> step3", 0.5),  # step3 is named twice
        ("step3 -> step1 -> step2 -> step1 -> step3 -> step2", 0.0),
        ("step9 -> step3 -> step1 -> step2", 1.0),
        ("step3 -> step1 and then step2", 0.0),  # the chain ends before step2
        ("first step3, then step1, then step2", 0.0),
        ("step2 -> step1. No: step3 -> step1 -> step2.", 1.0),
        ("<answer>step3->step1->step2</answer> and not step2->step1", 1.0),
        ("<answer>none</answer> step3->step1->step2", 0.0),
        ("", 0.0),
    ],
)
def test_orders(order: str, value: float) -> None:
    assert score(order) == pytest.approx(value)


def test_a_cover_of_nine_steps() -> None:
    steps = [f"do thing {i}" for i in range(9)]
    constraints = [["step7", "step3"], ["step3", "step4"], ["step4", "step1"], ["step1", "step0"], ["step3", "step2"]]
    constraints += [["step1", "step5"], ["step2", "step5"], ["step1", "step6"], ["step6", "step0"]]
    record = {"goal": "g", "steps": steps, "constraints": constraints}
    # step0 stands before step1 and step6; step8 is missing but in no constraint
    assert score("step7->step3->step4->step0->step1->step2->step5->step6", record=record) == pytest.approx(7 / 9)


def test_only_the_model_orders() -> None:
    assert score("hm", ("user", "step3->step1->step2")) == 0.0
    assert score("step3->step1->step2", ("user", "step2->step1"), "as I said") == 1.0


def test_each_constraint_is_explained() -> None:
    findings = REWARD.findings(transcript("so step1->step2->step3", record=MILK))
    assert [(finding.rule, finding.value, finding.text) for finding in findings] == [
        ("step3 before step2: in the other order", 0.0, "step1->step2->step3"),
        ("step1 before step2", 0.5, "step1->step2->step3"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": []}, '"steps" is missing or empty'),
        ({"constraints": []}, '"constraints" is missing or empty'),
        ({"constraints": None}, '"constraints" is missing or empty'),
        ({"constraints": ["step1 -> step2"]}, "expected a pair"),
        ({"constraints": [["step1", "step8"]]}, "no 'step8' among its 3 steps"),
    ],
)
def test_a_broken_task_is_no_zero(change, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        score("step3->step1", record=MILK | change)
