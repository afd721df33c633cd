"""May it be trusted? Numbers of the stage that is looked at, each with what it should be; a page shows six of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from launch.driver.observe import thresholds
from launch.tools.report.facts import Stage, count_groups, count_played
from launch.tools.report.words import is_number, mean, number, plural, score, share, total

MANY = 0.5  # share of groups without signal: half of what was played taught nothing
FAILED = 0.1  # share of the episodes
KINDS = ("infra", "timeout", "data")
SHOWN = 6  # tiles: a row of a laptop, and more are not read
WEIGHTS = {"bad": 0, "warn": 1}  # what is unusual stands first and large; all else in the order of TILES
SOUND = {"policy lag, most": "policy lag", "engine-learner gap": "engine-learner gap", "failed episodes": "failures"}
REACH = {"failed": "up to where it failed, ", "killed": "up to where it was killed, "}  # by the state of the run


@dataclass(frozen=True, slots=True)
class Tile:
    """A number with what it should be, and the chart that shows more of it."""

    label: str
    value: str
    note: str
    level: str  # ok, warn, bad; none where nothing says what it should be
    chart: str

    def to_json(self) -> dict[str, str]:
        named = {"label": self.label, "value": self.value, "note": self.note, "level": self.level}
        return {**named, "link": f"#chart/{self.chart}"}


def make_tiles(stage: Stage) -> list[Tile]:
    """The tiles of a stage: those whose columns it has."""
    tiles = [make(stage) for make in TILES]
    return [tile for tile in tiles if tile is not None]


def most_serious_tiles(tiles: Sequence[Tile]) -> list[Tile]:
    return sorted(tiles, key=lambda tile: WEIGHTS.get(tile.level, len(WEIGHTS)))[:SHOWN]


def rollout_fidelity_verdict(tiles: Sequence[Tile], state: str) -> dict[str, str]:
    """{"level": "good", "text": "as far as one seed tells: ..."}: whether what was trained is what was sampled and
    graded, by the lag, the gap between engine and learner, and the failures. level: good, bad, unknown. state: the
    run's."""
    known = [tile for tile in tiles if tile.label in SOUND and tile.level != "none"]
    doubts = [f"{tile.label} {tile.value} ({tile.note})" for tile in known if tile.level == "bad"]
    if doubts:
        return {"level": "bad", "text": f"as it is: {'; '.join(doubts)}."}
    sound = [SOUND[tile.label] for tile in known]
    missing = ", ".join(name for name in SOUND.values() if name not in sound)
    limits = f"nothing is over its limit ({', '.join(sound)})"
    if missing:
        known_text = f"; of the others {limits}" if sound else ""
        return {"level": "unknown", "text": f"since there is no measurement of {missing}{known_text}."}
    return {"level": "good", "text": f"{REACH.get(state, '')}as far as one seed tells: {limits}."}


def _reward_tile(stage: Stage) -> Tile | None:
    first, last = (mean(rows.known("reward/mean")) for rows in stage.ends)
    if last is None or first is None:
        return None
    count = len(stage.ends[0])
    steps = f"last {plural(count, 'step')}" if len(stage.rows) > 1 else "its only step"
    return Tile(f"reward, {steps}", score(last), f"first {count}: {score(first)}", "none", "reward")


def _loss_tile(stage: Stage) -> Tile | None:
    """Of a stage that learns from answers, or from pairs of them."""
    key = next((key for key in ("loss/nll", "loss/dpo") if len(stage.rows.known(key))), None)
    if key is None or len(stage.rows.known("reward/mean")):
        return None
    first, last = (mean(rows.known(key)) for rows in stage.ends)
    count = len(stage.ends[0])
    return Tile(
        f"loss, last {plural(count, 'step')}", number(last), f"first {count}: {number(first)}", "none", "supervised"
    )


def _signal_tile(stage: Stage) -> Tile | None:
    overall, last = (count_groups(rows).without_signal for rows in (stage.rows, stage.last))
    if overall is None or last is None:
        return None
    level = "bad" if last >= thresholds.NEARLY_ALL else "warn" if last > MANY else "ok"
    return Tile("groups without signal", share(last), f"of the whole stage {share(overall)}", level, "signal")


