"""What a configuration is merged from: YAML files and `key=value`, each a layer that errors can name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from envs import REWARDS, WORLDS
from envs.services.secrets import check_text
from learners.algorithms import ALGORITHMS
from rlsys.config.mappings import Raw, as_changes, nest
from rlsys.errors import BadInput, nearest

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"

PAPER = "paper.yaml"  # of a recipe that is a folder
# Every run's config.yaml has all of these sections; a configuration written by hand has only some.
WRITTEN = {"about", "model", "window", "env", "reward", "algorithm", "engine", "rollout", "learner", "loop"}
WRITTEN |= {"eval", "trajectories", "checkpoint", "cluster", "weights", "wandb"}
MOST_BITS = 63  # of a whole number


@dataclass(frozen=True, slots=True)
class Layer:
    source: str  # for error lines: a file name or "command line"
    values: Raw


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One entry of `stages`: what a file says of it, and after it the files that extend this one."""

    layers: tuple[Raw, ...]

    def get(self, key: str, otherwise: Any = None) -> Any:
        """What was given last of a key of the stage itself: `name`, `kind`, `steps`."""
        return next((layer[key] for layer in reversed(self.layers) if key in layer), otherwise)

    @property
    def label(self) -> str:
        """What it is called on the command line."""
        return str(self.get("name", self.get("kind")))


def is_written(layers: Sequence[Layer]) -> bool:
    """Whether a run's own config.yaml is among them: its writer, maybe an older one, says what its stages do not read.

    What it says there changed nothing in that run and changes nothing now.
    """
    return any(layer.values.keys() >= WRITTEN for layer in layers)


