"""What is said about the rows of a stage: what is so, once, with the key to turn. Of healthy rows nothing."""

import random
import re
from collections.abc import Iterable
from typing import Any

import pytest

from launch.config.compose import compose
from launch.driver.observe import thresholds
from launch.driver.observe.health import HealthMonitor
from launch.driver.observe.history import HealthSetting
from launch.driver.observe.signs import OTHERWISE, SIGNS
from rlsys.types import Failure, FailureKind

PATIENCE = OTHERWISE.steps or 0
KEYS = ["rollout.max_turn_tokens=64", "rollout.temperature=0.7", "loop.max_token_lag=1"]
RECIPE = compose("quickstart", KEYS).stages[-1].config
HEALTHY = {  # of a step of the quickstart
    "tokens/trained": 2418, "groups/trained": 23.0, "groups/filtered": 9.0, "groups/failed": 0.0, "tokens/stale": 0.0,
    "episode/token_limit": 0.004, "episode/turns": 2.2, "episode/tokens_max": 22.0, "entropy/mean": 0.27,
    "learner/steps": 1.0, "learner/skipped": 0.0,
    "reward/mean": 0.5, "reward/min": 0.0, "reward/max": 1.1, "reward/part/correct": 0.42, "reward/part/format": 0.08,
}  # fmt: skip
NO_SIGNAL = {"tokens/trained": 0, "groups/trained": 0.0, "groups/filtered": 32.0, "learner/steps": None}


def watch(max_turns: int = 4, solved_by: dict[str, float] | None = None) -> HealthMonitor:
    by = {"correct": 0.0} if solved_by is None else solved_by
    return HealthMonitor("rl", HealthSetting(recipe=RECIPE, max_turns=max_turns, solved_by=by))


def rows(count: int, first: int = 1, **changes: Any) -> Iterable[dict[str, Any]]:
    """`a__b` is the key a/b; None takes it away."""
    named = {key.replace("__", "/"): value for key, value in changes.items()}
    values = {key: value for key, value in (HEALTHY | named).items() if value is not None}
    return [values | {"step": first + index} for index in range(count)]


def said(watching: HealthMonitor, seen: Iterable[dict[str, Any]]) -> list[str]:
    return [says for row in seen for says in watching.see(row).values()]


def once(patience: int = PATIENCE, **changes: Any) -> str:
    """The one sentence about rows with these changes, which comes with the last of so many rows."""
    watching = watch()
    assert said(watching, rows(patience - 1, **changes)) == []
    (sentence,) = said(watching, rows(1, patience, **changes))
    assert said(watching, rows(9, patience + 1, **changes)) == []
    return sentence.removeprefix(f"{patience} steps in a row: ")


def no_signal(**changes: Any) -> dict[str, Any]:
    return {key.replace("/", "__"): value for key, value in NO_SIGNAL.items()} | changes


def test_of_healthy_rows_nothing_is_said() -> None:
    watching = watch()
    learned = {"reward__mean": 1.0, "reward__part__correct": 0.9, "entropy__mean": 0.001, "groups__trained": 6.0}
    assert said(watching, [*rows(9), *rows(9, 10, **learned)]) == []
    nothing_yet = {"reward__mean": 0.0, "reward__max": 0.0, "reward__part__correct": 0.0, "reward__part__format": 0.0}
    assert said(watch(), rows(9, 19, **nothing_yet)) == []  # tokens are trained, so something was rewarded
    assert said(watch(max_turns=1), rows(9, episode__turns=1.0)) == []  # a world of one message
    assert watching.findings() == []


