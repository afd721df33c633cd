"""Imports go one way: rlsys <- envs <- actors, learners <- launch. Read from the source, so nothing heavy is loaded."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("rlsys", "envs", "actors", "learners", "launch")
SEES = {  # the packages of ours that each may import, besides itself
    "rlsys": set(),
    "envs": {"rlsys"},
    "actors": {"rlsys", "envs"},
    "learners": {"rlsys", "envs"},
    "launch": {"rlsys", "envs", "actors", "learners"},
}
ROOMS = {  # of launch: the packages that each may import, besides itself
    "run_dir": set(),
    "checks": set(),
    "data": set(),
    "driver": {"run_dir", "checks"},
    "config": {"driver", "checks"},
    "tools": {"config", "driver", "run_dir", "checks", "data"},
    "commands": {"tools", "config", "driver", "run_dir", "checks", "data"},
    "cli": {"commands", "driver", "data"},
    "stages": {"driver"},  # an old name
    "__main__": {"cli"},
}
INSIDE = {  # the same of the packages that they are made of
    "driver": {
        "checkpoints": set(),
        "observe": set(),
        "incidents": {"observe"},
        "run": {"checkpoints", "observe", "incidents"},
        "evaluation": {"checkpoints", "observe", "incidents", "run"},
        "stages": {"checkpoints", "observe", "incidents", "run", "evaluation"},
    },
    "tools": {
        "plan": set(),
        "report": {"plan"},
        "audit": set(),
        "chaos": {"audit"},
        "score": set(),
        "submit": set(),
        "doctor": set(),
        "analysis": set(),
    },
}
CORE_MAY_IMPORT = {"rlsys", "numpy", "torch", "omegaconf"}
WEIGHTS = "rlsys/system/weight_folder.py"  # learners write and engines read it: both ends of one format, safetensors
ENVS_MAY_NOT_IMPORT = {"ray", "vllm", "deepspeed", "transformers"}
ENCODER = (
    "envs/services/retriever/encoder.py"  # a model of its own: not the policy's, whose tokens only the renderer knows
)


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, first part of the module's name) of every absolute import, wherever it stands, also by a constant name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.split(".")[0]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value.split(".")[0]


# The rooms of envs, lowest first: none imports one above it, so that no two import each other.
ENV_ROOMS = (
    "text",
    "tasks",
    "services",
    "base",
    "framed",
    "mixture",
    "protocols",
    "problems",
    "tools",
    "agents",
    "rewards",
    "episode",
    "worlds",
    "papers",
)


SEEN = ast.Import | ast.ImportFrom | ast.Call | ast.If


@lru_cache(1024)
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """What imports in a file, and every `if`: walking over all of its tree takes longer than parsing it."""
    gc.disable()  # CPython 3.11 can fail to parse when a collection in the middle of it runs other code
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return tuple(node for node in ast.walk(tree) if isinstance(node, SEEN))
    finally:
        gc.enable()


def rooms_imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, room of envs) of every import, also under TYPE_CHECKING and inside functions."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("envs."):
            yield node.lineno, node.module.split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "envs":
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("envs.")]
            yield from ((node.lineno, name.split(".")[1]) for name in names)


@lru_cache
def imports_of(folder: str) -> list[tuple[str, str, str]]:
    """(file, file:line, imported package) of every import below a top-level folder."""
    imports = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for line, name in imported_names(nodes_of(path)):
            imports.append((file, f"{file}:{line}", name))
    return imports


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    forbidden = set(PACKAGES) - SEES[package] - {package}
    assert [f"{where} imports {name}" for _, where, name in imports_of(package) if name in forbidden] == []


@lru_cache
def modules_imported(package: str) -> Mapping[str, frozenset[str]]:
    """Modules, and those of the same package that each imports, wherever that stands."""
    files = {path.relative_to(ROOT).with_suffix(""): nodes_of(path) for path in files_of(package)}
    modules = {".".join(path.parts) for path in files}
    imports: dict[str, frozenset[str]] = {}
    for path, nodes in files.items():
        names = {name for node in nodes for name in named_in(node, path.parts)}
        imports[".".join(path.parts)] = frozenset((names | {f"{name}.__init__" for name in names}) & modules)
    return imports


def files_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def named_in(node: ast.AST, importer: tuple[str, ...]) -> set[str]:
    """What an import statement in the module `importer` may mean: modules, packages, and names in them."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    above = ".".join(importer[: -node.level]) if node.level else ""
    module = ".".join(part for part in (above, node.module) if part)
    return {module, *(f"{module}.{alias.name}" for alias in node.names)}