def _lag_tile(stage: Stage) -> Tile | None:
    """Each step is compared with the bound that it had: a run may be continued with another one."""
    lags, set_now = stage.rows.column("lag/max"), stage.setting("loop.max_policy_lag")
    if np.isnan(lags).all():
        return None
    row_bounds = stage.rows.column("lag/bound")
    bounds = np.where(np.isnan(row_bounds), set_now if is_number(set_now) else np.nan, row_bounds)
    has_bound = not np.isnan(bounds).all()
    level = "none" if not has_bound else "bad" if (lags > bounds).any() else "ok"
    note = f"bound {number(float(np.nanmax(bounds)))}" if has_bound else ""
    return Tile("policy lag, most", number(float(np.nanmax(lags))), note, level, "lag")


def _mismatch_tile(stage: Stage) -> Tile | None:
    """After the delivery that came nearest to its own limit."""
    gaps, limits = stage.rows.column("mismatch/probe_mean"), stage.rows.column("mismatch/probe_limit")
    valid = ~np.isnan(gaps)
    if not valid.any():
        return None
    shares = np.where(np.isnan(limits), 0.0, gaps / limits)
    at = int(np.argmax(np.where(valid, shares, -1.0))) if (shares[valid] > 0).any() else int(np.nanargmax(gaps))
    note = "" if np.isnan(limits[at]) else f"limit {number(float(limits[at]))}"
    level = "none" if not note else "ok" if gaps[at] <= limits[at] else "bad"
    return Tile("engine-learner gap", number(float(gaps[at])), note, level, "gap")


def _failure_tile(stage: Stage) -> Tile | None:
    """Of episodes, after their retries. A step has groups_per_step x group_size of them."""
    if not any(len(stage.rows.known(f"failures/{kind}")) for kind in KINDS):
        return None
    failed = sum(total(stage.rows.known(f"failures/{kind}")) for kind in KINDS)
    retries = total(stage.rows.known("failures/retried"))
    episodes = count_grouped_episodes(stage)
    many = episodes is not None and failed > FAILED * episodes
    level = "bad" if many else "warn" if failed else "ok"
    return Tile("failed episodes", number(failed), f"{number(retries)} played again", level, "failures")


def count_grouped_episodes(stage: Stage) -> float | None:
    """Groups of the rows, times their size."""
    groups, size = count_groups(stage.rows), stage.setting("loop.group_size")
    return (groups.trained + groups.filtered + groups.failed) * size if type(size) is int else None


def learner_busy_share(stage: Stage) -> float | None:
    """Share of the stage's seconds in which the learner updated."""
    seconds = total(stage.rows.known("time/step"))
    return total(stage.rows.known("time/update")) / seconds if seconds else None


def _busy_tile(stage: Stage) -> Tile | None:
    if stage.engine_busy is None:
        return None
    return Tile("engine busy", share(stage.engine_busy), f"learner {share(learner_busy_share(stage))}", "none", "busy")


def _unanswered_tile(stage: Stage) -> Tile | None:
    """Only where many of the last episodes ended without an answer that could be read: how most of them did."""
    shares = {end: mean(stage.last.known(f"episode/{end}")) or 0.0 for end in ("token_limit", "malformed")}
    end = max(shares, key=shares.__getitem__)
    if shares[end] < thresholds.CUT:
        return None
    label = "cut off by a limit" if end == "token_limit" else "malformed episodes"
    level = "bad" if shares[end] >= thresholds.NEARLY_ALL else "warn"
    return Tile(label, share(shares[end]), f"of {number(count_played(stage.last))} episodes", level, "ends")


def _restart_tile(stage: Stage) -> Tile | None:
    """Only where there were any: of the whole run."""
    restarts, lost = (len(stage.run.events_of(kind)) for kind in ("restart", "lost"))
    if not restarts and not lost:
        return None
    return Tile("restarts", str(restarts), f"{lost} lost", "warn", "restarts")


TILES: Sequence[Callable[[Stage], Tile | None]] = (
    *(
        _reward_tile,
        _loss_tile,
        _signal_tile,
        _lag_tile,
        _mismatch_tile,
        _failure_tile,
        _unanswered_tile,
        _restart_tile,
        _busy_tile,
    ),
)
