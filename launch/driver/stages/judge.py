"""The `judge` kind: a verdict on every step of generated trajectories, and on their answers. No weight changes.

    generated/NAME.verdicts.jsonl   the verdicts by line of the data, appended as they come, continued after a kill
    generated/NAME.jsonl            the trajectories with their verdicts

From the second sft and stepwise stages cut their sets, so that no set takes another judgement.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from actors.scoring import RewardService, ScoringSpec
from envs.papers.swirl.reward import FILTERS, SwirlRewardConfig, passes_filter, step_rewards
from envs.rewards import make_reward
from envs.services.guard import GuardConfig
from envs.tasks.files import read_jsonl
from launch.driver.observe.health import finding_at
from launch.driver.observe.progress import Progress
from launch.driver.observe.tool_signs import JUDGE, ToolCounts, unread
from launch.driver.run.run import Run
from launch.driver.stages.base import Stage, StageKeys, check_tags, maker_of
from launch.driver.stages.generate import FEW
from launch.driver.stages.reads import HELD
from launch.driver.stages.store import LineStore
from launch.run_dir.significance import macro_label_accuracy
from rlsys.broken import failure_of
from rlsys.config.identity import identity_of
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.files import whole_file
from rlsys.harvest import check_failure_share
from rlsys.jsonl import encode, json_line, read_as
from rlsys.records import TrajectoryRecord, read_trajectory, task_of, to_json
from rlsys.types import Failure, Transcript

TAKEN_OVER, JUDGED_AGAIN = "which are taken over: reward.judge names nobody to judge", "none of which are taken over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """On one trajectory."""

    line: int  # of the data, counted from 1
    judgements: tuple[str, ...]
    correct: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of what a stage has judged."""

    trajectories: int
    failed: int  # of them: without a verdict
    steps: int
    process_labels: float | None  # share of the steps that are GOOD, as table 3 has it; None: no step was judged
    sets: Mapping[str, int]  # sizes, by filter

    def row(self) -> dict[str, float]:
        counts = {"trajectories": self.trajectories, "failed": self.failed, "steps": self.steps, **self.sets}
        return counts | ({"process_labels": self.process_labels} if self.process_labels is not None else {})

    def describe(self) -> str:
        """In one line, for people."""
        labels = f", of which {self.process_labels:.1%} are GOOD" if self.process_labels is not None else ""
        steps = f"{self.steps:,} steps{labels} in the mean over trajectories"
        sets = ", ".join(f"{name} {size:,}" for name, size in self.sets.items())
        return f"{self.trajectories:,} trajectories, {self.failed:,} without a verdict; {steps}; sets: {sets}"


class Judge(Stage):
    """Each trajectory of `data` is judged once, by the reward of this stage."""

    has_length = False
    plays = True  # its judge may be a service of the run, which starts with the engines
    makes_data = True
    reads = ("env", "reward", "loop.max_failed_share", *HELD)

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        for key in ("steps", "epochs"):
            if getattr(head, key) is not None:
                raise BadInput(
                    "a judge stage judges every trajectory once", key=f"{where}.{key}", found=getattr(head, key)
                )
        if not isinstance(head.data, str) or not head.data:
            raise BadInput(key=f"{where}.data", found=head.data, expected="the name of a generate stage, or a path")
        if not isinstance(recipe.reward, SwirlRewardConfig):
            raise BadInput(
                where=where, key="reward.name", found=recipe.reward.name, expected="swirl, which judges steps"
            )
        check_tags(where, recipe)

    def check_use(self, where: str, own: StageConfig, head: StageKeys, recipe: RecipeConfig) -> None:
        if head.kind == "dpo":
            raise BadInput(
                "a judge stage makes no pairs", key=f"{where}.data", found=head.data, expected=f"{own.data!r}"
            )
        own.config.reward.check_verdicts(where, own.name, recipe.verdicts)

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        if maker_of(config, stage) is None:
            next(trajectories(Path(str(stage.data))))  # raises BadInput for what is none

    def identity(self, stage: StageConfig) -> dict[str, Any]:
        return {"data": stage.data} | _identify_judge(stage)

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        reward: SwirlRewardConfig = stage.config.reward
        outcome = "" if reward.outcome is None else f", answers by {reward.outcome}"
        return [f"verdicts = every step of {stage.data}, by {reward.judged_by}{outcome}"]

    async def run(self, run: Run, stage: StageConfig) -> None:
        await run.begin_stage(stage)
        assert run.tasks.pool_start is not None
        await run.tasks.until(asyncio.shield(run.tasks.pool_start))
        maker = maker_of(run.config, stage)
        source = run.dir.generated_path(maker.name) if maker is not None else Path(str(stage.data))
        output = run.dir.generated_path(stage.name)
        store, verdicts = open_verdicts(output, stage, source)
        service = service_of(stage)
        try:
            judging = judge_missing(
                stage, source, service, store, verdicts, run.progress,
                begin=partial(run.begin, "stage"),
                connect=lambda: service.connect(run.services.addresses, run.services.token),
            )  # fmt: skip
            await run.tasks.until(judging)
            note_unread(run, stage, service)
        finally:
            store.close()
            await service.close()
        counts = await asyncio.to_thread(write_out, source, output, verdicts)
        run.state.played[stage.name] = counts.row()
        run.note("stage", f"stage {stage.name}: {counts.describe()}")


