"""Graph-RL (arXiv 2506.00845, section 2 and appendix B): format, the steps' mean, the answer.

`docs/rewards/graph_rl.md` has the constants, the two presets and how the open points are settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, Optional

from envs.problems.graphs import parse
from envs.problems.graphs.encodings import ENCODINGS, Encoding
from envs.problems.graphs.problem import Problem, from_record
from envs.problems.graphs.verify import Checked, Report, Verdict, check
from envs.rewards import RIGHT
from envs.rewards.findings import Finding, Span, SumOfFindings, found
from envs.rewards.transcript import written
from rlsys.errors import BadInput, require_bounds
from rlsys.types import Message, Task, Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What the rules are worth; the defaults are appendix B's."""

    correct: float = 1.0
    wrong: float = 0.0
    hallucination: float = -2.0
    correct_step: float = 0.05
    incorrect_step: float = 0.0
    format: float = 0.1
    process_format: float = 0.0
    format_error: float = 0.0


PRESETS = {"appendix": Values(), "text": Values(format=0.2, process_format=0.1)}


@dataclass(frozen=True, kw_only=True)
class GraphRLRewardConfig:
    name: str = "graph_rl"
    kind: Literal["solution", "process"] = "process"
    """`solution` looks at the format and the answer, `process` at the steps too."""
    preset: Literal["appendix", "text"] = "appendix"
    """Whose numbers: appendix B's, or those in the text of section 2, which differ in the format."""
    correct: Optional[float] = None
    """Of a right answer; here and below null takes the preset's number."""
    wrong: Optional[float] = None
    """Of a wrong or missing answer."""
    hallucination: Optional[float] = None
    """Of a step, or a path as the answer, with a node, edge or weight that the graph does not have."""
    correct_step: Optional[float] = None
    incorrect_step: Optional[float] = None
    """Of a step with a wrong sum, or that cannot be read."""
    format: Optional[float] = None
    """Of the three parts, once each, in order."""
    process_format: Optional[float] = None
    """Of steps that can all be read, in a response of the right format."""
    format_error: Optional[float] = None

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "a finite number, or null", *(field.name for field in fields(Values)))

    @property
    def values(self) -> Values:
        preset = PRESETS[self.preset]
        own = {field.name: getattr(self, field.name) for field in fields(Values)}
        return Values(**{name: getattr(preset, name) if value is None else value for name, value in own.items()})


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

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        """One for the format, one for each step (their number is in the rule: more steps dilute each), the answer's."""
        pieces = written(transcript)
        message = pieces[-1].message if pieces else 0
        problem, encoding = problem_of(transcript.task)
        report = check(problem, pieces[-1].text if pieces else "", encoding)
        findings = [self._format(report)]
        if self._process:
            findings += [self._process_format(report), *self._steps(report, transcript.messages, message)]
        answer = _overruled(report.answer, transcript.correct)
        span = _span(answer, message)
        rule = _rule(f"{answer.verdict} answer", answer)
        return (*findings, found("answer", rule, self._answer(answer.verdict), transcript.messages, span))

    def _format(self, report: Report) -> Finding:
        if report.well_formed:
            return Finding(part="format", rule="the three parts, once each, in order", value=self._values.format)
        return Finding(part="format", rule="not the three parts, once each, in order", value=self._values.format_error)

    def _process_format(self, report: Report) -> Finding:
        unreadable = sum(step.verdict is Verdict.UNREADABLE for step in report.steps)
        if report.well_formed and not unreadable:
            return Finding(part="process_format", rule="every step can be read", value=self._values.process_format)
        return Finding(part="process_format", rule=f"broken format, or unreadable steps: {unreadable}")

    def _steps(self, report: Report, messages: tuple[Message, ...], message: int) -> Iterator[Finding]:
        count = len(report.steps)
        for number, step in enumerate(report.steps, start=1):
            rule = _rule(f"{step.verdict} step {number} of {count}", step)
            yield found("steps", rule, self._step(step.verdict) / count, messages, _span(step, message))

    def _step(self, verdict: Verdict) -> float:
        if verdict.hallucinated:
            return self._values.hallucination
        return self._values.correct_step if verdict is Verdict.CORRECT else self._values.incorrect_step

    def _answer(self, verdict: Verdict) -> float:
        if verdict.hallucinated:
            return self._values.hallucination
        return self._values.correct if verdict is Verdict.CORRECT else self._values.wrong


def problem_of(task: Task) -> tuple[Problem, Encoding]:
    """A task's graph and how it was worded ("encoding", by default incident). Raises BadInput."""
    where = f"task {task.task_id}"
    encoding = task.record.get("encoding", "incident")
    if encoding not in ENCODINGS:
        raise BadInput(f'{where}: "encoding" is {str(encoding)[:40]!r}, expected one of {", ".join(ENCODINGS)}')
    return from_record(task.record, where), encoding


def _overruled(answer: Checked, correct: bool | None) -> Checked:
    """A verdict that was given stands in for the oracle's; a hallucination stays one."""
    if correct is None or answer.verdict.hallucinated or correct == (answer.verdict is Verdict.CORRECT):
        return answer
    return Checked(
        verdict=Verdict.CORRECT if correct else Verdict.INCORRECT, span=answer.span, detail="as the transcript says"
    )


def _span(checked: Checked, message: int) -> Span | None:
    span: parse.Span | None = checked.span
    return None if span is None else Span(message=message, start=span.start, end=span.end)


def _rule(name: str, checked: Checked) -> str:
    rule = name.replace("_", " ")
    return f"{rule}: {checked.detail}" if checked.detail else rule
