"""An evaluation of a run's weights, on the engines that training uses: before a stage, after it, and during it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.rewards import solved_thresholds
from launch.checks.deadlines import evaluated_at_once
from launch.driver.checkpoints import best
from launch.driver.evaluation.report import combine_plays, describe_plan, describe_results, evaluation_report
from launch.driver.evaluation.results import Result, result_of
from launch.driver.evaluation.sets import Play, plays_of, recipes_played, split_number
from launch.driver.evaluation.transcripts import in_order, records_of, without_tokens
from launch.driver.observe.held_out import find_in_evaluations, find_one_text
from launch.driver.run.episodes import EpisodeFiles, EpisodeWriter, Played
from launch.driver.run.playing import PendingGroup, play_each
from launch.driver.run.run import Run
from launch.run_dir.names import episodes_name, evaluation_line_name, evaluation_name
from rlsys.config.recipe import StageConfig
from rlsys.records import TrajectoryRecord
from rlsys.types import Group

Values = dict[str, float]  # by play: "greedy", or "hotpotqa/greedy"


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """One evaluation: of which weights, and what was played so far. Each group goes to the disk as it ends; what stays
    here of its episodes are their texts and numbers."""

    stage: StageConfig
    when: str  # before, after, during, or eval: of a stage of that kind
    step: int  # of the run, whose weights it is of
    version: int  # of these weights on the engines
    plays: Mapping[str, Play]
    files: EpisodeFiles
    tokens: int = 0  # that the model sampled for it
    discarded: int = 0  # and in attempts that broke
    started: float = field(default_factory=time.monotonic)
    _records: dict[str, dict[int, list[TrajectoryRecord]]] = field(default_factory=lambda: defaultdict(dict))
    _writers: dict[str, EpisodeWriter] = field(default_factory=dict)
    _adding: asyncio.Future[None] | None = None

    async def add_group(self, owed: PendingGroup, group: Group) -> None:
        """One at a time. Whoever cancels it leaves a group that is yet to come to the disk: `settled`."""
        self.tokens += sum(trajectory.num_sampled for trajectory in group.trajectories)
        self.discarded += sum(trajectory.discarded_tokens for trajectory in group.trajectories)
        self._adding = asyncio.ensure_future(asyncio.to_thread(self._add, owed, group))
        await asyncio.shield(self._adding)

    def _add(self, owed: PendingGroup, group: Group) -> None:
        self.writer(owed.play).add(group)
        self._records[owed.play][owed.sequence] = [without_tokens(record) for record in records_of(group)]

    async def settled(self) -> None:
        """Until no group is on its way to the disk. Raises what its writing did."""
        if self._adding is not None:
            await self._adding

    def file(self, play: str) -> str:
        return episodes_name(self.stage.name, self.when, self.step, play)

    def writer(self, play: str) -> EpisodeWriter:
        """Of the episodes of one play, in the order in which they ended."""
        if play not in self._writers:
            solving = solved_thresholds(self.plays[play].of.recipe.reward) or {}
            played = Played(step=self.step, stage=self.stage.name, play=play, when=self.when, solved_by=solving)
            self._writers[play] = self.files.begin(self.file(play), {}, self.stage.config.trajectories, played)
        return self._writers[play]

    async def close(self) -> None:
        """Of an evaluation that ended before its files were finished nothing stays."""
        if self._adding is not None:
            await asyncio.wait({self._adding})
        for writer in self._writers.values():
            writer.discard()

    def results(self) -> dict[str, Result]:
        results: dict[str, Result] = {}
        for name, play in self.plays.items():
            records = in_order(self._records[name])
            count = len(play.of.tasks) * play.samples * play.seeds
            results[name] = result_of(records, play, planned=count)
        return results


def list_pending(plays: Mapping[str, Play], played: Mapping[str, Mapping[int, Any]]) -> list[PendingGroup]:
    """What has not been played. All sets advance together: one that ends early has about as much of each."""
    pending: list[PendingGroup] = []
    for name, play in plays.items():
        plan, records = play.plan(), played.get(name, {})
        tasks = enumerate(play.of.tasks)
        pending += [PendingGroup(name, sequence, task, plan) for sequence, task in tasks if sequence not in records]
    return sorted(pending, key=lambda group: group.sequence)


async def evaluate(run: Run, stage: StageConfig, when: str) -> Values:
    """The measure of each play, on all of its tasks; the episodes are kept in trajectories/.

    A play of which more than `loop.max_failed_share` failed has none; training continues: its own episodes have that
    limit too.
    """
    state, plays = run.state, plays_of(stage.config)
    files = run.dir.episodes
    evaluation = Evaluation(stage=stage, when=when, step=state.step, version=state.version, plays=plays, files=files)
    run.progress.begin(f"evaluating {when}: {describe_plan(plays)}")
    run.progress.doing(f"evaluating {when}: groups played")
    waiting = list_pending(plays, {})
    done = 0

    async def finished(owed: PendingGroup, group: Group) -> None:
        nonlocal done
        await evaluation.add_group(owed, group)
        done += 1
        run.progress.count(done, len(waiting))

    at_once = evaluated_at_once(stage.config, recipes_played(plays))
    try:
        await run.sync.through(play_each(run.pool, waiting, at_once, finished))
        return await finish_evaluation(run, evaluation, await set_candidate_apart(run, evaluation))
    finally:
        await evaluation.close()


async def set_candidate_apart(run: Run, evaluation: Evaluation) -> Path | None:
    """The checkpoint of these weights, set apart where the best one is asked for and there is one."""
    if evaluation.stage.config.checkpoint.best is None:
        return None
    if run.tasks.writing is not None:  # it may be the one
        await asyncio.wait({run.tasks.writing})
    for aside in await asyncio.to_thread(best.set_aside_best_after, run.dir.path, evaluation.step):
        run.progress.say(f"the run went back: its best model of then is {aside.name}")
    return await asyncio.to_thread(best.copy_best, run.dir.path, evaluation.step)


async def finish_evaluation(run: Run, evaluation: Evaluation, apart: Path | None) -> Values:
    """Into files, tracker, state and terminal. Returns the measure of each play that has one."""
    stage, state, when = evaluation.stage, run.state, evaluation.when
    await evaluation.settled()
    results = await asyncio.to_thread(evaluation.results)
    seconds = time.monotonic() - evaluation.started
    versions = [version for result in results.values() for version in result.versions]
    newest = max(versions, default=evaluation.version)
    for name, play_result in results.items():
        digest = await asyncio.to_thread(evaluation.writer(name).finish)
        run.journal.seal(f"trajectories/{evaluation.file(name)}", digest)
        run.tracker.log_evaluation(evaluation.step, name, play_result.row())
        run.gauges.set_held_out(name, play_result.row())
    numbers = {f"{name}/{key}": number for name, result in results.items() for key, number in result.row().items()}
    measures = {result.measure for result in results.values()}
    measure = measures.pop() if len(measures) == 1 else "result"
    at = f"at step {evaluation.step}" if when == "during" else f"in stage {stage.name}" if when == "eval" else when
    mixed = f"; weights of versions {evaluation.version} to {newest}" if newest > evaluation.version else ""
    together = combine_plays(evaluation.plays, {name: result.played for name, result in results.items()})[0]
    run.note("evaluation", f"held-out {measure} {at}: {'; '.join([describe_results(results), *together])}{mixed}")
    run.add_evaluation_tokens(evaluation.tokens, evaluation.discarded)
    # What the run began with stays its first number, whatever later stages begin with.
    if evaluation.when == "after" or (evaluation.when == "before" and "before" not in state.eval_measure):
        state.eval_measure[evaluation.when] = measure
        state.eval_episodes[evaluation.when] = {name: result.episodes for name, result in results.items()}
        state.eval_failures[evaluation.when] = {name: result.failures for name, result in results.items()}
    place = {"step": evaluation.step, "stage": stage.name, "when": evaluation.when}
    account = {"seconds": round(seconds, 3), "version": evaluation.version, "newest_version": newest}
    digests = {name: play.digest() for name, play in evaluation.plays.items()}
    row = place | account | numbers | {"prompts": digests}
    written = evaluation_report(place | account, evaluation.plays, results)
    name = evaluation_name(stage.name, evaluation.when, evaluation.step)
    run.journal.seal(f"evaluations/{name}", await asyncio.to_thread(run.dir.save_result, name, written))
    if apart is not None:
        _keep_best(run, evaluation, results, apart)
    # Last: what has its row is not made again when the run resumes at its step.
    run.journal.seal(evaluation_line_name(stage.name, evaluation.when, evaluation.step), run.dir.save_evaluation(row))
    lines, stages = run.dir.evaluations(), run.config.stages
    for finding in (find_in_evaluations if evaluation.when == "during" else find_one_text)(lines, stages):
        run.note("health", f"health: {finding.describe()}", sign=finding.what)
        run.journal.note(stage.name, evaluation.step, finding.says)
    return {name: round(result.value, 4) for name, result in results.items() if result.value is not None}


def _keep_best(run: Run, evaluation: Evaluation, results: Mapping[str, Result], apart: Path) -> None:
    number = evaluation.stage.config.checkpoint.best or ""
    play, name = split_number(number, results) or ("", "")
    result = results.get(play)
    metric = None if result is None or result.partial else result.metrics.get(name)
    if metric is None:
        run.progress.say(f"checkpoint.best={number}: this evaluation has no such number, or is partial")
        best.discard_candidate(apart)
    elif best.keep_if_best(run.dir.path, apart, number, metric.value):
        run.progress.say(f"the best model so far, by {number}={metric.value:.4f}, is that of step {evaluation.step}")


def digest_of_plays(stage: StageConfig) -> str:
    """The same for evaluations that play the same prompts in the same way."""
    digests = "".join(f"{name}{play.digest()}" for name, play in plays_of(stage.config).items())
    return hashlib.blake2b(digests.encode(), digest_size=8).hexdigest()


def needs_evaluation_before(run: Run, stage: StageConfig) -> bool:
    """Whether a stage that begins now has to be evaluated first. Not where these very weights have been, on the same
    prompts, at the end of the stage before it."""
    state, last = run.state, run.state.eval_last
    if state.stage_step or stage.name in state.eval_stages:
        return False
    prompts = digest_of_plays(stage)
    if (last.get("prompts"), last.get("step")) != (prompts, state.step):
        return True
    state.eval_stages[stage.name] = {"before": last["values"]}
    return False


async def evaluate_before(run: Run, stage: StageConfig) -> None:
    """The weights that a stage begins with, unless they are known."""
    state = run.state
    if not needs_evaluation_before(run, stage):
        return
    first = "before" not in state.eval_measure
    values = await run.tasks.until(evaluate(run, stage, "before"))
    state.eval_stages[stage.name] = {"before": values}
    if first:
        state.eval_before, state.eval_prompts["before"] = values, digest_of_plays(stage)


async def evaluate_after(run: Run, stage: StageConfig) -> None:
    """The weights that it ends with."""
    state = run.state
    values = await run.tasks.until(evaluate(run, stage, "after"))
    state.eval_after, state.eval_prompts["after"] = values, digest_of_plays(stage)
    state.eval_stages.setdefault(stage.name, {})["after"] = values
    state.eval_last = {"step": state.step, "prompts": state.eval_prompts["after"], "values": values}
