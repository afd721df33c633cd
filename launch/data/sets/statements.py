"""Facts and statements to judge: StrategyQA, yes or no by steps that its question does not name; WikiDYK, facts of
Wikipedia's front page, asked for a word (reliability) or as a statement (factual); ExplaGraphs, arguments for a belief.

The authors' test splits of StrategyQA and ExplaGraphs have no answers.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping

from envs.tasks.files import Located
from launch.data.records import Files, PublicSet, Row, by_question, plain, questions
from rlsys.errors import BadInput

ASKED = re.compile(r"\s*[^.!?]{0,40}true or false\?$", re.IGNORECASE)  # behind the statement, in some copies
TRUTHS = {"true": "true", "yes": "true", "false": "false", "no": "false"}


def asked(way: str) -> Callable[[Located], Iterable[Row]]:
    def rows(record: Located) -> Iterable[Row]:
        """No row where a fact is not asked about in this way."""
        ways = record.lower.get("eval")
        try:
            ways = json.loads(ways) if isinstance(ways, str) else ways
        except ValueError:
            ways = None
        if not isinstance(ways, Mapping):
            raise BadInput("is no object of questions", where=record.where, key='"eval"')
        found = ways.get(way)
        if not isinstance(found, Mapping):
            return
        answer = record.value_text(_truth(found.get("answer")), f"eval.{way}.answer")
        if way == "factual" and (answer := TRUTHS.get(answer.casefold().rstrip("."), "")) == "":
            raise BadInput("is neither true nor false", where=record.where, key='"eval.factual.answer"')
        question = record.value_text(found.get("prompt"), f"eval.{way}.prompt")
        row = {"id": record.task_id, "question": question, "answers": [answer], "fact": record.text("fact")}
        yield row | ({"statement": ASKED.sub("", question)} if way == "factual" else {})

    return rows


def _truth(value: object) -> object:
    return str(value) if isinstance(value, bool) else value


def by_fact(row: Row) -> str:
    """Both ways ask about the same facts: what one evaluates, the other must not teach."""
    return plain(row["fact"])


def _wikidyk(name: str, way: str, title: str) -> PublicSet:
    return PublicSet(
        name=name,
        title=f"WikiDYK, {title}",
        licence="see its page",
        page="https://huggingface.co/datasets/YWZBrandon/wikidyk",
        splits={
            "test": Files(
                names=("wikidyk/data/*.parquet", "wikidyk*.parquet", "wikidyk*.json*"),
                hub=("YWZBrandon/wikidyk",),
                split="test",
                count=12_290,  # facts
            )
        },
        rows=asked(way),
        same=by_fact,
        twin=by_question,
        style="free",
        prompt=f"graph_rl/{name}",
    )


def _explagraphs(split: str, count: int) -> Files:
    places = (f"ExplaGraphs/{split}.tsv", f"ExplaGraphs/data/{split}.tsv", f"explagraphs_{split}*.tsv")
    return Files(names=places, count=count)


STATEMENTS = (
    PublicSet(
        name="strategyqa",
        title="StrategyQA",
        licence="MIT",
        page="https://github.com/eladsegal/strategyqa",
        splits={
            "train": Files(
                names=("strategyqa_train.json", "strategyqa*train*.jsonl"),
                hub=("voidful/StrategyQA:strategyqa_train.json",),
                count=2_290,
            )
        },
        rows=questions("term", "facts", "decomposition"),
        style="free",
        prompt="graph_rl/strategyqa",
    ),
    _wikidyk("wikidyk_r", "reliability", "asked for a word"),
    _wikidyk("wikidyk_f", "factual", "true or false"),
    PublicSet(
        name="explagraphs",
        title="ExplaGraphs",
        licence="MIT",
        page="https://github.com/swarnaHub/ExplaGraphs",
        splits={"train": _explagraphs("train", 2_368), "dev": _explagraphs("dev", 398)},
        rows=questions("belief", "argument"),
        style="free",
        prompt="graph_rl/explagraphs",
    ),
)
