"""An audit finds every line, row and byte that is not what the run wrote, and nothing in a run that was killed."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run as rlsys
from launch.config.compose import to_yaml
from launch.driver.checkpoints.proof import GONE
from launch.driver.run.rundir import RunDir
from launch.tools.audit import files
from launch.tools.audit.at_end import audit_lines
from launch.tools.audit.files import read_run
from launch.tools.audit.lengths import compare_lengths
from launch.tools.audit.properties import audit
from launch.tools.audit.property import Property
from rlsys.errors import RunFailed
from rlsys.files import REMOVED
from rlsys.journal import Journal, ledger, read_journal, surviving_rows
from rlsys.seals import append_chain_digest, digest_of, links, with_own_digest
from tests.makers.made import records
from tests.makers.run_directory import run_directory, seal_again
from tests.paths import ROOT
from tests.unit.launch.driver.stages.test_rl import play

SEALED = ("journal.jsonl", "metrics.jsonl", "evaluations.jsonl", "trajectories/*.jsonl", "evaluations/*.json")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped twice, lost a node with groups on it, and was finished."""
    folder = tmp_path_factory.mktemp("audited")
    for step in (5, 8):
        on_row = lambda run, row, step=step: run.tasks.stop.set() if row["step"] == step else None  # noqa: E731
        leave_summary(folder / "run", play(folder, on_row=on_row).summary)
    outcome = play(folder, losing={40, 41})
    directory = RunDir(folder / "run")
    directory.write("config.yaml", to_yaml(outcome.run.config))
    seal_again(folder / "run", "config.yaml", digest_of(to_yaml(outcome.run.config).encode()))
    directory.close()
    leave_summary(folder / "run", outcome.summary)
    return folder / "run"


def leave_summary(run: Path, summary: dict[str, Any]) -> None:
    """As a run does at its end: the file, and the last row of the journal."""
    content = json.dumps(with_own_digest(summary))
    (run / "summary.json").write_text(content)
    seal_again(run, "summary.json", digest_of(content.encode()))


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "run"))


def broken(run: Path) -> dict[str, tuple[str, ...]]:
    return {check.name: check.offenders for check in audit(read_run(run)) if not check.holds}


