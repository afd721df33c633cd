"""NLGift: raw graphs with a question about two nodes (Graph-RL). It is published as a repository, on no hub."""

from collections.abc import Callable, Iterable

from envs.problems.graphs.problem import Kind, Problem, from_record, to_record, truth
from envs.problems.graphs.read import read_record
from envs.tasks.files import Located
from launch.data.records import Files, PublicSet, Row
from rlsys.errors import BadInput

FOLDER = "1_semantic_pattern"


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


def _of(kind: Kind, train: int, test: int) -> PublicSet:
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


GRAPHS = (_of(Kind.CONNECTIVITY, 821, 822), _of(Kind.SHORTEST_PATH, 780, 780))
