"""The public sets, by kind: a new one is a row of the table of its kind."""

from __future__ import annotations

from launch.data.records import Files, PublicSet
from launch.data.sets.maths import MATHS
from launch.data.sets.open_domain import OPEN_DOMAIN
from launch.data.sets.reasoning import CHOICE, GRAPHS, PLANS, STATEMENTS
from rlsys.errors import BadInput, nearest

SETS = {entry.name: entry for table in (OPEN_DOMAIN, MATHS, CHOICE, GRAPHS, STATEMENTS, PLANS) for entry in table}


def split_of(source: str) -> tuple[PublicSet, Files]:
    """`musique.train` is the set and its split. Raises BadInput with the nearest name."""
    name, _, split = source.partition(".")
    names = [f"{public_set.name}.{split}" for public_set in SETS.values() for split in public_set.splits]
    if source not in names:
        raise BadInput(f"no such split of a public set{nearest(source, names, otherwise='')}", where=source)
    return SETS[name], SETS[name].splits[split]
