"""Short answers against a key: SQuAD's exact match and F1 in the variants of the papers, and cover match.

One normaliser for all (`envs.text.words`): the scripts of HotpotQA, 2WikiMultihopQA, MuSiQue, FlashRAG and Search-R1
agree on it. Everything here is linear in its texts, and the scores raise nothing.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from envs.rewards.transcript import answer_key
from envs.text.words import normalize_answer, without_marks
from rlsys.metrics import Mean
from rlsys.types import Transcript

Style = Literal["hotpotqa", "musique", "icrl"]

_VERDICTS = frozenset(("yes", "no", "noanswer"))
Shares = Mapping[str, tuple[float, float]]


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the normalised prediction equals one of the normalised golds.

    Punctuation outside of ASCII does not count either (quotes, dashes), nor how an accent is encoded. The official
    scripts know neither, and to them all that normalises to nothing is the same: `the` would be the answer `A`.
    """
    return any(_is_same_answer(prediction, gold) for gold in _as_sequence(golds))


def cover_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether one of the golds stands in the prediction, word for word.

    Stricter than FlashRAG's `acc`, a substring test: there `no` is in `north` and an empty gold in everything.
    """
    predicted = f" {normalize_answer(prediction)} "
    keys = (normalize_answer(gold) for gold in _as_sequence(golds))
    return any(bool(key) and f" {key} " in predicted for key in keys)


def f1(prediction: str, gold: str, *, style: Style) -> float:
    """Harmonic mean of the precision and recall of words.

    hotpotqa: words counted as often as they occur; 0 when one side is yes, no or noanswer and the other is not the
    same. musique: no such rule; where one side has no words, 1 if both have none, else 0. icrl: sets of words. In the
    other two an answer such as `A`, of which nothing is left, is 1 where it is the gold itself, else 0. Marks outside
    of ASCII do not count, as in `exact_match`.
    """
    predicted, key = _normalize_pair(prediction, gold)
    if style != "musique" and not (predicted and key):
        return float(bool(prediction.strip()) and _keep_articles(prediction) == _keep_articles(gold))
    if style == "hotpotqa" and predicted != key and (predicted in _VERDICTS or key in _VERDICTS):
        return 0.0
    predicted_words, key_words = predicted.split(), key.split()
    if style == "musique" and not (predicted_words and key_words):
        return float(predicted_words == key_words)
    if style == "icrl":
        predicted_words, key_words = list(set(predicted_words)), list(set(key_words))
    common = (Counter(predicted_words) & Counter(key_words)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted_words), common / len(key_words)
    return 2 * precision * recall / (precision + recall)


def best_f1(prediction: str, golds: Sequence[str], *, style: Style) -> float:
    """The largest F1 over the golds."""
    return max((f1(prediction, gold, style=style) for gold in _as_sequence(golds)), default=0.0)


def _is_same_answer(prediction: str, gold: str) -> bool:
    words, key = _normalize_pair(prediction, gold)
    return words == key if words and key else _keep_articles(prediction) == _keep_articles(gold)


def _normalize_pair(prediction: str, gold: str) -> tuple[str, str]:
    """Both texts normalised; if they differ and one has punctuation outside ASCII, without any punctuation too."""
    words, key = normalize_answer(prediction), normalize_answer(gold)
    if words and key and words != key and not (_is_plain(prediction) and _is_plain(gold)):
        folded, folded_key = _without_punctuation(prediction), _without_punctuation(gold)
        return (folded, folded_key) if folded and folded_key else (words, key)
    return words, key


def _is_plain(text: str) -> bool:
    """Whether it has no punctuation outside of ASCII, and its accents are composed."""
    return text.isascii() or not (
        any(char > "\x7f" and unicodedata.category(char)[0] == "P" for char in text)
        or not unicodedata.is_normalized("NFC", text)
    )


def _keep_articles(text: str) -> str:
    """With its articles; with its marks too, where there is nothing else."""
    return without_marks(text) or text.strip()


def _without_punctuation(text: str) -> str:
    """Without any punctuation; a dash parts words, for 10-12 is not 1012."""
    kinds = ((char, unicodedata.category(char)) for char in unicodedata.normalize("NFC", text))
    return normalize_answer("".join(" " if kind == "Pd" else "" if kind[0] == "P" else char for char, kind in kinds))


def _as_sequence(golds: Sequence[str]) -> Sequence[str]:
    return (golds,) if isinstance(golds, str) else golds


def answer_metrics(reward: Any, transcript: Transcript) -> dict[str, Mean]:
    """What an evaluation says of an answer next to its reward: exact match, cover match, three F1s and pooled shares.

    A reward takes part by one of two methods, which look at a transcript that it has scored: `given` reads a short
    answer out of it, "" for none; `pooled` gives a share that belongs to the whole set, {"constraints_pooled": (5, 7)}
    for 5 of 7.

    "Paris, France" to the key Paris: exact_match 0, cover_match 1, f1 0.667. Each merges over tasks. Raises BadInput
    for a task that the reward cannot score either.
    """
    metrics: dict[str, Mean] = {}
    read_answer: Callable[[Transcript], str] | None = getattr(reward, "given", None)
    pooled: Callable[[Transcript], Shares] | None = getattr(reward, "pooled", None)
    if read_answer is not None:
        answer, golds = read_answer(transcript), answer_key(transcript.task)
        metrics = {
            "exact_match": Mean(float(bool(answer) and exact_match(answer, golds))),
            "cover_match": Mean(float(cover_match(answer, golds))),
        }
        for style in get_args(Style):
            name = "f1" if style == "hotpotqa" else f"f1_{style}"
            metrics[name] = Mean(best_f1(answer, golds, style=style) if answer else 0.0)
    if pooled is not None:
        metrics |= {name: Mean(part, whole) for name, (part, whole) in pooled(transcript).items()}
    return metrics
