"""Each of the eighty rows of docs/papers.md has a command that rlsys takes and a test that there is.

tests/unit/test_pages.py tries the words of its commands; tests/e2e/test_papers_commands.py runs them dry.
"""

from __future__ import annotations

from tests.papers_page import collected_in, rows


def test_every_row_has_a_command_and_a_test() -> None:
    table = rows()
    assert [row.number for row in table] == list(range(1, 81))
    assert [row.number for row in table if not row.commands] == []
    assert [row.number for row in table if not row.tests] == []


def test_every_named_test_is_one_that_pytest_collects() -> None:
    tests = {test for row in rows() for test in row.tests}
    assert {f"{file}::{name}" for file, name in tests if name not in collected_in(file)} == set()
