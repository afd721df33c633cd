"""Word problems with a calculator (SWiRL's mathematics protocol).

The model writes `<math_exp>48 / 2</math_exp>`, the environment answers `48 / 2 -> 24.0`, and so on until the model
writes `<answer>24</answer>`. Tasks are made up (`envs.problems.word_problems`) or come from files and data sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Optional

from envs.base import Demonstration, World
from envs.episode import ToolEpisode, ToolError, max_turns, write_demonstration
from envs.problems.word_problems import generate, solution_steps, to_task
from envs.protocols import PROTOCOLS, Asked
from envs.protocols.record import check_bare, without_tool
from envs.tasks.config import TaskConfig
from envs.tasks.conversation import turns_before
from envs.tasks.splits import split_tasks
from envs.tools.calculator import calculate
from rlsys.errors import BadInput, require, require_bounds
from rlsys.types import Task

SWIRL_MATH = PROTOCOLS["swirl_math"]


@dataclass(frozen=True, kw_only=True)
class CalculatorConfig(TaskConfig):
    protocol_name: ClassVar[str] = SWIRL_MATH.name
    has_tool: ClassVar[bool] = True
    name: str = "calculator"
    max_turns: Optional[int] = None
    """Number of messages that the model may write, one per calculation and one for the answer. null: SWiRL's 11."""
    last_chance: bool = True
    """Whether a calculation in the last message is answered with a request for the answer and one more message
    (SWiRL)."""
    instruction: Optional[str] = None
    """Text before every question; `{calls}` becomes the number of calculations. null: the protocol's own. "": none."""
    demo_mistakes: Literal["all", "early"] = "all"
    """Kind of mistake in the share `demo_error_rate` of the demonstrations. early: always the answer of the first of
    two calculations; problems of one calculation are then solved rightly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self, "env.", "at least 1, or null", "max_turns")
        if not self.tools:
            check_bare(SWIRL_MATH, self.instruction)


class CalculatorWorld(World):
    tags = SWIRL_MATH.tags

    def __init__(self, config: CalculatorConfig) -> None:
        self._config = config
        protocol = SWIRL_MATH if config.tools else without_tool(SWIRL_MATH)
        self._protocol = protocol if config.last_chance else replace(protocol, over_limit=None)
        self.write_answer = self._protocol.write_answer
        self.max_turns = max_turns(self._protocol, config.max_turns if config.tools else None)
        self._calls = SWIRL_MATH.calls if config.max_turns is None else config.max_turns - 1
        self.split = split_tasks(
            config,
            make=lambda count, held_out: map(to_task, generate(count, config.seed, held_out=held_out)),
            check=turns_before,
        )

    def level(self, task: Task) -> str:
        """How many calculations a made-up problem takes."""
        return str(len(task.record["steps"])) if task.record.keys() == {"steps"} else super().level(task)

    def env(self, task: Task) -> ToolEpisode:
        custom = self._config.instruction
        instruction = (self._protocol.instruction if custom is None else custom).replace("{calls}", str(self._calls))
        inputs = Asked(question=task.question, instruction=instruction, before=turns_before(task))
        return ToolEpisode(self._protocol.first_messages(inputs), self._protocol, answer_call)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How the task is solved, with a mistake in a share `demo_error_rate` of the seeds where the task is made up.

        Tool replies are always true and the final answer copies the last of them, except for tasks from a file: their
        calculations are the `<<48/2=24>>` of the record and the answer is the record's. Raises BadInput without those.
        Without the tool it is the answer alone.
        """
        rng, early = self._config.drawn_for(task, seed), self._config.demo_mistakes == "early"
        steps = solution_steps(task, rng, self._config.demo_error_rate, early=early)
        calls: list[str] = []
        if self._config.tools:
            calls = annotated_calls(task) if steps is None else [expression for expression, _ in steps]
        final = task.answers[0] if steps is None else str(steps[-1][1])
        enough, turns = len(calls) + 1, self.max_turns - self._config.last_chance
        require(enough <= turns, "env.max_turns", turns, f"at least {enough} to solve {task.task_id}")
        messages = write_demonstration(self._protocol, [(call, calculate(call)) for call in calls], final)
        return Demonstration(task=task, messages=(*self.env(task).first_messages(), *messages))


def answer_call(expression: str) -> str | ToolError:
    """What a call is answered with: an expression that cannot be computed is none."""
    result = calculate(expression)
    return ToolError(result) if result.startswith("error") else result


def annotated_calls(task: Task) -> list[str]:
    """The calculations of a GSM8K solution: `<<48/2=24>>` gives `48/2`. Raises BadInput for a broken one, or none."""
    solution = str(task.record.get("answer", ""))
    calls: list[str] = []
    for piece in solution.split("<<")[1:]:
        expression, equals, rest = piece.partition("=")
        if not equals or ">>" not in rest or calculate(expression).startswith("error"):
            raise BadInput(f"<<{piece[:40]!r} is not a calculation", where=task.task_id, expected="<<48/2=24>>")
        calls.append(expression.strip())
    if not calls:
        raise BadInput('no calculations in "answer"', where=task.task_id, expected="<<48/2=24>> for an sft stage")
    return calls
