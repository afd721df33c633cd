"""The learner's weights on the engines: exported, delivered, and proven by what both compute from the same tokens."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, TypeVar

from actors.weights.check import LEAST_LIMIT, TAIL, TIMES_ROUNDING, WeightUpdate, allowed_gap
from envs.mixture import config_of
from launch.run.starting import watch_start
from rlsys.errors import BadInput, RunFailed
from rlsys.probe import Probe, ProbeValues, mean_gap
from rlsys.rollout import args_of, offer_of
from rlsys.system.device import RoundingUnits

if TYPE_CHECKING:  # Ray and torch behind these
    from actors.pool import RolloutPool
    from launch.run.run import Run
    from learners.group import LearnerGroup
    from rlsys.system.weight_folder import WeightManifest

PROBE_SAMPLES = 4  # 256 tokens with PROBE_TOKENS: their mean gap is known to a tenth, in one small row
PROBE_TOKENS = 64  # a prompt's last ones, or those of as many short prompts as have them
PROBE_PROMPTS = 32  # that are looked at, at most: eight tokens of each fill the samples
LONG_TOKENS = 4096  # of one text, at the end of which engine and learner are compared once
# Engines hold the logits of a prompt that is scored, with copies in 16 and 32 bits, beside all that they have planned.
LOGIT_BYTES, MOST_LOGITS = 10, 3 << 30
LONG_TASKS = 512  # prompts that make it up, at most
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

    units: of the side that rounds more coarsely. configured: `loop.mismatch_limit`.
    """

    def __init__(
        self, learner: LearnerGroup, pool: RolloutPool, units: RoundingUnits, configured: float | None = None
    ) -> None:
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
        ours, again = values.logprobs[-1][-TAIL:], values.rounded[-1][-TAIL:]
        return replace(update, tail_limit=self._limit([ours], [again]))

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
        task = asyncio.ensure_future(waiting)
        try:
            while True:
                gone = asyncio.ensure_future(self._pool.publisher.gone.wait())
                try:
                    await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    gone.cancel()
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


async def first_delivery(run: Run) -> None:
    """Wait for the engines to start, show that a delivery changes what they say, then deliver."""
    assert run.tasks.pool_start is not None
    if not run.tasks.pool_start.done():
        run.progress.begin("waiting for the rollout engines")
    await run.tasks.until(watch_start(run.pool, asyncio.shield(run.tasks.pool_start), run.progress))
    run.progress.doing("proving that weights arrive")
    sync, state = run.sync, run.state
    sync.probe = make_probe(run)
    long = make_long_probe(run)
    await run.tasks.until(sync.canary())
    state.version = max(state.version, 1)

    async def deliver() -> None:
        await sync.publish(await sync.export(state.version, long=long))
        run.journal.publish(state.version, step=state.step)

    await run.tasks.until(deliver())
    run.progress.say(f"weights delivered and proven: engine-learner gap {sync.gap['mismatch/probe_max']:.1e}")


def make_probe(run: Run) -> tuple[tuple[int, ...], ...]:
    """A few held-out prompts, cut to one length: what engine and learner are compared on."""
    probe = cut_probe(_prompts(run), min(PROBE_TOKENS, run.config.recipe.engine.max_model_len - 1))
    if not probe:
        raise BadInput("the prompts of this environment have no tokens: engine and learner cannot be compared")
    return probe


def cut_probe(prompts: Iterable[Sequence[int]], length: int) -> tuple[tuple[int, ...], ...]:
    """`PROBE_SAMPLES` of `length` tokens, each a prompt's last ones; shorter prompts stand one behind the other.

    Of forty tokens, or four times the same ones, the mean gap is not known well enough for a limit of twice it: where
    prompts are few, or end alike, all that they say is cut into pieces. () for prompts without any token.
    """
    samples: dict[tuple[int, ...], None] = {}
    texts: list[Sequence[int]] = []
    sample: tuple[int, ...] = ()
    for ids in islice(filter(None, prompts), PROBE_PROMPTS):
        texts.append(ids)
        sample = (*sample, *ids)[-length:]
        if len(sample) == length:
            samples[sample] = None
            sample = ()
        if len(samples) == PROBE_SAMPLES:
            return tuple(samples)
    whole = cycle(chain.from_iterable(texts))
    pieces = (tuple(islice(whole, length)) for _ in range(PROBE_PROMPTS))
    samples |= dict.fromkeys(filter(None, pieces))
    return tuple(islice(cycle(samples), PROBE_SAMPLES))


def make_long_probe(run: Run) -> tuple[int, ...]:
    """Prompts one behind the other, up to where episodes are trained: at a distance shows what a prompt's first tokens
    do not, such as positions that one side scales otherwise. () where the window has no room for it."""
    engine = run.config.recipe.engine
    length = long_probe_length(
        engine.max_model_len, run.renderer.vocabulary_size, engine.vllm.get("max_num_batched_tokens")
    )
    ids = tuple(islice(chain.from_iterable(cycle(filter(None, _prompts(run)))), length))
    return ids if len(ids) > PROBE_TOKENS else ()


def long_probe_length(window: int, vocab_size: int, at_once: int | None = None) -> int:
    """In tokens. at_once: how many of a prompt an engine takes at a time; None: vLLM's default, 2,048."""
    room = MOST_LOGITS // (vocab_size * LOGIT_BYTES)
    return min(window - 1, LONG_TOKENS, LONG_TOKENS if (at_once or 2048) <= room else room)


def _prompts(run: Run) -> Iterator[tuple[int, ...]]:
    """Token ids of the held-out tasks' prompts, or of those for training."""
    world = run.active.world
    for task in world.tasks("held_out")[:LONG_TASKS] or world.tasks("train")[:LONG_TASKS]:
        env = world.env(task)
        renderer = run.renderer.under(args_of(config_of(run.active.stage.config.env, task)))
        yield tuple(renderer.prompt_ids(env.first_messages(), offer_of(env)))
