"""`rlsys index`: build a retrieval index on disk, with a progress bar; a killed build goes on where it stopped."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import Any

from launch.commands.retriever_options import Bars, add_retriever_options, retriever_config

EXAMPLES = """examples:
  rlsys index --corpus wiki.jsonl --index indexes/wiki                                  BM25
  rlsys index --corpus wiki.jsonl --index indexes/wiki --retriever hybrid --encoder minilm
  rlsys index --corpus wiki-18.jsonl --index indexes/wiki-18 --retriever dense --encoder e5 --faiss IVF4096,PQ64
  rlsys serve retriever --corpus wiki.jsonl --index indexes/wiki --retriever hybrid --encoder minilm
"""


def add_index(commands: argparse._SubParsersAction[Any]) -> None:
    text = "build a retrieval index; the same command again goes on with a build that was killed"
    command = commands.add_parser(
        "index", help=text, description=text, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_retriever_options(command)
    command.add_argument("--index", metavar="DIR", required=True, help="folder to write")
    command.set_defaults(handler=index_command)


def index_command(options: argparse.Namespace) -> int:
    from envs.services.retriever.corpus import FileCorpus
    from envs.services.retriever.retriever import build_index

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # nothing to tidy: any kill can be resumed
    started = time.monotonic()
    config = retriever_config(options)
    corpus = FileCorpus(options.corpus)
    with Bars() as bars:
        build_index(config, corpus, bars)
    print(f"rlsys: {options.index}: {config.kind} of {len(corpus):,} passages, {time.monotonic() - started:.1f} s")
    return 0
