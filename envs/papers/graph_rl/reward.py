"""Graph-RL (arXiv 2506.00845, section 2 and appendix B): format, the steps' mean, the answer.

`docs/rewards/graph_rl.md` has the constants, the two presets and how the open points are settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Optional

from envs.papers.graph_rl.graphs import parse
from envs.papers.graph_rl.graphs.encodings import ENCODINGS, Encoding
from envs.papers.graph_rl.graphs.problem import Problem, from_record
from envs.papers.graph_rl.graphs.verify import Report, StepCheck, Verdict, check
from envs.rewards import RIGHT
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.transcript import model_pieces
from rlsys.errors import BadInput, require_bounds
from rlsys.types import Message, Task, Transcript

APPENDIX = {
    **{"correct": 1.0, "wrong": 0.0, "hallucination": -2.0, "correct_step": 0.05, "incorrect_step": 0.0},
    **{"format": 0.1, "process_format": 0.0, "format_error": 0.0},
}
PRESETS = {"appendix": APPENDIX, "text": {**APPENDIX, "format": 0.2, "process_format": 0.1}}


@dataclass(frozen=True, kw_only=True)
class GraphRLRewardConfig:
    name: str = "graph_rl"
    kind: Literal["solution", "process"] = "process"
    """Kind of the reward. solution: the format and the answer. process: the steps too."""
    preset: Literal["appendix", "text"] = "appendix"
    """Source of the values that are null: appendix B, or the text of section 2, which differs in the format."""
    correct: Optional[float] = None
    """Reward for a right answer. null here and below: the preset's value."""
    wrong: Optional[float] = None
    """Reward for a wrong or missing answer."""
    hallucination: Optional[float] = None
    """Reward for a step, or a path as the answer, with a node, edge or weight that the graph does not have."""
    correct_step: Optional[float] = None
    """Reward for a right step."""
    incorrect_step: Optional[float] = None
    """Reward for a step with a wrong sum, or that cannot be parsed."""
    format: Optional[float] = None
    """Reward for a response in the three parts, once each, in order."""
    process_format: Optional[float] = None
    """Reward for a section for the steps, in a response of the right format. Its content counts by `correct_step`,
    `incorrect_step` and `hallucination`."""
    format_error: Optional[float] = None
    """Reward for a response that is not in the three parts."""

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "a finite number, or null", *APPENDIX)

    @property
    def values(self) -> dict[str, float]:
        """What the rules are worth."""
        overrides = {name: getattr(self, name) for name in APPENDIX}
        return PRESETS[self.preset] | {name: value for name, value in overrides.items() if value is not None}


class GraphRLReward(SumOfFindings):
    """`format` + `process_format` + `steps` (the mean over the steps) + `answer`.

    Two steps, one of which names an edge that does not exist, and the right answer:
    Reward(value=0.125, parts={"format": 0.1, "process_format": 0.0, "steps": -0.975, "answer": 1.0}).
    """

    parts = ("format", "process_format", "steps", "answer")
    solved_by: ClassVar[Mapping[str, float]] = {"answer": RIGHT}

    def __init__(self, config: GraphRLRewardConfig) -> None:
        self._process = config.kind == "process"
        self._values = config.values

    def pooled(self, transcript: Transcript) -> Mapping[str, tuple[float, float]]:
        """Whichever reward is paid: whether the answer is right by steps that exist, and hallucinated out of all steps,
        of which an answer without steps has none."""
        pieces = model_pieces(transcript)
        problem, encoding = problem_of(transcript.task)
        report = check(problem, pieces[-1].text if pieces else "", encoding)
        shares = {"right_by_real_steps": (float(report.right_by_real_steps), 1.0)}
        if report.steps:
            invented = sum(step.verdict.hallucinated for step in report.steps)
            shares["hallucinated_steps"] = (float(invented), float(len(report.steps)))
        return shares

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        """One for the format, one for each step (their number is in the rule: more steps dilute each), the answer's."""
        pieces = model_pieces(transcript)
        message = pieces[-1].message if pieces else 0
        problem, encoding = problem_of(transcript.task)
        report = check(problem, pieces[-1].text if pieces else "", encoding)
        findings = [self._format(report)]
        if self._process:
            findings += [self._process_format(report), *self._steps(report, transcript.messages, message)]
        answer = _overrule(report.answer, transcript.correct)
        span = _span(answer, message)
        value = self._value(answer.verdict, "correct", "wrong")
        rule = _rule(f"{answer.verdict} answer", answer)
        return (*findings, make_finding("answer", rule, value, transcript.messages, span))

    def _format(self, report: Report) -> Finding:
        rule, key = "the three parts, once each, in order", "format"
        if not report.well_formed:
            rule, key = f"not {rule}", "format_error"
        return Finding(part="format", rule=rule, value=self._values[key])

    def _process_format(self, report: Report) -> Finding:
        """The paper gives it "if applicable": wherever the steps have their section. Each step is judged by itself."""
        if report.well_formed:
            rule = "the steps have their own section"
            return Finding(part="process_format", rule=rule, value=self._values["process_format"])
        return Finding(part="process_format", rule="no section for the steps in the format asked for")

    def _steps(self, report: Report, messages: tuple[Message, ...], message: int) -> Iterator[Finding]:
        count = len(report.steps)
        for number, step in enumerate(report.steps, start=1):
            rule = _rule(f"{step.verdict} step {number} of {count}", step)
            value = self._value(step.verdict, "correct_step", "incorrect_step") / count
            yield make_finding("steps", rule, value, messages, _span(step, message))

    def _value(self, verdict: Verdict, correct: str, wrong: str) -> float:
        rule = "hallucination" if verdict.hallucinated else correct if verdict is Verdict.CORRECT else wrong
        return self._values[rule]


def problem_of(task: Task) -> tuple[Problem, Encoding]:
    """A task's graph and how it was worded ("encoding", by default incident). Raises BadInput."""
    where = f"task {task.task_id}"
    encoding = task.record.get("encoding", "incident")
    if encoding not in ENCODINGS:
        raise BadInput(
            f"is {str(encoding)[:40]!r}", where=where, key='"encoding"', expected=f"one of {', '.join(ENCODINGS)}"
        )
    return from_record(task.record, where), encoding


def _overrule(answer: StepCheck, correct: bool | None) -> StepCheck:
    """A verdict that was given stands in for the oracle's; a hallucination stays one."""
    if correct is None or answer.verdict.hallucinated or correct == (answer.verdict is Verdict.CORRECT):
        return answer
    return replace(answer, verdict=Verdict.CORRECT if correct else Verdict.INCORRECT, detail="as the transcript says")


def _span(checked: StepCheck, message: int) -> Span | None:
    span: parse.Span | None = checked.span
    return None if span is None else Span(message=message, start=span.start, end=span.end)


def _rule(name: str, checked: StepCheck) -> str:
    rule = name.replace("_", " ")
    return f"{rule}: {checked.detail}" if checked.detail else rule
