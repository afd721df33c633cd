"""Problems of reasoning-gym, answered in one message: about a hundred families, with generators, levels and scorers.

Which families are offered is decided in `envs.problems.procedural.families`. Problems are made by a separate process
(`envs.problems.procedural.entries`), or come from files in the library's form. Answers are scored in the sandbox
(`envs.tools.gym_scorer`).

    what the model writes               what happens
    an answer in the config's style     it is scored: ANSWERED
    anything else                       MALFORMED
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, Literal, Optional

from envs.base import Demonstration, World
from envs.problems.procedural.families import FAMILIES, check_family
from envs.problems.procedural.tasks import DEFAULT, FamilyConfig, level_of, make_tasks, read_tasks, scorer_request
from envs.protocols.record import last_answer
from envs.protocols.styles import STYLES
from envs.tasks.config import TaskConfig
from envs.tasks.prompts import ExampleLayout, ExamplesConfig, layout_texts, make_examples, show_examples
from envs.tasks.splits import split_tasks
from envs.text.words import last_boxed, without_thought
from envs.tools.gym_scorer import GymScorer, How, Scored
from envs.tools.sandbox import SandboxConfig
from envs.tools.sandbox.config import PRELOAD
from rlsys.errors import BadInput, require
from rlsys.seeds import derive_seed
from rlsys.types import EpisodeEnd, Message, Step, Task

READ: Mapping[str, Callable[[str], str | None]] = {
    "answer_tag": lambda text: last_answer(without_thought(text)),
    "boxed": last_boxed,
}


@dataclass(frozen=True, kw_only=True)
class ReasoningGymConfig(TaskConfig):
    """Problems of reasoning-gym. `data` holds records of the library: "question", "answer", "metadata"."""

    name: str = "reasoning_gym"
    demo_error_rate: float = 0.0
    families: dict[str, FamilyConfig] = field(default_factory=dict)
    """Families of problems, by their names in reasoning-gym. {}: chain_sum."""
    style: Literal["answer_tag", "boxed"] = "answer_tag"
    """Place of the answer in the message: `<answer>` tags or `\\boxed{}`."""
    instruction: Optional[str] = None
    """Line after every question. null: the style's own. "": none."""
    demonstrations: ExamplesConfig = field(default_factory=ExamplesConfig)
    """Few-shot examples in the prompt (ICRL). Without a file they are problems of `families` with their answers."""
    sandbox: SandboxConfig = field(default_factory=lambda: SandboxConfig(timeout_s=10.0, preload=list(PRELOAD)))

    def __post_init__(self) -> None:
        super().__post_init__()
        demos = self.demonstrations
        chat = "message or turns: this environment is a chat"
        require(demos.layout != "text", "env.demonstrations.layout", demos.layout, chat)
        made_up = self.data is None and self.eval_data is None  # or one of a file might be shown with its answer
        written = made_up or demos.count == 0 or demos.file is not None
        require(written, "env.demonstrations.file", demos.file, "a file: examples are written for made-up problems")
        for name in self.families:
            check_family(name)
        if self.families and not any(family.weight for family in self.families.values()):
            raise BadInput(key="env.families", found="all of weight 0", expected="one family with a weight above 0")


