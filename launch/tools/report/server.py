"""The page of a run for a browser on this machine: on 127.0.0.1 alone, for those who have the link.

    GET /TOKEN/                     the page
    GET /TOKEN/state                {"revision": "...", "running": true}
    GET /TOKEN/playing              an episode of each engine, as far as it is
    GET /TOKEN/data/REVISION/NAME   index, pieces or block-N of the trajectories

Any page in the same browser can send requests here, and a name of another's can be made to point here. So each request
has to carry the token, `Host` has to be this machine's, and `Origin`, where a browser sends it, this server's own.
"""

from __future__ import annotations

import gzip
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from envs.services.http import HttpService
from launch.tools.report.live import LiveRuns, Reading
from launch.tools.report.packing import dump_line
from launch.tools.report.page import content_security_policy, page_parts
from rlsys.errors import BadInput

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{content_security_policy(connect=True)}; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
REFUSED = "open the link that `rlsys view` printed"


def make_server(runs: LiveRuns, port: int, token: str) -> HttpService:
    """Raises BadInput for a port that is in use."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        response = await run_in_threadpool(answer_request, runs, token, Request(scope))
        await response(scope, receive, send)

    @asynccontextmanager
    async def open_app() -> AsyncIterator[Any]:
        yield app

    # Requests have no body, and nobody waits for their answers at the end.
    return HttpService("page", open_app, host=ADDRESS, port=port, arrive_s=10.0, max_body_bytes=0, stop_s=1.0)


def answer_request(runs: LiveRuns, token: str, request: Request) -> Response:
    """In a thread: a large run takes a while to read."""
    path = str(request.scope["path"]).split("/")  # `request.url` would be made of the Host header
    authorized = len(path) > 2 and secrets.compare_digest(path[1].encode(), token.encode())
    if not authorized or request.method != "GET" or not is_from_this_machine(request) or ".." in path:
        return PlainTextResponse(REFUSED, 403, HEADERS)
    try:
        return _route_path(runs, path[2:])
    except BadInput as error:
        return PlainTextResponse(str(error), 503, HEADERS)


def is_from_this_machine(request: Request) -> bool:
    hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
    names = [host.rpartition(":")[0] if ":" in host else host for host in hosts]
    return len(names) == 1 and names[0] in HOSTS and all(origin == f"http://{hosts[0]}" for origin in origins)


def _route_path(runs: LiveRuns, path: list[str]) -> Response:
    if path == [""]:
        return _gzip_response("".join(_live_report_html(runs.newest())), "text/html; charset=utf-8")
    if path == ["state"]:
        return JSONResponse({"revision": runs.newest().revision, "running": runs.is_running()}, headers=HEADERS)
    if path == ["playing"]:
        return _gzip_response(dump_line(runs.playing()), "application/json")
    if len(path) == 3 and path[0] == "data":
        reading = runs.reading(path[1])
        part = reading.part(path[2]) if reading else None
        if part is not None:
            return _gzip_response(part, "text/plain; charset=utf-8")
        return PlainTextResponse("the run has gone on since", 410, HEADERS)
    return PlainTextResponse(REFUSED, 403, HEADERS)


def _live_report_html(reading: Reading) -> Iterator[str]:
    return page_parts(reading.report, (), live=reading.revision, connect=True)


def _gzip_response(text: str, kind: str) -> Response:
    content = gzip.compress(text.encode("utf-8", "replace"), 1)
    return Response(content, 200, {**HEADERS, "Content-Encoding": "gzip", "Content-Type": kind})
