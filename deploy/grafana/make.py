"""Writes the Grafana board, `rlsys.json` next to this file, and docs/reference/metrics.md.

The panels are the table PANELS below; what is exported is the table of `launch/driver/observe/exported.py`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the tree that this file is in, whatever is installed

from launch.driver.observe.exported import EXPORTED, Metric  # noqa: E402

BOARD, PAGE = Path(__file__).with_name("rlsys.json"), ROOT / "docs" / "reference" / "metrics.md"
WIDTH, HEIGHT = 24, 8  # of the board in columns, of a panel in rows
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUN = 'run=~"$run"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    about: str
    queries: tuple[tuple[str, str], ...]  # (expression, legend)
    unit: str = "short"  # a unit of Grafana's
    width: int = 8
    stacked: bool = False
    log: bool = False


def total(name: str, by: str) -> str:
    """What a counter has gained in the window, one line for each value of a label."""
    return f"sum by (run, {by}) (increase(ray_rlsys_{name}_total{{{RUN}}}[$window]))"


def rate(name: str, by: str = "run") -> str:
    return f"sum by ({by}) (rate(ray_rlsys_{name}_total{{{RUN}}}[$window]))"


def gained(name: str) -> str:
    return f"sum by (run) (increase(ray_rlsys_{name}_total{{{RUN}}}[$window]))"


def newest(name: str, by: str = "run") -> str:
    """A gauge. A run that was continued has a series of each of its processes: Ray tells them apart by labels."""
    return f"max by ({by}) (ray_rlsys_{name}{{{RUN}}})"


PANELS: dict[str, tuple[Panel, ...]] = {
    "Is it alive?": (
        Panel(
            title="Progress", unit="percentunit", width=6,
            about="Training steps taken, of those planned. A stage over data of another one is planned once it begins.",
            queries=((f"{newest('step')} / {newest('steps_planned')}", "{{run}}"),),
        ),
        Panel(
            title="Seconds since the last step", unit="s", width=6,
            about="It falls at each step. An evaluation before or after a stage is no step. A run that has ended, or "
            "died, has no line.",
            queries=((f"time() - {newest('last_step_timestamp_seconds')}", "{{run}}"),),
        ),
        Panel(
            title="Seconds of a step", unit="s", width=6,
            about="Of the newest step.",
            queries=((newest("step_seconds"), "{{run}}"),),
        ),
        Panel(
            title="Restarts and lost engines", width=6,
            about="Restarts in the window, and rollout workers whose node is gone.",
            queries=((total("restarts", "role"), "{{run}} {{role}}"), (newest("engines_lost"), "{{run}} lost")),
        ),
    ),
    "Does it learn?": (
        Panel(
            title="Reward",
            about="Mean over the step's graded trajectories, by stage.",
            queries=((newest("reward_mean", "run, stage"), "{{run}} {{stage}}"),),
        ),
        Panel(
            title="Parts of the reward",
            about="Mean over the same trajectories.",
            queries=((newest("reward_part", "run, part"), "{{run}} {{part}}"),),
        ),
        Panel(
            title="Held-out tasks",
            about="Accuracy (or mean reward) of the newest evaluation, by kind of decoding; and of the newest step.",
            queries=((newest("held_out", "run, play"), "{{run}} {{play}}"), (newest("solved"), "{{run}} training")),
        ),
        Panel(
            title="Groups by outcome", stacked=True,
            about="In the window. Filtered: all rewards of the group were equal, so that it carries no signal.",
            queries=((total("groups", "outcome"), "{{run}} {{outcome}}"),),
        ),
        Panel(
            title="Length of an episode",
            about="Mean, with tool results, in tokens.",
            queries=((newest("response_tokens"), "{{run}}"),),
        ),
        Panel(
            title="Turns, and episodes that were cut off",
            about="Mean number of the model's messages; the share that a token limit cut off.",
            queries=((newest("turns"), "{{run}} turns"), (newest("truncated_share"), "{{run}} cut off")),
        ),
    ),
    "Is it healthy?": (
        Panel(
            title="Entropy",
            about="Of the policy at the sampled tokens, in nats. A collapse to 0 ends exploration.",
            queries=((newest("entropy_mean"), "{{run}}"),),
        ),
        Panel(
            title="KL divergence",
            about="From the policy that sampled (behavior), and from the reference model of a stage with one; nats.",
            queries=((newest("kl", "run, of"), "{{run}} {{of}}"),),
        ),
        Panel(
            title="Clipped tokens", unit="percentunit",
            about="Share of the sampled tokens whose gradient was clipped.",
            queries=((newest("clip_share", "run, side"), "{{run}} {{side}}"),),
        ),
        Panel(
            title="Policy lag",
            about="Versions between a step's oldest token and the weights it trains; never above loop.max_policy_lag.",
            queries=((newest("lag_max"), "{{run}}"),),
        ),
        Panel(
            title="Engine against learner", log=True,
            about="Largest difference of log-probabilities after a delivery, in nats; limit: loop.mismatch_limit.",
            queries=((newest("mismatch_probe_max"), "{{run}}"),),
        ),
        Panel(
            title="Failed episodes", unit="percentunit", stacked=True,
            about="Share of the episodes of the window that failed after their retries, by kind.",
            queries=(
                (f"{total('failures', 'kind')} / on (run) group_left () {gained('episodes')}", "{{run}} {{kind}}"),
            ),
        ),
    ),
    "Where does the time go?": (
        Panel(
            title="Phases of a step", unit="percentunit", stacked=True, width=12,
            about="Seconds of each phase per second of wall time: steps without a pause between them add up to 1.",
            queries=((rate("phase_seconds", "run, phase"), "{{run}} {{phase}}"),),
        ),
        Panel(
            title="Tokens per second by fate", stacked=True, width=12,
            about="The model's own tokens: in the loss; in groups without signal or that failed; too old; lost.",
            queries=((rate("tokens", "run, fate"), "{{run}} {{fate}}"),),
        ),
        Panel(
            title="Busy share of the engines", unit="percentunit",
            about="Of the seconds since their start, those in which they had a request.",
            queries=((f"{rate('engine_busy_seconds')} / {rate('engine_alive_seconds')}", "{{run}}"),),
        ),
        Panel(
            title="Seconds of a delivery of weights", unit="s",
            about="Until the last engine has loaded them; mean of the window.",
            queries=((f"{rate('delivery_seconds')} / {rate('deliveries')}", "{{run}}"),),
        ),
        Panel(
            title="Tokens per second of the newest step",
            about="Sampled by the engines, and in the loss.",
            queries=(
                (newest("tokens_generated_per_second"), "{{run}} generated"),
                (newest("tokens_trained_per_second"), "{{run}} trained"),
            ),
        ),
    ),
    "Does it hold?": (
        Panel(
            title="Requests", stacked=True,
            about="In the batches of the engines, and waiting, at the end of a step.",
            queries=((newest("engine_running"), "{{run}} running"), (newest("engine_waiting"), "{{run}} waiting")),
        ),
        Panel(
            title="KV cache", unit="percentunit",
            about="Share in use, of the fullest engine, at the end of a step.",
            queries=((newest("engine_kv_usage"), "{{run}}"),),
        ),
        Panel(
            title="Memory by role", unit="bytes",
            about="Resident: driver, all engines, and the peak of the largest learner rank.",
            queries=((newest("resident_bytes", "run, role"), "{{run}} {{role}}"),),
        ),
        Panel(
            title="GPUs of the nodes", unit="percent",
            about="Utilization by node and card, as Ray reports it; empty without GPUs.",
            queries=(("avg by (instance, GpuIndex) (ray_node_gpus_utilization)", "{{instance}} {{GpuIndex}}"),),
        ),
        Panel(
            title="Memory of the nodes", unit="bytes",
            about="In use by node, as Ray reports it.",
            queries=(("max by (instance) (ray_node_mem_used)", "{{instance}}"),),
        ),
        Panel(
            title="Free disk of the nodes", unit="bytes",
            about="By node, as Ray reports it.",
            queries=(("min by (instance) (ray_node_disk_free)", "{{instance}}"),),
        ),
    ),
}  # fmt: skip


def make_board() -> dict[str, Any]:
    """The board as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in PANELS.items():
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "gridPos": _place(0, top, WIDTH, 1), "panels": []}
        )
        top, left = top + 1, 0
        for panel in row:
            if left + panel.width > WIDTH:
                top, left = top + HEIGHT, 0
            panels.append(make_panel(panel, _place(left, top, panel.width, HEIGHT)))
            left += panel.width
        top += HEIGHT
    numbered = [{"id": number, **panel} for number, panel in enumerate(panels, start=1)]
    return {
        "uid": "rlsys",
        "title": "rlsys",
        "tags": ["rlsys"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": VARIABLES},
        "panels": numbered,
    }


VARIABLES: list[dict[str, Any]] = [
    {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
    {
        "name": "run", "type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1, "multi": True,
        "query": {"query": "label_values(ray_rlsys_step, run)", "refId": "run"}, "includeAll": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    },
    {  # where a step takes minutes, a short window of a counter holds no increase
        "name": "window", "type": "interval", "query": "5m,30m,2h,6h", "auto": False,
        "current": {"text": "30m", "value": "30m"},
    },
]  # fmt: skip


def make_panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    queries = [
        {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for number, (expression, legend) in enumerate(panel.queries)
    ]
    style = {
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 0,
        "stacking": {"mode": "normal" if panel.stacked else "none"},
        "scaleDistribution": {"type": "log", "log": 10} if panel.log else {"type": "linear"},
    }
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": style}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": queries,
    }


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def make_page() -> str:
    """docs/reference/metrics.md."""
    kinds = {kind: [metric for metric in EXPORTED if metric.kind == kind] for kind in ("gauge", "counter")}
    most = sum(metric.series for metric in EXPORTED)
    tables = "\n".join(
        f"## {kind.capitalize()}s\n\n| metric | label | from | meaning |\n|---|---|---|---|\n"
        + "".join(f"| `{row.exported}` | {_label(row)} | {_source(row)} | {row.about} |\n" for row in metrics)
        for kind, metrics in kinds.items()
    )
    return INTRODUCTION.format(most=most) + tables


INTRODUCTION = """# Metrics in Prometheus

For boards and alerts: every run exports these through Ray, on the metrics port of the driver's node (a page that
`python deploy/grafana/make.py` makes from the table of `launch/driver/observe/exported.py`).
[Watch a run](../how-to/watch-a-run.md) says how Prometheus finds the port, and has the board and the alerts. Each
metric has the label `run`, the name of the run directory: two seeds are two series. A run has {most} series at most: no
task, worker or step is a label. Ray adds labels of its own (`WorkerId`, `NodeAddress` and others), so a run that is
continued is a new series: aggregate with `max by (run)` or `sum by (run)`. The series of a run end with its driver.

"From" is a key of a row of `metrics.jsonl` ([its meaning](../run-directory.md#metricsjsonl)) if nothing else is said.
A gauge has the value of the newest row with that key. A counter grows by the value of each row; it begins at 1e-9 and
not at 0, which Ray refuses, so that the first failure is an increase.

"""
NOT_OF_ROWS = {
    "steps_planned": "the configuration: steps of all stages",
    "reward_mean": "`reward/mean`, by `stage`",
    "held_out": "each evaluation: `accuracy`, else `mean_reward`",
    "restarts": "the driver",
    "phase_seconds": "`time/*` without the parts `time/episode_*` and `time/learner_*`",
    "deliveries": "rows with `weights/publish_s`",
    "engine_busy_seconds": "`engine/busy_s`, its growth",
    "engine_alive_seconds": "`engine/alive_s`, its growth",
}


def _source(metric: Metric) -> str:
    if metric.name in NOT_OF_ROWS:
        return NOT_OF_ROWS[metric.name]
    if metric.pattern is not None:
        return f"`{metric.pattern.replace('(.+)', '*')}`"
    return ", ".join(f"`{key}`" for key in metric.keys.values())


def _label(metric: Metric) -> str:
    if metric.label is None:
        return ""
    values = f"{metric.most} values at most" if metric.pattern else ", ".join(metric.keys)
    return f"`{metric.label}`: {values}"


if __name__ == "__main__":
    BOARD.write_text(json.dumps(make_board(), indent=1) + "\n")
    PAGE.write_text(make_page())