def test_a_supervised_stage_is_no_rl_stage() -> None:
    supervised = [{"step": step, "tokens/trained": 900, "entropy/mean": 0.1 / step} for step in range(1, 99)]
    assert said(watch(), supervised) == []
    skipped = [row | {"tokens/trained": 0, "learner/steps": 1.0} for row in supervised]
    (sentence,) = said(watch(), skipped)
    assert "no optimizer step was taken, for no gradient was finite: lower learner.lr" in sentence


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"episode__turns": 1.0, "episode__tokens_max": 64.0}, "raise rollout.max_turn_tokens (now 64)"),
        ({"episode__turns": 1.0, "episode__tokens_max": 50.0}, "raise engine.max_model_len (now 512)"),
        ({}, "raise rollout.max_turn_tokens (now 64) or engine.max_model_len (now 512)"),
    ],
)
def test_episodes_that_are_all_cut_off_name_the_limit(changes: dict[str, Any], key: str) -> None:
    assert (
        once(episode__token_limit=0.97, episode__count=40.0, **changes)
        == f"97% of the episodes were cut off by a token limit: {key}"
    )


def test_groups_without_signal_are_too_easy_too_hard_or_cut_off() -> None:
    head = "nothing was trained: all 32 groups are without signal"
    easy = once(2, **no_signal(reward__min=1.1, reward__part__correct=1.0))
    assert easy == f"{head} (rewards from 1.100 to 1.100): every episode solved its task; give harder tasks (env.*)"
    hard = {"reward__max": 0.0, "reward__mean": 0.0, "reward__part__correct": 0.0, "reward__part__format": 0.0}
    assert once(2, **no_signal(**hard)) == (
        f"{head} (rewards from 0.000 to 0.000): no episode solved its task; give easier tasks (env.*), an sft stage "
        "before, or a higher rollout.temperature (now 0.7) or loop.group_size (now 8)"
    )
    unread = once(2, **no_signal(**hard, episode__malformed=0.6, episode__token_limit=0.375, episode__count=4.0))
    form = "60% of the episodes are malformed and 38% cut off, the model does not write what is read; try an sft stage"
    assert f"(rewards from 0.000 to 0.000): {form}" in unread
    why = "all siblings of each have one reward, each task is too easy or too hard; give others (env.*), or a higher"
    assert why in once(2, **no_signal())
    first, second = said(watch(), rows(PATIENCE, **no_signal(**hard, episode__token_limit=1.0, episode__count=40.0)))
    assert "nearly all are cut off; raise rollout" in first and "100% of the episodes were cut off" in second


def test_other_reasons_for_a_step_that_trains_nothing() -> None:
    assert "older than loop.max_token_lag=1" in once(2, **no_signal(tokens__stale=900.0))
    failed = {"groups__filtered": 0.0, "groups__failed": 32.0}
    assert "of 32 groups none could be graded" in once(2, **no_signal(**failed))


def test_a_reward_that_is_format_only() -> None:
    format_only = {"reward__part__correct": 0.0, "reward__part__format": 0.08}
    sentence = once(2, **format_only)
    assert sentence.startswith("the reward is format only (format 0.080; correct 0): try an sft stage before")
    partial = once(2, **format_only, reward__part__steps=0.2)
    assert partial.startswith("the reward is not for solving tasks (format 0.080, steps 0.200; correct 0)")
    assert said(watch(solved_by={}), rows(9, **format_only)) == []  # the reward does not say what is right
    assert said(watch(solved_by={"f1": 1.0}), rows(9, reward__part__f1=0.2, **format_only)) == []  # partly right


def test_no_tool_call_and_a_collapsed_entropy() -> None:
    assert "no tool was called, every episode ended with the first of the 4 messages" in once(episode__turns=1.0)
    watching = watch()
    assert said(watching, rows(1)) == []
    (sentence,) = said(watching, rows(9, 2, entropy__mean=0.002))
    assert "entropy fell from 0.27 to 0.002 nats a token, mean reward 0.500, highest 1.100" in sentence
    assert "algorithm.entropy_coef" in sentence


def of_gpus(busy_share: float, learner_idle: float, gpus: bool = True, **keys: int) -> list[str]:
    """What is said of steps of 100 s with these shares; `keys`: workers and ranks, else 4 and 4."""
    changes = [f"rollout.workers={keys.get('workers', 4)}", f"learner.ranks={keys.get('ranks', 4)}"]
    recipe = compose("quickstart", changes).stages[-1].config
    watching = HealthMonitor("rl", HealthSetting(recipe=recipe, max_turns=4, solved_by={}, gpus=gpus))
    seen = [row | {"engine/busy_s": 400.0 * busy_share * row["step"], "engine/alive_s": 50.0 + 400.0 * row["step"],
                   "learner/idle_share": learner_idle} for row in rows(PATIENCE + 1)]  # fmt: skip
    return said(watching, seen)


