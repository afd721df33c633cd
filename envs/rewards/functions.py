"""Reward functions of a user's own, by dotted path, with TRL's signature or verl's: they run here as they are.

    def digits(completions, answer, **kwargs): ...    TRL's GRPOTrainer: a list of numbers; also `async def`
    def compute_score(data_source, solution_str, ground_truth, extra_info=None): ...    verl: a number, {"score": 1}

A function is called with one transcript at a time, TRL's with lists of one. `None` (and nan) means that it does not
apply: it adds nothing. What it raises is a failure of this transcript and never a zero, as is a transcript to which
none applies.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from envs.rewards.findings import Finding, SumOfFindings
from rlsys.choices import load_own
from rlsys.errors import BadInput, nearest, require_bounds
from rlsys.types import Message, Task, Transcript
from rlsys.untrusted import describe_exception

VERL = "solution_str"  # the parameter by which verl's signature is recognised
OURS = ("prompts", "completions", "completion_ids")  # what is no column of the data
# What TRL's trainer gives besides the columns and a run does not have: a function that insists on it gets None.
OF_TRAINER = ("trainer_state", "log_extra", "log_metric", "environments")
KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, kw_only=True)
class FunctionsRewardConfig:
    name: str = "functions"
    functions: dict[str, float] = field(default_factory=dict)
    """Weight of each of your own reward functions, by its dotted path, such as `{my_rewards.digits: 1.0}`. A function
    has the signature of TRL's GRPOTrainer or of verl's compute_score."""
    solved_by: dict[str, float] = field(default_factory=dict)
    """Functions that say whether a task is solved, each with the number that its value must exceed, before its weight:
    `{digits: 0.5}`. {}: none says so, and the mean over tasks is called a mean reward, not an accuracy."""
    timeout_s: float = 60.0
    """Timeout of the `async` functions of one transcript, in seconds. After it the scoring is tried again, within
    `rollout.infra_retries`."""

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "above 0", "timeout_s")
        for path, weight in self.functions.items():
            if not path.rpartition(".")[0]:
                raise BadInput(key="reward.functions", found=path, expected="a dotted path, such as my_rewards.digits")
            if not math.isfinite(weight):
                raise BadInput(key=f"reward.functions.{path}", found=weight, expected="a finite number")
        parts = self.parts
        for name in self.solved_by:
            path = next((path for path, part in parts.items() if part == name), "")
            if not path:
                hint = nearest(name, parts.values(), otherwise="")
                raise BadInput(key="reward.solved_by", found=name, expected=f"one of {', '.join(parts.values())}{hint}")
            if self.functions[path] <= 0:
                raise BadInput(f"{name} has no weight above 0", key="reward.solved_by", found=name)

    @property
    def parts(self) -> dict[str, str]:
        """Part of the reward, by path: the function's own name, or the whole path where two have the same."""
        names = [path.rpartition(".")[2] for path in self.functions]
        return {
            path: name if names.count(name) == 1 else path for path, name in zip(self.functions, names, strict=True)
        }

    @property
    def solving(self) -> dict[str, float]:
        """{part: what it must exceed} for a task to count as solved."""
        weights = {part: self.functions[path] for path, part in self.parts.items()}
        return {part: weights[part] * least for part, least in self.solved_by.items()}


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A user's function and what it asks for."""

    path: str
    part: str
    weight: float
    call: Callable[..., Any]
    named: frozenset[str]  # parameters
    required: frozenset[str]  # of them those without a default
    takes_all: bool  # **kwargs

    @property
    def is_async(self) -> bool:
        """Also one that a decorator has wrapped without saying so, which returns what it wraps returns."""
        asked = (self.call, type(self.call).__call__, inspect.unwrap(self.call))
        return any(inspect.iscoroutinefunction(each) for each in asked)

    @property
    def is_verl(self) -> bool:
        return VERL in self.named

    def arguments(self, transcript: Transcript) -> dict[str, Any]:
        """What it is called with, and may change: the next one has its own. Raises BadInput for a column that it needs
        and the task lacks."""
        given = _of_verl(transcript) if self.is_verl else _of_trl(transcript, self.named)
        given |= {name: None for name in OF_TRAINER if name in self.required and name not in given}
        missing = sorted(self.required - given.keys())
        if missing:
            known = ", ".join(sorted(given))[:200]
            what = f"reward function {self.path} needs {missing[0]!r}, which the task lacks"
            raise BadInput(what, where=f"task {transcript.task.task_id}", expected=f"one of {known}")
        wanted = given if self.takes_all else {name: value for name, value in given.items() if name in self.named}
        return copy.deepcopy(wanted)

    def misspelt(self, transcript: Transcript) -> str:
        """What it may take for a column that no task has, and so keeps its default: its name, and the one that is near;
        "" for none."""
        given = _of_verl(transcript) if self.is_verl else _of_trl(transcript, self.named)
        for name in sorted(self.named - self.required - given.keys()):
            if hint := nearest(name, given, otherwise=""):
                return f"{name!r}{hint}"
        return ""

    def value(self, returned: Any, transcript: Transcript) -> float | None:
        """What it returned, as a number; None where it does not apply. Raises BadInput for anything else."""
        one = returned
        if inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise self._wrong(type(returned).__name__, "a value; one that is awaited is an `async def`", transcript)
        if self.is_verl:
            one = returned.get("score", returned) if isinstance(returned, Mapping) else returned
        else:
            try:
                one = list(returned)
            except TypeError:
                one = [returned, None]
            if len(one) != 1 or isinstance(returned, str | bytes | Mapping):
                raise self._wrong(returned, "a list with a number or None for the one completion", transcript)
            one = one[0]
        if one is None:
            return None
        try:
            number = float("x" if isinstance(one, str | bytes) else one)
        except (TypeError, ValueError, OverflowError):
            raise self._wrong(one, "a number or None", transcript) from None
        if math.isinf(number):
            raise self._wrong(one, "a finite number or None", transcript)
        return None if math.isnan(number) else number

    def _wrong(self, found: Any, expected: str, transcript: Transcript) -> BadInput:
        what = f"reward function {self.path} returned {str(found)[:60]!r}"
        return BadInput(what, where=f"task {transcript.task.task_id}", expected=expected)


