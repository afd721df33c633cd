"""Question answering with search, in the protocol that the config names (`envs.protocols`).

The retriever is a server: one that runs already (`retriever.url`), or one that the driver starts from
`retriever.corpus` and keeps alive. Or it is the live web (`retriever.kind: web`). Without data, questions and passages
are made up (`envs.problems.knowledge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, Optional

from envs.base import Demonstration, Service, World
from envs.episode import ToolEpisode, max_turns
from envs.problems.knowledge import KnowledgeConfig, MadeUp, at_once, episode, flawed, made_up, of_task, to_task
from envs.protocols import PROTOCOLS, Asked
from envs.protocols.bare import check_bare, without_tool
from envs.tasks.config import TaskConfig
from envs.tasks.few_shot import ExamplesConfig, examples_of
from envs.tasks.splits import split_tasks
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
from rlsys.types import Message, Task


@dataclass(frozen=True, kw_only=True)
class SearchQAConfig(TaskConfig):
    has_tool: ClassVar[bool] = True
    name: str = "search_qa"
    protocol: str = "research"
    """One that searches: swirl, research or icrl."""
    template: Literal["base", "instruct"] = "instruct"
    """base: one text without a chat template (research, icrl)."""
    train_tasks: int = 2048
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    """What is made up."""
    max_turns: Optional[int] = None
    """Messages per episode; null: swirl 6, icrl 7 (the searches and the answer), research as many as the tokens allow.
    swirl grants one more where the last of them is a search: it is told to answer."""
    topk: Optional[int] = None
    """Passages per search; null: swirl 1, research 5, icrl 3."""
    max_reply_tokens: Optional[int] = None
    """Longer results are cut; null: icrl 500, the others never."""
    instruction: Optional[str] = None
    """In front of every question; `{calls}` becomes the number of searches; null is the protocol's, "" none."""
    demonstrations: ExamplesConfig = field(default_factory=ExamplesConfig)
    """In the prompt (icrl)."""
    retriever: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        searching = [name for name, protocol in PROTOCOLS.items() if protocol.topk]
        require(self.protocol in searching, "env.protocol", self.protocol, f"one of {', '.join(searching)}")
        require_bounds(self, "env.", "at least 1, or null", "max_turns", "max_reply_tokens")
        require(self.topk is None or 1 <= self.topk <= MAX_TOPK, "env.topk", self.topk, f"1 to {MAX_TOPK}, or null")
        allowed = self.template == "instruct" or PROTOCOLS[self.protocol].base_instruction is not None
        require(allowed, "env.template", self.template, f"instruct: protocol={self.protocol} is a chat")
        shown, corpus, made = self.demonstrations, self.retriever.corpus, self.data is None
        plain = shown.count == 0 or PROTOCOLS[self.protocol].shows_examples
        require(plain, "env.demonstrations.count", shown.count, f"0: {self.protocol} shows no examples in its prompt")
        require(corpus is None or not made, "env.retriever.corpus", corpus, "null, or questions about it in env.data")
        require(self.eval_data is None or not made, "env.eval_data", self.eval_data, "null, or env.data too")
        web = self.retriever.kind == WEB
        require(not (made and web), "env.retriever.kind", WEB, "a retriever of ours: made-up questions are on no web")
        found = not self.tools or made or corpus is not None or self.retriever.url is not None or web
        ways = "passages for the questions of env.data, or retriever.url, or retriever.kind=web"
        require(found, "env.retriever.corpus", corpus, ways)
        written = made or shown.count == 0 or shown.file is not None
        require(written, "env.demonstrations.file", shown.file, "a file: examples are written for made-up questions")
        if not self.tools:
            check_bare(PROTOCOLS[self.protocol], self.instruction, shown.count)

    @property
    def protocol_name(self) -> str:
        return self.protocol