def test_gpus_that_wait_for_the_others_name_the_way_to_move_them() -> None:
    (engines,) = of_gpus(busy_share=0.54, learner_idle=0.02)
    assert "engines were idle for 46% of the step and the learner for 2%: move GPUs to the learner" in engines
    assert "raise learner.ranks (now 4), lower rollout.workers (now 4)" in engines
    (learner,) = of_gpus(busy_share=1.0, learner_idle=0.4)
    assert (
        "learner for 40%: move GPUs to the engines (raise rollout.workers (now 4), lower learner.ranks (now 4))"
        in learner
    )
    assert of_gpus(busy_share=0.8, learner_idle=0.1) == []
    assert of_gpus(busy_share=0.54, learner_idle=0.02, gpus=False) == []  # they share the cores anyway
    assert of_gpus(busy_share=0.54, learner_idle=0.02, workers=1) == []  # there is none to give away
    assert of_gpus(busy_share=1.0, learner_idle=0.4, ranks=1) == []


def test_what_holds_is_counted_and_a_shorter_spell_is_not() -> None:
    watching = watch()
    cut = {"episode__token_limit": 1.0, "episode__count": 40.0}
    well = {"episode__count": 40.0}
    spells = [*rows(2, 1, **cut), *rows(1, 3, **well), *rows(4, 4, **cut), *rows(1, 8, **well)]
    spells += [*rows(2, 9, **cut), *rows(3, 11, **cut)]
    assert len(said(watching, spells)) == 1
    (finding,) = watching.findings()
    assert (finding.stage, finding.what, finding.first_step, finding.last_step) == ("rl", "cut", 4, 13)
    assert (finding.steps, finding.of) == (4 + 5, 13)
    assert finding.describe().startswith("in 9 of 13 steps of stage rl, from step 4: 100% of the episodes")


# -- a policy that was right before ------------------------------------------------------------------------------------

RIGHT = {"reward__mean": 1.08, "reward__part__correct": 0.98, "reward__part__format": 0.1, "entropy__mean": 0.026}
LOST = {"reward__mean": 0.002, "reward__part__correct": 0.0, "reward__part__format": 0.002, "entropy__mean": 4.7}


def test_a_policy_that_blows_up_is_told_the_learning_rate_and_no_easier_tasks() -> None:
    watching = watch()
    seen = [*rows(1, **RIGHT, kl__reference=0.0), *rows(1, 2, **LOST, kl__reference=2403.0)]
    first = said(watching, seen)
    assert [line.split(":")[0] for line in first] == ["step 2"]
    assert "2.4e+03 nats a token: lower learner.lr (now " in first[0]
    nothing = no_signal(**LOST, reward__max=0.0, episode__malformed=1.0, episode__turns=1.0)
    rambles = {
        **LOST,
        "episode__token_limit": 0.99,
        "episode__turns": 1.0,
        "episode__tokens_max": 64.0,
        "episode__count": 40.0,
    }
    later = said(watching, [*rows(1, 3, **LOST), *rows(4, 4, **nothing), *rows(3, 8, **rambles)])
    texts = {finding.what: finding.says for finding in watching.findings()}
    assert {"blown_up", "fell", "scattered", "malformed", "untrained", "cut"} == set(texts)
    assert "fell from 1.080 at step 1 to 0.002: lower learner.lr (now 0.0005)" in texts["fell"]
    assert "entropy rose from 0.026 to 4.7 nats" in texts["scattered"]
    assert "lost what it could do (correct 0.980 at step 1, now 0.000); lower learner.lr (now " in texts["untrained"]
    for sentence in [*first, *later]:
        assert (
            "easier" not in sentence
            and "max_turn_tokens" not in sentence
            and "sft" not in sentence
            and "learner.lr (now" in sentence
        ), sentence


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"kl__reference": 3.4}, "drifted"),
        ({"learner__grad_norm": 250.0}, "grad_norm"),
        ({"episode__malformed": 0.95}, "malformed"),
        ({"groups__trained": 2.0, "groups__filtered": 38.0}, "starved"),
        ({"reward__part__correct": 0.004, "reward__part__format": 0.08}, "unsolved"),
        ({"episode__turns": 1.0156}, "silent"),
        ({"episode__raised": 0.04}, "raised"),
    ],
)
def test_what_is_nearly_so_is_said(changes: dict[str, Any], what: str) -> None:
    watching = watch()
    assert len(said(watching, rows(PATIENCE, **changes))) == 1
    assert [finding.what for finding in watching.findings()] == [what]


