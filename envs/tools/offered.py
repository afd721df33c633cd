"""The tools of an environment with a list of them: a table of our own, functions by dotted path, MCP servers.

Each entry of `env.tools` is an `Offered`: schemas that the model's chat template shows, and what answers a call. Names
are the model's matter: `Toolset` finds the entry, checks arguments against the schema, and answers what fits none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Optional, Protocol

from envs.services.guard import ToolBusy
from envs.services.retriever.corpus import Document
from envs.services.secrets import check_address, read_secret
from envs.services.stats import ToolStats
from envs.tools.calculator import calculate
from envs.tools.call_pool import CallPool, PoolLimits
from envs.tools.child_process import Command
from envs.tools.function import FunctionPeer, read_schema
from envs.tools.mcp import McpPeer, command_words, list_tools
from envs.tools.mcp_http import Address, is_url
from envs.tools.python_tool import PythonTool
from envs.tools.result import Result, ToolError
from envs.tools.sandbox import Outcome
from envs.tools.schema import Schema, find_problem, make_schema, schema_of
from envs.tools.search import SearchTool
from rlsys.choices import load
from rlsys.errors import BadInput, nearest, refuse_unread, require, require_bounds
from rlsys.types import ToolCall

Run = Callable[[str, Mapping[str, Any]], Awaitable[Result]]  # (name, arguments), of one episode
MAX_ERROR = 200  # characters
GRAPH_VERIFIER = "envs.papers.graph_rl.tool.verify_graph_answer"  # imported where it is offered


@dataclass(frozen=True, kw_only=True)
class ToolEntry:
    """One entry of `env.tools`: a tool of ours, a function, or the tools of an MCP server."""

    name: Optional[str] = None
    """A tool of ours: search, python, calculator or graph_verifier. With `function`, the name that the model sees; null
    for the function's own name."""
    function: Optional[str] = None
    """Dotted path of a Python function, sync or async. Its signature and its docstring become the tool's schema. It
    runs in processes of its own."""
    mcp: Optional[str] = None
    """Command line of an MCP server that speaks over standard input and output; `python` is the interpreter of the
    run. Or the http or https address of a running one (Streamable HTTP)."""
    token_env: Optional[str] = None
    """Name of the environment variable that holds the token of the MCP server at an address. null: no token is sent."""
    plain_http: bool = False
    """Whether the token may be sent over plain http to another machine. Only for a private network."""
    only: list[str] = field(default_factory=list)
    """Names of the tools of the MCP server that are offered. []: all of them."""
    workers: int = 2
    """Number of processes of the function or the MCP server in one rollout worker, or of sessions with a server at an
    address, which is the number of calls at once. A call has a process, or a session, to itself."""
    deadline_s: float = 10.0
    """Timeout of a call of the function or the MCP server, in seconds. After it the process is killed, or the session
    ended, and the model reads an error."""
    start_timeout_s: float = 60.0
    """Timeout of the start of a process of the function or the MCP server, or of a session, in seconds."""
    memory_mb: int = 2048
    """Limit of the data memory of one process of the function or the MCP server, in MiB. 0: none."""
    variables: list[str] = field(default_factory=list)
    """Names of environment variables that the function or the MCP server is given, besides PATH, HOME and the like."""

    def check(self, where: str) -> None:
        """Raises BadInput. where: "env.tools.0."."""
        kinds = [key for key in ("function", "mcp") if getattr(self, key) is not None] or ["name"] * bool(self.name)
        is_both = self.mcp is not None and self.name is not None
        require(len(kinds) == 1 and not is_both, f"{where}name", self.name, "a name, a function or an mcp, one of them")
        if kinds == ["name"]:
            one_of = f"one of {', '.join(TOOLS)}, or null with a function{nearest(str(self.name), TOOLS, otherwise='')}"
            require(self.name in TOOLS, f"{where}name", self.name, one_of)
            keys = [field.name for field in fields(self) if field.name != "name"]
            lists = [key for key in ("only", "variables") if getattr(self, key)]
            require(not lists, f"{where}{(lists or ['only'])[0]}", getattr(self, (lists or ["only"])[0]), "[]")
            refuse_unread(self, where, [key for key in keys if key not in ("only", "variables")], f"on {self.name}")
        if self.mcp is None and self.only:
            raise BadInput(key=f"{where}only", found=self.only, expected="[] without mcp")
        require_bounds(self, where, "at least 1", "workers")
        require_bounds(self, where, "above 0", "deadline_s", "start_timeout_s")
        require_bounds(self, where, "0 or more", "memory_mb")
        self._check_place(where)

    def _check_place(self, where: str) -> None:
        if self.mcp is not None and is_url(self.mcp):
            check_address(f"{where}mcp", self.mcp, (f"{where}token_env", self.token_env), plain_http=self.plain_http)
            because = "on a server at an address, which is no process of the run"
            require(not self.variables, f"{where}variables", self.variables, f"[] {because}")
            refuse_unread(self, where, ("memory_mb",), because)
            return
        refuse_unread(self, where, ("token_env", "plain_http"), "without the address of a server in mcp")
        if self.mcp is not None and not command_words(self.mcp):
            expected = "a command line with every quote closed, or an http or https address"
            raise BadInput(key=f"{where}mcp", found=self.mcp, expected=expected)

    def server(self, where: str) -> Command | Address:
        """That of `mcp`. Raises BadInput where the variable of its token holds none."""
        server = str(self.mcp)
        if is_url(server):
            token = read_secret(f"{where}token_env", self.token_env)
            return Address(url=server, token=token, token_from=self.token_env or "")
        return Command(words=command_words(server), memory_mb=self.memory_mb, variables=tuple(self.variables))


