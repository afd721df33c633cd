"""envs.papers.swirl.sub_trajectories: K actions are K states with their actions."""

from dataclasses import replace

from envs.papers.swirl.sub_trajectories import decompose, state_of, state_task, turns_after_prompt
from rlsys.records import TrajectoryRecord, read_trajectory, to_json
from rlsys.types import EpisodeEnd, Message, Task
from tests.refused import refused


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def trajectory(*messages: Message) -> TrajectoryRecord:
    return TrajectoryRecord(
        task={"task_id": "q-1", "question": "Who?", "answers": ["Bo"], "hops": 2},
        sequence=0,
        sibling=3,
        prompt=(user("Who?"),),
        messages=messages,
        end=EpisodeEnd.ANSWERED,
        truncated=False,
        num_tokens=9,
        weight_versions=(),
        judgements=("GOOD", "BAD"),
        correct=True,
    )


def test_three_actions_are_three_states() -> None:
    a, r, b, s, c = said("a"), user("a -> r"), said("b"), user("b -> s"), said("c")
    steps = decompose(trajectory(a, r, b, s, c))
    assert [step.action for step in steps] == [a, b, c]
    assert [step.state[1:] for step in steps] == [(), (a, r), (a, r, b, s)]  # 0, 1, 2 pairs before it
    assert [step.name for step in steps] == ["q-1/3/0", "q-1/3/1", "q-1/3/2"]


def test_a_state_is_a_task_that_holds_what_was_said() -> None:
    a, r = said("a"), user("a -> r")
    task = state_task(decompose(trajectory(a, r, said("b")))[1])
    assert (task.question, task.answers, task.record["hops"]) == ("Who?", ("Bo",), 2)
    assert state_of(task) == (user("Who?"), a, r) and turns_after_prompt(task) == (a, r)
    raw = replace(trajectory(a), prompt=(replace(user("Who?"), inline=True),))  # of a base model: no chat marks
    assert state_of(state_task(decompose(raw)[0])) == raw.prompt
    plain = Task(task_id="t", question="Who?")
    assert state_of(plain) is None and turns_after_prompt(plain) == ()


def test_of_a_task_without_question_and_answers_nothing_is_made_up() -> None:
    task = state_task(decompose(replace(trajectory(said("a")), task={"task_id": "q-1"}))[0])
    assert (task.question, task.answers) == ("", ())


def test_no_state_ends_inside_of_a_turn() -> None:
    inside = Message(role="tool", content="<result>r</result>", inline=True)
    with refused(where="task q-1", says="what tools said stands inside of"):
        decompose(trajectory(said("a"), inside, said("b")))


def test_a_trajectory_reads_back() -> None:
    whole = trajectory(said("a"))
    assert to_json(read_trajectory(to_json(whole), "f line 1")) == to_json(whole)
    for bad in ({"prompt": "hello"}, {**to_json(whole), "messages": ["a"]}):
        with refused(where="line 1", says="not a trajectory"):
            read_trajectory(bad, "f line 1")