@pytest.mark.parametrize(
    "changes",
    [
        {"kl__reference": 0.5, "learner__grad_norm": 12.0, "episode__malformed": 0.4, "episode__raised": 0.0},
        {"groups__trained": 5.0, "groups__filtered": 27.0, "reward__part__correct": 0.05, "episode__turns": 1.2},
        {"reward__mean": 0.3, "entropy__mean": 0.9},
        {"kl__reference": None, "learner__grad_norm": None},
    ],
)
def test_what_training_goes_through_is_not_said(changes: dict[str, Any]) -> None:
    assert said(watch(), [*rows(1), *rows(9, 2, **changes)]) == []


def test_a_mean_of_few_groups_may_fall_by_chance() -> None:
    few = {"groups__trained": 1.0, "groups__filtered": 1.0}
    lucky = {**few, "reward__mean": 1.1, "reward__part__correct": 1.0}
    assert said(watch(), [*rows(1, **lucky), *rows(9, 2, **few, reward__mean=0.1)]) == []


def drawn(draw: random.Random, first: int, count: int, groups: int, easy: float) -> list[dict[str, Any]]:
    """Steps of tasks that are solved nearly always or hardly ever; `easy`: the share of the former."""
    means = []
    for _ in range(count):
        tasks = [0.95 if draw.random() < easy else 0.05 for _ in range(groups)]
        means.append(sum(draw.random() < task for task in tasks for _ in range(8)) / (8 * groups))
    few = {"groups__trained": float(groups), "groups__filtered": 0.0, "reward__max": 1.0}
    return [
        row
        for at, mean in enumerate(means)
        for row in rows(1, first + at, **few, reward__mean=mean, reward__part__correct=mean)
    ]


def test_a_mean_that_stands_still_never_fell_and_one_that_falls_is_seen_within_a_few_steps() -> None:
    draw, runs, false = random.Random(0), 0, 0
    for groups in (4, 8, 12, 16):
        for easy in (0.5, 0.25):
            for _ in range(4):
                runs, false = runs + 1, false + bool(said(watch(), drawn(draw, 1, 200, groups, easy)))
        falls = watch()
        seen = [*drawn(draw, 1, 20, groups, 0.95), *drawn(draw, 21, 7, groups, 0.05)]
        (sentence,) = said(falls, seen)
        assert "the mean reward fell from" in sentence
    assert false <= 0.02 * runs


def test_all_rewards_of_one_number_lead_to_the_reward_itself() -> None:
    zero = {"reward__max": 0.0, "reward__mean": 0.0, "reward__part__correct": 0.0, "reward__part__format": 0.0}
    watching = HealthMonitor("rl", HealthSetting(recipe=RECIPE, max_turns=4, solved_by={"correct": 0.0}, run="runs/q"))
    (sentence,) = said(watching, rows(2, **no_signal(**zero)))
    line = "rlsys score runs/q/config.yaml --input runs/q/trajectories/step-000002.jsonl --explain 1"
    assert sentence.endswith(f"or look whether the reward reads what the model writes: {line}")