def find_config(name: str) -> Path:
    """A path, or a name under configs/. Raises BadInput with the nearest name."""
    for candidate in (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml", CONFIGS / name / PAPER, ROOT / name):
        if candidate.is_file():
            return candidate
    if "=" in name:
        raise BadInput(f"no CONFIG in front of {name!r}: a file, or a name such as quickstart, comes first")
    files = (path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.yaml"))
    names = sorted(str(path.parent if path.name == PAPER else path.with_suffix("")) for path in files)
    matches = [full_name for full_name in names if full_name.rpartition("/")[2] == name]
    listed = "; quickstart is one, `rlsys recipes` lists those of papers"
    hint = f" (did you mean {matches[0]!r}?)" if matches else nearest(name, names, otherwise=listed, alike=0.6)
    for key, table in (("reward", REWARDS), ("env", WORLDS), ("algorithm", ALGORITHMS)):
        if name in table and not matches:
            hint = f"; a config picks it with {key}.name={name}"
    raise BadInput(f"no config {name!r}: neither a file nor a name under configs/{hint}")


def list_files(config: str) -> list[Path]:
    """The file of a config that `read_config_layers` has read, and those that it extends, nearest first."""
    files = [find_config(config)]
    while (base := (_from_yaml(files[-1].read_text()) or {}).get("extends")) is not None:
        files.append(_find_base(files[-1], str(base)))
    return files


def _find_base(path: Path, name: str) -> Path:
    """What a file extends: one next to it, or a config."""
    sibling = path.parent / name
    return sibling if sibling.is_file() else find_config(name)


def read_config_layers(path: Path, seen: tuple[Path, ...]) -> tuple[list[Layer], list[StageEntry]]:
    """The layers of a file and of what it extends, base first; its list of stages, the nearest one.

    A key at the top of a file or of a stage may be dotted, as on the command line.
    """
    if path.resolve() in seen:
        raise BadInput(f"extends itself through {' -> '.join(p.name for p in seen)}", where=path)
    try:
        raw = _from_yaml(path.read_text())
    except yaml.MarkedYAMLError as error:
        mark, lines = error.problem_mark, path.read_text().count("\n")
        where = "" if mark is None else f" line {min(mark.line, lines) or 1}"  # one stands before those of the file
        raise BadInput(f"{path}{where}: not readable as YAML: {error.problem or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"not readable as YAML: {' '.join(str(error).split())}", where=path) from error
    raw = {} if raw is None else raw
    if not isinstance(raw, dict):
        raise BadInput(where=path, expected=f"keys and values, found a {type(raw).__name__}")
    check_plain(_short(path), {key: value for key, value in raw.items() if key != "stages"})
    layers: list[Layer] = []
    stages: list[StageEntry] = []
    base = raw.pop("extends", None)
    if base is not None:
        layers, stages = read_config_layers(_find_base(path, str(base)), (*seen, path.resolve()))
    written = raw.keys() >= WRITTEN
    for piece in _nested(path, raw):
        if (raw_stages := piece.pop("stages", None)) is not None:
            stages = _read_stages(path, stages, raw_stages, written=written)
        layers.append(Layer(_short(path), piece))
    return layers, stages


def _nested(path: Path, raw: Mapping[str, Any], key: str = "") -> list[Raw]:
    try:
        return nest(raw.items())
    except BadInput as error:
        raise BadInput(error, where=f"{_short(path)}: {key}" if key else _short(path)) from error


def _read_stages(path: Path, stages: Sequence[StageEntry], raw_stages: Any, *, written: bool) -> list[StageEntry]:
    """Those of a list, or those of the base with some keys changed in some: {rl: {epochs: 8}, sft: null}, where null
    leaves one out.

    written: the file is a run's own, whose stages say where they differ from the rest of it, within mappings too; what
    differs as a whole has a dotted key there (`launch.config.compose.to_yaml`).
    """
    if isinstance(raw_stages, dict):
        return _apply_changes(path, stages, raw_stages)
    if not isinstance(raw_stages, list) or not all(isinstance(stage, dict) for stage in raw_stages):
        raise BadInput(
            where=path, key="stages", expected="a list of records, or {NAME: {key: value}} to change some of a base"
        )
    entries: list[StageEntry] = []
    for index, stage in enumerate(raw_stages):
        name = stage.get("name", index)
        check_plain(_short(path), name, f"stages.{index}.name")
        check_plain(_short(path), stage, f"stages.{name}")
        if written:
            stage = {key: value if "." in key else as_changes(value) for key, value in stage.items()}
        entries.append(StageEntry(tuple(_nested(path, stage, f"stages.{name}"))))
    return entries


def _apply_changes(path: Path, stages: Sequence[StageEntry], changes: Raw) -> list[StageEntry]:
    names = [stage.label for stage in stages]
    for name, change in changes.items():
        check_plain(_short(path), change, f"stages.{name}")
        if name not in names:
            raise BadInput(f"stages.{name}: the stages that it extends are {', '.join(names) or 'none'}", where=path)
        if change is not None and not isinstance(change, dict):
            raise BadInput(
                where=path, key=f"stages.{name}", found=change, expected="keys and values, or null to leave it out"
            )
    return [
        StageEntry((*stage.layers, *_nested(path, changes.get(stage.label, {}), f"stages.{stage.label}")))
        for stage in stages
        if changes.get(stage.label, {}) is not None
    ]


def _from_yaml(text: str) -> Any:
    """Plain values, the caller's own."""
    return deepcopy(_parse_yaml(text))


@lru_cache(maxsize=256)  # files and overrides of a composition: there are tens
def _parse_yaml(text: str) -> Any:
    """By OmegaConf's loader, so that `1e-6` is a number and a key given twice an error."""
    if not text.strip():
        return None
    from omegaconf import OmegaConf  # the help of a command goes without
    from omegaconf.errors import OmegaConfBaseException

    indented = "\n".join("  " + line for line in text.split("\n"))
    try:
        return OmegaConf.to_container(OmegaConf.create(f"value:\n{indented}"))["value"]  # type: ignore[index,call-overload]
    except RecursionError as error:
        raise yaml.YAMLError("lists or keys nested too deeply") from error
    except (OmegaConfBaseException, ValueError) as error:  # such as a whole number of thousands of digits
        raise yaml.YAMLError(str(error)) from error


def _short(path: Path) -> str:
    full_path = path.resolve()
    return str(full_path.relative_to(ROOT) if full_path.is_relative_to(ROOT) else path)


def parse_overrides(
    overrides: Sequence[str], stages: Sequence[StageEntry]
) -> tuple[list[Raw], dict[int, list[Raw] | None]]:
    """`a.b=1` for everything; `stages.rl.steps=5` (or `stages.1.steps=5`) for one stage, None for one that is left out.

    `stages.rl=null` leaves it out. Each in layers, of which there is one unless a later section stands beside an
    earlier one (`rlsys.config.mappings.nest`).
    """
    everywhere: list[tuple[str, Any]] = []
    by_stage: dict[int, list[tuple[str, Any]] | None] = {}
    names = [stage.label for stage in stages]
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not all(key.split(".")):
            raise BadInput(f"{override!r}", where="command line", expected="key=value")
        try:
            value = _from_yaml(text) if text.strip() else ""  # as a shell and Hydra mean `key=`; null is written out
        except yaml.YAMLError as error:
            deep = f": {error}" if isinstance(error.__cause__, RecursionError) else ""
            raise BadInput(f"the value is not readable as YAML{deep}", where="command line", key=key) from error
        check_plain("command line", value, key)
        parts = key.split(".")
        if parts[0] != "stages":
            everywhere.append((key, value))
            continue
        if len(parts) < 3 and (len(parts) < 2 or value is not None):
            leave_out = "stages.NAME=null to leave a stage out"
            raise BadInput(f"{override!r}", where="command line", expected=f"stages.NAME.key=value, or {leave_out}")
        index = _stage_index(parts[1], names)
        if len(parts) == 2:
            by_stage[index] = None
            continue
        pairs = by_stage.setdefault(index, [])
        if pairs is None:
            raise BadInput(f"{override!r}: stage {names[index]} was left out", where="command line")
        pairs.append((".".join(parts[2:]), value))
    try:
        stage_layers = {index: None if pairs is None else nest(pairs) for index, pairs in by_stage.items()}
        return nest(everywhere), stage_layers
    except BadInput as error:
        raise BadInput(error, where="command line") from error


def _stage_index(name: str, names: Sequence[str]) -> int:
    if name in names:
        return names.index(name)
    if name.isdigit() and int(name) < len(names):
        return int(name)
    raise BadInput(f"no stage {name!r}: the stages are {', '.join(names)}", where="command line")


def check_plain(source: str, values: Any, key: str = "") -> None:
    """What no configuration may hold, looked for before anything of it is merged, shown or written.

    Raises BadInput with the file and the full key, and never with the value: it may be a secret.

    `${..}` is refused everywhere. Looked up, it would bring a variable of the environment, resolved, into the run
    directory, the tracker and the terminal. So is a number that is none, or that no machine counts to.
    """
    if isinstance(values, dict):
        for name, value in values.items():
            check_plain(source, value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            check_plain(source, value, f"{key}.{index}")
    elif isinstance(values, float) and not math.isfinite(values):
        raise BadInput(where=source, key=key, found=values, expected="a finite number")
    elif isinstance(values, int) and values.bit_length() > MOST_BITS:
        raise BadInput(
            where=source,
            key=key,
            expected=f"a whole number of at most {MOST_BITS} bits, found one of {values.bit_length()}",
        )
    elif isinstance(values, str):
        if "${" in values:
            raise BadInput(
                "${..} is not looked up: write the value, and of a key or token the name of its "
                "variable (key_env, token_env; docs/trust.md)",
                where=source,
                key=key,
            )
        try:
            check_text(key, values)
        except BadInput as error:
            raise BadInput(error, where=source) from None
