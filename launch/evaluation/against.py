"""An evaluation beside an earlier one: `rlsys eval --against FILE`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launch.evaluation.pairing import Paired, other_prompts, paired, told_p
from launch.evaluation.played import Number, Played, Test, differ, read_played


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """`--test paper`, the z-test of two proportions: over all graded episodes, or all of which a share is."""

    z: float
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    ours: float
    theirs: float
    difference: float
    unpaired: Unpaired | None = None  # None: not asked for, or no accuracies
    paired: Paired | None = None
    why_not: str | None = None  # why it is not paired
    other_prompts: bool = False

    def json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}

    def told(self) -> str:
        said = f"{self.ours:.3f}, there {self.theirs:.3f}"
        if self.unpaired:
            said += f"; two-proportion z-test {told_p(self.unpaired.p)}"
        if self.paired:
            said += f"; {self.paired.told()}"
        if self.why_not:
            said += f"; not tested: {self.why_not}"
        if self.other_prompts:
            said += "; warning: it was evaluated in another way (prompts)"
        return said


def read_earlier(path: str) -> dict[str, Played]:
    """What `--against` names, by play. Raises BadInput."""
    return read_played(path, f"--against {path}")


def against(ours: Mapping[str, Played], earlier: Mapping[str, Played], test: Test = "paired") -> dict[str, Difference]:
    """By play that both have a number of."""
    return {
        name: _difference(play, play.number, earlier[name], theirs, test)
        for name, play in ours.items()
        if name in earlier and play.number is not None and (theirs := earlier[name].numbers.get(play.key)) is not None
    }


def _difference(ours: Played, number: Number, earlier: Played, theirs: Number, test: Test) -> Difference:
    unpaired, found = None, None
    if test == "paired":
        found = paired([ours], [earlier])
    elif ours.is_share:
        z, p = differ(number, theirs)
        unpaired = Unpaired(z=z, p=p)
    return Difference(
        ours=number.value,
        theirs=theirs.value,
        difference=number.value - theirs.value,
        unpaired=unpaired,
        paired=found if isinstance(found, Paired) else None,
        why_not=found if isinstance(found, str) else None,
        other_prompts=other_prompts([ours], [earlier]),
    )


def against_lines(found: Mapping[str, Difference], path: str) -> list[str]:
    if not found:
        return [f"against {path}: no play with a number in both"]
    return [f"against {path}: {name} {each.told()}" for name, each in found.items()]
