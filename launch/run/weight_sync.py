"""The learner's weights on the engines: exported, delivered, and proven by what both compute from the same tokens."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from actors.weights.check import WeightUpdate, logprob_gaps
from launch.run.starting import watch_start
from rlsys.errors import BadInput, RunFailed
from rlsys.rollout import offer_of

if TYPE_CHECKING:  # Ray and torch behind these
    from actors.pool import RolloutPool
    from launch.run.run import Run
    from learners.group import LearnerGroup

PROBE_TASKS = 4
PROBE_TOKENS = 64
CANARY_LEAST = 0.2  # nats per token that the perturbation has to move


class WeightSync:
    """Between one learner and one pool. mismatch_limit: `loop.mismatch_limit`."""

    def __init__(self, learner: LearnerGroup, pool: RolloutPool, mismatch_limit: float) -> None:
        self._learner, self._pool, self._limit = learner, pool, mismatch_limit
        self.probe: tuple[tuple[int, ...], ...] = ()  # token ids of a few prompts, on which both are compared
        self.gap: dict[str, float] = {}  # between their log-probabilities, as last measured
        self._canaries = 0  # perturbed versions so far: -1, -2 ...; never trained, never sampled from

    async def export(self, version: int, *, perturb: bool = False) -> WeightUpdate:
        """Send the learner's weights as `version`, with its own log-probabilities of the probe to compare with."""
        folder = await self._pool.publisher.folder_on(self._learner.node_ids)
        published, expected = await self._learner.export(folder, version, self.probe, perturb=perturb)
        return WeightUpdate(published=published, probe=self.probe, expected=tuple(map(tuple, expected)))

    async def publish(self, publication: WeightUpdate) -> dict[str, float]:
        """Deliver an exported version to every engine, and measure the gap."""
        started = time.monotonic()
        try:
            arrivals = await self._pool.publisher.publish(publication)
        except RunFailed:  # what the ranks wrote may have gone with their node: the next ones send it again
            await self._learner.check(f"publishing version {publication.version}")
            raise
        seconds = time.monotonic() - started
        self.gap = {
            "mismatch/probe_mean": max(arrival.gap_mean for arrival in arrivals),
            "mismatch/probe_max": max(arrival.gap_max for arrival in arrivals),
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

        Visibly perturbed weights go out and are compared with the learner, by what they moved (`allowed_gap`); then the
        true ones go out.
        """
        true = await self._learner.logprobs(self.probe)
        self._canaries += 1
        perturbed = await self.export(-self._canaries, perturb=True)
        gaps = logprob_gaps(true, perturbed.expected)
        moved = sum(gaps) / len(gaps)
        if moved <= min(2 * self._limit, CANARY_LEAST):
            raise RunFailed(
                f"the start-up canary moved log-probabilities by {moved:.3g} only: it could not show a stale engine"
            )
        await self.publish(replace(perturbed, moved=moved))


async def first_delivery(run: Run) -> None:
    """Wait for the engines to start, show that a delivery changes what they say, then deliver."""
    assert run.tasks.pool_start is not None
    if not run.tasks.pool_start.done():
        run.progress.begin("waiting for the rollout engines")
    await run.tasks.until(watch_start(run.pool, asyncio.shield(run.tasks.pool_start), run.progress))
    run.progress.doing("proving that weights arrive")
    sync, state = run.sync, run.state
    sync.probe = make_probe(run)
    await run.tasks.until(sync.canary())
    state.version = max(state.version, 1)

    async def deliver() -> None:
        await sync.publish(await sync.export(state.version))
        run.journal.publish(state.version, step=state.step)

    await run.tasks.until(deliver())
    run.progress.say(f"weights delivered and proven: engine-learner gap {sync.gap['mismatch/probe_max']:.1e}")


def make_probe(run: Run) -> tuple[tuple[int, ...], ...]:
    """A few held-out prompts, cut short: what engine and learner are compared on."""
    world = run.active.world
    tasks = world.tasks("held_out")[:PROBE_TASKS] or world.tasks("train")[:PROBE_TASKS]
    envs = [world.env(task) for task in tasks]
    prompts = [run.renderer.prompt_ids(env.first_messages(), offer_of(env)) for env in envs]
    length = min(PROBE_TOKENS, run.config.recipe.engine.max_model_len - 1)
    probes = tuple(ids[-length:] for ids in prompts if len(ids) > 1)
    if not probes:
        raise BadInput(
            "the prompts of this environment have fewer than two tokens: engine and learner cannot be compared"
        )
    return probes
