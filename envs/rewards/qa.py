"""Short answers against a key: SQuAD's exact match and F1 in the variants of the papers, and cover match.

One normaliser for all (`envs.text.words`): the scripts of HotpotQA, 2WikiMultihopQA, MuSiQue, FlashRAG and Search-R1
agree on it. Everything here is linear in its texts and raises nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from envs.text.words import normalize_answer

Style = Literal["hotpotqa", "musique", "icrl"]

_VERDICTS = frozenset(("yes", "no", "noanswer"))


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the normalised prediction equals one of the normalised golds."""
    given = normalize_answer(prediction)
    return any(normalize_answer(gold) == given for gold in _several(golds))


def cover_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether one of the golds stands in the prediction, word for word.

    Stricter than FlashRAG's `acc`, a substring test: there `no` is in `north` and an empty gold in everything.
    """
    given = f" {normalize_answer(prediction)} "
    keys = (normalize_answer(gold) for gold in _several(golds))
    return any(bool(key) and f" {key} " in given for key in keys)


def f1(prediction: str, gold: str, *, style: Style) -> float:
    """Harmonic mean of the precision and recall of words.

    hotpotqa: words counted as often as they occur; 0 when one side is yes, no or noanswer and the other is not the
    same. musique: no such rule; where one side has no words, 1 if both have none, else 0. icrl: sets of words.
    """
    given, key = normalize_answer(prediction), normalize_answer(gold)
    if style == "hotpotqa" and given != key and (given in _VERDICTS or key in _VERDICTS):
        return 0.0
    given_words, key_words = given.split(), key.split()
    if style == "musique" and not (given_words and key_words):
        return float(given_words == key_words)
    if style == "icrl":
        given_words, key_words = list(set(given_words)), list(set(key_words))
    common = (Counter(given_words) & Counter(key_words)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(given_words), common / len(key_words)
    return 2 * precision * recall / (precision + recall)


def best_f1(prediction: str, golds: Sequence[str], *, style: Style) -> float:
    """The largest F1 over the golds."""
    return max((f1(prediction, gold, style=style) for gold in _several(golds)), default=0.0)


def _several(golds: Sequence[str]) -> Sequence[str]:
    return (golds,) if isinstance(golds, str) else golds
