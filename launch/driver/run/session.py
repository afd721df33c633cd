"""One process's share of a run, from the first part that starts to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from launch.checks.shareable import redact_arguments
from launch.checks.software import versions
from launch.driver.checkpoints.checkpoint import DriverState, step_of
from launch.driver.observe.held_out import largest_drop
from launch.driver.run import cleanup, parent
from launch.driver.run.now_playing import forget_playing
from launch.driver.run.parts import start_parts
from launch.driver.run.run import Run, health
from launch.driver.run.saving import end_writing, save_at_stop
from launch.driver.run.tasks import StopRequested
from rlsys.errors import SEE, BadInput, describe_error
from rlsys.files import shorten_path
from rlsys.journal import PROMPTS, count_prompts
from rlsys.seals import digest_of, with_own_digest

END_DEADLINE_S = 15.0  # of the parts
EVALUATION = ("before", "after", "measure", "episodes", "failures", "stages")


async def go_through(run: Run, work: Callable[[Run], Awaitable[None]], *, engines: bool) -> int:
    """Start the parts, do `work`, and leave a summary however it ends: done, stopped or failed.

    engines: whether some of the work needs them. Returns the exit code; what failed is raised.
    """
    signals = stop_on_signals(run)
    status, reason, code = "failed", None, 1
    watching = asyncio.create_task(run.loop_lag.watch())
    run.events.listen()
    run.incidents.start(asyncio.get_running_loop())
    parent.tell(driver=os.getpid())
    run.events.add("begin", opening_line(run), from_step=run.state.step)
    try:
        await run.tasks.until(start_parts(run, engines=engines))
        keep_imports()
        await work(run)
        status, code = "done", 0
    except StopRequested:
        status, code = "stopped", 128 + signals[0]
        await save_at_stop(run)
    except BaseException as error:
        reason = describe_error(error)
        if isinstance(error, Exception) and not isinstance(error, BadInput):
            folder = await asyncio.to_thread(run.incidents.collect_failure, reason)  # while the parts are there
            if folder is not None:
                error.add_note(f"{SEE} {shorten_path(folder)}")
        raise
    finally:
        if status != "stopped":
            run.progress.doing("ending the actors")
        gc.unfreeze()  # libraries count at the end what was left
        await asyncio.to_thread(run.incidents.close)
        watching.cancel()
        await end_writing(run)
        await run.tasks.cancel_background()
        if run.tasks.pool_start is not None:
            run.tasks.pool_start.cancel()
            await asyncio.gather(run.tasks.pool_start, return_exceptions=True)
        try:
            await asyncio.to_thread(leave_summary, run, status, reason)  # a long journal takes long to read
        finally:
            await stop_parts(run)
            run.tracker.finish()
            if reason is not None:
                run.events.add("end", f"{status}: {reason}")
                run.events.close()
        for finding in health(run):
            run.progress.say(f"health: {finding.describe()}")
    run.note("end", closing_line(run, status))
    run.events.close()
    run.progress.doing("ending every process of the run")
    return code


def stop_on_signals(run: Run) -> list[int]:
    """The signals that have come, a list that grows: the first one asks the run to stop."""
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def on_signal(number: int) -> None:
        signals.append(number)
        if len(signals) > 1:  # of one group's two, or from a user who does not like to wait
            return
        run.tasks.request_stop()
        run.begin("stop", "stopping: the update in progress is left, a checkpoint is written, then every process ends")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    for signal_number in cleanup.pending_signals():  # before the loop had its own handlers
        on_signal(signal_number)
    return signals


async def stop_parts(run: Run) -> None:
    with contextlib.suppress(Exception):  # the parts may be what failed
        async with asyncio.timeout(END_DEADLINE_S):
            await asyncio.gather(run.pool.stop(), run.services.stop(), run.learner.stop())
    forget_playing(run.dir.path)


def keep_imports() -> None:
    """What imports have made stays: else every full collection looks at all of it, and the loop waits for that."""
    gc.collect()
    gc.freeze()


def leave_summary(run: Run, status: str, reason: str | None) -> None:
    """Close the journal and write `summary.json`, on a full disk in the room that was kept for them."""
    try:
        try:
            write_summary(run, status, reason)
        finally:
            run.dir.release_reserve()
    except Exception:  # whatever it was, a full disk has room now: `release_reserve` has run
        try:
            write_summary(run, status, reason)
        except Exception as error:
            if status != "failed":
                raise
            run.progress.say(f"no summary was written: {describe_error(error)}")  # why the run failed is what matters


def write_summary(run: Run, status: str, reason: str | None) -> None:
    run.ended = run.ended or time.monotonic()
    text = json.dumps(with_own_digest(summary(run, status, reason)), indent=1) + "\n"
    run.dir.write("summary.json", text)
    run.journal.seal("summary.json", digest_of(text.encode()))
    parent.tell(summary=True)
    run.journal.close()


def opening_line(run: Run) -> str:
    step = run.state.step
    return f"continuing from step {step}" if step else "the run begins"


def closing_line(run: Run, status: str) -> str:
    state = run.state
    before, after, of = compare_evaluations(state)
    change, measure = "", {state.eval_measure.get(when, "accuracy") for when in ("before", "after")}
    if before and after and len(measure) == 1:  # the reward may be another one in the last stage
        scores = (f"{name} {before[name]:.3f} -> {after[name]:.3f}" for name in after if name in before)
        change = f"; held-out {measure.pop()}{of} " + ", ".join(scores)
    failed = sum(sum(counts.values()) for counts in state.eval_failures.values())
    if failed:
        episodes = sum(sum(counts.values()) for counts in state.eval_episodes.values())
        change += f"; {failed} of {episodes} evaluation episodes failed and are not in it"
    drop = largest_drop(run.dir.evaluations())
    fell = f", but {drop.describe()}" if drop is not None else ""
    newest = run.dir.newest()
    saved = f" from step {step_of(newest)}" if newest is not None else " from the beginning"
    path = shorten_path(run.dir.path)
    shows = f"`rlsys report {path}` shows it, `rlsys show {path} FILE:GROUP.SIBLING` one episode"
    then = shows if status == "done" else f"the same command continues it{saved}"
    outcome = f"{status} after {run.state.step} steps in {run.wall_s:.0f} s"
    return f"{outcome}{fell}{change}; see {path}; {then}"


def compare_evaluations(state: DriverState) -> tuple[dict[str, float], dict[str, float], str]:
    """Two evaluations of the same prompts: of the run's first weights and its last, else of the last stage's alone."""
    if state.eval_prompts.get("before") == state.eval_prompts.get("after"):
        return state.eval_before, state.eval_after, ""
    stages = [(name, scores) for name, scores in state.eval_stages.items() if {"before", "after"} <= set(scores)]
    return (stages[-1][1]["before"], stages[-1][1]["after"], f" of stage {stages[-1][0]}") if stages else ({}, {}, "")


def summary(run: Run, status: str, reason: str | None = None) -> dict[str, Any]:
    """By key, for JSON. A step that has no row, since the run failed in it, is in no number: it is taken again."""
    state = run.before_row or run.state
    run.journal.commit()
    prompts = count_prompts(run.dir.journal, state.step)
    recipe = run.config.recipe
    publish = sorted(state.publish_s)
    return {
        "status": status,
        **({"reason": reason} if reason else {}),
        "steps": state.step,
        "wall_s": round(run.wall_s, 1),
        "eval": {name: getattr(state, f"eval_{name}") for name in EVALUATION},
        "reward": {"first": state.reward_first, "last": state.reward_last},
        "tokens": {
            "generated": state.generated,
            "trained": state.trained,
            "discarded": state.discarded + run.lost_tokens,
        },
        "lag": {
            "max": state.lag_max,
            "mean": round(state.lag_sum / state.lag_count, 4) if state.lag_count else 0.0,
        },
        "prompts": {name: prompts[name] for name in PROMPTS},
        "failures": {kind: state.failures.get(kind, 0) for kind in ("infra", "timeout", "data", "retried")},
        "health": [asdict(finding) for finding in health(run)],
        "restarts": run.restarts,
        "weights": {
            "published": max(state.published, len(publish)),
            "publish_s_median": round(publish[len(publish) // 2], 4) if publish else None,
        },
        **({"generated": state.played} if state.played else {}),
        "stage_s": {name: round(seconds, 1) for name, seconds in state.stage_s.items()},
        "journal": dict(zip(("rows", "chain"), run.journal.end(), strict=True)),
        "versions": versions(),
        "host": socket.gethostname(),
        "command": shlex.join(redact_arguments(["rlsys", *sys.argv[1:]])),
        "learner": {"zero_stage": recipe.learner.zero_stage, "world_size": recipe.learner.ranks},
        "rollout": {"workers": recipe.rollout.workers},
    }
