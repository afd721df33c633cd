"""`rlsys incidents`: what was collected when something of a run broke, and a look at one that hangs."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from launch.driver.incidents.facts import PARAGRAPH, Facts, utc
from launch.driver.incidents.folder import find_folder, read_all, write_bundle
from launch.driver.incidents.now import collect_now, hider_of
from launch.driver.incidents.paragraph import culprit
from rlsys.errors import BadInput
from rlsys.files import files_or_bad_input
from rlsys.untrusted import visible, visible_lines

HELP = "list what was collected when something of a run broke, or collect it now"
EXAMPLES = """examples:
  rlsys incidents runs/quickstart                                     one line each
  rlsys incidents runs/quickstart 000012-lost-rollout-0               who waits for whom, and what to try
  rlsys incidents runs/quickstart --bundle report.tar.gz              the newest one, to attach to a bug report
  rlsys incidents runs/quickstart --now                               stacks and logs of a run in progress that hangs

Values of keys, tokens and passwords, home folders and this host's name are taken out. Texts of tasks can stand in logs.
"""
WIDE = 110  # characters of the text in a list


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dir", metavar="RUN_DIR", type=Path, help="a run directory, of a run that is over or in progress"
    )
    parser.add_argument("id", metavar="ID", nargs="?", help="name of an incident, or its beginning (default: list all)")
    parser.add_argument("--bundle", metavar="F.tar.gz", type=Path, help="write one archive of ID, or of the newest")
    parser.add_argument("--now", action="store_true", help="collect from a run in progress, from outside")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    where: Path = options.run_dir
    if not (where / "config.yaml").is_file():
        raise BadInput("no run directory", key="RUN_DIR", found=str(where), expected="a folder with a config.yaml")
    if options.now and options.id is not None:
        raise BadInput("--now makes a new one", key="ID", found=options.id, expected="--now alone")
    with files_or_bad_input():
        name = collect_now(where).name if options.now else options.id
        if options.bundle is not None:
            return _bundle(where, name, options.bundle)
        if name is not None:
            folder = find_folder(where, name)
            print(visible_lines((folder / PARAGRAPH).read_text(errors="replace")))
            print(f"folder: {folder}")
            return 0
        incidents = read_all(where)
    if not incidents and not options.json:
        print(f"no incident in {visible(str(where))}")
    for folder, facts in incidents:
        print(json.dumps(as_json(folder, facts)) if options.json else line(folder, facts))
    return 0


def _bundle(where: Path, name: str | None, target: Path) -> int:
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise BadInput(key="--bundle", found=str(target), expected="a name that ends in .tar.gz")
    folder = find_folder(where, name)
    size = write_bundle(folder, target, hider_of(where))
    print(f"{target}: {folder.name}, {size / 1e3:.0f} kB; look into it before you send it")
    return 0


def line(folder: Path, facts: Facts | None) -> str:
    """`000012-lost-rollout-0  2026-11-23 23:01:02 UTC  rollout:0 stopped  rollout:0 is dead (..)`."""
    if facts is None:
        return f"{folder.name:<34} unreadable"
    times = f" ({facts.times} times)" if facts.times > 1 else ""
    suspect = culprit(facts)
    text = visible(facts.text.replace("\n", " "))
    return f"{folder.name:<34} {utc(facts.time)}{times}  {f'[{visible(suspect)}] ' if suspect else ''}{text[:WIDE]}"


def as_json(folder: Path, facts: Facts | None) -> dict[str, object]:
    return {"id": folder.name, "path": str(folder.absolute()), **(asdict(facts) if facts is not None else {})}
