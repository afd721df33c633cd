"""The names that other systems have for our keys (`synonyms.yaml`), and the hint for a key that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

ALIKE = 0.6  # how much two names of a section must have in common
NEARLY = 0.75  # and how much names of different sections
MOST = 4  # keys that one line names


@dataclass(frozen=True, slots=True)
class Foreign:
    """The names of other systems. A dotted one stands for the end of a longer one, `lora.` for a whole section."""

    equivalents: Mapping[str, Sequence[str]]  # ours: theirs
    notes: Mapping[str, str]  # theirs: what the value is with us, where it differs
    several: Mapping[str, Sequence[str]]  # theirs: ours, one or another
    absent: Mapping[str, str]  # theirs: ": " and what to do instead
    unrelated: Sequence[str]  # theirs, of which there is nothing to say

    def elsewhere(self, ours: str, mark: str = "") -> str:
        """ "Elsewhere: num_mini_batches; ppo_mini_batch_size (here a number of ...)." Empty if there is none."""
        by_note: dict[str, list[str]] = {}
        for name in sorted(self.equivalents.get(ours, ()), key=self.notes.__contains__):
            note = f" (here {self.notes[name]})" if name in self.notes else ""
            by_note.setdefault(note, []).append(f"{mark}{name}{mark}")
        listed = "; ".join(f"{', '.join(names)}{note}" for note, names in by_note.items())
        return f"Elsewhere: {listed}." if listed else ""


@cache
def load_synonyms() -> Foreign:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a tenth of the time, where PyYAML has it
    tables = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), loader)
    notes = {name: note for note, names in tables["notes"].items() for name in names}
    absent = {name: f": {instead}" for instead, names in tables["absent"].items() for name in names}
    return Foreign(
        equivalents=tables["equivalents"],
        notes=notes,
        several=tables["several"],
        absent=absent,
        unrelated=tables["unrelated"],
    )


def suggest_key(key: str, all_keys: Iterable[str]) -> str:
    """The end of an error line about an unknown key: ` (did you mean 'learner.lr'?)`. Empty if there is no good guess.

    all_keys: their full names. Tried in this order: names of other systems, the longest part first; the last
    part in other sections; a similar spelling in the same section, then anywhere. A name that another system has is
    never taken for a misspelled key of ours.
    """
    names = list(dict.fromkeys(all_keys))
    theirs = _equivalents(key, names)
    answers = {**dict.fromkeys(load_synonyms().unrelated, ""), **load_synonyms().absent, **theirs}
    parts = key.casefold().replace("-", "_").split(".")
    *dotted, last = [".".join(parts[start:]) for start in range(len(parts))]
    for end in (*dotted, *(f"{part}." for part in parts[:-1]), last):
        if end in answers:
            return answers[end]
    elsewhere = [name for name in names if name.rpartition(".")[2] == last and not name.startswith("eval.sets.")]
    if elsewhere:
        return _question([name for name in elsewhere if name in dotted] or elsewhere[:MOST])
    section = key.rpartition(".")[0]
    neighbours = _by_last(name for name in names if name.rpartition(".")[0] == section)
    anywhere = {name.rpartition(".")[2]: hint for name, hint in theirs.items()} | _by_last(names)
    for group, alike in ((neighbours, ALIKE), (anywhere, NEARLY)):
        close = difflib.get_close_matches(last[:80], group, n=1, cutoff=alike)
        if close:
            return group[close[0]]
    return ""


def _equivalents(key: str, names: Sequence[str]) -> dict[str, str]:
    """The hint for each name of another system that stands for a key of ours: empty if that is not one of `names`."""
    table, candidates, hints = load_synonyms(), {*names} - {key}, {}
    for name, several in table.several.items():
        hints[name] = _question([ours for ours in several if ours in candidates])
    for ours, foreign_names in table.equivalents.items():
        for name in foreign_names:
            note = f" Here it is {table.notes[name]}" if name in table.notes else ""
            hints[name] = _question([ours] if ours in candidates else [], note)
    return hints


def _by_last(names: Iterable[str]) -> dict[str, str]:
    return {name.rpartition(".")[2]: _question([name]) for name in reversed(list(names))}


def _question(names: Sequence[str], note: str = "") -> str:
    if not names:
        return ""
    quoted = [repr(name) for name in names]
    return f" (did you mean {', '.join(quoted[:-1])}{' or ' * (len(quoted) > 1)}{quoted[-1]}?{note})"