def open_verdicts(output: Path, stage: StageConfig, source: Path) -> tuple[LineStore, dict[int, Verdict]]:
    """The file beside `output` that verdicts are appended to, and those that are in it already, by line.

    Raises BadInput where it was begun with something else, RunFailed without `source`."""
    verdicts = dict[int, Verdict]()

    def known(record: dict[str, Any], where: str, _: int) -> None:
        verdict = read_as(Verdict, record, where, "no verdict")
        verdicts[verdict.line] = verdict

    return LineStore(verdicts_path(output), identify_judging(stage, source), known, what="a judge stage"), verdicts


def note_unread(run: Run, stage: StageConfig, service: RewardService) -> None:
    """As a finding of the run: a judge stage has no rows that a monitor could look at."""
    if says := unread_line(service):
        finding = finding_at(run.state.step, stage=stage.name, what="unread", says=says)
        run.state.health.append(asdict(finding))
        run.note("health", f"health: {finding.describe()}", sign=finding.what)


def unread_line(service: RewardService) -> str:
    """About answers of the judge in which no verdict can be read, where they are many: each makes a BAD step."""
    tools, stats = ToolCounts(), service.tool_stats().get(JUDGE)
    tools.see({} if stats is None else {f"{JUDGE}/{name}": count for name, count in stats.row().items()})
    return unread(tools)


def verdicts_path(output: Path) -> Path:
    return output.with_name(f"{output.name.removesuffix('.jsonl')}.verdicts.jsonl")


def service_of(stage: StageConfig) -> RewardService:
    return RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=stage.config.rollout.grader_deadline_s))


def trajectories(source: Path) -> Iterator[tuple[int, TrajectoryRecord]]:
    """The lines of a file of trajectories. Raises BadInput."""
    for number, record in read_jsonl(str(source)):
        yield number, read_trajectory(record, f"{source} line {number}")


