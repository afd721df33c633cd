"""envs.worlds.python: the protocol with a real sandbox, the data, the demonstrations."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.renderer import ChatRenderer
from envs.base import Step
from envs.problems.word_problems import generate, program
from envs.protocols import PROTOCOLS, Answer
from envs.protocols.retool import INSTRUCTION
from envs.services.guard import ToolFailed
from envs.tasks.prompts import ExamplesConfig
from envs.text.words import last_boxed
from envs.tools.calculator import calculate
from envs.tools.python_tool import PythonTool, guard_config
from envs.tools.sandbox import SandboxConfig
from envs.worlds.python import PythonMathConfig, PythonMathWorld, split_recorded
from rlsys.errors import BadInput
from rlsys.samples import sample_trajectory
from rlsys.types import EpisodeEnd, FailureKind, Message, Task
from tests.makers import made
from tests.makers.made import jsonl, plan
from tests.makers.played import episode, tokenizer_in
from tests.paths import DATA, needs_data
from tests.refused import refused
from tests.sandboxed import run_closing

T = TypeVar("T")
SANDBOX = SandboxConfig(workers=1, preload=["math"], timeout_s=30.0)
SMALL = PythonMathConfig(train_tasks=100, held_out_tasks=20, instruction="", sandbox=SANDBOX)
WORLD = PythonMathWorld(SMALL)

PROBLEM = Task(task_id="p", question="6 * 7?", answers=("42",))


def code(text: str) -> str:
    return f"<code>\n```python\n{text}\n```\n</code>"


def shown(text: str) -> Message:
    return Message(role="tool", content=f"\n<interpreter>\n{text}</interpreter>\n\n", inline=True)


def in_sandbox(plan: Callable[[PythonMathWorld], Awaitable[T]], config: PythonMathConfig = SMALL) -> T:
    return run_closing(lambda: PythonMathWorld(config), plan)


def steps(*texts: str, config: PythonMathConfig = SMALL, turns_left: int = 9) -> list[Step]:
    async def play(world: PythonMathWorld) -> list[Step]:
        env = world.env(PROBLEM)
        return [await env.step(text, turns_left=turns_left) for text in texts]

    return in_sandbox(play, config)


# The protocol


def test_code_is_run_and_its_output_stands_inline() -> None:
    turns = steps(f"Let me see. {code('print(6 * 7)')}", code("40 + 2"), code("1 / 0"), code(""), code("print(6 * 7)"))
    assert [step.reply for step in turns] == [
        shown("42"),
        shown("42"),
        shown("ZeroDivisionError: division by zero"),
        shown("None"),
        shown("42"),
    ]
    assert [step.repeated for step in turns] == [False, False, False, False, True]


def test_code_that_never_ends_is_the_models_mistake_and_the_episode_goes_on() -> None:
    short = replace(SMALL, sandbox=replace(SANDBOX, timeout_s=2.0))
    endless, after = steps(code("while True: pass"), code("print(1)"), config=short)
    assert endless.end is None and endless.reply is not None and "TimeoutError" in endless.reply.content
    assert after.reply == shown("1")


def test_programs_share_nothing() -> None:
    first, second = steps(code("x = 3\nprint(x)"), code("print(x)"))
    assert first.reply == shown("3") and second.reply == shown("NameError: name 'x' is not defined")


def test_every_ending() -> None:
    def end(text: str, turns_left: int) -> EpisodeEnd | None:
        return asyncio.run(WORLD.env(PROBLEM).step(text, turns_left=turns_left)).end

    assert end("so <answer>\\boxed{42}</answer>", 9) is EpisodeEnd.ANSWERED
    assert end("<answer>\\boxed{42}</answer>", 0) is EpisodeEnd.ANSWERED
    assert [end(text, 9) for text in ("42", "", "<code>\nprint(1)", "<answer>42")] == [EpisodeEnd.MALFORMED] * 4
    assert end(code("print(1)"), 0) is EpisodeEnd.TURN_LIMIT


def test_limits_of_the_config() -> None:
    assert WORLD.max_turns > 1000 and PythonMathWorld(replace(SMALL, max_turns=3)).max_turns == 3
    (step,) = steps(code("print(1)"), config=replace(SMALL, max_reply_tokens=7))
    assert step.max_tokens == 7
    (long,) = steps(code("#" * 2048 + "\nprint(1)"), config=replace(SMALL, sandbox=replace(SANDBOX, code_kb=1)))
    assert long.reply is not None and "ValueError: the code has 2057 bytes" in long.reply.content


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_any_text_without_a_closed_call_ends_the_episode(text: str) -> None:
    for wrapped in (text, f"<answer>{text}</answer>", f"<code>{text}"):
        if "</code>" not in wrapped:
            step = asyncio.run(WORLD.env(PROBLEM).step(wrapped, turns_left=1))
            assert step.reply is None and step.end in (EpisodeEnd.ANSWERED, EpisodeEnd.MALFORMED)


# The tool


def test_making_a_world_starts_nothing_and_closing_it_ends_what_was_started() -> None:
    async def play(world: PythonMathWorld) -> None:
        assert world.tool_stats()["python"].calls == 0
        env, other = world.env(PROBLEM), world.env(PROBLEM)
        await asyncio.gather(env.step(code("print(1)"), turns_left=1), other.step(code("print(2)"), turns_left=1))
        stats = world.tool_stats()["python"]
        assert (stats.calls, stats.in_flight, stats.errors) == (2, 0, {})
        assert sum(stats.latency) >= 2  # of each attempt: a busy machine may need a second one

    in_sandbox(play)
    asyncio.run(WORLD.close())  # was never started


def test_a_sandbox_that_cannot_start_is_a_failure_and_no_answer() -> None:
    async def play() -> None:
        tool = PythonTool(replace(SANDBOX, preload=["no_such_module"]))
        with pytest.raises(ToolFailed) as failed:
            await tool.run("print(1)")
        await tool.close()
        assert failed.value.failure.kind is FailureKind.INFRA
        assert failed.value.failure.where == "python"

    asyncio.run(play())


def test_the_guard_waits_longer_than_the_sandbox() -> None:
    for sandbox in (SandboxConfig(), SandboxConfig(timeout_s=600.0), SandboxConfig(queue_timeout_s=999.0)):
        guard = guard_config(sandbox)
        assert guard.deadline_s > sandbox.start_timeout_s + 2 * sandbox.timeout_s
        assert guard.patience_s >= sandbox.queue_timeout_s
        assert (guard.max_concurrent, guard.cache_size) == (sandbox.num_workers, 0)


# Tasks and prompts


def test_generated_splits_are_disjoint_whatever_the_examples() -> None:
    train, held_out = WORLD.tasks("train"), WORLD.tasks("held_out")
    assert (len(train), len(held_out)) == (100, 20)
    assert not {task.question for task in train} & {task.question for task in held_out}
    with_examples = PythonMathWorld(replace(SMALL, demonstrations=ExamplesConfig(count=3)))
    assert with_examples.tasks("all") == WORLD.tasks("all")
    prompt = with_examples.env(train[0]).first_messages()[0].content
    assert not any(task.question in prompt for task in WORLD.tasks("all")[1:])
    assert prompt.endswith(f"Actual Problem: {train[0].question}")
    assert prompt.count("Example Problem:") == prompt.count("<answer>\\boxed{") == 3
    assert PROTOCOLS["retool"].parse(prompt.partition("</code>")[0]) == PROTOCOLS["retool"].parse("no call")


def test_the_prompt_is_one_user_message() -> None:
    world = PythonMathWorld(replace(SMALL, instruction=INSTRUCTION))
    assert world.env(PROBLEM).first_messages() == (Message(role="user", content=f"{INSTRUCTION}\n\n6 * 7?"),)
    assert WORLD.env(PROBLEM).first_messages() == (Message(role="user", content="6 * 7?"),)


def test_examples_of_a_file_are_taken_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "examples.txt"
    mark = "=" * 15
    path.write_text(
        "".join(f"{mark}Example {n}{mark}\nExample Problem: p{n}\nExample Solution: s{n}\n" for n in (1, 2))
    )
    world = PythonMathWorld(replace(SMALL, demonstrations=ExamplesConfig(count=1, file=str(path))))
    prompt = world.env(PROBLEM).first_messages()[0].content
    assert "p1" in prompt and "p2" not in prompt
    with refused("env.demonstrations.count", found=3):
        PythonMathWorld(replace(SMALL, demonstrations=ExamplesConfig(count=3, file=str(path))))


# Demonstrations


def test_a_program_calculates_what_its_steps_say() -> None:
    assert program((("6 * 8", 48), ("48 - 5", 43))) == "print(6 * 8 - 5)"
    assert program((("40 + 8", 48), ("48 / 6", 8))) == "print((40 + 8) // 6)"
    assert program((("6 * 8", 48), ("5 - 48", -43))) == "print(5 - (6 * 8))"
    assert program((("6 * 8", 48),)) == "print(6 * 8)"


def test_every_program_right_or_mistaken_prints_the_answer_that_follows() -> None:
    wrong = PythonMathWorld(replace(SMALL, demo_error_rate=1.0))
    right = PythonMathWorld(replace(SMALL, demo_error_rate=0.0))
    for world, expected in ((right, True), (wrong, False)):
        for task in world.tasks("train"):
            for seed in range(5):
                _, call, reply, answer = world.demonstration(task, seed).messages
                printed = call.content.partition("print(")[2].rpartition(")")[0].replace("//", "/")
                result = calculate(printed).removesuffix(".0")
                assert reply == shown(result) and last_boxed(answer.content) == result
                assert (result in task.answers) == expected


@pytest.mark.parametrize(("rate", "low", "high"), [(0.3, 0.66, 0.74)])
def test_share_of_right_demonstrations_follows_the_error_rate(rate: float, low: float, high: float) -> None:
    tasks = WORLD.tasks("train")
    last = [(task, WORLD.demonstration(task, seed).messages[-1]) for task in tasks for seed in range(20)]
    share = sum(last_boxed(message.content) == task.answers[0] for task, message in last) / len(last)
    assert low <= share <= high  # 2000 draws: three standard deviations are 0.031


RESPONSE = (
    "Let me count.\n" + code("print(6 * 7)") + "\n<interpreter>\n42\n</interpreter>\n\n"
    "Once more.\n" + code("print(42)") + "\n<interpreter>\n42\n</interpreter>\n\n<answer>\\boxed{42}</answer>\n"
)


def test_a_recorded_response_becomes_the_episode_that_it_was() -> None:
    task = replace(PROBLEM, record={"question": "q", "response": RESPONSE})
    assert split_recorded(task) == (
        Message(role="assistant", content="Let me count.\n" + code("print(6 * 7)")),
        shown("42"),
        Message(role="assistant", content="Once more.\n" + code("print(42)")),
        shown("42"),
        Message(role="assistant", content="<answer>\\boxed{42}</answer>"),
    )
    messages = split_recorded(task)
    assert [step.reply for step in steps(*(m.content for m in messages if m.role == "assistant"))] == [
        messages[1],
        messages[3],
        None,
    ]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (None, 'no "response"'),
        ("", "does not end in an answer"),
        ("42", "does not end in an answer"),
        (code("print(42)"), "does not end in an answer"),
        ("<interpreter>42</interpreter><answer>42</answer>", "an output that follows no </code>"),
        ("<answer>42</answer><interpreter>42</interpreter>", "an output that follows no </code>"),
    ],
)
def test_a_response_that_was_no_episode_is_left_out(response: Any, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        split_recorded(replace(PROBLEM, record={"question": "q", "response": response}))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["<code>", "</code>", "<interpreter>", "</interpreter>", "<answer>4</answer>", "\n", "x"]))
)
def test_any_response_is_an_episode_or_bad_input(pieces: list[str]) -> None:
    try:
        messages = split_recorded(replace(PROBLEM, record={"response": "".join(pieces)}))
    except BadInput:
        return
    assert [message.role for message in messages] == ["assistant", "tool"] * (len(messages) // 2) + ["assistant"]
    assert isinstance(PROTOCOLS["retool"].parse(messages[-1].content), Answer)


def test_records_without_a_response_are_tasks_all_the_same(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answers": ["42"], **({"response": RESPONSE} if n % 2 else {})} for n in range(6)]
    world = PythonMathWorld(replace(SMALL, data=jsonl(tmp_path / "data.jsonl", rows), held_out_tasks=2))
    assert (len(world.tasks("train")), len(world.tasks("held_out"))) == (4, 2)
    assert any("<code>" in text for text in world.texts(100)) and "<answer>\\boxed{42}</answer>" in list(
        world.texts(100)
    )
    with refused("env.max_turns", found=1, expected="at least 2"):
        limited = PythonMathWorld(replace(SMALL, max_turns=1))
        limited.demonstration(limited.tasks("train")[0], 0)


@needs_data
def test_gsm8k_problems_are_tasks() -> None:
    world = PythonMathWorld(replace(SMALL, data=str(DATA / "gsm8k_train_500.jsonl"), held_out_tasks=100))
    assert (len(world.tasks("train")), len(world.tasks("held_out"))) == (400, 100)
    assert all(task.answers for task in world.tasks("all"))


# Token for token


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    return ChatRenderer(str(tokenizer_in(tmp_path_factory.mktemp("tokenizer"), WORLD.texts(200), WORLD.tags)))


def test_a_demonstration_is_token_for_token_an_episode_with_the_sandbox(renderer: ChatRenderer) -> None:
    async def play(world: PythonMathWorld) -> None:
        for task in world.tasks("train")[:10]:
            messages = world.demonstration(task, 1).messages
            texts = [message.content for message in messages if message.role == "assistant"]
            played = await episode(world, task, texts, renderer, plan=plan(max_context=256, timeout_s=60.0))
            assert played.messages == messages and played.end is EpisodeEnd.ANSWERED
            (sample,) = sample_trajectory(played, 1.0)
            shown_ids = renderer.demonstration(messages, 1, world.env(task).stop_strings)
            assert made.ids_and_mask(sample) == shown_ids
            trained = renderer.decode([t for t, m in zip(sample.token_ids, sample.loss_mask, strict=True) if m])
            assert "<interpreter>" not in trained and trained.count("</code>") == 1

    in_sandbox(play)


def test_generated_problems_print_what_they_should_in_the_sandbox() -> None:
    problems = generate(20, 3)
    turns = steps(*(code(program(problem.steps)) for problem in problems))
    assert [step.reply for step in turns] == [shown(str(problem.answer)) for problem in problems]
