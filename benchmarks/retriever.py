"""Recall, speed and memory of the retrieval server: `python benchmarks/retriever.py HOTPOT.jsonl WIKI.jsonl`.

HOTPOT holds HotpotQA's distractor records, WIKI more passages in the corpus format. Prints the tables of
docs/retriever.md. Every speed is that of a server process of its own, asked from this process over plain sockets. What
it is compared with, in turns, answers one query at a time: the same retriever, a plain FastAPI handler and a lock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from envs.retriever.config import RetrieverConfig
from envs.retriever.corpus import FileCorpus, ListCorpus
from envs.retriever.documents import Document, contents
from envs.retriever.retriever import build_index, make_retriever
from envs.tools.http import take_port

KINDS = ("bm25", "dense", "hybrid")
DEPTHS = (2, 5, 10)
CONCURRENCY = (1, 16, 64)
SIBLINGS = 8  # rollouts of one task: in the second load each query is asked this often, at about the same time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hotpot", type=Path)
    parser.add_argument("wiki", type=Path)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--plain", metavar="KIND", help=argparse.SUPPRESS)  # be the server that is compared with
    parser.add_argument("--index", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--part", choices=("recall", "speed"), help="one of the two tables (default: both)")
    options = parser.parse_args()
    if options.plain is not None:
        plain = RetrieverConfig(kind=options.plain, encoder=options.encoder, dtype=options.dtype, index=options.index)
        serve_plainly(plain, options.wiki)
        return
    records = [json.loads(line) for line in options.hotpot.read_text().splitlines()]
    paragraphs = list(paragraphs_of(records))
    wiki = FileCorpus(str(options.wiki))
    everything = [*paragraphs, *(wiki[row] for row in range(len(wiki)))]
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before it began"
    print(f"{platform.machine()}, {cores}; encoder {options.encoder}\n")
    if options.part != "speed":
        recall_table(records, {"its paragraphs": paragraphs, "and the wiki passages": everything}, options.encoder)
    if options.part != "recall":
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(folder) / "corpus.jsonl"
            lines = (json.dumps({"id": document.id, "contents": document.contents}) for document in everything)
            corpus.write_text("\n".join(lines))
            speed_table(corpus, make_queries(everything), options)


def paragraphs_of(records: Sequence[dict[str, Any]]) -> Iterator[Document]:
    """Every paragraph once; its title is its id."""
    seen: set[str] = set()
    for record in records:
        for title, sentences in zip(record["context"]["title"], record["context"]["sentences"], strict=True):
            if title not in seen:
                seen.add(title)
                yield Document(id=title, contents=contents(title, "".join(sentences)))


def recall_table(records: Sequence[dict[str, Any]], corpora: dict[str, list[Document]], encoder: str) -> None:
    print(
        "| corpus | passages | retriever | recall@2 | recall@5 | recall@10 | built in |\n|---|---|---|---|---|---|---|"
    )
    for name, documents in corpora.items():
        corpus = ListCorpus(documents)
        with tempfile.TemporaryDirectory() as folder:
            for kind in KINDS:
                config = RetrieverConfig(kind=kind, encoder=encoder, index=folder)
                started = time.perf_counter()
                build_index(config, corpus)  # hybrid finds both of its parts built
                built = f"{time.perf_counter() - started:.1f} s" if kind != "hybrid" else ""
                retriever = make_retriever(config, corpus)
                found = retriever.search_batch([record["question"] for record in records], max(DEPTHS))
                shares = " | ".join(f"{recall(records, found, depth):.3f}" for depth in DEPTHS)
                print(f"| {name} | {len(documents):,} | {kind} | {shares} | {built} |", flush=True)
    print()


def recall(records: Sequence[dict[str, Any]], found: Sequence[Any], depth: int) -> float:
    """The mean share of a question's supporting paragraphs among the first `depth` documents."""
    shares = []
    for record, hits in zip(records, found, strict=True):
        gold = set(record["supporting_facts"]["title"])
        shares.append(len(gold & {document.id for document, _ in hits[:depth]}) / len(gold))
    return sum(shares) / len(shares)


def make_queries(documents: Sequence[Document]) -> list[str]:
    """All different, about as long as a question: 8 to 24 consecutive words of a passage."""
    rng = random.Random(0)
    queries = []
    for document in documents:
        words = document.text.split()
        start = rng.randrange(max(1, len(words) - 8))
        queries.append(" ".join(words[start : start + rng.randint(8, 24)]))
    rng.shuffle(queries)
    return list(dict.fromkeys(queries))