def test_a_run_that_was_stopped_and_lost_groups_is_clean(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlsys(["audit", str(done)]) == 0
    out = capsys.readouterr().out
    assert "48 started = " in out and " 0 in flight, each once" in out and out.count("ok ") == 9
    assert rlsys(["audit", str(done), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["holds"] and not any(check["offenders"] for check in report["properties"].values())
    lineages = {row.lineage for row in read_journal(done / "journal.jsonl")}
    assert len(lineages) == 3 and ledger(surviving_rows(read_journal(done / "journal.jsonl"))).dispatched == 48


def sealed_files(run: Path) -> Iterator[Path]:
    for pattern in SEALED:
        paths = sorted(path for path in run.glob(pattern) if path.name != "index.jsonl")
        assert paths, pattern
        yield from paths


def change_byte(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(7)]) + content[at + 1 :]


def remove_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def repeat_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


@pytest.mark.parametrize("damage", [change_byte, remove_line, repeat_line])
def test_every_byte_and_every_line_counts(
    damage: Callable[[bytes, random.Random], bytes], done: Path, copied: Path
) -> None:
    rng = random.Random(3)
    for path in sealed_files(copied):
        whole = path.read_bytes()
        for _ in range(10 if path.parent == copied else 1):
            path.write_bytes(damage(whole, rng))
            assert broken(copied), path.name
        path.write_bytes(whole)
    assert not broken(copied)


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl"])
def test_lines_stand_in_the_order_of_their_steps(name: str, copied: Path) -> None:
    path = copied / name
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    assert "rows" in broken(copied)  # a resume would drop what stands behind a later step


@pytest.mark.parametrize(
    ("name", "of"), [("metrics.jsonl", "rows"), ("evaluations.jsonl", "rows"), ("journal.jsonl", "journal")]
)
def test_a_run_that_is_done_ends_with_whole_lines(name: str, of: str, copied: Path) -> None:
    with (copied / name).open("a") as file:
        file.write('{"step": 1')
    assert of in broken(copied)
    summary = json.loads((copied / "summary.json").read_text())
    (copied / "summary.json").write_text(json.dumps(with_own_digest(summary | {"status": "failed", "by": "parent"})))
    assert of not in broken(copied)


def test_a_folder_among_the_checkpoints_that_no_run_writes_is_named(copied: Path) -> None:
    for name in (".step-000014.tmp", "aside-step-000014", "aside1-step-000014"):
        (copied / "checkpoints" / name).mkdir()
    assert not broken(copied)
    shutil.copytree(copied / "checkpoints" / "step-000012", copied / "checkpoints" / "step-12")
    assert broken(copied) == {"checkpoints": ("checkpoints/step-12: not written by the run",)}


NOT_COVERED = {
    "trajectories/index.jsonl cut",
    "trajectories/index.jsonl removed",
    "checkpoint: the model card",
    "run.json: a value",
    "run.json removed",
    "events.jsonl: a row removed",
    "generated/: a line removed",
    "report.html: a bit",
    "checkpoint: tokens trained in driver.json, its digest made again",
}


def test_every_edit_of_the_table_is_found_but_those_that_the_page_names(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tamper, edits = importlib.import_module("tamper"), {}

    class Kept:
        def head(self, *columns: str) -> None: ...
        def note(self, sentence: str) -> None: ...
        def row(self, *cells: str) -> None:
            edits[cells[0]] = cells[1:]

    tamper.print_table(done, Kept())
    assert {name for name, (audit, _) in edits.items() if audit == "not covered"} <= NOT_COVERED
    assert len(edits) > 40
    weights = {name for name in edits if name.startswith("checkpoint: a bit of a weight")}
    assert len(weights) == 4 and all(edits[name][1] == "refused" for name in weights)
    page = (ROOT / "docs/how-to/audit-a-run.md").read_text()
    assert all(f"| {name} | not covered |" in page for name in NOT_COVERED & edits.keys())


def test_what_an_interrupted_removal_leaves_is_no_damage(copied: Path) -> None:
    oldest, *_ = sorted((copied / "checkpoints").glob("step-*"))
    gone = oldest.rename(oldest.with_name(f"{REMOVED}{oldest.name}"))
    assert broken(copied)["checkpoints"] == (f"checkpoints/{oldest.name} is missing",)  # no row says so
    seal_again(copied, f"checkpoints/{oldest.name}", GONE)
    (gone / "driver.json").unlink()
    offenders = broken(copied)
    assert "checkpoints" not in offenders
    gone.rename(oldest)
    shutil.rmtree(oldest)
    assert "checkpoints" not in broken(copied)


def test_checkpoints_of_before_the_seals_are_taken_as_they_are(copied: Path) -> None:
    """The same rows, by a process that has sealed neither checkpoints nor its summary."""
    path, unknown = copied / "journal.jsonl", ("checkpoints/", "summary.json")
    rows = records(path)
    rest = [row for row in rows if not str(row.get("name", "")).startswith(unknown)]
    chain_again(path, [{key: value for key, value in row.items() if key != "seals"} for row in rest])
    offenders = broken(copied)
    assert not {"checkpoints", "files"} & offenders.keys()
    (copied / "summary.json").unlink()
    assert "files" not in broken(copied)


def test_a_file_that_is_missing_is_named(copied: Path) -> None:
    (copied / "trajectories" / "step-000003.jsonl").unlink()
    assert "trajectories/step-000003.jsonl" in broken(copied)["files"][0]
    damaged = sorted((copied / "checkpoints").glob("step-*"))[-1] / "driver.json"
    damaged.write_text(damaged.read_text().replace('"mark"', '"mork"'))
    assert "driver.json" in broken(copied)["checkpoints"][0]


def test_files_that_cannot_be_read_are_named_and_end_no_audit(copied: Path) -> None:
    """Of a compressed one the middle; the state of a checkpoint; the summary; a bound that is gone."""
    plain = copied / "trajectories" / "step-000003.jsonl"
    packed = bytearray(gzip.compress(plain.read_bytes()))
    packed[len(packed) // 2 :: 2] = b"\xff" * len(packed[len(packed) // 2 :: 2])
    plain.with_name("step-000003.jsonl.gz").write_bytes(packed)
    plain.unlink()
    newest, *_ = copied.glob("checkpoints/step-*")
    (newest / "driver.json").write_text('{"mark": "many"}')
    (copied / "summary.json").write_text("")
    offenders = broken(copied)
    assert "step-000003.jsonl cannot be read (" in offenders["files"][-1] and "(None)" not in offenders["files"][-1]
    assert offenders["files"][0].startswith("summary.json") and "driver.json" in offenders["checkpoints"][0]
    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("max_policy_lag: 1", "max_policy_lag: much"))
    for which in range(12):
        edited(copied, "metrics.jsonl", lambda row: row.pop("lag/bound"), which=which)  # as of an earlier rlsys
    assert len(broken(copied)["lag"]) == 12


@pytest.mark.parametrize(
    ("keys", "value"),
    [(("eval", "after", "sampled"), 0.5), (("lag", "max"), 0), (("tokens", "generated"), 9999), (("steps",), 11)],
)
def test_a_summary_that_was_changed_is_found(copied: Path, keys: tuple[str, ...], value: float) -> None:
    assert set_key(copied, keys, value) != value
    assert broken(copied)["files"] == ("summary.json is not what was written",)


@pytest.mark.parametrize(
    ("keys", "value", "name"),
    [
        (("lag", "max"), 0, "lag"),
        (("tokens", "generated"), 12 * 16 - 1, "tokens"),
        (("prompts", "in_flight"), 1, "prompts"),
    ],
)
def test_a_summary_that_counts_otherwise_than_the_rows_is_found_without_its_digest(
    copied: Path, keys: tuple[str, ...], value: int, name: str
) -> None:
    set_key(copied, keys, value)
    edited(copied, "summary.json", lambda row: row.pop("sha256"))
    offenders = broken(copied)
    assert [offender.startswith("summary.json ") for offender in offenders[name]] == [True]
    assert offenders["files"] == ("summary.json is not what was written",)


def set_key(run: Path, keys: tuple[str, ...], value: float) -> Any:
    """In the summary. Returns what it was."""
    before: list[Any] = []

    def change(row: dict[str, Any]) -> None:
        for key in keys[:-1]:
            row = row[key]
        before.append(row[keys[-1]])
        row[keys[-1]] = value

    edited(run, "summary.json", change)
    return before[0]


def test_a_journal_without_rows_is_not_one_of_an_earlier_rlsys(copied: Path) -> None:
    (copied / "journal.jsonl").write_text("")
    checks = properties(copied, "journal", "files")
    assert not checks["journal"].holds and all("no rows" in check.says for check in checks.values())


def test_rows_that_are_missing_at_the_end_are_counted(copied: Path) -> None:
    path = copied / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    assert any("missing at the end: summary.json counts" in offender for offender in broken(copied)["journal"])
    (copied / "summary.json").unlink()  # as of a run that was killed: the checkpoint knows
    assert all("missing at the end: step-" in offender for offender in broken(copied)["journal"])


def edited(run: Path, name: str, change: Callable[[dict[str, Any]], None], which: int = -1) -> None:
    """A row of metrics, sealed as if the run had written it."""
    path = run / name
    rows = records(path)
    change(rows[which])
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def properties(run: Path, *names: str) -> dict[str, Property]:
    return {check.name: check for check in audit(read_run(run)) if check.name in names}


def test_tokens_that_are_nowhere_and_weights_that_are_too_old_are_found(copied: Path) -> None:
    edited(copied, "metrics.jsonl", lambda row: row.update({"tokens/generated": row["tokens/generated"] + 1}))
    edited(copied, "metrics.jsonl", lambda row: row.update({"lag/max": 2.0}), which=4)
    checks = properties(copied, "tokens", "lag")
    assert "step 12: 17 tokens were sampled, 16 have a fate" in checks["tokens"].offenders
    assert checks["lag"].offenders == (
        "step 5: 2 versions, by the journal at most 1",
        "step 5: 2 versions (loop.max_policy_lag=1)",
        "summary.json has a lag of 1 versions, the rows 2",
    )
    edited(copied, "metrics.jsonl", lambda row: row.update({"groups/trained": row["groups/trained"] - 1}), which=6)
    (offender,) = properties(copied, "prompts")["prompts"].offenders
    assert offender.startswith("step 7: its row counts")


def test_what_agents_told_again_is_said_of_their_runs_alone(copied: Path) -> None:
    assert "anew" not in properties(copied, "tokens")["tokens"].says
    edited(copied, "metrics.jsonl", lambda row: row.update({"env/retold_messages": 0.25, "episode/count": 8}))
    assert "2 messages of the assistant's tokenised anew" in properties(copied, "tokens")["tokens"].says


@pytest.mark.parametrize(
    ("event", "change", "says"),
    [
        ("outcome", None, "was started and never ended"),
        ("dispatch", None, "without being dispatched"),
        ("dispatch", {"task": "another"}, "task another of epoch"),
        ("outcome", {"outcome": "failed"}, "summary.json counts"),
        ("outcome", {"outcome": "failed"}, "step 12: its row counts"),
    ],
)
def test_a_prompt_that_was_lost_or_exchanged_is_found_in_a_journal_that_was_chained_again(
    copied: Path, event: str, change: dict[str, Any] | None, says: str
) -> None:
    """As a program would leave it that does not account for a prompt, and makes no mistake with its digests."""
    path = copied / "journal.jsonl"
    rows = records(path)
    survivors = surviving_rows(read_journal(path))
    last = max(at for at, row in enumerate(rows) if row["event"] == event and row["lineage"] == survivors[-1].lineage)
    rows[last : last + 1] = [] if change is None else [rows[last] | change]
    chain_again(path, rows)
    checks = properties(copied, "prompts", "epochs")
    assert any(says in offender for check in checks.values() for offender in check.offenders)


def chain_again(path: Path, rows: list[dict[str, Any]]) -> None:
    chain = ""
    with path.open("w") as file:
        for row in rows:
            line, chain = append_chain_digest(
                json.dumps({key: value for key, value in row.items() if key != "chain"}), chain
            )
            file.write(line + "\n")


def test_groups_that_were_started_with_older_weights_than_the_rows_say_are_found(copied: Path) -> None:
    path = copied / "journal.jsonl"
    rows = records(path)
    chain_again(path, [row | {"version": row["version"] - 5} if row["event"] == "dispatch" else row for row in rows])
    offenders = properties(copied, "lag")["lag"].offenders
    assert offenders and all("(loop.max_policy_lag=1)" in offender for offender in offenders)


def test_a_step_in_which_a_run_failed_is_in_no_number(tmp_path: Path) -> None:
    """Its prompts have outcomes, and no row of metrics."""

    def fail(run: Any, row: dict[str, Any]) -> None:
        if row["step"] == 5:
            path = run.dir.path / "metrics.jsonl"
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
            raise RunFailed("the disk is full")

    outcome = play(tmp_path, on_row=fail)
    assert isinstance(outcome.error, RunFailed) and outcome.summary["steps"] == 4
    run = tmp_path / "run"
    (run / "config.yaml").write_text(to_yaml(outcome.run.config))
    leave_summary(run, outcome.summary | {"status": "failed", "reason": "the disk"})
    assert read_run(run).is_over and not broken(run)


def test_a_journal_of_an_earlier_rlsys_is_accounted_for_and_continues_with_digests(copied: Path) -> None:
    path = copied / "journal.jsonl"
    rows = records(path)
    unknown = ("chain", "seals")
    plain = [{key: value for key, value in row.items() if key not in unknown} for row in rows if row["event"] != "seal"]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in plain))
    assert [link.chain for link in links(path.read_bytes().splitlines(keepends=True))] == [""] * len(plain)
    for file in copied.glob("checkpoints/*/driver.json"):
        shutil.rmtree(file.parent)
    edited(copied, "summary.json", lambda row: [row.pop(key) for key in ("journal", "sha256")])
    checks = audit(read_run(copied))
    assert all(check.holds for check in checks) and "no digests" in checks[0].says
    Journal(path).close()
    assert [link.fits for link in links(path.read_bytes().splitlines(keepends=True))] == [True] * (len(plain) + 1)


def test_lengths_differ_where_the_long_ones_are_dropped() -> None:
    rng = random.Random(1)
    played = [rng.lognormvariate(5.0, 1.0) for _ in range(600)]
    limit = sorted(played)[500]
    dropped = compare_lengths([n for n in played if n <= limit], [n for n in played if n > limit])
    assert dropped.p < 1e-9 and dropped.trained_mean < dropped.played_mean
    assert compare_lengths(played[:500], played[500:]).p > 0.01
    assert compare_lengths(played, []).p == 1.0
    with pytest.raises(ValueError, match="no episodes"):
        compare_lengths([], [])


def test_long_episodes_may_be_left_out_by_the_algorithm_and_not_by_failing(copied: Path) -> None:
    def change(episode: dict[str, Any], fails: bool) -> None:
        long = episode["sibling"] == 1
        episode |= {"num_tokens": 100 if long else 10, "truncated": long}
        episode |= {"failure": {"kind": "infra", "where": "", "detail": ""}} if long and fails else {}

    def change_all(fails: bool) -> None:
        for path in (copied / "trajectories").glob("step-*.jsonl"):
            episodes = records(path)
            for episode in episodes:
                change(episode, fails)
            path.write_text("".join(f"{json.dumps(episode)}\n" for episode in episodes))

    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("truncated: train", "truncated: mask"))
    change_all(fails=False)
    check = properties(copied, "lengths")["lengths"]
    assert check.holds and "algorithm.truncated=mask leaves out 48" in check.says
    change_all(fails=True)
    assert not properties(copied, "lengths")["lengths"].holds


