"""Action prompting (Long CoT, appendix K.8): a model is led through a long chain of thought, state by state.

    clarify -> decompose -> solution_step -> reflection -> answer
                   ^              ^______________| missed, with another goal to try
                   |_____________________________| achieved, or missed without one

`construct` asks the models, one question for each action, for `generate.teacher.constructs`.

The authors never published how an answer picks the next state: this follows from the tags of their reflection prompt.
Ours are: the first proposal becomes the goal, goals lie on one level below the problem's, and a cap on the steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from envs.services.endpoint import Question
from envs.services.guard import ToolFailed
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import JudgeRequest
from envs.services.judge.templates import Prompts
from envs.services.teacher import Teacher
from rlsys.seeds import derive_seed
from rlsys.types import FailureKind, Message

State = Literal["clarify", "decompose", "solution_step", "reflection", "answer", "done"]
NONE = "none yet"
TRIES = 3  # for an answer in the form that an action asks for


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """How far a chain of thought has come. A new one is `Thinking(problem="..", format="..")`."""

    problem: str
    format: str = "The final answer is \\boxed{...}."
    max_steps: int = 40  # then the answer is asked for, whatever has been reached
    state: State = "clarify"
    steps: int = 0
    thoughts: tuple[str, ...] = ()  # only ever appended to: joined, the chain of thought
    parent_goal: str = ""
    current_goal: str = ""
    goals: tuple[tuple[str, bool], ...] = ()  # the earlier ones, and whether each was solved

    @property
    def request(self) -> JudgeRequest:
        """What to ask the model in this state. Raises ValueError when it is done."""
        if self.state == "done":
            raise ValueError("the chain of thought is complete")
        values = {
            "goal": self.problem,
            "current_goal": self.current_goal or self.parent_goal,
            "parent_goal": self.parent_goal,
            "solution": "\n\n".join(self.thoughts) or NONE,
            "prior_step": self.thoughts[-1] if self.thoughts else NONE,
            "goals": "\n".join(f"[{'solved' if solved else 'given up'}] {goal}" for goal, solved in self.goals) or NONE,
            "format": self.format,
        }
        kind = f"action_{self.state}"
        return JudgeRequest(kind=kind, fields={name: values[name] for name in KINDS[kind].fields})


def advance(thinking: Thinking, text: str) -> Thinking | None:
    """After the model's answer `text`; None where it does not have the form that was asked for."""
    verdict = KINDS[thinking.request.kind].read(text)
    if verdict is None:
        return None
    goal = verdict.parts.get("goal", "")
    after = replace(
        thinking, steps=thinking.steps + 1, thoughts=(*thinking.thoughts, verdict.parts["thought"]), state="done"
    )
    if thinking.state == "answer":
        return after
    if thinking.state == "clarify":
        after = replace(after, state="decompose", parent_goal=goal)
    elif thinking.state == "decompose":
        after = replace(after, state="solution_step", current_goal=goal)
    elif thinking.state == "solution_step":
        after = replace(after, state="reflection")
    else:
        after = _reflect(after, verdict.value, goal)
    return replace(after, state="answer") if after.steps + 1 >= after.max_steps else after


def _reflect(thinking: Thinking, value: str, new_goal: str) -> Thinking:
    goals = (*thinking.goals, (thinking.current_goal, value != "missed"))
    if value == "solved":
        return replace(thinking, state="answer", goals=goals)
    if value == "missed" and new_goal:
        return replace(thinking, state="solution_step", goals=goals, current_goal=new_goal)
    return replace(thinking, state="decompose", goals=goals, current_goal="")


async def construct(teacher: Teacher, prompts: Prompts, problem: str, question: Question, max_steps: int) -> str:
    """The thoughts, joined. question: how each action is sampled; each action's seed is derived from its seed.

    Raises ToolFailed where the teacher is out, or does not answer in the form of an action.
    """
    thinking: Thinking = Thinking(problem=problem, max_steps=max_steps)
    while thinking.state != "done":
        thinking = await _step(teacher, prompts, thinking, question)
    return "\n\n".join(thinking.thoughts)


async def _step(teacher: Teacher, prompts: Prompts, thinking: Thinking, question: Question) -> Thinking:
    request, state = thinking.request, thinking.state
    action_question = replace(
        question,
        messages=(Message(role="user", content=prompts.render(request)),),
        max_tokens=KINDS[request.kind].max_tokens,
    )
    for attempt in range(TRIES):
        notes = {"chain": question.seed, "step": thinking.steps, "state": state, "attempt": attempt}
        seeded = replace(action_question, seed=derive_seed(question.seed, thinking.steps, attempt))
        choice = await teacher.answer(seeded, notes, reflecting=state == "reflection")
        after = advance(thinking, choice.text)
        if after is not None:
            return after
    detail = f"no answer in the form that {request.kind} asks for, {TRIES} times"
    raise ToolFailed(FailureKind.DATA, "teacher", detail)
