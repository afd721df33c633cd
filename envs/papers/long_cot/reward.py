"""Long CoT (arXiv 2502.03373): classic, base-model and cosine rewards, and the repetition penalty as a token stream.

`docs/rewards/long_cot.md` has the constants and what differs between paper and repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Optional

from envs.rewards import RIGHT
from envs.rewards.asks import Grading
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.length import check_overlong, cosine_reward, ngram_penalty, overlong_findings, overlong_parts
from envs.rewards.maths.compare import decide
from envs.rewards.transcript import Piece, answer_key, model_pieces, num_tokens
from envs.services.judge.config import JudgeConfig
from envs.services.judge.request import JudgeRequest
from envs.text.words import last_boxed_spans
from rlsys.errors import BadInput, require, require_bounds
from rlsys.types import Reward, TokenStream, Transcript

COSINE = ("r0_correct", "rL_correct", "r0_wrong", "rL_wrong")  # at length 0 and at the limit
# Of these (section 3.3, figure 9, appendix K.5).
PRESETS: Mapping[str, tuple[float, float, float, float]] = {
    "default": (2.0, 1.0, -10.0, 0.0),
    "A": (0.0, 10.0, 0.0, 0.0),
    "B": (6.0, 5.0, -10.0, 0.0),
    "C": (10.0, 9.0, -10.0, 0.0),
}
REPETITION = -0.05  # appendix I
BASE_CORRECT, BASE_WRONG, BASE_NO_ANSWER = 1.0, -0.5, -1.0  # section 5


@dataclass(frozen=True, kw_only=True)
class LongCotRewardConfig:
    name: str = "long_cot"
    kind: Literal["cosine", "classic", "base_model"] = "cosine"
    """Kind of the reward. cosine: by correctness and length. classic: 1 or 0, and 0 for a response at the limit.
    base_model: 1 for right, -0.5 for wrong, -1 without an answer."""
    preset: Literal["default", "A", "B", "C"] = "default"
    """Source of the four cosine values below that are null."""
    r0_correct: Optional[float] = None
    """Reward for a right answer of length 0."""
    rL_correct: Optional[float] = None
    """Reward for a right answer at the length limit."""
    r0_wrong: Optional[float] = None
    """Reward for a wrong answer of length 0."""
    rL_wrong: Optional[float] = None
    """Reward for a wrong answer at the length limit."""
    exceed: float = -10.0
    """Reward for a response at the length limit or cut off, right or wrong."""
    max_length: int = 14336
    """Length limit in tokens that the policy generates."""
    margin: int = 16
    """Number of tokens by which the length limit applies early, as in the authors' code. 0: as in the paper's text."""
    repetition_ngram: int = 40
    """Length of the n-grams, in tokens, that count as repeated when they occur again."""
    repetition_penalty: Optional[float] = None
    """Token reward on each token of a repeated n-gram, 0 or less. 0: no token rewards. null: -0.05 with kind=cosine,
    the paper's own reward, and 0 with the two kinds that it is compared with."""
    repetition_discount: float = 0.99
    """Discount of the repetition penalty per sampled token."""
    overlong_buffer: Optional[int] = None
    """Length of the buffer before `max_length`, in tokens, over which DAPO's soft overlong penalty grows linearly. For
    kinds that do not depend on the length. null: no overlong penalty."""
    overlong_penalty: float = -1.0
    """Overlong penalty from `max_length` tokens on, 0 or less."""
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """Model-based verifier of section 4, which replaces the comparison of boxed answers. Without a model it is off."""
    reference: Literal["answers", "solution"] = "answers"
    """Reference that the verifier compares an answer with: the task's answers, as in the authors' scripts, or the
    worked `solution` of its record, as in the paper; the answers if the record has none."""

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "a finite number, or null", *COSINE)
        require_bounds(self, "reward.", "a finite number", "exceed")
        require_bounds(self, "reward.", "a finite number, or null", "repetition_penalty")
        for key in ("r0_wrong", "rL_wrong"):
            value = getattr(self, key)
            require(value is None or value <= 0, f"reward.{key}", value, "0 or less: a wrong answer earns nothing")
        require_bounds(self, "reward.", "at least 1", "max_length", "repetition_ngram")
        compared = self.judge.given or self.reference == "answers"
        require(compared, "reward.reference", self.reference, "answers without a judge, which alone reads a solution")
        require(0 <= self.margin < self.max_length, "reward.margin", self.margin, "from 0 to below reward.max_length")
        require(self.on_repetition <= 0, "reward.repetition_penalty", self.repetition_penalty, "0 or less, or null")
        discount = self.repetition_discount
        require(0 <= discount <= 1, "reward.repetition_discount", discount, "between 0 and 1")
        check_overlong(self)
        plain = self.overlong_buffer is None or self.kind != "cosine"
        require(plain, "reward.overlong_buffer", self.overlong_buffer, "null with kind=cosine, which weighs the length")

    @property
    def on_repetition(self) -> float:
        """`repetition_penalty`, or what stands for null."""
        if self.repetition_penalty is not None:
            return self.repetition_penalty
        return REPETITION if self.kind == "cosine" else 0.0

    @property
    def streams(self) -> Mapping[str, str]:
        return {"repetition": "reward.repetition_penalty=0"} if self.on_repetition else {}

    @property
    def length_limit(self) -> int | None:
        """None for base_model, which has no rule for a response at the limit."""
        return self.max_length if self.kind != "base_model" or self.overlong_buffer is not None else None


