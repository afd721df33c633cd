"""What `rlsys audit`, and a resume, find of edits of a finished run: `python benchmarks/tamper.py RUN_DIR`.

Each edit is made on a fresh copy of RUN_DIR, which stays as it is. Edits that one run has nothing for are left out: a
run with `model.lora.rank` has `bases/`, one without has none. The weights are compared as a resume does before anything
is trained on them; what a resume does not read is `-`.
"""

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from report import Report, parser

from launch.driver.run.rundir import RunDir
from launch.tools.audit.files import list_checkpoints, read_run
from launch.tools.audit.properties import audit
from rlsys.errors import BadInput
from rlsys.seals import OWN, append_chain_digest, with_own_digest

Edit = Callable[[Path], object]


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    options = cli.parse_args()
    with Report(options) as report:
        print_table(options.run_dir, report)


def print_table(run: Path, report: Report) -> None:
    if offenders := violated_properties(run):
        raise SystemExit(f"the audit of {run} says NO before anything was edited: {offenders}")
    report.head("edit", "audit", "resume")
    caught = edits = 0
    for name, edit in EDITS.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copytree(run, Path(folder, "run"), symlinks=True))
            before = contents(copy)
            with suppress(StopIteration, IndexError, FileNotFoundError):
                edit(copy)
            if contents(copy) == before:
                continue
            violations = violated_properties(copy)
            report.row(name, ", ".join(violations) or "not covered", resumed(copy))
        edits, caught = edits + 1, caught + bool(violations)
    report.note(f"{caught} of {edits} edits are found by the audit")


def violated_properties(run: Path) -> list[str]:
    """The properties that do not hold."""
    return [check.name for check in audit(read_run(run)) if not check.holds]


def resumed(run: Path) -> str:
    directory = RunDir(run)
    try:
        newest = directory.newest()
        if newest is None:
            return "no checkpoint"
        directory.verify(newest, lambda message: None)
        directory.load_state(newest)
    except BadInput:
        return "refused"
    finally:
        directory.close()
    return "-"


def contents(run: Path) -> dict[Path, bytes]:
    files = {path.relative_to(run): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    return files | {path.relative_to(run): b"a link" for path in run.rglob("*") if path.is_symlink()}


# -- edits ------------------------------------------------------------------------------------------------------------


def first(run: Path, pattern: str) -> Path:
    """Of checkpoints the newest, which a resume takes."""
    paths = sorted(path for path in run.glob(pattern) if path.name != "index.jsonl" or pattern.endswith("index.jsonl"))
    return paths[-1] if pattern.startswith("checkpoints") else paths[0]


def flip(pattern: str) -> Edit:
    """A bit in the middle of the first such file."""

    def edit(run: Path) -> None:
        path = first(run, pattern)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.unlink()  # it may be another name of the same file
        path.write_bytes(content)

    return edit


def remove(pattern: str) -> Edit:
    def edit(run: Path) -> None:
        path = first(run, pattern)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return edit


def add(name: str, content: str = "{}\n") -> Edit:
    def edit(run: Path) -> None:
        path = newest(run) / name.removeprefix("@") if name.startswith("@") else run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    return edit


def swap(pattern: str) -> Edit:
    """The names of the first and the last."""

    def edit(run: Path) -> None:
        paths = sorted(path for path in run.glob(pattern) if path.name != "index.jsonl")
        if len(paths) > 1:
            aside = paths[0].rename(paths[0].with_name("aside"))
            paths[-1].rename(paths[0])
            aside.rename(paths[-1])

    return edit


def change(pattern: str, **values: Any) -> Edit:
    """Keys of a JSON object; None removes one. Its own digest stays as it was."""

    def edit(run: Path) -> None:
        path = first(run, pattern)
        content = json.loads(path.read_text()) | values
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}, indent=1))

    return edit


def change_and_digest(pattern: str, **values: Any) -> Edit:
    """The same by a program that knows of the digest in the file."""

    def edit(run: Path) -> None:
        path = first(run, pattern)
        content = json.loads(path.read_text())
        path.write_text(json.dumps(with_own_digest(content | values), indent=1))

    return edit


def lines(name: str, edit_lines: Callable[[list[str]], list[str]]) -> Edit:
    def edit(run: Path) -> None:
        path = first(run, name)
        path.write_text("".join(edit_lines(path.read_text().splitlines(keepends=True))))

    return edit


def set_last(**values: Any) -> Callable[[list[str]], list[str]]:
    return lambda rows: [*rows[:-1], json.dumps(json.loads(rows[-1]) | values) + "\n"]


