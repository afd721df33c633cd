"""What an audit proves, one property each: what was looked at, in a line, and what does not fit, a line for each."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import get_args

from launch.driver.checkpoints.checkpoint import Damaged
from launch.driver.checkpoints.proof import compare_checkpoint, compare_models
from launch.run_dir.episodes import read_episodes
from launch.run_dir.lines import ends_whole, open_file
from launch.run_dir.names import EVALUATIONS, METRICS, metrics_line_name
from launch.run_dir.rows import number_of
from launch.tools.audit.files import JOURNAL, SUMMARY, Looked, foreign_checkpoints, list_checkpoints
from launch.tools.audit.lengths import compare_lengths
from launch.tools.audit.policy_lag import lag
from launch.tools.audit.property import Property, Show
from rlsys.episode_index import INDEX
from rlsys.journal import PROMPTS, Dispatched, Finished, Ledger, Outcome, Sealed, drop_later_outcomes, ledger
from rlsys.seals import OWN, digest_of, own_digest

FATES = {  # of a sampled token
    "trained": "trained",
    "stale": "too old",
    "truncated": "cut off",
    "ungraded": "of failed episodes",
    "without_signal": "in groups without a signal",
    "in_failed_groups": "in failed groups",
}
RETOLD = "env/retold_messages"  # means of agents' episodes
ENDINGS = {"trajectories": ".jsonl", "evaluations": ".json"}  # of the files in these folders
SHOW_EVERY = 100  # files
CERTAIN = 1e-3  # lengths that differ so much come about by chance once in a thousand runs


# -- the journal ------------------------------------------------------------------------------------------------------


def journal(looked: Looked, show: Show) -> Property:
    """Every row as it was written, and none missing: between two rows, and up to what summary and checkpoints say."""
    offenders = [problem for problem in looked.unreadable if problem.startswith(JOURNAL)]
    offenders += _find_torn(looked, JOURNAL)
    broken = [number for number, link in enumerate(looked.links, start=1) if not link.fits]
    offenders += [f"line {number} was changed, or a line before it is missing" for number in broken]
    for mark in looked.marks:
        if mark.rows > len(looked.links):
            missing = mark.rows - len(looked.links)
            offenders.append(f"{missing} rows are missing at the end: {mark.name} counts {mark.rows}")
        elif mark.chain and mark.rows and looked.links[mark.rows - 1].chain != mark.chain:
            offenders.append(f"row {mark.rows} is not the one that {mark.name} was written after")
    lineages = 1 + max((row.lineage for row in looked.rows), default=-1)
    counts = f"{len(looked.rows):,} rows of {lineages} lineages" if lineages != 1 else f"{len(looked.rows):,} rows"
    chain = looked.lacks_digests or "each with the digest of the one before"
    return Property(name="journal", says=f"{counts}, {chain}", offenders=tuple(offenders))


def prompts(looked: Looked, show: Show) -> Property:
    """Each prompt that was started was trained, filtered or failed once, or is in flight, in the lineage that
    survives. In a run that is done none is. The rows of metrics count as many."""
    book = looked.account
    offenders = [*book.problems, *_check_groups(looked)]
    if looked.state == "done" and book.in_flight:
        closed = {(row.stage, row.sequence) for row in looked.surviving if isinstance(row, Finished)}
        tasks = {(row.stage, row.sequence): row.task for row in looked.surviving if isinstance(row, Dispatched)}
        offenders += [f"{key} ({task}) was started and never ended" for key, task in tasks.items() if key not in closed]
    summary = looked.run.summary.get("prompts")
    if looked.is_over and isinstance(summary, dict):
        counted = _ledger_at_end(looked)
        for name, number in summary.items():
            if name in PROMPTS and number != getattr(counted, name):
                offenders.append(f"summary.json counts {number} {name}, the journal {getattr(counted, name)}")
    parts = (
        f"{getattr(book, name):,} {name.replace('_', ' ')}" for name in ("trained", "filtered", "failed", "in_flight")
    )
    return Property(
        name="prompts", says=f"{book.dispatched:,} started = {' + '.join(parts)}, each once", offenders=tuple(offenders)
    )


def _check_groups(looked: Looked) -> list[str]:
    """Two accounts of the same groups: a step's row is made of what was trained, the journal of what was decided."""
    counted, late = looked.outcomes
    counts = Counter((row.step, row.outcome) for row in counted)
    trained = [row for row in late if row.outcome != "filtered"]  # only what has no signal can be left to a later one
    return [
        f"step {row.step}: {(row.stage, row.sequence)} was {row.outcome} in it by a process that did not take it"
        for row in trained
    ] + [
        f"step {row.step}: its row counts {row.number(f'groups/{outcome}'):g} {outcome} groups, "
        f"the journal {counts[row.step, outcome]}"
        for row in (line.row for line in looked.metrics)
        for outcome in get_args(Outcome)
        if f"groups/{outcome}" in row.values and row.number(f"groups/{outcome}") != counts[row.step, outcome]
    ]