def counted(each: dict[str, float], steps: int = PATIENCE, again: int | None = None) -> list[dict[str, Any]]:
    """Healthy steps in each of which a tool counts so much; again: the step in which its workers began anew."""
    total, steps_seen = dict.fromkeys(each, 0.0), []
    for row in rows(steps):
        before = dict.fromkeys(each, 0.0) if row["step"] == again else total
        total = {key: before[key] + more for key, more in each.items()}
        steps_seen.append(row | {f"tool/{key}": count for key, count in total.items()})
    return steps_seen


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        (
            {"judge/errors_cut": 4.0, "judge/errors_unparsable": 1.0},
            "5.0% of the judge's answers .* raise reward.judge",
        ),
        ({"judge/errors_unparsable": 20.0}, "20.0% of the judge's answers have no verdict .*judge-errors"),
        ({"search/errors": 5.0}, "5.0% of the searches failed .*: look at env.retriever"),
        ({"search/empty": 50.0}, "50% of the searches found no passage: look at env.retriever.corpus"),
    ],
)
def test_what_a_judge_or_a_retriever_does_not_say_is_said(counts: dict[str, float], says: str) -> None:
    calls = {f"{next(iter(counts)).partition('/')[0]}/calls": 100.0}
    (sentence,) = said(watch(), counted(calls | counts))
    assert re.search(says, sentence)
    less = {key: count * (0.99 if len(counts) == 1 and count != 20 else 0.2) for key, count in counts.items()}
    assert said(watch(), counted(calls | less, 9)) == []
    assert said(watch(), counted(calls | counts, again=PATIENCE)) == []
    assert said(watch(), counted(dict.fromkeys(calls | counts, 0.0), 9)) == []


def test_searches_that_fail_and_searches_that_find_nothing_are_two_findings() -> None:
    watching, counts = watch(), {"search/calls": 9.0, "search/errors": 1.0, "search/empty": 8.0}
    signs = [sign for row in counted(counts) for sign in watching.see(row)]
    assert signs == ["unanswered", "no_passage"] == [finding.what for finding in watching.findings()]


def test_the_first_line_that_raised_is_named() -> None:
    watching = watch()
    watching.record_failure(
        Failure(kind=FailureKind.DATA, where="environment", detail="KeyError: 'x' (world.py:61 in step)")
    )
    watching.record_failure(Failure(kind=FailureKind.DATA, where="reward", detail="another"))
    (sentence,) = said(watching, rows(PATIENCE, episode__raised=0.12))
    assert "12.0% of the episodes" in sentence
    assert sentence.endswith("; the first: data in environment: KeyError: 'x' (world.py:61 in step)")


def test_the_error_of_an_agent_is_said_with_what_becomes_of_its_episode() -> None:
    watching = watch()
    watching.record_failure(Failure(kind=FailureKind.DATA, where="agent", detail="RuntimeError: down (mine.py:9)"))
    (sentence,) = said(watching, rows(PATIENCE, episode__raised=0.34, env__agent_errors=0.3))
    assert "34.0% of the episodes" in sentence and "30.0%" in sentence and "played again" not in sentence
    assert sentence.endswith("; the first: data in agent: RuntimeError: down (mine.py:9)")


# -- how much proof, and from which level ------------------------------------------------------------------------------

LARGE = {"episode__count": 1024.0, "groups__trained": 92.0, "groups__filtered": 36.0}  # a step of 7B: twelve minutes
STARVED = {"groups__trained": 9.0, "groups__filtered": 119.0}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"episode__token_limit": 0.2, "episode__turns": 1.0, "episode__tokens_max": 64.0}, "cut"),
        ({"episode__turns": 1.0}, "silent"),
        ({"episode__malformed": 0.95}, "malformed"),
        ({"episode__raised": 0.012}, "raised"),
        ({"episode__time_limit": 0.012}, "time_limit"),
        ({"failures__timeout": 11.0}, "timed_out"),
        (STARVED, "starved"),
        ({"reward__part__correct": 0.0}, "unsolved"),
        ({"kl__reference": 0.6}, "drifted"),
        ({"clip__low": 0.2, "clip__high": 0.15}, "clipped"),
        ({"ratio__outside_0.1": 0.55}, "clipped"),
        ({"mismatch__mean": 0.02}, "mismatch"),
        (
            {"mismatch__depth_0_1k": 0.002, "mismatch__depth_1k_2k": 0.003, "mismatch__depth_64k_up": 0.006},
            "mismatch_by_depth",
        ),
    ],
)
def test_one_step_of_a_thousand_episodes_is_certain(changes: dict[str, Any], what: str) -> None:
    watching = watch()
    messages = {"episode__turns": 2.2} if what == "cut" else {}
    (sentence,) = said(watching, rows(1, **(LARGE | changes | messages)))
    assert sentence.startswith("step 1: ") and [finding.what for finding in watching.findings()] == [what]


