"""A judge behind a real endpoint that answers, hangs, dies, is busy or talks nonsense."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import socket
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from actors.judge import EngineChat
from actors.scoring import RewardService, ScoringSpec
from envs.papers.swirl.reward import SwirlReward, SwirlRewardConfig
from envs.rewards import make_reward
from envs.rewards.asks import ask_for_verdict, resolve_requests
from envs.services.guard import ToolFailed
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import Judge, open_judge, read_answer
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import JudgeRequest
from envs.services.judge.server import make_answer
from launch.cli import run
from rlsys.errors import BadInput
from rlsys.rollout import EpisodeBroken
from rlsys.types import FailureKind, Task, Transcript, TurnStop
from tests.fakes.judge_endpoint import ScriptedEndpoint, choice, scripted
from tests.makers.made import transcript
from tests.refused import refused

T = TypeVar("T")
KEY = "sk-very-secret-key"
NOBODY: Any = None  # no grader is asked


def request(answer: str = "5", kind: str = "outcome_math") -> JudgeRequest:
    return JudgeRequest(kind=kind, fields={"question": "2 + 3?", "answers": "5", "answer": answer})


def config(endpoint: ScriptedEndpoint | str, **more: Any) -> JudgeConfig:
    url = endpoint if isinstance(endpoint, str) else endpoint.url
    quick = {"deadline_s": 4.0, "breaker_s": 0.05, "outage_s": 30.0, "attempts": 2, "backoff_s": 0.01} | more
    return JudgeConfig(endpoint=url, model="scripted", **quick)


def with_judge(config: JudgeConfig, story: Callable[[Judge], Awaitable[T]]) -> T:
    async def run() -> T:
        judge = open_judge(config)
        assert isinstance(judge, Judge)
        try:
            return await story(judge)
        finally:
            await judge.close()

    return asyncio.run(run())


def ask(config: JudgeConfig, asked: JudgeRequest | None = None) -> Any:
    return with_judge(config, lambda judge: judge.ask(asked or request()))


def test_an_answer_and_how_it_was_asked_for() -> None:
    with scripted(lambda _: "The same. YES") as endpoint:
        answer = ask(config(endpoint))
    assert answer.verdict is not None and answer.verdict.value == "YES" and not answer.cached
    (body,) = endpoint.asked
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("scripted", 0.0, 1024)
    assert "seed" not in body and "2 + 3?" in body["messages"][0]["content"]
    assert endpoint.keys == [None]


def test_equal_questions_are_asked_once() -> None:
    async def story(judge: Judge) -> None:
        answers = await asyncio.gather(*(judge.ask(request()) for _ in range(5)), judge.ask(request("6")))
        assert {answer.text for answer in answers} == {"YES"}
        assert (await judge.ask(request())).cached
        assert not (await judge.ask(request(), seed=1)).cached  # another sample
        stats = judge.stats()
        assert (stats.calls, stats.cache_hits, stats.shared) == (8, 1, 4)

    with scripted(lambda _: "YES") as endpoint:
        with_judge(config(endpoint), story)
    assert len(endpoint.asked) == 3
    assert [(body.get("seed"), body["temperature"]) for body in endpoint.asked][-1] == (1, 0.7)


def test_answers_on_disk_are_not_paid_for_again(tmp_path: Path) -> None:
    file = str(tmp_path / "sub" / "answers.sqlite")
    with scripted(lambda _: "YES") as endpoint:
        assert not ask(config(endpoint, cache_file=file)).cached
        assert ask(config(endpoint, cache_file=file)).cached
        assert not ask(dataclasses.replace(config(endpoint, cache_file=file), model="another")).cached
        assert len(endpoint.asked) == 2
        (tmp_path / "broken").write_text("no database, but long enough to be looked at" * 100)
        with refused("judge.cache_file", says="broken"):
            ask(config(endpoint, cache_file=str(tmp_path / "broken")))


def test_two_servers_with_a_model_of_one_name_share_no_answers(tmp_path: Path) -> None:
    file = str(tmp_path / "answers.sqlite")
    with scripted(lambda _: "YES") as first, scripted(lambda _: "NO") as second:
        assert ask(config(first, cache_file=file)).text == "YES"
        assert (ask(config(second, cache_file=file)).text, len(second.asked)) == ("NO", 1)
        assert ask(config(f"{first.url}/", cache_file=file)).cached  # the same server


def test_a_cache_that_breaks_later_is_given_up_and_scoring_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "answers.sqlite"

    async def story(judge: Judge) -> None:
        await judge.ask(request())
        with sqlite3.connect(file) as other:
            other.execute("DROP TABLE answers")
        assert (await judge.ask(request("7"))).text == "YES"
        assert (await judge.ask(request("7"))).cached  # in memory

    with scripted(lambda _: "YES") as endpoint:
        with_judge(config(endpoint, cache_file=str(file)), story)


def test_questions_under_way_are_bounded() -> None:
    def slowly(_: str) -> str:
        return "YES"

    async def story(judge: Judge) -> None:
        await asyncio.gather(*(judge.ask(request(str(number))) for number in range(12)))

    with scripted(slowly) as endpoint:
        with_judge(config(endpoint, max_concurrent=3), story)
    assert len(endpoint.asked) == 12
    assert endpoint.most_at_once <= 3


def test_requests_are_spaced() -> None:
    times: list[float] = []

    def say(_: str) -> str:
        times.append(time.monotonic())
        return "YES"

    async def story(judge: Judge) -> None:
        await asyncio.gather(*(judge.ask(request(str(number))) for number in range(4)))

    with scripted(say) as endpoint:
        with_judge(config(endpoint, requests_per_minute=1200), story)
    assert times[-1] - times[0] >= 3 * 0.05 - 0.03  # one every 50 ms; the first may arrive late


def test_a_busy_server_is_waited_for_as_it_says() -> None:
    first = [(429, {"Retry-After": "9"}, "slow down")]
    times: list[float] = []

    def say(_: str) -> Any:
        times.append(time.monotonic())
        return first.pop() if first else "YES"

    with scripted(say) as endpoint:
        answer = ask(config(endpoint, deadline_s=0.2))
    assert answer.text == "YES"
    assert times[1] - times[0] > 0.19  # never longer than a deadline


@pytest.mark.parametrize(
    "said",
    [
        500,
        None,  # hangs
        (200, {"x": "y"}, "no JSON"),
        (200, {"x": "y"}, '{"choices": []}'),
        (200, {"x": "y"}, "[" * 100_000),
        (302, {"Location": "http://127.0.0.1:9/"}, ""),
        401,
    ],
)
def test_what_may_be_mended_is_tried_again(said: Any) -> None:
    script = [said]
    with scripted(lambda _: script.pop() if script else "NO") as endpoint:
        answer = ask(config(endpoint, deadline_s=0.25 if said is None else 4.0))
    assert answer.text == "NO"
    assert len(endpoint.asked) == 2


def test_an_outage_pauses_scoring_and_is_never_a_zero() -> None:
    """The judge is away when scoring begins, comes back, and every transcript gets its verdict."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def story(judge: Judge) -> int:
        asking = [asyncio.create_task(judge.ask(request(str(number)))) for number in range(12)]
        while not (judge.stats().breaker_open and judge.stats().outage and judge.stats().retries > 12):
            await asyncio.sleep(0.01)  # until attempts are used up, and the circuit is open
        assert not any(task.done() for task in asking)
        with scripted(lambda _: "YES", port) as endpoint:
            answers = await asyncio.gather(*asking)
            assert [answer.text for answer in answers] == ["YES"] * 12
            return len(endpoint.asked)

    assert with_judge(config(f"http://127.0.0.1:{port}/v1"), story) == 12


