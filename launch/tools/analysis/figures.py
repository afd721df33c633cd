"""The figures: one question each, the papers' figures that it corresponds to, and which numbers answer it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from launch.tools.analysis.episodes import KEYWORDS

Source = Literal["rows", "evaluations", "episodes", "finish", "results", "correlation"]


@dataclass(frozen=True, slots=True)
class Figure:
    question: str
    papers: str  # which of their figures and tables
    source: Source = "rows"


FIGURES: Mapping[str, Figure] = {
    "reward": Figure("Does the reward rise?", "ReSearch: training reward; ICRL: figure 3; Long CoT: figures 3 (a), 13"),
    "parts": Figure(
        "Which parts of the reward rise?",
        "ICRL: accuracy and format; Graph-RL: format, process, answer; Long CoT: figure 3 (a)",
    ),
    "accuracy": Figure(
        "Do held-out answers become right?", "Long CoT: figures 2, 6; ReSearch: validation", "evaluations"
    ),
    "validation": Figure("Does the reward rise on held-out tasks?", "ReSearch: validation reward", "evaluations"),
    "results": Figure(
        "What does it come to, next to the paper?",
        "their tables of results; ICRL: figure 2 (a); Long CoT: figure 4; SWiRL: figures 4 to 8",
        "results",
    ),
    "length": Figure(
        "How long are the responses?",
        "ReSearch: response length; ICRL: figure 3; Long CoT: figures 2, 3 (b), 7 (1), 9, 10",
    ),
    "cut": Figure("How many responses run over the limit?", "Long CoT: figure 2 (what is left of 1 terminated)"),
    "searches": Figure("How often is a tool called?", "ReSearch: searches per rollout"),
    "valid": Figure("Are the calls valid?", "ICRL: figure 3 (valid tool calls)"),
    "finish": Figure("With which message do episodes end in an answer?", "ICRL: figure 2 (b)", "finish"),
    "keywords": Figure("Does the model reflect?", "Long CoT: figure 6", "episodes"),
    "branching": Figure("How often does it try another way?", "Long CoT: figures 11, 12", "episodes"),
    "coding": Figure("Does it write code, and are such answers longer?", "Long CoT: figure 7 (2), (3)", "episodes"),
    "verdicts": Figure(
        "What does the judge say of the steps?",
        "SWiRL: table 3 (macro process-label accuracy), figure 4",
        "episodes",
    ),
    "kl": Figure("How far from the reference is the policy?", "Long CoT: figure 7 (4)"),
    "behavior": Figure(
        "How far from what it is trained on is the policy?", "none; old weights and the engine's rounding show here"
    ),
    "entropy": Figure("Is the policy still trying things?", "none; a collapse shows here first"),
    "signal": Figure("How many groups teach something?", "none; see curriculum.md"),
    "curriculum": Figure("What does the curriculum draw?", "ICRL: the stages 3 > 2 > 0 (as levels)"),
    "supervised": Figure("Are the examples learnt?", "Graph-RL, SWiRL and Long CoT: their supervised stages"),
    "preference": Figure("Are the chosen answers preferred?", "Graph-RL: DPO"),
    "correlation": Figure("Does more reward mean more right answers?", "Graph-RL: figure 3 (left)", "correlation"),
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. A key with * is a panel for each key that fits, called after what the * stands for."""

    title: str
    unit: str
    key: str
    requires: str = ""  # says something only where this key is above 0 somewhere
    unless: str = ""  # shown only where there is no such key, of the same *

    def shows(self, key: str, keys: Container[str]) -> bool:
        """Whether it is of this one of the keys that there are."""
        if not fnmatchcase(key, self.key) or self._star(key).endswith("/part"):  # a part of a reward is not the whole
            return False
        return not self.unless or self.unless.replace("*", self._star(key)) not in keys

    def title_of(self, key: str) -> str:
        return self.title.replace("*", self._star(key)) if "*" in self.key else self.title

    def _star(self, key: str) -> str:
        head, _, tail = self.key.partition("*")
        return key.removeprefix(head).removesuffix(tail)


