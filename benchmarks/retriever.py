"""Recall, speed and memory of the retrieval server: `python benchmarks/retriever.py HOTPOT.jsonl WIKI.jsonl`.

HOTPOT holds HotpotQA's distractor records, WIKI more passages in the corpus format. Prints the tables of
docs/results/retriever.md. Every speed is that of a separate server process, asked from this process over plain sockets.
It is compared, in turns, with the two forms that the authors' servers have (see `Plain` and `FORMS`). FastAPI, on
which they stand, is here because vLLM needs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[1]))

from http_load import load
from report import Report, parser

from envs.services.http import take_port
from envs.services.retriever import bm25, dense
from envs.services.retriever.config import KINDS, RetrieverConfig, RetrieverServerConfig
from envs.services.retriever.corpus import Document, FileCorpus, ListCorpus, contents
from envs.services.retriever.dense import make_encoder
from envs.services.retriever.hybrid import FUSION_DEPTH, fuse
from envs.services.retriever.retriever import Hit, build_index, make_retriever
from envs.services.retriever.service import RetrieverApp

DEPTHS = (2, 5, 10)
CONCURRENCY = (1, 16, 64)
# A handler that searches in the event loop, so one query after the other (ReSearch), and one that FastAPI calls in its
# pool of 40 threads, which share the cores as they can (Search-R1).
FORMS = ("one at a time", "thread pool")
QUERIES_PER_PASSAGE = 16  # none is asked twice of a server, whatever its speed: the cache would answer
SIBLINGS = 8  # rollouts of one task: in the second load each query is asked this often, at about the same time


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("hotpot", type=Path)
    cli.add_argument("wiki", type=Path)
    cli.add_argument("--encoder", default="minilm")
    cli.add_argument("--dtype", default="auto")
    cli.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    cli.add_argument("--plain", metavar="KIND", help=argparse.SUPPRESS)  # be the server that is compared with
    cli.add_argument("--form", choices=FORMS, help=argparse.SUPPRESS)
    cli.add_argument("--index", help=argparse.SUPPRESS)
    cli.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default: %(default)s)")
    cli.add_argument("--part", choices=("recall", "speed"), help="one of the two tables (default: both)")
    options = cli.parse_args()
    if options.plain is not None:
        plain = config_of(options.plain, options.encoder, index=options.index, dtype=options.dtype)
        serve_plainly(plain, options.wiki, options.form)
        return
    records = [json.loads(line) for line in options.hotpot.read_text().splitlines()]
    paragraphs = list(paragraphs_of(records))
    wiki = FileCorpus(str(options.wiki))
    everything = [*paragraphs, *(wiki[row] for row in range(len(wiki)))]
    with Report(options) as report:
        report.note(f"load {os.getloadavg()[0]:.1f} before it began; encoder {options.encoder}")
        if options.part != "speed":
            corpora = {"its paragraphs": paragraphs, "and the wiki passages": everything}
            recall_table(report, records, corpora, options.encoder)
        if options.part == "recall":
            return
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(folder) / "corpus.jsonl"
            lines = (json.dumps({"id": document.id, "contents": document.contents}) for document in everything)
            corpus.write_text("\n".join(lines))
            queries = make_queries(everything)
            if "bm25" in options.kinds:
                asyncio.run(app_alone(report, queries, corpus))
            if options.kinds != ["bm25"]:
                encoder_alone(report, queries, options)
            speed_table(report, corpus, queries, options)


def paragraphs_of(records: Sequence[dict[str, Any]]) -> Iterator[Document]:
    """Every paragraph once; its title is its id."""
    titles: set[str] = set()
    for record in records:
        for title, sentences in zip(record["context"]["title"], record["context"]["sentences"], strict=True):
            if title not in titles:
                titles.add(title)
                yield Document(id=title, contents=contents(title, "".join(sentences)))


def config_of(kind: str, encoder: str, **keys: Any) -> RetrieverConfig:
    return RetrieverConfig(kind=kind, **(keys if kind == "bm25" else keys | {"encoder": encoder}))


def recall_table(
    report: Report, records: Sequence[dict[str, Any]], corpora: dict[str, list[Document]], encoder: str
) -> None:
    report.head("corpus", "passages", "retriever", *(f"recall@{depth}" for depth in DEPTHS), "built in, s")
    for name, documents in corpora.items():
        corpus = ListCorpus(documents)
        with tempfile.TemporaryDirectory() as folder:
            for kind in KINDS:
                config = config_of(kind, encoder, index=folder)
                started = time.perf_counter()
                build_index(config, corpus)  # hybrid finds both of its parts built
                built = time.perf_counter() - started if kind != "hybrid" else None
                retriever = make_retriever(config, corpus)
                hit_lists = retriever.search_batch([record["question"] for record in records], max(DEPTHS))
                report.row(name, len(documents), kind, *(recall(records, hit_lists, depth) for depth in DEPTHS), built)


def recall(records: Sequence[dict[str, Any]], hit_lists: Sequence[Any], depth: int) -> float:
    """The mean share of a question's supporting paragraphs among the first `depth` documents."""
    shares = []
    for record, hits in zip(records, hit_lists, strict=True):
        gold = set(record["supporting_facts"]["title"])
        shares.append(len(gold & {document.id for document, _ in hits[:depth]}) / len(gold))
    return sum(shares) / len(shares)