def _ledger_at_end(looked: Looked) -> Ledger:
    """As a summary has it."""
    last = looked.run.summary.get("steps")
    return ledger(drop_later_outcomes(looked.surviving, last if type(last) is int else 0))


def epochs(looked: Looked, show: Show) -> Property:
    """Where a curriculum goes through all tasks, each epoch has the tasks of the first one, once each."""
    tasks: dict[tuple[str, int], set[str]] = defaultdict(set)
    for row in looked.surviving:
        if isinstance(row, Dispatched):
            tasks[row.stage, row.epoch].add(row.task)
    offenders, complete = [], 0
    for stage in dict.fromkeys(stage for stage, _ in tasks):
        order = sorted(epoch for name, epoch in tasks if name == stage)
        if looked.run.setting("curriculum.name", stage) != "uniform" or looked.run.setting("envs", stage):
            continue
        first = tasks[stage, order[0]]
        complete += len(order) - 1
        for epoch in order:
            missing = first - tasks[stage, epoch] if epoch != order[-1] else ()  # the last one may have begun only
            offenders += [f"{stage}: task {task} is missing in epoch {epoch}" for task in sorted(missing)]
            added = tasks[stage, epoch] - first
            offenders += [f"{stage}: task {task} of epoch {epoch} is not in epoch {order[0]}" for task in sorted(added)]
    return Property(name="epochs", says=f"{complete} complete, each with the same tasks", offenders=tuple(offenders))


# -- rows -------------------------------------------------------------------------------------------------------------


def rows(looked: Looked, show: Show) -> Property:
    """One row of metrics for each step, as it was written; and the lines of evaluations."""
    offenders = [problem for problem in looked.unreadable if not problem.startswith(JOURNAL)]
    offenders += _find_torn(looked, METRICS, EVALUATIONS)
    for name, lines in ((METRICS, looked.metrics), (EVALUATIONS, looked.evaluations)):  # a resume reads up to its step
        misplaced = [line for before, line in pairwise(lines) if line.row.step < before.row.step]
        offenders += [f"{name} line {line.number}: of a step before that of the line above" for line in misplaced]
    written = (*looked.metrics, *looked.evaluations)
    by_name = {line.name: line for line in written}
    times = Counter(line.name for line in written)
    offenders += [f"{name}: {count} lines" for name, count in times.items() if count > 1]
    if looked.is_over and not looked.is_sealed:
        steps = looked.run.summary.get("steps")
        present = {line.row.step for line in looked.metrics}
        missing = sorted({*range(1, 1 + (steps if type(steps) is int else 0))} - present)
        offenders += [f"step {step} has no row of metrics" for step in missing]
    if looked.is_sealed:
        sealed = {name: seals[-1] for name, seals in looked.seals.items() if name.startswith((METRICS, EVALUATIONS))}
        alive = {row.name for row in looked.surviving if isinstance(row, Sealed)}
        last = max((line.row.step for line in looked.metrics), default=0)  # later ones were taken back
        alive |= {metrics_line_name(step) for step in range(1, last + 1)}
        offenders += [f"{name}: the line is missing" for name in sealed if name in alive and name not in by_name]
        changed = [name for name, line in by_name.items() if name in sealed and sealed[name] != line.digest]
        offenders += [f"{name}: not what was written (line {by_name[name].number})" for name in changed]
        offenders += _find_unsealed(looked, sealed)
    counts = f"{len(looked.metrics):,} of metrics and {len(looked.evaluations):,} of evaluations"
    return Property(name="rows", says=f"{counts}, {looked.lacks_digests or 'as written'}", offenders=tuple(offenders))


def _find_torn(looked: Looked, *names: str) -> list[str]:
    """Files that end within a line. A process that is killed leaves one; its resume takes it away."""
    if looked.state != "done" or not looked.is_sealed:
        return []
    return [f"{name}: its last line has no end" for name in names if not ends_whole(looked.path / name)]


def _find_unsealed(looked: Looked, sealed: Mapping[str, str]) -> list[str]:
    """Lines without a digest. A process that is killed between a line and its seal leaves one: the last of the metrics,
    where none came after it to take it back; of evaluations, which are not taken back, one each. Lines of an earlier
    rlsys have none, and stand before the first digest of the journal."""
    if next((at for at, link in enumerate(looked.links) if link.chain), 0):
        return []
    of_metrics, of_evaluations = (
        [line for line in lines if line.name not in sealed] for lines in (looked.metrics, looked.evaluations)
    )
    if not looked.is_over and of_metrics == looked.metrics[-1:]:
        of_metrics = []
    if len(of_evaluations) <= looked.kills:
        of_evaluations = []
    return [f"{line.name}: not written by the run" for line in (*of_metrics, *of_evaluations)]