def test_lengths_are_those_of_the_files_and_not_of_their_index(copied: Path) -> None:
    """Which has no digest: reports take lists from it."""
    before = properties(copied, "lengths")["lengths"].says
    index = copied / "trajectories" / "index.jsonl"
    rows = records(index)
    index.write_text("".join(f"{json.dumps(row | {'tokens': 1000, 'failure': None})}\n" for row in rows))
    assert properties(copied, "lengths")["lengths"].says == before
    index.unlink()
    assert properties(copied, "lengths")["lengths"].says == before


def test_an_audit_that_breaks_costs_a_run_no_end(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = audit_lines(copied, "runs/x")
    assert "hold" in line and "runs/x" in line
    monkeypatch.setattr("launch.tools.audit.at_end.audit", lambda *_, **__: {}["gone"])
    (line,) = audit_lines(copied, "runs/x")
    assert "gone" in line


def test_what_is_no_run_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlsys(["audit", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def append_row(run: Path, step: int, at: int | None = None) -> None:
    """A line of metrics that the journal does not know."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines.insert(len(lines) if at is None else at, json.dumps(json.loads(lines[-1]) | {"step": step}) + "\n")
    (run / "metrics.jsonl").write_text("".join(lines))


def test_a_killed_process_may_leave_its_last_line_without_a_digest_and_no_other(copied: Path) -> None:
    (copied / "events.jsonl").write_text(json.dumps({"kind": "end", "who": "run", "time": 1.0, "text": "done"}) + "\n")
    append_row(copied, 98)
    assert "rows" in broken(copied)  # of a run that ended by itself
    (copied / "summary.json").write_text(json.dumps({"status": "failed", "steps": 12, "by": "parent"}))
    assert "rows" not in broken(copied)
    append_row(copied, 99)
    assert "rows" in broken(copied)


def test_a_line_without_a_digest_between_others_is_not_of_the_run(copied: Path) -> None:
    (copied / "summary.json").unlink()
    append_row(copied, 98, at=3)
    assert "rows" in broken(copied)


def test_a_run_may_go_on_while_it_is_audited(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal is read as it was at one moment; lines and checkpoints come before and after."""
    (copied / "summary.json").unlink()
    journal = (copied / "journal.jsonl").read_bytes().splitlines(keepends=True)
    seals = [number for number, line in enumerate(journal) if b'"metrics.jsonl' in line]
    assert len(seals) > 2
    (copied / "journal.jsonl").write_bytes(b"".join(journal[: seals[-2]]))
    lines = (copied / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copied / "metrics.jsonl").write_bytes(b"".join(lines[:-2]))
    whole = files.whole_lines

    def go_on(path: Path) -> Iterator[tuple[int, bytes]]:
        yield from list(whole(path))
        if path.name == "journal.jsonl":
            (copied / "metrics.jsonl").write_bytes(b"".join(lines))

    monkeypatch.setattr(files, "whole_lines", go_on)
    assert "rows" not in broken(copied)


@pytest.mark.timeout(300)  # who opens a pipe waits until somebody writes
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_has_no_lines(tmp_path: Path, make: Callable[[Path], None]) -> None:
    run = run_directory(tmp_path / "run", summary={"status": "done", "steps": 1})
    (run / "metrics.jsonl").unlink()
    for name in ("journal.jsonl", "metrics.jsonl"):
        make(run / name)
    assert list(broken(run)) == ["rows"]