def test_time_that_is_up_names_the_limit_that_holds_and_a_late_tool_is_no_long_answer() -> None:
    """Derived: 512 tokens at 8 a second are less than the 300 s that every episode has."""
    (late,) = said(watch(), rows(1, **LARGE, episode__time_limit=0.05))
    (failed,) = said(watch(), rows(1, **LARGE, failures__timeout=51.2))
    assert "rollout.episode_timeout_s (now 300)" in late and "rollout.max_turn_tokens" in late
    assert "5.0%" in failed and "env.*, reward.*" in failed and "shorter answers" not in failed


@pytest.mark.parametrize(
    "changes",
    [
        {"episode__token_limit": 0.19},
        {"episode__time_limit": 0.009, "failures__timeout": 10.0},  # 10 of 1,024
        {"episode__raised": 0.009},
        {"kl__reference": 0.5},
        {"clip__low": 0.1, "clip__high": 0.15, "ratio__outside_0.1": 0.4},
        {"mismatch__mean": 0.009},
        {"mismatch__mean": 1e-6, "mismatch__depth_0_1k": 1e-7, "mismatch__depth_64k_up": 9e-7},  # float32
        {"mismatch__depth_0_1k": 0.05, "mismatch__depth_64k_up": 0.12},
        {"learner__grad_norm": 250.0},  # once
    ],
)
def test_less_than_a_level_is_not_said_of_a_thousand_episodes_either(changes: dict[str, Any]) -> None:
    assert said(watch(), rows(1, **(LARGE | changes))) == []


def test_an_engine_in_bfloat16_may_round() -> None:
    """SmolLM2: 0.039 and 0.049; one layer of thirty without attention 0.345."""
    setting = HealthSetting(recipe=RECIPE, max_turns=4, solved_by={}, dtype="bfloat16")
    for gap, count in ((0.049, 0), (0.098, 0), (0.12, 1), (0.345, 1)):
        assert len(said(HealthMonitor("rl", setting), rows(1, **LARGE, mismatch__mean=gap))) == count


def test_a_quantised_engine_may_round_as_far_as_it_was_measured_to() -> None:
    """fp8: each result rounded so moves the learner's numbers by 0.3, and a delivery may be off by twice that."""
    setting = HealthSetting(recipe=RECIPE, max_turns=4, solved_by={}, dtype="bfloat16")
    for gap, count in ((0.35, 0), (0.59, 0), (0.61, 1)):
        measured = {"mismatch__mean": gap, "mismatch__probe_limit": 0.6}
        assert len(said(HealthMonitor("rl", setting), rows(1, **LARGE, **measured))) == count
    exact = {"mismatch__mean": 0.11, "mismatch__probe_limit": 0.003}
    assert len(said(HealthMonitor("rl", setting), rows(1, **LARGE, **exact))) == 1


@pytest.mark.parametrize(
    ("exact", "correction", "key"),
    [
        ("false", "none", "model.fp32_head=true"),
        ("true", "none", "is_correction=tis"),
        ("true", "tis", "give both the same RoPE and window"),
    ],
)
def test_a_gap_in_long_contexts_names_what_is_not_set_yet(exact: str, correction: str, key: str) -> None:
    changes = [f"model.fp32_head={exact}", f"algorithm.is_correction={correction}"]
    recipe = compose("quickstart", changes).stages[-1].config
    watching = HealthMonitor("rl", HealthSetting(recipe=recipe, max_turns=4, solved_by={}))
    (sentence,) = said(watching, rows(1, **LARGE, mismatch__depth_0_1k=0.002, mismatch__depth_64k_up=0.006))
    assert sentence.endswith(key)


