"""A teacher that writes answers: another model at an address, whose answers are trained on, or evaluated.

It is asked patiently, and paid for once. The log-probabilities of the teacher that distillation has are no part of
this: `learners/update.py: forward_passes` computes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.services.endpoint import Choice, Endpoint, Question
from envs.services.guard import Guard, GuardConfig, ToolRefused
from envs.services.judge.templates import Prompts
from envs.services.secrets import check_address, read_secret
from rlsys.config.generate import EndpointConfig, TeacherConfig
from rlsys.config.served import ServedConfig
from rlsys.errors import BadInput
from rlsys.files import naming
from rlsys.jsonl import LineFile, decode
from rlsys.types import Message

LATER = ("stop", "tools")  # fields of a question that logs of before have not


class AnswerLog(LineFile):
    """What a teacher has said, by what was asked: one line an answer. One process at a time may write a file."""

    def __init__(self, path: Path) -> None:
        """Create or continue `path`. Raises BadInput for another file."""
        self._places: dict[str, int] = {}
        with naming(path):
            file = path.open("a+b")
        super().__init__(path, file, self._remember_place)

    def _remember_place(self, record: Mapping[str, Any], where: str, place: int) -> None:
        key = record.get("key")
        if not isinstance(key, str):
            raise BadInput('no "key": not a file of answers that rlsys generate or rlsys eval has written', where=where)
        self._places[key] = place

    def get(self, key: str) -> Choice | None:
        return decode(Choice, self.read(self._places[key])) if key in self._places else None

    def add(self, key: str, choice: Choice, notes: Mapping[str, Any]) -> None:
        """notes: for people who read it."""
        self._places[key] = self.append({"key": key, **notes, **asdict(choice)})


def check_teacher(config: TeacherConfig) -> None:
    """Raises BadInput for an invalid address, a key that would be sent in the clear, and keys that contradict each
    other."""
    config.check_all()
    for where, address in config.addresses.items():
        check_address(
            f"{where}.endpoint", address.endpoint, (f"{where}.key_env", address.key_env), plain_http=address.plain_http
        )


def check_ready(config: TeacherConfig) -> None:
    """Raises BadInput for a key whose variable is not set, and for prompts that cannot be used."""
    for where, address in config.addresses.items():
        read_secret(f"{where}.key_env", address.key_env)
    Prompts(config.prompts)


class Teacher:
    """For one event loop.

    What it answered lies in `log` before any caller sees it: the same question with the same seed is not asked again,
    also by the next process.
    """

    def __init__(self, config: TeacherConfig | ServedConfig, *, concurrency: int, log: Path) -> None:
        """Raises BadInput for a key that is not set, or a log that cannot be used."""
        spacing_s = 60.0 / config.requests_per_minute if config.requests_per_minute else 0.0
        attempt_s = concurrency * spacing_s + config.deadline_s + config.deadline_s  # its turn, a pause, the answer
        self.patience_s = config.outage_s + config.attempts * attempt_s  # of one answer at most
        guard = GuardConfig(
            deadline_s=config.deadline_s,
            attempts=config.attempts,
            max_concurrent=concurrency,  # nothing queues: the episodes under way are as many as may ask
            cache_size=0,
        )
        waits = (config.outage_s, spacing_s)
        self._models = {
            where: _GuardedModel(where, address, guard, *waits) for where, address in config.addresses.items()
        }
        self._log = AnswerLog(log)

    async def answer(self, question: Question, notes: Mapping[str, Any], *, reflecting: bool = False) -> Choice:
        """reflecting: by the second model, where there is one. notes: for the log. Raises ToolFailed."""
        models = list(self._models.values())
        model = models[-1 if reflecting else 0]
        fields = asdict(question)
        fields = {key: value for key, value in fields.items() if value or key not in LATER}
        content = json.dumps([model.endpoint.where, model.endpoint.model, fields], sort_keys=True)
        key = hashlib.sha256(content.encode()).hexdigest()
        choice = self._log.get(key)
        if choice is None:
            choice = await model.ask(question)
            self._log.add(key, choice, {"model": model.endpoint.model, **notes})
        return choice

    async def close(self) -> None:
        self._log.close()
        for model in self._models.values():
            await model.endpoint.close()


class _GuardedModel:
    """One of a teacher's, and how it is asked."""

    def __init__(
        self, where: str, config: EndpointConfig, guard: GuardConfig, outage_s: float, spacing_s: float
    ) -> None:
        key = read_secret(f"{where}.key_env", config.key_env)
        name = where.rpartition(".")[2]
        options: dict[str, Any] = {"key_from": config.key_env or "", "refused_key": ToolRefused, "name": f"the {name}"}
        if isinstance(config, ServedConfig):
            options |= {"omit": config.omit, "limit_key": config.limit_key}
        self.endpoint = Endpoint(str(config.endpoint), str(config.model), key, **options)
        self.ask = Guard(name, self.endpoint.complete, guard, outage_s=outage_s, spacing_s=spacing_s)


def as_chat_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """As a chat endpoint takes it: the result of a call is the tool's, and what the environment says else between two
    messages of the model is the user's. A call without a result is left out, since servers refuse it, and so is one
    that could not be read, which stands in the text."""
    made = {call.call_id for message in messages for call in message.calls if not call.problem}
    with_result = made & {message.call_id for message in messages if message.role == "tool"} - {""}
    told = []
    for message in messages:
        calls = tuple(call for call in message.calls if call.call_id in with_result)
        call_id = message.call_id if message.role == "tool" and message.call_id in with_result else ""
        role = "tool" if call_id else message.role if message.role in ("system", "assistant") else "user"
        told.append(Message(role=role, content=message.content, calls=calls, call_id=call_id))
    return tuple(told)
