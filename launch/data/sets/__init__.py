"""The public sets: a new one is a file here and a line in SETS."""

from __future__ import annotations

from launch.data.records import Files, PublicSet
from launch.data.sets.bamboogle import BAMBOOGLE
from launch.data.sets.blocksworld import BLOCKSWORLD_PLAN, BLOCKSWORLD_VERIFY
from launch.data.sets.explagraphs import EXPLAGRAPHS
from launch.data.sets.gsm8k import GSM8K
from launch.data.sets.hotpotqa import HOTPOTQA
from launch.data.sets.knowledge_crosswords import KNOWLEDGE_CROSSWORDS
from launch.data.sets.maths import AIME24, AIME25, DAPO_MATH, MATH, MATH500, THEOREMQA
from launch.data.sets.mmlu_pro import MMLU_PRO
from launch.data.sets.musique import MUSIQUE
from launch.data.sets.nlgift import NLGIFT_CONNECTIVITY, NLGIFT_SHORTEST_PATH
from launch.data.sets.nq import NQ
from launch.data.sets.popqa import POPQA
from launch.data.sets.proscript import PROSCRIPT
from launch.data.sets.strategyqa import STRATEGYQA
from launch.data.sets.triviaqa import TRIVIAQA
from launch.data.sets.two_wiki import TWO_WIKI
from launch.data.sets.wiki18 import WIKI18
from launch.data.sets.wikidyk import WIKIDYK_F, WIKIDYK_R
from rlsys.errors import BadInput, nearest

SETS = {
    each.name: each
    for each in (
        *(MUSIQUE, HOTPOTQA, TWO_WIKI, BAMBOOGLE, NQ, TRIVIAQA, POPQA, WIKI18),
        *(GSM8K, MATH, MATH500, AIME24, AIME25, THEOREMQA, DAPO_MATH, MMLU_PRO),
        *(NLGIFT_CONNECTIVITY, NLGIFT_SHORTEST_PATH, STRATEGYQA, KNOWLEDGE_CROSSWORDS, WIKIDYK_R, WIKIDYK_F),
        *(EXPLAGRAPHS, PROSCRIPT, BLOCKSWORLD_PLAN, BLOCKSWORLD_VERIFY),
    )
}


def split_of(source: str) -> tuple[PublicSet, Files]:
    """`musique.train` is the set and its split. Raises BadInput with the nearest name."""
    name, _, split = source.partition(".")
    known = [f"{each.name}.{split}" for each in SETS.values() for split in each.splits]
    if source not in known:
        raise BadInput(f"{source}: no such split of a public set{nearest(source, known, otherwise='')}")
    return SETS[name], SETS[name].splits[split]