def append(row: Mapping[str, Any]) -> Edit:
    """A row of the journal with a right digest."""

    def edit(run: Path) -> None:
        path = run / "journal.jsonl"
        last = json.loads(path.read_text().splitlines()[-1])
        line, _ = append_chain_digest(json.dumps(dict(row) | {"lineage": last["lineage"]}), last["chain"])
        with path.open("a") as file:
            file.write(line + "\n")

    return edit


def newest(run: Path) -> Path:
    return [path for path in list_checkpoints(run) if path.name.startswith("step-")][-1]


def flip_weights(run: Path) -> None:
    """Of the newest checkpoint: its largest file."""
    largest = max((newest(run) / "hf").iterdir(), key=lambda path: path.stat().st_size)
    flip(str(largest.relative_to(run)))(run)


def strip_digests_and_flip(run: Path) -> None:
    name = f"checkpoints/{newest(run).name}"
    change(f"{name}/driver.json", files=None, **{OWN: None})(run)
    flip_weights(run)


def strip_all_and_flip(run: Path) -> None:
    change(f"checkpoints/{newest(run).name}/driver.json", chain=None)(run)
    strip_digests_and_flip(run)


def flip_and_digest(run: Path) -> None:
    """The weights, with all digests of driver.json made again."""
    from launch.driver.checkpoints.checkpoint import file_digests, read_state, write_state

    folder = newest(run)
    flip_weights(run)
    write_state(folder, read_state(folder), file_digests(folder))


def rename_later(run: Path) -> None:
    folder = newest(run)
    folder.rename(folder.with_name(f"step-{int(folder.name[5:]) + 7:06d}"))


def replace_newest(run: Path) -> None:
    *_, older, folder = (path for path in list_checkpoints(run) if path.name.startswith("step-"))
    shutil.rmtree(folder)
    shutil.copytree(older, folder)


def link_reference(run: Path) -> None:
    (newest(run) / "learner" / "reference").symlink_to("../hf")


def remove_all_checkpoints(run: Path) -> None:
    for path in list_checkpoints(run):
        shutil.rmtree(path)


def all_at_once(run: Path) -> None:
    strip_digests_and_flip(run)
    change("summary.json", reward={"first": 0.0, "last": 1.0}, **{OWN: None})(run)
    swap("checkpoints/step-*")(run)
    add("trajectories/step-000099.jsonl")(run)


def pack_another(run: Path) -> None:
    path = first(run, "trajectories/step-*.jsonl")
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(b"{}\n"))


def strip_chain(run: Path) -> None:
    path = run / "journal.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({k: v for k, v in row.items() if k != "chain"}) + "\n" for row in rows))


