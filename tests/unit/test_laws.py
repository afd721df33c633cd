"""docs/laws.md: the files and tests that it names exist, and what code and tests cite is on it."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "laws.md").read_text()
CITED = re.compile(r"\blaws? ([0-9]+)")


def sources() -> Iterator[Path]:
    for folder in ("actors", "benchmarks", "envs", "launch", "learners", "rlsys", "tests"):
        yield from (ROOT / folder).rglob("*.py")


def test_every_law_names_a_file_and_a_test_that_exist() -> None:
    laws = re.split(r"(?m)^[0-9]+\. ", PAGE)[1:]
    assert len(laws) == 12
    for law in laws:
        kept, _, held = law.partition("Held by")
        files = re.findall(r"`([a-z_]+/[a-z_/.]+)`", kept)
        tests = re.findall(r"`([a-z_/.]+)::(test_[a-z0-9_]+)`", held)
        assert files and tests, law
        for path in files:
            assert (ROOT / path).exists(), path
        for path, name in tests:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_what_cites_a_law_says_first_where_the_laws_stand() -> None:
    citing = 0
    for path in sources():
        text = path.read_text()
        if path == Path(__file__) or not (numbers := CITED.findall(text)):
            continue
        citing += 1
        assert all(1 <= int(number) <= 12 for number in numbers), path
        first = CITED.search(text)
        assert first is not None and "docs/laws.md" in text[: first.end() + 40], path
    assert citing
