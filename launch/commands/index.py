"""`rlsys index`: build a retrieval index on disk, with a progress bar; a killed build continues where it stopped."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import FileCorpus
from envs.services.retriever.retriever import build_index
from launch.commands.services import add_retriever_options
from launch.commands.shared import config_from_options
from launch.driver.observe.progress import Bar

HELP = "build a retrieval index; the same command continues a build that was killed"
EXAMPLES = """examples:
  rlsys index --corpus wiki.jsonl --index indexes/wiki                                  BM25
  rlsys index --corpus wiki.jsonl --index indexes/wiki --retriever hybrid --encoder minilm
  rlsys index --corpus wiki-18.jsonl --index indexes/wiki-18 --retriever dense --encoder e5 --faiss IVF4096,PQ64
  rlsys serve retriever --corpus wiki.jsonl --index indexes/wiki --retriever hybrid --encoder minilm
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_retriever_options(parser)
    parser.add_argument("--index", metavar="DIR", required=True, help="folder to write")


def run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # nothing to tidy: any kill can be resumed
    started = time.monotonic()
    config = config_from_options(RetrieverConfig, options)
    corpus = FileCorpus(options.corpus)
    with Bar() as show:
        build_index(config, corpus, show)
    print(f"rlsys: {options.index}: {config.kind} of {len(corpus):,} passages, {time.monotonic() - started:.1f} s")
    return 0
