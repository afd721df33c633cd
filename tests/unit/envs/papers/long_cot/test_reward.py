"""envs.papers.long_cot.reward: kinds, presets, the verdict and the length, the repetition stream."""

import pytest

from envs.papers.long_cot.reward import LongCotReward, LongCotRewardConfig
from envs.rewards import make_reward
from envs.rewards.asks import Grading, resolve_requests
from envs.services.judge.config import JudgeConfig
from rlsys.errors import BadInput
from tests.makers.made import transcript
from tests.refused import refused

RIGHT, WRONG, NONE = "so \\boxed{24}", "so \\boxed{25}", "so 24"


def value(text: str, tokens: int | None, truncated: bool = False, correct: bool | None = None, **config) -> float:
    reward = LongCotReward(LongCotRewardConfig(**config))
    score = reward(transcript(text, golds=("24",), num_tokens=tokens, truncated=truncated, correct=correct))
    assert score.parts == {"outcome": score.value}
    return score.value


@pytest.mark.parametrize(
    ("preset", "correct", "wrong"),
    [  # at 0, a quarter, a half and three quarters of the limit
        ("default", (2.0, 1.853553, 1.5, 1.146447), (-10.0, -8.535534, -5.0, -1.464466)),
        ("A", (0.0, 1.464466, 5.0, 8.535534), (0.0, 0.0, 0.0, 0.0)),
        ("B", (6.0, 5.853553, 5.5, 5.146447), (-10.0, -8.535534, -5.0, -1.464466)),
        ("C", (10.0, 9.853553, 9.5, 9.146447), (-10.0, -8.535534, -5.0, -1.464466)),
    ],
)
def test_presets(preset: str, correct: tuple[float, ...], wrong: tuple[float, ...]) -> None:
    for tokens, right, bad in zip((0, 3584, 7168, 10752), correct, wrong, strict=True):
        assert value(RIGHT, tokens, preset=preset) == pytest.approx(right, abs=1e-6)
        assert value(WRONG, tokens, preset=preset) == pytest.approx(bad, abs=1e-6)
    assert value(RIGHT, 14320, preset=preset) == -10


def test_single_values_win_over_the_preset() -> None:
    assert value(RIGHT, 0, preset="B", r0_correct=3.0) == 3.0
    assert value(RIGHT, 90, max_length=100, margin=0, exceed=-4.0) > 0
    assert value(RIGHT, 100, max_length=100, margin=0, exceed=-4.0) == -4.0


def test_classic_and_base_model() -> None:
    assert [value(text, 100, kind="classic") for text in (RIGHT, WRONG, NONE)] == [1.0, 0.0, 0.0]
    assert value(RIGHT, 14336, kind="classic") == 0.0
    assert [value(text, None, kind="base_model") for text in (RIGHT, WRONG, NONE)] == [1.0, -0.5, -1.0]
    assert value("so \\boxed{}", None, kind="base_model") == -1.0
    assert value("so \\boxed{24", None, True, kind="base_model") == -1.0


def test_a_response_that_was_cut_off_is_at_the_limit() -> None:
    assert value(RIGHT, 50, truncated=True) == -10
    assert value(RIGHT, 50, truncated=True, kind="classic") == 0


def test_a_given_verdict_wins_over_the_text() -> None:
    assert value(WRONG, 7168, correct=True) == 1.5
    assert value(RIGHT, 7168, correct=False) == -5.0
    assert value(NONE, None, correct=True, kind="base_model") == 1.0


def test_the_last_box_of_the_model_is_the_answer() -> None:
    reward = LongCotReward(LongCotRewardConfig(kind="base_model"))
    assert reward(transcript(WRONG + " no, " + RIGHT, golds=("24",))).value == 1.0
    assert reward(transcript(RIGHT, ("tool", WRONG), "done", golds=("24",))).value == 1.0
    assert reward(transcript(("tool", RIGHT), "done", golds=("24",))).value == -1.0


def test_the_length_is_in_tokens_and_its_absence_no_zero() -> None:
    reward = LongCotReward(LongCotRewardConfig())
    assert reward(transcript(RIGHT, golds=("24",), token_ids=tuple(range(7168)))).value == pytest.approx(1.5)
    with refused(where="task t", expected="num_tokens or token_ids"):
        reward(transcript(RIGHT, golds=("24",)))
    with pytest.raises(BadInput, match="num_tokens=-1"):
        reward(transcript(RIGHT, golds=("24",), num_tokens=-1))
    with pytest.raises(BadInput, match='task t: no "answers"'):
        reward(transcript(RIGHT, golds=(), num_tokens=1))


