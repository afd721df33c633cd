"""How a version comes to every node, over fake distributor: who fetches what from whom, and what a death costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import actors.weights.distributor
from actors.weights.distributor import DistributorOptions, Superseded, WeightDistributor
from actors.weights.transfer import SourceFailed
from rlsys.errors import RunFailed
from rlsys.system.weight_folder import Part, WeightFolder, WeightManifest
from tests.fakes.fake_ray import FakeRay
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import until


@dataclass
class Disks:
    """What lies on the nodes, and what the test wants to go wrong there."""

    parts: dict[str, set[tuple[int, int]]] = field(default_factory=dict)  # by node: versions and numbers
    starts: list[tuple[str, int | None]] = field(default_factory=list)
    fetched: list[tuple[str, int, str]] = field(default_factory=list)  # to, part, from
    asked: list[tuple[str, str]] = field(default_factory=list)  # node and method
    tokens: set[str] = field(default_factory=set)
    hosts: set[Any] = field(default_factory=set)
    kept: list[tuple[str, int]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # versions whose files were removed where they were written
    fetching: Counter[str] = field(default_factory=Counter)
    most: int = 0
    start: Callable[[Any], Awaitable[None]] | None = None
    fetch: Callable[[Any, int, str], Awaitable[None]] | None = None


class FakeStore:
    disks: Disks
    die: Callable[[], None]

    def __init__(self, folder: WeightFolder, host: str | None) -> None:
        self.node = folder.node
        self.disks.hosts.add(host)

    async def start(self, kept: int | None) -> None:
        self.disks.starts.append((self.node, kept))
        if self.disks.start is not None:
            await self.disks.start(self)

    async def stand(self) -> None:
        await asyncio.Event().wait()

    def serve(self, token: str) -> str:
        self.disks.asked.append((self.node, "serve"))
        self.disks.tokens.add(token)
        return f"grpc://{self.node}"

    def list_present(self, published: WeightManifest) -> list[int]:
        present = published.version not in self.disks.gone
        own = {number for number, part in enumerate(published.parts) if present and part.node == self.node}
        brought = {number for version, number in self.disks.parts.get(self.node, ()) if version == published.version}
        return sorted(own | brought)

    async def fetch(self, published: WeightManifest, number: int, address: str, timeout_s: float) -> None:
        assert timeout_s == 7.0
        disks = self.disks
        disks.fetching[self.node] += 1
        disks.most = max(disks.most, *disks.fetching.values())
        try:
            await asyncio.sleep(0)
            if disks.fetch is not None:
                await disks.fetch(self, number, address.removeprefix("grpc://"))
            disks.fetched.append((self.node, number, address.removeprefix("grpc://")))
            disks.parts.setdefault(self.node, set()).add((published.version, number))
        finally:
            disks.fetching[self.node] -= 1

    def keep(self, version: int) -> None:
        self.disks.kept.append((self.node, version))

    def stop(self) -> None:
        self.disks.asked.append((self.node, "stop"))


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, fake_ray: FakeRay) -> Iterator[Disks]:
    fake_disks = Disks()
    monkeypatch.setattr(actors.weights.distributor, "ray", fake_ray)
    strategy = "NodeAffinitySchedulingStrategy"  # Ray's own takes names of Ray's nodes alone
    monkeypatch.setattr(actors.weights.distributor, strategy, lambda node, *, soft: (node, soft))
    monkeypatch.setattr(
        actors.weights.distributor, "NodeWeightStore", type("ScriptedStore", (FakeStore,), {"disks": fake_disks})
    )
    yield fake_disks


def sent(version: int, *owners: str, digest: int | None = 1) -> WeightManifest:
    parts = [Part(name=f"p{number}", bytes=10, digest=digest, node=owner) for number, owner in enumerate(owners)]
    return WeightManifest(version=version, places=tuple(part.name for part in parts), parts=tuple(parts))


def run(scenario: Callable[[WeightDistributor], Awaitable[None]], **given: Any) -> None:
    async def whole() -> None:
        options = DistributorOptions(env_vars={"A": "b"}, start_timeout_s=5, fetch_timeout_s=7.0, run="r", host="ib0")
        distributor = WeightDistributor(WeightFolder(Path("/here"), ""), options)
        try:
            await scenario(distributor)
        finally:
            await distributor.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


def handle(distributor: WeightDistributor, node: str) -> Any:
    return distributor.nodes[node].life.handle


def test_only_a_store_that_keeps_a_version_has_made_progress(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its restarts count from its last progress: one that fails at every version must not be restarted for ever."""

    def keep(store: FakeStore, version: int) -> None:
        if store.node == "b":
            raise OSError("disk full")
        disks.kept.append((store.node, version))

    monkeypatch.setattr(FakeStore, "keep", keep)

    async def scenario(distributor: WeightDistributor) -> None:
        await distributor.ensure(["a", "b"])
        for node in ("a", "b"):
            distributor.nodes[node].life.futile = 3
        await distributor.keep(1)
        assert [distributor.nodes[node].life.futile for node in ("a", "b")] == [0, 3]

    run(scenario)
    assert disks.kept == [("a", 1)]


