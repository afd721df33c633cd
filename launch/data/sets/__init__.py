"""The public sets, by kind: a new one is a row of the table of its kind."""

from __future__ import annotations

from launch.data.records import Files, PublicSet
from launch.data.sets.maths import MATHS
from launch.data.sets.open_domain import OPEN_DOMAIN
from launch.data.sets.reasoning import CHOICE, GRAPHS, PLANS, STATEMENTS
from rlsys.errors import BadInput, nearest

SETS = {each.name: each for table in (OPEN_DOMAIN, MATHS, CHOICE, GRAPHS, STATEMENTS, PLANS) for each in table}


def split_of(source: str) -> tuple[PublicSet, Files]:
    """`musique.train` is the set and its split. Raises BadInput with the nearest name."""
    name, _, split = source.partition(".")
    known = [f"{each.name}.{split}" for each in SETS.values() for split in each.splits]
    if source not in known:
        raise BadInput(f"no such split of a public set{nearest(source, known, otherwise='')}", where=source)
    return SETS[name], SETS[name].splits[split]
