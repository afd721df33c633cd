"""Records for tests, one builder for each: whole and plain by default, so that a test says only what matters to it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from actors.specs import EngineSpec
from rlsys.batch import Batch, build_batch
from rlsys.config.recipe import RecipeConfig, StageConfig
from rlsys.dialogue import turn_after
from rlsys.plan import plan_samples, shard_plan
from rlsys.probe import Probe
from rlsys.rollout import Env, Player, RolloutPlan
from rlsys.system.device import RoundingUnits
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    Group,
    Ints,
    Message,
    Reward,
    Sample,
    Task,
    Ticket,
    Timings,
    TokenStream,
    Trajectory,
    Transcript,
    Turn,
    TurnStop,
    VersionSpan,
)

TASK = Task(task_id="t:1", question="2 + 3?", answers=("5",), record={"source": "hand"})
PLAN = RolloutPlan(
    purpose="test", env=None, reward=None, group_size=1, temperature=1.0, top_p=1.0, max_turn_tokens=64,
    max_context=512, timeout_s=30.0,
)  # fmt: skip


def trained(recipe: RecipeConfig, kind: str = "rl") -> StageConfig:
    """A stage with its kind's name."""
    return StageConfig(name=kind, kind=kind, steps=1, config=recipe)


def make_batch(samples: Sequence[Sample], tokens_per_row: int, version: int = 0, **how: Any) -> Batch:
    """The whole batch of these samples; `how` as in `rlsys.plan.plan_batch`."""
    plan = plan_samples(samples, tokens_per_row, version, **how)
    return build_batch(plan, plan.sources)


def make_shards(samples: Sequence[Sample], tokens_per_row: int, version: int, ranks: int, **how: Any) -> list[Batch]:
    """Each rank's part of it."""
    parts = shard_plan(plan_samples(samples, tokens_per_row, version, **how), ranks)
    return [build_batch(part, part.sources) for part in parts]


def jsonl(path: Path, records: Iterable[object]) -> str:
    """Write a line for each record; returns the path as a config has it."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def records(path: Path) -> list[dict[str, Any]]:
    """Of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def plan(**changes: Any) -> RolloutPlan:
    """One episode to a group, with room and time for what a test plays; `changes` are fields of it."""
    return replace(PLAN, **changes)


async def no_reward(transcript: Transcript) -> Reward:
    return Reward(value=0.0, parts={})


async def unchanged(transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]:
    return rewards


@dataclass
class Source:
    """An `EpisodeSource` of what a test writes."""

    env: Callable[[Task], Env | Awaitable[Env]]
    turns: int
    score: Callable[[Transcript], Awaitable[Reward]] = no_reward
    compare: Callable[[Sequence[Transcript], Sequence[Reward]], Awaitable[Sequence[Reward]]] = unchanged

    async def max_turns(self) -> int:
        return self.turns


def player(renderer: Any, generate: Any, name: str = "w", run_seed: int = 0) -> Player:
    return Player(name=name, run_seed=run_seed, renderer=renderer, generate=generate)


def engine_spec(model_path: Path | str = "nowhere", **changes: Any) -> EngineSpec:
    """An engine on a CPU, as small as it can be; `changes` are fields of it."""
    spec = EngineSpec(
        model_path=str(model_path), dtype="float32", max_model_len=8, max_num_seqs=1, seed=0, prefix_cache=False,
        enforce_eager=True, threads=1, kv_cache_mb=1, gpu_memory_utilization=0.5, block_size=32,
    )  # fmt: skip
    return replace(spec, **changes)


def probe(samples: Sequence[Sequence[int]], noise: float = 0.0) -> Probe:
    """What float32's learner and engine are compared on."""
    return Probe(samples=tuple(map(tuple, samples)), units=RoundingUnits(products=2**-23, rest=2**-23), noise=noise)


def ticket(sequence: int = 0, *, task: Task | None = None, attempt: int = 0, start_version: int = 1) -> Ticket:
    """For a task of its own, `t:<sequence>`, where none is given."""
    task = task or Task(task_id=f"t:{sequence}", question="q")
    return Ticket(sequence=sequence, epoch=0, task=task, attempt=attempt, start_version=start_version)


