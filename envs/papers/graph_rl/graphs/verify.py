"""The verdict on a response: its format, each of its steps, its answer. What they are worth is the reward's matter.

Graph-RL (arXiv 2506.00845), section 2 and appendix B, algorithms 1 and 2; `docs/rewards/graph_rl.md` says how the
open points are settled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import networkx

from envs.papers.graph_rl.graphs import parse
from envs.papers.graph_rl.graphs.encodings import Encoding
from envs.papers.graph_rl.graphs.problem import Kind, Problem, truth


class Verdict(StrEnum):
    CORRECT = "correct"
    INCORRECT = "incorrect"  # all of it exists, but it is not right: a wrong sum, a wrong answer
    UNREADABLE = "unreadable"  # a step that is not in the format of a step: scored as incorrect
    MISSING = "missing"  # no answer, or one without a path or a length
    HALLUCINATED_NODE = "hallucinated_node"
    HALLUCINATED_EDGE = "hallucinated_edge"
    HALLUCINATED_WEIGHT = "hallucinated_weight"

    @property
    def hallucinated(self) -> bool:
        return self.value.startswith("hallucinated")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheck:
    """One sentence, or the answer, and what is wrong with it."""

    verdict: Verdict
    span: parse.Span | None  # in the response; None for an answer that is not there
    detail: str = ""  # "no edge 0-2"; empty when it is correct


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a reward depends on."""

    well_formed: bool
    steps: tuple[StepCheck, ...]
    answer: StepCheck
    shown: bool  # the steps that are correct show the answer: they join the two nodes, where the answer is yes

    @property
    def right_by_real_steps(self) -> bool:
        """The answer is right, no step is invented, and a yes is shown; nothing needs to show a no or a path."""
        invented = any(step.verdict.hallucinated for step in self.steps)
        return self.answer.verdict is Verdict.CORRECT and self.shown and not invented


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A problem's answer key, made once."""

    weights: dict[tuple[int, int], float | None]  # of each edge, in both directions
    truth: str
    names: parse.Labels


@lru_cache(maxsize=1024)
def facts(problem: Problem, encoding: Encoding) -> Facts:
    """Raises BadInput for a shortest path that does not exist."""
    weights = problem.weights or (None,) * len(problem.edges)
    edge_weights = dict(zip(problem.edges, weights, strict=True))
    return Facts(
        weights=edge_weights | {(b, a): weight for (a, b), weight in edge_weights.items()},
        truth=truth(problem),
        names=parse.labels(problem.num_nodes, encoding),
    )


def check(problem: Problem, response: str, encoding: Encoding = "incident") -> Report:
    """Read a response and compare it with the graph; evaluation continues after a format error. Any text will do.

    Raises BadInput for a shortest path that does not exist: a broken task, not a bad response.
    """
    key = facts(problem, encoding)
    parts = parse.split_parts(response)
    steps: list[StepCheck] = []
    real: list[tuple[int, int]] = []
    seen_steps = set[object]()  # a second time it is no step: padding would pay for what is made up
    for span in parse.sentences(response, parts.response) if parts.response else ():
        sentence = span.of(response)
        if parse.is_frame(sentence):
            continue
        claim = parse.read_step(sentence, key.names)
        verdict, detail = _judge_step(claim, key)
        subject = _edges(claim) if claim is not None else " ".join(sentence.casefold().split())
        if verdict.hallucinated or (verdict, subject) not in seen_steps:
            steps.append(StepCheck(verdict=verdict, span=span, detail=detail))
        if claim is not None and verdict is Verdict.CORRECT:
            real += claim.edges
        seen_steps.add((verdict, subject))
    judge = _judge_yes_no if problem.kind is Kind.CONNECTIVITY else _judge_path
    if parts.answer is None:
        verdict, detail = Verdict.MISSING, "no <answer>...</answer>"
    else:
        verdict, detail = judge(problem, parts.answer.of(response), key)
    answer = StepCheck(verdict=verdict, span=parts.answer, detail=detail)
    shown = key.truth != "yes" or _are_joined(real, problem.source, problem.target)
    return Report(well_formed=parts.well_formed, steps=tuple(steps), answer=answer, shown=shown)


def _are_joined(edges: list[tuple[int, int]], source: int, target: int) -> bool:
    graph = networkx.Graph(edges)
    return source in graph and target in graph and bool(networkx.has_path(graph, source, target))


def _edges(claim: parse.Claim) -> frozenset[frozenset[int]]:
    """What it is about, in whatever direction and however often it goes there."""
    return frozenset(map(frozenset, claim.edges))


def _judge_step(claim: parse.Claim | None, key: Facts) -> tuple[Verdict, str]:
    """Nodes, then edges, then weights, then the sum: the first thing wrong decides."""
    if claim is None:
        return Verdict.UNREADABLE, "not in the format of a step"
    if any(parse.UNKNOWN in edge for edge in claim.edges):
        return Verdict.HALLUCINATED_NODE, "names a node that the graph does not have"
    for edge in claim.edges:
        if edge not in key.weights:
            return Verdict.HALLUCINATED_EDGE, f"no edge {edge[0]}-{edge[1]}"
    for edge, stated in zip(claim.edges, claim.weights, strict=True):
        weight = key.weights[edge]
        if stated is not None and (weight is None or not _same(stated, weight)):
            return Verdict.HALLUCINATED_WEIGHT, f"edge {edge[0]}-{edge[1]} has weight {weight}, not {stated:g}"
    if not claim.aligned:
        return Verdict.INCORRECT, "not as many weights as edges"
    if claim.total is not None:
        true = _length(claim, key)
        if true is None or not _same(claim.total, true):
            return Verdict.INCORRECT, f"the weights add up to {true}, not {claim.total:g}"
    return Verdict.CORRECT, ""


def _judge_yes_no(problem: Problem, answer: str, key: Facts) -> tuple[Verdict, str]:
    stated_answer = parse.read_yes_no(answer)
    if stated_answer is None:
        return Verdict.MISSING, "neither yes nor no, or both"
    return (Verdict.CORRECT, "") if stated_answer == key.truth else (Verdict.INCORRECT, f"the answer is {key.truth}")


def _judge_path(problem: Problem, answer: str, key: Facts) -> tuple[Verdict, str]:
    claim = parse.read_path_answer(answer, key.names)
    if claim is None or (claim.total is None and not claim.several):
        return Verdict.MISSING, "no path in arrows, or no length with it"
    verdict, detail = _judge_step(claim, key)
    if verdict is not Verdict.CORRECT:
        return verdict, detail
    if claim.total is None:
        return Verdict.MISSING, "several lengths"
    if (claim.nodes[0], claim.nodes[-1]) != (problem.source, problem.target):
        return Verdict.INCORRECT, "the path joins other nodes than were asked for"
    if not _same(claim.total, float(key.truth)):
        return Verdict.INCORRECT, f"the shortest path has length {key.truth}"
    return Verdict.CORRECT, ""


def _length(claim: parse.Claim, key: Facts) -> float | None:
    """The true length of what is claimed; None in a graph without weights."""
    weights = [key.weights[edge] for edge in claim.edges]
    known_weights = [weight for weight in weights if weight is not None]
    return math.fsum(known_weights) if len(known_weights) == len(weights) else None


def _same(first: float, second: float) -> bool:
    return math.isclose(first, second, abs_tol=1e-6)