def test_a_share_that_is_cut_off_counts_until_a_hundred_are_and_not_while_it_falls() -> None:
    """Of 256 episodes a fifth are 51: two steps. As in long_cot/tiny: a policy learns to end inside the window."""
    half = {"episode__count": 256.0, "episode__token_limit": 0.2}
    assert [len(said(watch(), rows(steps, **half))) for steps in (1, 2)] == [0, 1]
    shares = (0.38, 0.33, 0.27, 0.24, 0.2, 0.12, 0.05)
    falling = [
        row for step, share in enumerate(shares, start=1)
        for row in rows(1, step, episode__count=128.0, episode__token_limit=share)
    ]  # fmt: skip
    assert said(watch(), falling) == []


SMOLLM2 = {"reward__min": 0.0, "reward__max": 1.0, "groups__trained": 8.0, "groups__filtered": 0.0}


def entropies(*found: tuple[float, float], **more: float) -> list[str]:
    """What is said of (entropy, mean reward) of one step after another."""
    steps = enumerate(found, start=1)
    batches = (
        rows(1, n, **SMOLLM2, entropy__mean=e, reward__mean=r, reward__part__correct=r, **more) for n, (e, r) in steps
    )
    return said(watch(), [row for batch in batches for row in batch])


def test_an_entropy_of_a_tenth_is_said_where_rewards_no_longer_rise() -> None:
    rising = [(0.31, 0.1), *((0.03, 0.1 + 0.05 * n) for n in range(12))]
    assert entropies(*rising) == []  # as SmolLM2 learns: 0.31 to 0.03
    (sentence,) = entropies(*rising, *[(0.03, 0.65)] * 20)
    assert "entropy fell from 0.31 to 0.03 nats a token" in sentence
    assert entropies(*rising, *[(0.04, 0.65)] * 20) == []  # more than a tenth of 0.31
    assert entropies(*rising, *[(0.03, 0.9)] * 20) == []  # it has learned what there was to be learned


def test_a_drift_is_measured_against_the_entropy_of_the_beginning() -> None:
    flat = [(0.3, 0.5)] * 4
    assert entropies(*flat, kl__reference=0.5) == []
    assert len(entropies(*flat, kl__reference=0.7)) == 1  # twice 0.3
    sharp = [(0.03, 0.5)] * 4
    assert entropies(*sharp, kl__reference=0.09) == []  # three times its entropy: as research/tiny learns
    assert len(entropies(*sharp, kl__reference=0.31)) == 1
    assert entropies(*[(6.2, 0.1)] * 4, kl__reference=3.4) == []  # of a policy from nothing, uniform over 512 tokens


NONE_RIGHT = {"reward__mean": 0.0, "reward__max": 0.0, "reward__part__correct": 0.0, "reward__part__format": 0.0}


def test_a_stage_in_which_no_answer_was_ever_right_says_so_after_two_steps_and_at_its_end() -> None:
    few = no_signal(**NONE_RIGHT, groups__filtered=2.0, episode__count=8.0)
    watching = watch()
    assert said(watching, rows(1, **few)) == []
    (finding,) = watching.findings()  # a run of one step ends here, and its last word names the reason
    assert (finding.what, finding.steps, finding.of) == ("untrained", 1, 1)
    (sentence,) = said(watching, rows(1, 2, **few))
    assert "no episode solved its task; give " in sentence and "loop.group_size (now 8)" in sentence
    assert [(entry.what, entry.steps, entry.first_step) for entry in watching.findings()] == [("untrained", 2, 1)]
    recipe = compose("worlds/search", []).stages[-1].config
    other = HealthMonitor("rl", HealthSetting(recipe=recipe, max_turns=4, solved_by={"correct": 0.0}))
    assert "give examples in the prompt (env.demonstrations), easier tasks (env.*)" in said(other, rows(2, **few))[0]


