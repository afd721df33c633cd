"""The learner's weights on the engines (elsewhere `update_weights`): exported, delivered, proven on the same tokens."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from actors.weights.check import LEAST_LIMIT, TAIL, TIMES_ROUNDING, WeightUpdate, allowed_gap
from rlsys.alternating_cards import AlternatingCards
from rlsys.errors import RunFailed
from rlsys.probe import Probe, ProbeValues, mean_gap
from rlsys.system.device import RoundingUnits

if TYPE_CHECKING:  # Ray and torch behind these
    from actors.pool import RolloutPool
    from learners.group import LearnerGroup
    from rlsys.system.weight_folder import WeightManifest

# Noise of the start-up canary, in the order of trial. The first whose change stands clear of rounding is taken: the
# more noise the better one stale tensor shows, until a deep model turns chaotic and rounding grows faster than the
# change (benchmarks/canary.py). So more of it is tried last, for models that little moves, such as a small adapter.
# Without a clear one the best is taken, if it shows anything at all.
NOISES = (0.25, 0.12, 0.06, 0.03, 0.015, 0.5)
CLEAR, LEAST_CLEAR = 15.0, 4.0  # times as large as rounding
MOVES_LEAST = 0.2  # nats per token
Logprobs = Sequence[Sequence[float]]
SENT_AGAIN = 3  # times, of one version that is gone from every node
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NoiseTrial:
    """What a noise does to the learner's own log-probabilities of the probe."""

    noise: float
    moved: float  # nats per token
    clear: float  # how many times as far as rounding moves them

    @property
    def is_clear(self) -> bool:
        return self.clear >= CLEAR and self.moved >= MOVES_LEAST


