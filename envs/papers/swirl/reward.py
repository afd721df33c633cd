"""SWiRL (arXiv 2504.04736): a judge's verdict on every step, and the filters of section 3.

`docs/rewards/swirl.md` has the constants and what the paper leaves open. The judge's prompt `process` is
`envs/services/judge/prompts/process.md`, in the paper's words `envs/papers/swirl/judge_prompts/process.md`.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Optional, TypeVar

from envs.papers.swirl.protocol import SWIRL, SWIRL_MATH, result_of
from envs.papers.swirl.step_rules import judge_by_rules
from envs.papers.swirl.sub_trajectories import turns_after_prompt
from envs.protocols import Call, Protocol
from envs.protocols.record import Malformed, last_answer
from envs.protocols.thoughts import CLOSE
from envs.rewards import WHOLE
from envs.rewards.answer import same_answer
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.judged import request_about_answer
from envs.rewards.qa import exact_match
from envs.rewards.transcript import answer_key, model_pieces
from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import MAX_CONVERSATION
from envs.services.judge.request import RULED, JudgeRequest
from envs.services.judge.templates import CUT
from envs.tasks.conversation import full_question
from envs.text.words import step_verdict
from rlsys.config.verdicts import VerdictsConfig
from rlsys.errors import BadInput, require
from rlsys.seeds import hash_order, stable_sample
from rlsys.types import Message, Reward, Task, Transcript

Filter = Literal["none", "process", "outcome", "both"]
FILTERS: tuple[Filter, ...] = ("none", "process", "outcome", "both")
T = TypeVar("T")
WINDOW = 16_384  # tokens of a judge that a run serves; an API's is longer
ROOM = 12_000  # characters of what the judge sees before the message that it judges
MAX_SAID = 1_000  # of an earlier message of the model, where not all fits: its end, in which its call stands
REST = "\n[the rest is left out]"
MINE, RESULT = "[my message]", "[result]"

_OPEN, _CLOSE = r"[\[\uff3b\u3010\u3014\u27e6]", r"[\]\uff3d\u3011\u3015\u27e7]"
_NAMED = re.compile(
    rf"{_OPEN}\W{{0,8}}((?:my\W{{1,8}}message|result)s?\b[^\]\n]{{0,20}}?)\W{{0,8}}{_CLOSE}", re.IGNORECASE
)
_ALONE = re.compile(
    rf"^[^\S\n]{{0,80}}{_OPEN}([^\n]{{0,20}}[^\W\d_]{{4}}[^\n]{{0,20}}){_CLOSE}[^\S\n]{{0,80}}$", re.MULTILINE
)
_BRACKET = re.compile(f"{_OPEN}|{_CLOSE}")
MAX_PASSES = 8  # that take headings away: honest text nests its brackets less deep


def judged_chars(window: int) -> int:
    """Characters of a message that a judge with so many tokens is asked about, at 3 a token: a quarter of them, for
    the conversation before it, the prompt and the answer have to fit too."""
    return 3 * window // 4


@dataclass(frozen=True, kw_only=True)
class SwirlRewardConfig:
    name: str = "swirl"
    judged_by: Literal["judge", "rules"] = "judge"
    """Source of the verdicts on steps. judge: the judge. rules: the rules of the environment, for made-up questions and
    word problems."""
    rules_err: float = 0.0
    """Share of the rules' verdicts that are turned round: the errors of a judge that is a model. The same action in the
    same place gets the same verdict."""
    process: Literal["process", "process_math"] = "process"
    """Prompt that the judge is asked with about a step: of a search, or of a calculation (docs/judge.md)."""
    outcome: Optional[Literal["exact", "outcome_search", "outcome_math"]] = None
    """Check of the final answer, which is reported and is not part of the reward: by comparison, or by the judge
    (docs/judge.md). null: no check."""
    aggregate: Literal["mean", "last", "all"] = "mean"
    """Aggregation of the steps' verdicts, each 0 or 1. mean: their mean. last: the last step's, which a sub-trajectory
    is trained on. all: 1 if all steps are GOOD."""
    max_judged_chars: int = judged_chars(WINDOW)
    """Length of a message that the judge is asked about, without a thought that `</think>` ends, in characters. A
    longer message is BAD without a question, and is counted in `tool/judge/ruled`. The default is a quarter of the
    16,384 tokens that a judge with its own model sees, at 3 characters a token."""
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """Judge of transcripts that come without judgements."""

    def __post_init__(self) -> None:
        require(0 <= self.rules_err <= 1, "reward.rules_err", self.rules_err, "between 0 and 1")
        ruled = self.judged_by == "rules" or not self.rules_err
        require(ruled, "reward.rules_err", self.rules_err, "0 with judged_by=judge, which errs by itself")
        most = MAX_CONVERSATION - ROOM
        fits = 1 <= self.max_judged_chars <= most
        require(fits, "reward.max_judged_chars", self.max_judged_chars, f"from 1 to {most}")

    def env_problem(self, env: Any) -> str:
        protocol = getattr(env, "protocol_name", None) or "none"
        if self.judged_by == "judge" or protocol in (SWIRL.name, SWIRL_MATH.name):
            return ""
        reason = "reward.judged_by='rules' reads the calls of swirl and swirl_math alone"
        return f"{reason}: expected judge with env.name={env.name!r} (protocol {protocol})"

    def check_verdicts(self, where: str, stage: str, verdicts: VerdictsConfig) -> None:
        """Raises BadInput where a later stage cuts its set by verdicts on answers, which this stage's reward lacks."""
        if (verdicts.keep in ("outcome", "both") or verdicts.equal) and self.outcome is None:
            setting = f"{where}: verdicts.keep={verdicts.keep}, verdicts.equal={verdicts.equal}"
            raise BadInput(where=setting, expected=f"stages.{stage}.reward.outcome, who says which answers are right")


