"""The rules about speed and memory: who waits for whom, tools, useful work. GPUs are divided where parts hold some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from launch.driver.observe import thresholds
from launch.driver.observe.policy_signs import lacks_gpus
from launch.run_dir.directory import RunDirectory
from launch.tools.plan.calibrate import CPU_FIXED, Calibration, calibrate, predict
from launch.tools.plan.split import fewer_needed
from launch.tools.plan.trace import trace_of
from launch.tools.report.advice import Advice, Rule, Situation
from launch.tools.report.facts import Stage
from launch.tools.report.headline import last_step, planned_steps
from launch.tools.report.words import mean, number, share, total
from rlsys.errors import BadInput
from rlsys.system.datasheets import card_of

LIKELY = 3  # divisions that are simulated: those that would be the fastest without a tail


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSplit:
    """How GPUs are divided, and the seconds of work that each side has in a step."""

    workers: int
    parallel: int  # GPUs of an engine
    ranks: int
    update_s: float  # of a step, on all ranks
    engines_s: float  # of a step, on all engines
    rest_s: float  # of a step that neither works
    sequence_parallel: int = 1  # ranks that share a row: they are moved together

    @property
    def gpus(self) -> int:
        return self.workers * self.parallel + self.ranks


def measure_split(stage: Stage) -> MeasuredSplit | None:
    workers, parallel, ranks = (
        stage.setting(key) for key in ("rollout.workers", "engine.tensor_parallel", "learner.ranks")
    )
    step, update = mean(stage.rows.known("time/step")), mean(stage.rows.known("time/update"))
    busy, waits = stage.engine_busy, stage.learner_waits
    if not all(type(count) is int and count > 0 for count in (workers, parallel, ranks)):
        return None
    if step is None or update is None or busy is None or waits is None:
        return None
    sharing = stage.setting("learner.sequence_parallel")
    return MeasuredSplit(
        workers=workers,
        parallel=parallel,
        ranks=ranks,
        update_s=update,
        engines_s=busy * step,
        rest_s=max(0.0, step * (1 - waits) - update),
        sequence_parallel=sharing if type(sharing) is int else 1,
    )


def list_divisions(now: MeasuredSplit) -> list[tuple[int, int, float]]:
    """(workers, ranks, seconds of a step) of the same GPUs, the fastest first, if each side's work is divided evenly
    among its own and nothing waits for the last episode."""
    divisions = []
    for workers in range(1, (now.gpus - 1) // now.parallel + 1):
        ranks = now.gpus - workers * now.parallel
        if ranks % now.sequence_parallel:
            continue
        learner, engines = now.update_s * now.ranks / ranks, now.engines_s * now.workers / workers
        divisions.append((max(learner + now.rest_s, engines), abs(workers - now.workers), workers, ranks))
    return [(workers, ranks, seconds) for seconds, _, workers, ranks in sorted(divisions)]


def simulate_divisions(now: MeasuredSplit, calibration: Calibration) -> tuple[int, int, float]:
    """The fastest of the likely ones, with the speeds and the lengths of the run itself."""
    divisions = []
    for workers, ranks, _ in list_divisions(now)[:LIKELY]:
        seconds = predict(calibration, workers=workers, ranks=ranks).seconds
        divisions.append((seconds, abs(workers - now.workers), workers, ranks))
    seconds, _, workers, ranks = min(divisions)
    return workers, ranks, seconds


def calibrate_from_run(run: Situation) -> Calibration | None:
    """None where the files do not say enough, as of a run whose episodes were not kept."""
    if run.episodes is None:
        return None
    with suppress(BadInput):
        return calibrate(trace_of(run.run, run.episodes, run.stage.name), cores=None, fixed=_engine_fixed_cost(run.run))
    return None


def _engine_fixed_cost(run: RunDirectory) -> float:
    """What an engine's step takes without any sequence, as so many sequences: reading a weight against computing with
    it, by the card's data sheet."""
    for gpus in filter(None, (node.gpus for node in run.newest_start.nodes)):
        card = card_of(gpus.name or "", gpus.memory_gb or 0.0)
        if card.flops and card.bandwidth:
            return card.flops / card.bandwidth
    return CPU_FIXED