class ReasoningGymWorld(World):
    def __init__(self, config: ReasoningGymConfig) -> None:
        self._config = config
        self._style = STYLES[config.style]
        self.tags = (*self._style.tags, *(layout_texts(config.demonstrations) if config.demonstrations.count else ()))
        self.write_answer = self._style.write
        held_out = config.held_out_count if config.eval_data is None else 0
        generate = cache(lambda: make_tasks(config.families, config.train_tasks, held_out, config.seed))
        self.split = split_tasks(config, make=lambda count, held_out: generate()[held_out], read=read_tasks)
        families = [name for name, family in config.families.items() if family.weight] or [DEFAULT]
        needs_scorer = config.data is not None or not all(FAMILIES[name].compares for name in families)
        self._answers: dict[str, list[str]] = {}
        self._examples = make_examples(config.demonstrations, ()) if config.demonstrations.file else None
        # Made here: generators take seconds, and an episode's beginning has less time than that of its process.
        self._others = _make_others(config) if self._examples is None else ()
        self._scorer = GymScorer(config.sandbox, needed=needs_scorer)
        self.tool = self._scorer

    def level(self, task: Task) -> str:
        """The family, and the level of its curriculum where the config names levels: `chain_sum 1`."""
        return level_of(task)

    def env(self, task: Task) -> ReasoningGymEnv:
        return ReasoningGymEnv(self._prompt(task), task, self._config.style, self._scorer)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """The task's answer alone; in a share `demo_error_rate` of the seeds another text, the answer of another task
        of its level. Where all tasks of a level have one answer, that one is shown.

        Raises BadInput for a task without an answer: some families have only a scorer.
        """
        message = self._solve(task)
        rng = self._config.drawn_for(task, seed)
        if rng.random() < self._config.demo_error_rate:
            other = _draw_other(self._in_order(level_of(task)), task.answers[0], rng)
            message = replace(message, content=self._style.write(other))
        return Demonstration(task=task, messages=(*self._prompt(task), message))

    def _in_order(self, level: str) -> list[str]:
        if not self._answers:
            self._answers = {name: sorted(answers) for name, answers in group_answers(self.tasks("train")).items()}
        return self._answers.get(level, [])

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        return show_examples("", self._examples or self._made_examples(task), self._ask(task))

    def _ask(self, task: Task) -> str:
        custom = self._config.instruction
        instruction = self._style.instruction if custom is None else custom
        return "\n".join([task.question, instruction] if instruction else [task.question])

    def _made_examples(self, task: Task) -> ExampleLayout:
        """The first problems of another seed that are not the task. Raises BadInput for a family without answers."""
        others = (other for other in self._others if other.question != task.question)
        return make_examples(
            self._config.demonstrations, ((self._ask(other), [self._solve(other)]) for other in others)
        )

    def _solve(self, task: Task) -> Message:
        if not task.answers:
            raise BadInput("the family has a scorer and no answers", where=task.task_id)
        return Message(role="assistant", content=self._style.write(task.answers[0]))


def _make_others(config: ReasoningGymConfig) -> Sequence[Task]:
    """One more than is shown, of the training side: a held-out problem is never among them."""
    if not (count := config.demonstrations.count):
        return ()
    return make_tasks(config.families, count + 1, 0, derive_seed("examples", config.seed))[0]


def group_answers(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """The answers of the tasks of each level."""
    by_level: dict[str, list[str]] = {}
    for task in tasks:
        by_level.setdefault(level_of(task), []).extend(task.answers[:1])
    return by_level


def _draw_other(answers: Sequence[str], right: str, rng: Random) -> str:
    """One of the sorted answers that is not `right`, each as often as it stands there; `right` where there is none."""
    first, after = bisect_left(answers, right), bisect_right(answers, right)
    num_others = len(answers) - (after - first)
    if not num_others:
        return right
    at = rng.randrange(num_others)
    return answers[at if at < first else at + (after - first)]


class ReasoningGymEnv:
    """One message, whose answer is scored."""

    def __init__(self, prompt: tuple[Message, ...], task: Task, style: str, scorer: GymScorer) -> None:
        self.stop_strings: Sequence[str] = STYLES[style].stop
        self._prompt, self._task, self._read, self._scorer = prompt, task, READ[style], scorer
        self._scored: Scored | None = None

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        """Raises ToolFailed where the sandbox is broken; whatever the answer does to a scorer is a score."""
        answer = self._read(text)
        if answer is None:
            return Step(end=EpisodeEnd.MALFORMED)
        self._scored = await self._scorer.score(scorer_request(self._task), answer.strip())
        outcomes = {how.value: float(self._scored.how is how) for how in (How.GRAMMAR, How.UNSCORABLE)}
        return Step(end=EpisodeEnd.ANSWERED, metrics={"score": self._scored.value, **outcomes})

    def final_state(self) -> Mapping[str, Any]:
        """For the reward: {"score": 0.5, "how": "scorer"}; how is "" without an answer."""
        if self._scored is None:
            return {"score": 0.0, "how": ""}
        return {"score": self._scored.value, "how": self._scored.how.value}
