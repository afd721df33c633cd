"""A user message from a file: `{question}` and other slots, which are fields of a task's record.

`graph_rl/strategyqa` names a shipped file, `envs/papers/graph_rl/prompts/strategyqa.md`. A comment at the top of one,
`<!-- where it is from -->`, is no part of the message.

Worked examples in a prompt have ICRL's form; they are from a file or written out here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Optional

from rlsys.errors import BadInput, nearest, require
from rlsys.types import Message, Task

PAPERS = Path(__file__).parents[1] / "papers"
_SLOT = re.compile(r"\{([a-z_]+)\}")
_COMMENT = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)
MAX_EXAMPLES = 5  # made-up tasks kept for examples in prompts: never trained on, never held out

PROJECT = Path(__file__).resolve().parents[2]
MARK = "=" * 15
PROBLEM, SOLUTION = "Example Problem:", "Example Solution:"
EXAMPLES = "Here are some examples of solved problems:"
AFTER_EXAMPLES = (
    "Now solve the following problem with the ability you just learned from the examples. Remember, DO NOT take the "
    "problem from examples as the problem you need to solve."
)
_SEPARATOR = re.compile(rf"^[ \t]*{MARK}Example [0-9]{{1,6}}{MARK}[ \t]*$", re.MULTILINE)


def strip_comment(text: str) -> str:
    return _COMMENT.sub("", text, count=1).strip()


class Prompt:
    """`Prompt("graph_rl/strategyqa").fill(task)`; the name of a shipped file, or the path of any other."""

    def __init__(self, name: str) -> None:
        """Raises BadInput for a file that cannot be read or has no slot."""
        shipped = {f"{path.parts[-3]}/{path.stem}": path for path in PAPERS.glob("*/prompts/*.md")}
        path = shipped.get(name, Path(name))
        try:
            self._text = strip_comment(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"no file and no shipped prompt{nearest(name, sorted(shipped))}", key="env.prompt", found=name
            ) from error
        self.name, self.slots = name, frozenset(_SLOT.findall(self._text))
        if not self.slots:
            raise BadInput("no {question} and no other field of a task in it", key="env.prompt", found=name)

    def fill(self, task: Task, **more: str) -> str:
        """`more` are slots that are no fields. Raises BadInput for a field that the task lacks."""
        fields: dict[str, Any] = {**task.record, "question": task.question, **more}
        missing = sorted(slot for slot in self.slots if fields.get(slot) is None)
        if missing:
            raise BadInput(
                f"no field {missing[0]!r}, which env.prompt={self.name!r} shows", where=f"task {task.task_id}"
            )
        return _SLOT.sub(lambda slot: _format_field(fields[slot[1]]), self._text)


def _format_field(value: Any) -> str:
    """A list is written with commas, an object as `key: value; key: value`."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {entry}" for key, entry in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)


@dataclass(frozen=True, kw_only=True)
class ExamplesConfig:
    """Few-shot examples before the question (ICRL's curriculum: 3, then 2, then 0)."""

    count: int = 0
    """Number of examples in the prompt: the first ones of the file."""
    file: Optional[str] = None
    """Path of the file with the examples, each after a line `===============Example N===============`, such as
    configs/icrl/examples/search.txt of the project. null: examples are written for made-up tasks."""
    before: str = EXAMPLES
    """Text before the examples."""
    after: str = AFTER_EXAMPLES
    """Text between the examples and the question."""
    layout: Literal["message", "text", "turns"] = "message"
    """Place of the examples in the prompt. message: in the question's message, with `before` and `after` around them.
    text: as one text that the policy continues (env.template=base): after the solved problems the question stands as
    another one, its solution begun; without any example, too. turns: as earlier turns of the chat."""

    def __post_init__(self) -> None:
        require(self.count >= 0, "env.demonstrations.count", self.count, "0 or more")
        few = self.file is not None or self.count <= MAX_EXAMPLES
        require(few, "env.demonstrations.count", self.count, f"at most {MAX_EXAMPLES} without demonstrations.file")
        for key, text, default in (("before", self.before, EXAMPLES), ("after", self.after, AFTER_EXAMPLES)):
            shown = self.layout == "message" or text == default
            require(shown, f"env.demonstrations.{key}", text, f"none with layout={self.layout}")


