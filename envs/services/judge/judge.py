"""A judge: a request becomes a prompt, the prompt an answer (cached, shared, waited for), the answer a verdict.

All of it in this process, or by `rlsys serve judge`, which has the model, the prompts and the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from cachetools import LRUCache

from envs.services.endpoint import Chat, Choice, Endpoint, Question
from envs.services.json_client import JsonClient
from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import AskableJudge, Judged, JudgeRequest
from envs.services.judge.templates import Prompts, check_request
from envs.services.secrets import read_secret
from rlsys.errors import BadInput
from rlsys.types import Message

log = logging.getLogger(__name__)

BUSY_S = 10.0  # for another process's write to end
# Of these, all who open a file share a kernel.
LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay")


class Judge(AskableJudge):
    """Owns its `chat`."""

    def __init__(self, chat: Chat, config: JudgeConfig) -> None:
        """Raises BadInput for prompts or a cache file that cannot be used."""
        super().__init__(config)
        self._chat = chat
        self._prompts = Prompts(config.prompts)
        self._cache = Cache(config.cache_size, config.cache_file)
        self.verdicts: Counter[str] = Counter()  # "kind value"; the value is "unparsable" without one, or "cut"

    @property
    def model(self) -> str:
        return self._chat.model

    @property
    def broken(self) -> bool:
        """Whether a restart of this process may help: it hosts the model, and the model answers no request."""
        return self._chat.failed or (self._chat.own and self.stats().breaker_open)

    async def close(self) -> None:
        await self._cache.close()
        await self._chat.close()

    async def _judged(self, request: JudgeRequest, seed: int) -> Judged:
        """Samples at `retry_temperature`. An answer that was cut is not kept: another limit may let it end."""
        prompt = self._prompts.render(request)
        kind = KINDS[request.kind]
        max_tokens = self.config.max_tokens or kind.max_tokens
        temperature = self.config.retry_temperature if seed else 0.0
        key_parts = [self._chat.where, self._chat.model, request.kind, prompt, max_tokens, temperature, seed]
        key = hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()
        text, cut = await self._cache.get(key), False
        was_cached = text is not None
        if text is None:
            messages = (Message(role="user", content=prompt),)
            question = Question(messages=messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
            choice: Choice = await self._guard(question)
            text, cut = choice.text, choice.truncated
            if not cut:
                await self._cache.put(key, text)
        first = self._prompts.reads_first_verdict(request.kind)
        verdict = kind.read(text, first=first) if not cut else None
        free = not kind.values  # a free-text answer
        value = "cut" if cut else "unparsable" if verdict is None else "read" if free else verdict.value
        self.verdicts[f"{request.kind} {value}"] += 1
        return Judged(verdict=verdict, text=text, cached=was_cached, cut=cut, first=first)

    async def _call(self, question: Question) -> Choice:
        return await self._chat.complete(question)


class JudgeClient(AskableJudge):
    """Waits for a service that is being restarted, like a `Judge` for its model."""

    def __init__(self, url: str, token: str | None, config: JudgeConfig, *, proxy: bool = True) -> None:
        """`proxy`: whether the machine's is used to get there."""
        super().__init__(config)
        self._proxy = proxy
        self._clients: list[JsonClient] = []  # the last one is asked
        self.connect(url, token)

    def connect(self, url: str, token: str | None) -> None:
        """Ask there from now on, those who wait for an answer too."""
        self._clients.append(JsonClient(url, token, proxy=self._proxy))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _judged(self, request: JudgeRequest, seed: int) -> Judged:
        check_request(request)
        body = {"kind": request.kind, "fields": dict(request.fields), "seed": seed}
        judged: Judged = await self._guard(json.dumps(body, sort_keys=True))
        return judged

    async def _call(self, body: str) -> Judged:
        request = json.loads(body)
        return read_answer(request["kind"], await self._clients[-1].post("/judge", request))


def read_answer(kind: str, answer: Any) -> Judged:
    """The verdict is read again from the judge's text, so that client and service cannot disagree."""
    text = answer.get("text") if isinstance(answer, Mapping) else None
    if not isinstance(text, str):
        raise ValueError('the service\'s answer has no "text"')
    cached, cut, first = (bool(answer.get(name)) for name in ("cached", "cut", "first"))
    verdict = KINDS[kind].read(text, first=first) if not cut else None
    return Judged(verdict=verdict, text=text, cached=cached, cut=cut, first=first)


def open_judge(config: JudgeConfig) -> AskableJudge:
    """The judge at `config.endpoint` or `config.service`. Raises BadInput without one, or without its key."""
    key = read_secret("judge.key_env", config.key_env)
    if config.service is not None:
        return JudgeClient(config.service, key, config)
    if config.endpoint is None or config.model is None:
        raise BadInput(where="judge", expected="judge.endpoint and judge.model, or judge.service")
    return Judge(Endpoint(config.endpoint, config.model, key), config)


class Cache:
    """What the judge said, by content: in memory, and in a SQLite file that several processes and runs share.

    Least recently used out first, of the memory only. A file that breaks is given up with a warning, not scoring.
    """

    def __init__(self, size: int, file: str | None = None) -> None:
        """Raises BadInput for a file that cannot be used."""
        self._texts: LRUCache[str, str] = LRUCache(size)
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judge-cache")
        self._disk = self._open(file) if file is not None else None

    async def get(self, key: str) -> str | None:
        cached: str | None = self._texts.get(key)
        if cached is not None:
            return cached
        text = await self._on_disk("SELECT text FROM answers WHERE key = ?", key)
        if text is not None:
            self._remember(key, text)
        return text

    async def put(self, key: str, text: str) -> None:
        self._remember(key, text)
        await self._on_disk("INSERT OR REPLACE INTO answers VALUES (?, ?)", key, text)

    async def close(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, disk.close)
        self._thread.shutdown(wait=False)

    def _remember(self, key: str, text: str) -> None:
        with suppress(ValueError):  # a size of 0 keeps none
            self._texts[key] = text

    def _open(self, file: str) -> sqlite3.Connection:
        try:
            Path(file).resolve().parent.mkdir(parents=True, exist_ok=True)
            disk = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            disk.execute(f"PRAGMA journal_mode={journal_mode(file_system(file))}")
            disk.execute("PRAGMA synchronous=NORMAL")
            disk.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT NOT NULL)")
        except (sqlite3.Error, OSError) as error:
            raise BadInput(error, key="judge.cache_file", found=file, expected="a SQLite file, or none yet") from error
        return disk

    async def _on_disk(self, statement: str, *values: str) -> str | None:
        if self._disk is None:
            return None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._execute, statement, values)

    def _execute(self, statement: str, values: tuple[str, ...]) -> str | None:
        if self._disk is None:
            return None
        try:
            row = self._disk.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            log.warning("the judge's cache %s is not used any more: %s", self._file, error)
            self._disk = None
            return None
        return str(row[0]) if row else None


def journal_mode(system: str) -> str:
    """By file system. SQLite's write-ahead log is 200 times as fast, and needs memory that all who open the file share:
    no two nodes do.
    """
    return "WAL" if system in LOCAL else "TRUNCATE"


def file_system(file: str) -> str:
    """The type of the file system that a file lies on, or will lie on: "ext4", "nfs4"; "" where it is unknown."""
    mounts = [(partition.mountpoint, partition.fstype) for partition in psutil.disk_partitions(all=True)]
    folder = Path(file).resolve().parent
    around = [(mount, kind) for mount, kind in mounts if folder.is_relative_to(mount)]
    return max(around, key=lambda entry: len(entry[0]), default=("", ""))[1]