class SwirlReward(SumOfFindings):
    """`process`, from `transcript.judgements`: one text of the judge for each message of the model.

    GOOD, BAD, GOOD: Reward(value=0.667, parts={"process": 0.667}). Of a state
    (`sub_trajectories.py`) the one action that was taken in it is judged, in sight of what came before.
    """

    parts = ("process",)
    solved_by: ClassVar[Mapping[str, float]] = {"process": WHOLE}

    def __init__(self, config: SwirlRewardConfig) -> None:
        self._config = config
        self.judge = config.judge
        self._asks_outcome = config.outcome not in (None, "exact")
        self.always_judged = config.judged_by == "judge" or self._asks_outcome

    def given(self, transcript: Transcript) -> str:
        """What stands in the answer tag of the last message; "" without one."""
        last = model_pieces(transcript)[-1:]
        return (last_answer(last[0].text) or "") if last else ""

    def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
        """One question for each message of the model, with the conversation up to it, and one about the answer; none
        where they are answered."""
        config, question = self._config, full_question(transcript.task)
        requests: list[JudgeRequest] = []
        if transcript.judgements is None and config.judged_by == "judge":
            most = config.max_judged_chars
            requests = [_about_step(config.process, question, talk, most) for talk in _conversations(transcript)]
        answer = self.given(transcript)
        if config.outcome is not None and self._asks_outcome and transcript.correct is None and answer:
            requests.append(request_about_answer(config.outcome, transcript.task, answer))
        return tuple(requests)

    def __call__(self, transcript: Transcript) -> Reward:
        """With the verdicts that were reached without a judge, so that files have them too."""
        ruled = self._apply_rules(transcript)
        return replace(super().__call__(ruled), judgements=ruled.judgements, correct=ruled.correct)

    def pooled(self, transcript: Transcript) -> Mapping[str, tuple[float, float]]:
        """Share of the answers that the outcome judge accepts."""
        right = self._apply_rules(transcript).correct
        return {} if right is None or self._config.outcome is None else {"outcome": (float(right), 1.0)}

    def _apply_rules(self, transcript: Transcript) -> Transcript:
        if transcript.judgements is None and self._config.judged_by == "rules":
            by_rules = tuple(self._rule(transcript.task, talk) for talk in _conversations(transcript))
            transcript = replace(transcript, judgements=by_rules)
        if transcript.correct is None and self._config.outcome is not None:
            answer = self.given(transcript)
            if not answer:
                return replace(transcript, correct=False)
            if self._config.outcome == "exact":
                golds = answer_key(transcript.task)
                return replace(transcript, correct=same_answer(answer, golds) or exact_match(answer, golds))
        return transcript

    def _rule(self, task: Task, talk: Sequence[Message]) -> str:
        judgement = judge_by_rules(task, talk)
        place = hash_order("verdict", task.task_id, *(message.content for message in talk))
        if int.from_bytes(place, "big") >= self._config.rules_err * 2 ** (8 * len(place)):
            return judgement
        return f"{judgement}, mistaken for {'BAD' if step_verdict(judgement) == 'GOOD' else 'GOOD'}"

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        judgements = self._apply_rules(transcript).judgements
        pieces = model_pieces(transcript)
        where, expected = f"task {transcript.task.task_id}", "one for each message of the model"
        if not judgements:
            raise BadInput("no judgements", where=where, expected=expected)
        if len(pieces) > 1 and len(judgements) != len(pieces):  # one text may hold several steps
            raise BadInput(f"{len(judgements)} judgements", where=where, expected=f"{len(pieces)}: {expected}")
        weights = self._weights(step_rewards(judgements))
        findings = []
        for step, (judgement, weight) in enumerate(zip(judgements, weights, strict=True)):
            piece = pieces[step] if len(pieces) == len(judgements) else None
            span = Span(message=piece.message, start=0, end=len(piece.text)) if piece is not None else None
            rule = f"step {step + 1}: {step_verdict(judgement) or 'the judge said neither GOOD nor BAD'}"
            findings.append(make_finding("process", rule, weight, transcript.messages, span))
        return tuple(findings)

    def _weights(self, rewards: tuple[float, ...]) -> list[float]:
        """What each step adds to the trajectory's value."""
        if self._config.aggregate == "last":
            return [0.0] * (len(rewards) - 1) + [rewards[-1]]
        counted = 1.0 if self._config.aggregate == "mean" or all(rewards) else 0.0
        return [counted * reward / len(rewards) for reward in rewards]