def speed_table(corpus: Path, queries: list[str], options: argparse.Namespace) -> None:
    folder = str(corpus.parent / "index")
    config = RetrieverConfig(kind="hybrid", encoder=options.encoder, dtype=options.dtype, index=folder)
    build_index(config, FileCorpus(str(corpus)))
    heads = ["retriever", "queries", "server", *(f"{c} at once" for c in CONCURRENCY), "memory before, after"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    repeated = [query for query in queries for _ in range(SIBLINGS)]
    for kind in options.kinds:
        model = ["--encoder", options.encoder, "--dtype", options.dtype, "--index", folder]
        ours = ["-m", "launch", "serve", "retriever", "--corpus", str(corpus), "--port", "0", "--retriever", kind]
        plain = [__file__, str(options.hotpot), str(corpus), "--plain", kind]
        for load, asked in (("all different", queries), (f"each asked {SIBLINGS} times", repeated)):
            with server(*ours, *model) as (process, port), server(*plain, *model) as (other, other_port):
                speeds, others = [], []
                before, before_other = resident_mb(process), resident_mb(other)
                position = 0
                for concurrency in CONCURRENCY:
                    part = asked[position:] + asked[:position]
                    others.append(speed(other_port, part, concurrency, options.seconds)[0])
                    rate, answered = speed(port, part, concurrency, options.seconds)
                    speeds.append(rate)
                    position = (position + answered) % len(asked)
                ratios = [a / b for a, b in zip(speeds, others, strict=True)]
                row(kind, load, "rlsys", speeds, f"{before:.0f}, {resident_mb(process):.0f} MiB")
                row(kind, load, "one at a time", others, f"{before_other:.0f}, {resident_mb(other):.0f} MiB")
                row(kind, load, "ratio", ratios, "", "{:.1f}x")


def row(kind: str, load: str, name: str, values: Sequence[float], memory: str, form: str = "{:,.0f}/s") -> None:
    print("| " + " | ".join([kind, load, name, *(form.format(value) for value in values), memory]) + " |", flush=True)


def speed(port: int, queries: Sequence[str], concurrency: int, seconds: float) -> tuple[float, int]:
    """Answers per second, and answers."""
    started = time.perf_counter()
    answered = asyncio.run(hammer(port, queries, concurrency, seconds))
    return answered / (time.perf_counter() - started), answered


class Asked(BaseModel):
    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def serve_plainly(config: RetrieverConfig, corpus: Path) -> None:
    """As retrieval servers are written: a handler in FastAPI's thread pool, one search after the other."""
    retriever = make_retriever(config, FileCorpus(str(corpus)))
    lock = threading.Lock()
    app = FastAPI()

    @app.post("/retrieve")
    def retrieve(request: Asked) -> dict[str, Any]:
        with lock:
            found = retriever.search_batch(request.queries, request.topk or 3)
        return {"result": [[{"document": asdict(d), "score": score} for d, score in hits] for hits in found]}

    bound = take_port("127.0.0.1", 0)
    print(f"http://127.0.0.1:{bound.getsockname()[1]}:", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[bound])


@contextmanager
def server(*command: str) -> Iterator[tuple[psutil.Process, int]]:
    """A server process and its port, which its first line tells."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split("http://127.0.0.1:")[1].split(":")[0])
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield psutil.Process(process.pid), port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def resident_mb(process: psutil.Process) -> float:
    return process.memory_info().rss / 2**20


async def hammer(port: int, queries: Sequence[str], concurrency: int, seconds: float) -> int:
    """How many queries `concurrency` clients get answered, each one asking again as soon as it has its answer."""
    waiting = iter(queries)
    end = time.perf_counter() + seconds
    counts = await asyncio.gather(*(client(port, waiting, end) for _ in range(concurrency)))
    return sum(counts)


async def client(port: int, queries: Iterator[str], end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answered = 0
    for query in queries:
        if time.perf_counter() >= end:
            break
        body = json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
        head = f"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 200 " in answer.splitlines()[0], answer
        await reader.readexactly(int(answer.split("content-length:")[1].split("\r\n")[0]))
        answered += 1
    writer.close()
    return answered


if __name__ == "__main__":
    main()
