"""A user's reward functions are tried before anything starts: on a few texts made of answer keys, in another process.

A function that raises on all of them would fail in every episode, minutes later. One whose values for several texts
together are not those of each alone compares them: a run gives it one at a time, and its reward would be a constant.
One that gives right and wrong answers the same value is doubted.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from math import isclose
from multiprocessing.connection import Connection
from typing import Any

from envs.rewards.functions import FunctionsReward, FunctionsRewardConfig, OwnFunction, call_function
from rlsys.config.identity import config_key
from rlsys.errors import BadInput
from rlsys.system.orphans import die_with
from rlsys.types import Message, Task, Transcript
from rlsys.untrusted import describe_exception

TRIAL_S = 30.0  # for all functions, and the import of their modules
TASKS = 3  # a function that raises on the first may do so for what this row has
_ELSEWHERE = re.compile(
    r"connect|unreachable|not reachable|timed? ?out|credential|api[_ ]key|unavailable|\bcuda\b", re.I
)


class Doubt(str):
    """What is said of a function alone: one of several may be for other texts."""


NO_VALUE = Doubt("None or nan for every text it was tried on: where no function applies there is no reward")
CONSTANT = (
    "{} for every text it was tried on, among them the answer key and wrong answers, each alone, boxed, and in "
    "<answer>: does it read another form? `rlsys score` says what an answer gets"
)
Values = list[float | None]
tried: set[tuple[str, str]] = set()


def try_functions_once(config: FunctionsRewardConfig, tasks: Sequence[Task], source: str) -> None:
    """`try_functions`, once in this process for the tasks of a source. Says on stderr why there was no trial."""
    key = (config_key(config), source)
    if key not in tried:
        note = try_functions(config, tasks)
        tried.add(key)
        if note:
            print(f"reward.functions: {note}", file=sys.stderr)


def try_functions(config: FunctionsRewardConfig, tasks: Sequence[Task]) -> str:
    """Why they could not be tried to the end; "" where they were. Raises BadInput that names a function which raises
    on everything, ends its process, or compares."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run_trial, args=(theirs, config, tuple(tasks[:TASKS]), os.getpid()))
    child.start()
    theirs.close()
    until, path = time.monotonic() + TRIAL_S, ""
    try:
        while ours.poll(max(0.0, until - time.monotonic())):
            message = ours.recv()
            if message is None:
                return ""
            path, problem = message
            if isinstance(problem, str):
                print(f"reward.functions: {path}: {problem}", file=sys.stderr)
            elif problem:
                reason, expected = problem
                raise BadInput(reason, key="reward.functions", found=path, expected=expected)
        return f"{path or 'the module of the reward functions'} took longer than {TRIAL_S:g} s and was not tried"
    except EOFError:
        if not path:  # where its module could not be read a second time, the functions say nothing
            return "the reward functions were not tried: their process ended"
        raise BadInput("it ended its process", key="reward.functions", found=path) from None
    finally:
        assert child.pid is not None
        with suppress(ProcessLookupError):  # it leads no group yet, or has ended and left nothing
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()


def _run_trial(out: Connection, config: FunctionsRewardConfig, tasks: Sequence[Task], parent: int) -> None:
    """In its own process, whose output is not shown: (path, None) before each function, (path, problem), None at the
    end."""
    os.setsid()
    die_with(parent)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    functions, doubts = FunctionsReward(config).functions, dict[str, str]()
    for function in functions:
        out.send((function.path, None))
        problem = asyncio.run(_find_problem(function, tasks))  # as in a run, where a loop is running
        if isinstance(problem, Doubt):
            doubts[function.path] = problem
        elif problem:
            out.send((function.path, problem))
        if default := function.misspelt_column(_trial_transcripts(tasks[0])[0]):
            out.send((function.path, f"its argument {default} keeps its default: the tasks have no such column"))
    if len(doubts) == len(functions):
        out.send(next(iter(doubts.items())))
    out.send(None)


