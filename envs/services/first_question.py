"""One question to a model at an address before a run starts: whether it is there, has this name and takes this key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envs.services.endpoint import Endpoint, Question
from envs.services.guard import ToolBusy, ToolRefused
from envs.services.json_client import JsonClient
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import read_answer
from envs.services.secrets import read_secret
from rlsys.config.generate import EndpointConfig
from rlsys.config.served import ServedConfig
from rlsys.errors import BadInput
from rlsys.types import Message

QUESTION = Question(messages=(Message(role="user", content="Reply with yes."),), max_tokens=16, temperature=0.0)
KIND = "outcome_math"
OF_A_SERVICE = {"kind": KIND, "fields": {"question": "1 + 1 = ?", "answers": "2", "answer": "2"}, "seed": 0}
ANSWER_S = 60.0  # for one answer at least: a model that thinks, on a server that is warming up
BUSY_S = 30.0  # that a server which asks to come back is given
ATTEMPTS, PAUSE_S = 3, 1.0  # at an address that does not answer


class KeyRefused(Exception):
    """401 or 403."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A model at an address."""

    where: str  # the keys that name it begin so: "reward.judge"; "" for options, such as --endpoint
    key: str = "endpoint"  # the last part of the one that holds the address: a running `rlsys serve judge` has service
    url: str
    model: str | None = None  # None: the server at the address has its own
    key_env: str | None = None
    deadline_s: float = ANSWER_S  # of an attempt at its answers
    question: Question = QUESTION
    omit: tuple[str, ...] = ()  # as `Endpoint` has them
    limit_key: str = "max_tokens"

    @property
    def question_identity(self) -> tuple[object, ...]:
        """Equal for addresses of which one answer says everything."""
        return self.url, self.model, self.key_env, self.question, self.omit, self.limit_key

    @property
    def answer_s(self) -> float:
        """For one answer."""
        return max(ANSWER_S, self.deadline_s)

    def option_name(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else f"--{key.replace('_', '-')}"


def judge_address(where: str, judge: JudgeConfig | None) -> Address | None:
    """None for no judge, one that the run serves by itself, and one that is not to be asked."""
    if judge is None or not judge.ask_first:
        return None
    options: dict[str, Any] = {"where": where, "key_env": judge.key_env, "deadline_s": judge.deadline_s}
    if judge.service is not None:
        return Address(key="service", url=judge.service, **options)
    if judge.endpoint is None:
        return None
    return Address(url=judge.endpoint, model=judge.model, **options)


def model_address(where: str, config: EndpointConfig, **more: Any) -> Address:
    return Address(where=where, url=str(config.endpoint), model=config.model, key_env=config.key_env, **more)


def served_model_address(config: ServedConfig, question: Question) -> Address:
    """Of the model that an evaluation's options name. question: how its episodes are sampled."""
    probe = replace(question, messages=QUESTION.messages)
    fields = {"omit": config.omit, "limit_key": config.limit_key, "deadline_s": config.deadline_s}
    return model_address("", config, question=probe, **fields)


def check_addresses(addresses: Sequence[Address], say: Callable[[str], None]) -> None:
    """Ask each different one, all at once. Raises BadInput, which names the key, for the first that cannot be used.

    One that is busy for `BUSY_S` has been found: a sentence says so.
    """
    different: dict[object, Address] = {}
    for address in addresses:
        different.setdefault(address.question_identity, address)
    for sentence in filter(None, asyncio.run(_check_all(list(different.values())))):
        say(sentence)


async def _check_all(addresses: Sequence[Address]) -> list[str]:
    tasks = [asyncio.create_task(_check_address(address)) for address in addresses]
    if not tasks:
        return []
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)  # the others may be silent for minutes
    failed = [error for task in tasks if task.done() and (error := task.exception()) is not None]
    if failed:
        raise failed[0]
    return [task.result() for task in tasks]


async def _check_address(address: Address) -> str:
    """What to tell the user, or "". Raises BadInput."""
    at = address.option_name(address.key)
    key = read_secret(address.option_name("key_env"), address.key_env)
    try:
        async with asyncio.timeout(address.answer_s + BUSY_S):
            await _ask_until_answered(address, key)
    except KeyRefused as error:
        expected = f"a key for {address.url}"
        raise BadInput(error, key=address.option_name("key_env"), found=address.key_env, expected=expected) from error
    except ToolBusy as error:
        return f"{at}: {error} for {BUSY_S:g} s: it is there, and its answers will be waited for"
    except ToolRefused as error:
        raise _refusal_error(address, error) from error
    except TimeoutError as error:
        raise BadInput(f"no answer within {address.answer_s:g} s", key=at, found=address.url) from error
    except (ValueError, OSError) as error:
        raise BadInput(error, key=at, found=address.url, expected="an address that answers") from error
    return ""


def _refusal_error(address: Address, error: ToolRefused) -> BadInput:
    if address.model is None:
        return BadInput(error, key=address.option_name(address.key), found=address.url, expected="a judge there")
    fields = "" if address.where else "; --omit and --limit-key name what its server does not know"
    expected = f"a model at {address.url}{fields}"
    return BadInput(error, key=address.option_name("model"), found=address.model, expected=expected)


async def _ask_until_answered(address: Address, key: str | None) -> None:
    """Raises what the last attempt did. A refusal needs no second one."""
    clock = asyncio.get_running_loop()
    patience, attempts_left = clock.time() + BUSY_S, ATTEMPTS
    while True:
        try:
            async with asyncio.timeout(address.answer_s):
                return await _ask_once(address, key)
        except ToolBusy as error:
            pause_s = min(max(error.after_s, PAUSE_S), max(0.0, patience - clock.time()))
            if not pause_s:
                raise
        except TimeoutError:
            raise
        except OSError:
            attempts_left, pause_s = attempts_left - 1, PAUSE_S
            if not attempts_left:
                raise
        await asyncio.sleep(pause_s)


async def _ask_once(address: Address, key: str | None) -> None:
    options: dict[str, Any] = {"key_from": address.key_env or "", "refused_key": KeyRefused, "name": "the server"}
    if address.model is not None:
        options |= {"omit": address.omit, "limit_key": address.limit_key}
        endpoint = Endpoint(address.url, address.model, key, **options)
        try:
            await endpoint.complete(address.question)
        finally:
            await endpoint.close()
        return
    client = JsonClient(address.url, key, **options)
    try:
        read_answer(KIND, await client.post("/judge", OF_A_SERVICE))
    finally:
        await client.close()
