"""The environments of a stage with several: groups, rewards and right answers of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launch.tools.report.facts import Stage, count_end_steps
from launch.tools.report.words import mean, number, share, total
from rlsys.config.envs import by_name

OUTCOMES = ("trained", "filtered", "failed")


def rows_by_env(stage: Stage) -> Iterator[list[Any]]:
    """(environment, groups, share, without signal, failed, reward and right answers at both ends, tokens)."""
    names = [name for name in stage.right_by_env if name]
    counts = {
        name: [total(stage.rows.known(by_name(name, f"groups/{outcome}"))) for outcome in OUTCOMES] for name in names
    }
    every = sum(map(sum, counts.values()))
    for name in names if every else ():
        trained, filtered, failed = counts[name]
        played = trained + filtered
        reward, right = stage.rows.column(by_name(name, "reward/mean")), stage.right_by_env[name]
        at = count_end_steps(len(stage.rows))
        yield [
            *(name, number(played + failed), share((played + failed) / every)),
            *(share(filtered / played) if played else "", number(failed)),
            *(number(mean(reward[:at])), number(mean(reward[-at:]))),
            *(share(mean(right[:at])), share(mean(right[-at:]))),
            number(mean(stage.rows.column(by_name(name, "episode/tokens")))),
        ]
