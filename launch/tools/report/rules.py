"""The rules about learning: what broke, what health has found, tasks too easy or too hard, limits, reward and tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np

from launch.driver.checkpoints.checkpoint import FOLDER, step_of
from launch.driver.observe import thresholds
from launch.driver.observe.held_out import HELD_OUT, OF_EVALUATIONS
from launch.driver.observe.signs import SIGNS
from launch.run_dir.directory import RunDirectory
from launch.tools.report.advice import LONGEST, Advice, Rule, Situation, read_findings
from launch.tools.report.facts import Stage, count_episodes, count_groups, count_played
from launch.tools.report.headline import failure_reason, last_step
from launch.tools.report.words import mean, number, plural, score, share, total
from rlsys.untrusted import visible

EXAMPLES = 20  # episodes to look at
LINKS = {  # of findings that are seen best in something else than all episodes of their steps
    "cut": ("episodes that were cut off", "#t?step={first}-{last}&truncated=1&play=none"),
    "mismatch_by_depth": ("by depth", "#chart/gap_depth"),
}
NO_CONTRAST = frozenset({"untrained", "starved", "unsolved", "silent", "malformed", "cut"})


def advise_on_early_end(run: Situation) -> Iterator[Advice]:
    """It did not end by itself, and the same command continues it."""
    state, step = run.run.state, last_step(run.run)
    if state not in ("failed", "killed"):
        return
    checkpoints = sorted(
        (path for path in (run.run.path / "checkpoints").glob("step-*") if FOLDER.fullmatch(path.name)), key=step_of
    )
    origin = checkpoints[-1].name if checkpoints else "the beginning"
    ended = (
        f"failed after step {step}: {failure_reason(run.run)}" if state == "failed" else f"was killed after step {step}"
    )
    yield Advice(
        rule="ended_early", level="broken", key=_resume_command(run.run), label="events", href="#events",
        steps=(step, step),
        text=f"The run {ended}. The same command continues it from {origin}.",
    )  # fmt: skip


def _resume_command(run: RunDirectory) -> str | None:
    """The newest one that was typed, for a shell."""
    words = run.newest_start.command
    return visible(shlex.join(words))[:LONGEST] if words else None


def advise_on_health(run: Situation) -> Iterator[Advice]:
    """The run's health findings, unchanged.

    Of a run that undid what it could do, that cure comes before what the wreck looks like.
    """
    for finding in sorted(read_findings(run.run), key=lambda finding: finding.what != HELD_OUT):
        first, last, in_rows = finding.first_step, finding.last_step, finding.of > 0
        sign = SIGNS.get(finding.what)
        label, href = LINKS.get(finding.what, ("steps {first} to {last}", "#t?step={first}-{last}&play=none"))
        yield Advice(
            rule=f"health: {finding.what}" if finding.what else "health",
            level=sign.severity if sign is not None else OF_EVALUATIONS.get(finding.what, "wrong"),
            text=finding.describe() if in_rows else finding.says,
            label=label.format(first=first, last=last) if in_rows else "",
            href=href.format(first=first, last=last) if in_rows else "",
            steps=(first, last),
        )


def advise_on_difficulty(run: Situation) -> Iterator[Advice]:
    """Most groups have only right answers (`easy`), or only wrong ones (`hard`)."""
    stage, rows = run.stage, run.stage.last
    lacking, right = count_groups(rows).without_signal, stage.right_now
    if (
        not stage.has_enough
        or lacking is None
        or right is None
        or lacking <= thresholds.FILTERED
        or run.found & NO_CONTRAST
    ):
        return
    is_easy = right > thresholds.EASY
    if not is_easy and right >= thresholds.HARD:
        return
    last = f"of the last {len(rows)} steps" if len(rows) > 1 else "of the last step"
    begin = f"{share(lacking)} of the groups {last} carry no signal; right answers are at {share(right)}"
    first, until = stage.last_steps
    label, href = plural(count_groups(rows).filtered, "group"), f"#t?step={first}-{until}&advantage=none&play=none"
    numbers = {"without_signal": lacking, "right": right}
    size, adaptive = stage.setting("loop.group_size"), stage.setting("curriculum.name") == "difficulty"
    if is_easy:
        harder = ", also with this curriculum: give harder tasks" if adaptive else ""
        text, key = f"{begin}: the tasks have become easy{harder}.", None if adaptive else "curriculum.name=difficulty"
    else:
        text = f"{begin}: the tasks are too hard: an sft stage before this one, larger groups, or easier tasks."
        key = f"loop.group_size={2 * size}" if type(size) is int else None
    yield Advice(
        rule="easy" if is_easy else "hard", level="wrong", text=text, key=key, label=label, href=href,
        steps=(first, until), numbers=numbers,
    )  # fmt: skip


def _means_of_outer_thirds(stage: Stage, key: str) -> tuple[float, float] | None:
    """Means over the first and the last third of the stage's rows; None where there are too few."""
    column, size = stage.rows.column(key), len(stage.rows) // 3
    few = len(stage.rows) < thresholds.THIRD and not (size and count_played(stage.rows) >= 3 * thresholds.LAST_EPISODES)
    first, last = mean(column[:size]), mean(column[len(column) - size :])
    return (first, last) if not few and first is not None and last is not None else None


