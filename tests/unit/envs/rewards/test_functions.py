"""Reward functions with TRL's signature and verl's, as their users have written them."""

import asyncio
import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.scoring import RewardService, ScoringSpec
from envs.rewards import counts_as_solved, metric_name_of, solved_thresholds
from envs.rewards.functions import FunctionsReward, FunctionsRewardConfig
from launch.config.compose import compose
from launch.driver.stages.base import stage_of
from launch.run_dir.solved import solving_parts
from rlsys.broken import failure_of
from rlsys.types import FailureKind, Reward, Transcript
from tests.makers.made import jsonl, transcript
from tests.refused import refused

seen: dict[str, Any] = {}


def digits(completions: Any, answer: Any, **kwargs: Any) -> list[float]:
    texts = [completion[0]["content"] for completion in completions]
    return [float(right in text.split()) - 0.01 * len(text) for text, right in zip(texts, answer, strict=True)]


async def brief(completions: Any, **kwargs: Any) -> list[float | None]:
    await asyncio.sleep(0)
    return [None if len(completion[0]["content"]) > 20 else 1.0 for completion in completions]


def records(prompts: Any, completions: Any, completion_ids: Any, trainer_state: Any, level: Any = None) -> list[float]:
    seen.update(prompts=prompts, completions=completions, ids=completion_ids, state=trainer_state, level=level)
    return [0.5]


def everything(**kwargs: Any) -> list[float]:
    seen.update(kwargs)
    return [math.nan]


def needs_reference(completions: Any, reference: Any) -> list[float]:
    return [1.0]


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
    seen.update(source=data_source, said=solution_str, extra=extra_info)
    return {"score": ground_truth in solution_str, "acc": 1.0} if extra_info else float(ground_truth in solution_str)


def text_score(completions: Any, **kwargs: Any) -> Any:
    return ["1.0"]


def bare_score(completions: Any, **kwargs: Any) -> Any:
    return 1.0


def two_scores(completions: Any, **kwargs: Any) -> Any:
    return [1.0, 2.0]


def bytes_score(completions: Any, **kwargs: Any) -> Any:
    return b"\x01"


def infinite(completions: Any, **kwargs: Any) -> Any:
    return [float("inf")]


def too_large(completions: Any, **kwargs: Any) -> Any:
    return [10**400]


def unawaited(completions: Any, **kwargs: Any) -> Any:
    return brief(completions)


def finds_none(completions: Any, **kwargs: Any) -> Any:
    return [next(completion for completion in completions if completion == "")]


def cancels(completions: Any, **kwargs: Any) -> Any:
    raise asyncio.CancelledError


def decorated(call: Any) -> Any:
    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return called


brief_decorated = decorated(brief)


def nothing() -> list[float]:
    return [1.0]


def by_star(*args: Any) -> list[float]:
    return [1.0]


def by_place(completions: Any, /, **kwargs: Any) -> Any:
    return [1.0]


def breaks(completions: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError("the user's own")


async def hangs(completions: Any, **kwargs: Any) -> Any:
    await asyncio.Event().wait()


def config(*names: str, solved: dict[str, float] | None = None, **weights: float) -> FunctionsRewardConfig:
    functions = {f"{__name__}.{name}": weight for name, weight in (dict.fromkeys(names, 1.0) | weights).items()}
    return FunctionsRewardConfig(functions=functions, solved_by=solved or {}, timeout_s=0.05)


def scored(given: FunctionsRewardConfig, *said: Any, **fields: Any) -> Reward:
    """By the reward service of a worker."""
    service = RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=5.0))
    return asyncio.run(service.score(FunctionsReward(given), transcript(*said, **fields)))


def test_values_are_weighed_and_what_does_not_apply_adds_nothing() -> None:
    weights = config(digits=1.0, brief=0.5)
    short = scored(weights, "It is 122", golds=("122",))
    assert short.parts == {"digits": pytest.approx(0.91), "brief": 0.5} and short.value == pytest.approx(1.41)
    long = scored(weights, "The answer to it is 122", golds=("122",))
    assert long.parts == {"digits": pytest.approx(0.77), "brief": 0.0}
    assert [finding.rule for finding in long.findings] == ["0.77 times 1", "does not apply"]


def test_a_function_of_trl_gets_the_columns_of_the_row_and_lists_of_one() -> None:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3?"}]
    row = {"prompt": prompt, "answer": "5", "level": 4}
    scored(config("records"), "5", ("tool", "5.0"), "so 5", record=row, token_ids=(7, 8))
    messages = [("assistant", "5"), ("tool", "5.0"), ("assistant", "so 5")]
    completions = [[{"role": role, "content": content} for role, content in messages]]
    assert seen == {"prompts": [prompt], "completions": completions, "ids": [[7, 8]], "state": None, "level": [4]}
    scored(config("digits", "everything"), "5", record=row, golds=("5",))
    assert (seen["answer"], seen["level"]) == (["5"], [4]) and not {"prompt", "trainer_state"} & seen.keys()


def test_a_column_of_nulls_hides_no_answer() -> None:
    row = {"question": "2 + 3?", "answer": None, "level": None}
    scored(config("digits", "everything"), "5", record=row, golds=("5",))
    assert (seen["answer"], seen["solution"], seen["level"]) == (["5"], ["5"], [None])


def test_a_prompt_that_is_a_text_has_a_text_as_its_completion() -> None:
    scored(config("records"), "four", ("tool", "!"), record={"prompt": "two and two is "}, token_ids=(1,))
    assert (seen["prompts"], seen["completions"]) == (["two and two is "], ["four!"])


