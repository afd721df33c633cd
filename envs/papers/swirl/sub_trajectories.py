"""A trajectory as steps: K actions are K sub-trajectories (SWiRL, arXiv 2504.04736, section 2.1).

    prompt  action 1  result 1  action 2  result 2  answer
    [state 1]  ->  action 1
    [state 2                 ]  ->  action 2
    [state 3                                    ]  ->  answer

Each state is a separate task: a policy that plays it writes the action again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlsys.errors import BadInput
from rlsys.records import TrajectoryRecord
from rlsys.types import Message, Task

STATE = "sub_trajectory"  # key of a task's record: what was said before the action that is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class SubTrajectory:
    """A state of a recorded trajectory, and the action that was taken in it."""

    task: Mapping[str, Any]  # of the trajectory
    name: str  # "gsm8k-12/3/1": the second action of the fourth trajectory of the task gsm8k-12
    state: tuple[Message, ...]  # the prompt, and after it actions and results in turn
    num_prompt: int  # messages of the prompt
    action: Message


def decompose(trajectory: TrajectoryRecord) -> tuple[SubTrajectory, ...]:
    """One for each message of the model, in order; the n-th has n - 1 earlier actions in its state.

    Raises BadInput for a trajectory whose environment speaks inside of the model's turn: no state ends there.
    """
    prompt, messages = trajectory.prompt, trajectory.messages
    task = trajectory.task
    if any(message.inline for message in messages):
        where = f"task {task.get('task_id')}: what tools said stands inside of the model's turn"
        raise BadInput(where=where, expected="a protocol that sends it as messages, such as env.protocol=swirl")
    places = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return tuple(
        SubTrajectory(
            task=task,
            name=f"{task.get('task_id')}/{trajectory.sibling}/{step}",
            state=(*prompt, *messages[:at]),
            num_prompt=len(prompt),
            action=messages[at],
        )
        for step, at in enumerate(places)
    )


def state_task(step: SubTrajectory) -> Task:
    """The state as a task of one message: its player writes the action again. Its answers stay the task's."""
    fields = {key: value for key, value in step.task.items() if key not in ("task_id", "question", "answers")}
    state = {"messages": [_message_record(message) for message in step.state], "num_prompt": step.num_prompt}
    return Task(
        task_id=step.name,
        question=str(step.task.get("question", "")),
        answers=tuple(map(str, step.task.get("answers", ()))),
        record={**fields, STATE: state},
    )


def state_of(task: Task) -> tuple[Message, ...] | None:
    """The whole state, prompt included; None of a task that is no state."""
    state = task.record.get(STATE)
    return None if state is None else _read_messages(state["messages"])


def turns_after_prompt(task: Task) -> tuple[Message, ...]:
    """A state's messages after the prompt; () for a task that is no state."""
    state = task.record.get(STATE)
    return () if state is None else _read_messages(state["messages"][state["num_prompt"] :])


def _message_record(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content} | ({"inline": True} if message.inline else {})


def _read_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message(**message) for message in messages)
