"""Lines in, rewards out, in order: the pipeline of `rlsys score`.

One thread reads and scores. Only what a reward asks a grader or a judge for waits: it is decided elsewhere while the
next lines are read, of which at most PENDING are held.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from actors.renderer import ChatRenderer
from envs import make_reward
from envs.rewards import RewardFunction
from envs.rewards.asks import needs_awaiting, resolve_requests
from envs.rewards.findings import score_and_explain
from envs.rewards.maths.grader import Grader
from envs.rewards.transcript import inline_format_of, split_inline
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import open_judge
from envs.services.judge.request import AskableJudge
from launch.checks.chat_template import read_template
from launch.checks.models import whole_path
from launch.tools.score.lines import MAX_LINE, Line
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.finite import require_finite
from rlsys.rollout import failure_of
from rlsys.transcripts import HERE, read_transcript
from rlsys.types import Failure, Reward, Transcript

PENDING = 1024  # lines read ahead of one that is not decided yet
PENDING_BYTES = 64 << 20  # and of what size: a line of MAX_LINE is one of them
MAX_GRADERS = 16  # processes
CLOSE_S = 10.0  # for what is under way to be cancelled


@dataclass(slots=True)
class Scored:
    """A line, and what has become of it so far."""

    line: int
    size: int  # bytes
    transcript: Transcript | Future[Transcript] | None = None
    result: Reward | Failure | None = None  # None: still asked for
    is_transcript: bool = False  # whatever its reward: the line was of the right form

    @property
    def ready(self) -> bool:
        return self.result is not None or (isinstance(self.transcript, Future) and self.transcript.done())


class Scorer:
    """Use as a context: it may start processes, which end with it."""

    def __init__(self, recipe: RecipeConfig) -> None:
        self.reward: RewardFunction = make_reward(recipe.reward)
        self._split = partial(split_inline, inline=inline_format_of(recipe.env, self.reward))
        self._tokens = (
            Tokens(recipe.model.path, read_template(recipe.model))
            if getattr(self.reward, "uses_tokens", False)
            else None
        )
        self._deadline_s = recipe.rollout.grader_deadline_s
        self._waiting: deque[Scored] = deque()
        self._held = 0  # bytes of the waiting lines

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        if "_elsewhere" in self.__dict__:
            self._elsewhere.close()

    def run(self, lines: Iterable[Line | None]) -> Iterator[Scored | None]:
        """Each line with its result; None where `lines` has it, after all that was read before."""
        for line in lines:
            if line is None:
                while self._waiting:
                    yield self._next()
                yield None
                continue
            scored = self._read(*line)
            self._waiting.append(scored)
            self._held += scored.size
            while self._waiting and (self._waiting[0].ready or self._full()):
                yield self._next()
        while self._waiting:
            yield self._next()

    def _full(self) -> bool:
        return len(self._waiting) > PENDING or self._held > PENDING_BYTES

    def _read(self, number: int, line: bytes | None) -> Scored:
        scored = Scored(number, 0 if line is None else len(line))
        try:
            if line is None:
                raise BadInput(f"longer than {MAX_LINE >> 20} MiB", where=HERE)
            transcript = read_transcript(line, self._split)
            scored.is_transcript = True
            if self._tokens is not None:
                transcript = self._tokens.count_tokens(transcript)
            if needs_awaiting(self.reward, transcript):
                scored.transcript = self._elsewhere.start(transcript)
            else:
                scored.transcript, scored.result = transcript, outcome(self.reward, transcript)
        except Exception as error:
            scored.result = failure_of(error, "score")
        return scored

    def _next(self) -> Scored:
        """The first in line, once it is decided."""
        scored = self._waiting.popleft()
        self._held -= scored.size
        if isinstance(scored.transcript, Future):
            try:
                scored.transcript = scored.transcript.result()
                scored.result = outcome(self.reward, scored.transcript)
            except Exception as error:
                scored.transcript, scored.result = None, failure_of(error, "score")
        return scored

    @cached_property
    def _elsewhere(self) -> Elsewhere:
        return Elsewhere(self.reward, self._deadline_s)


class Stopped(SystemExit):
    """By a signal: what a user's code raises to end the process does not."""


def outcome(reward: RewardFunction, transcript: Transcript) -> Reward | Failure:
    """With its findings, of one call: a second one may find something else.

    A fault boundary: what a reward raises, also to end the process, is this transcript's failure and no other's.
    """
    try:
        return require_finite(score_and_explain(reward, transcript))
    except Stopped:
        raise
    except (Exception, SystemExit) as error:
        return failure_of(error, "score")


class Elsewhere:
    """A thread with an event loop, for what other processes and services decide. Each of them has its own deadline."""

    def __init__(self, reward: RewardFunction, grader_deadline_s: float) -> None:
        self._reward = reward
        self._grader = Grader(workers=min(len(os.sched_getaffinity(0)), MAX_GRADERS), deadline_s=grader_deadline_s)
        self._judge: AskableJudge | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="elsewhere", daemon=True)
        self._thread.start()

    def start(self, transcript: Transcript) -> Future[Transcript]:
        work: Coroutine[Any, Any, Transcript] = resolve_requests(
            self._reward, transcript, self._grader, self._find_judge
        )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End what is under way: its results are not needed any more."""
        self._grader.close()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        self._loop.close()

    def _find_judge(self, config: JudgeConfig) -> AskableJudge:
        """Opened on the loop that asks it. Raises BadInput without an address, or its key."""
        if self._judge is None:
            self._judge = open_judge(config)
        return self._judge

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._judge is not None:
            await self._judge.close()


class Tokens:
    """The recipe's tokenizer, loaded for the first transcript that needs it; never from the network."""

    def __init__(self, model_path: str | None, template: str | None = None) -> None:
        self._template = template
        self._path = None if model_path is None else whole_path(model_path)
        self._missing = "model.path is null" if model_path is None else ""
        self._warned = False

    def count_tokens(self, transcript: Transcript) -> Transcript:
        """With the tokens of what the model wrote and the one that ends it; as it is where nothing can count them."""
        if transcript.token_ids is not None:
            return transcript
        renderer = self._renderer
        if renderer is None:
            if transcript.num_tokens is None and not self._warned:
                self._warned = True
                reason = f"{self._missing}: lines need num_tokens or token_ids"
                print(f"rlsys: warning: nothing to count tokens with: {reason}", file=sys.stderr)
            return transcript
        texts = [message.content for message in transcript.messages if message.role == "assistant"]
        end = renderer.turn_end
        mark = renderer.decode([end]) if end is not None else ""
        ids: list[int] = []
        for text in texts:
            ended = end is not None and text.endswith(mark)  # written down with the token that ended it
            ids += [*renderer.text_ids(text.removesuffix(mark)), end] if ended else renderer.text_ids(text)
        if not transcript.truncated and end is not None and ids[-1:] != [end]:
            ids.append(end)
        return replace(transcript, token_ids=tuple(ids))

    @cached_property
    def _renderer(self) -> Any:
        """An `actors.renderer.ChatRenderer`, or None."""
        if self._path is None:
            return None
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported

        try:
            return ChatRenderer(self._path, template=self._template).usable()
        except BadInput as error:
            self._missing = f"{error}; the network is not asked"
            return None