class WeightSync:
    """Between one learner and one pool.

    units: of the side that rounds more coarsely. configured: `loop.mismatch_limit`. cards: GPUs that both use.
    """

    def __init__(
        self,
        learner: LearnerGroup,
        pool: RolloutPool,
        units: RoundingUnits,
        configured: float | None = None,
        cards: AlternatingCards | None = None,
    ) -> None:
        self._cards = cards or AlternatingCards()
        self._learner, self._pool, self._units, self._configured = learner, pool, units, configured
        self.probe: tuple[tuple[int, ...], ...] = ()  # token ids of a few prompts, on which both are compared
        self.gap: dict[str, float] = {}  # between their log-probabilities, as last measured
        self._canaries = 0  # perturbed versions so far: -1, -2 ...; never trained, never sampled from
        self._moved = math.inf  # nats per token, by the last of them
        self._exported: tuple[int | None, Probe] = (None, self._probe())  # last: the learner has these weights
        self._again = 0  # times that version was sent once more
        self._sending = asyncio.Lock()

    def _probe(self, noise: float = 0.0, long: tuple[int, ...] = ()) -> Probe:
        return Probe(
            samples=(*self.probe, long) if long else self.probe, units=self._units, noise=noise, seed=self._canaries
        )

    async def export(self, version: int, *, long: tuple[int, ...] = ()) -> WeightUpdate:
        """Send the learner's weights as `version`, with its own log-probabilities of the probe to compare with.

        long: one more sample, at the end of which they are compared too.
        """
        probe = self._probe(long=long)
        update, values = await self._export(version, probe)
        short = slice(len(self.probe))
        update = replace(update, limit=self._limit(values.logprobs[short], values.rounded[short]))
        if not long:
            return update
        ours, rounded = values.logprobs[-1][-TAIL:], values.rounded[-1][-TAIL:]
        return replace(update, tail_limit=self._limit([ours], [rounded]))

    def _limit(self, logprobs: Logprobs, rounded: Logprobs) -> float:
        return allowed_gap(mean_gap(logprobs, rounded), moved=self._moved, configured=self._configured)

    async def _export(self, version: int, probe: Probe) -> tuple[WeightUpdate, ProbeValues]:
        published, values = await self._send(version, probe)
        self._exported, self._again = (version, probe), 0
        expected = tuple(map(tuple, values.logprobs))
        return WeightUpdate(published=published, probe=probe.samples, expected=expected, limit=0.0), values

    async def _send(self, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        try:
            folder = await self._pool.publisher.folder_on(self._learner.node_ids)
            return await self._learner.export(folder, version, probe)
        except RunFailed:  # where a rank's node is gone, its weight store may be the first to say so
            await self._learner.check(f"sending version {version}")
            raise

    async def through(self, waiting: Awaitable[T]) -> T:
        """Await what needs engines, while the learner's weights do not change.

        A version that is gone from every node, with a weight store or a machine that died, is exported once more for
        the workers that come back without it: nothing else would end the wait. Raises RunFailed where that does not
        help and no worker serves.
        """
        async with self._cards.wish():
            return await self._with_versions(waiting)

    async def _with_versions(self, waiting: Awaitable[T]) -> T:
        task = asyncio.ensure_future(waiting)
        try:
            while True:
                waiter = asyncio.ensure_future(self._pool.publisher.gone.wait())
                try:
                    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiter.cancel()
                if task.done():
                    return task.result()
                await self._send_again()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_again(self) -> None:
        publisher = self._pool.publisher
        async with self._sending:
            publication = publisher.current
            if not publisher.gone.is_set():
                return  # another wait has seen to it
            publisher.gone.clear()
            version, probe = self._exported
            if publication is None or publication.version != version:
                return  # a newer one is on its way
            if self._again == SENT_AGAIN:
                if publisher.stranded:
                    raise RunFailed(f"version {version} reaches no rollout worker: {publisher.lost[1]}")
                return  # the others serve: the next version comes with their work
            self._again += 1
            try:
                published, _ = await self._send(version, probe)
            except BaseException:  # cancelled, for one: another wait has to see to it then
                publisher.gone.set()
                self._again -= 1
                raise
            publisher.again(replace(publication, published=published))

    async def publish(self, publication: WeightUpdate) -> dict[str, float]:
        """Deliver an exported version to every engine, and measure the gap."""
        started = time.monotonic()
        try:
            arrivals = await self.through(self._pool.publisher.publish(publication))
        except RunFailed:  # what the ranks wrote may have gone with their node: the next ones send it again
            await self._learner.check(f"publishing version {publication.version}")
            raise
        seconds = time.monotonic() - started
        self.gap = {
            "mismatch/probe_mean": max(arrival.gap_mean for arrival in arrivals),
            "mismatch/probe_max": max(arrival.gap_max for arrival in arrivals),
            "mismatch/probe_limit": publication.limit,
        }
        carried, carry_s = self._pool.publisher.carried
        return {
            "weights/publish_s": seconds,
            "weights/pause_s": max(arrival.delivery.seconds for arrival in arrivals),
            "weights/probe_s": max(arrival.delivery.probe_s for arrival in arrivals),
            "weights/carried_mb": carried / 2**20,
            "weights/carry_s": carry_s,
        }

    async def canary(self) -> None:
        """Prove that weights arrive, with a change large enough to see (docs/laws.md, law 8).

        Weights with noise go out and are compared with the learner (`allowed_gap`); then the true ones go out. Raises
        RunFailed where no noise moves the learner's own numbers far beyond its rounding.
        """
        true = await self._learner.logprobs(self.probe)
        self._canaries += 1
        trials: list[NoiseTrial] = []
        for noise in NOISES:
            trials.append(await self._try_noise(true, noise))
            if trials[-1].is_clear:
                break
        best = max(trials, key=lambda trial: (trial.is_clear, trial.clear))
        if best.clear < LEAST_CLEAR:
            raise RunFailed(
                f"the start-up canary moved log-probabilities by {best.moved:.3g} only, {best.clear:.2g} times as far "
                "as rounding does: it could not show a stale engine"
            )
        self._moved = best.moved
        update, values = await self._export(-self._canaries, self._probe(best.noise))
        rounding = mean_gap(values.logprobs, values.rounded)
        limit = allowed_gap(rounding, moved=best.moved, configured=self._configured, perturbed=True)
        await self.publish(replace(update, limit=limit))

    async def _try_noise(self, true: Logprobs, noise: float) -> NoiseTrial:
        values = await self._learner.measure(self._probe(noise))
        moved, rounding = mean_gap(true, values.logprobs), mean_gap(values.logprobs, values.rounded)
        clear = moved / max(rounding, LEAST_LIMIT / TIMES_ROUNDING)
        return NoiseTrial(noise, moved, clear if math.isfinite(clear) else 0.0)
