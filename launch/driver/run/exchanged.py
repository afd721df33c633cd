"""Whether a run that is continued reads the data that it was begun with, by the digests of its run.json.

Tasks are known by their place in a file: with another file of the same name what is held out, what has been trained
and what rests would all be said of other tasks. The address of a file may change, its name and its bytes may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.driver.run.record import RUN, data_files, digest_files, earlier_attempts
from rlsys.errors import BadInput
from rlsys.files import is_there

CODE = (".py",)  # a mistake in it may be mended: it is no data
Facts = Mapping[str, Any]  # of `digest_files`; "sha256" is None where no digest was made in time


def refuse_exchanged(run_dir: Path, text: str, checkpoint: Path) -> dict[str, Facts]:
    """The recorded facts of the files that the run continues with, those included that lie elsewhere by now. The next
    attempt records these: a digest made later could be of a file that was exchanged in between.

    Raises BadInput where a file that the run has read holds something else by now. text: the configuration that
    continues it, as YAML.
    """
    recorded = _recorded(run_dir)
    facts = {name: recorded[earlier] for name, earlier in moved_data(run_dir, text).items()}
    for name, paths in data_files(text).items():
        before = recorded.get(name)
        if before is None or name.endswith(CODE):
            continue
        if not _same(before, paths):
            raise BadInput(
                f"{name} is not the file that this run was begun with ({_describe(before, paths)}): put that one back, "
                "or train on the new one in another --run-dir, from what was learned here with "
                f"model.path={checkpoint / 'hf'}",
                key="--run-dir",
                found=run_dir,
            )
        if before.get("sha256"):
            facts[name] = before
    return facts


def moved_data(run_dir: Path, text: str) -> dict[str, str]:
    """Files that lie elsewhere by now, by their new path: where they lay, both as run.json names them."""
    recorded = _recorded(run_dir)
    moved: dict[str, str] = {}
    for name, paths in data_files(text).items():
        for earlier, before in recorded.items() if name not in recorded else ():
            if Path(earlier).name == Path(name).name and before.get("sha256") and _same(before, paths):
                moved[name] = earlier
    return moved


def _recorded(run_dir: Path) -> dict[str, Facts]:
    """What is known of each file, by the first attempt that has a digest, or else by the first, of those since the run
    last began at step 0: an attempt that died before its first checkpoint has trained nothing that is left."""
    attempts = earlier_attempts(run_dir / RUN) if is_there(run_dir / RUN) else []
    starts = [at for at, entry in enumerate(attempts) if isinstance(entry, Mapping) and entry.get("from_step") == 0]
    by_name: dict[str, Facts] = {}
    for attempt in attempts[starts[-1] if starts else 0 :]:
        data = attempt.get("data") if isinstance(attempt, Mapping) else None
        for name, facts in data.items() if isinstance(data, Mapping) else ():
            if isinstance(facts, Mapping) and (name not in by_name or not by_name[name].get("sha256")):
                by_name[name] = facts if facts.get("sha256") else by_name.get(name, facts)
    return by_name


def _same(before: Facts, paths: Sequence[Path]) -> bool:
    """By size, and by digest where one was made. What cannot be read is for its reader to say."""
    try:
        if sum(path.stat().st_size for path in paths) != before.get("bytes"):
            return False
        return not before.get("sha256") or digest_files(paths)["sha256"] == before["sha256"]
    except OSError:
        return True


def _describe(before: Facts, paths: Sequence[Path]) -> str:
    size = sum(path.stat().st_size for path in paths)
    if size != before.get("bytes"):
        return f"{before.get('bytes')} bytes then, {size} now"
    return f"sha256 {str(before['sha256'])[:12]} then, {digest_files(paths)['sha256'][:12]} now"
