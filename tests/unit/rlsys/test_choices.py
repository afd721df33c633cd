"""rlsys.choices: a name of the table, or a class elsewhere by dotted path; one clear line for everything else."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsys import choices
from rlsys.choices import choose, construct
from rlsys.errors import BadInput
from tests.refused import refused


@dataclass(frozen=True, kw_only=True)
class Config:
    name: str = "table"


def built(config: Config) -> str:
    return f"built from {config.name}"


TABLE = dict.fromkeys(("table", "tablet"), f"{__name__}.built")
ELSEWHERE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True, kw_only=True)
class ChairConfig:
    name: str = "chairs.Chair"
    legs: int = 4

@dataclass
class Nameless:
    legs: int = 4

class Chair:
    def __init__(self, config: ChairConfig) -> None:
        self.legs = config.legs

def stool(config: ChairConfig) -> str:
    return "a stool"

class NoArgument:
    def __init__(self) -> None: ...

class TwoArguments:
    def __init__(self, config: ChairConfig, more: int) -> None: ...

class Bare:
    def __init__(self, config) -> None: ...

class OfNameless:
    def __init__(self, config: Nameless) -> None: ...

WOOD = "oak"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module that nothing else can see."""
    (tmp_path / "chairs.py").write_text(ELSEWHERE)
    (tmp_path / "raises.py").write_text("print(undefined)")
    (tmp_path / "unfinished.py").write_text("class Chair(")
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "kitchen.py").write_text(ELSEWHERE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for module in ("chairs", "house", "house.kitchen"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


def test_a_name_of_the_table_is_its_entry() -> None:
    choice = choose("env", TABLE, "table")
    assert (choice.schema, choice.build) == (Config, built)
    assert construct("env", TABLE, Config(name="tablet")) == "built from tablet"


@pytest.mark.parametrize("module", ["chairs", "house.kitchen"])
def test_a_dotted_path_is_imported_from_the_working_folder(folder: Path, module: str) -> None:
    choice = choose("env", TABLE, f"{module}.Chair")
    schema, chair = choice.schema, choice.build
    assert schema.__name__ == "ChairConfig"
    assert chair(schema(legs=3)).legs == 3
    assert choose("env", TABLE, f"{module}.Chair") == choice  # the same class, however often
    assert construct("env", TABLE, schema(name=f"{module}.stool")) == "a stool"


def test_the_working_folder_shadows_nothing(folder: Path) -> None:
    (folder / "json.py").write_text("raise RuntimeError('the wrong json')")
    with refused("env.name", found="json.Chair"):
        choose("env", TABLE, "json.Chair")
    assert sys.path[-1] == str(folder)
    choose("env", TABLE, "chairs.Chair")
    assert sys.path.count(str(folder)) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tabel", r"env\.name='tabel': expected one of table, tablet, or module\.Class \(did you mean 'table'\?\)"),
        ("zzz", r"env\.name='zzz': expected one of table, tablet, or module\.Class$"),
        ("nowhere.Chair", "No module named 'nowhere', expected module.Class, importable from /"),
        ("envs.maze.Maze", "expected envs to be the package of rlsys: give a folder of your own another name"),
        ("chairs.Sofa", "no attribute 'Sofa', expected module.Class, importable from /"),
        ("chairs.", "expected module.Class"),
        ("chairs..Chair", "expected module.Class"),
        ("chairs.WOOD", "expected module.Class"),
        ("raises.Chair", "NameError: .*, expected module.Class"),
        ("unfinished.Chair", "SyntaxError: .*, expected module.Class"),
        (".chairs", "expected module.Class"),
        ("..Chair", "expected module.Class"),
        ("builtins.int", "expected"),
        ("chairs.NoArgument", "expected a class that takes one argument"),
        ("chairs.TwoArguments", "expected a class that takes one argument"),
        ("chairs.Bare", "annotated with a config dataclass"),
        ("chairs.OfNameless", "that has a field `name`"),
        ("chairs.ChairConfig", "expected a class that takes one argument"),
    ],
)
def test_what_cannot_be_used_is_one_line(folder: Path, name: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected) as caught:
        choose("env", TABLE, name)
    assert "\n" not in str(caught.value)


@given(st.text(st.characters(exclude_characters=".")))
def test_any_name_without_a_dot_is_found_or_refused(name: str) -> None:
    try:
        assert choose("env", TABLE, name).schema is Config
    except BadInput as error:
        assert str(error).startswith("env.name=")


def test_a_class_is_looked_for_beside_its_recipe_or_beside_the_package_that_holds_both(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "search_paths", {})
    (tmp_path / "mazes").mkdir()
    (tmp_path / "mazes" / "__init__.py").touch()
    choices.add_search_paths(tmp_path / "mazes" / "maze.yaml")
    choices.add_search_paths(tmp_path / "plain.yaml")
    assert list(choices.search_paths) == [str(tmp_path)]


def test_a_working_folder_that_goes_under_a_run_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(choices, "search_paths", {str(tmp_path): None})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert choices.custom_folders() == [str(tmp_path)]
    with refused("env.name", expected="module.Class, importable"):
        choose("env", TABLE, "no_such_module.World")
