"""A session with an MCP server at a URL, by the protocol's Streamable HTTP: every message is a POST.

A request is answered by one JSON object, or by a stream of events in which the server may ask things first. An answer
has a largest size; redirects are not followed, since the token is for one host; cookies are not kept. Deadlines are the
caller's (`envs.tools.call_pool`). No stream is resumed: an answer that breaks off is a broken call.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from envs.services.guard import ToolBusy
from envs.services.json_client import BUSY, KEPT_OUT, retry_after, show_excerpt
from envs.services.secrets import is_loopback
from envs.tools.child_process import MAX_LINE, CallBroke, read_object

END_S = 2.0  # for a server to forget a session
OLDER = "Streamable HTTP would do that; the older HTTP+SSE transport is not supported"
_SESSION_ID, _REVISION = re.compile(r"[\x21-\x7e]{1,1024}"), re.compile(r"\d{4}-\d\d-\d\d")


def is_url(server: str) -> bool:
    return server.lower().startswith(("http://", "https://"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    url: str
    token: str | None = field(default=None, repr=False)
    token_from: str = ""  # the variable that held it


class HttpSession:
    """For one event loop, and one request at a time; it begins with the first, `initialize`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._headers = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
        if address.token is not None:
            self._headers["Authorization"] = f"Bearer {address.token}"
        self._client = aiohttp.ClientSession(
            # One that is kept may be dead, and would not say whether a call was carried out.
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=not is_loopback(address.url),
            auto_decompress=False,  # a small answer could become a large one
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._messages: AsyncGenerator[dict[str, Any], None] | None = None
        self._response: aiohttp.ClientResponse | None = None  # to the last request
        self._lost = self._closed = False

    @property
    def running(self) -> bool:
        """Whether the server knows it, as far as it has said."""
        return not (self._lost or self._closed)

    @property
    def repeatable(self) -> bool:
        """Whether a call that broke was surely not carried out."""
        return self._lost

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raises CallBroke; and ConnectionError and ToolBusy where it is no fault of the message's."""
        is_request = "id" in message and "method" in message
        if is_request and self._messages is not None and self._response is not None:
            await self._messages.aclose()
            self._response.release()
            self._messages = self._response = None
        response = await self._post(message)
        try:
            if self._closed:
                raise CallBroke("it was closed")
            await self._check(response)
            if not is_request:
                return
            if response.status == 202:
                raise CallBroke(f"it answered no request (202): {OLDER}")
            if message["method"] == "initialize" and "Mcp-Session-Id" in response.headers:
                self._headers["Mcp-Session-Id"] = _checked_header_value(_SESSION_ID, response.headers["Mcp-Session-Id"])
            self._response, self._messages = response, read_answer(response, self._address.token)
        finally:
            if self._response is not response:
                response.release()

    async def receive(self) -> dict[str, Any]:
        """The next message of the answer to the last request. Raises CallBroke."""
        try:
            message = None if self._messages is None else await anext(self._messages, None)
        except (aiohttp.ClientError, OSError) as error:
            raise CallBroke(f"it broke off its answer ({type(error).__name__})") from None
        if message is None:
            raise CallBroke("it ended its answer without a result")
        result = message.get("result")
        if isinstance(result, dict) and "protocolVersion" in result and "MCP-Protocol-Version" not in self._headers:
            self._headers["MCP-Protocol-Version"] = _checked_header_value(_REVISION, result["protocolVersion"])
        return message

    async def close(self) -> None:
        """Have the server forget it, too, if it answers in time: a call that takes too long ends there. Whoever waits
        for a message hears that there is none."""
        if self._closed:
            return
        self._closed = True
        if self._response is not None:
            self._response.close()
        try:
            if not self._lost and "Mcp-Session-Id" in self._headers:
                async with asyncio.timeout(END_S):
                    options: dict[str, Any] = {"headers": self._headers, "allow_redirects": False}
                    (await self._client.delete(self._address.url, **options)).release()
        except (aiohttp.ClientError, OSError):  # a timeout among them
            pass
        finally:
            await self._client.close()

    async def _post(self, message: Mapping[str, Any]) -> aiohttp.ClientResponse:
        options: dict[str, Any] = {"headers": self._headers, "allow_redirects": False}
        try:
            return await self._client.post(self._address.url, json=message, **options)
        except aiohttp.ClientConnectorError as error:
            reason = error.strerror or type(error).__name__
            raise ConnectionError(f"it cannot be reached: {reason}") from None
        except ValueError as error:  # of a password for this host in ~/.netrc, which would go with the token
            raise ConnectionError(f"it cannot be asked: {error}") from None
        except (aiohttp.ClientError, OSError) as error:  # aiohttp's own carry the request with its headers
            raise CallBroke(f"it broke off the connection ({type(error).__name__})") from None

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        status, address = response.status, self._address
        answered = f"it answered {status}"
        if 200 <= status < 300:
            return
        if status in BUSY:
            raise ToolBusy(answered, retry_after(response.headers))
        if status in KEPT_OUT:
            reason = f"is the token in {address.token_from} valid?" if address.token else "token_env names its token"
            raise ConnectionError(f"{answered}: {reason}")
        if status == 404 and "Mcp-Session-Id" in self._headers:
            self._lost = True
            raise CallBroke("it has forgotten the session (404)")
        if 300 <= status < 400:
            raise CallBroke(f"{answered}: redirects are not followed")
        if status == 405:
            raise CallBroke(f"it takes no POST (405): {OLDER}")
        with suppress(aiohttp.ClientError, OSError):
            answered += f": {show_excerpt(await response.content.read(4096), address.token)}"
        raise CallBroke(answered)


def _checked_header_value(pattern: re.Pattern[str], value: object) -> str:
    """What may stand in a header. Raises CallBroke."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise CallBroke(f"it greets with {str(value)[:80]!r} in the place of a session or a revision")
    return value


async def read_answer(response: aiohttp.ClientResponse, token: str | None) -> AsyncGenerator[dict[str, Any], None]:
    """Without the token, which a server may say again. Raises CallBroke."""
    hide = (lambda text: text.replace(token.encode(), b"***")) if token else bytes
    is_stream = response.content_type == "text/event-stream"
    num_bytes = 0
    line = bytearray()  # of a stream the one that has begun, else the whole answer
    data: list[bytes] = []  # of the event that has begun
    async for piece in response.content.iter_chunked(1 << 16):
        num_bytes += len(piece)
        if num_bytes > MAX_LINE:
            raise CallBroke(f"it wrote an answer of more than {MAX_LINE >> 20} MiB")
        *ends, begin = piece.split(b"\n") if is_stream else [piece]
        for end in ends:
            line = (line + end).removesuffix(b"\r")  # a piece may end between the two
            if line.startswith(b"data:"):
                data.append(bytes(line[5:]))
            elif not line:
                event = b"\n".join(data)
                data.clear()
                if event.strip():
                    yield read_object(hide(event), "an event")
            line.clear()
        line += begin
    if line and not is_stream:
        yield read_object(hide(bytes(line)), "an answer")