def step_rewards(judgements: Sequence[str]) -> tuple[float, ...]:
    """GOOD is 1, BAD and a text without a verdict 0: the reward of each action by itself."""
    return tuple(float(step_verdict(judgement) == "GOOD") for judgement in judgements)


def _conversations(transcript: Transcript) -> list[list[Message]]:
    """What was said up to and with each message of the model, from the end of the prompt on."""
    before = turns_after_prompt(transcript.task)
    return [[*before, *transcript.messages[: piece.message + 1]] for piece in model_pieces(transcript)]


def _about_step(kind: str, question: str, talk: Sequence[Message], most: int) -> JudgeRequest:
    protocol = SWIRL_MATH if kind == "process_math" else SWIRL
    messages = [*talk[:-1], replace(talk[-1], content=_after_thought(talk[-1].content, protocol))]
    return JudgeRequest(
        kind=kind,
        fields={"question": question, "conversation": render_conversation(messages, protocol, most)},
        unwritten={"conversation": render_conversation(messages, protocol, most, without_mine=True)},
        ruled=f"{RULED} {most:,} characters. BAD" if len(messages[-1].content) > most else "",
    )


def _after_thought(text: str, protocol: Protocol) -> str:
    """What a model says after its thought. All of it where the thought holds the call, for that is what was done, and
    where what follows it is neither a call nor an answer: a thought alone is judged as one."""
    _, closed, reply = text.rpartition(CLOSE)
    parsed = protocol.parse(reply)
    return reply if closed and not isinstance(parsed, Malformed) and parsed == protocol.parse(text) else text


def passes_filter(strategy: Filter, *, judgements: Sequence[str], right: bool) -> bool:
    """Whether a trajectory passes: process asks for GOOD on every step, outcome for the right answer."""
    sound = bool(judgements) and all(step_rewards(judgements))
    return (strategy in ("none", "outcome") or sound) and (strategy in ("none", "process") or right)