def advise_on_cut_episodes(run: Situation) -> Iterator[Advice]:
    """More and more episodes run into a limit of tokens while the reward falls, and not yet as many as health names."""
    stage = run.stage
    limits, rewards = (_means_of_outer_thirds(stage, key) for key in ("episode/token_limit", "reward/mean"))
    if "cut" in run.found or limits is None or rewards is None or rewards[1] >= rewards[0]:
        return
    if limits[1] < thresholds.CUT_NOW or limits[1] - limits[0] < thresholds.CUT_MORE:
        return
    rose = f"{share(limits[1])} of the episodes are cut off by a token limit, {share(limits[0])} at first"
    keys = ("rollout.max_turn_tokens", "rollout.max_response_tokens", "engine.max_model_len")
    settings = {key: value for key in keys if type(value := stage.setting(key)) is int}
    options = " or ".join(f"{key}={value}" for key, value in settings.items())
    longest = stage.last.known("episode/tokens_max")
    reached = [key for key, value in settings.items() if len(longest) and longest.max() >= value]
    if (mean(stage.last.known("episode/turns")) or 1) > 1:  # the tokens of several messages
        reached = [key for key in reached if key != keys[0]]
        first = next(iter(reached), None)
    else:
        first = next(iter(reached or settings), None)
    yield Advice(
        rule="cut",
        level="wrong",
        text=f"{rose}, and the reward fell from {score(rewards[0])} to {score(rewards[1])}: raise {options}.",
        key=f"{first}={2 * settings[first]}" if first is not None else None,
        label="episodes that were cut off",
        href="#t?truncated=1&play=none",
        steps=(int(stage.rows.step[0]), int(stage.rows.step[-1])),
        numbers={"first": limits[0], "last": limits[1]},
    )


def advise_on_unproven_reward(run: Situation) -> Iterator[Advice]:
    """The training reward rises, and held-out tasks do not get better."""
    stage = run.stage
    first, last = (mean(rows.known("reward/mean")) for rows in stage.ends)
    low, high = stage.rows.known("reward/min"), stage.rows.known("reward/max")
    if run.verdict.level not in ("flat", "bad") or first is None or last is None or not stage.has_ends:
        return
    distance = float(high.max() - low.min()) if len(low) and len(high) else abs(first)
    if last - first < thresholds.PAYS * distance or distance <= 0:
        return
    begin, end = stage.last_steps
    paid = (first + last) / 2
    wrong = count_episodes(run.episodes, begin, end, paid)
    ask = f"reward>{paid:.3g}&correct=0" if wrong else "sort=-reward"
    yield Advice(
        rule="unproven",
        level="wrong",
        text=f"The reward rose from {score(first)} to {score(last)}, and held-out {_held_out_metric(run)} did not: "
        f"it may pay for something else than solving tasks. Look at these {min(wrong, EXAMPLES) or EXAMPLES} episodes.",
        label=plural(wrong, "episode") + " paid but wrong" if wrong else "the best paid",
        href=f"#t?step={begin}-{end}&play=none&{ask}",
        steps=(begin, end),
        numbers={"first": first, "last": last, "wrong": float(wrong)},
    )


