"""`rlsys new world NAME`, `rlsys new reward NAME`: a folder with a recipe, a test and a README that run at once."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
from pathlib import Path

from rlsys.errors import BadInput

HELP = "create a folder of your own to start from: an environment with its reward, or a reward; recipe and test"
EXAMPLES = """examples:
  rlsys new world maze                                    makes ./maze
  rlsys play maze/maze.yaml                               write the model's messages yourself
  rlsys train maze/maze.yaml
  rlsys new reward brief                                  makes ./brief
  rlsys score brief/brief.yaml --input brief/answers.jsonl --explain
"""
TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
SUFFIX = ".template"
# What a template writes in the place of a name. No other word of a template holds them.
PACKAGE, CLASS = "PACKAGE", "NAME"
FIRST = {  # what is made: the command to try first, and the arguments that follow the recipe
    "world": ("play", ""),
    "reward": ("score", " --input {name}/answers.jsonl --explain"),
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="world|reward",
        choices=tuple(FIRST),
        help="world: an environment and its reward; reward: a reward alone",
    )
    parser.add_argument("name", metavar="NAME", help="folder and package name: small letters, digits, _")
    parser.add_argument("--output", metavar="DIR", default=".", help="parent folder (default: the current one)")


def run(options: argparse.Namespace) -> int:
    folder = make(options.what, options.name, Path(options.output))
    recipe = f"{options.name}/{options.name}.yaml"
    print(f"made {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    print(f"next, in {'this folder' if options.output == '.' else options.output}:")
    first, arguments = FIRST[options.what]
    first_command = f"rlsys {first} {recipe}{arguments.format(name=options.name)}"
    for command in (first_command, f"pytest {options.name}", f"rlsys train {recipe} --dry-run"):
        print(f"  {command}")
    return 0


def make(kind: str, name: str, parent: Path) -> Path:
    """The folder `parent/name` from the templates of `kind`. Raises BadInput, and touches nothing that is there."""
    check_name(name, parent)
    folder = parent / name
    pieces = "".join(part.capitalize() for part in name.split("_"))
    files = {
        path.name.removesuffix(SUFFIX).replace(PACKAGE, name): _fill_template(path, name, pieces)
        for path in sorted((TEMPLATES / kind).glob(f"*{SUFFIX}"))
    }
    try:
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise BadInput("is there already: choose another name, or --output", where=folder) from error
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", where=folder) from error
    return folder


def check_name(name: str, parent: Path) -> None:
    """Raises BadInput for a name that Python could not import, or would import from elsewhere."""
    plain = name.isascii() and name.isidentifier() and name == name.lower() and name[:1].isalpha()
    if not plain or keyword.iskeyword(name):
        raise BadInput(f"{name!r}", expected="a name that Python can import: small letters, digits and _")
    if not (parent / name).exists() and importlib.util.find_spec(name) is not None:
        raise BadInput(f"{name!r}: Python has a module of that name already, and would import that one")


def _fill_template(path: Path, name: str, pieces: str) -> str:
    return path.read_text(encoding="utf-8").replace(PACKAGE, name).replace(CLASS, pieces)
