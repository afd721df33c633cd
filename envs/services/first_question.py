"""One question to a model at an address before a run starts: whether it is there, has this name and takes this key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from envs.services.endpoint import Endpoint, Question
from envs.services.guard import ToolBusy, ToolRefused
from envs.services.json_client import JsonClient
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import read_answer
from envs.services.secrets import read_secret
from rlsys.config.generate import EndpointConfig
from rlsys.errors import BadInput
from rlsys.types import Message

QUESTION = Question(messages=(Message(role="user", content="Reply with yes."),), max_tokens=16, temperature=0.0)
KIND = "outcome_math"
OF_A_SERVICE = {"kind": KIND, "fields": {"question": "1 + 1 = ?", "answers": "2", "answer": "2"}, "seed": 0}
ANSWER_S = 60.0  # for one answer: a model that thinks, on a server that is warming up
BUSY_S = 30.0  # that a server which asks to come back is given
ATTEMPTS, PAUSE_S = 3, 1.0  # at an address that does not answer


class KeyRefused(Exception):
    """401 or 403."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A model at an address."""

    where: str  # the keys that name it begin so: "reward.judge"
    key: str = "endpoint"  # the last part of the one that holds the address: a running `rlsys serve judge` has service
    url: str
    model: str | None = None  # None: the server at the address has its own
    key_env: str | None = None

    @property
    def same(self) -> tuple[str, str | None, str | None]:
        """Equal for addresses of which one answer says everything."""
        return self.url, self.model, self.key_env


def address_of_judge(where: str, judge: JudgeConfig | None) -> Address | None:
    """None for no judge, one that the run serves by itself, and one that is not to be asked."""
    if judge is None or not judge.ask_first:
        return None
    if judge.service is not None:
        return Address(where=where, key="service", url=judge.service, key_env=judge.key_env)
    if judge.endpoint is None:
        return None
    return Address(where=where, url=judge.endpoint, model=judge.model, key_env=judge.key_env)


def address_of_model(where: str, config: EndpointConfig) -> Address:
    return Address(where=where, url=str(config.endpoint), model=config.model, key_env=config.key_env)


def ask_all(addresses: Sequence[Address], say: Callable[[str], None]) -> None:
    """Ask each different one, all at once. Raises BadInput, which names the key, for the first that cannot be used.

    One that is busy for `BUSY_S` has been found: a sentence says so.
    """
    different: dict[object, Address] = {}
    for each in addresses:
        different.setdefault(each.same, each)
    for sentence in filter(None, asyncio.run(_ask_all(list(different.values())))):
        say(sentence)


async def _ask_all(addresses: Sequence[Address]) -> list[str]:
    found = await asyncio.gather(*map(_ask, addresses), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if isinstance(each, str)]


async def _ask(address: Address) -> str:
    """What to tell the user, or "". Raises BadInput."""
    where, key_key, at = address.where, f"{address.where}.key_env", f"{address.where}.{address.key}"
    key = read_secret(key_key, address.key_env)
    try:
        async with asyncio.timeout(ANSWER_S + BUSY_S):
            await _until_answered(address, key)
    except KeyRefused as error:
        raise BadInput(error, key=key_key, found=address.key_env, expected=f"a key for {address.url}") from error
    except ToolBusy as error:
        return f"{where}: {error} for {BUSY_S:g} s: it is there, and its answers will be waited for"
    except ToolRefused as error:
        named = (f"{where}.model", address.model) if address.model is not None else (at, address.url)
        raise BadInput(error, key=named[0], found=named[1], expected=f"a model at {address.url}") from error
    except TimeoutError as error:
        raise BadInput(f"no answer within {ANSWER_S:g} s", key=at, found=address.url) from error
    except (ValueError, OSError) as error:
        raise BadInput(error, key=at, found=address.url, expected="an address that answers") from error
    return ""


async def _until_answered(address: Address, key: str | None) -> None:
    """Raises what the last attempt did. A refusal needs no second one."""
    clock = asyncio.get_running_loop()
    patience, left = clock.time() + BUSY_S, ATTEMPTS
    while True:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await _once(address, key)
        except ToolBusy as error:
            pause_s = min(max(error.after_s, PAUSE_S), max(0.0, patience - clock.time()))
            if not pause_s:
                raise
        except TimeoutError:
            raise
        except OSError:
            left, pause_s = left - 1, PAUSE_S
            if not left:
                raise
        await asyncio.sleep(pause_s)


async def _once(address: Address, key: str | None) -> None:
    options: dict[str, Any] = {"key_from": address.key_env or "", "refused_key": KeyRefused, "name": "the server"}
    if address.model is not None:
        endpoint = Endpoint(address.url, address.model, key, **options)
        try:
            await endpoint.complete(QUESTION)
        finally:
            await endpoint.close()
        return
    client = JsonClient(address.url, key, **options)
    try:
        read_answer(KIND, await client.post("/judge", OF_A_SERVICE))
    finally:
        await client.close()
