"""BM25 (bm25s, Lucene's variant).

A word is a run of letters, digits and underscores, in its compatibility form (NFKC) and case-folded; Lucene's 33
English stop words are dropped; nothing is stemmed. Chinese, Japanese and Korean put no space between words, or none
that says enough: there every two neighbouring characters are a word, as in Lucene's CJKAnalyzer.

On HotpotQA's paragraphs Porter's stemmer, a longer stop list and none all gave the same recall within noise, and
Pyserini's k1 = 0.9, b = 0.4 a lower one; both are keys.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import Corpus
from envs.services.retriever.index import (
    COMPLETE,
    Facts,
    Progress,
    build_lock,
    check_facts,
    damage_as_bad_input,
    index_facts,
    write_facts,
)
from envs.services.retriever.retriever import Hit, Ranker
from rlsys.errors import BadInput

if TYPE_CHECKING:
    import bm25s

WORD = re.compile(r"\w+")
# Han, kana (with the mark of a long vowel), Hangul: scripts that are cut into pairs of characters.
CJK = re.compile(
    "([\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
STOP_WORDS = frozenset(
    WORD.findall(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    )
)
WORDS = "nfkc casefold \\w+ cjk-pairs lucene-stop-words"
WORDS_BEFORE = "nfkc casefold \\w+ lucene-stop-words"  # the same where no word is Chinese, Japanese or Korean


def index_settings(config: RetrieverConfig) -> dict[str, str | float]:
    """The BM25 method, its parameters and the tokenizer, which an index stores and has to match."""
    return {"method": "lucene", "k1": config.k1, "b": config.b, "words": WORDS}


def _expected_facts(config: RetrieverConfig, corpus: Corpus, folder: Path) -> Facts:
    """The facts that the index in the folder, if there is one, has to match."""
    facts = index_settings(config)
    try:
        stored = json.loads((folder / COMPLETE).read_text())["bm25"]["words"]
        if stored == WORDS_BEFORE and not any(map(CJK.search, json.loads((folder / "vocab.index.json").read_text()))):
            facts["words"] = WORDS_BEFORE
    except (OSError, ValueError, KeyError, TypeError):
        pass  # opening the index raises the error
    return index_facts(corpus, bm25=facts)


def tokenize(text: str) -> list[str]:
    """words("the 東京都 of 2020年") == ["東京", "京都", "2020", "年"]"""
    tokens = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return [part for word in tokens if word not in STOP_WORDS for part in _word_tokens(word)]


def _word_tokens(word: str) -> Iterable[str]:
    if word.isascii():
        return (word,)
    return chain.from_iterable(_character_bigrams(run) if CJK.match(run) else (run,) for run in CJK.split(word) if run)


def _character_bigrams(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


class BM25Ranker(Ranker):
    """No shared word, no hit: a query may have fewer than `k` hits, or none."""

    may_be_brief = True

    def __init__(self, model: bm25s.BM25) -> None:
        # numba's import and the compiler's cache: only where something is ranked
        from envs.services.retriever import postings

        self._model = model
        self._rank = postings.rank

    @classmethod
    def open(cls, config: RetrieverConfig, corpus: Corpus, progress: Progress) -> BM25Ranker:
        if config.index is None:
            return cls(build(corpus, lambda num_done: progress("BM25", num_done, len(corpus)), config))
        directory = Path(config.index)
        check_facts(directory / "bm25" / COMPLETE, _expected_facts(config, corpus, directory / "bm25"))
        with damage_as_bad_input(directory, "bm25"):
            return cls(load(directory / "bm25"))

    @classmethod
    def build_index(cls, config: RetrieverConfig, corpus: Corpus, directory: Path, progress: Progress) -> None:
        folder, part, facts = (
            directory / "bm25",
            directory / "bm25.part",
            index_facts(corpus, bm25=index_settings(config)),
        )
        with build_lock(directory):
            if (folder / COMPLETE).exists():
                check_facts(folder / COMPLETE, _expected_facts(config, corpus, folder))
                return
            if folder.exists():  # Search-R1's Lucene index has that name, too
                raise BadInput(
                    f"index {directory}: its folder bm25 is not one that `rlsys index` made; give another --index"
                )
            shutil.rmtree(part, ignore_errors=True)  # a build that was killed: of an hour at most, so begin again
            model = build(corpus, lambda num_done: progress("BM25", num_done, len(corpus)), config)
            model.save(str(part), show_progress=False)
            write_facts(part / COMPLETE, facts)
            os.replace(part, folder)

    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        vocabulary = self._model.vocab_dict
        word_ids = [[i for word in tokenize(query) if (i := vocabulary.get(word)) is not None] for query in queries]
        index = self._model.scores
        num_documents = int(index["num_docs"])
        rows_QK, scores_QK, counts_Q = self._rank(
            np.fromiter(chain.from_iterable(word_ids), np.int64),
            np.cumsum([len(ids) for ids in word_ids], dtype=np.int64),
            np.asarray(index["indptr"], np.int64),
            np.asarray(index["indices"], np.int32),
            np.asarray(index["data"], np.float32),
            num_documents,
            min(k, num_documents),
        )
        lists = zip(rows_QK.tolist(), scores_QK.tolist(), counts_Q.tolist(), strict=True)
        return [list(zip(rows[:count], scores[:count], strict=True)) for rows, scores, count in lists]


def build(corpus: Corpus, progress: Callable[[int], None], config: RetrieverConfig) -> bm25s.BM25:
    """Index every passage. Takes 2.4 kB of memory for one of 100 words, five times what is kept. Raises BadInput."""
    vocabulary: dict[str, int] = {}
    rows: list[array[int]] = []
    for row in range(len(corpus)):
        tokens = tokenize(corpus[row].contents)
        rows.append(array("i", [vocabulary.setdefault(word, len(vocabulary)) for word in tokens]))
        if row % 256 == 255 or row + 1 == len(corpus):
            progress(row + 1)
    if not vocabulary:
        raise BadInput("no words in any passage: nothing to index", where=corpus.name)
    model = _import_bm25s().BM25(k1=config.k1, b=config.b, method="lucene")
    model.index((rows, vocabulary), create_empty_token=False, show_progress=False)
    return model


def load(folder: Path) -> bm25s.BM25:
    """Postings stay on disk, mapped."""
    return _import_bm25s().BM25.load(str(folder), mmap=True, show_progress=False)


def _import_bm25s() -> Any:
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG
    return bm25s
