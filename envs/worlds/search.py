"""Question answering with search, in SWiRL's, ReSearch's or ICRL's protocol.

The retriever is a server: one that runs already (`retriever.url`), or one that the driver starts from
`retriever.corpus` and keeps alive. Without data, questions and passages are made up (`envs.problems.knowledge`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

from envs.base import Demonstration, Service, Step
from envs.problems.knowledge import KnowledgeBase, Question, knowledge_base, questions
from envs.protocols.record import Dialect
from envs.protocols.turns import max_turns, settle
from envs.services.stats import ToolStats
from envs.tasks.few_shot import read_examples, write_example
from envs.tasks.sources import read_source
from envs.tasks.splits import is_held_out, split_tasks
from envs.tools.search import LocalSearch, SearchTool, service_name, start_server, token_of
from envs.worlds.search_config import MAX_EXAMPLES, SearchQAConfig
from envs.worlds.search_demos import episode, flawed
from envs.worlds.search_protocols import PROTOCOLS, Asked, SearchProtocol
from rlsys.errors import BadInput, require
from rlsys.seeds import derive
from rlsys.types import Message, Task


class SearchEnv:
    """One episode: single use, holds the queries made so far."""

    def __init__(
        self, prompt: tuple[Message, ...], protocol: SearchProtocol, dialect: Dialect, tool: SearchTool
    ) -> None:
        self.stop_strings: Sequence[str] = dialect.stop
        self._prompt = prompt
        self._protocol = protocol
        self._dialect = dialect
        self._tool = tool
        self._queries: set[str] = set()

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        """What happens to each kind of message is the table of its dialect's file. Raises ToolFailed in an outage."""
        settled = settle(self._dialect, text, turns_left=turns_left)
        if isinstance(settled, Step):
            return settled
        query = settled.text
        repeated = query in self._queries
        self._queries.add(query)
        result = self._protocol.show(await self._tool.search(query)) if query else self._dialect.blank
        reply = self._dialect.reply(query, result)
        return Step(reply=reply, repeated=repeated, max_tokens=self._dialect.max_reply_tokens)


