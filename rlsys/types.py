"""The records that travel through the system, in pipeline order.

    Task -> Turn -> Trajectory -> Group -> Sample   (-> Batch -> UpdateReport: `rlsys.batch`)

The driver handles references to them alone: `GroupRef` (`rlsys.summaries`), `SampleRef` (`rlsys.samples`), `BatchPlan`.

A later stage builds a new record and never edits an old one. No tensors here: what only reads text, a tool server or
`rlsys score`, starts without torch. Index t of every per-token field describes token t: its own log-probability, mask,
version. L is the number of tokens of one sample.

From the engine on, per-token fields are arrays: a Python object for each token would be most of what a driver does.
A record may be made from any sequence of numbers. Records with arrays are equal only to themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]


def _as_arrays(record: Any, **kinds: Any) -> None:
    for name, kind in kinds.items():
        object.__setattr__(record, name, np.asarray(getattr(record, name), kind))


class TurnStop(StrEnum):
    """Why the engine stopped sampling."""

    EOS = "eos"  # an end-of-sequence token was sampled
    STOP = "stop"  # a stop string of the environment was completed
    LENGTH = "length"  # the turn's token budget or the context window is full
    ABORT = "abort"  # the request was aborted: the tokens sampled so far are returned


class EpisodeEnd(StrEnum):
    """How an episode ended. Every one of these is a normal ending with a normal reward."""

    ANSWERED = "answered"  # the policy gave its answer
    MALFORMED = "malformed"  # a message with neither a usable call nor an answer
    TURN_LIMIT = "turn_limit"  # the environment's number of turns is used up
    TOKEN_LIMIT = "token_limit"  # a turn or the context window ran out of tokens
    TIME_LIMIT = "time_limit"  # its time ended while the policy wrote: played again it would be another, shorter answer
    FAILED = "failed"  # infrastructure or data broke it: see the `Failure` in its reward's place

    @property
    def truncates(self) -> bool:
        """Whether the policy would have written more."""
        return self in (EpisodeEnd.TOKEN_LIMIT, EpisodeEnd.TIME_LIMIT)


class FailureKind(StrEnum):
    """What broke, when something broke. None of them says anything about the policy."""

    INFRA = "infra"  # an actor died, a connection was refused, memory ran out
    TIMEOUT = "timeout"  # a deadline passed
    DATA = "data"  # a bad record, or a reward that raised on it


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool: ToolCall(name="search", arguments={"query": "capital of France"})."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    call_id: str = ""  # in formats where calls have one
    problem: str = ""  # why what the model wrote is no call that can be carried out, for the model to read


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """The tools that a policy may call in its own format: ToolOffer(schemas=('{"type": "function", ...}',))."""

    schemas: tuple[str, ...]  # JSON of each, as chat templates take them
    form: str = "native"  # of the calls: the chat template's own, or the name of a family


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message: `Message(role="user", content="What is 2 + 3?")`."""

    role: str  # system | user | assistant | tool
    content: str  # of a sampled message: all that was sampled, its calls too
    inline: bool = False  # of the environment: stands inside the model's own turn, without the chat template's marks
    calls: tuple[ToolCall, ...] = ()  # of a message that was never sampled: the chat template writes them after content
    tool: str = ""  # of a tool's message: its name
    call_id: str = ""  # of a tool's message: the call that it answers, where calls have one


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """How a message of the policy is asked for: TurnSettings(stop=("</answer>",), max_tokens=256)"""

    stop: tuple[str, ...] = ()  # the engine stops after any of these; the text keeps them
    offer: ToolOffer | None = None
    max_tokens: int | None = None  # a message that is cut there goes on to the environment
    reports: bool = False  # `Env.step` is told what was sampled: `sampled`
    logprobs: bool = False  # token by token


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What an environment that answers for the policy says of its message."""

    num_context: int  # tokens that it saw
    num_tokens: int
    stop: TurnStop
    tokens: tuple[tuple[str, float], ...] = ()  # [L] each as a text, and its log-probability, where they are wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the world says to one model message: a reply to continue from, or how the episode ended."""

    reply: Message | tuple[Message, ...] | None = None  # several: one for each call of the message
    end: EpisodeEnd | None = None  # exactly one of the two is set
    repeated: bool = False  # the same call was made before in this episode
    max_tokens: int | None = None  # each reply is cut to this many tokens
    reset_context: bool = False  # start a new context with the reply: the policy sees nothing of what came before
    after: int | None = None  # which of the policy's messages, counted from 0, the reply continues; None: the last
    settings: TurnSettings | None = None  # from now on, where they change
    metrics: Mapping[str, float] = field(default_factory=dict)  # {"errors": 1}: summed, `env/errors`; rlsys.summaries

    @property
    def replies(self) -> tuple[Message, ...]:
        if self.reply is None:
            return ()
        return (self.reply,) if isinstance(self.reply, Message) else self.reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to solve, with its own answer key.

    Task(task_id="gsm8k_train_500.jsonl:12", question="Ann has 3 pens ...", answers=("72",))
    """

    task_id: str  # unique within a data source, stable between runs
    question: str
    answers: tuple[str, ...] = ()  # any of them is right
    record: Mapping[str, Any] = field(default_factory=dict)  # the raw JSON, for fields only one environment knows


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Output tokens `start:end` of one completion were sampled by weights `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completion:
    """What the engine sampled for one request; never re-tokenised afterwards.

    Completion(token_ids=(17, 4, 9), logprobs=(-0.1, -2.3, -0.4), stop=TurnStop.STOP, text="<answer>5</answer>",
               spans=(VersionSpan(version=6, start=0, end=2), VersionSpan(version=7, start=2, end=3)))
    """

    token_ids: Ints  # [L]
    logprobs: Floats  # [L] log-probability of each sampled token under the distribution it was sampled from
    spans: tuple[VersionSpan, ...]  # cover 0:L without gaps
    stop: TurnStop
    text: str  # decoded once, for the environment and for people
    said: Message | None = None  # by a model at an address: without the calls in `content`; None: `text` is all of it

    def __post_init__(self) -> None:
        _as_arrays(self, token_ids=np.int32, logprobs=np.float32)


class SampleBegin(StrEnum):
    """Why a training sample begins with a turn."""

    CONVERSATION = "conversation"  # a new one
    RETOLD = "retold"  # the same, and messages in it are the assistant's, which are context, not trained
    AGAIN = "again"  # the turn that it continues was continued before
    REWRITTEN = "rewritten"  # the turn that it continues is shown in other tokens than were sampled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """One model call and what the world said back.

    When the model saw the previous turn's context + completion and more, both turns belong to one training sample and
    `added_ids` is the more; otherwise a new sample starts here and `added_ids` is everything that the model saw.
    """

    added_ids: Ints  # [C]
    starts_sample: bool
    completion: Completion
    reply: str | None  # the environment's answer, several on lines of their own; None when the episode ended here
    number: int = 0  # in the order in which the episode's turns were sampled
    after: int | None = None  # number of the turn that it continues; None: it begins a conversation
    begins: SampleBegin | None = None  # where it starts a sample

    def __post_init__(self) -> None:
        _as_arrays(self, added_ids=np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStream:
    """A reward per sampled token with its own discount (Long CoT, section 3: the repetition penalty)."""

    name: str
    values: tuple[float, ...]  # [number of sampled tokens of the trajectory]
    discount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Characters `start:end` of `transcript.messages[message].content`."""

    message: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule of a reward that fired and what it adds: Finding(part="format", rule="no <search> tag", value=-0.02).

    `text` is the beginning of what the rule fired on; `span` is None where it fired on something absent.
    """

    part: str
    rule: str
    value: float = 0.0
    span: Span | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A trajectory's value, its parts (they sum to it), and additional per-token streams.

    Reward(value=1.1, parts={"correct": 1.0, "format": 0.1})
    """

    value: float
    parts: Mapping[str, float]
    streams: tuple[TokenStream, ...] = ()
    correct: bool | None = None  # the verdict that it rests on, where a grader or a judge was asked for one
    judgements: tuple[str, ...] | None = None  # what a judge wrote of each message of the model, where one was asked
    findings: tuple[Finding, ...] = field(default=(), compare=False)  # what it is the sum of, where the reward tells

    @property
    def discounts(self) -> tuple[float, ...]:
        """[M] of the reward streams, of the value first."""
        return (1.0, *(stream.discount for stream in self.streams))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Stands where a reward would be when something broke. Never counted as a zero.

    Failure(kind=FailureKind.INFRA, where="rollout:1", detail="the actor died")
    """

    kind: FailureKind
    where: str
    detail: str  # in one line
    trace: str = field(default="", compare=False)  # the calls that led there, if user code raised it


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What a reward looks at: text, not tokens, so that a transcript from a file is scored by the same code.

    `messages` come after the prompt: `assistant` is the model, `user` or `tool` the environment.
    """

    task: Task
    messages: tuple[Message, ...]
    truncated: bool = False  # the model ran out of tokens, or of time, before it ended
    token_ids: tuple[int, ...] | None = None  # [L] sampled tokens of all turns, where known
    num_tokens: int | None = None  # L, where it is known without the tokens, or counted differently
    correct: bool | None = None  # the verdict on the answer, where a grader or a person has given one
    judgements: tuple[str, ...] | None = None  # what a judge wrote about each of the model's messages
    state: Mapping[str, Any] | None = None  # what the environment knew at the end (`final_state`), where it tells: JSON
    scores: Mapping[str, float | None] | None = None  # by part, of a reward's own functions that had to be awaited


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds that one episode spent waiting for each part."""

    generate_s: float
    tool_s: float
    score_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode from first message to reward.

    Trajectory(task=..., sibling=3, turns=(call, answer), messages=(...), end=EpisodeEnd.ANSWERED,
               reward=Reward(value=1.0, parts={"correct": 1.0}), timings=...)
    """

    task: Task
    sibling: int  # 0 .. group_size-1
    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]  # the whole conversation, prompt included
    end: EpisodeEnd
    reward: Reward | Failure
    timings: Timings
    retried: tuple[Failure, ...] = ()  # what broke before, and was tried again
    discarded_tokens: int = 0  # sampled in attempts that broke
    num_prompt: int = 0  # messages[:num_prompt] are the prompt
    ended: EpisodeEnd | None = None  # how the conversation ended, where only its scoring failed
    metrics: Mapping[str, float] = field(default_factory=dict)  # what the environment counted, summed over its steps
    state: Mapping[str, Any] | None = None  # what the environment knew at the end, where it tells

    @property
    def truncated(self) -> bool:
        return (self.ended or self.end).truncates

    @property
    def num_sampled(self) -> int:
        return sum(len(turn.completion.token_ids) for turn in self.turns)

    @property
    def oldest_version(self) -> int | None:
        """The oldest weights that sampled a token of it; None when nothing was sampled."""
        versions = [span.version for turn in self.turns for span in turn.completion.spans]
        return min(versions, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The right to run one group: made by the driver when a slot is free, journalled, given to a worker.

    Ticket(sequence=130, epoch=0, task=..., attempt=0, start_version=7)
    """

    sequence: int  # order of start, over the whole stage; also the batch order
    epoch: int
    task: Task
    attempt: int  # 0, then 1, 2 ... when a worker died under it
    start_version: int  # the live version when the slot was charged
    level: str = ""  # of the task, where the curriculum has levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The trajectories of one task: what GRPO compares."""

    ticket: Ticket
    trajectories: tuple[Trajectory, ...]  # [G]
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One training sequence: prompt P, then sampled tokens A and environment tokens E in turn.

    token_ids         = P0 + A0 + E0 + A1
    loss_mask         = [0]*P0 + [1]*A0 + [0]*E0 + [1]*A1
    behavior_logprobs = sampled log-probability where the mask is 1, else 0
    versions          = weight version where the mask is 1, else -1
    """

    token_ids: Ints  # [L]
    loss_mask: Bools  # [L] true on sampled tokens; the first token is none
    behavior_logprobs: Floats  # [L]
    advantages: Floats  # [L]
    versions: Ints  # [L]
    weight: float = 1.0  # of each of its sampled tokens in the loss
    share: float | None = None  # what it adds to the loss's denominator; None: one for each token in the loss
    reward: float | None = None  # its trajectory's value; None where nothing was rewarded (a demonstration)
    streams: tuple[TokenStream, ...] = ()  # additional per-token rewards: values of its sampled tokens, in order
    first_turn: int = 1  # the trajectory's message, counted from 1, that its first sampled tokens belong to

    def __post_init__(self) -> None:
        _as_arrays(self, token_ids=np.int32, loss_mask=np.bool_, behavior_logprobs=np.float32)
        _as_arrays(self, advantages=np.float32, versions=np.int32)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def discounts(self) -> tuple[float, ...]:
        """[M] of the reward streams, of the value first; none where nothing was rewarded."""
        return () if self.reward is None else (1.0, *(stream.discount for stream in self.streams))

    @property
    def num_loss_tokens(self) -> int:
        return int(np.count_nonzero(self.loss_mask))
