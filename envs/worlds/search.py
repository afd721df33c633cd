"""Question answering with search, in the protocol that the config names (`envs.protocols`).

The retriever is a server: one that runs already (`retriever.url`), or one that the driver starts from
`retriever.corpus` and keeps alive. Or it is the live web (`retriever.kind: web`). Without data, questions and passages
are made up (`envs.problems.knowledge`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, Optional

from envs.base import Demonstration, Service, World
from envs.episode import ToolEpisode, max_turns
from envs.problems.knowledge import (
    KINDS,
    KnowledgeConfig,
    MadeUp,
    Question,
    at_once,
    episode,
    flawed,
    from_memory,
    made_up,
    of_task,
    to_task,
)
from envs.protocols import PROTOCOLS, Asked, Protocol
from envs.protocols.bare import check_bare, without_tool
from envs.tasks.config import TaskConfig
from envs.tasks.few_shot import ExamplesConfig, Shown, examples_of, frame
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
    """One that searches: swirl, research, icrl, o2_searcher. Or a baseline: direct, cot, rag, iter_retgen, ircot."""
    template: Literal["base", "instruct"] = "instruct"
    """base: one text without a chat template (not swirl, o2_searcher, ircot)."""
    train_tasks: int = 2048
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    """What is made up."""
    max_turns: Optional[int] = None
    """Messages per episode; null: swirl 6, icrl 7, o2_searcher 5 (the searches and the answer), research as many as the
    tokens allow, iter_retgen 3, ircot 9. swirl and ircot grant one more where the last is a search: told to answer."""
    topk: Optional[int] = None
    """Passages per search; null: swirl 1, icrl and o2_searcher 3, research and the baselines 5."""
    max_reply_tokens: Optional[int] = None
    """Longer results are cut; null: icrl 500, the others never. Passages in a prompt are not cut."""
    instruction: Optional[str] = None
    """In front of every question; `{calls}` becomes the number of searches; null is the protocol's, "" none."""
    demonstrations: ExamplesConfig = field(default_factory=ExamplesConfig)
    """In the prompt (icrl)."""
    demo_follow_rate: Optional[float] = None
    """Teaches a policy from nothing to go by examples: an sft stage shows prompts with 0 to `demonstrations.count` of
    them, which all search or all answer at once. Where they search, this share of the answers does so too; the others
    are guesses. null: every prompt has the same examples."""
    demo_protocols: dict[str, float] = field(default_factory=dict)
    """Protocols that made-up questions are demonstrated in, with the share of each: a policy from nothing is to know
    the baselines' forms too. {} is `protocol` alone."""
    demo_mistakes: Literal["all", "early"] = "all"
    """What goes wrong in the share `demo_error_rate`. early: always the answer of the first of two hops."""
    retriever: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        fitting = [name for name, protocol in PROTOCOLS.items() if protocol.topk is not None]
        require(self.protocol in fitting, "env.protocol", self.protocol, f"one of {', '.join(fitting)}")
        self._check_demonstrations(fitting)
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
        searching = self.tools and PROTOCOLS[self.protocol].topk
        found = not searching or made or corpus is not None or self.retriever.url is not None or web
        ways = "passages for the questions of env.data, or retriever.url, or retriever.kind=web"
        require(found, "env.retriever.corpus", corpus, ways)
        written = made or shown.count == 0 or shown.file is not None
        require(written, "env.demonstrations.file", shown.file, "a file: examples are written for made-up questions")
        require_bounds(self, "env.", "between 0 and 1, or null", "demo_follow_rate")
        follows = self.demo_follow_rate is None or (shown.count > 0 and shown.file is None)
        require(follows, "env.demo_follow_rate", self.demo_follow_rate, "null without made-up demonstrations to follow")
        if not self.tools:
            self._check_bare()

    def _check_bare(self) -> None:
        protocol = PROTOCOLS[self.protocol]
        calls = bool(protocol.topk) and not protocol.looks_up
        require(calls, "env.tools", False, f"true: in {self.protocol} the policy has no search to call")
        require(not self.demo_protocols, "env.demo_protocols", self.demo_protocols, "{} with env.tools=false")
        check_bare(protocol, self.instruction, self.demonstrations.count)

    def _check_demonstrations(self, fitting: Sequence[str]) -> None:
        for name, share in self.demo_protocols.items():
            require(name in fitting, "env.demo_protocols", name, f"of {', '.join(fitting)}")
            require(share > 0, f"env.demo_protocols.{name}", share, "a share above 0")
        two = self.demo_mistakes == "all" or self.knowledge.hops == 2
        require(two, "env.demo_mistakes", self.demo_mistakes, "all, with knowledge.hops=1: nothing is too early")

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
        said = self._protocol.inline.notices if self._protocol.inline is not None else ()
        framed = frame(config.demonstrations) if protocol.shows_examples else ()
        spoken = [self._protocol, *(PROTOCOLS[name] for name in config.demo_protocols)]
        tags = [tag for each in spoken for tag in each.tags]
        self.tags = tuple(dict.fromkeys([*tags, *framed, *(notice.strip() for notice in said)]))
        self._topk = config.topk or self._protocol.topk or 1
        self._retriever = SearchTool(config.retriever, self._topk)
        if config.tools and self._protocol.topk:
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
        return self._episode(self._protocol, task)

    def _episode(self, protocol: Protocol, task: Task) -> ToolEpisode:
        asked = self._asked(protocol, task)
        looked_up = asked if protocol.looks_up else None
        return ToolEpisode(protocol.prompt(asked), protocol, self._search, asked=looked_up)

    async def _search(self, query: str) -> str:
        searches = [self._retriever.search(each) for each in self._protocol.queries(query)]
        return "\n".join(map(self._protocol.show, await asyncio.gather(*searches)))

    def _asked(self, protocol: Protocol, task: Task, examples: Shown | None = None) -> Asked:
        config, raw = self._config, self._config.template == "base"
        default = (protocol.base_instruction if raw else None) or protocol.instruction
        instruction = default if config.instruction is None else config.instruction
        calls = str(config.max_turns - 1 if config.max_turns is not None else protocol.calls)
        instruction = instruction.replace("{calls}", calls)
        shown = self._examples if examples is None else examples
        return Asked(question=task.question, instruction=instruction, examples=shown, raw=raw)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How a made-up question is answered, with a mistake in a share `demo_error_rate` of the seeds.

        What it reads, the real retriever finds; without the tool it answers at once, and a mistake is another name of
        the same kind. Raises BadInput for a task from a file: nobody knows how to solve it.
        """
        if self._config.data is not None:
            raise BadInput(f"{task.task_id}: no demonstration: only made-up questions have one")
        rng = self._config.drawn_for(task, seed)
        if self._config.demo_follow_rate is not None:
            return self._following(task, self._config.demo_follow_rate, rng)
        protocol, shares = self._protocol, self._config.demo_protocols
        if shares:
            (name,) = rng.choices(list(shares), list(shares.values()))
            protocol = PROTOCOLS[name]
        asked = self._asked(protocol, task)
        if protocol.looks_up:
            asked = replace(asked, found=protocol.show(self._local(task.question)))
        said = self._said(protocol, of_task(task), rng)
        env = self._episode(protocol, task) if shares else None
        return Demonstration(task=task, messages=(*protocol.prompt(asked), *said), env=env)

    def _said(self, protocol: Protocol, question: Question, rng: random.Random) -> list[Message]:
        if protocol.again is not None:
            raise BadInput(f"{protocol.name} has no demonstration: the environment decides what is searched")
        rate, base = self._config.demo_error_rate, self._made_up.base
        if not self._config.tools:
            return at_once(question, base, protocol, rng if rng.random() < rate else None)
        if protocol.calls == 0:
            return from_memory(question, base, protocol)
        return self._searched(protocol, question, rng if rng.random() < rate else None)

    def _searched(self, protocol: Protocol, question: Question, mistake: random.Random | None) -> list[Message]:
        config, turns = self._config, self._config.max_turns
        again = protocol.malformed is not None and config.demo_error_rate > 0  # a malformed call, made again
        enough = len(question.relations) + 1 + again
        require(turns is None or enough <= turns, "env.max_turns", turns, f"at least {enough} to show a solution")
        if mistake is None:
            return episode(question, protocol, self._local, None)
        kinds = KINDS if config.demo_mistakes == "all" else (config.demo_mistakes,)
        return flawed(question, self._made_up.base, protocol, self._local, mistake, kinds)

    def _following(self, task: Task, rate: float, rng: random.Random) -> Demonstration:
        """Searches after some prompts whose examples do, and never else; a guess is always a wrong one."""
        config, base, protocol = self._config, self._made_up.base, self._protocol
        count, searches, follows = rng.randint(0, config.demonstrations.count), rng.random() < 0.5, rng.random() < rate
        others = [question for question in self._made_up.train if question.text != task.question]
        solved = (
            (other.text, self._searched(protocol, other, None) if searches else at_once(other, base, protocol, None))
            for other in rng.sample(others, count)
        )
        examples = examples_of(replace(config.demonstrations, count=count), solved)
        if count and searches and follows:
            mistake = rng if rng.random() < config.demo_error_rate else None
            said = self._searched(protocol, of_task(task), mistake)
        else:
            said = at_once(of_task(task), base, protocol, rng)
        return Demonstration(task=task, messages=(*protocol.prompt(self._asked(protocol, task, examples)), *said))

    def check_service(self) -> None:
        check_files(self._config.retriever)

    def start_service(self, *, host: str, port: int, token: str) -> Service:
        documents = self._made_up.base.documents if self._config.data is None else None
        return start_server(self._config.retriever, documents, host=host, port=port, token=token)

    def connect(self, url: str, token: str) -> None:
        self._retriever.connect(url, token)
