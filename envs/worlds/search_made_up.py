"""Made-up questions for search: tasks, the passages that answer them, and how they are answered, well or badly."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from envs.problems.knowledge import (
    KINDS,
    MadeUp,
    Question,
    episode,
    from_memory,
    generate_questions,
    question_of_task,
    to_task,
    write_direct_answer,
    write_flawed,
)
from envs.protocols import PROTOCOLS, Protocol
from envs.protocols.retrieval import ITER_RETGEN
from envs.services.retriever.corpus import Document
from envs.tasks.prompts import ExampleLayout, make_examples
from envs.tools.search import LocalSearch
from envs.worlds.search_config import SearchQAConfig
from rlsys.errors import BadInput, require
from rlsys.types import Message, Task


class MadeUpQuestions:
    """Nothing is made before it is asked for. What a demonstration reads, the real retriever finds."""

    def __init__(self, config: SearchQAConfig, protocol: Protocol, topk: int) -> None:
        self._config, self._protocol, self._topk = config, protocol, topk

    @cached_property
    def _made(self) -> MadeUp:
        return generate_questions(self._config.knowledge, self._config.seed)

    @cached_property
    def search(self) -> LocalSearch:
        """The retriever, in this process."""
        return LocalSearch(self._config.retriever.options, lambda: self.documents, self._topk)

    @property
    def documents(self) -> Sequence[Document]:
        return self._made.base.documents

    def tasks(self, count: int, held_out: bool) -> Iterable[Task]:
        questions = self._made.held_out if held_out else self._made.train
        most = f"at most {len(questions)}: knowledge.entities={self._config.knowledge.entities} gives no more"
        require(count <= len(questions), f"env.{'held_out' if held_out else 'train'}_tasks", count, most)
        return map(to_task, questions[:count])

    def examples(self) -> Iterator[tuple[str, list[Message]]]:
        """Separate questions with their answers, for prompts."""
        for question in self._made.examples:
            yield question.text, self._solved(question, searches=self._config.made_up_examples == "search")

    def _solved(self, question: Question, *, searches: bool) -> list[Message]:
        """As an example shows it."""
        if searches:
            return episode(question, self._protocol, self.search, None)
        return write_direct_answer(question, self._made.base, self._protocol, None)

    def protocol(self, rng: random.Random) -> Protocol:
        """One that a question is demonstrated in."""
        shares = self._config.demo_protocols
        return PROTOCOLS[rng.choices(list(shares), list(shares.values()))[0]] if shares else self._protocol

    def write_episode(self, protocol: Protocol, task: Task, rng: random.Random) -> list[Message]:
        """What the model says, with a mistake in a share `demo_error_rate`, and what the environment answers.

        Without the tool it answers at once, and a mistake is another name of the same kind. Raises BadInput for a
        protocol in which the environment decides what is searched.
        """
        if protocol.name == ITER_RETGEN.name:
            raise BadInput(f"{protocol.name} has no demonstration: the environment decides what is searched")
        mistake, question = self._mistake, question_of_task(task)
        if not self._config.tools:
            return write_direct_answer(question, self._made.base, protocol, mistake(rng))
        if protocol.calls == 0:
            return from_memory(question, self._made.base, protocol)
        return self._write_search(protocol, question, mistake(rng))

    def following(self, task: Task, rates: Sequence[float], rng: random.Random) -> tuple[ExampleLayout, list[Message]]:
        """Examples of a prompt, which all search or all do not, and an answer to `task`, which searches with the
        probability that `rates` has for so many examples of the kind that is asked for; a guess is always a wrong
        one."""
        config, base, protocol = self._config, self._made.base, self._protocol
        count, is_cue = rng.randint(0, config.demonstrations.count), rng.random() < 0.5
        follows = rng.random() < rates[count if is_cue else 0]
        searches = is_cue == (config.made_up_examples == "search")
        sample = rng.sample(self._made.train, count + 1)  # one more than needed: the task itself may be among them
        examples = [question for question in sample if question.text != task.question][:count]
        solved = ((question.text, self._solved(question, searches=searches)) for question in examples)
        layout = make_examples(replace(config.demonstrations, count=count), solved)
        if follows:
            return layout, self._write_search(protocol, question_of_task(task), self._mistake(rng))
        return layout, write_direct_answer(question_of_task(task), base, protocol, rng)

    def _mistake(self, rng: random.Random) -> random.Random | None:
        """What a mistake is drawn with; None: there is to be none."""
        return rng if rng.random() < self._config.demo_error_rate else None

    def _write_search(self, protocol: Protocol, question: Question, mistake: random.Random | None) -> list[Message]:
        config, turns = self._config, self._config.max_turns
        has_extra_turn = protocol.malformed is not None and config.demo_error_rate > 0  # a malformed call, made again
        enough = len(question.relations) + 1 + has_extra_turn
        require(turns is None or enough <= turns, "env.max_turns", turns, f"at least {enough} to show a solution")
        if mistake is None:
            return episode(question, protocol, self.search, None)
        kinds = KINDS if config.demo_mistakes == "all" else (config.demo_mistakes,)
        return write_flawed(question, self._made.base, protocol, self.search, mistake, kinds)
