"""Sets of choices, graphs, statements and plans.

Multiple choice: MMLU-Pro, up to ten options in 14 subjects; Knowledge Crosswords, blanks of a small graph.
NLGift: raw graphs with a question about two nodes (Graph-RL). It is published as a repository, on no hub.
StrategyQA: yes or no by steps that its question does not name. WikiDYK: facts of Wikipedia's front page, asked for a
word (reliability) or as a statement (factual). ExplaGraphs: arguments for a belief.
ProScript: steps of a goal and their order. Blocksworld of PlanBench: plans to write or to judge.

The authors' test splits of StrategyQA and ExplaGraphs have no answers.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping

from envs.papers.graph_rl.blocks.read import read_task
from envs.papers.graph_rl.graphs.problem import Kind, Problem, from_record, to_record, truth
from envs.papers.graph_rl.graphs.read import read_record
from envs.tasks.files import Located
from envs.tasks.formats import proscript
from envs.tasks.multiple_choice import knowledge_crosswords
from launch.data.records import Files, PublicSet, Row, by_question, identity, plain, questions
from rlsys.errors import BadInput

# Knowledge Crosswords by difficulty. A puzzle may be in all three: its graph is the same, and so is the right answer.
COUNTS = {"easy": 869, "medi": 873, "hard": 359}
FOLDER = "1_semantic_pattern"
ASKED = re.compile(r"\s*[^.!?]{0,40}true or false\?$", re.IGNORECASE)  # behind the statement, in some copies
TRUTHS = {"true": "true", "yes": "true", "false": "false", "no": "false"}
DOMAIN = "blocksworld"  # the file has other domains too; records without the field are of this one


def puzzle(record: Located) -> Iterable[Row]:
    task, fields = knowledge_crosswords(record), record.lower
    extra = {key: fields[key] for key in ("source", "relation", "target", "blanks", "golds")}
    extra |= {key: task.record[key] for key in ("options", "edges", "num_blanks", "filled")}
    yield {"id": identity(record), "question": task.question, "answers": list(task.answers), **extra}


CHOICE = (
    PublicSet(
        name="mmlu_pro",
        title="MMLU-Pro",
        licence="MIT",
        page="https://huggingface.co/datasets/TIGER-Lab/MMLU-Pro",
        splits={
            "test": Files(
                names=("MMLU-Pro/data/test-*.parquet", "mmlu_pro*test*.parquet", "mmlu_pro*test*.jsonl"),
                hub=("TIGER-Lab/MMLU-Pro",),
                split="test",
                count=12_032,
            )
        },
        rows=questions("category", "src"),
        style="choice",
    ),
    PublicSet(
        name="knowledge_crosswords",
        title="Knowledge Crosswords",
        licence="not stated",
        page="https://github.com/Wenwen-D/KnowledgeCrosswords",
        splits={
            level: Files(names=(f"MC/MC_{level}.jsonl", f"MC_{level}.jsonl"), count=count)
            for level, count in COUNTS.items()
        },
        rows=puzzle,
        twin=lambda row: f"{row['question']}\n{sorted(row['options'].values())}",
        style="choice",
        prompt="graph_rl/crosswords",
    ),
)


def graphs(kind: Kind) -> Callable[[Located], Iterable[Row]]:
    def rows(record: Located) -> Iterable[Row]:
        """Raises BadInput where the stored answer is not what the graph says."""
        problem, stored = read_record(record.fields, record.where)
        if problem.kind is not kind:
            raise BadInput(f"a problem of {problem.kind}", where=record.where, expected=kind)
        answer = truth(problem)
        if stored is not None and stored != answer:
            raise BadInput(f"the answer is {stored!r}, but the graph says {answer!r}", where=record.where)
        yield {"id": record.task_id, **to_record(problem), "answer": answer}

    return rows


def _problem(row: Row) -> Problem:
    return from_record(row, str(row["id"]))


def by_graph(row: Row) -> str:
    """The same graph with another question would tell the answer."""
    return _problem(row).digest.hex()


def by_graph_and_nodes(row: Row) -> str:
    return f"{row['kind']} {by_graph(row)} {sorted((row['source'], row['target']))}"


def _nlgift(kind: Kind, train: int, test: int) -> PublicSet:
    return PublicSet(
        name=f"nlgift_{kind}",
        title=f"NLGift, {kind.replace('_', ' ')}",
        licence="not stated",
        page="https://github.com/MatthewYZhang/NLGift",
        splits={
            split: Files(names=(f"{FOLDER}/{kind}/{split}_data.jsonl", f"nlgift_{kind}_{split}.jsonl"), count=count)
            for split, count in (("train", train), ("test", test))
        },
        rows=graphs(kind),
        same=by_graph,
        twin=by_graph_and_nodes,
        text=None,
    )


GRAPHS = (_nlgift(Kind.CONNECTIVITY, 821, 822), _nlgift(Kind.SHORTEST_PATH, 780, 780))


def make_reader(way: str) -> Callable[[Located], Iterable[Row]]:
    def rows(record: Located) -> Iterable[Row]:
        """No row where a fact is not asked about in this way."""
        ways = record.lower.get("eval")
        try:
            ways = json.loads(ways) if isinstance(ways, str) else ways
        except ValueError:
            ways = None
        if not isinstance(ways, Mapping):
            raise BadInput("is no object of questions", where=record.where, key='"eval"')
        case = ways.get(way)
        if not isinstance(case, Mapping):
            return
        answer = record.value_text(_truth(case.get("answer")), f"eval.{way}.answer")
        if way == "factual" and (answer := TRUTHS.get(answer.casefold().rstrip("."), "")) == "":
            raise BadInput("is neither true nor false", where=record.where, key='"eval.factual.answer"')
        question = record.value_text(case.get("prompt"), f"eval.{way}.prompt")
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
        rows=make_reader(way),
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


def script(record: Located) -> Iterable[Row]:
    task = proscript(record)
    yield {"id": record.task_id, **{key: task.record[key] for key in ("goal", "steps", "constraints")}}


def by_goal_and_steps(row: Row) -> str:
    return " ".join([row["goal"], *sorted(row["steps"].values())]).casefold()


def instance(record: Located) -> Iterable[Row]:
    """The record as it is: the world asks without its solved example, in its wording of the rules."""
    fields = dict(record.fields)
    if fields.get("domain", DOMAIN) == DOMAIN:
        task = read_task(fields, record.where, record.task_id)
        yield {"id": record.task_id, **fields, "stated": task.question}


def _proscript(split: str, count: int | None = None) -> Files:
    return Files(names=(f"proscript*/{split}.jsonl", f"proscript_{split}*.jsonl"), count=count)


def _blocksworld(name: str, task: str, title: str, count: int | None) -> PublicSet:
    return PublicSet(
        name=name,
        title=f"Blocksworld (PlanBench), {title}",
        licence="MIT",
        page="https://huggingface.co/datasets/tasksource/planbench",
        splits={
            "all": Files(
                names=(f"planbench/{task}/*.parquet", f"{name}*.jsonl"),
                hub=(f"tasksource/planbench:{task}",),
                count=count,
            )
        },
        rows=instance,
        same=lambda row: str(row["stated"]),
        text=None,
    )


PLANS = (
    PublicSet(
        name="proscript",
        title="ProScript",
        licence="not stated",
        page="https://proscript.allenai.org",
        splits={"train": _proscript("train"), "dev": _proscript("dev"), "test": _proscript("test", 2_077)},
        rows=script,
        same=by_goal_and_steps,
        text=by_goal_and_steps,
        style="free",
        prompt="graph_rl/proscript",
    ),
    _blocksworld("blocksworld_plan", "task_1_plan_generation", "plans", 2_270),
    _blocksworld("blocksworld_verify", "task_3_plan_verification", "verdicts", None),
)
