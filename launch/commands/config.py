"""`rlsys config`: every key with its meaning, type, default and what other systems call it; or a recipe, key by key."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from launch.config.compose import TABLES, compose
from launch.config.keys import Key, Section, choice_keys, plain, reference, values_of
from launch.config.layers import find_config
from launch.config.synonyms import load_synonyms, suggest_key
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.files import files_or_bad_input

HELP = "explain the keys of a configuration"
EXAMPLES = """examples:
  rlsys config                       every key with its default
  rlsys config learner               the keys of a section, and what they mean
  rlsys config learner.lr            one key
  rlsys config num_generations       the key of ours for another system's name
  rlsys config quickstart            the keys that a recipe changes
"""
BEGIN, END = "<!-- rlsys config --page -->", "<!-- end -->"
LONGEST = 60  # characters of a default
# How the title of a section begins: the part of the page that it stands in, after all others.
PARTS = {"`env": "Environments", "`reward": "Rewards", "`algorithm": "Algorithms"}
OTHERS = "The run"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="KEY|CONFIG",
        nargs="?",
        help="a key, a section, another system's name, an environment, a reward, an algorithm, or a recipe",
    )
    parser.add_argument("--page", metavar="F.md", help="page whose key reference, between two marks, is written again")


def run(options: argparse.Namespace) -> int:
    sections = reference(TABLES)
    if options.page is not None:
        page = Path(options.page)
        with files_or_bad_input():
            page.write_text(fill_page(page.read_text(), sections))
        return 0
    if options.what is None:
        lines = list(format_keys(sections))
    else:
        lines = explain_keys(options.what, sections) or list_changes(options.what, sections)
    print("\n".join(lines), flush=True)
    return 0


def format_keys(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield f"# {section.title.replace('`', '')}"
        yield from (f"{key.name:<40} {short(key.default):<12} {key.kind}" for key in section.keys)


def explain_keys(name: str, sections: Sequence[Section]) -> list[str]:
    """A key, all keys below a section, or the keys that another system calls `name`. Empty if there is none."""
    theirs = load_synonyms()
    if name in theirs.absent:
        return [f"{name}{theirs.absent[name]}"]
    ours = {name, *theirs.several.get(name, ()), *(ours for ours, names in theirs.equivalents.items() if name in names)}
    return list_paragraphs(lambda key: key in ours or key.startswith(f"{name}."), sections)


def list_paragraphs(wanted: Callable[[str], bool], sections: Sequence[Section]) -> list[str]:
    lines: list[str] = []
    for number, section in enumerate(sections, start=1):
        keys = [key for key in section.keys if wanted(key.name)]
        if keys:
            lines.append(f"# {title_for(keys, section, sections[number:])}")
            lines += [line for key in keys for line in paragraph(key)]
    return lines


def title_for(keys: Sequence[Key], section: Section, later: Sequence[Section]) -> str:
    """Without the choices of which a later section has the same keys, with the defaults that hold."""
    start, divider, choices = section.title.replace("`", "").partition(": ")
    own = {
        choice
        for other in later
        if other.title.startswith(f"`{start}`: ") and {key.name for key in keys} <= {key.name for key in other.keys}
        for choice in other.title.partition(": ")[2].split(", ")
    }
    return start + divider + ", ".join(choice for choice in choices.split(", ") if choice not in own)


def paragraph(key: Key) -> Iterator[str]:
    yield f"{key.name}: {key.kind}" + (f"; default {short(key.default)}" if key.default else "")
    for text in (key.meaning, load_synonyms().elsewhere(key.name)):
        yield from textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="    ")


def describe_choice(name: str) -> list[str]:
    """The keys of an environment, a reward or an algorithm by its name. Empty where there is none."""
    lines: list[str] = []
    for key, table in TABLES.items():
        if name in table:
            lines.append(f"# {key}.name={name}")
            lines += [line for choice in choice_keys(key, table, name) for line in paragraph(choice)]
    return lines


def list_changes(config: str, sections: Sequence[Section]) -> list[str]:
    """The values of a recipe that are not the default, for the whole of it and for each stage."""
    try:
        find_config(config)
    except BadInput as error:
        lines = describe_choice(config) or list_paragraphs(lambda key: key.endswith(f".{config}"), sections)
        if lines:
            return lines
        hint = suggest_key(config, [key.name for section in sections for key in section.keys])
        raise BadInput(f"no key {config!r}{hint}" if hint else f"{config!r} is no key, and {error}") from error
    composed = compose(config, [])
    everywhere = format_changes(composed.recipe)
    lines = [f"# {config}, where it is not the default", *everywhere]
    for stage in composed.stages:
        length = f"{stage.steps} steps" if stage.epochs is None else f"{stage.epochs:g} epochs"
        lines.append(f"# stage {stage.name}: {stage.kind}, {length}")
        lines += [line for line in format_changes(stage.config) if line not in everywhere]
    return lines + describe_choice(config)  # `swirl` is a recipe, a reward and an algorithm


def format_changes(recipe: RecipeConfig) -> list[str]:
    """ "learner.lr = 0.002 (default 1e-06)", for each key."""
    lines = []
    for env, share in recipe.envs.items():
        lines += [f"envs.{env}.name = {share.env.name}", f"envs.{env}.weight = {share.weight:g}"]
        lines += _changes(share.env, f"envs.{env}.")
        lines += [f"envs.{env}.reward.name = {share.reward.name}", *_changes(share.reward, f"envs.{env}.reward.")]
        lines += _changes(share.curriculum, f"envs.{env}.curriculum.")
    return lines + _changes(replace(recipe, env=None, envs={}) if recipe.envs else recipe)


def _changes(config: Any, prefix: str = "") -> list[str]:
    return [
        f"{name} = {short(str(plain(value)))} (default {short(str(plain(default)))})"
        for name, value, default in values_of(config, prefix)
        if value != default and (not prefix or name != f"{prefix}name")
    ]


def short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def fill_page(page: str, sections: Sequence[Section]) -> str:
    """The page with all keys between its marks. Raises BadInput for a page without them."""
    return fill_between(page, BEGIN, END, list_keys(sections))


def fill_between(page: str, begin: str, end: str, body: str) -> str:
    before, has_begin, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise BadInput(key="--page", expected=f"a page with {begin} and {end}")
    return f"{before}{begin}\n\n{body}\n{end}{after}"


def list_keys(sections: Sequence[Section]) -> str:
    lines: list[str] = []
    order = [OTHERS, *PARTS.values()]
    for group, below in groupby(sorted(sections, key=lambda section: order.index(part_of(section))), part_of):
        lines += [f"## {group}", ""]
        for section in below:
            lines += keys_of(section)
    return "\n".join(lines)


def part_of(section: Section) -> str:
    """The part of the page that a section stands in."""
    return next((part for start, part in PARTS.items() if section.title.startswith(start)), OTHERS)


def keys_of(section: Section) -> list[str]:
    lines = [f"### {section.title}", ""]
    for key in section.keys:
        kind = f"{key.kind}; `{short(key.default)}`" if key.default else key.kind
        meaning = " ".join(filter(None, (key.meaning, load_synonyms().elsewhere(key.name, mark="`"))))
        lines.append(f"* `{key.name}` ({kind}): {meaning}")
    return [*lines, ""]