async def judge_missing(
    stage: StageConfig,
    source: Path,
    service: RewardService,
    store: LineStore,
    verdicts: dict[int, Verdict],
    progress: Progress,
    *,
    begin: Callable[[str], None],
    connect: Callable[[], None] = lambda: None,
) -> None:
    """Ask for every verdict that is not in `verdicts` yet; so many trajectories at once as the judge takes questions.

    begin: is told what begins. connect: is called before each, since a judge of the run's own may be back elsewhere.
    Raises RunFailed where more than `loop.max_failed_share` got none: of those that were asked about so far, once they
    are FEW, and at the end of all.
    """
    reward: SwirlRewardConfig = stage.config.reward
    score = make_reward(reward)
    keep = reward.judged_by == "judge" and not reward.judge.given
    came = await asyncio.to_thread(lambda: [bool(trajectory.judgements) for _, trajectory in trajectories(source)])
    total, failed = len(came), list[Failure]()
    owed = ((line, trajectory) for line, trajectory in trajectories(source) if line not in verdicts)
    limit, asked, subject = stage.config.loop.max_failed_share, 0, "trajectories to judge"
    already = f", {len(verdicts)} of them already" if verdicts else ""
    before = f"; {sum(came)} came with judgements, {TAKEN_OVER if keep else JUDGED_AGAIN}" if any(came) else ""
    begin(f"stage {stage.name}: judging {total} trajectories{already}{before}")
    progress.doing("trajectories judged")

    async def work() -> None:
        nonlocal asked
        for line, trajectory in owed:
            connect()
            try:
                scored = await service.score(score, transcript_of(trajectory, keep=keep))
            except Exception as error:  # fault boundary: this trajectory has no verdict, whatever it was
                failed.append(failure_of(error, "judge"))
                asked += 1
                if asked >= FEW:
                    check_failure_share(failed, asked, limit, subject)
                continue
            asked += 1
            verdict = Verdict(line=line, judgements=scored.judgements or (), correct=scored.correct)
            verdicts[line] = verdict
            store.append(encode(verdict))
            progress.count(len(verdicts), total)
            await asyncio.sleep(0)  # rules never wait: others have their turn

    working = [asyncio.create_task(work()) for _ in range(stage.config.reward.judge.max_concurrent)]
    try:
        await asyncio.gather(*working)
        check_failure_share(failed, total, limit, subject)
    finally:
        for worker in working:
            worker.cancel()
        await asyncio.gather(*working, return_exceptions=True)


def write_out(source: Path, output: Path, verdicts: Mapping[int, Verdict]) -> Counts:
    """The trajectories with their verdicts, those without one left out. The file appears whole. Returns counts."""
    judged, total = list[Verdict](), 0
    with whole_file(output) as file:
        for line, trajectory in trajectories(source):
            total += 1
            verdict = verdicts.get(line)
            if verdict is not None:
                judged.append(verdict)
                record = replace(trajectory, judgements=verdict.judgements, correct=verdict.correct)
                file.write(json_line(to_json(record)))
    return counts_of(total, judged)


def counts_of(total: int, judged: Sequence[Verdict]) -> Counts:
    """total: trajectories that there are."""
    sizes: dict[str, int] = {
        name: sum(passes_filter(name, judgements=verdict.judgements, right=bool(verdict.correct)) for verdict in judged)
        for name in FILTERS
    }
    labels = [step_rewards(verdict.judgements) for verdict in judged if verdict.judgements]
    return Counts(
        trajectories=total,
        failed=total - len(judged),
        steps=sum(map(len, labels)),
        process_labels=round(macro_label_accuracy(labels), 4) if labels else None,
        sets=sizes,
    )


def transcript_of(trajectory: TrajectoryRecord, *, keep: bool) -> Transcript:
    """Of what was played. keep: with the judgements that it came with; else the judge of this stage says its own."""
    return Transcript(
        task=task_of(trajectory.task),
        messages=trajectory.messages,
        truncated=trajectory.truncated,
        judgements=(trajectory.judgements or None) if keep else None,
    )


def identify_judging(stage: StageConfig, source: Path) -> dict[str, Any]:
    """What verdicts of one file have in common, wherever the run directory lies. Raises RunFailed without `source`."""
    if not source.is_file():
        raise RunFailed(f"stages.{stage.name}: {source} is missing, whose trajectories are judged")
    with source.open("rb") as file:
        return {"data": hashlib.file_digest(file, "blake2b").hexdigest()} | _identify_judge(stage)


def _identify_judge(stage: StageConfig) -> dict[str, Any]:
    """Who judges, and what: without how patiently."""
    reward = identity_of("reward", stage.config.reward)
    patience = [field.name for field in fields(GuardConfig)] + ["max_concurrent", "requests_per_minute", "outage_s"]
    judge = reward.pop("reward.judge")
    return reward | {f"reward.judge.{key}": value for key, value in judge.items() if key not in patience}