def make_queries(documents: Sequence[Document]) -> list[str]:
    """All different, about as long as a question: 8 to 24 consecutive words of a passage."""
    rng = random.Random(0)
    queries = []
    for document in documents:
        words = document.text.split()
        for _ in range(QUERIES_PER_PASSAGE):
            start = rng.randrange(max(1, len(words) - 8))
            queries.append(" ".join(words[start : start + rng.randint(8, 24)]))
    rng.shuffle(queries)
    return list(dict.fromkeys(queries))


async def app_alone(report: Report, queries: Sequence[str], corpus: Path) -> None:
    """Processor time of a BM25 request without sockets: 64 at once, each query new, and then each known."""
    retriever = make_retriever(RetrieverConfig(), FileCorpus(str(corpus)), cache_bytes=64 << 20)
    requests = [request_of(query).partition(b"\r\n\r\n")[2] for query in queries[: 64 * 100]]
    scope = {"type": "http", "path": "/retrieve", "method": "POST", "headers": [(b"content-type", b"application/json")]}

    async def send(_: object) -> None: ...

    async with RetrieverApp(retriever, RetrieverServerConfig(corpus=str(corpus)), None) as app:

        async def ask(request: bytes) -> None:
            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": request, "more_body": False}

            await app(scope, receive, send)

        for kind in ("new", "repeated"):
            started = time.process_time()
            for first in range(0, len(requests), 64):
                await asyncio.gather(*map(ask, requests[first : first + 64]))
            spent = (time.process_time() - started) / len(requests)
            report.note(f"bm25 without sockets: {spent * 1e6:.0f} us of processor time for a {kind} query")


def encoder_alone(report: Report, queries: Sequence[str], options: argparse.Namespace) -> None:
    """What batches can give at best: the same queries encoded without a server, by all cores."""
    encoder = make_encoder(RetrieverConfig(kind="dense", encoder=options.encoder, dtype=options.dtype))
    for size in (1, 64):
        parts = [queries[start : start + size] for start in range(0, 512, size)]
        rates = []
        for _ in range(4):  # the first makes torch's kernels
            started = time.perf_counter()
            for part in parts:
                encoder.queries(part)
            rates.append(512 / (time.perf_counter() - started))
        report.note(f"encoder alone, {encoder.dtype}, {size} at once: {max(rates):,.0f} queries/s")


def speed_table(report: Report, corpus: Path, queries: list[str], options: argparse.Namespace) -> None:
    folder = str(corpus.parent / "index")
    kind = "bm25" if options.kinds == ["bm25"] else "hybrid"
    config = config_of(kind, options.encoder, index=folder, dtype=options.dtype)
    build_index(config, FileCorpus(str(corpus)))
    speeds_at = (f"{count} at once, per second" for count in CONCURRENCY)
    report.head("retriever", "queries", "server", *speeds_at, "MiB before", "MiB after")
    different = [request_of(query) for query in queries]
    loads = {"all different": different}
    loads[f"each asked {SIBLINGS} times"] = [request for request in different for _ in range(SIBLINGS)]
    for kind in options.kinds:
        model = ["--encoder", options.encoder, "--dtype", options.dtype, "--index", folder]
        ours = ["-m", "launch", "serve", "retriever", "--corpus", str(corpus), "--port", "0", "--retriever", kind]
        plain = [__file__, str(options.hotpot), str(corpus), "--plain", kind]
        commands = {"rlsys": [*ours, *model]} | {form: [*plain, "--form", form, *model] for form in FORMS}
        for name, requests in loads.items():
            with ExitStack() as stack:
                servers = {label: stack.enter_context(server(*command)) for label, command in commands.items()}
                before = {label: resident_mb(process) for label, (process, _) in servers.items()}
                speeds: dict[str, list[float]] = {label: [] for label in servers}
                share = len(requests) // len(CONCURRENCY)
                for level, concurrency in enumerate(CONCURRENCY):
                    part = requests[level * share : (level + 1) * share]
                    for system, (_, port) in servers.items():
                        speeds[system].append(load(port, part, concurrency, options.seconds))
                for system, (process, _) in servers.items():
                    report.row(kind, name, system, *speeds[system], before[system], resident_mb(process))
                for form in FORMS:
                    ratios = [a / b for a, b in zip(speeds["rlsys"], speeds[form], strict=True)]
                    report.row(kind, name, f"rlsys : {form}, times", *ratios, None, None)


