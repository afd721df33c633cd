"""`rlsys data`: public data sets as task files and corpora."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from envs.services.judge.config import JudgeConfig
from launch.checks.preflight import check_output
from launch.commands.needs import next_commands
from launch.commands.services import add_judge_options, start_judge
from launch.commands.shared import config_from_options
from launch.data.build import Options
from launch.data.extract import extract, write_solved
from launch.data.makers import ROOT
from launch.data.manifest import Folder, read_manifest
from launch.data.phrases import USUAL, Phrases, read_phrases, search, table, write_hits
from launch.data.prepare import prepare, sets_of
from launch.data.recipes import RECIPES, recipe_of
from launch.data.records import PublicSet, Recipe
from launch.data.sets import SETS
from launch.driver.observe.progress import Bar
from launch.tools.score.look import look, recipe_for
from rlsys.errors import BadInput, require

HELP = "prepare public data sets as task files and corpora"
EXAMPLES = """examples:
  rlsys data look mine.csv env.columns.question=instruction env.columns.answer=output     what your rows become
  rlsys data look mine.jsonl model.path=Qwen/Qwen3-0.6B env.system='Be brief.'             in the chat template
  rlsys data list                                         sets, licences, recipes, what is prepared
  rlsys data prepare research                             from the hub into data/research
  rlsys data prepare graph_rl --from downloads            from files as their publishers name them
  rlsys data prepare gsm8k --from downloads --tasks 1000  a seeded part of one set
  rlsys data prepare swirl --from downloads --file hotpotqa.dev=mine.jsonl --partial
  rlsys data extract --input web.jsonl --output short.jsonl --endpoint https://host/v1 --model NAME --key-env KEY
  rlsys data solved --input tries.jsonl --output filtered.jsonl       the tasks that rlsys generate solved
  rlsys data search --corpus pages.jsonl --output found.jsonl         sentences like those of long thoughts
"""


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "make a recipe's files; the same command again makes the missing ones"
    prepare = actions.add_parser("prepare", help=text, description=text, epilog=EXAMPLES)
    add = prepare.add_argument
    add("recipe", metavar="RECIPE", help="research, icrl, long_cot, graph_rl, swirl, or a set of `rlsys data list`")
    add("--from", dest="origin", metavar="DIR|hub", default="hub", help="source of the files (default: %(default)s)")
    add("--output", metavar="DIR", help=f"folder to write (default: {ROOT}/RECIPE)")
    help_text = "your own file in place of a split, such as musique.dev=dev.jsonl; may be repeated"
    add("--file", metavar="SET.SPLIT=PATH", action="append", default=[], help=help_text)
    add("--tasks", type=int, metavar="N", help="number of tasks in each training file, at most, drawn by the seed")
    add("--eval-tasks", type=int, metavar="N", help="the same for each evaluation file")
    add("--seed", type=int, default=0, metavar="S", help="seed of all draws (default: %(default)s)")
    add("--stratify", metavar="KEY", help="field, such as level or type, whose values keep their shares in a draw")
    near = (
        "similarity, such as 0.8, from which a training task that resembles an evaluation or earlier task is left out"
    )
    add("--near", type=float, metavar="J", help=f"{near} (MinHash of word triples; default: no check)")
    add("--partial", action="store_true", help="continue with a warning where files are missing or counts differ")
    _add_passes(actions)
    text = "list the sets with their licences and counts, and which are prepared"
    listed = actions.add_parser("list", help=text, description=text, epilog=EXAMPLES)
    listed.add_argument("--from", dest="origin", metavar="DIR", help="folder in which to look for the public files")
    listed.add_argument("--output", metavar="DIR", default=ROOT, help="folder of prepared files (default: %(default)s)")


def _add_passes(actions: Any) -> None:
    """What is done to a user's own files."""
    text = "show the first rows of a file as the policy sees them, and what became of each column"
    looked = actions.add_parser("look", help=text, description=text, epilog=EXAMPLES)
    looked.add_argument("source", metavar="FILE", help="a file, a folder, or owner/name on the hub")
    looked.add_argument("overrides", metavar="key=value", nargs="*", help="keys of a recipe: env.*, model.path")
    looked.add_argument("--rows", type=int, default=5, metavar="N", help="default: %(default)s")
    looked.add_argument("--split", choices=("train", "held_out", "all"), default="train", help="default: %(default)s")
    text = "extract short answers from solutions with a language model; questions without one are dropped"
    short = actions.add_parser("extract", help=text, description=text, epilog=EXAMPLES)
    short.add_argument("--input", metavar="F", required=True, help="questions with solutions, in any known format")
    short.add_argument("--output", metavar="F.jsonl", required=True, help="file for the tasks that have a short answer")
    short.add_argument("--service", metavar="URL", help="address of a running `rlsys serve judge`")
    add_judge_options(short)
    text = "write the tasks of kept trajectories, each once: questions that were solved at least once"
    solved = actions.add_parser("solved", help=text, description=text, epilog=EXAMPLES)
    solved.add_argument("--input", metavar="F.jsonl", required=True, help="output of `rlsys generate --keep correct`")
    solved.add_argument("--output", metavar="F.jsonl", required=True)
    text = "find sentences of a corpus that resemble given phrases"
    search = actions.add_parser("search", help=text, description=text, epilog=EXAMPLES)
    search.add_argument("--corpus", metavar="F", required=True, help="documents with a text, as JSON lines or parquet")
    search.add_argument("--phrases", metavar="F.txt", help="phrases, one per line (default: Long CoT's appendix)")
    near = "share of word triples that a sentence and a phrase have in common (default: %(default)g)"
    search.add_argument("--near", type=float, metavar="J", default=0.5, help=near)
    search.add_argument("--output", metavar="F.jsonl", help="file for the sentences; without it they are counted")


