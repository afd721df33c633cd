"""One episode as its agent sees it: requests come in, the policy answers them one after the other.

A request whose messages begin with a history that was answered here continues it, token by token: `Step.after`. Any
other begins a conversation, and a training sample, of its own (`new_conversations` in the metrics); what it shows of
the assistant is then tokenised as the agent has sent it (`retold_messages`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.agents.chat import ChatAnswer, ChatRequest, Refused, history_key, make_chat_answer, split_history
from envs.agents.process import NOTHING, AgentExit, AgentKeeper, AgentProcess
from envs.services.guard import ToolFailed
from rlsys.summaries import AGENT_ERRORS
from rlsys.types import EpisodeEnd, FailureKind, Message, Sampled, Step, ToolCall, TurnSettings

MOST_WAITING = 64  # answers that one agent may wait for
MOST_REFUSED = 256  # requests of one agent
END_S = 5.0  # until an agent that was killed is gone
SHOWN_OUTPUT = 2000  # characters of what an agent has written, in the state of its episode
AGENT = "agent"


@dataclass(slots=True, eq=False)
class PendingRequest:
    request: ChatRequest
    answer: asyncio.Future[ChatAnswer]


class Session:
    """Where the endpoint hands in what an agent asks. It belongs to the event loop of the environments."""

    def __init__(self) -> None:
        self.waiting: deque[PendingRequest] = deque()
        self.came = asyncio.Event()
        self.refused = 0  # requests
        self._open: set[PendingRequest] = set()
        self._over = ""

    async def ask(self, request: ChatRequest) -> list[ChatAnswer]:
        """The answers to a request, one for each of its choices. Raises Refused."""
        if self._over:
            raise Refused(410, self._over)
        if len(self._open) + request.choices > MOST_WAITING:
            raise Refused(429, f"more than {MOST_WAITING} answers are asked for at once")
        loop = asyncio.get_running_loop()
        asked = [PendingRequest(request, loop.create_future()) for _ in range(request.choices)]
        self._open.update(asked)
        self.waiting.extend(asked)
        self.came.set()
        try:
            return [await one.answer for one in asked]
        finally:
            self._open.difference_update(asked)
            for one in asked:
                one.answer.cancel()
                if one in self.waiting:
                    self.waiting.remove(one)

    def note_refused(self) -> None:
        self.refused += 1
        if self.refused > MOST_REFUSED:
            self.came.set()

    def end(self, why: str) -> None:
        """No more is answered."""
        self._over = self._over or why
        for asked in self._open:
            if not asked.answer.done():
                asked.answer.set_exception(Refused(410, self._over))
                asked.answer.exception()  # it may be that nobody waits any more


class AgentEnv:
    """The episode of an agent that has asked its first question."""

    def __init__(
        self,
        session: Session,
        keeper: AgentKeeper,
        process: AgentProcess,
        *,
        idle_s: float,
        forget: Callable[[], None],
    ) -> None:
        self._session, self._keeper, self._process = session, keeper, process
        self._idle_s, self._forget = idle_s, forget
        self._answered: dict[bytes, int] = {}  # by the history with the answer: which of the policy's messages it is
        self._turns = 0  # messages of the policy
        self._current: PendingRequest | None = None
        self._exit: AgentExit | None = None
        self._conversations = 0
        self._told = 0  # of the refused requests
        self._overridden = 0
        self._left = False  # whether the last answer came too late

    async def begin(self) -> AgentEnv:
        """Itself, once the agent has asked. Raises ToolFailed where it ends before that."""
        try:
            exited = await self._await_next_request()
        except BaseException:
            await self.close()
            raise
        if exited is not None:
            await self.close()
            raise _tool_failure(exited)
        return self

    @property
    def _request(self) -> ChatRequest:
        assert self._current is not None
        return self._current.request

    @property
    def stop_strings(self) -> Sequence[str]:
        return self._request.settings.stop

    @property
    def settings(self) -> TurnSettings:
        return self._request.settings

    def first_messages(self) -> tuple[Message, ...]:
        return self._request.messages

    async def step(self, text: str, *, turns_left: int, sampled: Sampled, calls: tuple[ToolCall, ...] = ()) -> Step:
        last = turns_left <= 0
        try:
            self._answer(text, calls, sampled)
            exited = await self._await_next_request(last=last)
        except BaseException:
            await self.close()
            raise
        if last and (exited is None or exited.code):
            return Step(end=EpisodeEnd.TURN_LIMIT, metrics=self._request_metrics())
        return self._continue_episode() if exited is None else self._end(exited)

    def _answer(self, text: str, calls: tuple[ToolCall, ...], sampled: Sampled) -> None:
        asked, self._current = self._current, None
        assert asked is not None
        self._overridden += bool(asked.request.overridden)
        answer = make_chat_answer(text, calls, asked.request.settings, sampled)
        history = history_key((*asked.request.messages, answer.message), asked.request.settings.offer)
        self._answered[history] = self._turns
        self._turns += 1
        self._left = asked.answer.done()  # the agent no longer waits for it, and may come again
        if not self._left:
            asked.answer.set_result(answer)

    async def _await_next_request(self, *, last: bool = False) -> AgentExit | None:
        """The agent's end, or None: its next request is the current one. last: no other is answered."""
        session, ended = self._session, self._process.ended
        if last:
            session.end("the limit of requests (env.max_turns) is reached")
        while True:
            if ended.done():
                self._exit = ended.result()
                return self._exit
            if session.refused > MOST_REFUSED:
                raise ToolFailed(FailureKind.DATA, AGENT, f"more than {MOST_REFUSED} of its requests were refused")
            while session.waiting and not last:
                asked = session.waiting.popleft()
                if not asked.answer.done():
                    self._current = asked
                    return None
            session.came.clear()
            coming = asyncio.ensure_future(session.came.wait())
            both: set[asyncio.Future[Any]] = {coming, ended}
            try:
                done, _ = await asyncio.wait(both, timeout=self._idle_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                coming.cancel()
            if not done and last:
                return None
            if not done:
                raise ToolFailed(FailureKind.TIMEOUT, AGENT, f"it has asked nothing for {self._idle_s:g} s")

    def _continue_episode(self) -> Step:
        messages, settings = self._request.messages, self._request.settings
        history, replies = split_history(messages)
        after = self._answered.get(history_key(history, settings.offer)) if history else None
        if after is not None:
            return Step(reply=replies, after=after, settings=settings, metrics=self._request_metrics())
        self._conversations += 1
        retold = sum(message.role == "assistant" for message in messages)
        metrics = {**self._request_metrics(), "new_conversations": 1.0, "retold_messages": float(retold)}
        return Step(reply=messages, reset_context=True, settings=settings, metrics=metrics)

    def _request_metrics(self) -> dict[str, float]:
        refused, self._told = self._session.refused - self._told, self._session.refused
        counts = {"retold_messages": 0.0}  # said of each run of agents
        if refused:
            counts["refused_requests"] = float(refused)
        if self._overridden:
            counts["overridden_settings"] = float(self._overridden)
        self._overridden = 0
        return counts

    def _end(self, exited: AgentExit) -> Step:
        """Raises ToolFailed where something else than the policy ended it."""
        if exited.code == 0:
            return Step(end=EpisodeEnd.ANSWERED, metrics=self._request_metrics())
        if exited.code is not None and self._left:
            raise ToolFailed(FailureKind.TIMEOUT, AGENT, f"it did not wait for an answer: {exited.last_line}")
        if exited.code is not None:  # it could not go on from what the policy said
            return Step(end=EpisodeEnd.MALFORMED, metrics={**self._request_metrics(), AGENT_ERRORS: 1.0})
        raise _tool_failure(exited)

    async def final_state(self) -> Mapping[str, Any]:
        """For the reward and for the trajectory's page."""
        await self.close()
        await asyncio.wait([self._process.ended], timeout=END_S)
        if self._exit is None and not self._process.running:
            self._exit = self._process.ended.result()
        state: dict[str, Any] = {"exit": None, "conversations": self._conversations + 1}
        if self._exit is not None:
            state |= {"exit": self._exit.code, "output": self._exit.output[-SHOWN_OUTPUT:]}
            if self._exit.returned is not NOTHING:
                state["returned"] = self._exit.returned
            if self._exit.code:
                state["error"] = self._exit.last_line or f"it ended with code {self._exit.code}"
        return state

    async def close(self) -> None:
        """The agent is ended, and what it still asks refused."""
        self._session.end("the episode is over")
        self._forget()
        await self._keeper.end(self._process)


def _tool_failure(exited: AgentExit) -> ToolFailed:
    """Of an agent that something else than the policy ended."""
    how = exited.why or (f"signal {exited.signal} ended it" if exited.signal else f"it ended with code {exited.code}")
    if exited.code == 0:
        how = "it ended without a question to the policy"
    its_own = exited.code is not None or (exited.why and not exited.lost)
    detail = f"{how}: {exited.last_line}" if exited.last_line else how
    return ToolFailed(FailureKind.DATA if its_own else FailureKind.INFRA, AGENT, detail)
