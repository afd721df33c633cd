"""Graph problems in words (Graph-RL's synthetic tasks): is there a path, and which one is the shortest?

One message solves a problem: `<think>...</think><response>steps</response><answer>...</answer>`. Problems are made up
(`graphs/generate.py`) or read (`graphs/read.py`); wordings and solutions are NLGift's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Optional

from envs.base import Demonstration, World
from envs.episode import OneMessage
from envs.papers.graph_rl.graphs.encodings import Encoding, wording
from envs.papers.graph_rl.graphs.generate import generate
from envs.papers.graph_rl.graphs.read import problem_of_task, read_problems, to_task
from envs.papers.graph_rl.graphs.solution import NLGIFT_PATHS, Mistakes, solve, spoil
from envs.papers.graph_rl.protocol import GRAPH_RL
from envs.protocols import Answer
from envs.tasks.config import TaskConfig
from envs.tasks.splits import split_tasks
from rlsys.errors import require, require_bounds
from rlsys.types import Message, Task


@dataclass(frozen=True, kw_only=True)
class GraphConfig(TaskConfig):
    """Graph problems. `data` holds task records, NLGift's raw graphs, or its messages."""

    protocol_name: ClassVar[str] = GRAPH_RL.name
    name: str = "graph"
    demo_error_rate: float = 0.0
    shortest_path_share: float = 0.5
    """Share of made-up problems that ask for a shortest path. The others ask for connectivity, half of them with the
    answer yes."""
    connectivity_nodes: tuple[int, int] = (4, 8)
    """Number of nodes of the smallest and of the largest made-up connectivity problem; NLGift has 5 to 35."""
    path_nodes: tuple[int, int] = (4, 8)
    """Number of nodes of the smallest and of the largest made-up shortest-path problem; NLGift has 5 to 20."""
    min_hops: int = 1
    """Fewest edges between the two nodes of a made-up connectivity problem whose answer is yes. From 2 on no row of the
    prompt alone says yes."""
    path_hops: Optional[int] = None
    """Fewest edges between the two nodes of a made-up shortest-path problem. 1: an edge joins them, and another path
    too, so that three nodes are a triangle. null: as in NLGift, 2 in graphs of up to 10 nodes and 2 to 6 in larger
    ones."""
    node_labels: Optional[int] = None
    """Number of labels that each made-up graph draws its nodes' names from, such as 26 for the letters; a task's
    `num_nodes` is then this number. null: as many as it has nodes, the first ones."""
    encoding: Encoding = "incident"
    """Wording of the graph in the prompt: the paper trains on `incident`. letters: the same with letters as names, one
    token each for a policy from scratch."""
    instruction: str = GRAPH_RL.instruction
    """Text after the question; may be empty."""
    system: str = ""
    """System message of the prompt. Empty: none, because some chat templates have no system role."""
    demo_paths: int = NLGIFT_PATHS
    """Largest number of paths that a demonstrated search for a shortest path looks at."""
    demo_mistakes: Mistakes = "all"
    """Kind of the mistakes in demonstrations. all: drawn from those that the graph allows. shortcut: an edge between
    the two nodes themselves, where the graph has none; with it a right yes is shown by nothing. unused: that edge
    before the right steps of a right answer. misread: of a shortest path's two or more, one that is longer is listed
    with one weight too low, and the answer follows from that list: it is wrong where that path is then the shortest. Of
    connectivity, which has no weights, it is as all."""
    demo_think: Literal["none", "search"] = "search"
    """Text between <think> and </think> in a demonstration. none: nothing, as in NLGift's targets. search: the rows of
    the graph that lead to the steps, looked up one after the other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self, "env.", "between 0 and 1", "shortest_path_share")
        for key in ("connectivity_nodes", "path_nodes"):
            low, high = getattr(self, key)
            sizes = "two sizes from 3 to 100, the smaller one first"
            require(3 <= low <= high <= 100, f"env.{key}", (low, high), sizes)
        require_bounds(self, "env.", "at least 1", "demo_paths", "min_hops")
        require_bounds(self, "env.", "at least 1, or null", "path_hops")
        short = self.path_hops is None or (self.data is None and self.path_hops < self.path_nodes[0])
        few = f"below {self.path_nodes[0]}, the fewest of env.path_nodes, and made-up graphs; or null"
        require(short, "env.path_hops", self.path_hops, few)
        ways = self.demo_mistakes != "misread" or self.demo_paths > 1
        require(ways, "env.demo_paths", self.demo_paths, "2 or more with demo_mistakes=misread")
        most = max(self.connectivity_nodes[1], self.path_nodes[1])
        enough = self.node_labels is None or most <= self.node_labels <= 1000
        require(enough, "env.node_labels", self.node_labels, f"{most} (the most nodes) to 1000, or null")


class GraphWorld(World):
    tags = GRAPH_RL.tags

    def __init__(self, config: GraphConfig) -> None:
        self._config = config
        # The same graph with another question would tell the answer: graphs, not questions, are kept apart.
        self.split = split_tasks(
            config,
            make=self._generate_tasks,
            read=self._read,
            same=lambda task: problem_of_task(task).digest,
            what="graph",
        )

    def _read(self, source: str, **how: Any) -> list[Task]:
        problems = read_problems(source, **how)
        return [to_task(problem, self._config.encoding, task_id) for task_id, problem in problems]

    def _generate_tasks(self, count: int, held_out: bool) -> list[Task]:
        problems = generate(
            count,
            self._config.seed,
            shortest_path_share=self._config.shortest_path_share,
            connectivity_nodes=self._config.connectivity_nodes,
            path_nodes=self._config.path_nodes,
            min_hops=self._config.min_hops,
            path_hops=self._config.path_hops,
            labels=self._config.node_labels,
            held_out=held_out,
        )
        return [to_task(problem, self._config.encoding) for problem in problems]

    def level(self, task: Task) -> str:
        """Its kind and its size: "shortest_path 10+" has 10 to 14 nodes. With `node_labels`, those of the prompt count,
        and not all that there are to draw from."""
        problem = problem_of_task(task)
        nodes = {problem.source, problem.target}.union(*problem.edges)
        size = problem.num_nodes if self._config.node_labels is None else len(nodes)
        return f"{problem.kind.value} {size // 5 * 5}+"

    def env(self, task: Task) -> OneMessage:
        question = wording(problem_of_task(task), self._config.encoding, self._config.instruction)
        system = (Message(role="system", content=self._config.system),) if self._config.system else ()
        prompt = (*system, Message(role="user", content=question))
        return OneMessage(prompt, GRAPH_RL.stop, lambda text: isinstance(GRAPH_RL.parse(text), Answer))

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """NLGift's solution in the three parts; in a share `demo_error_rate` of the seeds one with a mistake."""
        config, rng = self._config, self._config.drawn_for(task, seed)
        problem, paths = problem_of_task(task), config.demo_paths
        if rng.random() < config.demo_error_rate:
            solution = spoil(problem, config.encoding, rng, num_paths=paths, mistakes=config.demo_mistakes)
        else:
            solution = solve(problem, config.encoding, rng, num_paths=paths)
        if config.demo_think == "none":
            solution = replace(solution, think="")
        reply = Message(role="assistant", content=solution.text())
        return Demonstration(task=task, messages=(*self.env(task).first_messages(), reply))
