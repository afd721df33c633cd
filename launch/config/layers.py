"""What a configuration is merged from: YAML files and `key=value`, each a layer that errors can name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from envs import REWARDS, WORLDS
from envs.services.secrets import check_text
from learners.algorithms import ALGORITHMS
from rlsys.errors import BadInput, nearest

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"

PAPER = "paper.yaml"  # of a recipe that is a folder
# Every run's config.yaml has all of these sections; a configuration written by hand has only some.
WRITTEN = {"about", "model", "window", "env", "reward", "algorithm", "engine", "rollout", "learner", "loop"}
WRITTEN |= {"eval", "trajectories", "checkpoint", "cluster", "weights", "wandb"}
MOST_BITS = 63  # of a whole number

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    source: str  # for error lines: a file name or "command line"
    values: Raw


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
    files = (path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.yaml"))
    known = sorted(str(path.parent if path.name == PAPER else path.with_suffix("")) for path in files)
    named = [each for each in known if each.rpartition("/")[2] == name]
    listed = "; quickstart is one, `rlsys recipes` lists those of papers"
    hint = f" (did you mean {named[0]!r}?)" if named else nearest(name, known, otherwise=listed, alike=0.6)
    for key, table in (("reward", REWARDS), ("env", WORLDS), ("algorithm", ALGORITHMS)):
        if name in table and not named:
            hint = f"; a config picks it with {key}.name={name}"
    raise BadInput(f"no config {name!r}: neither a file nor a name under configs/{hint}")


def list_files(config: str) -> list[Path]:
    """The file of a config that `read_files` has read, and those that it extends, nearest first."""
    files = [find_config(config)]
    while (base := (_from_yaml(files[-1].read_text()) or {}).get("extends")) is not None:
        files.append(_find_base(files[-1], str(base)))
    return files


def _find_base(path: Path, name: str) -> Path:
    """What a file extends: one next to it, or a config."""
    sibling = path.parent / name
    return sibling if sibling.is_file() else find_config(name)


def read_files(path: Path, seen: tuple[Path, ...]) -> tuple[list[Layer], list[Raw]]:
    """The layers of a file and of what it extends, base first; its list of stages, the nearest one."""
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
    stages: list[Raw] = []
    base = raw.pop("extends", None)
    if base is not None:
        layers, stages = read_files(_find_base(path, str(base)), (*seen, path.resolve()))
    check_left_out_sets(str(path), raw, [*(layer.values for layer in layers), *stages])
    own = raw.pop("stages", None)
    if isinstance(own, dict):
        for name, change in own.items():
            known = [*(layer.values for layer in layers), raw, *(each for each in stages if label_of(each) == name)]
            check_left_out_sets(f"{path}: stages.{name}", change, known)
        stages = _apply_changes(path, stages, own)
    elif own is not None:
        if not isinstance(own, list) or not all(isinstance(stage, dict) for stage in own):
            raise BadInput(
                where=path, key="stages", expected="a list of records, or {NAME: {key: value}} to change some of a base"
            )
        for index, stage in enumerate(own):
            name = stage.get("name", index)
            check_plain(_short(path), name, f"stages.{index}.name")
            check_plain(_short(path), stage, f"stages.{name}")
        stages = own
    layers.append(Layer(_short(path), raw))
    return layers, stages


def _apply_changes(path: Path, stages: Sequence[Raw], changes: Raw) -> list[Raw]:
    """Those of the base, with some keys changed in some: {rl: {epochs: 8}, sft: null}, where null leaves one out."""
    names = list(map(label_of, stages))
    for name, change in changes.items():
        check_plain(_short(path), change, f"stages.{name}")
        if name not in names:
            raise BadInput(f"stages.{name}: the stages that it extends are {', '.join(names) or 'none'}", where=path)
        if change is not None and not isinstance(change, dict):
            raise BadInput(
                where=path, key=f"stages.{name}", found=change, expected="keys and values, or null to leave it out"
            )
    return [
        over(stage, changes.get(name, {}))
        for stage, name in zip(stages, names, strict=True)
        if changes.get(name, {}) is not None
    ]


def check_left_out_sets(where: str, values: Any, known: Sequence[Any]) -> None:
    """Raises BadInput for `eval.sets.NAME: null` of a set that none of the `known` layers has."""
    names = {name for each in known for name, value in _sets(each).items() if value is not None}
    for name, value in _sets(values).items():
        if value is None and name not in names:
            hint = nearest(str(name), sorted(names), otherwise="; there is none")
            raise BadInput(f"no such set to leave out{hint}", where=where, key=f"eval.sets.{name}")


def _sets(values: Any) -> Raw:
    """What a layer says of `eval.sets`; what is no section there is refused elsewhere."""
    for key in ("eval", "sets"):
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def without_left_out_sets(values: Raw) -> Raw:
    """The same without the sets that are null: they are left out."""
    sets = _sets(values)
    if all(each is not None for each in sets.values()):
        return values
    kept = {name: each for name, each in sets.items() if each is not None}
    return values | {"eval": values["eval"] | {"sets": kept}}


def label_of(stage: Raw) -> str:
    """What a stage is called on the command line."""
    return str(stage.get("name", stage.get("kind")))


def over(base: Raw, change: Raw) -> Raw:
    """Merged key by key, at every depth."""
    both = {key for key in change if isinstance(change[key], dict) and isinstance(base.get(key), dict)}
    return base | {key: over(base[key], value) if key in both else value for key, value in change.items()}


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
    whole = path.resolve()
    return str(whole.relative_to(ROOT) if whole.is_relative_to(ROOT) else path)


def parse_overrides(overrides: Sequence[str], stages: Sequence[Raw]) -> tuple[Raw, dict[int, Raw | None]]:
    """`a.b=1` for everything; `stages.rl.steps=5` (or `stages.1.steps=5`) for one stage, None for one that is left out.

    `stages.rl=null` leaves it out.
    """
    everywhere: Raw = {}
    by_stage: dict[int, Raw | None] = {}
    names = list(map(label_of, stages))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not all(key.split(".")):
            raise BadInput(f"{override!r}", where="command line", expected="key=value")
        try:
            value = _from_yaml(text)
        except yaml.YAMLError as error:
            deep = f": {error}" if isinstance(error.__cause__, RecursionError) else ""
            raise BadInput(f"the value is not readable as YAML{deep}", where="command line", key=key) from error
        check_plain("command line", value, key)
        parts = key.split(".")
        target = everywhere
        if parts[0] == "stages":
            if len(parts) < 3 and (len(parts) < 2 or value is not None):
                leave_out = "stages.NAME=null to leave a stage out"
                raise BadInput(f"{override!r}", where="command line", expected=f"stages.NAME.key=value, or {leave_out}")
            index = _stage_index(parts[1], names)
            if len(parts) == 2:
                by_stage[index] = None
                continue
            given = by_stage.setdefault(index, {})
            if given is None:
                raise BadInput(f"{override!r}: stage {names[index]} was left out", where="command line")
            target, parts = given, parts[2:]
        for part in parts[:-1]:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise BadInput(f"{override!r}: {part} was already given a value", where="command line")
        target[parts[-1]] = value
    return everywhere, by_stage


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
