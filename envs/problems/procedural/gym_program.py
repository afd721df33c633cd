"""The only program that imports reasoning-gym: it makes problems in a separate process, and scores in the sandbox.

As a program it answers one JSON line with another, until its input ends:

    {"family": "gcd", "level": 0, "options": {}, "seed": 7, "count": 2}  ->  {"entries": [{"question": ...}, ...]}
    {"family": "gcd", "level": 9, ...}                                   ->  {"refused": "the highest level is 3"}

As a module of the sandbox it has `score`. It imports nothing of ours: the sandbox has no folder of ours.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import types
from typing import Any

try:
    import pycosat as pycosat
except ImportError:  # only zebra_puzzles calls it, which is not offered: it would have to be compiled at installation
    sys.modules["pycosat"] = types.ModuleType("pycosat")

from reasoning_gym.factory import DATASETS, create_curriculum, has_curriculum

# Their scorers look at what making the data set reads. The others do without, which saves up to seconds for each score.
SCORED_WHOLE = ("sokoban", "word_ladder")


def make_dataset(request: dict[str, Any], seed: int) -> Any:
    """The data set of a family at a level of its own curriculum (None: its default settings), with options on top.

    Raises ValueError and TypeError for what the library does not take.
    """
    return DATASETS[request["family"]][0](config=make_settings(request, seed))


def make_settings(request: dict[str, Any], seed: int) -> Any:
    """As large as `count`, for some make all their items at once. Raises ValueError and TypeError for what the library
    does not take."""
    settings = DATASETS[request["family"]][1]
    fields: dict[str, Any] = {}
    if request["level"] is not None:
        fields = curriculum_fields(request["family"], request["level"])
    config = settings(**(fields | request["options"] | {"seed": seed, "size": request.get("count", 1)}))
    if hasattr(config, "validate"):
        try:
            config.validate()
        except AssertionError as error:
            raise ValueError(str(error) or "settings that do not fit together") from error
    return config


def curriculum_fields(family: str, level: int) -> dict[str, Any]:
    """The settings of one level: each attribute of the family's curriculum at that level, or at its highest.

    Raises ValueError for a level above the highest whose settings are not those of the level below.
    """
    highest = highest_level(family)
    if level > highest:
        raise ValueError(f"the highest level is {highest}")
    return _fields_at(family, level)


def highest_level(family: str) -> int:
    """Not the last of the library where its settings are those of the one below: a range from a value to the next one
    ends there. Raises ValueError for a family without levels."""
    if not has_curriculum(family):
        raise ValueError("it has no levels")
    level = max(len(attribute.levels) for attribute in create_curriculum(family).attributes.values()) - 1
    while level and _fields_at(family, level) == _fields_at(family, level - 1):
        level -= 1
    return level


def _fields_at(family: str, level: int) -> dict[str, Any]:
    curriculum = create_curriculum(family)
    for name, attribute in curriculum.attributes.items():
        curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
    config = curriculum.generate_configuration({})
    return {name: getattr(config, name) for name in vars(config) if name not in ("seed", "size")}


def entries(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The first `count` entries of a seed: question, answer (None where the library gives none), metadata."""
    random.seed(request["seed"])  # a few families draw from the module's own generator
    dataset = make_dataset(request, request["seed"])
    return [dataset[index] for index in range(request["count"])]


def score(request: dict[str, Any]) -> float:
    """What the family's scorer gives `answer` for `entry`, as JSON brought both here. Raises what the scorer raises."""
    with contextlib.redirect_stdout(io.StringIO()):
        if request["family"] in SCORED_WHOLE:
            dataset = make_dataset(request, seed=0)
        else:
            dataset = object.__new__(DATASETS[request["family"]][0])
            dataset.config = make_settings(request, seed=0)
        return float(dataset.score_answer(request["answer"], request["entry"]))


def main() -> None:
    for line in sys.stdin:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                answer: dict[str, Any] = {"entries": entries(json.loads(line))}
        except (ValueError, TypeError) as error:
            answer = {"refused": str(error)}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
