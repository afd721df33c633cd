"""The journal proves that each prompt was trained once, in the lineage of the weights that survive."""

import random
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlsys.errors import BadInput
from rlsys.journal import (
    PROMPTS,
    Begin,
    Dispatched,
    Finished,
    Journal,
    Row,
    count_prompts,
    drop_later_outcomes,
    ledger,
    read_journal,
    read_surviving,
    split_late,
    surviving_rows,
)
from rlsys.seals import links
from tests.makers.made import ticket


def test_account_closes_over_outcomes_and_prompts_in_flight(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for sequence in range(5):
        journal.dispatch("rl", ticket(sequence))
    journal.dispatch("rl", ticket(3, attempt=1))  # a worker died under it
    for sequence, outcome in ((0, "trained"), (1, "filtered"), (2, "failed"), (3, "trained")):
        journal.outcome("rl", sequence, outcome, step=1)  # type: ignore[arg-type]
    journal.close()
    book = ledger(surviving_rows(read_journal(tmp_path / "journal.jsonl")))
    assert (book.dispatched, book.trained, book.filtered, book.failed, book.in_flight) == (5, 2, 1, 1, 1)
    assert book.problems == ()


def test_rows_of_several_threads_stand_in_the_order_of_their_chain(tmp_path: Path) -> None:
    """The thread that writes a checkpoint seals it while the loop goes on."""
    journal = Journal(tmp_path / "journal.jsonl")

    def write(thread: int) -> list[tuple[int, str]]:
        ends = []
        for number in range(200):
            journal.seal(f"{thread} {number}", "90ab")
            ends.append(journal.end())
            journal.commit()
        return ends

    with ThreadPoolExecutor(3) as threads:
        ends = [end for thread in threads.map(write, range(3)) for end in thread]
    journal.close()
    chain = list(links(journal.path.read_bytes().splitlines(keepends=True)))
    assert len(chain) == journal.mark == 601 and all(link.fits for link in chain)
    assert all(chain[mark - 1].chain == digest for mark, digest in ends)


def test_what_a_full_disk_refused_is_written_when_there_is_room(tmp_path: Path) -> None:
    """Half of a row was written: the rest of it follows, and the chain holds."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.dispatch("rl", ticket(0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 40, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.commit()
        journal.dispatch("rl", ticket(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.close()
    chain = list(links(journal.path.read_bytes().splitlines(keepends=True)))
    assert len(chain) == journal.mark == 3 and all(link.fits for link in chain)


def test_rows_after_the_checkpoint_are_void_in_the_next_lineage(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    first.dispatch("rl", ticket(0))
    first.outcome("rl", 0, "trained", step=1)
    mark = first.mark
    first.dispatch("rl", ticket(1))
    first.outcome("rl", 1, "trained", step=2)  # trained into weights that are lost
    first.close()
    second = Journal(path, keep=mark)
    second.dispatch("rl", ticket(1, attempt=1))
    second.outcome("rl", 1, "trained", step=2)
    second.close()
    assert second.lineage == 1
    book = ledger(surviving_rows(read_journal(path)))
    assert (book.dispatched, book.trained, book.problems) == (2, 2, ())
    assert len(read_journal(path)) == 8  # nothing is erased


def test_three_lineages_void_only_what_their_checkpoint_lacks(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    a = Journal(path)
    a.dispatch("rl", ticket(0))
    mark = a.mark
    a.close()
    b = Journal(path, keep=mark)
    b.outcome("rl", 0, "trained", step=1)
    b.close()
    c = Journal(path, keep=mark)  # b wrote no checkpoint: its training is lost too
    c.outcome("rl", 0, "trained", step=1)
    c.close()
    assert ledger(surviving_rows(read_journal(path))).problems == ()


def test_training_twice_or_a_task_twice_in_an_epoch_is_a_problem(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.dispatch("rl", ticket(0))
    journal.outcome("rl", 0, "trained", step=1)
    journal.outcome("rl", 0, "trained", step=2)
    journal.dispatch("rl", ticket(7, task=ticket(0).task))
    journal.outcome("rl", 9, "trained", step=2)
    journal.close()
    problems = ledger(surviving_rows(read_journal(tmp_path / "journal.jsonl"))).problems
    assert len(problems) == 4
    assert "without being dispatched" in problems[1]
    assert problems[3] == "rl: 6 sequences were skipped, the first is 1"


def test_a_row_torn_by_a_crash_is_cut_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.dispatch("rl", ticket(0))
    journal.close()
    with path.open("a") as file:
        file.write('{"event": "outcome", "sta')
    again = Journal(path)
    again.close()
    rows = read_journal(path)
    assert [type(row) for row in rows] == [Begin, Dispatched, Begin]
    assert rows[-1] == Begin(keep=2, torn_bytes=25, seals=1, lineage=1)


def test_a_journal_that_lost_rows_before_the_mark_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for sequence in range(3):
        journal.dispatch("rl", ticket(sequence))
    journal.close()
    mark, whole = journal.mark, path.read_bytes()
    for left in (b"", whole[: whole.index(b"\n") + 1], whole[:-10]):  # deleted, restored from a backup, torn
        path.write_bytes(left)
        with pytest.raises(BadInput, match=rf"journal.jsonl: it has \d rows, and .* after {mark}: restore"):
            Journal(path, keep=mark)
        assert path.read_bytes() == left
    path.write_bytes(whole)
    Journal(path, keep=mark).close()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("garbage", "not JSON"),
        ("\0\0", "not JSON"),
        ("[]", "a list"),
        ('{"a": 1}', "no row of a journal: event is null"),
        ('{"event": ["begin"]}', "no row of a journal: event is a list"),
        ('{"event": "begin", "lineage": 1}', "no row of a journal: keep is nothing"),
        ('{"event": "begin", "keep": "x"}', "no row of a journal: keep is a text"),
        ('{"event": "dispatch", "stage": 4}', "no row of a journal: stage is a"),
        ('{"event": "later", "lineage": null}', "no row of a journal: lineage is null"),
    ],
)
def test_a_damaged_row_is_named_by_its_line(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.dispatch("rl", ticket(0))
    journal.close()
    whole = path.read_text()
    for number, damaged in ((1, line + "\n" + whole), (3, whole + line + "\n")):
        path.write_text(damaged)
        with pytest.raises(BadInput, match=rf"journal.jsonl line {number}: {found}"):
            Journal(path, keep=1)
        assert path.read_text() == damaged


def test_an_event_of_a_later_version_counts_as_a_row(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event": "begin", "keep": 0, "lineage": 0}\n{"event": "later", "lineage": 0, "stage": 7}\n')
    assert Journal(path, keep=2).mark == 3


def test_the_account_of_a_killed_run_is_read_without_its_torn_row(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).close()
    with path.open("a") as file:
        file.write('{"event": "outcome", "sta')
    assert [type(row) for row in read_journal(path)] == [Begin]


def test_going_back_voids_what_a_resume_would_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.dispatch("rl", ticket(0))
    mark = journal.mark
    journal.outcome("rl", 0, "trained", step=1)
    monkeypatch.setattr("rlsys.journal.read_row", None)  # of a long journal it takes seconds
    journal.go_back(mark)
    monkeypatch.undo()
    journal.outcome("rl", 0, "filtered", step=1)
    journal.close()
    rows = read_journal(tmp_path / "journal.jsonl")
    assert rows[3] == Begin(keep=mark, seals=1, lineage=1) and journal.mark == len(rows)
    book = ledger(surviving_rows(rows))
    assert (book.trained, book.filtered, book.problems) == (0, 1, ())
    assert Journal(tmp_path / "journal.jsonl").lineage == 2


@pytest.mark.parametrize(
    "row",
    [
        '{"event": "later"}',
        '{"event": "begin", "keep": 0}',
        '{"event": "dispatch", "stage": "rl", "sequence": 0, "attempt": 0, "epoch": 0, "task": "t", "version": 0}',
        '{"event": "outcome", "stage": "rl", "sequence": 0, "outcome": "trained", "step": 0}',
        '{"event": "publish", "version": 0, "step": 0}',
        '{"event": "health", "stage": "rl", "step": 0, "says": "slow"}',
    ],
)
def test_a_row_without_a_lineage_is_of_the_first(tmp_path: Path, row: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{row}\n")
    assert read_journal(path)[0].lineage == 0
    assert Journal(path).lineage == 1


def test_a_step_has_the_outcomes_of_the_process_that_took_it() -> None:
    """Those that another one added to it are apart, also where a step of its own follows."""
    rows = [
        Finished(stage="rl", sequence=sequence, outcome="filtered", step=step, lineage=lineage)
        for sequence, step, lineage in ((0, 1, 0), (1, 2, 0), (2, 2, 0), (3, 2, 2), (4, 3, 2))
    ]
    own, late = split_late([Begin(keep=0), *rows])
    assert ([row.sequence for row in own], [row.sequence for row in late]) == ([0, 1, 2, 4], [3])


@pytest.mark.parametrize("seed", range(8))
def test_a_long_journal_is_summed_up_as_its_ledger_says(tmp_path: Path, seed: int) -> None:
    """Over several processes, each of which goes on from some row of those before it."""
    draw, path = random.Random(seed), tmp_path / "journal.jsonl"
    marks, step = [0], 0
    for _ in range(4):
        journal = Journal(path, keep=draw.choice(marks))
        for sequence in range(draw.randrange(30)):
            journal.dispatch(draw.choice(["sft", "rl"]), ticket(sequence))
            if draw.random() < 0.7:
                step = draw.randrange(5)
                known = {(row.stage, row.sequence) for row in _written(journal) if isinstance(row, Dispatched)}
                if known:
                    stage, ended = draw.choice(sorted(known))
                    journal.outcome(stage, ended, draw.choice(["trained", "filtered", "failed"]), step=step)
            marks.append(journal.mark)
        journal.close()
    with path.open("a") as file:
        file.write('{"event": "outcome", "sta')
    rows = surviving_rows(read_journal(path))
    assert list(read_surviving(path)) == rows
    for until in range(6):
        book = ledger(drop_later_outcomes(rows, until))
        assert count_prompts(path, until) == {name: getattr(book, name) for name in PROMPTS}


def _written(journal: Journal) -> list[Row]:
    journal.commit()
    return surviving_rows(read_journal(journal.path))


def test_a_number_that_no_prompt_can_have_takes_no_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.dispatch("rl", ticket(0))
    journal.dispatch("rl", ticket(10**15))
    journal.close()
    assert count_prompts(tmp_path / "journal.jsonl", 1)["dispatched"] == 1