class LongCotReward(SumOfFindings):
    """`outcome`, with `overlong` where that is asked for, and in addition the stream `repetition` of known tokens.

    Right after 7168 of 14336 tokens: Reward(value=1.5, parts={"outcome": 1.5}).
    """

    solved_by: ClassVar[Mapping[str, float]] = {"outcome": RIGHT}

    always_judged = False
    uses_tokens = True

    def __init__(self, config: LongCotRewardConfig) -> None:
        self._config = config
        self.parts = ("outcome", *overlong_parts(config))
        self.judge = config.judge
        if config.kind == "classic":
            self._values, self._exceed = dict(zip(COSINE, (1.0, 1.0, 0.0, 0.0), strict=True)), 0.0
        else:
            self._values, self._exceed = dict(zip(COSINE, PRESETS[config.preset], strict=True)), config.exceed
            self._values |= {key: getattr(config, key) for key in COSINE if getattr(config, key) is not None}

    def __call__(self, transcript: Transcript) -> Reward:
        """Raises BadInput where the verdict or the length is needed and missing: see `grading` for the verdict."""
        reward, config = super().__call__(transcript), self._config
        if transcript.token_ids is None or not config.streams:
            return reward
        values = ngram_penalty(transcript.token_ids, n=config.repetition_ngram, penalty=config.on_repetition)
        stream = TokenStream(name="repetition", values=tuple(values), discount=config.repetition_discount)
        return replace(reward, streams=(stream,))

    def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
        """The question whether the answer is right, for a recipe with a judge; none where it is answered already."""
        if self._is_decided(transcript):
            return ()
        response = "\n".join(piece.text for piece in model_pieces(transcript))
        solution = transcript.task.record.get("solution") if self._config.reference == "solution" else None
        reference = solution if isinstance(solution, str) else " or ".join(answer_key(transcript.task))
        fields = {"response": response, "reference": reference}
        return (JudgeRequest(kind="reference", fields=fields),)

    def grading(self, transcript: Transcript) -> Grading | None:
        """What a grader has to decide before the reward can be given; None when nothing is left open."""
        if self._is_decided(transcript):
            return None
        answer, _ = _find_boxed(model_pieces(transcript))
        if answer is None or decide(answer, answer_key(transcript.task), transcript.task.question) is not None:
            return None
        return Grading(given=answer, golds=answer_key(transcript.task))

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        return (self._outcome(transcript), *overlong_findings(self._config, transcript))

    def _outcome(self, transcript: Transcript) -> Finding:
        answer, span = _find_boxed(model_pieces(transcript))
        config = self._config
        if config.kind != "base_model" and self._over(transcript):
            rule = f"cut off, or {num_tokens(transcript)} tokens: at the limit of {config.max_length}"
            return make_finding("outcome", rule, self._exceed, transcript.messages, span)
        correct = _verdict(transcript, answer)
        says = "right" if correct else "wrong" if answer is not None else "no answer"
        if config.kind == "base_model":
            value = BASE_CORRECT if correct else BASE_WRONG if answer is not None else BASE_NO_ANSWER
            return make_finding("outcome", says, value, transcript.messages, span)
        length = num_tokens(transcript)
        rule = f"{says}, {length} of {config.max_length} tokens"
        limit, margin = config.max_length, config.margin
        value = cosine_reward(correct, length, **self._values, exceed=self._exceed, max_length=limit, margin=margin)
        return make_finding("outcome", rule, value, transcript.messages, span)

    def _is_decided(self, transcript: Transcript) -> bool:
        """Whether the verdict is known, or does not matter."""
        return transcript.correct is not None or (self._config.kind != "base_model" and self._over(transcript))

    def _over(self, transcript: Transcript) -> bool:
        """Whether the response reached the limit: the verdict does not matter then."""
        return num_tokens(transcript) + self._config.margin >= self._config.max_length or transcript.truncated


def _find_boxed(pieces: list[Piece]) -> tuple[str | None, Span | None]:
    """The last boxed answer of the last message that has one."""
    for piece in reversed(pieces):
        boxes = last_boxed_spans(piece.text)
        if boxes:
            content = ", ".join(piece.text[start:end].strip() for start, end in boxes)
            return content or None, Span(message=piece.message, start=boxes[0][0], end=boxes[-1][1])
    return None, None


def _verdict(transcript: Transcript, answer: str | None) -> bool:
    if transcript.correct is not None:
        return transcript.correct
    golds = answer_key(transcript.task)
    if answer is None:
        return False
    verdict = decide(answer, golds, transcript.task.question)
    if verdict is None:
        raise BadInput(
            "the answer needs a grader", where=f"task {transcript.task.task_id}", expected="`correct` to be given"
        )
    return verdict
