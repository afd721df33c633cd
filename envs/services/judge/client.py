"""A judge that is a service: `rlsys serve judge`, which has the model, the prompts and the cache."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.patience import Patient
from envs.services.judge.request import Judged, JudgeRequest
from envs.services.judge.templates import check
from envs.services.poster import Poster
from envs.services.stats import ToolStats


class JudgeClient:
    """Waits for a service that is being restarted, like a `Judge` for its model. For one event loop."""

    def __init__(self, url: str, token: str | None, config: JudgeConfig) -> None:
        self._poster = Poster(url, token)
        self._patient: Patient[str, Judged] = Patient(self._post, config, key=lambda body: body)
        self._asked = 0
        self._cached = 0
        self._unparsable = 0

    async def ask(self, request: JudgeRequest, seed: int = 0) -> Judged:
        check(request)
        started = time.monotonic()
        self._asked += 1
        body = {"kind": request.kind, "fields": dict(request.fields), "seed": seed}
        judged = await self._patient(json.dumps(body, sort_keys=True))
        self._cached += judged.cached
        self._unparsable += judged.verdict is None
        return Judged(
            verdict=judged.verdict, text=judged.text, cached=judged.cached, seconds=time.monotonic() - started
        )

    def stats(self) -> ToolStats:
        return self._patient.stats(calls=self._asked, cached=self._cached, unparsable=self._unparsable)

    async def close(self) -> None:
        await self._poster.close()

    async def _post(self, body: str) -> Judged:
        asked = json.loads(body)
        return read_answer(asked["kind"], await self._poster.post("/judge", asked))


def read_answer(kind: str, answer: Any) -> Judged:
    """The verdict is read again from the judge's text, so that client and service cannot disagree."""
    text = answer.get("text") if isinstance(answer, Mapping) else None
    if not isinstance(text, str):
        raise ValueError('the service\'s answer has no "text"')
    return Judged(verdict=KINDS[kind].read(text), text=text, cached=bool(answer.get("cached")), seconds=0.0)