class SearchQAWorld(World):
    def __init__(self, config: SearchQAConfig) -> None:
        self._config = config
        protocol = PROTOCOLS[config.protocol]
        self._protocol = protocol if config.tools else without_tool(protocol)
        if config.max_reply_tokens is not None:
            self._protocol = replace(self._protocol, max_reply_tokens=config.max_reply_tokens)
        self.write_answer = self._protocol.write_answer
        self.max_turns = max_turns(self._protocol, config.max_turns if config.tools else None)
        self.tags = self._protocol.tags
        self._topk = config.topk or self._protocol.topk
        self._retriever = SearchTool(config.retriever, self._topk)
        if config.tools:
            self._choose_retriever()
        self.split = split_tasks(config, make=self._make)
        self._examples = examples_of(config.demonstrations, self._solved())

    def _choose_retriever(self) -> None:
        config, retriever = self._config, self._config.retriever
        self.tool = self._retriever
        if retriever.kind == WEB:
            self._retriever.connect_web()
        elif retriever.url is not None:
            self._retriever.connect(retriever.url, token_of(retriever.token_env))
        else:
            made = (config.knowledge.entities, config.seed)
            self.service = service_name(made if config.data is None else retriever.corpus, retriever.options)
            self.service_gpus = retriever.gpus

    @cached_property
    def _made_up(self) -> MadeUp:
        return made_up(self._config.knowledge, self._config.seed)

    @cached_property
    def _local(self) -> LocalSearch:
        """What demonstrations of made-up questions read."""
        return LocalSearch(self._config.retriever.options, lambda: self._made_up.base.documents, self._topk)

    def _make(self, count: int, held_out: bool) -> Iterable[Task]:
        found = self._made_up.held_out if held_out else self._made_up.train
        most = f"at most {len(found)}: knowledge.entities={self._config.knowledge.entities} gives no more"
        require(count <= len(found), f"env.{'held_out' if held_out else 'train'}_tasks", count, most)
        return map(to_task, found[:count])

    def _solved(self) -> Iterator[tuple[str, list[Message]]]:
        for question in self._made_up.examples:
            yield question.text, episode(question, self._protocol, self._local, None)

    def env(self, task: Task) -> ToolEpisode:
        return ToolEpisode(self._prompt(task), self._protocol, self._search)

    async def _search(self, query: str) -> str:
        return self._protocol.show(await self._retriever.search(query))

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        config, protocol, raw = self._config, self._protocol, self._config.template == "base"
        default = (protocol.base_instruction if raw else None) or protocol.instruction
        instruction = default if config.instruction is None else config.instruction
        calls = str(config.max_turns - 1 if config.max_turns is not None else protocol.calls)
        instruction = instruction.replace("{calls}", calls)
        asked = Asked(question=task.question, instruction=instruction, examples=self._examples, raw=raw)
        return protocol.prompt(asked)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How a made-up question is answered, with a mistake in a share `demo_error_rate` of the seeds.

        What it reads, the real retriever finds; without the tool it answers at once, and a mistake is another name of
        the same kind. Raises BadInput for a task from a file: nobody knows how to solve it.
        """
        if self._config.data is not None:
            raise BadInput(f"{task.task_id}: no demonstration: only made-up questions have one")
        question, rate, turns = of_task(task), self._config.demo_error_rate, self._config.max_turns
        again = self._protocol.malformed is not None and rate > 0  # a malformed call, made again
        enough = len(question.relations) + 1 + again if self._config.tools else 1
        require(turns is None or enough <= turns, "env.max_turns", turns, f"at least {enough} to show a solution")
        rng = self._config.drawn_for(task, seed)
        wrong = rng.random() < rate
        if not self._config.tools:
            said = at_once(question, self._made_up.base, self._protocol, rng if wrong else None)
        elif wrong:
            said = flawed(question, self._made_up.base, self._protocol, self._local, rng)
        else:
            said = episode(question, self._protocol, self._local, None)
        return Demonstration(task=task, messages=(*self._prompt(task), *said))

    def check_service(self) -> None:
        check_files(self._config.retriever)

    def start_service(self, *, host: str, port: int, token: str) -> Service:
        documents = self._made_up.base.documents if self._config.data is None else None
        return start_server(self._config.retriever, documents, host=host, port=port, token=token)

    def connect(self, url: str, token: str) -> None:
        self._retriever.connect(url, token)