def test_repetition_is_beside_the_value_with_its_own_discount() -> None:
    reward = LongCotReward(LongCotRewardConfig(repetition_ngram=2, repetition_discount=0.9))
    score = reward(transcript(RIGHT, golds=("24",), token_ids=(1, 2, 3, 1, 2, 3, 4), num_tokens=7168))
    (stream,) = score.streams
    assert (stream.name, stream.discount, score.value) == ("repetition", 0.9, 1.5)
    assert stream.values == (0, 0, 0, -0.05, -0.05, -0.05, 0)
    unpunished = LongCotReward(LongCotRewardConfig(repetition_penalty=0))
    assert unpunished(transcript(RIGHT, golds=("24",), token_ids=(1,))).streams == ()
    assert reward(transcript(RIGHT, golds=("24",), num_tokens=5)).streams == ()


@pytest.mark.parametrize("kind", ["classic", "base_model"])
def test_what_the_cosine_is_compared_with_has_no_stream_unless_it_is_asked_for(kind) -> None:
    conversation = transcript(RIGHT, golds=("24",), token_ids=(1, 2, 1, 2), num_tokens=7168)
    assert LongCotReward(LongCotRewardConfig(kind=kind, repetition_ngram=2))(conversation).streams == ()
    config = LongCotRewardConfig(kind=kind, repetition_ngram=2, repetition_penalty=-0.1)
    assert [stream.values for stream in LongCotReward(config)(conversation).streams] == [(0, 0, -0.1, -0.1)]


class Judge:
    """Says yes, and remembers what it was asked."""

    async def grade_any(self, given, golds) -> bool:
        self.asked = (given, golds)
        return True


async def verdict(reward, transcript):
    judge = Judge()
    return await resolve_requests(reward, transcript, judge, None), getattr(judge, "asked", None)


def test_only_what_needs_algebra_goes_to_the_grader() -> None:
    import asyncio

    reward = make_reward(LongCotRewardConfig())
    for text in (RIGHT, WRONG, NONE):
        scored = transcript(text, golds=("24",), num_tokens=7168)
        assert asyncio.run(verdict(reward, scored)) == (scored, None)
    open_question = transcript("\\boxed{\\sqrt{576}}", golds=("24",), num_tokens=7168)
    assert reward.grading(open_question) == Grading(given="\\sqrt{576}", golds=("24",))
    filled, question = asyncio.run(verdict(reward, open_question))
    assert question == ("\\sqrt{576}", ("24",)) and filled.correct is True and reward(filled).value == 1.5
    with refused(where="task t", says="the answer needs a grader"):
        reward(open_question)
    at_the_limit = transcript("\\boxed{\\sqrt{576}}", golds=("24",), num_tokens=14336)
    assert reward.grading(at_the_limit) is None and reward(at_the_limit).value == -10


def test_the_judge_compares_with_the_answers_or_with_the_worked_solution() -> None:
    conversation = transcript(RIGHT, golds=("24", "two dozen"), num_tokens=9, record={"solution": "12 + 12 = 24."})
    references = {}
    for reference in ("answers", "solution"):
        judge = JudgeConfig(model="m")
        (request,) = LongCotReward(LongCotRewardConfig(reference=reference, judge=judge)).judging(conversation)
        references[reference] = request.fields["reference"]
    assert references == {"answers": "24 or two dozen", "solution": "12 + 12 = 24."}
    with refused("reward.reference", found="solution"):
        LongCotRewardConfig(reference="solution")


@pytest.mark.parametrize(
    "bad",
    [
        {"r0_wrong": 1.0},
        {"rL_wrong": 0.5},
        {"r0_correct": float("nan")},
        {"margin": -1},
        {"margin": 14336},
        {"max_length": 0},
        {"repetition_ngram": 0},
        {"repetition_penalty": 0.1},
        {"repetition_discount": 1.1},
    ],
)
def test_impossible_values_are_refused_by_their_key(bad) -> None:
    with pytest.raises(BadInput, match=f"reward.{next(iter(bad))}="):
        LongCotRewardConfig(**bad)