def request_of(query: str) -> bytes:
    body = json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
    head = f"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class Asked(BaseModel):
    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class Plain:
    """One query's search as Search-R1's and ReSearch's servers make it: the libraries' own calls, for one text.

    Tokenizer, transformers' forward pass, mean, faiss; or bm25s, as FlashRAG calls it. Encoder, dtype, index and the
    corpus's words are those of the server it is compared with. Passages are dicts in memory: theirs come from
    `datasets`, which is slower.
    """

    def __init__(self, config: RetrieverConfig, corpus: FileCorpus) -> None:
        assert config.index is not None
        self._documents = [
            {"id": document.id, "contents": document.contents}
            for document in map(corpus.__getitem__, range(len(corpus)))
        ]
        if config.kind != "dense":
            self._bm25 = bm25.load(Path(config.index) / "bm25")
        if config.kind != "bm25":
            import torch
            from transformers import AutoModel, AutoTokenizer

            encoder = make_encoder(config)
            self._tokenizer = AutoTokenizer.from_pretrained(encoder.spec.path)
            self._model = AutoModel.from_pretrained(encoder.spec.path, dtype=getattr(torch, encoder.dtype)).eval()
            self._prefix = encoder.spec.query_prefix
            self._index = dense.load(Path(config.index) / "dense" / "index.faiss")
        self._kind = config.kind

    def search(self, query: str, k: int) -> list[tuple[dict[str, str], float]]:
        if self._kind == "bm25":
            hits = self._words(query, k)
        elif self._kind == "dense":
            hits = self._vectors(query, k)
        else:
            hits = fuse([self._words(query, FUSION_DEPTH), self._vectors(query, FUSION_DEPTH)])[:k]
        return [(self._documents[row], score) for row, score in hits]

    def _words(self, query: str, k: int) -> list[Hit]:
        words = [word for word in bm25.tokenize(query) if word in self._bm25.vocab_dict]
        if not words:
            return []
        rows, scores = self._bm25.retrieve([words], k=k, show_progress=False)
        return [(row, score) for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True) if score > 0]

    def _vectors(self, query: str, k: int) -> list[Hit]:
        import torch

        inputs = self._tokenizer(
            [self._prefix + query], max_length=256, padding=True, truncation=True, return_tensors="pt"
        )
        with torch.no_grad():
            hidden = self._model(**inputs, return_dict=True).last_hidden_state
            mask = inputs["attention_mask"]
            pooled = hidden.masked_fill(~mask[..., None].bool(), 0.0).sum(dim=1) / mask.sum(dim=1)[..., None]
            vectors = torch.nn.functional.normalize(pooled, dim=-1).float().numpy()
        scores, rows = self._index.search(vectors, k)
        return list(zip(rows[0].tolist(), scores[0].tolist(), strict=True))


def serve_plainly(config: RetrieverConfig, corpus: Path, form: str) -> None:
    """Their handlers, without their access log, which costs time."""
    plain = Plain(config, FileCorpus(str(corpus)))
    app = FastAPI()

    def answer(request: Asked) -> dict[str, Any]:
        hit_lists = [plain.search(query, request.topk or 3) for query in request.queries]
        return {"result": [[{"document": document, "score": score} for document, score in hits] for hits in hit_lists]}

    async def answer_alone(request: Asked) -> dict[str, Any]:
        return answer(request)

    app.post("/retrieve")(answer_alone if form == "one at a time" else answer)
    plain.search("a query before the first query", 3)
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
    return float(process.memory_info().rss / 2**20)


if __name__ == "__main__":
    main()
