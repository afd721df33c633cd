"""One question to each model at an address before a run: against a real HTTP server whose answers are scripted."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from typing import Any

import pytest

from envs.services import first_question
from envs.services.endpoint import Question
from envs.services.first_question import Address, check_addresses, judge_address, served_model_address
from envs.services.judge.config import JudgeConfig
from rlsys.config.served import ServedConfig
from rlsys.errors import BadInput
from tests.fakes.judge_endpoint import ScriptedEndpoint, choice, scripted

KEY = "sk-very-secret-key"
GONE = (404, {"x": "y"}, json.dumps({"error": {"message": "models/gone is not found"}}))


def judged(endpoint: ScriptedEndpoint, **more: Any) -> Address:
    address = judge_address("reward.judge", JudgeConfig(endpoint=endpoint.url, model="gone", **more))
    assert address is not None
    return address


def refusal(addresses: list[Address]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check_addresses(addresses, print)
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_answers_is_asked_once_whichever_keys_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    messages: list[str] = []
    with scripted(lambda prompt: "YES") as endpoint:
        check_addresses(
            [judged(endpoint, key_env="JUDGE_KEY"), judged(endpoint, key_env="JUDGE_KEY", attempts=9)], messages.append
        )
        assert (endpoint.greeted, endpoint.asked, messages) == (["gone"], [], [])
        endpoint.greet = lambda model: choice("", "length")  # it was still thinking
        check_addresses([judged(endpoint)], messages.append)
    assert messages == []


@pytest.mark.parametrize(
    ("answer", "key", "found"),
    [
        (GONE, "reward.judge.model", "gone"),
        (400, "reward.judge.model", "gone"),
        (401, "reward.judge.key_env", "JUDGE_KEY"),
        (403, "reward.judge.key_env", "JUDGE_KEY"),
        (500, "reward.judge.endpoint", "http"),
        ((301, {"Location": "http://127.0.0.1:1/"}, ""), "reward.judge.endpoint", "http"),
        ((200, {"x": "y"}, "<html>"), "reward.judge.endpoint", "http"),
        ((200, {"x": "y"}, "{}"), "reward.judge.endpoint", "http"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_key(
    answer: Any, key: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    monkeypatch.setattr(first_question, "PAUSE_S", 0.01)
    with scripted(lambda prompt: "YES") as endpoint:
        endpoint.greet = lambda model: answer
        error = refusal([judged(endpoint, key_env="JUDGE_KEY")])
    assert error.key == key and str(error.found).startswith(found)
    assert KEY not in str(error)


def test_a_dead_address_a_silent_one_and_a_key_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_question, "PAUSE_S", 0.01)
    monkeypatch.setattr(first_question, "ANSWER_S", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = Address(
            where="generate.teacher", deadline_s=0.2, url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1", model="m"
        )
        assert refusal([dead]).key == "generate.teacher.endpoint"
        assert refusal([replace(dead, where="reward.judge", key="service", model=None)]).key == "reward.judge.service"
    with scripted(lambda prompt: "YES") as endpoint:
        endpoint.greet = lambda model: None
        error = refusal([judged(endpoint, deadline_s=0.2)])
        assert error.key == "reward.judge.endpoint" and "no answer" in str(error)
        refused = Address(where="generate.teacher", url=dead.url, model="m")  # the silent one is not waited for
        assert refusal([judged(endpoint, deadline_s=500.0), refused]).key == "generate.teacher.endpoint"
        assert "reward.judge.key_env" in str(refusal([judged(endpoint, key_env="NOT_SET")]))


def test_a_server_that_is_busy_is_waited_for_and_then_taken_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_question, "PAUSE_S", 0.01)
    messages: list[str] = []
    answers = iter([(429, {"Retry-After": "0"}, ""), (503, {"Retry-After": "0"}, ""), "yes"])
    with scripted(lambda prompt: "YES") as endpoint:
        endpoint.greet = lambda model: next(answers)
        check_addresses([judged(endpoint)], messages.append)
        assert messages == [] and len(endpoint.greeted) == 3
        monkeypatch.setattr(first_question, "BUSY_S", 0.1)
        endpoint.greet = lambda model: (429, {"Retry-After": "0"}, "")
        check_addresses([judged(endpoint)], messages.append)
    assert len(messages) == 1 and re.match(r"reward\.judge\.endpoint: .* answered 429", messages[0])


def test_a_server_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_question, "PAUSE_S", 0.01)
    answers = iter([502, "yes"])
    with scripted(lambda prompt: "YES") as endpoint:
        endpoint.greet = lambda model: next(answers)
        check_addresses([judged(endpoint)], print)


@pytest.mark.parametrize("judge", [{}, {"model": "own"}, {"endpoint": "http://h/v1", "model": "m", "ask_first": False}])
def test_no_judge_one_of_the_runs_own_and_one_that_comes_later_are_not_asked(judge: dict[str, Any]) -> None:
    assert judge_address("reward.judge", JudgeConfig(**judge)) is None


def test_an_answer_is_waited_for_as_long_as_any_other_of_the_judge() -> None:
    judges = [JudgeConfig(service="http://h", deadline_s=deadline) for deadline in (5.0, 120.0)]
    addresses = [judge_address("reward.judge", judge) for judge in judges]
    assert [address.answer_s for address in addresses if address is not None] == [60.0, 120.0]


def test_the_model_of_an_evaluation_is_asked_as_its_episodes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_question, "PAUSE_S", 0.01)
    seen: list[Any] = [500, (400, {"x": "y"}, "Unsupported parameter: 'stop'")]
    question = Question(messages=(), max_tokens=9, temperature=0.7, top_p=0.9, seed=1, stop=("</a>",))
    with scripted(lambda prompt: "YES") as endpoint:
        endpoint.greet = lambda model: seen.pop(0) if seen else "yes"
        config = ServedConfig(endpoint=endpoint.url, model="big", limit_key="max_completion_tokens", omit=("seed",))
        error = refusal([served_model_address(config, question)])
        assert (error.key, error.found) == ("--model", "big")
        assert "Unsupported parameter: 'stop'" in str(error) and "--omit" in str(error)
        check_addresses([served_model_address(config, question)], print)
        endpoint.greet = lambda model: 401
        assert refusal([served_model_address(config, question)]).key == "--key-env"
        assert endpoint.greeted_with[0] == {
            "model": "big",
            "messages": [{"role": "user", "content": "Reply with yes."}],
            "max_completion_tokens": 9,
            "temperature": 0.7,
            "top_p": 0.9,
            "stop": ["</a>"],
        }
    assert refusal([served_model_address(config, question)]).key == "--endpoint"
