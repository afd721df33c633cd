"""The first delivery of a stage that plays: waits for the engines, chooses the tokens that prove all deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING

from envs.mixture import config_of
from launch.driver.run.starting import watch_start
from rlsys.errors import BadInput
from rlsys.probe import SAMPLES
from rlsys.rollout import template_args_of, tool_offer_of

if TYPE_CHECKING:  # Ray and torch behind it
    from launch.driver.run.run import Run

# A prompt's last ones, or those of as many short prompts as have them. With SAMPLES of them, which are 256 tokens, the
# mean gap is known to a tenth, in one small row.
PROBE_TOKENS = 64
PROBE_PROMPTS = 32  # that are looked at, at most: eight tokens of each fill the samples
LONG_TOKENS = 4096  # of one text, at the end of which engine and learner are compared once
# Engines hold the logits of a prompt that is scored, with copies in 16 and 32 bits, beside all that they have planned.
LOGIT_BYTES, MOST_LOGITS = 10, 3 << 30
LONG_TASKS = 512  # prompts that make it up, at most


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
    gap, limit = sync.gap["mismatch/probe_mean"], sync.gap["mismatch/probe_limit"]
    run.progress.say(f"weights delivered and proven: engine-learner gap {gap:.1e}, limit {limit:.1e}")


def make_probe(run: Run) -> tuple[tuple[int, ...], ...]:
    """A few held-out prompts, cut to one length: what engine and learner are compared on."""
    probe = cut_probe(_prompts(run), min(PROBE_TOKENS, run.config.recipe.engine.max_model_len - 1))
    if not probe:
        raise BadInput("the prompts of this environment have no tokens: engine and learner cannot be compared")
    return probe


def cut_probe(prompts: Iterable[Sequence[int]], length: int) -> tuple[tuple[int, ...], ...]:
    """`SAMPLES` of `length` tokens, each a prompt's last ones; shorter prompts stand one behind the other.

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
        if len(samples) == SAMPLES:
            return tuple(samples)
    tokens = cycle(chain.from_iterable(texts))
    pieces = (tuple(islice(tokens, length)) for _ in range(PROBE_PROMPTS))
    samples |= dict.fromkeys(filter(None, pieces))
    return tuple(islice(cycle(samples), SAMPLES))


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
        renderer = run.renderer.under(template_args_of(config_of(run.active.stage.config.env, task)))
        yield tuple(renderer.prompt_ids(env.first_messages(), tool_offer_of(env)))