EPISODES = "share of episodes"
PANELS: Mapping[str, Sequence[Panel]] = {  # by figure: title, unit, key
    "reward": [Panel("Mean reward of a step's episodes", "reward", "reward/mean")],
    "parts": [
        Panel("*", "reward", "reward/part/*"),
        Panel("*, token by token", "sum over an episode", "reward/stream/*"),
    ],
    "accuracy": [
        Panel("* exact match", "share of answers", "*/exact_match"),
        Panel("* accuracy", "share of answers", "*/accuracy", unless="*/exact_match"),
    ],
    "validation": [Panel("*", "mean reward", "*/mean_reward")],
    "length": [
        Panel("What the model wrote", "tokens per episode", "episode/tokens"),
        Panel("With what tools said", "tokens per episode", "episode/response_tokens", requires="episode/calls"),
    ],
    "cut": [Panel("Cut off by a token limit", EPISODES, "episode/token_limit")],
    "searches": [
        Panel("Calls", "per episode", "episode/calls"),
        Panel("Calls made before in the same episode", "per episode", "episode/repeated_calls"),
    ],
    "valid": [
        Panel("Calls that the tool carried out", "per episode", "episode/valid_calls"),
        Panel("Of all calls", "share of calls", "derived/valid_share"),
    ],
    "finish": [Panel("Answered with this message or before", EPISODES, "episode/answered_by_*")],
    "keywords": [Panel(f"“{word}”", EPISODES, f"word/{word}") for word in KEYWORDS],
    "branching": [Panel("Count of “alternatively,”", "per episode", "branching")],
    "coding": [
        Panel("Responses with ```python", EPISODES, "coding/rate"),
        Panel("Length of those", "tokens", "coding/tokens_code"),
        Panel("Length of the others", "tokens", "coding/tokens_text", requires="coding/rate"),
    ],
    "verdicts": [
        Panel("Steps called GOOD (mean of episodes)", "share of steps", "verdict/macro"),
        Panel("Every step GOOD", EPISODES, "verdict/all_good"),
        Panel("No verdict", "share of steps", "verdict/unparsable"),
    ],
    "kl": [Panel("KL from the reference", "nats per token", "kl/reference")],
    "behavior": [Panel("KL from the policy that sampled", "nats per token", "kl/behavior")],
    "entropy": [Panel("Entropy", "nats per token", "entropy/mean")],
    "signal": [Panel("Groups whose rewards differ", "share of groups", "derived/signal_share")],
    "curriculum": [Panel("Level *", "share of draws", "curriculum/share/*")],
    "supervised": [
        Panel("Examples of the step", "nats per token", "loss/nll"),
        Panel("Held-out examples", "nats per token", "eval/loss"),
    ],
    "preference": [
        Panel("Pairs in the right order", "share of pairs", "dpo/accuracy"),
        Panel("Margin", "reward", "dpo/margin"),
    ],
}

DERIVED: Mapping[str, Sequence[str]] = {  # share: (the count of the part, the counts of the whole ...)
    "derived/valid_share": ("episode/valid_calls", "episode/calls"),
    "derived/signal_share": ("groups/trained", "groups/trained", "groups/filtered"),
}
EPISODE_TOKENS = "episode/tokens"  # every row of episodes has it


def select_keys(names: Sequence[str]) -> Callable[[str], bool]:
    """Which keys of metrics.jsonl these figures read."""
    panels = [panel for name in names for panel in PANELS.get(name, ())]
    patterns = {EPISODE_TOKENS, *(key for panel in panels for key in (panel.key, panel.requires))}
    for name in patterns & DERIVED.keys():
        patterns.update(DERIVED[name])
    return lambda key: any(fnmatchcase(key, pattern) for pattern in patterns)
