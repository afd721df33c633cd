"""Graph problems in words (Graph-RL's synthetic tasks): is there a path, and which one is the shortest?

One message solves a problem: `<think>...</think><response>steps</response><answer>...</answer>`. Problems are generated
(`envs.problems.graphs.generate`) or read from files (`envs.problems.graphs.read`); wordings and solutions are NLGift's.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Optional

from envs.base import Demonstration, Step
from envs.problems.graphs.encodings import Encoding, wording
from envs.problems.graphs.generate import generate
from envs.problems.graphs.oracle import truth
from envs.problems.graphs.problem import Problem, from_record, to_record
from envs.problems.graphs.read import read_problems
from envs.problems.graphs.solution import NLGIFT_PATHS, solve, spoil
from envs.protocols.graph_rl import GRAPH_RL, TAGS
from envs.protocols.record import Malformed
from envs.tasks.splits import Split, split_tasks
from rlsys.errors import BadInput, require
from rlsys.seeds import derive
from rlsys.types import EpisodeEnd, Message, Task

INSTRUCTION = (
    "Reply in three parts: <think>how you search</think><response>one sentence for each step, like "
    '"5 is connected to 1." or "5 -> 1 -> 6 with a total weight of 2 + 3 = 5."</response><answer>yes or no; or the '
    'shortest path and its length, like "The shortest path is 5->1->6. The length of shortest path is 5."</answer>'
)


@dataclass(frozen=True, kw_only=True)
class GraphConfig:
    name: str = "graph"
    data: Optional[str] = None
    """Training problems: JSON lines of task records, of NLGift's raw graphs or of its messages; null generates them."""
    eval_data: Optional[str] = None
    """Held-out problems in the same formats, all used; null holds out from `data`, half of it at most, or generates."""
    train_tasks: int = 4096
    """Generated training problems; a `data` file is used whole."""
    held_out_tasks: int = 256
    """Generated, or taken out of `data` in a seeded hash order."""
    seed: int = 0
    """Of the generated problems, of the split of `data` and of the demonstrations."""
    shortest_path_share: float = 0.5
    """Of generated problems; the others ask for connectivity, half of them with the answer yes."""
    connectivity_nodes: tuple[int, int] = (4, 8)
    """Smallest and largest generated graph; NLGift has 5 to 35."""
    path_nodes: tuple[int, int] = (4, 8)
    """The same for shortest paths; NLGift has 5 to 20."""
    encoding: Encoding = "incident"
    """The wording: the paper trains on `incident`."""
    instruction: str = INSTRUCTION
    """After the question; may be empty. The paper asks for the three parts, but does not print how."""
    system: str = ""
    """A system message; empty for none: some chat templates have no system role."""
    demo_error_rate: float = 0.0
    """Share of demonstrations with a mistake: a wrong answer, path, sum or weight, or an edge that does not exist."""
    demo_paths: int = NLGIFT_PATHS
    """Paths that a demonstrated search for the shortest one looks at, at most."""

    def __post_init__(self) -> None:
        require(self.train_tasks >= 1, "env.train_tasks", self.train_tasks, "at least 1")
        require(self.held_out_tasks >= 1, "env.held_out_tasks", self.held_out_tasks, "at least 1")
        share = self.shortest_path_share
        require(0 <= share <= 1, "env.shortest_path_share", share, "between 0 and 1")
        for key in ("connectivity_nodes", "path_nodes"):
            low, high = getattr(self, key)
            require(
                3 <= low <= high <= 100, f"env.{key}", (low, high), "two sizes from 3 to 100, the smaller one first"
            )
        require(0 <= self.demo_error_rate <= 1, "env.demo_error_rate", self.demo_error_rate, "between 0 and 1")
        require(self.demo_paths >= 1, "env.demo_paths", self.demo_paths, "at least 1")


class GraphEnv:
    """One episode of one message."""

    stop_strings: Sequence[str] = GRAPH_RL.stop

    def __init__(self, prompt: tuple[Message, ...]) -> None:
        self._prompt = prompt

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        malformed = isinstance(GRAPH_RL.parse(text), Malformed)
        return Step(end=EpisodeEnd.MALFORMED if malformed else EpisodeEnd.ANSWERED)


class GraphWorld:
    """Raises BadInput when a file of its config is missing or holds a malformed record."""

    tags: Sequence[str] = TAGS
    max_turns = 1

    def __init__(self, config: GraphConfig) -> None:
        self._config = config
        split = split_tasks(
            data=config.data,
            eval_data=config.eval_data,
            held_out_tasks=config.held_out_tasks,
            seed=config.seed,
            read=partial(_read, config),
            generate=partial(_generate, config),
        )
        # The same graph with another question would tell the answer: graphs, not questions, are kept apart.
        held_out = {_problem(task).digest for task in split.held_out}
        train = tuple(task for task in split.train if _problem(task).digest not in held_out)
        if not train:
            raise BadInput(f"{config.data}: every graph is also held out: nothing is left to train on")
        self._split = Split(train=train, held_out=split.held_out)

    def tasks(self, split: str) -> Sequence[Task]:
        return self._split.tasks(split)

    def env(self, task: Task) -> GraphEnv:
        return GraphEnv(self._prompt(task))

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """NLGift's solution in the three parts; in a share `demo_error_rate` of the seeds one with a mistake."""
        config = self._config
        rng = random.Random(derive("demonstration", config.seed, task.task_id, seed))
        show = spoil if rng.random() < config.demo_error_rate else solve
        shown = show(_problem(task), config.encoding, rng, num_paths=config.demo_paths)
        reply = Message(role="assistant", content=shown.text())
        return Demonstration(task=task, messages=(*self._prompt(task), reply))

    def texts(self, limit: int) -> Iterator[str]:
        """At most `limit` texts of the training tasks, for a tokenizer: prompts and solutions."""
        texts = (each.content for task in self._split.train for each in self.demonstration(task, 0).messages)
        return islice(texts, limit)

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        question = wording(_problem(task), self._config.encoding, self._config.instruction)
        user = Message(role="user", content=question)
        return (Message(role="system", content=self._config.system), user) if self._config.system else (user,)


def _read(config: GraphConfig, path: str) -> list[Task]:
    name = os.path.basename(path)
    return [_task(problem, config, f"{name}:{number}") for number, problem in read_problems(path)]


def _generate(config: GraphConfig, held_out: bool) -> list[Task]:
    problems = generate(
        config.held_out_tasks if held_out else config.train_tasks,
        config.seed,
        shortest_path_share=config.shortest_path_share,
        connectivity_nodes=config.connectivity_nodes,
        path_nodes=config.path_nodes,
        held_out=held_out,
    )
    return [_task(problem, config) for problem in problems]


def _task(problem: Problem, config: GraphConfig, task_id: str | None = None) -> Task:
    question = wording(problem, config.encoding)
    digest = hashlib.blake2b(question.encode(), digest_size=6).hexdigest()
    return Task(
        task_id=task_id or f"graph-{digest}",
        question=question,
        answers=(truth(problem),),
        record=to_record(problem) | {"encoding": config.encoding},
    )


def _problem(task: Task) -> Problem:
    return from_record(task.record, f"task {task.task_id}")