@dataclass(frozen=True, slots=True)
class ExampleLayout:
    """The examples of a prompt, and what stands around them."""

    examples: tuple[str, ...] = ()
    before: str = EXAMPLES
    after: str = AFTER_EXAMPLES
    layout: str = "message"


def layout_texts(config: ExamplesConfig) -> tuple[str, ...]:
    """What is the same around all examples: a token each where a tokenizer is trained, or it were most of a prompt."""
    around = (MARK, config.before, config.after) if config.layout == "message" else ()
    return tuple(text for text in (PROBLEM, SOLUTION, *around) if text)


def make_examples(config: ExamplesConfig, solved: Iterable[tuple[str, Iterable[Message]]]) -> ExampleLayout:
    """The examples for every prompt: of the config's file, or the questions `solved` here. Raises BadInput."""
    if config.count == 0 or config.file is None:
        pairs = [
            (text, _join_turns(message.content for message in turns)) for text, turns in islice(solved, config.count)
        ]
        for problem, _ in pairs:  # a chat's turns are cut there
            require(SOLUTION not in problem, "env.instruction", problem, f'no "{SOLUTION}" in an example\'s problem')
        texts = tuple(f"{PROBLEM} {problem}\n\n{SOLUTION} {solution}" for problem, solution in pairs)
        return ExampleLayout(texts, config.before, config.after, config.layout)
    examples = read_examples(config.file)
    enough = f"at most {len(examples)}, the examples of {config.file}"
    require(config.count <= len(examples), "env.demonstrations.count", config.count, enough)
    return ExampleLayout(examples[: config.count], config.before, config.after, config.layout)


def _join_turns(texts: Iterable[str]) -> str:
    """Turns of an episode as one text. A space where two tags would meet (`</result><think>`): a tokenizer merges `><`,
    and a policy that reads such examples expects nothing after the `>` of a result that is tokenized by itself."""
    joined = ""
    for text in texts:
        joined += " " + text if joined.endswith(">") and text.startswith("<") else text
    return joined


def read_examples(path: str) -> tuple[str, ...]:
    """The examples of a file, without the lines `===============Example N===============` before each.

    A path that is not there is looked for in the project's folder. Raises BadInput for a file that cannot be read, for
    text before the first of these lines, and for an example without its problem or its solution.
    """
    try:
        with open(path if os.path.exists(path) else PROJECT / path, encoding="utf-8-sig") as file:
            before, *examples = map(str.strip, _SEPARATOR.split(file.read()))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise BadInput(f"cannot be read ({reason})", where=path, expected="examples for a prompt") from error
    if before or not examples:
        start = repr(before[:40]) if before else "no example"
        raise BadInput(f"begins with {start}", where=path, expected=f"a line {MARK}Example 1{MARK}")
    for number, example in enumerate(examples, start=1):
        problem, solution = example.find(PROBLEM), example.find(SOLUTION)
        if problem != 0 or solution < 0:
            missing = PROBLEM if problem != 0 else SOLUTION
            raise BadInput(f'{path} example {number}: no "{missing}"', expected=f'it and then "{SOLUTION}"')
    return tuple(examples)


def show_examples(
    instruction: str, shown: ExampleLayout, question: str, *, label: str = "", raw: bool = False
) -> tuple[Message, ...]:
    """A prompt: the instruction if any, the examples, the question; blank lines between.

    `label` stands before a question in a message of its own; `raw`: one text without a chat template.
    """
    if shown.layout == "turns":
        pairs = (example.removeprefix(PROBLEM).split(SOLUTION, maxsplit=1) for example in shown.examples)
        texts = [*(text.strip() for pair in pairs for text in pair), question]
        texts[::2] = [label + problem for problem in texts[::2]]
        texts[0] = "\n\n".join(part for part in (instruction, texts[0]) if part)
        return tuple(Message(role=("user", "assistant")[at % 2], content=text) for at, text in enumerate(texts))
    if shown.layout == "text":
        sections = [*shown.examples, f"{PROBLEM} {question}", SOLUTION]
    elif shown.examples:
        numbered = (f"{MARK}Example {at}{MARK}\n{text}" for at, text in enumerate(shown.examples, start=1))
        sections = [shown.before, "\n".join(numbered), shown.after, f"Actual Problem: {question}"]
    else:
        sections = [label + question]
    content = "\n\n".join(part for part in (instruction, *sections) if part)
    return (Message(role="user", content=content, inline=raw),)