def tokens(looked: Looked, show: Show) -> Property:
    """Of each step all sampled tokens are trained, or left out for one reason."""
    offenders, totals = [], Counter[str]()
    for row in (line.row for line in looked.metrics):
        if "tokens/generated" not in row.values:
            continue
        total = row.number("tokens/generated")
        fates = {name: row.number(f"tokens/{name}") for name in FATES}
        skipped = fates["trained"] == 0 and row.number("learner/skipped") > 0  # no gradient was finite
        closes = (
            sum(fates.values()) == total or skipped or "tokens/without_signal" not in row.values
        )  # of an earlier rlsys
        groups = sum(row.number(f"tokens/in_{name}_groups") for name in ("trained", "filtered", "failed"))
        if groups != total or not closes:
            offenders.append(f"step {row.step}: {total:g} tokens were sampled, {sum(fates.values()):g} have a fate")
        totals.update(fates | {"sampled": total, "discarded": row.number("tokens/discarded")})
    offenders += _check_tokens(looked)
    parts = " + ".join(f"{totals[name]:,.0f} {fate}" for name, fate in FATES.items() if totals[name])
    lost = f"; {totals['discarded']:,.0f} more lost with attempts that broke" if totals["discarded"] else ""
    says = f"{totals['sampled']:,.0f} sampled = {parts}{lost}" if totals["sampled"] else "none sampled for training"
    if any(RETOLD in line.row.values for line in looked.metrics):
        says += f"; {_count_retold(looked):,.0f} messages of the assistant's tokenised anew, as agents told them"
    return Property(name="tokens", says=says, offenders=tuple(offenders))


def _count_retold(looked: Looked) -> float:
    return sum(line.row.number(RETOLD) * line.row.number("episode/count") for line in looked.metrics)


def _check_tokens(looked: Looked) -> Iterator[str]:
    """The summary against the rows. What evaluations and stages that generate have sampled is in no row."""
    summary = looked.run.summary.get("tokens")
    if not looked.is_over or not isinstance(summary, dict):
        return
    trained, sampled = (
        sum(line.row.number(key) for line in looked.metrics) for key in ("tokens/trained", "tokens/generated")
    )
    if summary.get("trained") != trained:
        yield f"summary.json counts {summary.get('trained')} trained tokens, the rows {trained:g}"
    more = looked.evaluations or looked.run.summary.get("generated")
    generated = number_of(summary, "generated")
    if generated < sampled or (generated > sampled and not more):
        yield f"summary.json counts {summary.get('generated')} sampled tokens, the rows {sampled:g}"


# -- files ------------------------------------------------------------------------------------------------------------


def checkpoints(looked: Looked, show: Show) -> Property:
    """Every file of every checkpoint, by size and digest; none more, none less; and the models under them."""
    offenders, checked, without = [f"{name} is missing" for name in looked.missing_checkpoints], 0, 0
    offenders += [f"checkpoints/{name}: not written by the run" for name in foreign_checkpoints(looked.path)]
    for folder in list_checkpoints(looked.path):
        show(f"checkpoints: {folder.name}")
        try:
            has_digests = compare_checkpoint(folder, looked.book, show)
            checked, without = checked + has_digests, without + (not has_digests)
        except Damaged as error:
            if not folder.is_dir():
                continue  # the run has removed it meanwhile
            offenders.append(str(error).removeprefix(f"{looked.path}/"))
    try:
        compare_models(looked.path, looked.book, show)
    except Damaged as error:
        offenders.append(str(error).removeprefix(f"{looked.path}/"))
    later = f"; {without} without digests" if without else ""
    return Property(name="checkpoints", says=f"{checked} whole, file by file{later}", offenders=tuple(offenders))


def files(looked: Looked, show: Show) -> Property:
    """Files of episodes and of evaluations, config.yaml and summary.json, as they were written."""
    offenders, checked = [problem for problem in looked.run.damage if problem.startswith("summary.json")], 0
    offenders += [*_changed_summary(looked), *_foreign_files(looked)]
    summary = looked.run.summary
    steps = {line.row.step for line in looked.metrics}
    for name, seals in looked.seals.items():
        if not _is_file(name) or not _is_due(name, steps, evaluated=bool(looked.evaluations)):
            continue
        plain = looked.path / f"{name}{ENDINGS.get(name.partition('/')[0], '')}"
        path = plain if plain.exists() else plain.with_name(f"{plain.name}.gz")
        try:
            with open_file(path) as file:
                digest = digest_of(file.read())
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or error
            offenders.append(f"{plain.relative_to(looked.path)} cannot be read ({why})")
            continue
        checked += 1
        if digest != seals[-1]:
            offenders.append(f"{path.relative_to(looked.path)} is not what was written")
        if not checked % SHOW_EVERY:
            show(f"files: {checked}")
    without = "; summary.json without a digest" if summary and OWN not in summary else ""  # of an earlier rlsys
    says = looked.lacks_digests or f"{checked + (OWN in summary):,} files as written{without}"
    return Property(name="files", says=says, offenders=tuple(offenders))