def test_an_outage_that_lasts_is_a_typed_failure_with_its_reason() -> None:
    lasting = r"no answer to anybody for 0\.25 s: .*answered 503"
    with scripted(lambda _: 503) as endpoint, pytest.raises(ToolFailed, match=lasting) as failed:
        ask(config(endpoint, outage_s=0.25))
    assert failed.value.failure.kind is FailureKind.INFRA


def test_one_question_that_breaks_the_judge_fails_alone() -> None:
    async def story(judge: Judge) -> None:
        async def others() -> None:
            while True:
                await judge.ask(request(str(time.monotonic())))
                await asyncio.sleep(0.02)

        going = asyncio.create_task(others())
        with pytest.raises(ToolFailed, match="answered 500"):
            await judge.ask(request("poison"))
        going.cancel()

    with scripted(lambda prompt: 500 if "poison" in prompt else "YES") as endpoint:
        with_judge(config(endpoint, breaker_failures=100), story)


def test_a_refused_prompt_is_a_data_failure_at_once() -> None:
    refusal = (400, {"x": "y"}, '{"error": "context too long"}')
    with scripted(lambda _: refusal) as endpoint, pytest.raises(ToolFailed, match="context too long") as failed:
        ask(config(endpoint))
    assert failed.value.failure.kind is FailureKind.DATA
    assert len(endpoint.asked) == 1