class FunctionsReward(SumOfFindings):
    """A part for each function: its value times its weight.

    digits 0.96 of weight 1 and brief 1.0 of weight 0.5: Reward(value=1.46, parts={"digits": 0.96, "brief": 0.5}).
    """

    def __init__(self, config: FunctionsRewardConfig) -> None:
        if not config.functions:
            expected = "functions with their weights, such as {my_rewards.digits: 1.0}"
            raise BadInput(key="reward.functions", found="none", expected=expected)
        parts = config.parts
        self.functions = [_load(path, parts[path], weight) for path, weight in config.functions.items()]
        self._timeout_s = config.timeout_s
        self.parts = tuple(parts.values())
        self.uses_tokens = any("completion_ids" in each.named for each in self.functions)
        self.waits = any(each.is_async for each in self.functions)

    def check_task(self, task: Task) -> None:
        """Whether the task has the columns that the functions need. Raises BadInput."""
        for each in self.functions:
            each.arguments(Transcript(task=task, messages=(), token_ids=()))

    async def scores(self, transcript: Transcript) -> Mapping[str, float | None]:
        """The value of each `async` function, awaited together. Raises what they raise, and TimeoutError."""
        waiting = [each for each in self.functions if each.is_async]
        async with asyncio.timeout(self._timeout_s):
            found = await asyncio.gather(*(call_function(each, transcript) for each in waiting))
        return {each.part: value for each, value in zip(waiting, found, strict=True)}

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        found = [self._finding(each, transcript) for each in self.functions]
        if all(rule is None for _, rule, _ in found):
            raise BadInput("no reward function applies to it", where=f"task {transcript.task.task_id}")
        return tuple(Finding(part=part, rule=rule or "does not apply", value=value) for part, rule, value in found)

    def _finding(self, each: OwnFunction, transcript: Transcript) -> tuple[str, str | None, float]:
        """(part, rule or None where it does not apply, value)"""
        known = transcript.scores or {}
        if each.is_async and each.part not in known:
            raise BadInput(f"reward function {each.path} is async and was not awaited")
        if each.is_async:
            value = known[each.part]
        else:
            with _not_ending(each, transcript):
                value = each.value(each.call(**each.arguments(transcript)), transcript)
        if value is None:
            return each.part, None, 0.0
        return each.part, f"{value:g} times {each.weight:g}", value * each.weight


