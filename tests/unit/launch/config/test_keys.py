"""What is said of every key: a phrase that stands alone, with the unit of what it counts."""

import re
from collections.abc import Iterator

from actors.judge import JudgeServiceConfig
from envs.services.judge.server import JudgeServerConfig
from envs.services.retriever.config import RetrieverServerConfig
from launch.config.compose import TABLES
from launch.config.keys import Key, keys_of, reference

SERVED = (JudgeServiceConfig, JudgeServerConfig, RetrieverServerConfig)  # by `rlsys serve`, outside of a recipe
# By how a name ends, what its description has to name.
UNITS = {
    "_s": "seconds",
    "_kb": "KiB",
    "_mb": "MiB",
    "_gb": "GB",
    "tokens": "token",
    "tokens_per_row": "token",
    "max_length": "token",
    "max_model_len": "token",
    "_per_minute": "per minute",
    "mismatch_limit": "per token",
}
# They begin in the middle of a sentence whose start is the name, which no table shows.
FRAGMENTS = ("Of ", "In ", "For ", "From ", "By ", "On ", "See ", "That ", "Its ", "How ", "Who ", "What ", "Which ")
OBSOLETE = re.compile(r"\b(anew|beside|nobody|somebody|told|whoever|so many)\b")


def every_key() -> list[Key]:
    keys = [key for section in reference(TABLES) for key in section.keys]
    return keys + [key for schema in SERVED for key in keys_of(schema)]


def faults(key: Key) -> Iterator[str]:
    text = key.meaning
    if not (text[:1].isupper() and text.endswith(".")):
        yield "not a sentence or phrase from capital letter to period"
    if text.startswith(FRAGMENTS) or len(text.split(". ")[0].split()) < 3:
        yield "no phrase that stands alone"
    if match := OBSOLETE.search(text):
        yield f"{match[0]!r}"
    for end, unit in UNITS.items():
        if key.name.endswith(end) and unit not in text:
            yield f"no {unit!r}"


def test_each_description_is_a_phrase_with_its_unit() -> None:
    assert [f"{key.name}: {fault}: {key.meaning}" for key in every_key() for fault in faults(key)] == []


def test_a_unit_is_asked_of_keys_that_there_are() -> None:
    names = [key.name for key in every_key()]
    assert [end for end in UNITS if not any(name.endswith(end) for name in names)] == []
