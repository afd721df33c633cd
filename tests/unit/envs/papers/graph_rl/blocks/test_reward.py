"""envs.papers.graph_rl.blocks.reward: plans and verdicts, with what each rule saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.papers.graph_rl.blocks.reward import BlocksworldReward, BlocksworldRewardConfig
from envs.rewards.findings import Finding
from rlsys.types import Reward, Transcript
from tests.makers import made
from tests.refused import refused

START = (
    "the pink block is clear, the tan block is clear, the hand is empty, the pink block is on top of the grey block, "
    "the grey block is on the table and the tan block is on the table"
)
GOAL = "the grey block is on top of the pink block and the tan block is on top of the grey block"
PLAN = (
    "unstack the pink block from on top of the grey block",
    "put down the pink block",
    "pick up the grey block",
    "stack the grey block on top of the pink block",
    "pick up the tan block",
    "stack the tan block on top of the grey block",
)
PARTIAL = BlocksworldRewardConfig(step_credit=0.2, goal_credit=0.4)


def transcript(text: str, plan: str | None = None, *, goal: str = GOAL, truncated: bool = False) -> Transcript:
    record = {"initial": START, "goal": goal} | ({"plan": plan} if plan is not None else {})
    return made.transcript(text, record=record, truncated=truncated)


def scored(
    text: str, plan: str | None = None, *, config: BlocksworldRewardConfig | None = None, **more: bool
) -> Reward:
    return BlocksworldReward(config or BlocksworldRewardConfig())(transcript(text, plan, **more))


def parts(**values: float) -> dict[str, float]:
    return {"valid": 0.0, "steps": 0.0, "goal": 0.0, "verdict": 0.0} | values


def lines(*steps: str) -> str:
    return "\n".join(steps) + "\n[PLAN END]"


def test_a_plan_that_works_pays_in_full_and_no_partial_credit() -> None:
    for config in (BlocksworldRewardConfig(), PARTIAL):
        assert scored(lines(*PLAN), config=config) == Reward(value=1.0, parts=parts(valid=1.0))
    longer = (*PLAN[:2], "pick up the pink block", "put down the pink block", *PLAN[2:])
    assert scored(lines(*longer)).value == 1.0


def test_a_plan_that_fails_pays_nothing_without_partial_credit() -> None:
    assert scored(lines(*PLAN[:4])) == Reward(value=0.0, parts=parts())
    assert scored(lines(*PLAN[1:])) == Reward(value=0.0, parts=parts())


def test_partial_credit_counts_steps_and_goal_conditions() -> None:
    # All four steps can be done, one of two conditions is met: 0.2 + 0.4 / 2.
    assert scored(lines(*PLAN[:4]), config=PARTIAL).parts == pytest.approx(parts(steps=0.2, goal=0.2))
    # The third of five steps cannot be done: 0.2 * 2 / 5.
    assert scored(lines(*PLAN[:2], *PLAN[3:]), config=PARTIAL).parts == pytest.approx(parts(steps=0.08))
    assert scored("pick up the moon", config=PARTIAL).parts == parts()


def test_conditions_that_held_from_the_start_give_no_credit() -> None:
    goal = "the hand is empty and the grey block is on top of the pink block"
    reward = BlocksworldReward(PARTIAL)
    idle = reward(transcript(lines("pick up the tan block", "put down the tan block"), goal=goal))
    assert idle.parts == pytest.approx(parts(steps=0.2))


def test_a_plan_that_was_cut_off_counts_only_with_its_end_mark() -> None:
    assert scored("\n".join(PLAN)).value == 1.0
    assert scored("\n".join(PLAN), truncated=True).value == 0.0
    assert scored(lines(*PLAN), truncated=True).value == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The above plan is valid.", 1.0),
        ("not invalid... it is valid", 1.0),
        ("The above plan is invalid.", 0.0),
        ("yes", 0.0),
        ("", 0.0),
    ],
)
def test_verdicts_on_a_valid_plan(text: str, value: float) -> None:
    assert scored(text, "\n".join(PLAN)).parts == parts(verdict=value)


def test_verdicts_on_an_invalid_plan() -> None:
    for plan in ("\n".join(PLAN[:4]), "\n".join(PLAN[1:])):
        assert scored("The above plan is invalid.", plan).value == 1.0
        assert scored("The above plan is valid.", plan).value == 0.0
        assert scored("The above plan is invalid.", plan, truncated=True).value == 0.0


@pytest.mark.parametrize("plan", ["", "\n \n", "[PLAN]\n[PLAN END]"])
def test_an_empty_plan_is_valid_where_the_goal_holds_already(plan: str) -> None:
    assert scored("The above plan is invalid.", plan).parts == parts(verdict=1.0)
    assert scored("The plan cannot be valid.", plan).parts == parts(verdict=1.0)
    assert scored("The above plan is valid.", plan).value == 0.0
    assert scored("The above plan is valid.", plan, goal="the hand is empty").parts == parts(verdict=1.0)
    assert scored("[PLAN END]", goal="the hand is empty").value == 0.0  # an answer has to act


def test_only_the_last_message_of_the_model_counts() -> None:
    right, wrong, theirs = lines(*PLAN), "hm", ("user", lines(*PLAN))
    task = transcript("").task
    reward = BlocksworldReward(BlocksworldRewardConfig())
    assert reward(made.transcript(wrong, theirs, right, task=task)).value == 1.0
    assert reward(made.transcript(right, theirs, wrong, task=task)).value == 0.0
    assert reward(made.transcript(theirs, task=task)).value == 0.0
    assert reward(made.transcript(task=task)).value == 0.0


def explained(text: str, plan: str | None = None, config: BlocksworldRewardConfig = PARTIAL) -> list[Finding]:
    return list(BlocksworldReward(config).findings(transcript(text, plan)))


def test_findings_name_the_step_that_fails_and_why() -> None:
    failed, steps, goal = explained(lines(*PLAN[:2], *PLAN[3:]))
    assert failed.rule == (
        "The following action at step 3 has an unmet precondition: stack the grey block on top of the pink block "
        "The unmet precondition is: the hand is currently holding grey block"
    )
    assert failed.text == PLAN[3]
    assert (steps.rule, goal.rule) == ("2 of 5 steps can be done", "0 of 2 open goal conditions met")
    missed, *_, goal = explained(lines(*PLAN[:4]))
    assert missed.rule == "the goal is not met: the tan block is on top of the grey block"
    assert goal.rule == "1 of 2 open goal conditions met: the grey block is on top of the pink block"
    (unread,) = explained(lines(PLAN[0], "wait"))
    assert (unread.rule, unread.text) == ("'wait' is no action", "wait")
    (verdict,) = explained("I say it is INVALID", "\n".join(PLAN))
    assert (verdict.rule, verdict.text) == ("the plan is valid, not invalid", "INVALID")


@given(st.text(), st.booleans(), st.booleans())
def test_any_text_is_scored_and_its_parts_sum_to_the_value(text: str, verify: bool, truncated: bool) -> None:
    plan = PLAN[0] if verify else None
    for written in (text, f"{PLAN[0]}\n{text}", f"[PLAN]{text}[PLAN END]"):
        score = scored(written, plan, config=PARTIAL, truncated=truncated)
        assert score.value == sum(score.parts.values())
        assert set(score.parts) == set(parts())


@pytest.mark.parametrize("record", [{}, {"initial": START}, {"initial": START, "goal": GOAL, "plan": "wait"}])
def test_a_broken_task_is_not_a_zero(record: dict[str, str]) -> None:
    with refused(where="task t"):
        BlocksworldReward(BlocksworldRewardConfig())(made.transcript(record=record))


def test_a_bad_setting_is_named() -> None:
    with refused("reward.step_credit", expected="a finite number"):
        BlocksworldRewardConfig(step_credit=float("nan"))
