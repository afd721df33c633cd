"""`rlsys serve retriever`: for any client of Search-R1's or ReSearch's protocol."""

from __future__ import annotations

import argparse

from envs.services.retriever.config import RetrieverConfig, RetrieverServerConfig
from launch.commands.services import add_retriever_options
from launch.commands.shared import add_address, chosen, warn_if_open
from launch.observe.progress import Bar

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
    add_address(command, port=8000)
    add = command.add_argument
    add("--index", metavar="DIR", help="folder that `rlsys index` built (default: build the index in memory)")
    add("--topk", type=int, default=3, help="number of documents if a request gives none (default: %(default)s)")
    add("--max-queue", type=int, default=4096, help="waiting queries, more get 503 (default: %(default)s)")
    add("--max-batch", type=int, default=64, help="queries searched in one batch (default: %(default)s)")
    add("--cache-mb", type=int, default=64, help="cache of recent answers, MiB; 0: none (default: %(default)s)")
    add("--query-tokens", type=int, metavar="N", help="token limit of a query (default: 256, as for passages)")
    add("--nprobe", type=int, default=64, help="number of IVF lists that a search reads (default: %(default)s)")
    add("--ef-search", type=int, default=128, help="width of an HNSW search (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    from envs.services.retriever.service import serve  # the HTTP server behind it: the help goes without

    most = min(RetrieverServerConfig.max_queries, options.max_queue)
    retriever = chosen(RetrieverConfig, options)
    config = chosen(RetrieverServerConfig, options, retriever=retriever, max_queries=most)
    warn_if_open(config.host, config.token_env)
    with Bar() as show:
        serve(config, say=lambda text: print(f"rlsys: {text}", flush=True), progress=show)