class Offered(Protocol):
    def schemas(self) -> Sequence[Schema]:
        """Of its tools. May block, the first time. Raises BadInput where they cannot be had."""
        ...

    def episode(self) -> Run:
        """What answers the calls of one episode. Raises ToolFailed."""
        ...

    def stats(self) -> Mapping[str, ToolStats]: ...
    async def check(self) -> None: ...
    async def close(self) -> None: ...


class PlainTool:
    """A function of ours that answers any arguments at once."""

    def __init__(self, schema: Schema, answer: Callable[..., Result]) -> None:
        self._schema, self._answer = schema, answer

    def schemas(self) -> Sequence[Schema]:
        return (self._schema,)

    def episode(self) -> Run:
        async def run(name: str, arguments: Mapping[str, Any]) -> Result:
            try:
                return self._answer(**arguments)
            except Exception as error:  # a fault boundary: whatever a model writes ends here
                return ToolError(f"error: {type(error).__name__}: {error}"[:MAX_ERROR])

        return run

    def stats(self) -> Mapping[str, ToolStats]:
        return {}

    async def check(self) -> None: ...
    async def close(self) -> None: ...


def compute(expression: str) -> Result:
    """Compute an arithmetic expression.

    Args:
        expression: Such as (2 + 3) * 4.
    """
    result = calculate(expression)
    return ToolError(result) if result.startswith("error") else result


class ServedTool:
    """A tool of ours that other environments offer too, by its own protocol."""

    def __init__(self, schema: Schema, tool: PythonTool | SearchTool, episode: Callable[[], Run]) -> None:
        self._schema, self._episode = schema, episode
        self.stats, self.check, self.close = tool.stats, tool.check, tool.close

    def schemas(self) -> Sequence[Schema]:
        return (self._schema,)

    def episode(self) -> Run:
        """Refuses an argument that it would pass over."""
        run, closed = self._episode(), {**self._schema["function"]["parameters"], "additionalProperties": False}

        async def checked(name: str, arguments: Mapping[str, Any]) -> Result:
            problem = find_problem(closed, arguments)
            return ToolError(f"error: {problem}") if problem else await run(name, arguments)

        return checked


def offer_function(name: str, function: Callable[..., Result]) -> PlainTool:
    return PlainTool(schema_of(function, name), function)


def offer_python(tool: PythonTool) -> ServedTool:
    def episode() -> Run:
        python = tool.episode()

        async def run(name: str, arguments: Mapping[str, Any]) -> Result:
            execution = await python.run(arguments["code"])
            return execution.text if execution.outcome is Outcome.OK else ToolError(execution.text)

        return run

    return ServedTool(one_text("python", "Run a Python program and read what it prints.", "code"), tool, episode)


def offer_search(tool: SearchTool) -> ServedTool:
    def episode() -> Run:
        async def run(name: str, arguments: Mapping[str, Any]) -> Result:
            if not arguments["query"].strip():
                return ToolError("error: the query is empty")
            return show_documents(await tool.search(arguments["query"]))

        return run

    return ServedTool(one_text("search", "Search an encyclopedia for passages.", "query"), tool, episode)


def one_text(name: str, description: str, argument: str) -> Schema:
    """The schema of a tool with one argument, a text."""
    properties = {argument: {"type": "string"}}
    return make_schema(name, description, {"type": "object", "properties": properties, "required": [argument]})


def show_documents(documents: Sequence[Document]) -> str:
    return "\n\n".join(document.contents for document in documents) or "nothing was found"