def run(options: argparse.Namespace) -> int:
    passes = {"look": _look, "extract": _extract, "solved": _write_solved, "search": _search}
    ways = {"prepare": _prepare, "list": _list} | passes
    return ways[options.action](options)


def _look(options: argparse.Namespace) -> int:
    require(options.rows >= 1, "--rows", options.rows, "at least 1")
    recipe = recipe_for(options.source, options.overrides)
    asyncio.run(look(recipe, options.source, options.rows, options.split))
    return 0


def _extract(options: argparse.Namespace) -> int:
    output = check_output(options.output)
    config = config_from_options(
        JudgeConfig, options, cache_file=options.cache_file or f"{options.output}.answers.sqlite"
    )
    if not config.given:
        raise BadInput(expected="--endpoint and --model, or --model, or --service")
    with Bar() as show:
        counts = extract(options.input, output, lambda: start_judge(options, config), options.max_concurrent, show)
    _say(f"{counts}; wrote {output}")
    return 0


def _write_solved(options: argparse.Namespace) -> int:
    output = check_output(options.output)
    tasks, trajectories = write_solved(options.input, output)
    _say(f"{tasks:,} tasks of {trajectories:,} trajectories; wrote {output}")
    return 0


def _search(options: argparse.Namespace) -> int:
    if not 0 < options.near <= 1:
        raise BadInput(key="--near", found=options.near, expected="above 0 and at most 1")
    output = check_output(options.output) if options.output is not None else None
    phrases = Phrases(read_phrases(Path(options.phrases) if options.phrases else USUAL))
    with Bar() as show:
        counts = write_hits(search(options.corpus, phrases, options.near, show), output)
    for line in table(counts):
        print(line)
    _say(f"{sum(counts.values()):,} sentences" + (f"; wrote {output}" if output else ""))
    return 0


def _prepare(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # nothing to tidy: any kill can be resumed
    recipe = recipe_of(options.recipe)
    files = dict(_pair(argument) for argument in options.file)
    output = Path(options.output or Path(ROOT) / recipe.name)
    with Bar() as show:
        manifest = prepare(recipe, output, config_from_options(Options, options, files=files), show, _say)
    if recipe.missing:
        _say(f"not made here: {recipe.missing}")
    _say(f"{output}: {len(manifest.files)} files, manifest.json says of what")
    for command in next_commands(recipe.name, output):
        _say(f"next: {command}")
    return 0


def _pair(argument: str) -> tuple[str, str]:
    name, sign, path = argument.partition("=")
    if not sign or not path:
        raise BadInput(key="--file", found=argument, expected="SET.SPLIT=PATH, such as musique.dev=dev.jsonl")
    return name, path


def _say(line: str) -> None:
    print(f"rlsys: {line}", flush=True)


def _list(options: argparse.Namespace) -> int:
    folder = Folder(options.origin) if options.origin else None
    users = {name: [recipe.name for recipe in RECIPES.values() if SETS[name] in sets_of(recipe)] for name in SETS}
    for public_set in SETS.values():
        print(f"{public_set.name}: {public_set.title}; {public_set.licence}; {public_set.page}")
        print(f"  for {', '.join(users[public_set.name]) or 'no recipe'}")
        for line in _splits(public_set, folder):
            print(f"  {line}")
    print("\nrecipes:")
    for recipe in RECIPES.values():
        print(f"{recipe.name}: {_state(recipe, Path(options.output) / recipe.name)}")
        print(f"  {', '.join(part.file for part in recipe.parts)}")
        if recipe.missing:
            print(f"  not made here: {recipe.missing}")
    return 0


def _splits(public_set: PublicSet, folder: Folder | None) -> list[str]:
    lines = []
    for split, files in public_set.splits.items():
        count = f"{files.count:,} records" if files.count is not None else "no count known"
        hub = ", ".join(files.hub) or "on no hub"
        lines.append(f"{split}: {count}; {hub}; or {' or '.join(files.names)}")
        if folder is not None:
            paths = folder.find(f"{public_set.name}.{split}", files)
            lines.append(f"  {', '.join(paths) or 'not there'}")
    return lines


def _state(recipe: Recipe, output: Path) -> str:
    manifest = read_manifest(output)
    if manifest is None:
        return f"not prepared in {output}"
    present = sum((output / note.file).is_file() for note in manifest.files)
    return f"{present} of {len(recipe.parts)} files in {output}"
