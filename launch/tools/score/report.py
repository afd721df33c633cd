"""Score the lines of a file, write the results, explain one of them, and count."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TextIO

from envs.rewards.findings import Span
from launch.driver.observe.progress import Bar
from launch.tools.score.lines import LineReader
from launch.tools.score.scorer import Scored, Scorer, Stopped
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.records import score_json
from rlsys.types import Failure, Message, Reward, TokenStream, Transcript
from rlsys.untrusted import visible

WIDTH = 96  # characters of a message or an excerpt
STATE = 1000  # of the environment's final state
CONTEXT = 24  # of a message, before and after the text that a rule fired on
BOLD, DIM, RED, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"


def score_file(recipe: RecipeConfig, source: str, target: str | None, *, strict: bool, explained: int | None) -> None:
    """Lines may be failures; raises BadInput for the first of those with `strict`.

    explained: the number of a line, 0 for the first one. Without a `target` only that line is scored then.
    """
    only_explain = explained is not None and target is None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_orderly_stop())
        lines = LineReader(source)
        stack.callback(lines.close)
        out = None if only_explain else stack.enter_context(_open_output(target, lines))
        stdout = sys.stdout
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # what a reward prints is no result
        scorer = stack.enter_context(Scorer(recipe))
        report = Report(out, stdout, strict=strict, explained=explained)
        selected = (line for line in lines if line is None or not only_explain or explained in (0, line[0]))
        print(f"rlsys: reward {_settings(recipe.reward)}", file=sys.stderr)
        try:
            with _progress(lines, report, out) as show:
                for scored in scorer.run(selected):
                    if scored is None:
                        report.flush()
                    else:
                        report.take(scored)
                        show()
                    if only_explain and report.explained_done:
                        break
                report.flush()
        except BrokenPipeError:  # the reader has closed the pipe
            _forget(stdout)
            return
        except OSError as error:
            _forget(stdout)
            raise RunFailed(f"{target or 'standard output'}: cannot be written ({error.strerror})") from error
    report.close(source)


class Report:
    """Writes each result, explains one of them, and counts."""

    def __init__(self, out: TextIO | None, explain_out: TextIO, *, strict: bool, explained: int | None) -> None:
        """out: for results. explain_out: for the explanation."""
        self._out, self._explain_out = out, explain_out
        self._strict = strict
        self._explained = explained
        self.explained_done = False
        self.lines = 0
        self._transcripts = 0
        self._rewards: list[float] = [0.0, 0.0]  # how many, their sum
        self._failures: Counter[str] = Counter()
        self._first_failure = ""

    def take(self, scored: Scored) -> None:
        result = scored.result
        assert result is not None
        self.lines += 1
        self._transcripts += scored.is_transcript
        if self._out is not None:
            self._out.write(json.dumps(score_json(result, scored.line)) + "\n")
        if self._explained in (0, scored.line) and not self.explained_done:
            self.explained_done = True
            self._explain(scored)
        if isinstance(result, Failure):
            self._failures[str(result.kind)] += 1
            detail = f"line {scored.line}: {result.kind}: {visible(result.detail)}"
            self._first_failure = self._first_failure or detail
            if self._strict:
                self.flush()
                for line in [] if self._explained in (0, scored.line) else trace_of(result):
                    print(line, file=sys.stderr)
                raise BadInput(detail)
        else:
            self._rewards = [self._rewards[0] + 1, self._rewards[1] + result.value]

    def _explain(self, scored: Scored) -> None:
        if isinstance(scored.result, Failure):
            headline = f"line {scored.line}: failure ({scored.result.kind}): {visible(scored.result.detail)}"
            for line in (headline, *trace_of(scored.result)):
                print(line, file=self._explain_out)
            return
        assert isinstance(scored.transcript, Transcript) and scored.result is not None
        color = self._explain_out.isatty() and "NO_COLOR" not in os.environ
        for line in explanation(f"line {scored.line}: ", scored.transcript, scored.result, color=color):
            print(line, file=self._explain_out)

    def flush(self) -> None:
        if self._out is not None:
            self._out.flush()
        self._explain_out.flush()

    def close(self, source: str) -> None:
        """Say what there was. Raises BadInput where there was nothing to score, or to explain."""
        if self._explained and not self.explained_done:
            raise BadInput(f"{source} has no such line, or it is blank", key="--explain", found=self._explained)
        if self.lines == 0:
            raise BadInput("no records", where=source, expected="one JSON object per line")
        if self._out is None:
            return
        count, total = self._rewards
        mean = f", mean reward {total / count:.6g}" if count else ""
        summary = f"rlsys: {int(count):,} of {self.lines:,} lines scored{mean}"
        if self._failures:
            kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(self._failures.items()))
            summary += f"; failures: {kinds}; the first: {self._first_failure}"
        print(summary, file=sys.stderr)
        if not self._transcripts:
            raise BadInput("not one line is a transcript with its task (docs/scoring.md)", where=source)


def _settings(config: Any) -> str:
    """`research: format_gate=true`: which of the variants is used. Of options inside options, those that were given."""
    options = []
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            usual = type(value)()
            inner = {option.name: getattr(value, option.name) for option in fields(value)}
            changed = {key: setting for key, setting in inner.items() if setting != getattr(usual, key)}
            options += [f"{field.name}.{key}={json.dumps(setting, default=str)}" for key, setting in changed.items()]
        elif field.name != "name":
            options.append(f"{field.name}={json.dumps(value, default=str)}")
    return f"{config.name}: {', '.join(options)}" if options else str(config.name)


@contextlib.contextmanager
def _open_output(target: str | None, lines: LineReader) -> Iterator[TextIO]:
    if target is None or target == "-":
        yield sys.stdout
        return
    if lines.reads(target):
        raise BadInput("is the input too", key="--output", found=target, expected="another file")
    try:
        file = open(target, "w", encoding="utf-8")  # noqa: SIM115  closed below, where nothing may replace an error
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", key="--output", found=target) from error
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # all was flushed before, or its failure is on its way up
            file.close()


@contextlib.contextmanager
def _progress(lines: LineReader, report: Report, out: TextIO | None) -> Iterator[Any]:
    """A bar on stderr when that is a terminal and not full of results."""
    if not sys.stderr.isatty() or out is None or out.isatty():
        yield lambda: None
        return

    with Bar() as show:
        yield lambda: show("scoring", lines.bytes_read if lines.size else report.lines, lines.size or None)


@contextlib.contextmanager
def _orderly_stop() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that the graders end too."""
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, _frame: object) -> None:
    raise Stopped(128 + number)


