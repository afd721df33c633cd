"""Indexes on disk: whole, resumable, refused when they belong to something else. The encoder is a real, tiny one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envs.services.retriever import bm25, dense
from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import Document, FileCorpus, ListCorpus
from envs.services.retriever.encoder import Encoder
from envs.services.retriever.encoder_spec import read_spec
from envs.services.retriever.retriever import build_index, make_retriever
from tests.makers import tiny_encoder
from tests.refused import refused

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letters_of(row: int) -> str:
    return " ".join(LETTERS[(row * step + step) % 26] for step in (1, 3, 7, 11))


CORPUS = ListCorpus([Document(id=str(row), contents=letters_of(row)) for row in range(26)])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    import torch

    threads = torch.get_num_threads()
    folder = tmp_path_factory.mktemp("encoders")
    names = {name: tiny_encoder.build(folder / name, seed) for seed, name in enumerate(("one", "two", "e5-small-one"))}
    (folder / "e5-small-one" / "model.safetensors").write_bytes((folder / "one" / "model.safetensors").read_bytes())
    yield names
    torch.set_num_threads(threads)


def config_of(models: dict[str, str], folder: Path | None, kind: str = "dense", **keys: object) -> RetrieverConfig:
    keys = {"encoder": models["one"], **keys} if kind != "bm25" else keys
    index = str(folder) if folder else None
    return RetrieverConfig(kind=kind, index=index, dtype="float32", threads=1, device="cpu", **keys)  # type: ignore[arg-type]


def test_vectors_have_length_one_and_do_not_depend_on_their_batch(models: dict[str, str]) -> None:
    encoder = Encoder(read_spec(models["one"]), device="cpu", dtype="float32", threads=1)
    texts = ["a b c", "d", "e f g h i j", "a b c d e f g h i j k l m"]
    together = encoder.queries(texts)
    alone = np.concatenate([encoder.queries([text]) for text in texts])
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(4), abs=1e-6)
    assert np.abs(together - alone).max() < 1e-6


def test_the_encoders_marks_in_a_passage_are_only_text(models: dict[str, str]) -> None:
    encoder = Encoder(read_spec(models["one"]), device="cpu", dtype="float32", threads=1)
    marked, spelled, plain = encoder.passages(["a [PAD] b", "a [WHO] b", "a b"])  # "[", a word unheard of, "]"
    assert np.abs(marked - spelled).max() < 1e-6 < np.abs(marked - plain).max()


def test_the_mean_leaves_out_the_padding(models: dict[str, str]) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(models["one"]), AutoTokenizer.from_pretrained(models["one"])
    with torch.inference_mode():
        mean = model(**tokenizer("a b", return_tensors="pt")).last_hidden_state[0].mean(0)
    expected = torch.nn.functional.normalize(mean, dim=0).numpy()
    encoder = Encoder(read_spec(models["one"]), device="cpu", dtype="float32")
    assert encoder.queries(["a b", "a b c d e f g h"])[0] == pytest.approx(expected, abs=1e-6)


def test_queries_are_cut_where_the_config_says_and_passages_are_not(models: dict[str, str]) -> None:
    plain = Encoder(read_spec(models["one"]), device="cpu", dtype="float32")
    short = Encoder(read_spec(models["one"]), device="cpu", dtype="float32", query_tokens=8)
    long = "a b c d e f g h i j"
    assert np.abs(short.queries([long]) - plain.queries([long])).max() > 1e-3
    assert short.queries([long]) == pytest.approx(short.queries(["a b c d e f g h i j k l"]), abs=1e-6)
    assert short.passages([long]) == pytest.approx(plain.passages([long]), abs=1e-6)
    assert short.identity == plain.identity  # the same index serves both
    with refused("retriever.query_tokens", found=4):
        RetrieverConfig(kind="dense", query_tokens=4)


def test_e5_puts_its_prefixes_in_front(models: dict[str, str]) -> None:
    plain = Encoder(read_spec(models["one"]), device="cpu", dtype="float32")
    e5 = Encoder(read_spec(models["e5-small-one"]), device="cpu", dtype="float32")
    assert e5.queries(["a b"]) == pytest.approx(plain.queries(["query: a b"]), abs=1e-6)
    assert e5.passages(["a b"]) == pytest.approx(plain.passages(["passage: a b"]), abs=1e-6)
    assert e5.identity != plain.identity  # the same weights, but the vectors differ


@pytest.mark.parametrize("kind", ["bm25", "dense", "hybrid"])
def test_an_index_on_disk_answers_like_one_in_memory(models: dict[str, str], tmp_path: Path, kind: str) -> None:
    config = config_of(models, tmp_path / "index", kind)
    build_index(config, CORPUS)
    queries = [letters_of(5), letters_of(17), " ", "z"]
    on_disk = make_retriever(config, CORPUS).search_batch(queries, 4)
    in_memory = make_retriever(replace(config, index=None), CORPUS).search_batch(queries, 4)
    assert [[d.id for d, _ in hits] for hits in on_disk] == [[d.id for d, _ in hits] for hits in in_memory]
    assert on_disk[0][0][0].id == "5"
    assert on_disk[2] == ()  # a blank query


def test_more_is_asked_for_than_there_is(models: dict[str, str]) -> None:
    (hits,) = make_retriever(config_of(models, None), CORPUS).search_batch(["a"], 100)
    assert len(hits) == len(CORPUS)
    assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


def test_a_killed_build_goes_on_where_it_stopped(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "PASSAGES_AT_ONCE", 5)
    config = config_of(models, tmp_path / "index")

    def kill_after_fifteen(what: str, done: int, total: int) -> None:
        if done >= 15:
            raise Killed

    with pytest.raises(Killed):
        build_index(config, CORPUS, kill_after_fifteen)
    with refused(says="is not finished"):
        make_retriever(config, CORPUS)
    vectors = tmp_path / "index" / "dense" / "vectors.f32"
    written = vectors.read_bytes()
    vectors.write_bytes(written[:-7])  # a kill in the middle of a row
    steps: list[int] = []
    build_index(config, CORPUS, lambda stage, done, total: steps.append(done) if stage == "encode" else None)
    assert steps == [19, 24, 26]
    fresh = config_of(models, tmp_path / "fresh")
    build_index(fresh, CORPUS)
    assert vectors.read_bytes() == pytest.approx((tmp_path / "fresh" / "dense" / "vectors.f32").read_bytes())


def test_a_finished_index_is_not_built_again_and_another_key_reuses_the_vectors(
    models: dict[str, str], tmp_path: Path
) -> None:
    config = config_of(models, tmp_path / "index", "hybrid")
    build_index(config, CORPUS)
    steps: list[str] = []
    build_index(config, CORPUS, lambda stage, done, total: steps.append(stage))
    assert steps == []
    build_index(replace(config, faiss="HNSW16"), CORPUS, lambda stage, done, total: steps.append(stage))
    assert steps == ["faiss HNSW16"]
    assert make_retriever(config, CORPUS).search_batch([letters_of(3)], 1)[0][0][0].id == "3"


def test_an_index_of_another_corpus_or_encoder_is_refused(models: dict[str, str], tmp_path: Path) -> None:
    config = config_of(models, tmp_path / "index", "hybrid")
    build_index(config, CORPUS)
    other = ListCorpus([CORPUS[row] for row in range(25)])
    for kind in ("bm25", "dense"):
        with refused(says="of 26 passages, expected"):
            make_retriever(config_of(models, tmp_path / "index", kind), other)  # type: ignore[arg-type]
        with refused(says="built with corpus"):
            build_index(config_of(models, tmp_path / "index", kind), other)  # type: ignore[arg-type]
    two = replace(config, encoder=models["two"])
    with refused(says="built with encoder"):
        make_retriever(two, CORPUS)
    with refused(says="built with encoder"):
        build_index(two, CORPUS)
    with refused(says="does not exist: `rlsys index`"):
        make_retriever(replace(config, index=str(tmp_path / "none")), CORPUS)


def test_the_same_weights_in_another_folder_are_the_same_encoder(models: dict[str, str], tmp_path: Path) -> None:
    config = config_of(models, tmp_path / "index")
    build_index(config, CORPUS)
    moved = tiny_encoder.build(tmp_path / "moved", seed=0)
    make_retriever(replace(config, encoder=moved), CORPUS)


def test_a_stranger_s_folder_is_not_deleted(models: dict[str, str], tmp_path: Path) -> None:
    lucene = tmp_path / "bm25" / "_0.cfs"
    lucene.parent.mkdir()
    lucene.write_text("Search-R1's index")
    with refused(says="bm25 is not one that `rlsys index`"):
        build_index(config_of(models, tmp_path, "bm25"), CORPUS)
    assert lucene.read_text() == "Search-R1's index"


def test_a_killed_bm25_build_begins_again(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    config = config_of(models, tmp_path, "bm25")
    with monkeypatch.context() as patch:
        patch.setattr(bm25, "write_facts", kill)
        with pytest.raises(Killed):
            build_index(config, CORPUS)
    with refused(says="is not finished"):
        make_retriever(config, CORPUS)
    build_index(config, CORPUS)
    assert make_retriever(config, CORPUS).search_batch(["c"], 1)[0]
    assert not (tmp_path / "bm25.part").exists()


def test_vectors_of_unknown_origin_are_not_taken(models: dict[str, str], tmp_path: Path) -> None:
    config = config_of(models, tmp_path)
    other = ListCorpus([CORPUS[25 - row] for row in range(26)])
    build_index(config, other)
    for name in ("vectors.json", "index.json"):
        (tmp_path / "dense" / name).unlink()
    build_index(config, CORPUS)
    assert make_retriever(config, CORPUS).search_batch([letters_of(3)], 1)[0][0][0].id == "3"


def test_an_index_without_its_vectors_is_still_its_corpus_s(models: dict[str, str], tmp_path: Path) -> None:
    config = config_of(models, tmp_path)
    build_index(config, CORPUS)
    for name in ("vectors.json", "vectors.f32"):
        (tmp_path / "dense" / name).unlink()
    with refused(says="built with corpus"):
        build_index(config, ListCorpus([CORPUS[row] for row in range(25)]))
    build_index(config, CORPUS)
    make_retriever(config, CORPUS)


@pytest.mark.parametrize("name", ["bm25/vocab.index.json", "bm25/data.csc.index.npy", "dense/index.faiss"])
def test_a_damaged_index_is_one_line(models: dict[str, str], tmp_path: Path, name: str) -> None:
    config = config_of(models, tmp_path, "hybrid")
    build_index(config, CORPUS)
    whole = (tmp_path / name).read_bytes()
    for damage in (whole[: len(whole) // 2], b""):
        (tmp_path / name).write_bytes(damage)
        with refused(says="delete its") as caught:
            make_retriever(config, CORPUS)
        assert "\n" not in str(caught.value)
    (tmp_path / name).unlink()
    with refused(says="delete its") as caught:
        make_retriever(config, CORPUS)
    path = tmp_path / str(caught.value).split("delete its ")[1].split(",")[0]
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    steps: list[str] = []
    build_index(config, CORPUS, lambda stage, done, total: steps.append(stage))
    assert steps[0] in ("BM25", "faiss Flat")  # nothing is encoded again
    make_retriever(config, CORPUS)


@pytest.mark.parametrize(("text", "same"), [("a café of words", True), ("a 東京都 of words", False)])
def test_an_index_of_the_word_rule_of_before_is_taken_where_both_say_the_same(
    text: str, same: bool, models: dict[str, str], tmp_path: Path
) -> None:
    corpus = ListCorpus([Document(id="0", contents=text)])
    config = config_of(models, tmp_path, "bm25")
    build_index(config, corpus)
    facts = json.loads((tmp_path / "bm25" / "index.json").read_text())
    facts["bm25"]["words"] = bm25.WORDS_BEFORE
    (tmp_path / "bm25" / "index.json").write_text(json.dumps(facts))
    for use in (make_retriever, build_index):
        if same:
            use(config, corpus)
        else:
            with refused(says="was built with bm25"):
                use(config, corpus)


def test_two_builds_of_one_folder_do_not_meet(models: dict[str, str], tmp_path: Path) -> None:
    config = config_of(models, tmp_path / "index", "bm25")

    def build_again(what: str, done: int, total: int) -> None:
        with refused(says="another process is building it"):
            build_index(config, CORPUS)

    build_index(config, CORPUS, build_again)


def test_a_corpus_that_changed_by_one_letter_is_another_one(tmp_path: Path) -> None:
    prints = []
    for text in ("first", "First"):
        path = tmp_path / "c.jsonl"
        path.write_text(json.dumps({"id": "0", "contents": text}))
        prints.append(FileCorpus(str(path)).fingerprint)
    assert prints[0] != prints[1]


def test_an_encoder_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "e5-base"  # its name states the pooling
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with refused("encoder", says="cannot be loaded") as caught:
        make_retriever(RetrieverConfig(kind="dense", encoder=str(folder)), CORPUS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("threads", "searchers", "each"), [(1, 1, []), (2, 2, [1]), (5, 2, [2])])
def test_searchers_share_the_cores(
    threads: int, searchers: int, each: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_torch: list[int] = []
    of_faiss: list[int] = []
    monkeypatch.setattr(dense, "limit_threads", of_faiss.append)
    encoder: Any = SimpleNamespace(threads=threads, limit_threads=of_torch.append)
    ranker = dense.DenseRanker(encoder, index=None)
    ranker.enter_thread()
    assert (ranker.searchers, of_torch, of_faiss) == (searchers, each, each)