def test_the_rooms_of_launch_see_only_what_is_below_them() -> None:
    upwards = []
    for name, deps in modules_imported("launch").items():
        for dep in deps:
            (room, inner, *_), (target, inside, *_) = (f"{module}.".split(".")[1:] for module in (name, dep))
            allowed = ROOMS[room] | {room} if room != target else INSIDE.get(room, {}).get(inner, set()) | {inner}
            if (target if room != target else inside) not in allowed and (room != target or room in INSIDE):
                upwards.append((name, dep))
    assert upwards == []


@pytest.mark.parametrize("tool", ["report", "audit", "analysis"])
def test_what_reads_run_directories_knows_no_recipe_and_no_stage(tool: str) -> None:
    """So that it imports nothing that a run names."""
    graph = {
        name: deps for name, deps in modules_imported("launch").items() if name.startswith(f"launch.tools.{tool}.")
    }
    banned = ("launch.config.", "launch.driver.stages.")
    assert graph and [(name, dep) for name, deps in graph.items() for dep in deps if dep.startswith(banned)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_one_that_imports_it(package: str) -> None:
    """Inside functions and under TYPE_CHECKING too: of any two files, one can be read without the other."""
    imports = modules_imported(package)
    graph = {name: deps - {name} for name, deps in imports.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


HIDDEN = 58  # imports of our own packages inside functions: a start without a heavy library is worth some, not many


def imports_in_functions(path: Path) -> list[int]:
    """Lines on which something of ours is imported, but for those at the top and under `if TYPE_CHECKING`."""
    nodes = nodes_of(path)
    annotations = {
        inner for node in nodes if isinstance(node, ast.If) and not node.col_offset for inner in ast.walk(node)
    }
    nested = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset]
    ours = [node for node in nested if any(name in PACKAGES for _, name in imported_names([node]))]
    return [node.lineno for node in ours if node not in annotations]


def has_reason(lines: Sequence[str], line: int) -> bool:
    """A comment on the line, or on the first of the imports that it stands among, or above them."""
    while "#" not in lines[line - 1] and lines[line - 2].split()[:1] in (["from"], ["import"]):
        line -= 1
    return "#" in lines[line - 1] or "#" in lines[line - 2]


def test_few_imports_of_our_own_stand_in_functions_and_each_says_why() -> None:
    paths = [path for package in PACKAGES for path in files_of(package)]
    imports = [(path, line) for path in paths for line in imports_in_functions(path)]
    assert len(imports) <= HIDDEN
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path, _ in imports}
    assert [f"{path}:{line}" for path, line in imports if not has_reason(lines[path], line)] == []


def test_all_ways_to_import_are_seen() -> None:
    assert "launch.driver.stages.base" in modules_imported("launch")["launch.driver.stages.rl"]
    importer = ("envs", "tools", "sandbox", "jail", "runner")
    means = {
        "from .view import see": "envs.tools.sandbox.jail.view",
        "from . import view": "envs.tools.sandbox.jail.view",
        "from ..pool import Pool": "envs.tools.sandbox.pool",
        "from envs import text": "envs.text",
        "import envs.text": "envs.text",
    }
    assert all(module in named_in(ast.parse(text).body[0], importer) for text, module in means.items())