def completion(
    token_ids: Sequence[int],
    text: str = "",
    *,
    version: int | Sequence[int] = 1,
    logprobs: Sequence[float] | None = None,
    stop: TurnStop = TurnStop.STOP,
) -> Completion:
    """Sampled by one version, or each token by its own; log-probabilities -1, -2, ... so that none is another's."""
    versions = [version] * len(token_ids) if isinstance(version, int) else version
    runs = [list(run) for _, run in groupby(range(len(versions)), key=versions.__getitem__)]
    return Completion(
        token_ids=ints(token_ids),
        logprobs=-1 - np.arange(len(token_ids), dtype=np.float32) if logprobs is None else np.float32(logprobs),
        spans=tuple(VersionSpan(version=versions[run[0]], start=run[0], end=run[-1] + 1) for run in runs),
        stop=stop,
        text=text,
    )


def ints(numbers: Sequence[int]) -> Ints:
    return np.asarray(numbers, np.int32)


def turn(context_ids: Sequence[int], token_ids: Sequence[int], *, reply: str | None = None, **sampled: Any) -> Turn:
    """The first turn of a sample, from the whole context. `sampled`: arguments of `completion`."""
    answer = completion(token_ids, **sampled)
    return Turn(added_ids=ints(context_ids), starts_sample=True, completion=answer, reply=reply)


def following(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Turn whole contexts into the turns of one episode: each holds only the tokens that it adds to those before it."""
    prefix = ints(())
    for turn in turns:
        context = turn.added_ids
        yield replace(turn_after(prefix, context, turn.completion), reply=turn.reply)
        prefix = np.concatenate([context, turn.completion.token_ids])


def trajectory(
    *turns: Turn,
    task: Task = TASK,
    sibling: int = 0,
    messages: Sequence[Message] = (),
    reward: float | Reward | Failure = 1.0,
    end: EpisodeEnd | None = None,
    **more: Any,
) -> Trajectory:
    """A number as its reward has one part, `correct`. It ended with an answer, or failed where its reward has.

    turns: by all that the model saw.
    """
    return Trajectory(
        task=task,
        sibling=sibling,
        turns=tuple(following(turns)),
        messages=tuple(messages),
        end=end or (EpisodeEnd.FAILED if isinstance(reward, Failure) else EpisodeEnd.ANSWERED),
        reward=reward if isinstance(reward, Reward | Failure) else Reward(value=reward, parts={"correct": reward}),
        timings=more.pop("timings", Timings(generate_s=0.0, tool_s=0.0, score_s=0.0)),
        **more,
    )


def group(ticket: Ticket, *trajectories: Trajectory, worker: str = "w") -> Group:
    """What a worker gives for a ticket; the trajectories may be of any task."""
    return Group(ticket=ticket, trajectories=trajectories, worker=worker)


def transcript(
    *lines: str | tuple[str, str], golds: Sequence[str] = ("Paris",), record: Any = None, task: Task | None = None,
    **fields: Any,
) -> Transcript:  # fmt: skip
    """Out of `(role, text)` pairs; a text alone is the model's."""
    messages = [("assistant", line) if isinstance(line, str) else line for line in lines]
    return Transcript(
        task=task or Task(task_id="t", question="q", answers=tuple(golds), record={} if record is None else record),
        messages=tuple(Message(role=role, content=content) for role, content in messages),
        **fields,
    )


def sample(
    mask: Sequence[int],
    *,
    token_ids: Sequence[int] | None = None,
    logprobs: float | Sequence[float] = -1.0,
    advantages: float | Sequence[float] = 0.0,
    versions: int | Sequence[int] = 3,
    reward: float | None = None,
    streams: tuple[TokenStream, ...] = (),
) -> Sample:
    """Tokens 1, 2, ..., with 1 in `mask` where one was sampled. Of these, one number for all or each its own."""

    def spread(numbers: Any, elsewhere: Any) -> Any:
        queue = [numbers] * sum(mask) if isinstance(numbers, int | float) else list(numbers)
        assert len(queue) == sum(mask)
        return np.array([queue.pop(0) if sampled else elsewhere for sampled in mask])

    return Sample(
        token_ids=ints(range(1, len(mask) + 1) if token_ids is None else token_ids),
        loss_mask=np.array(mask, np.bool_),
        behavior_logprobs=spread(logprobs, 0.0),
        advantages=spread(advantages, 0.0),
        versions=spread(versions, -1),
        reward=reward,
        streams=streams,
    )


def ids_and_mask(sample: Sample) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As `ChatRenderer.demonstration` gives them."""
    return tuple(sample.token_ids.tolist()), tuple(map(int, sample.loss_mask))