class OfferedPool:
    """The function, or the tools of the MCP server, that processes of one entry answer for."""

    def __init__(self, name: str, where: str, schemas: Callable[[], Sequence[Schema]], pool: CallPool) -> None:
        self._name, self._where, self.schemas, self._pool = name, where, schemas, pool
        self.close = pool.close

    async def check(self) -> None:
        """Raises BadInput where no process can be started."""
        try:
            await self._pool.check()
        except (ConnectionError, ToolBusy) as error:
            raise BadInput(error, key=self._where) from error

    def episode(self) -> Run:
        return self._pool.call

    def stats(self) -> Mapping[str, ToolStats]:
        return {self._name: self._pool.stats()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What tools of ours are made of, where an environment offers them."""

    search: SearchTool
    python: PythonTool


TOOLS: Mapping[str, Callable[[Parts], Offered]] = {
    "search": lambda parts: offer_search(parts.search),
    "python": lambda parts: offer_python(parts.python),
    "calculator": lambda _: offer_function("calculator", compute),
    "graph_verifier": lambda _: offer_function("graph_verifier", load(GRAPH_VERIFIER)),
}


def make_offered(entry: ToolEntry, where: str, parts: Parts, max_reply: int) -> Offered:
    """where: "env.tools.0.". max_reply: characters of a result. Raises BadInput for a function that is none."""
    limits = PoolLimits(
        workers=entry.workers,
        deadline_s=entry.deadline_s,
        start_timeout_s=entry.start_timeout_s,
        max_reply=max_reply,
    )
    if entry.function is not None:
        name = entry.name or entry.function.rpartition(".")[2]
        schema = read_schema(f"{where}function", entry.function, name)
        start = partial(FunctionPeer.start, entry.function, max_reply, entry.memory_mb, tuple(entry.variables))
        return OfferedPool(name, f"{where}function", lambda: (schema,), CallPool(name, start, limits))
    if entry.mcp is not None:
        server = entry.server(where)

        def schemas() -> Sequence[Schema]:
            server_schemas = list_tools(f"{where}mcp", server, entry.start_timeout_s)
            names = [schema["function"]["name"] for schema in server_schemas]
            for name in entry.only:
                require(name in names, f"{where}only", name, f"tools of the server: {', '.join(names)}")
            return [schema for schema in server_schemas if not entry.only or schema["function"]["name"] in entry.only]

        name = f"mcp_{where.split('.')[2]}"
        return OfferedPool(name, f"{where}mcp", schemas, CallPool(name, partial(McpPeer.start, server), limits))
    return TOOLS[str(entry.name)](parts)


class Toolset:
    """The tools of an environment, by the names that the model calls."""

    def __init__(self, offered: Sequence[Offered]) -> None:
        self._offered = offered
        self._schemas: dict[str, Schema] = {}
        self._of: dict[str, Offered] = {}
        self._attempt: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Find out what there is. May block, the first time. Raises BadInput, also where two tools have one name."""
        if self._schemas:
            return
        schemas: dict[str, Schema] = {}
        for tool in self._offered:
            for schema in tool.schemas():
                name = schema["function"]["name"]
                require(name not in schemas, "env.tools", name, "tools of different names")
                schemas[name], self._of[name] = schema, tool
        self._schemas = schemas

    async def ready(self) -> None:
        """`prepare`, for an event loop. Raises BadInput. One attempt is for all that wait, so that a server which does
        not start costs them its timeout once; who comes after that tries again."""
        if self._schemas:
            return
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.create_task(asyncio.to_thread(self.prepare))
            # It is not awaited where all that waited for it were cancelled: the loop would complain of its error.
            self._attempt.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._attempt)

    @property
    def schemas(self) -> tuple[Schema, ...]:
        self.prepare()
        return tuple(self._schemas.values())

    @property
    def texts(self) -> tuple[str, ...]:
        """The schemas as JSON."""
        return tuple(json.dumps(schema, ensure_ascii=False) for schema in self.schemas)

    def episode(self) -> Callable[[ToolCall], Awaitable[Result]]:
        """What answers the calls of one episode. Raises ToolFailed."""
        runs = {id(tool): tool.episode() for tool in self._offered}
        names = ", ".join(self._schemas)

        async def answer(call: ToolCall) -> Result:
            if call.problem:
                return ToolError(f"error: {call.problem}")
            schema = self._schemas.get(call.name)
            if schema is None:
                return ToolError(f"error: there is no tool {call.name[:80]!r}; the tools are {names}")
            if problem := find_problem(schema["function"]["parameters"], call.arguments):
                return ToolError(f"error: {problem}")
            return await runs[id(self._of[call.name])](call.name, call.arguments)

        return answer

    def stats(self) -> Mapping[str, ToolStats]:
        return {name: stats for tool in self._offered for name, stats in tool.stats().items()}

    async def check(self) -> None:
        """Raises BadInput."""
        await self.ready()
        for tool in self._offered:
            await tool.check()

    async def close(self) -> None:
        for tool in self._offered:
            await tool.close()
