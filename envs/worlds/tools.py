"""A list of tools, called in the model's own format: search, Python, a calculator, own functions, MCP servers.

`env.tools` says which (`envs.tools.offered`). Tasks are questions from files and data sets (`envs.tasks.formats`), or
made-up errands that take `search`, `python` and a function `price` (`envs.problems.errands`). What each message leads
to is the table of `envs.episode.CallsEpisode`.

With `protocol: native` the chat template shows the tools and the results. With `protocol: hermes`, for models whose
template knows no tools, a system message and user messages do, in the way of Hermes and Qwen; the renderer makes one
message of the results that answer one message (`actors.chat.join_results`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import ClassVar, Literal, Optional

from envs.base import Demonstration, Env, Service, World
from envs.episode import CallsEpisode, OneMessage
from envs.problems import errands
from envs.protocols.families.tagged import HERMES
from envs.protocols.families.written_json import CALL_ID
from envs.protocols.styles import STYLES
from envs.services.guard import ToolFailed
from envs.services.stats import ToolStats
from envs.tasks.config import TaskConfig
from envs.tasks.conversation import prepend_turns, question_index, turns_before
from envs.tasks.splits import split_tasks
from envs.tools.offered import Parts, ToolEntry, Toolset, make_offered, show_documents
from envs.tools.python_tool import PythonTool
from envs.tools.sandbox import SandboxConfig
from envs.tools.search import (
    MAX_TOPK,
    WEB,
    LocalSearch,
    SearchConfig,
    SearchTool,
    check_files,
    service_name,
    start_server,
    token_of,
)
from rlsys.errors import BadInput, require, require_bounds
from rlsys.examples import require_learnable
from rlsys.records import read_messages
from rlsys.types import FailureKind, Message, Task, ToolCall, ToolOffer

CHARS_PER_TOKEN = 8  # of a result, before its tokens are counted
MOST_CHARS = 1 << 19  # of a result: as JSON it is a line that is read
RESULT_OPEN, RESULT_CLOSE = "<tool_response>\n", "\n</tool_response>"
HERMES_SYSTEM = (
    "You may call these functions:\n<tools>\n{tools}\n</tools>\nTo call one, write its name and its arguments as a "
    'JSON object: <tool_call>\n{{"name": "NAME", "arguments": {{}}}}\n</tool_call>'
)


@dataclass(frozen=True, kw_only=True)
class ToolsConfig(TaskConfig):
    has_tool: ClassVar[bool] = True
    name: str = "tools"
    tools: list[ToolEntry] = field(default_factory=list)  # type: ignore[assignment]  # true or false for other worlds
    """Tools that the policy may call, a list: our own by `name`, a Python function by `function`, an MCP server by
    `mcp`. []: none, and the first message is the answer."""
    protocol: Literal["native", "hermes"] = "native"
    """Format of tools, calls and results. native: that of the model's chat template. hermes: that of Hermes and Qwen,
    in system and user messages, for models whose template shows no tools."""
    style: Literal["answer_tag", "boxed", "free"] = "answer_tag"
    """Place of the answer in a message without calls: `<answer>` tags, `\\boxed{}`, or the whole message."""
    instruction: Optional[str] = None
    """Line after every question. null: the style's own. "": none."""
    max_turns: int = 8
    """Number of messages that the model may write, one per round of calls and one for the answer."""
    max_calls: int = 8
    """Number of calls of one message that are carried out."""
    max_reply_tokens: Optional[int] = 1024
    """Length limit of the result of one call in the context, in tokens; longer results are cut. null: no limit but that
    of 64 KiB."""
    topk: int = 3
    """Number of passages per search, of the tool `search`."""
    retriever: SearchConfig = field(default_factory=SearchConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        for at, entry in enumerate(self.tools):
            entry.check(f"env.tools.{at}.")
        names = [entry.name for entry in self.tools if entry.function is None and entry.mcp is None]
        require(len(set(names)) == len(names), "env.tools", names, "each tool of ours once")
        require_bounds(self, "env.", "at least 1", "max_turns", "max_calls")
        require_bounds(self, "env.", "at least 1, or null", "max_reply_tokens")
        require(1 <= self.topk <= MAX_TOPK, "env.topk", self.topk, f"1 to {MAX_TOPK}")
        corpus, synth = self.retriever.corpus, self.data is None
        require(corpus is None or not synth, "env.retriever.corpus", corpus, "null, or questions about it in env.data")
        has_source = not self.searches or synth or corpus is not None or self.retriever.url is not None
        ways = "passages for the tool search, or retriever.url, or retriever.kind=web"
        require(has_source or self.retriever.kind == WEB, "env.retriever.corpus", corpus, ways)

    @property
    def searches(self) -> bool:
        return any(entry.name == "search" and entry.function is None for entry in self.tools)


class ToolsWorld(World):
    def __init__(self, config: ToolsConfig) -> None:
        self._config = config
        self._style = STYLES[config.style]
        self.tags = tuple(dict.fromkeys((*HERMES.tags, *self._style.tags)))
        self.write_answer = self._style.write
        self.max_turns = config.max_turns
        self._search = SearchTool(config.retriever, config.topk)
        deadlines = (config.retriever.guard.deadline_s, config.sandbox.timeout_s)
        self.reply_s = max(self.reply_s, *deadlines, *(entry.deadline_s for entry in config.tools))
        if config.searches:
            self._choose_retriever()
        parts = Parts(search=self._search, python=PythonTool(config.sandbox))
        most = min(CHARS_PER_TOKEN * (config.max_reply_tokens or 1 << 13), MOST_CHARS)
        self._tools = Toolset(
            [make_offered(entry, f"env.tools.{at}.", parts, most) for at, entry in enumerate(config.tools)]
        )
        self.split = split_tasks(config, make=self._make, check=_row_turns)

    def _make(self, count: int, held_out: bool) -> Sequence[Task]:
        return list(errands.generate(count, self._config.seed, held_out=held_out))

    def _choose_retriever(self) -> None:
        retriever = self._config.retriever
        if retriever.kind == WEB:
            self._search.connect_web()
        elif retriever.url is not None:
            self._search.connect(retriever.url, token_of(retriever.token_env))
        else:
            corpus_key = ("errands",) if self._config.data is None else retriever.corpus
            self.service = service_name(corpus_key, retriever.options)
            self.service_gpus, self.service_threads = retriever.gpus, retriever.cpus

    def level(self, task: Task) -> str:
        """The kind of a made-up errand."""
        return str(task.record["kind"]) if task.record.keys() == {"kind", "items", "sum"} else super().level(task)

    async def open_env(self, task: Task) -> Env:
        try:
            await self._tools.ready()
        except BadInput as error:  # a server that has answered before the run began: not the task's fault
            raise ToolFailed(FailureKind.INFRA, "tools", str(error)) from error
        return self.env(task)

    def env(self, task: Task) -> CallsEpisode | OneMessage:
        config = self._config
        if not config.tools:
            return OneMessage(self._prompt(task), (), lambda text: self._style.answered(text, task))
        return CallsEpisode(
            self._prompt(task),
            self._offer,
            self._tools.episode(),
            self._show,
            lambda text: self._style.answered(text, task),
            max_calls=config.max_calls,
            max_reply_tokens=config.max_reply_tokens,
        )

    @cached_property
    def _offer(self) -> ToolOffer:
        if self._config.protocol == "native":
            return ToolOffer(schemas=self._tools.texts)
        return ToolOffer(schemas=self._tools.texts, form=HERMES.name)

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        custom = self._config.instruction
        instruction = self._style.instruction if custom is None else custom
        content = "\n".join(part for part in (task.question, instruction) if part)
        question = Message(role="user", content=content)
        turns = _row_turns(task)
        if self._config.protocol == "native" or not self._tools.schemas:
            return (*turns, question)
        offered = Message(role="system", content=HERMES_SYSTEM.format(tools="\n".join(self._tools.texts)))
        return prepend_turns(turns, (offered, question))

    def _show(self, call: ToolCall, result: str) -> Message:
        """The message that answers a call."""
        if self._config.protocol == "native":
            return Message(role="tool", content=result, tool=call.name or "unknown", call_id=call.call_id)
        return Message(role="user", content=f"{RESULT_OPEN}{result}{RESULT_CLOSE}")

    # -- demonstrations --------------------------------------------------------------------------------------------

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How a made-up errand is run; in a share `demo_error_rate` of the seeds with a tool that does not fit, or, of
        the kind `both`, with a price that stands for the sum. Results are always true, and the answer copies the last
        one. Of a task from a file it is the record's `messages` after the question, with `tool_calls`.

        Raises BadInput for a task that cannot be shown.
        """
        if "messages" in task.record:
            return Demonstration(task=task, messages=(*self._prompt(task), *self._recorded(task)))
        errand = errands.errand_of_task(task)
        rng = self._config.drawn_for(task, seed)
        wrong = rng.random() < self._config.demo_error_rate
        messages = list(self._run_errand(errand, wrong, rng))
        return Demonstration(task=task, messages=(*self._prompt(task), *messages))

    def _run_errand(self, errand: errands.Errand, wrong: bool, rng: Random) -> Sequence[Message]:
        names = {schema["function"]["name"] for schema in self._tools.schemas}
        missing = [name for name in errands.TOOLS if name not in names]
        require(
            not missing, "env.tools", sorted(names), f"made-up errands take {', '.join(errands.TOOLS)}; or env.data"
        )
        right = errands.right_tool(errand)
        tool = rng.choice([name for name in errands.TOOLS if name != right]) if wrong else right
        is_both = errand.kind == "both"
        if is_both and wrong:
            tool = right
        messages, results = self._round(errands.first_calls(errand, tool), 0)
        if is_both and not wrong:
            added, results = self._round((errands.sum_call(*results),), len(results))
            messages += added
        answer = results[0].removesuffix(".").rpartition(" in ")[2] if tool == "search" else results[0]
        return [*messages, Message(role="assistant", content=self.write_answer(answer))]

    def _round(self, calls: Sequence[ToolCall], before: int) -> tuple[list[Message], list[str]]:
        """A message with calls and their results, and the results."""
        numbered_calls = [replace(call, call_id=f"{before + at:09d}") for at, call in enumerate(calls)]
        results = [self._result_of(call) for call in numbered_calls]
        message = self._call(Message(role="assistant", content="", calls=tuple(numbered_calls)))
        return [message, *map(self._show, numbered_calls, results)], results

    def _call(self, message: Message) -> Message:
        """A message with calls, as the protocol writes it."""
        if self._config.protocol == "native":
            return message
        return replace(message, content=HERMES.write(message.content, message.calls), calls=())

    def _result_of(self, call: ToolCall) -> str:
        """What the tools themselves would say."""
        if call.name == "price":
            return errands.price(str(call.arguments["item"]))
        if call.name == "python":
            return errands.expected_output(str(call.arguments["code"]))
        return show_documents(self._local(str(call.arguments["query"])))

    @cached_property
    def _local(self) -> LocalSearch:
        return LocalSearch(self._config.retriever.options, errands.documents, self._config.topk)

    def _recorded(self, task: Task) -> tuple[Message, ...]:
        messages = task.record["messages"]
        if not isinstance(messages, list):
            raise BadInput('"messages" is no list', where=task.task_id)
        turns = read_messages(messages, f"{task.task_id}: messages", ("assistant", "user", "tool", "system"))
        turns = turns[question_index(messages, task.question) + 1 :]
        require_learnable(turns, task.task_id)
        for called in (call for turn in turns for call in turn.calls):
            offered = [schema["function"]["name"] for schema in self._tools.schemas]
            if called.name not in offered:
                one_of = f"one of {', '.join(offered) or 'none'}, the tools in env.tools"
                raise BadInput(where=task.task_id, key='"messages"', found=f"a call of {called.name}", expected=one_of)
        if self._config.protocol == "native":
            return tuple(_with_short_ids(turns))
        rendered = (self._call(turn) if turn.calls else turn for turn in turns)
        return tuple(self._show(ToolCall(name=""), turn.content) if turn.role == "tool" else turn for turn in rendered)

    def texts_of(self, task: Task) -> list[str]:
        """What a tokenizer is trained on: the tools, and calls as the policy built from nothing writes them."""
        try:
            turns = self.demonstration(task, 0).messages
        except BadInput:
            return [*super().texts_of(task), *self._tools.texts]
        written = [HERMES.write(turn.content, turn.calls) if turn.calls else turn.content for turn in turns]
        return [*written, *self._tools.texts]

    # -- servers and processes -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        self._tools.prepare()

    def check_service(self) -> None:
        check_files(self._config.retriever)

    def start_service(self, *, host: str, port: int, token: str) -> Service:
        documents = errands.documents() if self._config.data is None else None
        return start_server(self._config.retriever, documents, host=host, port=port, token=token)

    def connect(self, url: str, token: str) -> None:
        self._search.connect(url, token)

    def tool_stats(self) -> Mapping[str, ToolStats]:
        return self._tools.stats()

    async def check(self) -> None:
        await self._tools.check()

    async def close(self) -> None:
        await self._tools.close()


def _row_turns(task: Task) -> tuple[Message, ...]:
    return turns_before(task, shown=True)


def _with_short_ids(messages: Sequence[Message]) -> Iterator[Message]:
    """Every call with an id that any chat template takes, and its result with the same one."""
    ids: dict[str, str] = {}
    for message in messages:
        for call in message.calls:
            ids.setdefault(call.call_id, call.call_id if CALL_ID.fullmatch(call.call_id) else f"{len(ids):09d}")
        calls = tuple(replace(call, call_id=ids[call.call_id]) for call in message.calls)
        yield replace(message, calls=calls, call_id=ids.get(message.call_id, message.call_id))
