"""docs/papers.md: every file, test, key and command that it names exists, and no row is missing."""

import re

from launch.cli import COMMANDS
from launch.config.layers import CONFIGS
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "papers.md").read_text()
KEYS = (ROOT / "docs" / "configuration.md").read_text()
QUOTED = re.findall(r"`([^`]+)`", PAGE)
TESTS = [quoted for quoted in QUOTED if re.fullmatch(r"[a-z0-9_/]+\.py::test_\w+", quoted)]
COMMAND = [quoted.split() for quoted in QUOTED if quoted.startswith("rlsys ")]


def test_there_are_eighty_rows_and_each_is_seen_somehow() -> None:
    rows = re.findall(r"(?m)^\| (\d+) \|(.*)\|$", PAGE)
    assert [int(number) for number, _ in rows] == list(range(1, 81))
    for number, row in rows:
        seen = row.rpartition("|")[2]
        assert "`" in seen, number


def test_the_files_exist() -> None:
    files = [quoted for quoted in QUOTED if "/" in quoted and re.fullmatch(r"[\w/.-]+(\.py|\.yaml|/)", quoted)]
    missing = [file for file in files if not (ROOT / file).exists() and not (ROOT / "tests" / file).exists()]
    missing += [file for file in re.findall(r"benchmarks/\w+\.py", PAGE) if not (ROOT / file).exists()]
    assert len(files) > 60 and missing == []


def test_the_tests_exist() -> None:
    missing = []
    for quoted in TESTS:
        file, _, name = quoted.partition("::")
        path = ROOT / "tests" / file
        if not path.is_file() or f"def {name}(" not in path.read_text():
            missing.append(quoted)
    assert len(TESTS) > 60 and missing == []


def test_the_commands_and_their_configurations_exist() -> None:
    unknown = [words for words in COMMAND if words[1] not in COMMANDS]
    named = [words[2] for words in COMMAND if words[1] in ("train", "eval") and words[2][0].islower()]
    missing = [
        name for name in named if not any((CONFIGS / f).is_file() for f in (f"{name}.yaml", f"{name}/paper.yaml"))
    ]
    assert COMMAND and unknown == [] and missing == []


def test_the_figures_that_are_asked_for_exist() -> None:
    from launch.analysis.figures import FIGURES

    asked = [name for found in re.findall(r"--figures ([a-z,]+)", PAGE) for name in found.split(",")]
    assert asked and set(asked) <= set(FIGURES)


def test_the_keys_exist() -> None:
    sections = (
        "window|verdicts|model|env|reward|algorithm|engine|rollout|learner|loop|eval|generate|checkpoint|curriculum"
    )
    named = {key for quoted in QUOTED for key in re.findall(rf"\b((?:{sections})(?:\.[a-z_]+)+)\b(?!\()", quoted)}
    named = {key for key in named if not key.endswith((".py", ".yaml"))}
    unknown = [key for key in named if f"`{key}`" not in KEYS]
    assert named and unknown == []
