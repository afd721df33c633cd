"""The `data` of a stage: where it lies, how many examples it holds, and which of them are held out.

`DataStage` is what the kinds of stage that learn from such examples have in common.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

from envs.papers.swirl.reward import Verdicts, select_trajectories, verdicts_in
from launch.driver.run.run import Run
from launch.driver.stages.base import Stage, StageKeys, describe_steps, maker_of, steps_for
from rlsys.config.evaluation import EvalConfig
from rlsys.config.identity import identity_of
from rlsys.config.recipe import DataSource, RecipeConfig, RunConfig, StageConfig
from rlsys.config.verdicts import EVERY, VerdictsConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.examples import Example
from rlsys.files import unpack
from rlsys.jsonl import json_object
from rlsys.seeds import hash_order, stable_sample

Parse = Callable[[dict[str, Any], str], Example]
Note = Callable[[Example], str]  # something in it to tell the user of, or ""


def _nothing(_: Example) -> str:
    return ""


Files = Mapping[Path, int | None]  # how many examples of each, drawn by the seed; None: all


def files_of(data: DataSource) -> Files:
    """The files of a `data` that names no stage, with the number of examples to take of each; None means all."""
    return {Path(data): None} if isinstance(data, str) else {Path(path): count for path, count in data.items()}


@dataclass(frozen=True, slots=True)
class LinePosition:
    """A line of a file."""

    path: Path
    content: Path  # of the same, uncompressed
    number: int
    offset: int
    name: str  # of its prompt


@dataclass(frozen=True, slots=True)
class Examples(Sequence[Example]):
    """Read when they are asked for: only their places are held in memory."""

    parse: Parse
    places: tuple[LinePosition, ...]

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
        with place.content.open("rb") as file:
            file.seek(place.offset)
            return self.parse(*_parse_line(place.path, place.number, file.readline()))

    def where(self, keep: Callable[[Example], bool]) -> Examples:
        """The examples for which `keep` is true. Each example is read once."""
        return replace(self, places=tuple(place for place, row in zip(self.places, self, strict=True) if keep(row)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    train: Examples
    held_out: Examples  # empty without `eval.every`
    noted: tuple[tuple[str, str], ...] = ()  # "file.jsonl line 3", and what there is to say about it


def open_data(
    parse: Parse,
    files: Files,
    config: EvalConfig,
    seed: int,
    note: Note = _nothing,
    verdicts: VerdictsConfig = EVERY,
) -> Data:
    """Every line is read and checked once. Raises BadInput for a file or a line that cannot be used.

    verdicts: the set that is cut from each file.

    Prompts are kept apart over all files: one that is held out of a file is held out of the others.
    """
    places: list[LinePosition] = []
    noted: list[tuple[str, str]] = []
    families = Families()
    for path, count in files.items():
        file_places: list[LinePosition] = []
        judged: list[Verdicts] = []
        for place, example, verdict in _read(parse, path):
            families.join(example.names)
            file_places.append(place)
            judged.append(verdict)
            if says := note(example):
                noted.append((f"{path.name} line {place.number}", says))
        if not verdicts.all:
            file_places = [file_places[at] for at in select_trajectories(judged, verdicts, seed=seed, where=str(path))]
        places += _sample_places(file_places, count, seed)
    prompts = {families.first(place.name) for place in places}
    held_out = _choose_held_out(prompts, config, seed) if config.every else set()
    if config.every and places and not held_out:
        paths = ", ".join(map(str, files))
        raise BadInput(
            where=paths, key="eval.every", found=config.every, expected="at least two prompts, to hold one out"
        )
    return Data(
        train=Examples(parse, tuple(place for place in places if families.first(place.name) not in held_out)),
        held_out=Examples(parse, tuple(place for place in places if families.first(place.name) in held_out)),
        noted=tuple(noted),
    )


def _read(parse: Parse, path: Path) -> Iterator[tuple[LinePosition, Example, Verdicts]]:
    try:
        content = unpack(path)
        with content.open("rb") as file:
            offset = 0
            for number, line in enumerate(file, start=1):
                if line.strip():
                    record, where = _parse_line(path, number, line)
                    example = parse(record, where)
                    yield LinePosition(path, content, number, offset, example.names[0]), example, verdicts_in(record)
                offset += len(line)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=path, expected="a JSON-lines file") from error


def _sample_places(places: list[LinePosition], count: int | None, seed: int) -> list[LinePosition]:
    """`count` lines drawn by the seed, in the file's order; a smaller count gives a subset of a larger one."""
    if count is None:
        return places
    if count > len(places):
        raise BadInput(f"{count} examples asked for, it has {len(places)}", where=places[0].path if places else "data")
    return stable_sample(places, count, lambda place: hash_order(seed, place.number))


class Families:
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
        smallest, *larger = sorted(map(self.first, names))
        for name in larger:
            self._before[name] = smallest


def _parse_line(path: Path, number: int, line: bytes) -> tuple[dict[str, Any], str]:
    where = f"{path} line {number}"
    return json_object(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, where), where


