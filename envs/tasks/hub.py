"""Files of data sets on the Hugging Face hub: which ones to take, and where they lie once downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from rlsys.errors import BadInput

_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?::[A-Za-z0-9._/-]{1,95})?")
SHARD = re.compile(r"-?[0-9]{4,6}(?:-of-[0-9]{4,6})?(?=\.)")  # of `train-00000-of-00002.parquet`, `0000.parquet`
OF = re.compile(r"-of-([0-9]{4,6})\.")
SUFFIXES = (".parquet", ".arrow", ".jsonl", ".jsonl.gz", ".json", ".json.gz", ".tsv", ".csv", ".csv.gz")
ON_THE_HUB = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz", ".tsv")  # its copy of others has types
CACHED = re.compile(r"(?:^|/)cache-[^/]*\.arrow$")  # what `datasets` has made of a set, beside it
ABOUT = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}  # of a set that `datasets` saved
PROBE_S = 10.0
CONVERTED = "refs/convert/parquet"  # the hub's own parquet copy of a data set that is stored in another way


class OutOfReach(BadInput):
    """Neither the hub nor an earlier download has it. `reason` says why not the hub."""

    def __init__(self, source: str, reason: str) -> None:
        problem = f"no such file here, and not to be had from the hub ({reason})"
        super().__init__(f"{source}: {problem}; download it and give its path")
        self.reason = reason


def is_hub_name(source: str) -> bool:
    return _HUB_NAME.fullmatch(source) is not None


def download(source: str, split: str | None) -> list[str]:
    """Local paths of the files of `owner/name` or `owner/name:config`; an earlier download serves without network.

    Raises BadInput: OutOfReach, or the data set has no such split.
    """
    import huggingface_hub
    from huggingface_hub import HfApi, hf_hub_download

    name, _, config = source.partition(":")
    try:  # the fault boundary: names and networks fail with a dozen types from three libraries
        check_hub_answers()
        revision = "main"
        names = _data_files(HfApi().list_repo_files(name, repo_type="dataset"), ON_THE_HUB)
        if not names:
            revision = CONVERTED
            names = _data_files(HfApi().list_repo_files(name, repo_type="dataset", revision=revision))
        files = choose_files(names, source, config=config or None, split=split)
        return [hf_hub_download(name, file, repo_type="dataset", revision=revision) for file in files]
    except BadInput:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
    try:
        folder = huggingface_hub.snapshot_download(name, repo_type="dataset", local_files_only=True)
    except Exception:
        raise OutOfReach(source, reason) from None
    return files_in_folder(folder, source, config=config or None, split=split)


def check_hub_answers() -> None:
    """Raises, at once, where the hub cannot be reached: its library would try six times, for 24 seconds."""
    from huggingface_hub import constants, get_session

    get_session().head(constants.ENDPOINT, timeout=PROBE_S)


def files_in_folder(folder: str, source: str, *, config: str | None, split: str | None) -> list[str]:
    """The paths of the files of one configuration and one split that lie below a folder."""
    names = [os.path.relpath(os.path.join(at, file), folder) for at, _, files in os.walk(folder) for file in files]
    return [os.path.join(folder, name) for name in choose_files(_data_files(names), source, config=config, split=split)]


def _data_files(names: Sequence[str], suffixes: tuple[str, ...] = SUFFIXES) -> list[str]:
    """Without hidden ones, which editors, notebooks and downloads leave behind, and those about a set or made of it."""
    visible = (name for name in names if not any(part.startswith(".") for part in name.split("/")))
    visible = (name for name in visible if not CACHED.search(name) and name.rpartition("/")[2] not in ABOUT)
    return sorted(name for name in visible if name.lower().endswith(suffixes))


def choose_files(names: Sequence[str], source: str, *, config: str | None, split: str | None) -> list[str]:
    """The files of one configuration and one split: the shards of one table.

    A configuration is a folder, or how a file's name begins. A split is a word of the path; without one it is `train`
    where there is such a file, else every file. Of a table in several forms it is the first of `SUFFIXES`. Raises
    BadInput with what there is when none or several tables match.
    """
    matches = [name for name in names if config is None or _has_config(name, config)]
    split_name = split or "train"
    of_split = [name for name in matches if split_name.lower() in re.split(r"[^a-z0-9]+", name.lower())]
    if of_split or split is not None:
        matches = of_split
    if len({_without_suffix(name) for name in matches}) == 1:
        form = next(suffix for suffix in SUFFIXES if any(_suffix_of(name) == suffix for name in matches))
        matches = [name for name in matches if _suffix_of(name) == form]
    tables = sorted({SHARD.sub("", name) for name in matches})
    if len(tables) == 1:
        _refuse_missing_shards(matches, source)
        return matches
    criteria = f"config={config!r} and split={split!r}"
    available = ", ".join(sorted({SHARD.sub("", name) for name in names})[:20]) or "nothing to read"
    raise BadInput(f"{len(tables)} tables for {criteria}", where=source, expected=f"one of: {available}")


def _suffix_of(name: str) -> str:
    return max((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len)


def _without_suffix(name: str) -> str:
    return SHARD.sub("", name).lower().removesuffix(_suffix_of(name))


def _refuse_missing_shards(names: Sequence[str], source: str) -> None:
    """Of `train-00000-of-00002.parquet` without the other, whose rows would be missing without a word."""
    shards = [match for name in names if (match := OF.search(name))]
    if shards and len(shards) < int(shards[0][1]):
        missing = f"{len(shards)} of {int(shards[0][1])} shards of {SHARD.sub('', names[0])}"
        raise BadInput(missing, where=source, expected="all of them, or the path of one")


def _has_config(name: str, config: str) -> bool:
    folder, file = os.path.split(name)
    return config == folder or config in folder.split("/") or file.startswith(config)