def equalise_sizes(sets: Mapping[str, Sequence[T]], *, seed: int) -> dict[str, list[T]]:
    """As many of each set as the smallest has, drawn at random and left in order: the paper compares equal numbers."""
    size = min(map(len, sets.values()), default=0)
    samples: dict[str, list[T]] = {}
    for name, members in sets.items():
        indices = random.Random(f"{seed} {name}").sample(range(len(members)), size)
        samples[name] = [members[index] for index in sorted(indices)]
    return samples


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Of one trajectory."""

    judgements: Sequence[str]  # () where its steps were not judged
    right: bool | None  # None where its answer was not judged


def verdicts_in(record: Mapping[str, object]) -> Verdicts:
    """The verdicts of a stored trajectory; one that the record lacks is () or None."""
    recorded, right = record.get("judgements"), record.get("correct")
    judgements = [str(judgement) for judgement in recorded] if isinstance(recorded, list) else []
    return Verdicts(judgements, right if isinstance(right, bool) else None)


def select_trajectories(records: Sequence[Verdicts], config: VerdictsConfig, *, seed: int, where: str) -> list[int]:
    """The trajectories of the set that `config` asks for, by their places in `records`.

    Raises BadInput, which begins with `where`, for trajectories without judgements and for a set that is too small.
    """
    strategies = FILTERS if config.equal else (config.keep,)
    for at, record in enumerate(records):
        for name, missing in (("process", not record.judgements), ("outcome", record.right is None)):
            if missing and any(strategy in (name, "both") for strategy in strategies):
                judged = "those of a judge stage" + " with reward.outcome" * (name == "outcome")
                message = f"record {at + 1} has no verdict for verdicts.keep={name}"
                raise BadInput(message, where=where, expected=judged)
    sets: dict[str, list[int]] = {
        strategy: [at for at, entry in enumerate(records)
                   if passes_filter(strategy, judgements=entry.judgements, right=bool(entry.right))]
        for strategy in strategies
    }  # fmt: skip
    indices = (equalise_sizes(sets, seed=seed) if config.equal else sets)[config.keep]
    if config.trajectories is None:
        return list(indices)
    most = f"at most {len(indices)}, as many as {where} has with verdicts.keep={config.keep}"
    require(config.trajectories <= len(indices), "verdicts.trajectories", config.trajectories, most)
    return stable_sample(indices, config.trajectories, lambda at: hash_order(seed, at))


def render_conversation(
    talk: Sequence[Message], protocol: Protocol, most_judged: int, *, without_mine: bool = False
) -> str:
    """The messages, the last of which is judged and has `most_judged` characters at most, in at most `ROOM` more: each
    under its heading, and cut by itself. A result stands without its query, which is in the message before it.

    A message that is long, or that looks like two, takes no other message's place: what a policy writes can push no
    result of a tool out of sight, and can be taken for none.

    without_mine: with the tool's words alone.
    """
    headings = [MINE if message.role == "assistant" else RESULT for message in talk]
    texts = _message_texts(talk, protocol)
    if without_mine:
        texts = ["" if heading == MINE else text for heading, text in zip(headings, texts, strict=True)]
    room = most_judged + ROOM - sum(len(heading) + 3 for heading in headings) - len(texts[-1])
    if sum(map(len, texts[:-1])) > room:
        earlier = [at for at, heading in enumerate(headings[:-1]) if heading == MINE]
        max_earlier = min(MAX_SAID, room // (2 * len(earlier))) if earlier else 0
        for at in earlier:
            texts[at] = _end(texts[at], max_earlier)
            room -= len(texts[at])
        results = [at for at, heading in enumerate(headings[:-1]) if heading == RESULT]
        most = _common_limit([len(texts[at]) for at in results], room)
        for at in results:
            texts[at] = _beginning(texts[at], most)
    return "\n\n".join(f"{heading}\n{text}" for heading, text in zip(headings, texts, strict=True))


def without_headings(text: str) -> str:
    """Nothing in it looks like the heading of a message: who writes a result is not the tool."""
    lines = "\n".join("".join(char for char in text if unicodedata.category(char) != "Cf").splitlines())
    for _ in range(MAX_PASSES):  # what a heading was taken out of may be one
        cleaned = _ALONE.sub(r"\1", _NAMED.sub(r"\1", lines))
        if cleaned == lines:
            return lines
        lines = cleaned
    return _BRACKET.sub("", lines)  # a pass for each level would take quadratic time


def _message_texts(talk: Sequence[Message], protocol: Protocol) -> list[str]:
    texts, call = [], ""
    for message in talk:
        text = message.content
        if message.role == "assistant":
            parsed = protocol.parse(text)
            call = parsed.text if isinstance(parsed, Call) else ""
        else:
            result = result_of(call, text)
            text = text if result is None else result
        texts.append(without_headings(text))
    return texts


def _common_limit(lengths: Sequence[int], room: int) -> int:
    """How long a text may be so that all fit into `room`: what a short one leaves, the long ones have."""
    remaining = len(lengths)
    for length in sorted(lengths):
        if length * remaining > room:
            return max(0, room // remaining)
        room, remaining = room - length, remaining - 1
    return max(lengths, default=0)


def _beginning(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return text[: most - len(REST)] + REST if most > len(REST) else ""


def _end(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return CUT + text[len(CUT) - most :] if most > len(CUT) else ""
