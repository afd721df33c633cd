"""Every number in the pages that somebody measured stands beside the command that prints it."""

import ast
import importlib.util
import re

import pytest

from rlsys import OURS
from tests.paths import ROOT

OF_KEYS = {ROOT / "docs" / "configuration.md", ROOT / "docs" / "reference" / "cli.md"}  # their figures are chosen
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - OF_KEYS),
         *sorted((ROOT / "configs").rglob("*.md"))]  # fmt: skip
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
PARTS = {
    "coin.py",
    "report.py",
    "study.py",
    "usage.py",
    "http_load.py",
    "scripted.py",
}  # of other benchmarks: no command of their own
# A number with a unit of time, memory, speed or share.
FIGURE = re.compile(
    r"(?<![\w.])\d[\d,.]*\s?(?:%|(?:ms|s|us|µs|minutes?|seconds?|MiB|GiB|MB|GB|GFLOP/s|tokens/s)\b|per second\b)"
)
# Commands that run, draw or compare, as a reader types them.
RUNS = "train|eval|compare|generate|analyse|score|serve|index|data|judge-errors|plan"
MAKES = "quickstart|test|unit|slow|gpu|setup"
COMMAND = re.compile(
    r"`buildah images`|"
    rf"benchmarks/\w+\.py|(?:^|`)make (?:{MAKES})\b|(?:^|[`$ ]|&& )rlsys (?:{RUNS}) [\w./-]|tests/[\w/]+\.py|`pytest ",
    re.M,
)
# Sections whose figures are settings and limits, which somebody chose, or a paper's own: nobody here measured them.
CHOSEN = {
    "configs/icrl/README.md": {"## The paper next to ours"},
    "configs/long_cot/README.md": {"## The paper's results, and ours", "## Hours and memory"},
    "docs/how-to/containers.md": {"## Run"},
    "docs/how-to/kubernetes.md": {"## Before the first run", "## One run", "## Sizes", "## When a pod is evicted"},
    "docs/how-to/slurm.md": {"## Options", "## What happens at which signal", "## When it fails"},
    "docs/tutorials/first-hour-on-a-cluster.md": {"## Stop it, and continue"},
    "docs/environments/writing.md": {"## A failure is not a zero"},
    "docs/how-to/read-a-report.md": {"### Did it learn?", "### May it be trusted?", "### What should I do?"},
    "docs/how-to/incidents.md": {"## An example", "## What begins one", "## What is in it"},
    "docs/how-to/check-a-cluster.md": {"## The checks"},
    "docs/how-to/submit-a-job.md": {"## What happens"},
    "docs/judge.md": {"## How often it is wrong", "## The service"},
    "docs/run-directory.md": {"## Health"},
    "docs/retriever.md": {"## The wire"},
    "docs/rewards/maths.md": {"# Comparing mathematical answers"},
    "docs/sandbox.md": {"# The Python tool's sandbox", "## How it works", "## What it does not protect against"},
    "docs/tools.md": {"## Guard"},
}


def sections(text: str) -> list[str]:
    return [part for part in re.split(r"(?m)^(?=#{1,4} )", text) if part.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_section_with_figures_names_the_command_that_prints_them(page) -> None:  # type: ignore[no-untyped-def]
    exempt = CHOSEN.get(str(page.relative_to(ROOT)), set())
    for section in sections(page.read_text()):
        head, prose = section.splitlines()[0], re.sub(r"(?s)```.*?```", "", section)
        if head not in exempt and (figures := FIGURE.findall(prose)):
            assert COMMAND.search(section), f"{head}: {figures[:4]} and no command"


def test_the_list_of_chosen_figures_is_current() -> None:
    for page, heads in CHOSEN.items():
        assert heads <= {section.splitlines()[0] for section in sections((ROOT / page).read_text())}, page


@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda script: str(script.name))
def test_every_benchmark_has_a_command_on_the_page_and_writes_json(script) -> None:  # type: ignore[no-untyped-def]
    if script.name in PARTS:
        return
    assert f"python benchmarks/{script.name}" in (ROOT / "docs" / "measurements.md").read_text()
    imported = {name.name for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)
                and node.module in ("report", "benchmarks.report") for name in node.names}  # fmt: skip
    shared = {"Report"} if "study.main(" in script.read_text() else {"Report", "parser"}
    assert shared <= imported, "it has an output of its own"


@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda script: str(script.name))
def test_what_a_benchmark_imports_is_there(script) -> None:  # type: ignore[no-untyped-def]
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}"), name.name


@pytest.mark.parametrize("text", ["in 12 s", "1,693 tokens/s", "24.0 %", "3.5 MiB", "0.91 seconds"])
def test_what_counts_as_a_figure(text: str) -> None:
    assert FIGURE.search(text)


@pytest.mark.parametrize("text", ["Qwen2.5s", "v1.2 s", "25 steps", "section 4", "2x"])
def test_what_does_not(text: str) -> None:
    assert not FIGURE.search(text)


@pytest.mark.parametrize("text", ["what rlsys has measured", "`rlsys play`", "rlsys train", "make of it"])
def test_words_that_are_no_command(text: str) -> None:
    assert not COMMAND.search(text)


@pytest.mark.parametrize(
    "text", ["`rlsys train icrl/tiny`", "rlsys compare a.json", "`make test`", "python benchmarks/fuzz.py"]
)
def test_words_that_are_one(text: str) -> None:
    assert COMMAND.search(text)
