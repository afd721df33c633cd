"""A frozen model that has an engine of its own (`actors.reference`), asked for what a copy of it would compute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import torch

from envs.services.guard import ToolBusy, ToolRefused
from envs.services.json_client import JsonClient
from rlsys.batch import MicroBatch
from rlsys.errors import RunFailed
from rlsys.plan import consecutive
from rlsys.system.served import ReferenceAddress

ASKED_TOKENS = 32_768  # in one request; a longer sequence has its own
AT_ONCE = 4  # requests of a rank
PAUSE_S = 1.0  # before the next try
LOOK_S = 0.5  # between two looks at whether the pass is left
MAX_BYTES = 256 << 20  # of an answer: 20 a token, so that 13 million fit


class ServedReference:
    """Takes no memory of the rank. Every sequence is asked about by one rank alone."""

    def __init__(self, address: ReferenceAddress, patience_s: float) -> None:
        """patience_s: without an answer to any request, as while it is started again."""
        self.address = address
        self._patience_s = patience_s
        self._why = ""  # the last request got no answer

    def connect(self, address: ReferenceAddress) -> None:
        """It was started again elsewhere. From another thread, during a pass, too."""
        self.address = address

    def destroy(self) -> None:
        """Nothing is held here."""

    def logprobs(self, rows: Sequence[MicroBatch], check: Callable[[], None] = lambda: None) -> list[torch.Tensor]:
        """Of each row [T] float32 in host memory, 0 where the loss mask is 0; at temperature 1.

        check: called while it waits; what it raises ends the pass. Raises RunFailed where it refuses a sequence, or
        answers none of them for `patience_s`.
        """
        cuts = [row.cu_seqlens.tolist() for row in rows]
        places = [
            (at, first, end)
            for at, (row, cut) in enumerate(zip(rows, cuts, strict=True))
            for first, end in zip(cut, cut[1:], strict=False)
            if row.loss_mask[first:end].any()
        ]
        sequences = [rows[at].token_ids[first:end].tolist() for at, first, end in places]
        logprobs = [torch.zeros(row.num_tokens, dtype=torch.float32) for row in rows]
        for (at, first, end), values in zip(places, asyncio.run(self._ask(sequences, check)), strict=True):
            logprobs[at][first + 1 : end] = torch.tensor(values, dtype=torch.float32)
        return [logp_T.masked_fill(row.loss_mask == 0, 0.0) for row, logp_T in zip(rows, logprobs, strict=True)]

    async def _ask(self, sequences: Sequence[list[int]], check: Callable[[], None]) -> list[list[float]]:
        free, now = asyncio.Semaphore(AT_ONCE), asyncio.get_running_loop().time
        clock = asyncio.timeout(self._patience_s)  # one for all requests: each answer sets it back
        self._why = "it did not answer"

        async def ask(part: Sequence[list[int]]) -> list[list[float]]:
            async with free:
                values = await self._ask_until_answered(part)
            if not clock.expired():
                clock.reschedule(now() + self._patience_s)
            return values

        parts = list(consecutive(sequences, len, ASKED_TOKENS))
        try:
            async with clock:
                requests = asyncio.gather(*map(ask, parts))
                try:
                    while not requests.done():
                        check()
                        await asyncio.wait({requests}, timeout=LOOK_S)
                    answers = requests.result()
                finally:
                    requests.cancel()
                    await asyncio.gather(requests, return_exceptions=True)
        except TimeoutError as error:
            raise RunFailed(f"learner.reference: no answer for {self._patience_s:g} s ({self._why})") from error
        return [values for answer in answers for values in answer]

    async def _ask_until_answered(self, part: Sequence[list[int]]) -> list[list[float]]:
        while True:
            address = self.address
            client = JsonClient(address.url, address.token, name="the reference", max_bytes=MAX_BYTES, proxy=False)
            try:
                return _read_logprobs(await client.post("/logprobs", {"sequences": part}), part)
            except ToolRefused as error:
                raise RunFailed(f"learner.reference: {error}") from error
            except (OSError, ToolBusy, ValueError) as error:  # a timeout of the socket is an OSError, too
                self._why = f"{type(error).__name__}: {error}"
            finally:
                await client.close()
            await asyncio.sleep(PAUSE_S)


def _read_logprobs(answer: Any, part: Sequence[list[int]]) -> list[list[float]]:
    """Raises ValueError for another number of values than was asked for."""
    logprobs: list[list[float]] = answer["logprobs"] if isinstance(answer, dict) and "logprobs" in answer else []
    if [len(values) for values in logprobs] != [len(ids) - 1 for ids in part]:
        raise ValueError("other numbers of values than there are tokens")
    return logprobs