def test_the_key_travels_and_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    answers: list[Any] = ["YES", (400, {"x": "y"}, f"bad key {KEY}"), 401, 500]
    texts = []
    with scripted(lambda _: answers.pop(0) if len(answers) > 1 else answers[0]) as endpoint:
        settings = config(endpoint, key_env="JUDGE_KEY", outage_s=0.25)
        texts.append(repr(settings))
        ask(settings)
        for answer in ("6", "7"):
            with pytest.raises(ToolFailed) as failed:
                ask(settings, request(answer))
            texts += [str(failed.value), repr(failed.value), repr(failed.value.failure)]
    assert endpoint.keys[0] == f"Bearer {KEY}"
    assert "***" in texts[1]
    assert KEY not in "".join(texts) + caplog.text
    monkeypatch.delenv("JUDGE_KEY")
    with refused(says="is not set"):
        open_judge(settings)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"endpoint": "ftp://x", "model": "m"}, "judge.endpoint"),
        ({"endpoint": "http://x/v1"}, "judge.model"),
        ({"service": "http://x", "endpoint": "http://y", "model": "m"}, "judge.service"),
        ({"endpoint": "http://far.example/v1", "model": "m", "key_env": "K"}, "judge.key_env"),
        ({"model": "m", "requests_per_minute": 0}, "judge.requests_per_minute"),
        ({"model": "m", "outage_s": 0.0}, "judge.outage_s"),
    ],
)
def test_a_config_that_cannot_work_is_refused(wrong: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInput, match=part):
        JudgeConfig(**wrong)


# -- verdicts for rewards -------------------------------------------------------------------------------------------

TRANSCRIPT = transcript(
    "<search_query>Emma novel</search_query>",
    ("user", "Emma novel -> Emma is by Jane Austen"),
    "<answer>Jane Austen</answer>",
    task=Task(task_id="t", question="who wrote Emma?"),
)


def test_without_a_verdict_the_rule_decides() -> None:
    async def story(judge: Judge) -> None:
        assert (await ask_for_verdict(judge, request(), None)).verdict is None  # outcome_math: it speaks against
        with pytest.raises(EpisodeBroken, match="without a verdict: 'hm'") as broken:
            await ask_for_verdict(judge, request(), "fail")
        assert broken.value.failure.kind is FailureKind.DATA
        assert (await ask_for_verdict(judge, request(), "retry")).text == "YES"  # the second one is sampled
        with pytest.raises(EpisodeBroken):
            await ask_for_verdict(judge, request(kind="research"), None)
        assert judge.stats().errors == {"unparsable": 4}

    def say(prompt: str) -> str:
        return "YES" if "seed" in endpoint.asked[-1] else "hm"

    with scripted(say) as endpoint:
        with_judge(config(endpoint), story)


def test_every_step_is_judged_in_its_own_context() -> None:
    def say(prompt: str) -> str:
        return "GOOD" if "Jane Austen</answer>" in prompt else "BAD"

    async def score(reward_config: SwirlRewardConfig) -> Any:
        rewards = RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=1.0))
        try:
            return await rewards.score(make_reward(reward_config), TRANSCRIPT), rewards.tool_stats()
        finally:
            await rewards.close()

    with scripted(say) as endpoint:
        reward, stats = asyncio.run(score(SwirlRewardConfig(judge=config(endpoint))))
    assert (reward.value, stats["judge"].calls) == (0.5, 2)
    first, second = sorted((body["messages"][0]["content"] for body in endpoint.asked), key=len)
    assert "who wrote Emma?" in first and "Jane Austen" not in first
    assert "[result]\nEmma is by Jane Austen\n\n[my message]\n<answer>" in second


