"""Tasks from public data sets, in the formats of their publishers.

`read_source("musique/train.jsonl")` or `read_source("hotpotqa/hotpot_qa:distractor", split="validation")` gives tasks.
Where the records lie is `files` and `hub`; what their fields mean is `formats`.
"""

from __future__ import annotations

from itertools import islice

from envs.tasks.files import Located, located, read_records
from envs.tasks.formats import FORMATS, Format, recognise
from rlsys.errors import BadInput, nearest, require
from rlsys.types import Task

__all__ = ["FORMATS", "Located", "located", "read_records", "read_source"]


def read_source(source: str, *, split: str | None = None, format: str = "auto", limit: int | None = None) -> list[Task]:
    """The tasks of a file, of a folder or of a data set on the hub; the first `limit` of them.

    `source` is a path (JSON lines, a JSON array, parquet, tab-separated), or `owner/name` or `owner/name:config` on the
    hub; `split` chooses among the files of a folder or a data set. `auto` recognises the format by the fields of the
    first record. Raises BadInput for what cannot be read, with file and line, or is in no known format.
    """
    if format != "auto" and format not in FORMATS:
        raise BadInput(
            f"format={format!r}: expected auto or one of {', '.join(FORMATS)}{nearest(format, FORMATS, otherwise='')}"
        )
    require(limit is None or limit >= 1, "limit", limit, "at least 1, or none")
    chosen: Format | None = FORMATS.get(format)
    tasks: list[Task] = []
    for record in islice(read_records(source, split=split), limit):
        if chosen is None:
            chosen = recognise(record)
        tasks.append(chosen.read(record))
    return tasks