def test_a_store_has_longer_to_answer_than_it_may_take_itself(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a source that is late would count as a store that is dead."""
    waited: set[float] = set()
    whole = actors.weights.distributor.call

    async def call(asked: Any, what: str, seconds: float, key: str) -> Any:
        waited.add(seconds)
        return await whole(asked, what, seconds, key)

    async def scenario(distributor: WeightDistributor) -> None:
        await distributor.ensure(["a", "b"])
        waited.clear()
        await distributor.bring(sent(1, "a"), "b")
        assert min(waited) > 7.0

    monkeypatch.setattr(actors.weights.distributor, "call", call)
    run(scenario)


def test_every_node_gets_what_it_lacks_once_and_old_versions_go(disks: Disks, fake_ray: FakeRay) -> None:
    async def scenario(distributor: WeightDistributor) -> None:
        assert distributor.transfer_progress() == (0, 0.0)
        await distributor.ensure(["a", "a"])
        assert not distributor.folder.digests  # one node: nobody would look at them
        await distributor.ensure(["b", "c"])
        assert distributor.folder.digests and sorted(disks.starts) == [("a", None), ("b", None), ("c", None)]
        version = sent(4, *"aaaaaaaaaaaabbbbbbbbbbbb")
        brought = await asyncio.gather(*(distributor.bring(version, node) for node in "abc"))
        assert [{Path(place).parts[1] for place in delivery.places} for delivery in brought] == [
            {"here-a"}, {"here-b"}, {"here-c"}
        ]  # fmt: skip
        assert Counter(node for node, _, _ in disks.fetched) == {"a": 12, "b": 12, "c": 24}
        assert len(disks.fetched) == len(set(disks.fetched)) and disks.most == 8
        assert all(source != node for node, _, source in disks.fetched)
        carried, seconds = distributor.transfer_progress()
        assert carried == 480 and 0 < seconds < 10
        await distributor.bring(version, "c")  # a worker that came up late
        assert distributor.transfer_progress() == (480, seconds)
        await distributor.keep(4)
        assert sorted(disks.kept) == [("a", 4), ("b", 4), ("c", 4)]

    run(scenario)
    assert len(disks.tokens) == 1 and len(next(iter(disks.tokens))) == 32 and disks.hosts == {"ib0"}
    calls = Counter(disks.asked)
    assert all(calls[node, "stop"] == 1 for node in "abc")
    assert calls["c", "serve"] <= 8  # its streams may ask together for its address, and then it is known
    assert all(actor.killed for actor in fake_ray.handles)
    options = fake_ray.options["rlsys:r:weights:a"]
    assert (options["num_cpus"], options["max_restarts"], options["max_concurrency"]) == (0, 0, 2 * 8 + 4)
    assert options["runtime_env"]["env_vars"].items() >= {"A": "b", "MALLOC_MMAP_THRESHOLD_": "1073741824"}.items()
    assert options["scheduling_strategy"] == ("a", False)


def test_what_was_sent_for_one_node_comes_to_no_second_one(disks: Disks) -> None:
    async def scenario(distributor: WeightDistributor) -> None:
        version = sent(2, "a", "a", digest=None)
        await distributor.bring(version, "a")
        with pytest.raises(RunFailed, match="version 2, sent when the run had one node, is not on node b"):
            await distributor.bring(version, "b")
        assert not disks.fetched and distributor.transfer_progress() == (0, 0.0)

    run(scenario)


def test_what_went_between_its_export_and_its_delivery_is_not_taken_for_there(disks: Disks) -> None:
    async def scenario(distributor: WeightDistributor) -> None:
        for digest, says in ((None, "is not on node a"), (1, "lies on no node that can send it")):
            disks.gone = {3}
            with pytest.raises(RunFailed, match=says):
                await distributor.bring(sent(3, "a", digest=digest), "a")
            disks.gone = set()
            again = sent(3, "a", digest=digest)  # as it was exported once more
            assert (await distributor.bring(again, "a")).parts == again.parts

    run(scenario)


def test_who_waits_for_a_version_hears_that_a_newer_one_is_on_its_way(disks: Disks) -> None:
    async def fetch(store: Any, number: int, source: str) -> None:
        if number == 0 and not gate.is_set():
            await gate.wait()

    gate = asyncio.Event()
    disks.fetch = fetch

    async def scenario(distributor: WeightDistributor) -> None:
        first = asyncio.create_task(distributor.bring(sent(1, "a", "a"), "b"))
        await until(lambda: len(disks.fetched) == 1)
        second = asyncio.create_task(distributor.bring(sent(2, "a", "a"), "b"))
        with pytest.raises(Superseded):
            await first
        gate.set()
        assert (await second).version == 2
        assert {(2, 0), (2, 1)} <= disks.parts["b"]

    run(scenario)


@pytest.mark.parametrize("victim", ["a", "b"], ids=["source", "receiver"])
def test_a_store_that_dies_in_a_delivery_comes_back_with_what_it_had(
    disks: Disks, fake_ray: FakeRay, victim: str
) -> None:
    async def fetch(store: Any, number: int, source: str) -> None:
        if number == 5 and not died:
            await until(lambda: len(disks.fetched) >= 4)
            died.append(number)
            handle(whole[0], victim).die()
            raise SourceFailed("cut")

    died: list[int] = []
    whole: list[WeightDistributor] = []
    disks.fetch = fetch

    async def scenario(distributor: WeightDistributor) -> None:
        whole.append(distributor)
        await distributor.ensure("ab")
        await distributor.bring(sent(3, *"aaaaaa"), "b")
        assert disks.parts["b"] == {(3, number) for number in range(6)}
        assert Counter(number for _, number, _ in disks.fetched)[0] == 1  # it lay there already
        assert Counter(node for node, _ in disks.starts) == {"a": 1, "b": 1} | {victim: 2}
        assert f"rlsys:r:weights:{victim}#1" in fake_ray.options

    run(scenario)


def test_a_store_that_dies_at_rest_is_back_at_once_and_keeps_the_newest(disks: Disks) -> None:
    async def scenario(distributor: WeightDistributor) -> None:
        await distributor.bring(sent(3, "a"), "b")
        await distributor.keep(3)
        handle(distributor, "b").die()
        await until(lambda: disks.starts[-1] == ("b", 3))
        await until(lambda: handle(distributor, "b") is not None)
        assert not handle(distributor, "b").killed and distributor.nodes["b"].life.restarts == 1

    run(scenario)


def test_another_node_is_asked_for_what_one_does_not_give(disks: Disks) -> None:
    async def fetch(store: Any, number: int, source: str) -> None:
        if store.node == "c" and source == "a":
            refused.append(number)
            raise SourceFailed(f"{number} from a")

    refused: list[int] = []
    disks.fetch = fetch

    async def scenario(distributor: WeightDistributor) -> None:
        version = sent(3, "a", "a")
        await distributor.bring(version, "b")
        await distributor.bring(version, "c")
        assert [source for node, _, source in disks.fetched if node == "c"] == ["b", "b"]
        assert distributor.transfer_progress()[0] == 40
        assert len(disks.starts) == 3  # nobody was taken for dead

    run(scenario)


def test_a_part_that_nobody_gives_is_an_error_that_names_it_and_the_version_may_be_asked_for_again(
    disks: Disks,
) -> None:
    async def fetch(store: Any, number: int, source: str) -> None:
        if number == 1:
            refused.append(number)
            raise SourceFailed("1 from a")

    refused: list[int] = []
    disks.fetch = fetch

    async def scenario(distributor: WeightDistributor) -> None:
        with pytest.raises(RunFailed, match="p1 of version 3 lies on no node that can send it"):
            await distributor.bring(sent(3, "a", "a"), "b")
        assert len(refused) == 2  # twice from the same source, and not for ever
        disks.fetch = None
        assert (await distributor.bring(sent(4, "a", "a"), "b")).version == 4

    run(scenario)


def test_a_node_whose_memory_is_full_is_told_apart_from_one_that_died(disks: Disks) -> None:
    async def fetch(store: Any, number: int, source: str) -> None:
        raise OSError("no space left")

    disks.fetch = fetch

    async def scenario(distributor: WeightDistributor) -> None:
        version = sent(3, "a")
        with pytest.raises(RunFailed, match="the weight store of node b doing fetch: OSError: no space left"):
            await distributor.bring(version, "b")
        assert [node for node, _ in disks.starts].count("b") == 1
        disks.fetch = None
        await distributor.bring(version, "b")  # the same version: it is tried anew
        assert disks.fetched == [("b", 0, "a")]

    run(scenario)


def test_a_store_that_does_not_start_or_dies_again_and_again_is_given_up(disks: Disks, fake_ray: FakeRay) -> None:
    async def start(store: Any) -> None:
        raise RuntimeError("the lock is taken")

    disks.start = start

    async def scenario(distributor: WeightDistributor) -> None:
        for _ in range(6):
            with pytest.raises(RunFailed, match="weight store of node a starting: RuntimeError: the lock is taken"):
                await distributor.ensure(["a"])
        assert all(actor.killed for actor in fake_ray.handles)
        with pytest.raises(
            RunFailed,
            match="weight store of node a was restarted 5 times without keeping a version; last: .*lock is taken",
        ):
            await distributor.ensure(["a"])
        assert len(disks.starts) == 6

    run(scenario)


def test_one_that_kept_a_version_has_all_its_tries_again(disks: Disks) -> None:
    async def start(store: Any) -> None:
        raise RuntimeError("the lock is taken")

    async def scenario(distributor: WeightDistributor) -> None:
        await distributor.ensure("ab")
        await distributor.keep(1)
        disks.start = start
        handle(distributor, "a").die()
        await until(lambda: handle(distributor, "a") is None)
        for _ in range(5):
            with pytest.raises(RunFailed, match="weight store of node a starting"):
                await distributor.ensure(["a"])
        with pytest.raises(
            RunFailed,
            match="weight store of node a was restarted 5 times without keeping a version; last: .*lock is taken",
        ):
            await distributor.ensure(["a"])
        assert len(disks.starts) == 2 + 5

    run(scenario)


def test_one_that_kept_a_version_between_its_deaths_is_not_given_up(disks: Disks) -> None:
    async def scenario(distributor: WeightDistributor) -> None:
        for number in range(8):
            await distributor.bring(sent(number, "a"), "a")
            await distributor.keep(number)
            before = handle(distributor, "a")
            before.die()
            await until(lambda before=before: handle(distributor, "a") not in (before, None))  # type: ignore[misc]
        assert len(disks.starts) == 9

    run(scenario)


def test_at_the_end_a_death_starts_nothing(disks: Disks, fake_ray: FakeRay) -> None:
    run(lambda distributor: distributor.ensure("ab"))
    assert len(fake_ray.handles) == 2 and sorted(disks.asked) == [("a", "stop"), ("b", "stop")]