EPISODES = "trajectories/step-*.jsonl*"
EDITS: dict[str, Edit] = {
    "journal.jsonl: a value of a row": lines("journal.jsonl", set_last(digest="0" * 16)),
    "journal.jsonl: a row removed": lines("journal.jsonl", lambda rows: rows[:5] + rows[6:]),
    "journal.jsonl: two rows swapped": lines("journal.jsonl", lambda rows: rows[:5] + rows[6:4:-1] + rows[7:]),
    "journal.jsonl: the last row removed": lines("journal.jsonl", lambda rows: rows[:-1]),
    "journal.jsonl: the last 20 rows removed": lines("journal.jsonl", lambda rows: rows[:-20]),
    "journal.jsonl: an outcome appended, with a right digest": append(
        {"event": "outcome", "stage": "rl", "sequence": 0, "outcome": "trained", "step": 1}
    ),
    "journal.jsonl: a `begin` that keeps nothing appended, with a right digest": append(
        {"event": "begin", "keep": 0, "torn_bytes": 0}
    ),
    "journal.jsonl: all digests stripped": strip_chain,
    "journal.jsonl removed": remove("journal.jsonl"),
    "metrics.jsonl: a value": lines("metrics.jsonl", set_last(**{"reward/mean": 0.99})),
    "metrics.jsonl: a row removed": lines("metrics.jsonl", lambda rows: rows[1:]),
    "metrics.jsonl: a row twice": lines("metrics.jsonl", lambda rows: [*rows, rows[-1]]),
    "metrics.jsonl: rows removed and summary.json with them": lambda run: (
        lines("metrics.jsonl", lambda rows: rows[:-1])(run),
        remove("summary.json")(run),
    ),
    "metrics.jsonl removed": remove("metrics.jsonl"),
    "evaluations.jsonl: a value": lines("evaluations.jsonl", set_last(seconds=0.5)),
    "evaluations.jsonl: a row removed": lines("evaluations.jsonl", lambda rows: rows[1:]),
    "evaluations.jsonl: a row of another step added": lines(
        "evaluations.jsonl", lambda rows: [*rows, *set_last(step=999)(rows[-1:])]
    ),
    "evaluations.jsonl removed": remove("evaluations.jsonl"),
    "config.yaml: a bit": flip("config.yaml"),
    "summary.json: a value": change("summary.json", steps=1),
    "summary.json: values, without its digest": change("summary.json", reward={"last": 1.0}, **{OWN: None}),
    "summary.json: a value, its digest made again": change_and_digest("summary.json", wall_s=1.0),
    "summary.json removed": remove("summary.json"),
    "evaluations/: a bit": flip("evaluations/*.json"),
    "evaluations/: a file removed": remove("evaluations/*.json"),
    "evaluations/: two files swapped": swap("evaluations/*.json"),
    "evaluations/: a foreign file": add("evaluations/rl-other.json"),
    "trajectories/: an episode twice": lines("trajectories/step-*.jsonl", lambda rows: [*rows, rows[-1]]),
    "trajectories/: a bit": flip(EPISODES),
    "trajectories/: a file of a step removed": remove(EPISODES),
    "trajectories/: a file of an evaluation removed": remove("trajectories/eval-*.jsonl*"),
    "trajectories/: two files swapped": swap(EPISODES),
    "trajectories/: a file that no row names": add("trajectories/step-000099.jsonl"),
    "trajectories/: another, compressed file of the same name": pack_another,
    "trajectories/index.jsonl cut": lines("trajectories/index.jsonl", lambda rows: rows[: len(rows) // 2]),
    "trajectories/index.jsonl removed": remove("trajectories/index.jsonl"),
    "checkpoint: a bit of a weight": flip_weights,
    "checkpoint: a bit of the optimizer": flip("checkpoints/step-*/learner/*.pt"),
    "checkpoint: a bit of a weight, all digests of driver.json made again": flip_and_digest,
    "checkpoint: a bit of a weight, without digests": strip_digests_and_flip,
    "checkpoint: a bit of a weight, without digests and `chain`": strip_all_and_flip,
    "checkpoint: another step in driver.json, its digest made again": change_and_digest(
        "checkpoints/step-*/driver.json", step=1
    ),
    "checkpoint: driver.json removed": remove("checkpoints/step-*/driver.json"),
    "checkpoint: tokens trained in driver.json, its digest made again": change_and_digest(
        "checkpoints/step-*/driver.json", trained=1
    ),
    "checkpoint: `hf/config.json`, a bit": flip("checkpoints/step-*/hf/config.json"),
    "checkpoint: `hf/rlsys.json`, a bit": flip("checkpoints/step-*/hf/rlsys.json"),
    "checkpoint: the model card": flip("checkpoints/step-*/hf/README.md"),
    "checkpoint: adapter_config.json added to hf/": add("@hf/adapter_config.json"),
    "checkpoint: a folder added to learner/": add("@learner/reference/config.json"),
    "checkpoint: a link to a folder added to learner/": link_reference,
    "checkpoints: two swap their names": swap("checkpoints/step-*"),
    "checkpoints: the newest replaced by the one before": replace_newest,
    "checkpoints: one under the name of a later step": rename_later,
    "checkpoints: the newest removed": remove("checkpoints/step-*"),
    "checkpoints: all removed": remove_all_checkpoints,
    "model/: a bit of a weight": flip("model/*.safetensors"),
    "model/: config.json": flip("model/config.json"),
    "model/: a file added": lambda run: add("model/adapter_config.json")(run) if (run / "model").is_dir() else None,
    "model/ removed": remove("model"),
    "bases/: a bit of a weight": flip("bases/*/*.safetensors"),
    "bases/: a folder renamed": lambda run: first(run, "bases/*").rename(run / "bases" / "0123456789ab"),
    "bases/: a folder renamed as of a step": lambda run: first(run, "bases/*").rename(run / "bases" / "step-000002"),
    "bases/: a folder removed": remove("bases/*"),
    "four of these at once": all_at_once,
    "run.json: a value": change("run.json", seed=99),
    "run.json removed": remove("run.json"),
    "events.jsonl: a row removed": lines("events.jsonl", lambda rows: rows[1:]),
    "generated/: a line removed": lines("generated/*.jsonl", lambda rows: rows[1:]),
    "report.html: a bit": flip("report.html"),
}

if __name__ == "__main__":
    main()
