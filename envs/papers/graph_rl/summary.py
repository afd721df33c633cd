"""Graph-RL's real-world tasks (arXiv 2506.00845, table 4): what an answer comes to, by a judge's summary of it.

The paper lets one language model summarise what another wrote, and compares the summary with the key. Without a judge
the rules of this project read the answer themselves; with one, both numbers are there (`by_rules`).
`docs/rewards/summary.md` has the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from envs.papers.graph_rl.blocks.read import rules_of
from envs.papers.graph_rl.blocks.reward import BlocksworldReward, BlocksworldRewardConfig
from envs.papers.graph_rl.proscript import ProscriptReward, ProscriptRewardConfig
from envs.protocols.styles import options
from envs.rewards import WHOLE
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.multiple_choice import MultipleChoiceReward, MultipleChoiceRewardConfig
from envs.rewards.qa import cover_match
from envs.rewards.transcript import answer_key, answer_pieces, model_pieces
from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import JudgeRequest
from envs.tasks.conversation import full_question
from envs.text.choice import STANCE, TRUE_FALSE, YES_NO, Words, find_stated
from envs.text.words import without_thought
from rlsys.errors import BadInput
from rlsys.types import Message, Task, Transcript


@dataclass(frozen=True, kw_only=True)
class SummaryRewardConfig:
    name: str = "summary"
    kind: Literal[
        "strategyqa",
        "crosswords",
        "wikidyk",
        "true_false",
        "stance",
        "proscript",
        "blocks_plan",
        "blocks_verify",
        "facts",
        "yes_no",
    ] = "strategyqa"
    """Kind of answer that is read out of a response (docs/rewards/summary.md)."""
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """Judge that summarises the answer. Without one, rules read the answer."""

    @property
    def why_evaluation_only(self) -> str:
        """Why nothing may be trained on it; "" where it may."""
        if self.kind != "wikidyk" or self.judge.given:
            return ""
        return (
            "reward.kind='wikidyk' without a judge is for evaluation: it pays for a list of names with the right one "
            "among them, and for 'certainly not' the right one; expected reward.judge.model, or reward.name=research"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerKind:
    """How answers of one kind are read."""

    rules: Callable[[Transcript], tuple[Finding, ...]] | None = None  # None: only a judge can
    asks: str = ""  # kind of judge; "": the paper asks none
    # in addition to the response
    fields: Callable[[Task], dict[str, str]] = lambda task: {"question": full_question(task)}
    value: Callable[[Task, str], float] = lambda task, verdict: float(verdict.casefold() in _answer_key(task))


class SummaryReward(SumOfFindings):
    """`correct`: 1.0 for a right answer; of ProScript the share of the constraints that it satisfies."""

    parts = ("correct",)
    solved_by: ClassVar[Mapping[str, float]] = {"correct": WHOLE}

    def __init__(self, config: SummaryRewardConfig) -> None:
        self._kind, self._way = config.kind, WAYS[config.kind]
        self.judge = config.judge
        self.always_judged = self._way.rules is None

    def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
        """One summary; none where it is there, where nothing was said, or where the paper reads the answer itself."""
        text = _answer_text(transcript)
        if not self._way.asks or not text or transcript.judgements or transcript.correct is not None:
            return ()
        return (JudgeRequest(kind=self._way.asks, fields={**self._way.fields(transcript.task), "response": text}),)

    def pooled(self, transcript: Transcript) -> Mapping[str, tuple[float, float]]:
        """ProScript's share over all constraints of a set; and what the rules say, where a summary has decided."""
        shares: dict[str, tuple[float, float]] = {}
        if self._kind == "proscript":
            total = len(transcript.task.record["constraints"])
            shares["constraints_pooled"] = (round(self(transcript).value * total), total)
        if transcript.judgements and self._way.rules is not None:
            value = sum(finding.value for finding in self._way.rules(transcript))
            shares["by_rules"] = (value, 1.0)
        return shares

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        messages = transcript.messages
        if transcript.correct is not None:
            return (make_finding("correct", "as the transcript says", float(transcript.correct), messages, None),)
        if not _answer_text(transcript):
            return (Finding(part="correct", rule="no answer"),)
        if transcript.judgements and self._way.asks:
            verdict = KINDS[self._way.asks].read(transcript.judgements[0])
            value = 0.0 if verdict is None else self._way.value(transcript.task, verdict.value)
            rule = "a summary that says nothing" if verdict is None else f"summarised as {verdict.value}"
            return (make_finding("correct", rule, value, messages, None),)
        if self._way.rules is None:
            raise BadInput(
                "it asks a judge",
                where=f"task {transcript.task.task_id}",
                key="reward.kind",
                found=self._kind,
                expected="reward.judge",
            )
        return tuple(replace(finding, part="correct") for finding in self._way.rules(transcript))


