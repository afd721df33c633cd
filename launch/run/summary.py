"""What `summary.json` holds (docs/run-directory.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from launch.checkpoints.provenance import origin, versions
from launch.run.run import Run, health
from rlsys.journal import Finished, ledger, read, surviving

EVALUATION = ("before", "after", "measure", "episodes", "failures", "stages")
PROMPTS = ("dispatched", "trained", "failed", "filtered", "in_flight")


def summary(run: Run, status: str, reason: str | None = None) -> dict[str, Any]:
    """By key, for JSON. A step that has no row, since the run failed in it, is in no number: it is taken again."""
    state = run.before_row or run.state
    run.journal.commit()
    rows = surviving(read(run.dir.journal))
    book = ledger([row for row in rows if not (isinstance(row, Finished) and row.step > state.step)])
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
        "prompts": {name: getattr(book, name) for name in PROMPTS},
        "failures": {kind: state.failures.get(kind, 0) for kind in ("infra", "timeout", "data", "retried")},
        "health": [asdict(finding) for finding in health(run)],
        "restarts": run.restarts,
        "weights": {
            "published": max(state.published, len(publish)),
            "publish_s_median": round(publish[len(publish) // 2], 4) if publish else None,
        },
        **({"generated": state.played} if state.played else {}),
        "stage_s": {name: round(seconds, 1) for name, seconds in state.stage_s.items()},
        "versions": versions(),
        **origin(),
        "learner": {"zero_stage": recipe.learner.zero_stage, "world_size": recipe.learner.ranks},
        "rollout": {"workers": recipe.rollout.workers},
    }