def advise_on_worse_results(run: Situation) -> Iterator[Advice]:
    """Held-out tasks fell, by too little for the health check, which asks that two intervals do not meet."""
    before, after = run.verdict.before, run.verdict.after
    if run.verdict.level != "bad" or before is None or after is None or HELD_OUT in run.found:
        return
    rate, first, last = run.stage.setting("learner.lr"), before.of.step, after.of.step
    is_own = before.of.stage == after.of.stage == run.stage.name  # else it may be another stage that undid it
    yield Advice(
        rule="worse", level="wrong",
        key=f"stages.{run.stage.name}.learner.lr={rate / 2:g}" if is_own and type(rate) in (int, float) else None,
        text=f"Held-out {_held_out_metric(run)} fell from {score(before.value)} (step {first}) to {score(after.value)} "
        f"(step {last}): updates undo what the model could do. Use earlier weights, and take smaller steps.",
        label="what it gets wrong now", href=f"#t?play={after.play}&step={last}&correct=0", steps=(first, last),
        numbers={"first": before.value, "last": after.value},
    )  # fmt: skip


def _held_out_metric(run: Situation) -> str:
    return run.verdict.after.result.measure if run.verdict.after is not None else "accuracy"


SIGNS_OF_TOOLS = {"judge": ("unread", ("errors_cut", "errors_unparsable")), "search": ("unanswered", ("errors",))}


def advise_on_tool_errors(run: Situation) -> Iterator[Advice]:
    """A tool fails often, or is not asked any more.

    `errors_hopeless` are answers that are wrong, and no errors of a tool; what a finding of the run is about is not
    said again.
    """
    for tool in list_tools(run.stage):
        calls, errors = (_count_increase(run.stage, tool, name) for name in ("calls", "errors"))
        sign, kinds = SIGNS_OF_TOOLS.get(tool, ("", ()))
        no_errors = ("errors_hopeless", *(kinds if sign in run.found else ()))
        errors -= sum(_count_increase(run.stage, tool, name) for name in no_errors)
        link: dict[str, Any] = {"label": f"calls of {tool}", "href": "#chart/tools", "steps": run.stage.last_steps}
        link["key"] = timeout_key_of_tool(run.stage, tool)
        open_now = run.stage.last.column(f"tool/{tool}/breaker_open")
        if len(open_now) and open_now[-1] > 0:
            text = f"{tool} answers no calls: its circuit is open after too many errors."
            yield Advice(rule="tool", level="broken", text=text, **link)
        elif calls > 0 and errors / calls >= thresholds.ERRORS:
            text = f"{share(errors / calls)} of the calls of {tool} fail ({number(errors)} of {number(calls)})."
            numbers = {"errors": errors, "calls": calls}
            yield Advice(rule="tool", level="wrong", text=text, numbers=numbers, **link)


def list_tools(stage: Stage) -> list[str]:
    names = (key.split("/") for key in stage.rows.columns if key.startswith("tool/"))
    return sorted({parts[1] for parts in names if len(parts) > 2})


def _count_increase(stage: Stage, tool: str, name: str) -> float:
    """Over the stage, of a count since the workers' start. Steps in which a worker began again are left out.

    It begins at the count before the stage, and a row without one adds nothing.
    """
    rows = stage.run.rows
    calls, counts = (rows.column(f"tool/{tool}/{metric}") for metric in ("calls", name))
    valid = ~np.isnan(calls) & ~np.isnan(counts)
    inside = np.array([label == stage.name for label in rows.stage], bool)[valid]
    calls, counts = calls[valid], counts[valid]
    began_again = np.diff(calls, prepend=0.0) < 0
    return total(np.where(inside & ~began_again, np.diff(counts, prepend=0.0), 0.0))


TIMEOUTS = {
    "judge": "reward.judge.deadline_s",
    "grader": "rollout.grader_deadline_s",
    "search": "env.retriever.guard.deadline_s",
}


def timeout_key_of_tool(stage: Stage, tool: str) -> str | None:
    """The timeout of its calls, where the configuration has it."""
    key = TIMEOUTS.get(tool)
    return key if key is not None and stage.setting(key) is not None else None


RULES: tuple[Rule, ...] = (
    advise_on_health,
    advise_on_tool_errors,
    advise_on_early_end,
    advise_on_worse_results,
    advise_on_difficulty,
    advise_on_cut_episodes,
    advise_on_unproven_reward,
)
