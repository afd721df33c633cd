"""The figures: one question each, the papers' figures that it corresponds to, and which numbers answer it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from launch.analysis.episodes import KEYWORDS

Source = Literal["rows", "evaluations", "episodes", "finish", "compared"]
SHARE = "share of episodes"
EPISODES = "episode/tokens"  # every row of episodes has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes. A key with * is a panel for each key that fits, called after what the * stands for."""

    title: str
    unit: str
    key: str
    beside: str = ""  # says something only where this key is above 0 somewhere
    unless: str = ""  # shown only where there is no such key, of the same *

    def fits(self, key: str, keys: Container[str]) -> bool:
        """Whether it shows this one of the keys that there are."""
        if not fnmatchcase(key, self.key) or self._star(key).endswith("/part"):  # a part of a reward is not the whole
            return False
        return not self.unless or self.unless.replace("*", self._star(key)) not in keys

    def called(self, key: str) -> str:
        return self.title.replace("*", self._star(key)) if "*" in self.key else self.title

    def _star(self, key: str) -> str:
        head, _, tail = self.key.partition("*")
        return key.removeprefix(head).removesuffix(tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    question: str
    papers: str  # which of their figures and tables
    source: Source = "rows"
    panels: tuple[Panel, ...] = ()


FIGURES: Mapping[str, Figure] = {
    "reward": Figure(
        question="Does the reward rise?",
        papers="ReSearch: training reward; ICRL: figure 3; Long CoT: figures 3 (a), 13",
        panels=(Panel(title="Mean reward of a step's episodes", unit="reward", key="reward/mean"),),
    ),
    "parts": Figure(
        question="Which parts of the reward rise?",
        papers="ICRL: accuracy and format; Graph-RL: format, process, answer; Long CoT: figure 3 (a)",
        panels=(
            Panel(title="*", unit="reward", key="reward/part/*"),
            Panel(title="*, token by token", unit="sum over an episode", key="reward/stream/*"),
        ),
    ),
    "accuracy": Figure(
        question="Do held-out answers become right?",
        papers="Long CoT: figures 2, 6; ReSearch: validation",
        source="evaluations",
        panels=(
            Panel(title="* exact match", unit="share of answers", key="*/exact_match"),
            Panel(title="* accuracy", unit="share of answers", key="*/accuracy", unless="*/exact_match"),
        ),
    ),
    "validation": Figure(
        question="Does the reward rise on held-out tasks?",
        papers="ReSearch: validation reward",
        source="evaluations",
        panels=(Panel(title="*", unit="mean reward", key="*/mean_reward"),),
    ),
    "results": Figure(
        question="What does it come to, beside the paper?",
        papers="their tables of results; ICRL: figure 2 (a); Long CoT: figure 4; SWiRL: figures 4 to 8",
        source="compared",
    ),
    "length": Figure(
        question="How long are the responses?",
        papers="ReSearch: response length; ICRL: figure 3; Long CoT: figures 2, 3 (b), 7 (1), 9, 10",
        panels=(
            Panel(title="What the model wrote", unit="tokens per episode", key="episode/tokens"),
            Panel(
                title="With what tools said",
                unit="tokens per episode",
                key="episode/response_tokens",
                beside="episode/calls",
            ),
        ),
    ),
    "cut": Figure(
        question="How many responses run over the limit?",
        papers="Long CoT: figure 2 (what is left of 1 terminated)",
        panels=(Panel(title="Cut off by a token limit", unit=SHARE, key="episode/token_limit"),),
    ),
    "searches": Figure(
        question="How often is a tool called?",
        papers="ReSearch: searches per rollout",
        panels=(
            Panel(title="Calls", unit="per episode", key="episode/calls"),
            Panel(title="Of them made before in the episode", unit="per episode", key="episode/repeated_calls"),
        ),
    ),
    "valid": Figure(
        question="Are the calls valid?",
        papers="ICRL: figure 3 (valid tool calls)",
        panels=(
            Panel(title="Calls that the tool carried out", unit="per episode", key="episode/valid_calls"),
            Panel(title="Of all calls", unit="share of calls", key="derived/valid_share"),
        ),
    ),
    "finish": Figure(
        question="With which message do episodes end in an answer?",
        papers="ICRL: figure 2 (b)",
        source="finish",
        panels=(Panel(title="Answered with this message or before", unit=SHARE, key="episode/answered_by_*"),),
    ),
    "keywords": Figure(
        question="Does the model reflect?",
        papers="Long CoT: figure 6",
        source="episodes",
        panels=tuple(Panel(title=f"“{word}”", unit=SHARE, key=f"word/{word}") for word in KEYWORDS),
    ),
    "branching": Figure(
        question="How often does it try another way?",
        papers="Long CoT: figures 11, 12",
        source="episodes",
        panels=(Panel(title="Count of “alternatively,”", unit="per episode", key="branching"),),
    ),
    "coding": Figure(
        question="Does it write code, and are such answers longer?",
        papers="Long CoT: figure 7 (2), (3)",
        source="episodes",
        panels=(
            Panel(title="Responses with ```python", unit=SHARE, key="coding/rate"),
            Panel(title="Length of those", unit="tokens", key="coding/tokens_code"),
            Panel(title="Length of the others", unit="tokens", key="coding/tokens_text", beside="coding/rate"),
        ),
    ),
    "verdicts": Figure(
        question="What does the judge say of the steps?",
        papers="SWiRL: table 3 (macro process-label accuracy), figure 4",
        source="episodes",
        panels=(
            Panel(title="Steps called GOOD (mean of episodes)", unit="share of steps", key="verdict/macro"),
            Panel(title="Every step GOOD", unit=SHARE, key="verdict/all_good"),
            Panel(title="No verdict", unit="share of steps", key="verdict/unparsable"),
        ),
    ),
    "kl": Figure(
        question="How far from the reference is the policy?",
        papers="Long CoT: figure 7 (4)",
        panels=(Panel(title="KL from the reference", unit="nats per token", key="kl/reference"),),
    ),
    "behavior": Figure(
        question="How far from what it is trained on is the policy?",
        papers="none; old weights and the engine's rounding show here",
        panels=(Panel(title="KL from the policy that sampled", unit="nats per token", key="kl/behavior"),),
    ),
    "entropy": Figure(
        question="Is the policy still trying things?",
        papers="none; a collapse shows here first",
        panels=(Panel(title="Entropy", unit="nats per token", key="entropy/mean"),),
    ),
    "signal": Figure(
        question="How many groups teach something?",
        papers="none; see curriculum.md",
        panels=(Panel(title="Groups whose rewards differ", unit="share of groups", key="derived/signal_share"),),
    ),
    "curriculum": Figure(
        question="What does the curriculum draw?",
        papers="ICRL: the stages 3 > 2 > 0 (as levels)",
        panels=(Panel(title="Level *", unit="share of draws", key="curriculum/share/*"),),
    ),
    "supervised": Figure(
        question="Are the examples learnt?",
        papers="Graph-RL, SWiRL and Long CoT: their supervised stages",
        panels=(
            Panel(title="Examples of the step", unit="nats per token", key="loss/nll"),
            Panel(title="Held-out examples", unit="nats per token", key="eval/loss"),
        ),
    ),
    "preference": Figure(
        question="Are the chosen answers preferred?",
        papers="Graph-RL: DPO",
        panels=(
            Panel(title="Pairs in the right order", unit="share of pairs", key="dpo/accuracy"),
            Panel(title="Margin", unit="reward", key="dpo/margin"),
        ),
    ),
    "correlation": Figure(
        question="Does more reward mean more right answers?",
        papers="Graph-RL: figure 3 (left)",
        source="compared",
    ),
}


# A share out of two counts: name: (the part, the whole ...).
DERIVED: Mapping[str, tuple[str, ...]] = {
    "derived/valid_share": ("episode/valid_calls", "episode/calls"),
    "derived/signal_share": ("groups/trained", "groups/trained", "groups/filtered"),
}


def needed(names: Sequence[str]) -> Callable[[str], bool]:
    """Which keys of metrics.jsonl these figures read."""
    patterns = {panel.key for name in names for panel in FIGURES[name].panels}
    patterns |= {panel.beside for name in names for panel in FIGURES[name].panels}
    patterns |= {key for name in patterns & set(DERIVED) for key in DERIVED[name]}
    patterns.add(EPISODES)
    return lambda key: any(fnmatchcase(key, pattern) for pattern in patterns)


def derived(values: Mapping[str, float]) -> dict[str, float]:
    """Those of DERIVED whose parts are there, and whose whole is not 0."""
    found: dict[str, float] = {}
    for name, (part, *whole) in DERIVED.items():
        if part in values and all(key in values for key in whole):
            total = sum(values[key] for key in whole)
            if total > 0:
                found[name] = values[part] / total
    return found
