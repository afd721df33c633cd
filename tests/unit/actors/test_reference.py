"""A reference model in an engine of its own gives the ranks what a copy of it would, each value in its place."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from starlette.applications import Starlette

from actors.reference import ReferenceServiceConfig, check_reference, make_reference_app
from actors.specs import EngineFailed, PromptTooLong
from envs.services.http import HttpService
from learners.leaving import UpdateLeft
from learners.served_reference import ServedReference
from rlsys.batch import MicroBatch, make_row
from rlsys.config.engine import EngineConfig
from rlsys.errors import RunFailed
from rlsys.system.served import ReferenceAddress
from tests.makers import made
from tests.refused import refused

TOKEN = "t0ken"


class FakeEngine:
    """The log-probability of a token is minus its number, less a hundredth for each token before it."""

    spec = SimpleNamespace(model_path="teacher")
    failure: str | None = None

    def __init__(self, most: int = 1000) -> None:
        self.most, self.asked = most, 0

    async def prompt_logprobs(self, ids: Sequence[int]) -> list[float]:
        self.asked += 1
        if self.failure is not None:
            raise EngineFailed(self.failure)
        if len(ids) > self.most:
            raise PromptTooLong(len(ids), self.most)
        return [logprob(token, place) for place, token in enumerate(ids) if place]


def logprob(token: int, place: int) -> float:
    return -float(token) - 0.01 * place


Served = Callable[[Any], ReferenceAddress]


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Served:
    def start(engine: Any) -> ReferenceAddress:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Starlette]:
            yield make_reference_app(engine, TOKEN)

        limits = {"max_body_bytes": 1 << 20, "arrive_s": 10.0, "stop_s": 1.0}
        service = HttpService("reference", opened, host="127.0.0.1", port=0, **limits)
        request.addfinalizer(service.stop)
        return ReferenceAddress(url=service.start(), token=TOKEN)

    return start


def rows() -> list[MicroBatch]:
    """Two samples in the first row, of which the first has a reply between its sampled tokens; one in the second."""
    first = [made.sample((0, 1, 0, 1)), made.sample((0, 0, 1))]
    return [make_row(first), make_row([made.sample((0, 1, 1, 1, 1))])]


def expected(row: MicroBatch) -> list[float]:
    cuts = row.cu_seqlens.tolist()
    starts = [max(cut for cut in cuts if cut <= at) for at in range(row.num_tokens)]
    return [
        logprob(token, at - start) if trained else 0.0
        for at, (token, trained, start) in enumerate(
            zip(row.token_ids.tolist(), row.loss_mask.tolist(), starts, strict=True)
        )
    ]


def test_each_value_stands_at_its_token_and_nothing_is_asked_of_rows_without_one(served: Served) -> None:
    engine, batch = FakeEngine(), rows()
    empty = made_empty(batch[1])
    logprobs = ServedReference(served(engine), 10.0).logprobs([*batch, empty])
    assert [values.tolist() for values in logprobs[:2]] == [pytest.approx(expected(row)) for row in batch]
    assert logprobs[2].tolist() == [0.0] * empty.num_tokens and engine.asked == 3
    assert all(values.dtype == torch.float32 for values in logprobs)


def made_empty(row: MicroBatch) -> MicroBatch:
    return replace(row, loss_mask=torch.zeros_like(row.loss_mask))


def test_what_is_refused_ends_the_run_at_once(served: Served) -> None:
    with pytest.raises(RunFailed, match="3 at most"):
        ServedReference(served(FakeEngine(most=3)), 600.0).logprobs(rows())
    wrong = ReferenceAddress(url=served(FakeEngine()).url, token="another")
    with pytest.raises(RunFailed, match="is the key"):
        ServedReference(wrong, 0.1).logprobs(rows())


def test_an_engine_that_is_started_again_elsewhere_is_waited_for(served: Served) -> None:
    dead = FakeEngine()
    dead.failure = "the engine is gone"
    reference = ServedReference(served(dead), 60.0)
    alive = served(FakeEngine())
    timer = threading.Timer(0.3, reference.connect, [alive])
    timer.start()
    assert [values.tolist() for values in reference.logprobs(rows())] == [
        pytest.approx(expected(row)) for row in rows()
    ]
    timer.join()
    assert dead.asked


def test_any_answer_renews_the_patience_of_all_requests(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three requests take longer than the patience, and an answer comes within it."""
    monkeypatch.setattr("learners.served_reference.ASKED_TOKENS", 1)  # a request for each sequence

    class Slow(FakeEngine):
        async def prompt_logprobs(self, ids: Sequence[int]) -> list[float]:
            await asyncio.sleep(1.1 * (len(ids) - 2))  # of 3, 4 and 5 tokens: 1.1, 2.2 and 3.3 s
            return await super().prompt_logprobs(ids)

    logprobs = ServedReference(served(Slow()), 2.0).logprobs(rows())
    assert [values.tolist() for values in logprobs] == [pytest.approx(expected(row)) for row in rows()]


def test_one_that_stays_silent_ends_the_run_with_the_reason(served: Served) -> None:
    dead = FakeEngine()
    dead.failure = "the engine is gone"
    with pytest.raises(RunFailed, match="no answer for 0.2 s"):
        ServedReference(served(dead), 0.2).logprobs(rows())


def test_a_pass_that_waits_for_an_answer_may_be_left(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    dead = FakeEngine()
    dead.failure = "it died"
    counts: list[int] = []

    def check() -> None:
        counts.append(dead.asked)
        if dead.asked:
            raise UpdateLeft

    with pytest.raises(UpdateLeft):
        ServedReference(served(dead), 600.0).logprobs(rows(), check)
    assert counts[0] == 0 and counts[-1] > 0
    gc.collect()
    assert "never retrieved" not in caplog.text  # nothing still asks


def test_a_model_whose_context_is_shorter_than_the_policys_is_refused_before_it_starts(tmp_path: Path) -> None:
    def check(max_model_len: int) -> None:
        check_reference(
            ReferenceServiceConfig(
                model=str(tmp_path), max_model_len=max_model_len, engine=EngineConfig(), device="cpu", dtype="auto",
                fp32_head=False, gpus=0, threads=None,
            )
        )  # fmt: skip

    check(4097)  # nothing says how long it is
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "max_position_embeddings": 4096}))
    check(4096)
    with refused("learner.reference", found=str(tmp_path), expected="engine.max_model_len=4096"):
        check(4097)