def _forget(stdout: TextIO) -> None:
    """What could not be written is not tried again when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())


def explanation(prefix: str, transcript: Transcript, reward: Reward, *, color: bool) -> Iterator[str]:
    """A scored transcript as a person reads it: who wrote what, each rule that fired, on which text, and the sum.

    prefix: stands before its reward, "line 7: ".
    """

    def paint(style: str, text: str) -> str:
        return f"{style}{text}{PLAIN}" if color else text

    yield paint(BOLD, f"{prefix}reward {_number(reward.value)}")
    yield "messages, as the reward reads them" + (" (cut off at the end)" if transcript.truncated else "")
    for number, message in enumerate(transcript.messages, start=1):
        yield f"  {number:>3} {message.role:<9} {paint(DIM, _short(message.content))}"
    if transcript.state is not None:
        state = json.dumps(transcript.state, ensure_ascii=False)
        yield f"state {visible(state[:STATE])}" + (" ..." if len(state) > STATE else "")
    yield "rules that fired" if reward.findings else "rules: this reward does not tell them"
    for finding in reward.findings:
        style = GREEN if finding.value > 0 else RED if finding.value < 0 else ""
        value = (
            paint(style, f"{_format_signed(finding.value):>10}") if style else f"{_format_signed(finding.value):>10}"
        )
        yield f"  {value}  {finding.part:<14} {visible(finding.rule)}"
        if finding.span is not None:
            before, text, after = _excerpt(transcript.messages, finding.span)
            marked = paint(BOLD, text) if color else f"«{text}»"
            place = f"message {finding.span.message + 1}, characters {finding.span.start}-{finding.span.end}"
            yield f"{'':<14}{place}: {paint(DIM, before)}{marked}{paint(DIM, after)}"
    for stream in reward.streams:
        yield from _stream(stream)
    parts = " + ".join(f"{name} {_number(value)}" for name, value in reward.parts.items())
    yield paint(BOLD, f"{parts} = {_number(reward.value)}")


def trace_of(failure: Failure) -> list[str]:
    """The calls in a user's own code that it came from, line by line, escaped: a file may hold another user's."""
    return [visible(line) for line in str(failure.trace).split("\n")] if failure.trace else []


def _stream(stream: TokenStream) -> Iterator[str]:
    """A reward per token, in addition to the value: its stretches of equal tokens."""
    hit = sum(value != 0 for value in stream.values)
    total = _number(sum(stream.values))
    yield (
        f"per token, not in the sum: {stream.name}, {hit} of {len(stream.values)} tokens, "
        f"together {total}, discount {stream.discount:g}"
    )
    start = 0
    for end in range(1, len(stream.values) + 1):
        if end == len(stream.values) or stream.values[end] != stream.values[start]:
            if stream.values[start]:
                yield f"  {_format_signed(stream.values[start]):>10}  tokens {start}-{end}"
            start = end


def _excerpt(messages: Sequence[Message], span: Span) -> tuple[str, str, str]:
    content = messages[span.message].content
    before = content[max(0, span.start - CONTEXT) : span.start]
    after = content[span.end : span.end + CONTEXT]
    text = content[span.start : span.end] if span.end - span.start <= WIDTH else ""
    if not text and span.end > span.start:
        text = f"{content[span.start : span.start + WIDTH // 2]} ... {content[span.end - WIDTH // 2 : span.end]}"
    return visible(before), visible(text), visible(after)


def _short(text: str) -> str:
    if len(text) <= WIDTH:
        return visible(text)
    return visible(f"{text[: WIDTH // 2]} ... {text[-WIDTH // 2 :]}")


def _format_signed(value: float) -> str:
    return f"{value:+.6g}" if value else "0"


def _number(value: float) -> str:
    return f"{value:.6g}"
