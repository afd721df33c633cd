"""The rows of a run as a terminal shows them: columns under a line of titles, as many as fit, explained once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

GAP = "  "
LEFT = "left"
NONE = "-"  # a number that this row does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    key: str  # of the row
    form: str
    width: int
    rank: int  # where there is no room for all, the highest goes first
    about: str = ""  # what the title leaves open


COLUMNS = (
    Column(title="loss", key="loss/nll", form="{:.3f}", width=6, rank=0),
    Column(title="loss", key="loss/dpo", form="{:.3f}", width=6, rank=0),
    Column(title="chosen", key="dpo/accuracy", form="{:.3f}", width=6, rank=1, about="share of pairs put right"),
    Column(title="held out", key="eval/loss", form="{:.3f}", width=6, rank=1, about="loss on held-out examples"),
    Column(title="held out", key="eval/accuracy", form="{:.3f}", width=6, rank=1, about="chosen, on held-out pairs"),
    Column(title="reward", key="reward/mean", form="{:.3f}", width=6, rank=0),
    Column(title="correct", key="reward/solved", form="{:.3f}", width=6, rank=1),
    Column(title="KL", key="kl/reference", form="{:.2g}", width=7, rank=4, about="nats a token, from the reference"),
    Column(title="gen/s", key="tokens/generated_per_s", form="{:.0f}", width=5, rank=5, about="tokens sampled"),
    Column(title="train/s", key="tokens/trained_per_s", form="{:.0f}", width=6, rank=6, about="tokens trained"),
    Column(title="lag", key="lag/max", form="{:.0f}", width=3, rank=3, about="versions behind, at most"),
    Column(title="gap", key="mismatch/probe_mean", form="{:.0e}", width=5, rank=2, about="engine against learner"),
    Column(title="wait", key="time/wait_rollout", form="{:.1f}s", width=5, rank=7, about="for rollouts"),
    Column(title="update", key="time/update", form="{:.1f}s", width=6, rank=8, about="of the learner"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of one stage's rows."""

    stage: str
    steps: int
    columns: tuple[Column, ...]

    @property
    def first(self) -> int:
        """Characters of "rl  3/45"."""
        return len(self.stage) + 2 + 2 * len(str(self.steps)) + 1

    def header(self) -> str:
        titles = [f"{column.title:>{_width(column)}}" for column in self.columns]
        return GAP.join([f"{'step':>{self.first}}", *titles, f"{LEFT:>7}"])

    def line(self, step: int, values: Mapping[str, Any], time_left: str) -> str:
        place = f"{self.stage}  {step:>{len(str(self.steps))}}/{self.steps}"
        cells = [f"{_cell(column, values):>{_width(column)}}" for column in self.columns]
        return GAP.join([place, *cells, f"{time_left:>7}"])

    def legend(self, explained_titles: Set[str]) -> str:
        """What the titles leave open that are not explained yet; empty where there is nothing to say."""
        notes = {entry.title: entry.about for entry in self.columns if entry.about} | {LEFT: "time left of the stage"}
        return "; ".join(f"{title}: {note}" for title, note in notes.items() if title not in explained_titles)


def lay_out(stage: str, steps: int, keys: Sequence[str], width: int) -> Layout:
    """As many of the columns that have one of these keys as fit into so many characters."""
    layout = Layout(stage=stage, steps=steps, columns=tuple(column for column in COLUMNS if column.key in keys))
    while len(layout.header()) > width and layout.columns:
        last = max(layout.columns, key=lambda column: column.rank)
        layout = Layout(stage=stage, steps=steps, columns=tuple(entry for entry in layout.columns if entry is not last))
    return layout


def _width(column: Column) -> int:
    return max(column.width, len(column.title))


def _cell(column: Column, values: Mapping[str, Any]) -> str:
    return column.form.format(values[column.key]) if column.key in values else NONE