def _answer_text(transcript: Transcript) -> str:
    pieces = model_pieces(transcript)
    return pieces[-1].text.strip() if pieces else ""


def _answer_key(task: Task) -> tuple[str, ...]:
    return tuple(answer.casefold() for answer in answer_key(task))


def _find_by_words(words: Words) -> Callable[[Transcript], tuple[Finding, ...]]:
    """The word that an answer ends on, compared with the key."""

    def rules(transcript: Transcript) -> tuple[Finding, ...]:
        piece = answer_pieces(transcript)[-1]
        stated = find_stated(piece.text, words)
        if stated is None:
            return (Finding(part="correct", rule=f"none of {', '.join(words.forms)}, or more than one"),)
        word, (start, end) = stated
        span = Span(message=piece.message, start=start, end=end)
        return (
            make_finding(
                "correct", f"says {word}", float(word in _answer_key(transcript.task)), transcript.messages, span
            ),
        )

    return rules


def _find_by_mentions(transcript: Transcript) -> tuple[Finding, ...]:
    right = cover_match(without_thought(_answer_text(transcript)), answer_key(transcript.task))
    return (Finding(part="correct", rule="mentions the answer" if right else "no mention", value=float(right)),)


def _score_order(task: Task, verdict: str) -> float:
    """A summary such as step4->step0 as the answer itself."""
    summary = Transcript(task=task, messages=(Message(role="assistant", content=verdict),))
    return 0.0 if verdict == "UNKNOWN" else PROSCRIPT(summary).value


def _option_fields(task: Task) -> dict[str, str]:
    choices = [f"{letter}. {text}" for letter, text in options(task).items()]
    return {"question": "\n".join([full_question(task), *choices])}


def _word_fields(task: Task) -> dict[str, str]:
    return {"word": answer_key(task)[0]}


def _problem_fields(task: Task) -> dict[str, str]:
    return {"problem": f"{rules_of(task.record.get('query'))}\n\n{task.question}"}


def _fact_fields(task: Task) -> dict[str, str]:
    facts = task.record.get("facts")
    if not isinstance(facts, list | tuple) or not facts:
        raise BadInput("is missing, empty or no list", where=f"task {task.task_id}", key='"facts"')
    return {"question": full_question(task), "facts": "\n".join(map(str, facts))}


PROSCRIPT = ProscriptReward(ProscriptRewardConfig())
_BLOCKS = BlocksworldReward(BlocksworldRewardConfig()).findings
_LETTER = MultipleChoiceReward(MultipleChoiceRewardConfig()).findings


def _score_yes(task: Task, verdict: str) -> float:
    return float(verdict == "YES")


WAYS: dict[str, AnswerKind] = {
    "strategyqa": AnswerKind(rules=_find_by_words(YES_NO), asks="summary_strategyqa"),
    "crosswords": AnswerKind(rules=_LETTER, asks="summary_crosswords", fields=_option_fields),
    "wikidyk": AnswerKind(rules=_find_by_mentions, asks="summary_wikidyk", fields=_word_fields, value=_score_yes),
    "true_false": AnswerKind(rules=_find_by_words(TRUE_FALSE)),
    "stance": AnswerKind(rules=_find_by_words(STANCE)),
    "proscript": AnswerKind(
        rules=PROSCRIPT.findings, asks="summary_proscript", fields=lambda task: {}, value=_score_order
    ),
    "blocks_plan": AnswerKind(
        rules=_BLOCKS,
        asks="summary_blocks_plan",
        fields=_problem_fields,
        value=lambda task, verdict: float(verdict == "VALID"),
    ),
    "blocks_verify": AnswerKind(rules=_BLOCKS, asks="summary_blocks_verify", fields=lambda task: {}),
    "facts": AnswerKind(asks="in_facts", fields=_fact_fields, value=_score_yes),
    "yes_no": AnswerKind(rules=_find_by_words(YES_NO)),
}
