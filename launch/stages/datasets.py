"""The `data` of a stage: where it lies, how many examples it holds, and which of them are held out."""

from __future__ import annotations

import codecs
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from launch.stages.store import pairs_path
from rlsys.config import EvalConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.jsonl import json_object
from rlsys.records import Example, read_answer, read_pair

if TYPE_CHECKING:
    from launch.run.run import Run

Parse = Callable[[dict[str, Any], str], Example]
PARSE: dict[str, Parse] = {"sft": read_answer, "dpo": read_pair}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the file."""

    number: int
    offset: int
    name: str  # of its prompt


@dataclass(frozen=True, slots=True)
class Examples(Sequence[Example]):
    """Read when they are asked for: only their places are held in memory."""

    path: Path
    parse: Parse
    places: tuple[Place, ...]

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Examples: ...
    def __getitem__(self, index: int | slice) -> Example | Examples:
        if isinstance(index, slice):
            return replace(self, places=self.places[index])
        place = self.places[index]
        with self.path.open("rb") as file:
            file.seek(place.offset)
            return self.parse(*_object(self.path, place.number, file.readline()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    train: Examples
    held_out: Examples  # empty without `eval.every`


def open_data(kind: str, path: Path, config: EvalConfig, seed: int) -> Data:
    """Every line is read and checked once. Raises BadInput for a file or a line that cannot be used."""
    parse = PARSE[kind]
    places: list[Place] = []
    together = Together()
    try:
        with path.open("rb") as file:
            offset = 0
            for number, line in enumerate(file, start=1):
                if line.strip():
                    names = parse(*_object(path, number, line)).names
                    together.join(names)
                    places.append(Place(number, offset, names[0]))
                offset += len(line)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}), expected a JSON-lines file") from error
    prompts = {together.first(place.name) for place in places}
    held = _held_out(prompts, config, seed) if config.every else set()
    if config.every and places and not held:
        raise BadInput(f"{path}: eval.every={config.every}: expected at least two prompts, to hold one out")
    return Data(
        train=Examples(path, parse, tuple(place for place in places if together.first(place.name) not in held)),
        held_out=Examples(path, parse, tuple(place for place in places if together.first(place.name) in held)),
    )


class Together:
    """Which names belong to one another, over any number of steps: a prompt of two tasks, a task of two prompts."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}  # a smaller name of the same set; the smallest is its own

    def first(self, name: str) -> str:
        """The smallest name of the set, whatever order it was joined in."""
        before = self._before
        while before.setdefault(name, name) != name:
            before[name] = before[before[name]]  # half as far the next time
            name = before[name]
        return name

    def join(self, names: Sequence[str]) -> None:
        smallest, *others = sorted(map(self.first, names))
        for other in others:
            self._before[other] = smallest


def _object(path: Path, number: int, line: bytes) -> tuple[dict[str, Any], str]:
    where = f"{path} line {number}"
    return json_object(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, where), where


def _held_out(prompts: set[str], config: EvalConfig, seed: int) -> set[str]:
    """A share of the prompts, the same in every run of a seed; at least one of two."""

    def rank(prompt: str) -> bytes:
        return hashlib.blake2b(f"{seed}\x1f{prompt}".encode(), digest_size=16).digest()

    count = min(max(int(len(prompts) * config.share), 1), config.tasks, len(prompts) - 1)
    return set(sorted(prompts, key=rank)[: max(count, 0)])


# -- of a stage -------------------------------------------------------------------------------------------------------


def given_data(stage: StageConfig) -> Data:
    """The `data` of a stage that is a path, before a run. Raises BadInput where there is nothing to train on."""
    assert stage.data is not None
    path = Path(stage.data)
    data = open_data(stage.kind, path, stage.config.eval, stage.config.seed)
    if not data.train:
        raise BadInput(f"{path}: no records, expected one JSON object per line")
    return data


def data_of(run: Run, stage: StageConfig) -> Data:
    """The same when the stage begins, or what an earlier stage of the run has made."""
    maker = run.config.maker(stage)
    if maker is None:
        return given_data(stage)
    kept = run.dir.generated(maker.name)
    path = pairs_path(kept) if stage.kind == "dpo" else kept
    if not path.is_file():
        raise RunFailed(f"stages.{stage.name}: {path} is missing, which stage {maker.name} has written")
    data = open_data(stage.kind, path, stage.config.eval, stage.config.seed)
    if not data.train:
        counts = run.state.played.get(maker.name, {})
        hint = (
            "no task had two answers of different reward; raise generate.samples or generate.temperature"
            if stage.kind == "dpo"
            else "nothing passed generate.keep and generate.min_reward"
        )
        raise RunFailed(f"stages.{stage.name}: nothing to train on in {path}: {hint} ({counts})")
    return data


def sized(stage: StageConfig, data: Data) -> StageConfig:
    """With its number of steps, which `epochs` over what the run itself made leave open until now."""
    if stage.epochs is None:
        return stage
    return replace(stage, steps=steps_for(stage.epochs, len(data.train), stage.config.loop.groups_per_step))


def steps_for(epochs: float, examples: int, groups_per_step: int) -> int:
    return math.ceil(epochs * examples / groups_per_step)


def described(config: RunConfig, stage: StageConfig) -> str:
    """For `--dry-run`: how many examples, and where from."""
    maker = config.maker(stage)
    if maker is None:
        data = given_data(stage)
        held = f", {len(data.held_out)} more held out" if data.held_out else ""
        return f"examples = {len(data.train)} of {stage.data}{held}"
    what = "its preference pairs" if stage.kind == "dpo" else "what it keeps"
    return f"examples = {what} of stage {maker.name}: known when it is over"