async def call_function(each: OwnFunction, transcript: Transcript) -> float | None:
    """Its value for one transcript. Raises what it raises, and BadInput where it wants to end the process."""
    with _not_ending(each, transcript):
        returned = each.call(**each.arguments(transcript))
        awaited = each.is_async and isinstance(returned, Awaitable)
        return each.value(await returned if awaited else returned, transcript)


@contextmanager
def _not_ending(each: OwnFunction, transcript: Transcript) -> Iterator[None]:
    """A function that wants to end the process has failed: in a task SystemExit would end the event loop of all. So has
    one that cancels itself, or raises what no coroutine may."""
    try:
        yield
    except (SystemExit, StopIteration, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            raise
        what = f"reward function {each.path} raised {describe_exception(error)}"
        raise BadInput(what, where=f"task {transcript.task.task_id}") from error


def _is_being_cancelled() -> bool:
    """From outside of what is called here."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return task is not None and task.cancelling() > 0


def _load(path: str, part: str, weight: float) -> OwnFunction:
    call = load_own("reward.functions", path, kind="module.function")
    if not callable(call) or inspect.isclass(call):
        raise BadInput(key="reward.functions", found=path, expected="a function; a class is chosen with reward.name")
    parameters = inspect.signature(call).parameters.values()
    if not any(each.kind in (*KINDS, each.POSITIONAL_ONLY, each.VAR_KEYWORD) for each in parameters):
        what = "it takes no argument that has a name, and would be a constant"
        raise BadInput(what, key="reward.functions", found=path, expected="such as completions")
    unnamed = [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY and each.default is each.empty]
    if unnamed:
        raise BadInput(f"its argument {unnamed[0]!r} cannot be given by name", key="reward.functions", found=path)
    named = [each for each in parameters if each.kind in KINDS]
    return OwnFunction(
        path=path,
        part=part,
        weight=weight,
        call=call,
        named=frozenset(each.name for each in named),
        required=frozenset(each.name for each in named if each.default is each.empty),
        takes_all=any(each.kind is each.VAR_KEYWORD for each in parameters),
    )


def _of_trl(transcript: Transcript, named: frozenset[str]) -> dict[str, Any]:
    """TRL's arguments, each a list of one: the prompt, what followed, and the columns of the row.

    A prompt that is a text has a text as its completion; one of messages, or a row without a prompt, has messages.
    """
    task = transcript.task
    prompt = task.record.get("prompt", [{"role": "user", "content": task.question}])
    said: Any = [_message(each) for each in transcript.messages] or [{"role": "assistant", "content": ""}]
    if isinstance(prompt, str):
        said = "".join(each.content for each in transcript.messages)
    given = {name: [value] for name, value in _columns(task).items() if name not in ("prompt", "completion", *OURS)}
    given |= {"prompts": [prompt], "completions": [said]}
    if transcript.token_ids is not None:
        given["completion_ids"] = [list(transcript.token_ids)]
    elif "completion_ids" in named:
        raise BadInput("no token ids, which a reward function asks for", where=f"task {task.task_id}")
    return given


def _of_verl(transcript: Transcript) -> dict[str, Any]:
    """verl's arguments: all that followed the prompt as one text, and the row's fields."""
    columns = _columns(transcript.task)
    truth = columns.get("reward_model")
    truth = truth.get("ground_truth") if isinstance(truth, Mapping) else columns.get("ground_truth")
    return {
        "data_source": columns.get("data_source", ""),
        VERL: "".join(each.content for each in transcript.messages),
        "ground_truth": truth,
        "extra_info": columns.get("extra_info"),
    }


def _columns(task: Task) -> dict[str, Any]:
    """The row as it was read, and under the usual names what it does not have, or has as null: of a task that was made
    up too."""
    key: Sequence[str] = task.answers
    own: dict[str, Any] = {"task_id": task.task_id, "question": task.question, "answers": list(key)}
    if key:
        own |= dict.fromkeys(("answer", "solution", "ground_truth"), key[0])
    return own | {name: value for name, value in task.record.items() if value is not None or name not in own}


def _message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.content}
