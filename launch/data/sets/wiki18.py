"""Wikipedia of December 2018 in passages of 100 words: what ReSearch and Search-R1 search in."""

from collections.abc import Iterable

from envs.services.retriever.corpus import document
from envs.tasks.files import Located
from launch.data.records import Files, Passage, PublicSet
from rlsys.errors import BadInput


def stored(record: Located) -> Iterable[Passage]:
    try:
        found = document(dict(record.fields))
    except BadInput as error:
        raise BadInput(f"{record.where}: {error}") from error
    yield found.title, found.text


WIKI18 = PublicSet(
    name="wiki18",
    title="Wikipedia, December 2018, 100 words a passage",
    licence="CC BY-SA 3.0",
    page="https://huggingface.co/datasets/PeterJinGo/wiki-18-corpus",
    splits={
        "passages": Files(
            names=("wiki-18.jsonl.gz", "wiki-18.jsonl", "wiki18_100w.jsonl"), hub=("PeterJinGo/wiki-18-corpus",)
        )
    },
    passages=stored,
)
