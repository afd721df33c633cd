"""Settings over each other: a section key by key; a mapping with names of the user's own as a whole, or by its entries.

Which a mapping is follows from its type: `dict[str, float]` has names of the user's own, a dataclass is a section.
Which of the two was meant follows from how it is written:

    reward.functions={my.new: 1}    the functions are these, whatever they were
    reward.functions.my.new=1       this one is added, or changed
    reward.functions.my.new=null    this one is left out, where its value may not be null itself
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from rlsys.errors import BadInput, nearest

Raw = dict[str, Any]


class Dotted(dict[str, Any]):
    """What dotted keys say of a section or mapping: of the entries in it, and of no other."""


@dataclass(frozen=True)
class Section:
    """The type of a section whose keys are not known yet."""


def nest(pairs: Iterable[tuple[Any, Any]]) -> list[Raw]:
    """Dotted keys and their values as nested ones; in several where a later section stands beside an earlier one.

        nest([("loop.group_size", 8), ("env", {})]) -> [{"loop": Dotted(group_size=8), "env": {}}]

    Raises BadInput where a key stands inside a value that is no section.
    """
    pieces: list[Raw] = [Dotted()]
    for key, value in pairs:
        parts = key.split(".") if isinstance(key, str) and all(key.split(".")) else [key]
        target: Raw = pieces[-1]
        for part in parts[:-1]:
            target = target.setdefault(part, Dotted())
            if not isinstance(target, dict):
                raise BadInput(f"{key}: {part} was already given a value")
        if isinstance(value, dict) and isinstance(target.get(parts[-1]), dict):
            pieces += nest([(key, value)])
        else:
            target[parts[-1]] = value
    return pieces


def as_changes(value: Any) -> Any:
    """The same as dotted keys say it, at every depth."""
    return Dotted({key: as_changes(child) for key, child in value.items()}) if isinstance(value, dict) else value


def as_plain(value: Any) -> Any:
    """The same as dictionaries, which YAML writes."""
    return {key: as_plain(child) for key, child in value.items()} if isinstance(value, dict) else value


@dataclass
class Removals:
    """Entries that a null leaves out: one that is left out of nothing is a mistake."""

    asked: dict[tuple[str, str, str], frozenset[str]] = field(default_factory=dict)  # layer, mapping, name: those there
    met: set[tuple[str, str, str]] = field(default_factory=set)

    def note(self, where: str, key: str, name: str, names: Iterable[str]) -> None:
        removal = (where, key, name)
        self.asked[removal] = self.asked.get(removal, frozenset()) | frozenset(names)
        if name in names:
            self.met.add(removal)

    def check(self) -> None:
        """Raises BadInput with the layer, the key and the name that was probably meant."""
        for (where, key, name), names in self.asked.items():
            if (where, key, name) not in self.met:
                hint = nearest(name, sorted(names)) if names else ""
                raise BadInput(f"nothing of this name to leave out{hint}", where=where, key=f"{key}.{name}")


@dataclass(frozen=True)
class Over:
    """How one layer is laid over another."""

    types: Mapping[str, Any]  # of the parts of a recipe that a name picks: {"reward": FunctionsRewardConfig}
    where: str = ""  # the layer, for error lines
    removals: Removals = field(default_factory=Removals)
    below: Raw = field(default_factory=dict)  # mappings that dotted keys change where no layer has said anything yet

    def lay(self, base: Any, change: Any, of: Any, key: str = "") -> Any:
        """`change` over `base`, of the type `of`. Raises BadInput for a null beside entries of a whole mapping."""
        if key in self.types and get_origin(_not_none(of)) is dict and not isinstance(change, Dotted):
            base = None  # a section in the place of a mapping, which is given whole
        of = self.types.get(key, _not_none(of))
        if not isinstance(change, dict) or (of is Any and not isinstance(change, Dotted)):
            return change
        below = base if isinstance(base, dict) else {}
        if get_origin(of) is dict:
            base_entries = below if isinstance(base, dict) else self._below(key)
            return self._lay_entries(base_entries, change, get_args(of)[1], key)
        hints = _hints(of)
        within = f"{key}." if key else ""
        return below | {
            name: self.lay(below.get(name), value, hints.get(name, Section), f"{within}{name}")
            for name, value in change.items()
        }

    def _lay_entries(self, below: Raw, change: Raw, of: Any, key: str) -> Raw:
        entries = dict(_flatten_names(change)) if _is_plain(of) else change
        left_out = [] if _may_be_none(of) else [name for name, value in entries.items() if value is None]
        changes = isinstance(change, Dotted) or (bool(left_out) and len(left_out) == len(entries))
        if left_out and not changes:
            reason = "null leaves out an entry of what was there, and this mapping stands in its place"
            raise BadInput(reason, where=self.where, key=f"{key}.{left_out[0]}", expected="a value, or not its name")
        merged = dict(below) if changes else {}
        for name, value in entries.items():
            if name in left_out:
                self.removals.note(self.where, key, str(name), below)
                merged.pop(name, None)
            else:
                merged[name] = self.lay(merged.get(name), value, of, f"{key}.{name}")
        return merged

    def _below(self, key: str) -> Raw:
        section: Any = self.below
        for part in key.split("."):
            section = section.get(part) if isinstance(section, dict) else None
        return section if isinstance(section, dict) else {}


def mappings_of(values: Raw, of: Any, types: Mapping[str, Any], key: str = "") -> Raw:
    """Of the settings `values`, of the type `of`, the mappings that have entries, and nothing else."""
    mappings: Raw = {}
    for name, hint in _hints(types.get(key, of)).items():
        value, inner = values.get(name), f"{key}.{name}" if key else name
        if not isinstance(value, dict) or not value:
            continue
        if get_origin(_not_none(hint)) is dict:
            mappings[name] = value
        elif within := mappings_of(value, _not_none(hint), types, inner):
            mappings[name] = within
    return mappings


def clear(config: Any, values: Raw, of: Any, types: Mapping[str, Any], key: str = "") -> None:
    """Empty in a DictConfig, in place, the mappings that `values` has: merged over it, they stand in their place."""
    from omegaconf import read_write  # the help of a command goes without

    hints = _hints(types.get(key, of))
    for name, value in values.items():
        inner, hint = f"{key}.{name}" if key else name, _not_none(hints.get(name))
        if not isinstance(value, dict) or not config.get(name):
            continue
        if get_origin(hint) is dict:
            with read_write(config):
                config[name] = {}
        else:
            clear(config[name], value, hint, types, inner)


def _flatten_names(change: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names with dots in them, `my_rewards.digits`, where the values are no mappings."""
    for name, value in change.items():
        if isinstance(value, Dotted):
            yield from ((f"{name}.{suffix}", inner) for suffix, inner in _flatten_names(value))
        else:
            yield name, value


@cache
def _hints(of: Any) -> Mapping[str, Any]:
    return get_type_hints(of) if is_dataclass(of) else {}


def _not_none(hint: Any) -> Any:
    """`dict[str, float]` of an optional one."""
    inner = [arg for arg in get_args(hint) if arg is not type(None)]
    return inner[0] if _may_be_none(hint) and len(inner) == 1 else hint


def _may_be_none(hint: Any) -> bool:
    return hint is Any or (get_origin(hint) is not dict and type(None) in get_args(hint))


def _is_plain(hint: Any) -> bool:
    """Whether a value of this type is no mapping: a number, a text."""
    return all(arg in (int, float, bool, str, type(None)) for arg in (get_args(hint) or (hint,)))
