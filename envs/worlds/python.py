"""Maths with Python, in ReTool's protocol (`envs.protocols.retool` has the table of endings).

The model writes code, its output comes back inside the model's own turn, and so on until it writes
`<answer>\\boxed{43}</answer>`. Tasks come from files and data sets (`envs.tasks.formats`) or are made up
(`envs.problems.word_problems`). The code runs in a sandbox (`envs.tools.sandbox`), never in this process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Optional

from envs.base import Demonstration, World
from envs.episode import ToolEpisode, ToolError, max_turns, write_demonstration
from envs.problems.word_problems import Steps, generate, program, solution_steps, to_task
from envs.protocols import Answer, Asked
from envs.protocols.record import check_bare, without_tool
from envs.protocols.retool import INTERPRETER, RETOOL
from envs.rewards.transcript import split_inline
from envs.tasks.config import TaskConfig
from envs.tasks.conversation import turns_before
from envs.tasks.prompts import MAX_EXAMPLES, ExamplesConfig, make_examples
from envs.tasks.splits import split_tasks
from envs.tools.python_tool import PythonTool
from envs.tools.sandbox import Outcome, SandboxConfig
from rlsys.errors import BadInput, require, require_bounds
from rlsys.seeds import derive_seed
from rlsys.types import Message, Task


@dataclass(frozen=True, kw_only=True)
class PythonMathConfig(TaskConfig):
    protocol_name: ClassVar[str] = RETOOL.name
    has_tool: ClassVar[bool] = True
    name: str = "python_math"
    demo_error_rate: float = 0.3
    max_turns: Optional[int] = None
    """Number of messages that the model may write, one per program and one for the answer. null: as many as the token
    limit allows."""
    max_reply_tokens: Optional[int] = None
    """Length limit of a program's output in the context, in tokens. Longer output is cut, its closing tag too. null:
    only `sandbox.output_kb` limits it."""
    instruction: Optional[str] = None
    """Text before every problem. null: the protocol's own. "": none."""
    demonstrations: ExamplesConfig = field(default_factory=ExamplesConfig)
    """Few-shot examples in the prompt (ICRL). Without a file they are made-up problems."""
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self, "env.", "at least 1, or null", "max_turns", "max_reply_tokens")
        layout = self.demonstrations.layout
        require(layout != "text", "env.demonstrations.layout", layout, "message or turns: this environment is a chat")
        if not self.tools:
            check_bare(RETOOL, self.instruction, self.demonstrations.count)


class PythonMathWorld(World):
    tags = (*RETOOL.tags, "```python", "```", "\\boxed{", "}")

    def __init__(self, config: PythonMathConfig) -> None:
        self._config = config
        protocol = RETOOL if config.tools else without_tool(RETOOL)
        self._protocol = replace(protocol, max_reply_tokens=config.max_reply_tokens)
        self.write_answer = self._protocol.write_answer
        self.max_turns = max_turns(self._protocol, config.max_turns if config.tools else None)
        # For examples in prompts: never trained on, never held out, whatever the stage's number of examples.
        self._aside = generate(MAX_EXAMPLES, derive_seed("examples", config.seed), held_out=False)
        self._examples = make_examples(
            config.demonstrations, ((problem.question, demonstrate(problem.steps)) for problem in self._aside)
        )
        self.split = split_tasks(config, make=self._generate_tasks, check=turns_before)
        self._python = PythonTool(config.sandbox)
        self.tool = self._python if config.tools else None

    def _generate_tasks(self, count: int, held_out: bool) -> list[Task]:
        aside = {problem.question for problem in self._aside}
        problems = generate(count + MAX_EXAMPLES, self._config.seed, held_out=held_out)
        return [to_task(problem) for problem in problems if problem.question not in aside][:count]

    def level(self, task: Task) -> str:
        """How many calculations a made-up problem takes."""
        return str(len(task.record["steps"])) if task.record.keys() == {"steps"} else super().level(task)

    def env(self, task: Task) -> ToolEpisode:
        custom = self._config.instruction
        instruction = self._protocol.instruction if custom is None else custom
        inputs = Asked(
            question=task.question, instruction=instruction, examples=self._examples, before=turns_before(task)
        )
        python = self._python.episode()

        async def run(code: str) -> str | ToolError:
            """Whatever the code does is a result. Raises ToolFailed when the sandbox is broken."""
            execution = await python.run(code)
            return execution.text if execution.outcome is Outcome.OK else ToolError(execution.text)

        return ToolEpisode(self._protocol.first_messages(inputs), self._protocol, run)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """A made-up problem solved by one `print`, in a share `demo_error_rate` of the seeds with a mistake.

        The output is always true, and the answer copies it. Of a task from a file it is the record's `response`, as its
        rollout would have gone. Raises BadInput without a usable one. Without the tool it is the answer alone.
        """
        steps = solution_steps(task, self._config.drawn_for(task, seed), self._config.demo_error_rate)
        if not self._config.tools:
            messages = write_demonstration(RETOOL, [], task.answers[0] if steps is None else str(steps[-1][1]))
        else:
            messages = split_recorded(task) if steps is None else demonstrate(steps)
        turns = (len(messages) + 1) // 2
        require(turns <= self.max_turns, "env.max_turns", self.max_turns, f"at least {turns} to solve {task.task_id}")
        return Demonstration(task=task, messages=(*self.env(task).first_messages(), *messages))


def demonstrate(steps: Steps) -> tuple[Message, ...]:
    result = str(steps[-1][1])
    return write_demonstration(RETOOL, [(program(steps), result)], result)


def split_recorded(task: Task) -> tuple[Message, ...]:
    """The record's `response`, cut into what the model wrote and the outputs. Raises BadInput without a usable one."""
    response = task.record.get("response")
    if not isinstance(response, str):
        raise BadInput('no "response" with code and outputs', where=task.task_id, expected="one for an sft stage")
    messages: list[Message] = []
    for message in split_inline(response.strip(), INTERPRETER):
        if message.role == "assistant":
            # Around an output the line breaks are the environment's: generation stopped at `</code>`.
            text = message.content.lstrip("\n") if messages else message.content
            messages.append(Message(role="assistant", content=text))
        else:
            output = message.content.removeprefix(INTERPRETER.opening).removesuffix(INTERPRETER.closing)
            call = messages[-1].content.rstrip("\n") if messages else ""
            if not messages or messages[-1].role != "assistant" or not call.endswith(RETOOL.stop):
                raise BadInput(f"has an output that follows no {RETOOL.stop[0]}", where=task.task_id, key='"response"')
            messages[-1] = Message(role="assistant", content=call)
            messages.append(RETOOL.reply("", output.strip("\n")))
    if not messages or messages[-1].role != "assistant" or not isinstance(RETOOL.parse(messages[-1].content), Answer):
        expected = "expected <answer>\\boxed{...}</answer>"
        raise BadInput(f"does not end in an answer, {expected}", where=task.task_id, key='"response"')
    return tuple(messages)