async def _find_problem(function: OwnFunction, tasks: Sequence[Task]) -> tuple[str, str] | str | None:
    """(what is wrong, what is expected), or a doubt: a text in the form that it reads may be none of those tried."""
    texts, error = _trial_transcripts(tasks[0]), None
    fitting: list[tuple[Transcript, float | None]] = []
    for transcript in (*texts, *(_trial_transcripts(task)[0] for task in tasks[1:])):
        if len(fitting) and transcript.task is not tasks[0]:
            break
        try:
            fitting.append((transcript, await call_function(function, transcript)))
        except Exception as raised:  # fault boundary: code of the user's own
            if _is_local_error(raised):
                return f"not tried: it raised {describe_exception(raised)}"
            error = error or raised
    if not fitting:
        assert error is not None
        cause = str(error) if isinstance(error, BadInput) else f"it raised {describe_exception(error)}"
        if not isinstance(error, BadInput) and _reads_a_form(error, function):
            return (
                f"{cause}, on every text it was tried on: of answers without the form that it reads each episode fails"
            )
        return f"{cause}, as on every text it was tried on", "a value for at least one"
    alone = [value for _, value in fitting]
    if all(value is None for value in alone):
        return NO_VALUE
    transcripts = [transcript for transcript, _ in fitting]
    doubt = None
    if tasks[0].answers and _same_values(alone, alone[:1] * len(alone)):  # no doubt of a column alone
        wrong = await _values_of_wrong_answers(function, fitting[0][0].task, tasks)
        if wrong and _same_values(wrong, alone[:1] * len(wrong)):
            doubt = Doubt(CONSTANT.format("None" if alone[0] is None else f"{alone[0]:g}"))
    if function.is_verl or len(transcripts) < 2:
        return doubt
    together = await _values_of_one_call(function, transcripts)
    if together is None or _same_values(alone, together):
        return doubt
    rerun = [await call_function(function, transcript) for transcript in transcripts]
    if not _same_values(alone, rerun) or not _same_values(together, await _values_of_one_call(function, transcripts)):
        return None  # it draws, or counts: that says nothing of comparing
    separate, batched = (", ".join("None" if x is None else f"{x:g}" for x in values) for values in (alone, together))
    problem = f"it compares completions (alone {separate}; together {batched}), and is called with one at a time"
    return problem, "a class with compare(transcripts, rewards), or a function of one completion"


async def _values_of_wrong_answers(function: OwnFunction, task: Task, tasks: Sequence[Task]) -> Values:
    """Its values for answers that are another number and another task's; none where it raises."""
    values, keys = Values(), [key.strip() for key in task.answers]
    number = str(int(keys[0]) + 1) if re.fullmatch(r"-?\d{1,15}", keys[0]) else "-7"
    others = dict.fromkeys([number, *(other.answers[0].strip() for other in tasks if other.answers)])
    for wrong in [other for other in others if not any(key in other or other in key for key in keys)][:2]:
        for transcript in _trial_transcripts(task, wrong)[:3]:
            with suppress(Exception):  # fault boundary: code of the user's own
                values.append(await call_function(function, transcript))
    return values


async def _values_of_one_call(function: OwnFunction, transcripts: Sequence[Transcript]) -> Values | None:
    """Its values of one call with all of them; None where it takes one alone."""
    calls = [function.arguments(transcript) for transcript in transcripts]
    merged = {
        name: [value for call in calls for value in call[name]] if isinstance(first, list) else first
        for name, first in calls[0].items()
    }
    try:
        returned = function.call(**merged)
        values: Any = list(await returned if isinstance(returned, Awaitable) else returned)
        if len(values) != len(transcripts):
            return None
        return [
            function.parse_value([value], transcript) for value, transcript in zip(values, transcripts, strict=True)
        ]
    except (Exception, SystemExit):  # fault boundary: code of the user's own, and a run makes no such call
        return None


def _same_values(first: Values, second: Values | None) -> bool:
    pairs = zip(first, second or (), strict=False)
    same = (a == b or (a is not None and b is not None and isclose(a, b, rel_tol=1e-3, abs_tol=1e-6)) for a, b in pairs)
    return second is not None and all(same)


def _trial_transcripts(task: Task, key: str = "") -> list[Transcript]:
    """Of different lengths and verdicts, so that what compares them finds something. key: instead of the answer's."""
    key = key or (task.answers[0] if task.answers else "1")
    boxed = f"<think>It has to be {key}.</think>\n<answer>\\boxed{{{key}}}</answer>"
    talks: tuple[tuple[tuple[str, str], ...], ...] = (
        (("assistant", key),),
        (("assistant", boxed),),
        (("assistant", f"<answer>{key}</answer>"),),
        (("assistant", "I ask a tool."), ("tool", "It found nothing."), ("assistant", boxed)),
        (("assistant", f"Not {key}, but something else, and this text is the longest of all that there are here."),),
    )
    conversations = [tuple(Message(role=role, content=content) for role, content in talk) for talk in talks]
    return [
        Transcript(task=task, messages=talk, token_ids=tuple("".join(turn.content for turn in talk).encode()))
        for talk in conversations
    ]


def _reads_a_form(error: Exception, function: OwnFunction) -> bool:
    """Whether it looks like a text without the form that is read, and not like what the function raises itself."""
    if not (isinstance(error, ValueError | IndexError) or "'NoneType'" in str(error)):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    code = getattr(inspect.unwrap(function.call), "__code__", None)
    return code is None or last.filename != code.co_filename or not (last.line or "").startswith("raise")


def _is_local_error(error: BaseException | None) -> bool:
    """Whether the cause may be this machine alone: a server, a file, a variable, a key, a GPU."""
    while error is not None:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        module = frame.tb_frame.f_globals.get("__name__") if frame is not None else None
        from_environ = isinstance(error, KeyError) and module == "os"
        if isinstance(error, OSError) or from_environ or _ELSEWHERE.search(f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False
