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
from rlsys.choices import load_custom
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
        """Also true of an async function behind a decorator's plain wrapper that returns its coroutine."""
        callables = (self.call, type(self.call).__call__, inspect.unwrap(self.call))
        return any(inspect.iscoroutinefunction(function) for function in callables)

    @property
    def is_verl(self) -> bool:
        return VERL in self.named

    def arguments(self, transcript: Transcript) -> dict[str, Any]:
        """What it is called with, and may change: the next one has its own. Raises BadInput for a column that it needs
        and the task lacks."""
        kwargs = _verl_arguments(transcript) if self.is_verl else _trl_arguments(transcript, self.named)
        kwargs |= {name: None for name in OF_TRAINER if name in self.required and name not in kwargs}
        missing = sorted(self.required - kwargs.keys())
        if missing:
            names = ", ".join(sorted(kwargs))[:200]
            message = f"reward function {self.path} needs {missing[0]!r}, which the task lacks"
            raise BadInput(message, where=f"task {transcript.task.task_id}", expected=f"one of {names}")
        accepted = kwargs if self.takes_all else {name: value for name, value in kwargs.items() if name in self.named}
        return copy.deepcopy(accepted)

    def misspelt_column(self, transcript: Transcript) -> str:
        """What it may take for a column that no task has, and so keeps its default: its name, and the one that is near;
        "" for none."""
        kwargs = _verl_arguments(transcript) if self.is_verl else _trl_arguments(transcript, self.named)
        for name in sorted(self.named - self.required - kwargs.keys()):
            if hint := nearest(name, kwargs, otherwise="", alike=0.8):  # a letter too many, or two that changed places
                return f"{name!r}{hint}"
        return ""

    def parse_value(self, returned: Any, transcript: Transcript) -> float | None:
        """What it returned, as a number; None where it does not apply. Raises BadInput for anything else."""
        score = returned
        if inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise self._wrong_value_error(
                type(returned).__name__, "a value; one that is awaited is an `async def`", transcript
            )
        if self.is_verl:
            score = returned.get("score", returned) if isinstance(returned, Mapping) else returned
        else:
            try:
                score = list(returned)
            except TypeError:
                score = [returned, None]
            if len(score) != 1 or isinstance(returned, str | bytes | Mapping):
                raise self._wrong_value_error(
                    returned, "a list with a number or None for the one completion", transcript
                )
            score = score[0]
        if score is None:
            return None
        try:
            number = float("x" if isinstance(score, str | bytes) else score)
        except (TypeError, ValueError, OverflowError):
            raise self._wrong_value_error(score, "a number or None", transcript) from None
        if math.isinf(number):
            raise self._wrong_value_error(score, "a finite number or None", transcript)
        return None if math.isnan(number) else number

    def _wrong_value_error(self, returned: Any, expected: str, transcript: Transcript) -> BadInput:
        message = f"reward function {self.path} returned {str(returned)[:60]!r}"
        return BadInput(message, where=f"task {transcript.task.task_id}", expected=expected)


class FunctionsReward(SumOfFindings):
    """A part for each function: its value times its weight.

    digits 0.96 of weight 1 and brief 1.0 of weight 0.5: Reward(value=1.46, parts={"digits": 0.96, "brief": 0.5}).
    """

    def __init__(self, config: FunctionsRewardConfig) -> None:
        if not config.functions:
            expected = "functions with their weights, such as {my_rewards.digits: 1.0}"
            raise BadInput(key="reward.functions", found="none", expected=expected)
        parts = config.parts
        self.functions = [_load_function(path, parts[path], weight) for path, weight in config.functions.items()]
        self._timeout_s = config.timeout_s
        self.parts = tuple(parts.values())
        self.uses_tokens = any("completion_ids" in function.named for function in self.functions)
        self.waits = any(function.is_async for function in self.functions)

    def check_task(self, task: Task) -> None:
        """Whether the task has the columns that the functions need. Raises BadInput."""
        for function in self.functions:
            function.arguments(Transcript(task=task, messages=(), token_ids=()))

    async def scores(self, transcript: Transcript) -> Mapping[str, float | None]:
        """The value of each `async` function, awaited together. Raises what they raise, and TimeoutError."""
        waiting = [function for function in self.functions if function.is_async]
        async with asyncio.timeout(self._timeout_s):
            values = await asyncio.gather(*(call_function(function, transcript) for function in waiting))
        return {function.part: value for function, value in zip(waiting, values, strict=True)}

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        rows = [self._finding(function, transcript) for function in self.functions]
        if all(rule is None for _, rule, _ in rows):
            raise BadInput("no reward function applies to it", where=f"task {transcript.task.task_id}")
        return tuple(Finding(part=part, rule=rule or "does not apply", value=value) for part, rule, value in rows)

    def _finding(self, function: OwnFunction, transcript: Transcript) -> tuple[str, str | None, float]:
        """(part, rule or None where it does not apply, value)"""
        scores = transcript.scores or {}
        if function.is_async and function.part not in scores:
            raise BadInput(f"reward function {function.path} is async and was not awaited")
        if function.is_async:
            value = scores[function.part]
        else:
            with _exits_as_bad_input(function, transcript):
                value = function.parse_value(function.call(**function.arguments(transcript)), transcript)
        if value is None:
            return function.part, None, 0.0
        return function.part, f"{value:g} times {function.weight:g}", value * function.weight