def test_judgements_that_came_with_the_transcript_stand() -> None:
    conversation = dataclasses.replace(TRANSCRIPT, judgements=("GOOD", "GOOD"))

    def find(_: JudgeConfig) -> Judge:
        raise AssertionError("nothing is to be asked")

    settings = SwirlRewardConfig(judge=JudgeConfig(model="m"))
    assert asyncio.run(resolve_requests(SwirlReward(settings), conversation, NOBODY, find)) is conversation
    assert asyncio.run(resolve_requests(SwirlReward(SwirlRewardConfig()), TRANSCRIPT, NOBODY, find)) is TRANSCRIPT


def test_a_word_in_an_unfinished_thought_is_no_verdict() -> None:
    async def score(reward_config: SwirlRewardConfig) -> Any:
        rewards = RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=1.0))
        try:
            return await rewards.score(make_reward(reward_config), TRANSCRIPT)
        finally:
            await rewards.close()

    for text, value in (("<think>GOOD so far, but", 0.0), ("<think>BAD?</think>GOOD", 1.0)):
        with scripted(lambda _, reply=text: reply) as endpoint:  # type: ignore[misc]
            assert asyncio.run(score(SwirlRewardConfig(judge=config(endpoint)))).value == value


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_was_broken_off_is_asked_for_again(reason: str) -> None:
    half = {"choices": [{"finish_reason": reason, "message": {"content": "Not NO, but"}}]}

    def say(_: str) -> Any:
        return "YES" if len(endpoint.asked) > 1 else (200, {"x": "y"}, json.dumps(half))

    with scripted(say) as endpoint:
        assert ask(config(endpoint)).text == "YES"


CUT = {
    "process": "The query looks GOOD at first, since it names the film. But the conversation shows that the same",
    "outcome_math": "Is it 5? YES would be right if",
    "research": '{"judgement": "correct"} is what I would say if',
    "reference": "Judgement: correct would be said if",
    "summary_crosswords": "**A** is what it says first, but",
    "extract": "\\boxed{5} is",
    "action_solution_step": "x = 5 -",
}


@pytest.mark.parametrize("kind", CUT)
def test_an_answer_that_was_cut_has_no_verdict_and_is_not_kept(kind: str, tmp_path: Path) -> None:
    judge_request = JudgeRequest(kind=kind, fields={name: "x" for name in KINDS[kind].fields})
    with scripted(lambda _: choice(CUT[kind], "length")) as endpoint:
        file = str(tmp_path / "answers.sqlite") if kind == "process" else None
        settings = config(endpoint, cache_file=file)

        async def story(judge: Judge) -> None:
            for _ in range(2):
                answer = await judge.ask(judge_request)
                assert (answer.verdict, answer.cut, answer.cached, answer.text) == (None, True, False, CUT[kind])
            assert (judge.stats().errors, judge.verdicts) == ({"cut": 2}, {f"{kind} cut": 2})
            assert read_answer(kind, make_answer(answer)).verdict is None  # through a service too
            with pytest.raises(EpisodeBroken, match=r"cut at its limit of tokens \(judge\.max_tokens\)"):
                await ask_for_verdict(judge, judge_request, "fail")

            assert len(endpoint.asked) == 3
            endpoint.say = lambda _: choice(CUT[kind], "stop")
            assert (await judge.ask(judge_request)).verdict is not None  # the text would have been one

        with_judge(settings, story)


def test_a_cut_answer_is_asked_for_again_or_speaks_against_as_the_rule_says() -> None:
    def say(_: str) -> Any:
        return "so BAD, no: GOOD" if "seed" in endpoint.asked[-1] else choice("it looks GOOD, but", "length")

    async def score(reward_config: SwirlRewardConfig) -> Any:
        rewards = RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=1.0))
        try:
            return await rewards.score(make_reward(reward_config), TRANSCRIPT)
        finally:
            await rewards.close()

    with scripted(say) as endpoint:
        wrong = asyncio.run(score(SwirlRewardConfig(judge=config(endpoint))))
        assert (wrong.value, wrong.judgements) == (0.0, ("[cut off]",) * 2)
        assert asyncio.run(score(SwirlRewardConfig(judge=config(endpoint, unparsable="retry")))).value == 1.0


