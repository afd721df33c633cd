"""A long chain of thought that is constructed: a teacher led through action prompting, one question for each action."""

from __future__ import annotations

from dataclasses import replace

from envs.services.endpoint import Question
from envs.services.guard import ToolFailed
from envs.services.judge.actions import Thinking, advance
from envs.services.judge.kinds import KINDS
from envs.services.judge.templates import Prompts
from envs.services.teacher import Teacher
from rlsys.seeds import derive
from rlsys.types import FailureKind, Message

TRIES = 3  # for an answer in the form that an action asks for


async def construct(teacher: Teacher, prompts: Prompts, problem: str, question: Question, max_steps: int) -> str:
    """The thoughts, joined. question: how each action is sampled; of its seed each has one of its own.

    Raises ToolFailed where the teacher is out, or does not answer in the form of an action.
    """
    thinking: Thinking = Thinking(problem=problem, max_steps=max_steps)
    while thinking.state != "done":
        thinking = await _step(teacher, prompts, thinking, question)
    return "\n\n".join(thinking.thoughts)


async def _step(teacher: Teacher, prompts: Prompts, thinking: Thinking, question: Question) -> Thinking:
    request, state = thinking.request, thinking.state
    asked = replace(
        question,
        messages=(Message(role="user", content=prompts.render(request)),),
        max_tokens=KINDS[request.kind].max_tokens,
    )
    for attempt in range(TRIES):
        about = {"chain": question.seed, "step": thinking.steps, "state": state, "attempt": attempt}
        seeded = replace(asked, seed=derive(question.seed, thinking.steps, attempt))
        choice = await teacher.answer(seeded, about, reflecting=state == "reflection")
        after = advance(thinking, choice.text)
        if after is not None:
            return after
    detail = f"no answer in the form that {request.kind} asks for, {TRIES} times"
    raise ToolFailed(FailureKind.DATA, "teacher", detail)