async def call_function(function: OwnFunction, transcript: Transcript) -> float | None:
    """Its value for one transcript. Raises what it raises, and BadInput where it wants to end the process."""
    with _exits_as_bad_input(function, transcript):
        returned = function.call(**function.arguments(transcript))
        awaited = function.is_async and isinstance(returned, Awaitable)
        return function.parse_value(await returned if awaited else returned, transcript)


@contextmanager
def _exits_as_bad_input(function: OwnFunction, transcript: Transcript) -> Iterator[None]:
    """Turns a SystemExit, StopIteration or CancelledError that the reward function raises itself into BadInput: in a
    task SystemExit would end the event loop of all episodes."""
    try:
        yield
    except (SystemExit, StopIteration, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            raise
        message = f"reward function {function.path} raised {describe_exception(error)}"
        raise BadInput(message, where=f"task {transcript.task.task_id}") from error


def _is_being_cancelled() -> bool:
    """Whether the running task is being cancelled from outside."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return task is not None and task.cancelling() > 0


def _load_function(path: str, part: str, weight: float) -> OwnFunction:
    call = load_custom("reward.functions", path, kind="module.function")
    if not callable(call) or inspect.isclass(call):
        raise BadInput(key="reward.functions", found=path, expected="a function; a class is chosen with reward.name")
    parameters = inspect.signature(call).parameters.values()
    if not any(arg.kind in (*KINDS, arg.POSITIONAL_ONLY, arg.VAR_KEYWORD) for arg in parameters):
        flaw = "it takes no argument that has a name, and would be a constant"
        raise BadInput(flaw, key="reward.functions", found=path, expected="such as completions")
    unnamed = [arg.name for arg in parameters if arg.kind is arg.POSITIONAL_ONLY and arg.default is arg.empty]
    if unnamed:
        raise BadInput(f"its argument {unnamed[0]!r} cannot be given by name", key="reward.functions", found=path)
    keyword_args = [arg for arg in parameters if arg.kind in KINDS]
    return OwnFunction(
        path=path,
        part=part,
        weight=weight,
        call=call,
        named=frozenset(arg.name for arg in keyword_args),
        required=frozenset(arg.name for arg in keyword_args if arg.default is arg.empty),
        takes_all=any(arg.kind is arg.VAR_KEYWORD for arg in parameters),
    )


def _trl_arguments(transcript: Transcript, parameters: frozenset[str]) -> dict[str, Any]:
    """TRL's arguments, each a list of one: the prompt, what followed, and the columns of the row.

    A prompt that is a text has a text as its completion; one of messages, or a row without a prompt, has messages.
    """
    task = transcript.task
    prompt = task.record.get("prompt", [{"role": "user", "content": task.question}])
    completion: Any = [_as_message(message) for message in transcript.messages] or [
        {"role": "assistant", "content": ""}
    ]
    if isinstance(prompt, str):
        completion = "".join(message.content for message in transcript.messages)
    kwargs = {name: [value] for name, value in _columns_of(task).items() if name not in ("prompt", "completion", *OURS)}
    kwargs |= {"prompts": [prompt], "completions": [completion]}
    if transcript.token_ids is not None:
        kwargs["completion_ids"] = [list(transcript.token_ids)]
    elif "completion_ids" in parameters:
        raise BadInput("no token ids, which a reward function asks for", where=f"task {task.task_id}")
    return kwargs


def _verl_arguments(transcript: Transcript) -> dict[str, Any]:
    """verl's arguments: all that followed the prompt as one text, and the row's fields."""
    columns = _columns_of(transcript.task)
    truth = columns.get("reward_model")
    truth = truth.get("ground_truth") if isinstance(truth, Mapping) else columns.get("ground_truth")
    return {
        "data_source": columns.get("data_source", ""),
        VERL: "".join(message.content for message in transcript.messages),
        "ground_truth": truth,
        "extra_info": columns.get("extra_info"),
    }


def _columns_of(task: Task) -> dict[str, Any]:
    """The row as it was read, and under the usual names what it does not have, or has as null: of a task that was made
    up too."""
    key: Sequence[str] = task.answers
    columns: dict[str, Any] = {"task_id": task.task_id, "question": task.question, "answers": list(key)}
    if key:
        columns |= dict.fromkeys(("answer", "solution", "ground_truth"), key[0])
    return columns | {name: value for name, value in task.record.items() if value is not None or name not in columns}


def _as_message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.content}
