"""JSON from one server: what services are asked with. One attempt; deadlines, retries and slots are the guard's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from envs.services.guard import ToolBusy, ToolRefused
from envs.services.secrets import is_loopback
from rlsys.untrusted import visible

BUSY = (429, 503)  # come back later
MENDABLE = (408, 425)  # of the other 4xx: not the request's fault
KEPT_OUT = (401, 403)


class JsonClient:
    """For one event loop; the session opens with the first request. The key travels in a header, in no error text."""

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        key_header: str = "Authorization",
        key_query: str = "",
        name: str | None = None,
        key_from: str = "",
        refused_key: type[Exception] = ConnectionError,
        max_bytes: int = 4_000_000,
        proxy: bool = True,
    ) -> None:
        """`name` stands in messages for the url, `key_from` says where the key came from.

        `key_query` is the parameter of a `get` that carries the key, in the header's place: some servers know no other.
        `refused_key` is what 401 and 403 raise; `max_bytes` is of an answer; `proxy`: whether the machine's is used,
        which no loopback address needs.
        """
        self._url = url.rstrip("/")
        self._key = key
        self._name = name or self._url
        self._key_from = f" in {key_from}" if key_from else ""
        self._refused_key = refused_key
        self._max_bytes = max_bytes
        value = f"Bearer {key}" if key_header == "Authorization" else key
        self._headers = {key_header: str(value)} if key and not key_query else {}
        self._query = {key_query: key} if key and key_query else {}
        self._proxy = proxy and not is_loopback(url)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, content: Any) -> Any:
        """The answer. Raises what `_check` does, or ValueError for an answer that is no JSON."""
        return self._read(*await self._answer("POST", path, json=content))

    async def get(self, path: str, query: Mapping[str, object]) -> Any:
        """The same, asked by an address. Half of a surrogate pair, which none can hold, is asked for as `?`."""
        plain = {key: str(value).encode("utf-8", "replace").decode() for key, value in query.items()}
        return self._read(*await self._answer("GET", path, params={**plain, **self._query}))

    def _read(self, status: int, headers: Mapping[str, str], body: bytes) -> Any:
        self._check(status, headers, body)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self._name}: {error}"[:200]) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, method: str, path: str, **options: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Redirects are not followed: the key is for one host."""
        body = bytearray()
        try:
            async with self._open().request(method, self._url + path, allow_redirects=False, **options) as response:
                async for chunk in response.content.iter_chunked(65_536):
                    body += chunk
                    if len(body) > self._max_bytes:
                        raise ValueError(f"{self._name}: an answer of more than {self._max_bytes} bytes")
                return response.status, response.headers, bytes(body)
        except aiohttp.ClientError as error:
            # aiohttp's own errors carry the request with its headers.
            raise ConnectionError(f"{self._name}: {type(error).__name__}") from None

    def _check(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Raises ToolBusy, ToolRefused where the request is at fault, ConnectionError where another try may help."""
        answered = f"{self._name} answered {status}"
        if status in BUSY:
            raise ToolBusy(answered, retry_after(headers))
        if status in KEPT_OUT:
            raise self._refused_key(f"{answered}: is the key{self._key_from} valid?")
        if 400 <= status < 500 and status not in MENDABLE:
            raise ToolRefused(f"{answered}: {show_excerpt(body, self._key)}")
        if status != 200:
            raise ConnectionError(answered)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0),
                trust_env=self._proxy,
            )
        return self._session


def show_excerpt(body: bytes, key: str | None) -> str:
    """For errors, which people read: a server repeats what a policy wrote, escapes and all."""
    text = " ".join(body[:4096].decode("utf-8", "replace").split())
    return visible((text.replace(key, "***") if key else text)[:300])


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds; 1 where the server does not say, or gives a date."""
    stated = headers.get("Retry-After", "")
    return float(stated[:6]) if stated.isascii() and stated.isdigit() else 1.0