def _is_file(name: str) -> bool:
    """Whether a seal is of a file that is read here: not of a line, of weights, or of the summary."""
    return name == "config.yaml" or name.partition("/")[0] in ENDINGS


def _changed_summary(looked: Looked) -> Iterator[str]:
    """By the journal, and by itself. The parent of a process that was killed writes one too, which no row knows."""
    path, sealed, summary = looked.path / SUMMARY, looked.summary_seal, looked.run.summary
    digest = summary.get(OWN)
    if sealed and not path.exists():
        yield f"{SUMMARY} is missing"
    elif (sealed and digest_of(path.read_bytes()) != sealed) or (digest is not None and digest != own_digest(summary)):
        yield f"{SUMMARY} is not what was written"
    elif not sealed and looked.is_over and looked.book.since is not None:
        yield f"{SUMMARY}: not written by the run, or the end of {JOURNAL} is missing"


def _foreign_files(looked: Looked) -> list[str]:
    """Files of episodes and of evaluations that no row knows. A process that is killed leaves at most one that it has
    just written of a step, and one of an evaluation."""
    if not looked.is_sealed or not looked.links[0].chain:
        return []
    problems = [
        f"{path.relative_to(looked.path)}: not written by the run"
        for folder, ending in ENDINGS.items()
        for path in sorted((looked.path / folder).glob("*"))
        if not path.name.startswith(".") and path.name != INDEX
        if _sealed_name(path, ending) not in looked.seals
    ]
    return problems if len(problems) > 2 * looked.kills else []


def _sealed_name(path: Path, ending: str) -> str:
    """ "" where a file has the name of no seal: another ending, or a compressed copy next to the plain one."""
    plain = path.name.removesuffix(".gz")
    if not plain.endswith(ending) or (plain != path.name and path.with_name(plain).exists()):
        return ""
    return f"{path.parent.name}/{plain.removesuffix(ending)}"


def _is_due(name: str, steps: set[int], *, evaluated: bool) -> bool:
    """A file whose step, or evaluation, has no line yet may be of a process that was killed while writing it."""
    step = name.removeprefix("trajectories/step-")
    return int(step) in steps if step.isdigit() else name == "config.yaml" or evaluated


def lengths(looked: Looked, show: Show) -> Property:
    """Whether long episodes count for training as often as short ones. Those that failed do not. Those that a limit cut
    off and `algorithm.truncated` leaves out are long by that very rule: they are counted, and are no offence. Nor
    is it one where the short ones failed: nothing was lost by being slow. The index of the episodes has no digest:
    their files have."""
    show("lengths: of all episodes")
    episodes = read_episodes(looked.run, partial(_show_files, show), indexed=False)
    offenders, says = [], []
    for stage in looked.run.stages:
        of_stage = episodes.in_training & episodes.has("stage", stage)
        if not of_stage.any():
            continue
        rule = looked.run.setting("algorithm.truncated", stage)
        cut = of_stage & (episodes.columns["truncated"] == 1) & (rule not in (None, "train"))
        failed = episodes.columns["failure"] >= 0
        tokens = episodes.columns["tokens"]
        result = compare_lengths(tokens[of_stage & ~failed], tokens[of_stage & failed])
        by_rule = f", of which algorithm.truncated={rule} leaves out {cut.sum():,}" if cut.any() else ""
        says.append(f"{stage}: {result.describe()}{by_rule}")
        if result.p < CERTAIN and result.trained_mean < result.played_mean:
            offenders.append(f"{stage}: {result.describe()}")
    return Property(name="lengths", says="; ".join(says) or "no episodes of training", offenders=tuple(offenders))


def _show_files(show: Show, name: str, done: int, total: int | None) -> None:
    if not done % SHOW_EVERY:
        show(f"lengths: {done:,} of {total:,} files")


CHEAP: Mapping[str, Callable[[Looked, Show], Property]] = {
    "journal": journal, "prompts": prompts, "epochs": epochs, "rows": rows, "tokens": tokens, "lag": lag,
}  # fmt: skip
ALL = {**CHEAP, "checkpoints": checkpoints, "files": files, "lengths": lengths}


def audit(looked: Looked, *, cheap: bool = False, show: Show = lambda text: None) -> list[Property]:
    return [check(looked, show) for check in (CHEAP if cheap else ALL).values()]