def test_a_made_up_task_has_the_usual_columns() -> None:
    assert scored(config("digits"), "5", golds=("5", "five")).value == pytest.approx(0.99)


@pytest.mark.parametrize("extra", [None, {"index": 3}])
def test_a_function_of_verl_is_called_by_its_names(extra: Any) -> None:
    row = {"data_source": "sums", "reward_model": {"ground_truth": "5"}, "extra_info": extra}
    assert scored(config("compute_score"), "I say ", "5", record=row).parts == {"compute_score": 1.0}
    assert (seen["source"], seen["said"], seen["extra"]) == ("sums", "I say 5", extra)
    assert scored(config("compute_score"), "6", golds=("5",)).value == 0.0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("breaks", "ZeroDivisionError"),
        ("text_score", "a number or None"),
        ("bare_score", "a list with a number"),
        ("two_scores", "a list with a number"),
        ("bytes_score", "a list with a number"),
        ("infinite", "a finite number"),
        ("too_large", "a number or None"),
        ("unawaited", "`async def`"),
        ("finds_none", "StopIteration"),
        ("cancels", "CancelledError"),
        ("needs_reference", "needs 'reference'"),
        ("records", "no token ids"),
        ("everything", "no reward function applies"),
    ],
)
def test_what_breaks_is_a_failure_of_the_data_and_no_zero(name: str, says: str) -> None:
    with pytest.raises(Exception) as raised:
        scored(config(name), "5")
    failure = failure_of(raised.value, "reward")
    assert failure.kind is FailureKind.DATA and says in failure.detail


def test_a_decorated_function_is_awaited_as_the_one_inside_it() -> None:
    assert scored(config("brief_decorated"), "5") == replace(
        scored(config("brief"), "5"), parts={"brief_decorated": 1.0}
    )


def test_what_is_cancelled_from_outside_is_no_failure() -> None:
    async def cancel() -> None:
        scoring = asyncio.ensure_future(FunctionsReward(config("hangs")).scores(transcript("5")))
        await asyncio.sleep(0)
        scoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await scoring

    asyncio.run(cancel())


def test_an_awaited_function_has_a_deadline() -> None:
    with pytest.raises(TimeoutError) as raised:
        scored(config("hangs", "digits"), "5")
    assert failure_of(raised.value, "reward").kind is FailureKind.TIMEOUT


def test_a_task_is_solved_where_the_config_says_so_and_else_there_is_no_accuracy() -> None:
    silent, says = config(digits=2.0), config(digits=2.0, solved={"digits": 0.5})
    assert (solved_thresholds(silent), metric_name_of(silent)) == (None, "mean reward")
    assert (solved_thresholds(says), metric_name_of(says)) == ({"digits": 1.0}, "accuracy")
    right, wrong = Reward(value=1.9, parts={"digits": 1.9}), Reward(value=0.9, parts={"digits": 0.9})
    assert counts_as_solved(says, right) and not counts_as_solved(says, wrong)
    written = {"name": "functions", "functions": says.functions, "solved_by": says.solved_by}
    assert solving_parts(written) == {"digits": 1.0} and solving_parts({"name": "functions", "of": 1}) == {}


def test_two_functions_of_one_name_are_two_parts() -> None:
    assert set(FunctionsRewardConfig(functions={"a.score": 1, "b.score": 1, "b.c": 1}).parts.values()) == {
        "a.score",
        "b.score",
        "c",
    }


def test_bad_functions_are_refused_before_anything_runs() -> None:
    with refused("reward.functions", found="digits", expected="a dotted path"):
        FunctionsRewardConfig(functions={"digits": 1.0})
    with refused("reward.solved_by", found="digit", expected="did you mean 'digits'"):
        config("digits", solved={"digit": 0.5})
    with refused("reward.solved_by", found="digits", says="no weight above 0"):
        config(digits=-1.0, solved={"digits": 0.5})
    with refused("reward.functions", found="none"):
        FunctionsReward(FunctionsRewardConfig())
    with refused("reward.functions", says="has no attribute 'digit'"):
        FunctionsReward(config("digit"))
    with refused("reward.functions", says="'completions' cannot be given by name"):
        FunctionsReward(config("by_place"))
    for name in ("nothing", "by_star"):
        with refused("reward.functions", says="no argument that has a name"):
            FunctionsReward(config(name))
    with refused("reward.functions", found=["digits"], expected="keys, each with a number"):
        compose("quickstart", ["stages.sft=null", "reward.name=functions", "reward.functions=[digits]"])
    with refused("reward.functions", expected="a class is chosen with reward.name"):
        FunctionsReward(config("Transcript"))


def test_a_missing_column_is_said_before_a_run(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"{n} + 1?"}], "answer": str(n + 1)} for n in range(4)]
    data = jsonl(tmp_path / "tasks.jsonl", rows)
    common = ["stages.sft=null", "env.name=prompts", f"env.data={data}", "reward.name=functions"]
    for name, missing in (("digits", False), ("needs_reference", True)):
        run = compose("quickstart", [*common, f"reward.functions={{{__name__}.{name}: 1}}"])
        if not missing:
            stage_of("rl").ready(run, run.stages[0])
            continue
        with refused(says="needs 'reference', which the task lacks", where="tasks.jsonl"):
            stage_of("rl").ready(run, run.stages[0])


def test_a_transcript_scored_without_its_awaited_values_says_so() -> None:
    conversation: Transcript = transcript("5")
    with refused(says="was not awaited"):
        FunctionsReward(config("brief"))(conversation)