def test_a_stage_that_trained_before_has_a_step_without_signal_now_and_then() -> None:
    few = no_signal(**NONE_RIGHT, groups__filtered=2.0, episode__count=8.0)
    watching = watch()
    assert said(watching, [*rows(1, groups__trained=2.0), *rows(2, 2, **few)]) == []
    assert watching.findings() == []


def test_each_level_has_a_unit_and_a_reason() -> None:
    assert len(thresholds.TABLE) > 25 and all(
        level.unit and level.why and level > 0 for level in thresholds.TABLE.values()
    )
    assert all(proof.why and (proof.steps or proof.episodes) for proof in (sign.proof for sign in SIGNS.values()))


RECORDED = ["episode/token_limit", "entropy/mean", "reward/mean", "reward/part/accuracy", "ratio/outside_0.1"]
BEGINS = [(0.875, 0.542, 0.153, 0.05, 0.046), (0.844, 0.474, 0.098, 0.0, 0.157), (0.344, 0.269, 0.208, 0.05, 0.072)]
LEARNS = [
    *((0.25, 0.266, 0.314, 0.15, 0.022), (0.344, 0.277, 0.226, 0.075, 0.097), (0.125, 0.261, 0.402, 0.225, 0.049)),
    *((0.094, 0.160, 0.355, 0.175, 0.042), (0.156, 0.183, 0.452, 0.275, 0.063), (0.094, 0.174, 0.485, 0.3, 0.049)),
    *((0.031, 0.208, 0.645, 0.45, 0.031), (0.062, 0.143, 0.568, 0.375, 0.027), (0.0, 0.139, 0.600, 0.4, 0.027)),
    *((0.0, 0.133, 0.525, 0.325, 0.027), (0.0, 0.124, 0.750, 0.55, 0.018), (0.031, 0.158, 0.672, 0.475, 0.033)),
]


@pytest.mark.parametrize("recorded", [BEGINS, LEARNS])
def test_of_a_pretrained_model_that_learns_nothing_is_said(recorded: list[tuple[float, ...]]) -> None:
    """Steps of SmolLM2-135M with examples in its prompt, bfloat16, 8 groups of 4, as two runs recorded them: it learns
    to end its answers, and the tool."""
    also = {"episode/count": 32, "episode/turns": 1.95, "episode/tokens_max": 119, "groups/trained": 6}
    also |= {"groups/filtered": 2, "groups/failed": 0, "tokens/trained": 1579, "reward/min": 0.05, "reward/max": 1.0}
    setting = HealthSetting(recipe=RECIPE, max_turns=4, solved_by={"accuracy": 0.0}, dtype="bfloat16")
    watching = HealthMonitor("examples", setting)
    seen = [
        {**also, "mismatch/mean": 0.0167, "reward/part/format": 0.15, "step": n}
        | dict(zip(RECORDED, values, strict=True))
        for n, values in enumerate(recorded, start=1)
    ]
    assert said(watching, seen) == [] and watching.findings() == []


def cut_steps(episodes: int, share: float, steps: int, draw: random.Random) -> list[dict[str, Any]]:
    history = []
    for step in range(1, steps + 1):
        cut = sum(draw.random() < share for _ in range(episodes)) / episodes
        history += rows(1, step, episode__count=float(episodes), episode__token_limit=cut)
    return history


def test_a_constant_share_that_is_cut_off_is_said_of_small_steps_too() -> None:
    """Of 32 episodes a quarter are 8 +- 2.4: a third of the steps has a tenth less than the one before, by chance."""
    draw = random.Random(0)
    heard = [len(said(watch(), cut_steps(32, 0.25, 40, draw))) for _ in range(50)]
    assert heard.count(1) >= 45 and max(heard) == 1
    below = [len(said(watch(), cut_steps(32, 0.1, 40, draw))) for _ in range(50)]
    assert below == [0] * 50
    assert said(watch(), rows(2, episode__count=8.0, episode__token_limit=1.0)) == []
    assert len(said(watch(), rows(3, episode__count=8.0, episode__token_limit=1.0))) == 1