class SearchQAWorld:
    """Raises BadInput when a file of its config is missing or holds a malformed record."""

    def __init__(self, config: SearchQAConfig) -> None:
        self._config = config
        self._protocol = PROTOCOLS[config.protocol]
        self._dialect = self._protocol.dialect
        if config.max_reply_tokens is not None:
            self._dialect = replace(self._dialect, max_reply_tokens=config.max_reply_tokens)
        self.max_turns = max_turns(self._dialect, config.max_turns)
        self.tags: Sequence[str] = self._dialect.tags
        self.service = "" if config.retriever.url is not None else self._service_name()
        topk = config.topk or self._protocol.topk
        self._tool = SearchTool(config.retriever, topk)
        if config.retriever.url is not None:
            self._tool.connect(config.retriever.url, token_of(config.retriever.token_env))
        self._local = LocalSearch(config.retriever.options, lambda: self._base.documents, topk)
        splits = iter((config.data_split, config.eval_split))  # `data` is read first; both may name one data set
        self._split = split_tasks(
            data=config.data,
            eval_data=config.eval_data,
            held_out_tasks=config.held_out_tasks,
            seed=config.seed,
            read=lambda source: read_source(source, split=next(splits)),
            generate=self._generate,
        )
        self._examples = self._in_prompt()

    def tasks(self, split: str) -> Sequence[Task]:
        return self._split.tasks(split)

    def env(self, task: Task) -> SearchEnv:
        return SearchEnv(self._prompt(task), self._protocol, self._dialect, self._tool)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How a made-up question is answered, with a mistake in a share `demo_error_rate` of the seeds.

        What it reads, the real retriever finds. Raises BadInput for a task from a file: nobody knows how to solve it.
        """
        if self._config.data is not None:
            raise BadInput(f"{task.task_id}: no demonstration: only made-up questions have one")
        question = _question(task)
        turns, enough = self._config.max_turns, len(question.relations) + 1
        if self._dialect.malformed is not None and self._config.demo_error_rate > 0:
            enough += 1  # a malformed call, made again
        require(turns is None or enough <= turns, "env.max_turns", turns, f"at least {enough} to show a solution")
        rng = random.Random(derive("demonstration", self._config.seed, task.task_id, seed))
        if rng.random() < self._config.demo_error_rate:
            messages = flawed(question, self._base, self._protocol, self._local, rng)
        else:
            messages = episode(question, self._protocol, self._local, None)
        return Demonstration(task=task, messages=(*self._prompt(task), *messages))

    def texts(self, limit: int) -> Iterator[str]:
        """At most `limit` texts of the training tasks, for a tokenizer: prompts, searches, results and answers."""
        return islice((text for task in self._split.train for text in self._texts(task)), limit)

    def start_service(self, *, host: str, port: int, token: str) -> Service:
        documents = self._base.documents if self._config.data is None else None
        return start_server(self._config.retriever, documents, host=host, port=port, token=token)

    def connect(self, url: str, token: str) -> None:
        self._tool.connect(url, token)

    def tool_stats(self) -> Mapping[str, ToolStats]:
        return self._tool.stats()

    async def check(self) -> None:
        await self._tool.check()

    async def close(self) -> None:
        await self._tool.close()

    @cached_property
    def _base(self) -> KnowledgeBase:
        return knowledge_base(self._config.knowledge, self._config.seed)

    @cached_property
    def _made_up(self) -> tuple[list[Task], list[Task]]:
        """(for training, for holding out): decided by the question alone."""
        found = questions(self._base, self._config.knowledge.hops, self._config.seed)
        tasks = [_task(question) for question in found]
        return [t for t in tasks if not is_held_out(t.question)], [t for t in tasks if is_held_out(t.question)]

    def _generate(self, held_out: bool) -> Iterable[Task]:
        key = "held_out_tasks" if held_out else "train_tasks"
        tasks = self._made_up[1] if held_out else self._made_up[0][MAX_EXAMPLES:]
        count = getattr(self._config, key)
        entities = self._config.knowledge.entities
        enough = count <= len(tasks)
        require(enough, f"env.{key}", count, f"at most {len(tasks)}: knowledge.entities={entities} gives no more")
        return tasks[:count]

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        raw = self._config.template == "base"
        instruction = self._config.instruction
        if instruction is None:
            instruction = (self._protocol.base_instruction if raw else None) or self._protocol.instruction
        calls = self._config.max_turns - 1 if self._config.max_turns is not None else self._dialect.calls
        instruction = instruction.replace("{calls}", str(calls))
        return self._protocol.prompt(
            Asked(question=task.question, instruction=instruction, examples=self._examples, raw=raw)
        )

    def _in_prompt(self) -> tuple[str, ...]:
        """The solved problems in front of every question."""
        wanted = self._config.demonstrations
        if wanted.count == 0:
            return ()
        if wanted.file is not None:
            examples = read_examples(wanted.file)
            require(
                wanted.count <= len(examples),
                "env.demonstrations.count",
                wanted.count,
                f"at most {len(examples)}, as {wanted.file} has",
            )
            return examples[: wanted.count]
        solved = [_question(task) for task in self._made_up[0][: wanted.count]]
        return tuple(
            write_example(each.text, "".join(m.content for m in episode(each, self._protocol, self._local, None)))
            for each in solved
        )

    def _texts(self, task: Task) -> list[str]:
        if self._config.data is None:
            return [message.content for message in self.demonstration(task, 0).messages]
        answers = [self._dialect.write_answer(answer) for answer in task.answers]
        return [message.content for message in self._prompt(task)] + answers

    def _service_name(self) -> str:
        config = self._config
        passages = config.retriever.corpus if config.data is not None else (config.knowledge.entities, config.seed)
        return service_name(passages, config.retriever.options)


def _question(task: Task) -> Question:
    record = task.record
    return Question(start=str(record["start"]), relations=tuple(map(str, record["relations"])), answer=task.answers[0])


def _task(question: Question) -> Task:
    digest = hashlib.blake2b(question.text.encode(), digest_size=6).hexdigest()
    return Task(
        task_id=f"made-up-{digest}",
        question=question.text,
        answers=(question.answer,),
        record={"start": question.start, "relations": list(question.relations)},
    )
