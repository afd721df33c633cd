"""Question answering with search, in the protocol that the config names (`envs.protocols`).

The retriever is a server: one that runs already (`retriever.url`), or one that the driver starts from
`retriever.corpus` and keeps alive. Or it is the live web (`retriever.kind: web`). Without data, questions and passages
are made up.

With the protocols of `PROMPTED` the environment decides what is searched, whatever the policy writes. RAG searches the
question before the first message. IRCoT does too, and then continues like a protocol with a tool. Iter-RetGen keeps
searching, with the question and the policy's last message, and each time starts a new context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from envs.base import Demonstration, Env, Service, Step, World
from envs.episode import ToolEpisode, max_turns
from envs.protocols import PROTOCOLS, Answer, Asked, Protocol
from envs.protocols.record import without_tool
from envs.protocols.retrieval import ITER_RETGEN, PROMPTED
from envs.tasks.conversation import turns_before
from envs.tasks.prompts import ExampleLayout, layout_texts, make_examples
from envs.tasks.splits import split_tasks
from envs.tools.search import WEB, SearchTool, check_files, service_name, start_server, token_of
from envs.worlds.search_config import SearchQAConfig
from envs.worlds.search_made_up import MadeUpQuestions
from rlsys.errors import BadInput
from rlsys.types import EpisodeEnd, Message, Task

Prompt = tuple[Message, ...]
Search = Callable[[str], Awaitable[str]]


def with_passages(inputs: Asked, passages: str) -> Asked:
    """The same prompt with passages between instruction and question."""
    return replace(inputs, instruction="\n\n".join(part for part in (inputs.instruction, passages) if part))


async def open_prompted_episode(protocol: Protocol, inputs: Asked, search: Search) -> Env:
    """An episode of a protocol in PROMPTED."""

    async def retrieve(query: str) -> Prompt:
        return protocol.first_messages(with_passages(inputs, await search(query)))

    prompt = await retrieve(inputs.question)
    if protocol.name == ITER_RETGEN.name:
        return IterRetGenEpisode(prompt, protocol, lambda text: retrieve(" ".join(f"{inputs.question} {text}".split())))
    return ToolEpisode(prompt, protocol, search)


class IterRetGenEpisode:
    """Each message but the last is searched with the question, and what is found is the prompt of a new context."""

    def __init__(self, prompt: Prompt, protocol: Protocol, search_again: Callable[[str], Awaitable[Prompt]]) -> None:
        self.stop_strings: Sequence[str] = protocol.stop
        self._prompt, self._protocol, self._search_again = prompt, protocol, search_again

    def first_messages(self) -> Prompt:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        if turns_left <= 0:
            answered = isinstance(self._protocol.parse(text), Answer)
            return Step(end=EpisodeEnd.ANSWERED if answered else EpisodeEnd.MALFORMED)
        for tag in self._protocol.tags:
            text = text.replace(tag, " ")
        prompt = await self._search_again(text)
        return Step(reply=prompt if len(prompt) > 1 else prompt[0], reset_context=True)


class SearchQAWorld(World):
    def __init__(self, config: SearchQAConfig) -> None:
        self._config = config
        protocol = PROTOCOLS[config.protocol]
        self._protocol = protocol if config.tools else without_tool(protocol)
        if config.max_reply_tokens is not None:
            self._protocol = replace(self._protocol, max_reply_tokens=config.max_reply_tokens)
        self.write_answer = self._protocol.write_answer
        self.max_turns = max_turns(self._protocol, config.max_turns if config.tools else None)
        notices = self._protocol.inline.notices if self._protocol.inline is not None else ()
        # ICRL's stages show examples after a tokenizer is trained by prompts without them.
        framed = layout_texts(config.demonstrations) if config.demonstrations.count or protocol.name == "icrl" else ()
        spoken = [self._protocol, *(PROTOCOLS[name] for name in config.demo_protocols)]
        tags = [tag for protocol in spoken for tag in protocol.tags]
        self.tags = tuple(dict.fromkeys([*tags, *framed, *(notice.strip() for notice in notices)]))
        self._topk = config.topk or self._protocol.topk or 1
        self._retriever = SearchTool(config.retriever, self._topk)
        self.reply_s = max(self.reply_s, config.retriever.guard.deadline_s)
        if config.tools and self._protocol.topk:
            self._choose_retriever()
        self._made_up = MadeUpQuestions(config, self._protocol, self._topk)
        self.split = split_tasks(
            config, make=self._made_up.tasks, check=turns_before if config.template == "instruct" else None
        )
        self._examples = make_examples(config.demonstrations, self._made_up.examples())

    def _choose_retriever(self) -> None:
        config, retriever = self._config, self._config.retriever
        self.tool = self._retriever
        if retriever.kind == WEB:
            self._retriever.connect_web()
        elif retriever.url is not None:
            self._retriever.connect(retriever.url, token_of(retriever.token_env))
        else:
            corpus_key = (config.knowledge.entities, config.seed)
            self.service = service_name(corpus_key if config.data is None else retriever.corpus, retriever.options)
            self.service_gpus = retriever.gpus
            self.service_threads = retriever.cpus

    def env(self, task: Task) -> ToolEpisode:
        return self._episode(self._protocol, task)

    async def open_env(self, task: Task) -> Env:
        if self._protocol.name in PROMPTED:
            return await open_prompted_episode(self._protocol, self._asked(self._protocol, task), self._search)
        return self.env(task)

    def _episode(self, protocol: Protocol, task: Task) -> ToolEpisode:
        return ToolEpisode(protocol.first_messages(self._asked(protocol, task)), protocol, self._search)

    async def _search(self, query: str) -> str:
        searches = [self._retriever.search(subquery) for subquery in self._protocol.queries(query)]
        return "\n".join(map(self._protocol.show, await asyncio.gather(*searches)))

    def _asked(self, protocol: Protocol, task: Task, examples: ExampleLayout | None = None) -> Asked:
        config, raw = self._config, self._config.template == "base"
        default = (protocol.base_instruction if raw else None) or protocol.instruction
        instruction = default if config.instruction is None else config.instruction
        calls = str(config.max_turns - 1 if config.max_turns is not None else protocol.calls)
        instruction = instruction.replace("{calls}", calls)
        layout = self._examples if examples is None else examples
        return Asked(
            question=task.question,
            instruction=instruction,
            examples=layout,
            raw=raw,
            before=turns_before(task),
        )

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How a made-up question is answered, with a mistake in a share `demo_error_rate` of the seeds.

        Of a task from a file only the answer is known, which is a whole demonstration in the protocol `direct` and no
        other: for the others it raises BadInput.
        """
        if self._config.data is not None:
            return self._answer_at_once(task)
        rng, rates = self._config.drawn_for(task, seed), self._config.follow_rates
        if rates is not None:
            examples, turns = self._made_up.following(task, rates, rng)
            prompt = self._protocol.first_messages(self._asked(self._protocol, task, examples))
            return Demonstration(task=task, messages=(*prompt, *turns))
        protocol = self._made_up.protocol(rng)
        inputs = self._asked(protocol, task)
        if protocol.name in PROMPTED:
            inputs = with_passages(inputs, protocol.show(self._made_up.search(task.question)))
        turns = self._made_up.write_episode(protocol, task, rng)
        env = self._episode(protocol, task) if self._config.demo_protocols else None
        return Demonstration(task=task, messages=(*protocol.first_messages(inputs), *turns), env=env)

    def _answer_at_once(self, task: Task) -> Demonstration:
        protocol = self._protocol
        if protocol.topk != 0 or protocol.thinks:
            raise BadInput("no demonstration: only made-up questions have one", where=task.task_id)
        if not task.answers:
            raise BadInput("no demonstration: the task has no answer", where=task.task_id)
        answer = Message(role="assistant", content=protocol.write_answer(task.answers[0]))
        return Demonstration(task=task, messages=(*protocol.first_messages(self._asked(protocol, task)), answer))

    def check_service(self) -> None:
        check_files(self._config.retriever)

    def start_service(self, *, host: str, port: int, token: str) -> Service:
        documents = self._made_up.documents if self._config.data is None else None
        return start_server(self._config.retriever, documents, host=host, port=port, token=token)

    def connect(self, url: str, token: str) -> None:
        self._retriever.connect(url, token)