def test_the_core_imports_torch_numpy_and_omegaconf_at_most() -> None:
    allowed = CORE_MAY_IMPORT | sys.stdlib_module_names
    imports = {(file, name) for file, _, name in imports_of("rlsys") if name not in allowed}
    assert imports <= {(WEIGHTS, "safetensors")}


def test_environments_know_no_ray_no_engine_and_no_learner() -> None:
    imports = {(file, name) for file, _, name in imports_of("envs") if name in ENVS_MAY_NOT_IMPORT}
    assert imports <= {(ENCODER, "transformers")}


def test_rooms_of_envs_import_only_what_is_below_them() -> None:
    upwards = []
    for path in sorted((ROOT / "envs").rglob("*.py")):
        room = path.relative_to(ROOT / "envs").parts[0].removesuffix(".py")
        if room == "__init__":  # the tables: above all rooms
            continue
        assert room in ENV_ROOMS, f"{path}: a room without a place in the order"
        above = [(line, dep) for line, dep in rooms_imported(path) if ENV_ROOMS.index(dep) > ENV_ROOMS.index(room)]
        upwards += [f"{path.relative_to(ROOT)}:{line} imports envs.{dep}" for line, dep in above]
    assert upwards == []


def test_no_paper_imports_another() -> None:
    papers = {
        name: {dep.split(".")[2] for dep in deps if dep.startswith("envs.papers.")} - {name.split(".")[2], "__init__"}
        for name, deps in modules_imported("envs").items()
        if name.startswith("envs.papers.")
    }
    assert {name: others for name, others in papers.items() if others} == {}


def test_no_two_folders_of_envs_import_each_other() -> None:
    """At any depth: envs/services/judge and envs/services/retriever are folders too."""
    graph: dict[str, set[str]] = {}
    for path in sorted((ROOT / "envs").rglob("*.py")):
        folder = ".".join(path.relative_to(ROOT).parent.parts)
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("envs"):
                place = ROOT.joinpath(*node.module.split("."))
                graph.setdefault(folder, set()).add(node.module if place.is_dir() else node.module.rpartition(".")[0])
    cycles = {
        tuple(sorted((a, b)))
        for a, deps in graph.items()
        for b in deps
        if a != b and a in graph.get(b, ()) and not (a.startswith(f"{b}.") or b.startswith(f"{a}."))
    }
    assert cycles == set()


def test_algorithms_are_torch_only() -> None:
    allowed = CORE_MAY_IMPORT | {"learners"} | sys.stdlib_module_names
    wrong = [f"{where} imports {name}" for _, where, name in imports_of("learners/algorithms") if name not in allowed]
    assert wrong == []


def test_only_the_learner_imports_deepspeed() -> None:
    wrong = [
        f"{where} imports deepspeed"
        for package in PACKAGES
        if package != "learners"
        for _, where, name in imports_of(package)
        if name == "deepspeed"
    ]
    assert wrong == []


# The last runs in vLLM's own processes.
ENGINE = ("actors/engine.py", "actors/engine_arguments.py", "actors/engine_worker.py")


def test_only_the_engine_imports_vllm() -> None:
    wrong = [
        f"{where} imports vllm"
        for package in PACKAGES
        for file, where, name in imports_of(package)
        if name == "vllm" and file not in ENGINE
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", [*PACKAGES, "benchmarks"])
def test_nothing_but_tests_imports_tests(folder: str) -> None:
    assert [f"{where} imports tests" for _, where, name in imports_of(folder) if name == "tests"] == []


def test_hidden_and_late_imports_are_seen_too() -> None:
    lines = [
        "def f():",
        "    import vllm.x",
        "    from ray import get",
        "    importlib.import_module('deepspeed.ops')",
        "    from . import a",
    ]
    assert sorted(imported_names(ast.walk(ast.parse("\n".join(lines))))) == [(2, "vllm"), (3, "ray"), (4, "deepspeed")]


def test_every_package_was_found() -> None:
    assert [package for package in PACKAGES if not any((ROOT / package).glob("*.py"))] == []