def advise_on_split(run: Situation) -> Iterator[Advice]:
    """One side waits for the other: the run's sign `lopsided`, with the division that would be the fastest."""
    stage, busy, waits = run.stage, run.stage.engine_busy, run.stage.learner_waits
    if not run.gpus or busy is None or waits is None or not stage.has_enough or _do_both_wait(busy, waits):
        return
    if stage.setting("cluster.placement") not in (None, "split"):  # there is nothing to move
        return
    side, split = lacks_gpus(1 - busy, waits), measure_split(stage)
    if side is None or split is None:
        return
    speeds = calibrate_from_run(run)
    workers, ranks, seconds = list_divisions(split)[0] if speeds is None else simulate_divisions(split, speeds)
    if workers == split.workers or (workers > split.workers) != (side == "engines"):
        return
    how = (
        "if both sides scale with their GPUs" if speeds is None else "in a simulation with the run's lengths and speeds"
    )
    cause = (
        f"The learner waits {share(waits)} of the time for rollouts and the engines are {share(busy)} busy: "
        "move GPUs to the engines"
        if side == "engines"
        else f"The engines are {share(busy)} busy and the learner waits {share(waits)} of the time: "
        "move GPUs to the learner"
    )
    least = stage.setting("rollout.min_workers")
    extra_keys = fewer_needed(workers, least) if type(least) is int else []
    step = mean(stage.rows.known("time/step")) or 0.0
    yield Advice(
        rule="move_gpus",
        level="slow",
        text=f"{cause}. A step takes {number(step)} s; {number(seconds)} s {how}.",
        key=" ".join([f"rollout.workers={workers}", f"learner.ranks={ranks}", *extra_keys]),
        label="busy shares",
        href="#chart/busy",
        steps=_first_and_last_step(stage),
        numbers={"busy": busy, "waits": waits, "seconds": seconds},
    )


def advise_on_both_waiting(run: Situation) -> Iterator[Advice]:
    """Neither works most of the time: they wait for each other, or for the longest episodes."""
    stage, busy, waits = run.stage, run.stage.engine_busy, run.stage.learner_waits
    if not run.gpus or busy is None or waits is None or not stage.has_enough:
        return
    if not _do_both_wait(busy, waits):
        return
    lag, tail = stage.setting("loop.max_policy_lag"), longest_to_median(run)
    longest = (
        f" The longest episode of a step takes {number(tail)} x the median." if tail and tail > thresholds.TAIL else ""
    )
    yield Advice(
        rule="both_wait",
        level="slow",
        text=f"The learner waits {share(waits)} of the time and the engines are only {share(busy)} busy: both wait for "
        f"the last episodes of a step. Let more steps overlap.{longest}",
        key=f"loop.max_policy_lag={lag + 1}" if type(lag) is int else None,
        label="the longest episodes",
        href=f"#t?step={stage.last_steps[0]}-{stage.last_steps[1]}&play=none&sort=-seconds",
        steps=_first_and_last_step(stage),
        numbers={"busy": busy, "waits": waits},
    )


def _do_both_wait(busy: float, waits: float) -> bool:
    """busy: share of the engines' time. waits: of the learner's."""
    return waits > thresholds.WAITS and busy < thresholds.IDLE


def longest_to_median(run: Situation) -> float | None:
    """Of the last steps: the mean over them of longest episode / median episode, in seconds."""
    episodes = run.episodes
    if episodes is None or not len(episodes):
        return None
    ratios = []
    for step in run.stage.last.step:
        seconds = episodes.columns["seconds"][episodes.in_training & (episodes.columns["step"] == step)]
        seconds = seconds[np.isfinite(seconds)]
        if len(seconds) and np.median(seconds) > 0:
            ratios.append(float(seconds.max() / np.median(seconds)))
    return mean(ratios)


def advise_on_slow_tools(run: Situation) -> Iterator[Advice]:
    """Episodes spend their time in tools."""
    rows = run.stage.last
    spent = {name: total(rows.known(f"time/episode_{name}")) for name in ("generate", "tool", "score")}
    total_s = sum(spent.values())
    if not run.stage.has_enough or total_s <= 0 or spent["tool"] <= thresholds.TOOLS * total_s:
        return
    part = spent["tool"] / total_s
    flight = run.stage.setting("rollout.in_flight")
    yield Advice(
        rule="slow_tools",
        level="slow",
        text=f"Tools take {share(part)} of the seconds of an episode: more episodes in flight hide that.",
        key=f"rollout.in_flight={2 * flight}" if type(flight) is int else "rollout.in_flight",
        label="latency of tools",
        href="#chart/tool_latency",
        steps=run.stage.last_steps,
        numbers={"share": part},
    )