@pytest.mark.parametrize(("stop", "cut"), [(TurnStop.LENGTH, True), (TurnStop.STOP, False)])
def test_an_engine_of_ours_says_that_it_was_cut(stop: TurnStop, cut: bool) -> None:
    async def generate(*_: Any) -> Any:
        return SimpleNamespace(text="GOOD so far, but", stop=stop)

    engine: Any = SimpleNamespace(spec=SimpleNamespace(model_path="m"), generate=generate)
    renderer: Any = SimpleNamespace(prompt_ids=lambda _: [1])

    async def story() -> Any:
        judge = Judge(EngineChat(engine, renderer), JudgeConfig(model="m"))
        return await judge.ask(JudgeRequest(kind="process", fields={"question": "q", "conversation": "c"}))

    answer = asyncio.run(story())
    assert (answer.cut, answer.verdict is None) == (cut, cut)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with refused(says="judge.key_env names the key") as caught:
        JudgeConfig(endpoint=f"https://me:{KEY}@host/v1", model="m")
    assert KEY not in str(caught.value)


def test_a_verdict_on_the_answer_fills_correct() -> None:
    class Outcome:
        always_judged = True

        def __init__(self, judge: JudgeConfig) -> None:
            self.judge = judge

        def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
            return (request(transcript.messages[-1].content),)

    async def story(judge: Judge) -> bool | None:
        return (await resolve_requests(Outcome(judge.config), TRANSCRIPT, NOBODY, lambda _: judge)).correct

    for text, correct in (("YES", True), ("NO", False), ("hm", False)):
        with scripted(lambda _, reply=text: reply) as endpoint:  # type: ignore[misc]
            assert with_judge(config(endpoint), story) is correct


def test_a_judge_that_is_out_is_no_verdict_on_the_policy() -> None:
    async def score(reward_config: SwirlRewardConfig) -> None:
        rewards = RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=1.0))
        try:
            await rewards.score(make_reward(reward_config), TRANSCRIPT)
        finally:
            await rewards.close()

    with scripted(lambda _: 500) as endpoint, pytest.raises(EpisodeBroken) as broken:
        asyncio.run(score(SwirlRewardConfig(judge=config(endpoint, outage_s=0.25))))
    assert (broken.value.failure.kind, broken.value.failure.where) == (FailureKind.INFRA, "judge")


# -- the command line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["serve", "judge"], "judge.model: expected a model folder"),
        (["serve", "judge", "--endpoint", "http://127.0.0.1:1/v1"], "judge.model=None"),
        (["serve", "judge", "--endpoint", "https://x/v1", "--model", "m", "--key-env", "NO_KEY"], "NO_KEY"),
        (["serve", "judge", "--model", "m", "--rpm", "0"], "judge.requests_per_minute=0"),
        (["judge-errors", "--input", "/no/such.jsonl", "--kind", "process"], "/no/such.jsonl: cannot be read"),
        (["judge-errors", "--input", "x", "--kind", "proces"], "did you mean 'process'"),
        (["judge-errors", "--input", "x", "--kind", "extract"], "its answers are free text"),
        (["judge-errors", "quickstart", "--input", "{labelled}", "--kind", "process"], "its reward has no judge"),
        (["judge-errors", "--input", "{labelled}", "--kind", "process"], "expected a CONFIG, or --endpoint"),
        (["judge-errors", "--input", "{labelled}", "--kind", "outcome_math"], "line 1: fields.answers: missing"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text('{"fields": {"question": "q", "conversation": "c"}, "label": "GOOD"}\n')
    if "outcome_math" in words:
        labelled.write_text('{"fields": {"question": "q"}, "label": "YES"}\n')
    assert run([word.replace("{labelled}", str(labelled)) for word in words]) == 2
    err = capsys.readouterr().err
    assert part in err and err.count("\n") == 1


def test_prompts_that_cannot_be_used_end_the_service_before_it_listens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "process.md").write_text("{question}")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    flags = ["--endpoint", "http://127.0.0.1:1/v1", "--model", "m", "--port", "0", "--prompts", str(tmp_path)]
    try:
        assert run(["serve", "judge", *flags]) == 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "process.md: missing {conversation}" in capsys.readouterr().err
