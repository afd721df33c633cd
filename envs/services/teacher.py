"""A teacher: another model at an address, whose answers are trained on. It is asked patiently, and paid for once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from envs.services.cache import Cache
from envs.services.endpoint import Choice, Endpoint, Question
from envs.services.guard import GuardConfig, ToolRefused
from envs.services.patient import Patient
from envs.services.secrets import check_address, read_secret
from rlsys.generate_config import TeacherConfig
from rlsys.types import Message

KEY = "generate.teacher.key_env"


def check_teacher(config: TeacherConfig) -> None:
    """Raises BadInput for an address that is none, and for a key that others on the way could read."""
    check_address("generate.teacher.endpoint", config.endpoint, (KEY, config.key_env), plain_http=config.plain_http)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patience:
    """As `envs.services.patient` takes it. Nothing queues here: the episodes under way are as many as may ask."""

    deadline_s: float
    outage_s: float
    max_concurrent: int
    spacing_s: float
    attempts: int

    @property
    def guard(self) -> GuardConfig:
        wait = self.deadline_s + self.max_concurrent * self.spacing_s + self.deadline_s
        return GuardConfig(deadline_s=wait, attempts=self.attempts, max_concurrent=self.max_concurrent, cache_size=0)


class Teacher:
    """For one event loop.

    What it answered lies in `answers`, a SQLite file, before anybody sees it: the same question with the same seed is
    not asked again, also by the next process.
    """

    def __init__(self, config: TeacherConfig, *, concurrency: int, answers: Path) -> None:
        """Raises BadInput for a key that is not set, or a file that cannot be used."""
        endpoint, model = str(config.endpoint), str(config.model)
        key = read_secret(KEY, config.key_env)
        spacing_s = 60.0 / config.requests_per_minute if config.requests_per_minute else 0.0
        patience = _Patience(
            deadline_s=config.deadline_s,
            outage_s=config.outage_s,
            max_concurrent=concurrency,
            spacing_s=spacing_s,
            attempts=config.attempts,
        )
        self.patience_s = config.outage_s + config.attempts * patience.guard.deadline_s  # of one answer at most
        self._model = model
        self._endpoint = Endpoint(
            endpoint, model, key, key_from=str(config.key_env or ""), refused_key=ToolRefused, name="the teacher"
        )
        self._patiently = Patient("teacher", self._endpoint.complete, patience)
        self._answers = Cache(0, str(answers), "the teacher's answers")

    async def answer(self, question: Question) -> Choice:
        """Raises ToolFailed."""
        content = json.dumps([self._model, asdict(question)], sort_keys=True)
        key = hashlib.sha256(content.encode()).hexdigest()
        known = await self._answers.get(key)
        if known is not None:
            return Choice(**json.loads(known))
        choice = await self._patiently(question)
        await self._answers.put(key, json.dumps(asdict(choice)))
        return choice

    async def close(self) -> None:
        await self._answers.close()
        await self._endpoint.close()


def as_chat(messages: Sequence[Message]) -> tuple[Message, ...]:
    """As a chat endpoint takes it: what the environment says between two messages of the model is the user's."""
    roles = {"system": "system", "assistant": "assistant"}
    return tuple(Message(role=roles.get(each.role, "user"), content=each.content) for each in messages)


def said(choice: Choice) -> str:
    """Its message, as the policy would write it: a thought that came apart stands before the answer, in its tags."""
    return f"<think>\n{choice.thought.strip()}\n</think>\n\n{choice.text}" if choice.thought else choice.text
