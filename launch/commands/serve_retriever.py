"""`rlsys serve retriever`: for any client of Search-R1's or ReSearch's protocol."""

from __future__ import annotations

import argparse

from launch.commands.address import add_address, warn_if_open
from launch.commands.retriever_options import add_retriever_options, retriever_config

HELP = "answer Search-R1's /retrieve and ReSearch's /search and /batch_search"
EXAMPLES = """examples:
  rlsys serve retriever --corpus wiki.jsonl                             BM25, built in memory, on 127.0.0.1:8000
  rlsys serve retriever --corpus wiki.jsonl --retriever dense --encoder minilm
  rlsys serve retriever --corpus wiki-18.jsonl --retriever hybrid --index indexes/wiki-18 --encoder e5
  RETRIEVER_TOKEN=... rlsys serve retriever --corpus wiki.jsonl --host 0.0.0.0 --token-env RETRIEVER_TOKEN
  curl -s localhost:8000/retrieve -H 'content-type: application/json' -d '{"queries": ["who ruled Lotharingia?"]}'
"""


def add(command: argparse.ArgumentParser) -> None:
    add_retriever_options(command)
    command.add_argument("--index", metavar="DIR", help="what `rlsys index` built (default: build in memory)")
    add_address(command, port=8000)
    command.add_argument(
        "--topk", type=int, default=3, help="documents where a request names no number (default: %(default)s)"
    )
    command.add_argument("--max-queue", type=int, default=4096, help="waiting queries, then 503 (default: %(default)s)")
    command.add_argument("--max-batch", type=int, default=64, help="queries searched at once (default: %(default)s)")
    command.add_argument("--cache-mb", type=int, default=64, help="recent answers, 0 for none (default: %(default)s)")
    command.add_argument("--nprobe", type=int, default=64, help="IVF lists a search looks into (default: %(default)s)")
    command.add_argument("--ef-search", type=int, default=128, help="width of a search in HNSW (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    from envs.services.retriever.config import RetrieverServerConfig
    from envs.services.retriever.service import serve
    from launch.run.bar import Bar

    own = ("host", "port", "token_env", "topk", "max_queue", "max_batch", "cache_mb")
    config = RetrieverServerConfig(
        corpus=options.corpus,
        retriever=retriever_config(options),
        max_queries=min(RetrieverServerConfig.max_queries, options.max_queue),
        **{name: getattr(options, name) for name in own},
    )
    warn_if_open(config.host, config.token_env)
    with Bar() as show:
        serve(config, say=lambda text: print(f"rlsys: {text}", flush=True), progress=show)