def _choose_held_out(prompts: set[str], config: EvalConfig, seed: int) -> set[str]:
    """A share of the prompts, the same in every run of a seed; at least one of two."""
    count = min(max(int(len(prompts) * config.share), 1), config.tasks, len(prompts) - 1)
    return set(sorted(prompts, key=lambda prompt: hash_order(seed, prompt))[: max(count, 0)])


class DataStage(Stage):
    """A kind that learns from given examples: a file of theirs, or what an earlier generate stage makes."""

    made = "what it keeps"  # of an earlier stage's trajectories
    nothing_made: str  # why there may be none, and what to change

    @staticmethod
    def parse(record: dict[str, Any], where: str) -> Example:
        """One line of the file. Raises BadInput that names the line and the key."""
        raise NotImplementedError

    def produced_file(self, kept: Path) -> Path:
        """The file to read, of those that an earlier stage writes; `kept` holds the trajectories that it keeps."""
        return kept

    def parse_of(self, stage: StageConfig) -> Parse:
        """`parse`, with what this stage makes of each line."""
        return self.parse

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        if head.data is not None and not is_source(head.data):
            raise BadInput(
                key=f"{where}.data",
                found=head.data,
                expected="the name of a generate stage, a path, or paths with how many of each, null for "
                "all: {a.jsonl: 300, b.jsonl: null}",
            )

    def epoch(self, recipe: RecipeConfig, data: DataSource | None) -> int:
        if data is None:
            return super().epoch(recipe, data)
        examples = open_data(self.parse, files_of(data), recipe.eval, recipe.seed, verdicts=recipe.verdicts)
        return len(examples.train)

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        if stage.data is not None and maker_of(config, stage) is None:
            self.load_data(stage)

    def identity(self, stage: StageConfig) -> dict[str, Any]:
        if stage.data is None:
            return {}
        config = stage.config.eval
        all_keys = {"eval.share": config.share, "eval.tasks": config.tasks}
        held_out_keys = all_keys if config.every else dict.fromkeys(all_keys)
        return {"data": stage.data, "prompts": stage.prompts} | held_out_keys | verdicts_identity(stage)

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        if stage.data is None:
            return super().arithmetic(config, stage)
        maker = maker_of(config, stage)
        if maker is not None:
            examples = f"{self.made} of stage {maker.name}: known when it is over"
        else:
            data = self.load_data(stage)
            held_out = f", {len(data.held_out)} more held out" if data.held_out else ""
            examples = f"{len(data.train)} of {', '.join(map(str, files_of(stage.data)))}{held_out}"
        length = f"drawn = {describe_steps(stage)}"
        if stage.epochs is not None:
            length = f"steps = {stage.epochs:g} epochs x examples / {stage.config.loop.groups_per_step}, rounded up"
        return [f"examples = {examples}", length]

    def first(self, config: RunConfig, stage: StageConfig) -> Example | None:
        """Of a `data` that is a path, without reading the rest. Raises BadInput for what is no example."""
        if stage.data is None or maker_of(config, stage) is not None:
            return None
        path = next(iter(files_of(stage.data)))
        return next((example for _, example, _ in _read(self.parse_of(stage), path)), None)

    def load_data(self, stage: StageConfig, note: Note = _nothing) -> Data:
        """The examples of a `data` that is a path. Raises BadInput where there is nothing to train on."""
        files = files_of(stage.data or "")
        config = stage.config
        data = open_data(self.parse_of(stage), files, config.eval, config.seed, note, config.verdicts)
        if not data.train:
            raise BadInput("no records", where=", ".join(map(str, files)), expected="one JSON object per line")
        return data

    def open(self, run: Run, stage: StageConfig, note: Note) -> Data:
        """The examples when the stage begins: given, or made by an earlier stage of the run."""
        maker = maker_of(run.config, stage)
        if maker is None:
            return self.load_data(stage, note)
        path = self.produced_file(run.dir.generated_path(maker.name))
        if not path.is_file():
            raise RunFailed(f"stages.{stage.name}: {path} is missing, which stage {maker.name} has written")
        config = stage.config
        parse, files = self.parse_of(stage), {path: None}
        data = open_data(parse, files, config.eval, config.seed, verdicts=config.verdicts)
        if not data.train:
            counts = run.state.played.get(maker.name, {})
            raise RunFailed(f"stages.{stage.name}: nothing to train on in {path}: {self.nothing_made} ({counts})")
        return data


def verdicts_identity(stage: StageConfig) -> dict[str, Any]:
    return identity_of("verdicts", stage.config.verdicts)


def is_source(data: Any) -> bool:
    if isinstance(data, str):
        return bool(data)
    counts = data.values() if isinstance(data, dict) else ()
    valid = all(count is None or (isinstance(count, int) and count > 0 and count is not True) for count in counts)
    return isinstance(data, dict) and bool(data) and all(isinstance(path, str) for path in data) and valid


def resolve_steps(stage: StageConfig, data: Data) -> StageConfig:
    """With its number of steps, which `epochs` over what the run itself made leave open until now."""
    if stage.epochs is None:
        return stage
    return replace(stage, steps=steps_for(stage.epochs, len(data.train), stage.config.loop.groups_per_step))
