"""One line that says what was run, and how it ended."""

from __future__ import annotations

from typing import Any

from launch.driver.observe.progress import duration
from launch.run_dir.directory import RunDirectory
from launch.tools.report.facts import count_gpus, holds_gpus, main_stage
from launch.tools.report.words import number, plural
from rlsys.untrusted import visible

BETWEEN = " · "  # parts, and nothing within one
LONGEST = 300  # characters of a reason


def headline(run: RunDirectory) -> str:
    parts = [
        _describe_end(run),
        _describe_experiment(run),
        _list_algorithms(run),
        _describe_parameters(run),
        _describe_hardware(run),
        _describe_version(run),
    ]
    return BETWEEN.join(part.replace(BETWEEN, ", ") for part in parts if part)


def last_step(run: RunDirectory) -> int:
    """Steps that have a row."""
    return int(run.rows.step[-1]) if len(run.rows) else 0


def _describe_end(run: RunDirectory) -> str:
    steps, seconds = last_step(run), [*run.rows.known("wall_s")]
    ended: Any = run.summary.get("wall_s") if run.state in ("done", "stopped", "failed") else None
    if type(ended) in (int, float) and 0 <= ended < 1e12:  # later than the last row: after an evaluation, a checkpoint
        seconds.append(ended)
    within = f" in {duration(float(seconds[-1]))}" if seconds else ""
    resumed = run.newest_start.from_step if len(run.starts) > 1 else None
    if resumed is not None:
        within += f", continued from step {resumed}" if resumed else ", begun again"
    if run.state == "done":
        return f"done, {plural(steps, 'step')}{within}"
    if run.state == "running":
        return f"running, {plural(steps, 'step')} of {planned_steps(run):,} so far{within}"
    if run.state == "killed":
        return f"stopped at step {steps}{within}, no summary: the process was killed"
    if run.state == "stopped":
        return f"stopped at step {steps} of {planned_steps(run):,}{within}"
    return f"failed at step {steps}{within}: {failure_reason(run)}"


def failure_reason(run: RunDirectory) -> str:
    """Why a run failed, as its summary has it."""
    text = visible(str(run.summary.get("reason") or "no reason was recorded"))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def planned_steps(run: RunDirectory) -> int:
    steps = [stage.get("steps") for stage in run.config["stages"]]
    return max(sum(count for count in steps if type(count) is int), last_step(run))


def _describe_experiment(run: RunDirectory) -> str:
    """What is learned, from which reward, with which seed: calculator, reward answer, seed 0."""
    stage = main_stage(run)
    name = stage.name if stage is not None else None
    env, reward, seed = (run.setting(key, name) for key in ("env.name", "reward.name", "seed"))
    values = {"": env, "reward ": reward, "seed ": seed}
    return visible(", ".join(f"{prefix}{value}" for prefix, value in values.items() if value is not None))


def _list_algorithms(run: RunDirectory) -> str:
    """Of the stages that train: sft, grpo."""
    names = []
    for name, config in zip(run.stages, run.config["stages"], strict=True):
        kind = str(config.get("kind"))
        names.append(str(run.setting("algorithm.name", name) or kind) if kind == "rl" else kind)
    return ", ".join(dict.fromkeys(visible(name) for name in names))


def _describe_parameters(run: RunDirectory) -> str:
    count = run.record.get("parameters")
    if type(count) not in (int, float) or not count or not 0 < count < 1e16:
        return ""
    return f"{number(count / 1e9)} G parameters" if count >= 1e9 else f"{number(count / 1e6)} M parameters"


def _describe_hardware(run: RunDirectory) -> str:
    stage = main_stage(run)
    name = stage.name if stage is not None else None
    engines, ranks = (_count_or_zero(run.setting(key, name)) for key in ("rollout.workers", "learner.ranks"))
    parts = f"{plural(engines, 'engine')} + {plural(ranks, 'rank')}"
    return f"{parts}, {_describe_machines(run)}"


def _describe_machines(run: RunDirectory) -> str:
    nodes, cards = run.newest_start.nodes, count_gpus(run)
    on = f" on {len(nodes)} nodes" if len(nodes) > 1 else ""
    if not holds_gpus(run):
        return f"CPU{on}"
    names = dict.fromkeys(visible(str(node.gpus.name)) for node in nodes if node.gpus is not None)
    return f"{cards} x {' and '.join(names)}{on}" if cards else f"GPUs{on}"


def _describe_version(run: RunDirectory) -> str:
    if run.starts:
        newest = run.newest_start
        commit, changed = (newest.commit or "")[:7], "+changes" if newest.dirty else ""
        return visible(f"rlsys {newest.version}" + (f" ({commit}{changed})" if commit else ""))
    versions = run.summary.get("versions")
    return visible(f"rlsys {versions['rlsys']}") if isinstance(versions, dict) and "rlsys" in versions else ""


def _count_or_zero(value: Any) -> int:
    return value if type(value) is int else 1