def advise_on_useless_tokens(run: Situation) -> Iterator[Advice]:
    """The learner computes many tokens for each that it trains."""
    useful = mean(run.stage.last.known("tokens/useful_share"))
    if not run.gpus or useful is None or useful >= thresholds.USEFUL or not run.stage.has_enough:
        return
    rows, padding = (total(run.stage.last.known(f"learner/{name}")) for name in ("rows", "padding_rows"))
    padded = rows > 0 and padding > thresholds.PADDING * rows
    size = run.stage.setting("learner.tokens_per_row")
    why = (
        f"{share(padding / rows)} of its rows only keep the ranks equal"
        if padded
        else "the rest are prompts and replies"
    )
    yield Advice(
        rule="useless_tokens",
        level="cheap",
        text=f"{share(useful)} of the tokens that the learner computes are trained: {why}.",
        key=f"learner.tokens_per_row={size // 2}" if padded and type(size) is int else None,
        label="tokens of the learner",
        href="#chart/tokens",
        steps=run.stage.last_steps,
        numbers={"useful": useful},
    )


RANK = "memory/learner_rss_peak_mb"  # of the largest: taken for each
MEMORY = {"engine/rss_mb": "engines", RANK: "ranks", "memory/driver_rss_mb": "driver"}


def advise_on_memory(run: Situation) -> Iterator[Advice]:
    """It grows in a straight line that reaches what the machines have before the planned end."""
    node_gb = (node.memory_gb or 0.0 for node in run.run.newest_start.nodes)
    limit_mb = sum(gb for gb in node_gb if 0 < gb < 1e9) * 1e9 / 2**20
    steps_left = planned_steps(run.run) - last_step(run.run)
    ranks = run.stage.setting("learner.ranks")
    times = {RANK: float(ranks) if type(ranks) is int else 1.0}
    all_slopes = {key: memory_slope(run.stage, key) for key in MEMORY}
    slopes = {key: slope * times.get(key, 1.0) for key, slope in all_slopes.items() if slope is not None}
    columns = {key: run.stage.rows.known(key) for key in MEMORY}
    used_mb = sum(float(column[-1]) * times.get(key, 1.0) for key, column in columns.items() if len(column))
    growth = sum(slopes.values())
    if limit_mb <= 0 or steps_left <= 0 or growth <= 0 or used_mb + growth * steps_left < limit_mb:
        return
    key, most = max(slopes.items(), key=lambda item: item[1])
    at = last_step(run.run) + max(0, int((limit_mb - used_mb) / growth))
    groups, size = (run.stage.setting(f"loop.{name}") for name in ("groups_per_step", "group_size"))
    per = f", {number(1000 * most / (groups * size))} MiB per 1,000 trajectories" if groups and size else ""
    yield Advice(
        rule="memory",
        level="wrong",
        text=f"The memory of the {MEMORY[key]} grows by {number(most)} MiB a step{per}: all {number(limit_mb / 1024)} "
        f"GiB of the machines are used at step {at:,} of {planned_steps(run.run):,}.",
        label="memory",
        href="#chart/memory",
        steps=_first_and_last_step(run.stage),
        numbers={"mb_per_step": most, "limit_mb": limit_mb, "at": float(at)},
    )


def memory_slope(stage: Stage, key: str) -> float | None:
    """MiB a step over the second half of the stage, where a straight line explains it; the first half fills caches."""
    half = stage.rows.tail(len(stage.rows) // 2)
    column = half.column(key)
    valid = ~np.isnan(column)
    x, y = half.step[valid].astype(float), column[valid]
    if len(y) < thresholds.FITTED or np.ptp(y) == 0 or np.ptp(x) == 0:
        return None
    slope, start = np.polyfit(x, y, 1)
    explained = 1 - float(np.sum((y - slope * x - start) ** 2) / np.sum((y - y.mean()) ** 2))
    return float(slope) if slope > 0 and explained >= thresholds.STRAIGHT else None


def _first_and_last_step(stage: Stage) -> tuple[int, int]:
    return int(stage.rows.step[0]), int(stage.rows.step[-1])


RULES: tuple[Rule, ...] = (
    advise_on_memory,
    advise_on_split,
    advise_on_both_waiting,
    advise_on_slow_tools,
    advise_on_useless_tokens,
)
