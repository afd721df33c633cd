"""`rlsys serve`: a service alone. The retriever, for any client of Search-R1's or ReSearch's protocol; the judge."""

from __future__ import annotations

import argparse
import sys

from launch.commands.retriever_options import Bars, add_retriever_options, retriever_config
from launch.commands.serve_judge import add_serve_judge

HELP = "a service alone: the retriever, the judge"
EXAMPLES = """examples:
  rlsys serve retriever --corpus wiki.jsonl                             BM25, built in memory, on 127.0.0.1:8000
  rlsys serve retriever --corpus wiki.jsonl --retriever dense --encoder minilm
  rlsys serve retriever --corpus wiki-18.jsonl --retriever hybrid --index indexes/wiki-18 --encoder e5
  RETRIEVER_TOKEN=... rlsys serve retriever --corpus wiki.jsonl --host 0.0.0.0 --token-env RETRIEVER_TOKEN
  curl -s localhost:8000/retrieve -H 'content-type: application/json' -d '{"queries": ["who ruled Lotharingia?"]}'
"""


def add(parser: argparse.ArgumentParser) -> None:
    services = parser.add_subparsers(dest="service", metavar="SERVICE", required=True)
    text = "answer Search-R1's /retrieve and ReSearch's /search and /batch_search"
    command = services.add_parser(
        "retriever",
        help=text,
        description=text,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_retriever_options(command)
    command.add_argument("--index", metavar="DIR", help="what `rlsys index` built (default: build in memory)")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    command.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: %(default)s)")
    command.add_argument(
        "--token-env", metavar="NAME", help="environment variable that holds the bearer token to ask for"
    )
    command.add_argument(
        "--topk", type=int, default=3, help="documents where a request names no number (default: %(default)s)"
    )
    command.add_argument("--max-queue", type=int, default=4096, help="waiting queries, then 503 (default: %(default)s)")
    command.add_argument("--max-batch", type=int, default=64, help="queries searched at once (default: %(default)s)")
    command.add_argument("--cache-mb", type=int, default=64, help="recent answers, 0 for none (default: %(default)s)")
    command.add_argument("--nprobe", type=int, default=64, help="IVF lists a search looks into (default: %(default)s)")
    command.add_argument("--ef-search", type=int, default=128, help="width of a search in HNSW (default: %(default)s)")
    command.set_defaults(serve=serve_retriever)
    add_serve_judge(services)


def run(options: argparse.Namespace) -> int:
    return int(options.serve(options))


def serve_retriever(options: argparse.Namespace) -> int:
    from envs.services.retriever.config import RetrieverServerConfig
    from envs.services.retriever.service import serve

    own = ("host", "port", "token_env", "topk", "max_queue", "max_batch", "cache_mb")
    config = RetrieverServerConfig(
        corpus=options.corpus,
        retriever=retriever_config(options),
        max_queries=min(RetrieverServerConfig.max_queries, options.max_queue),
        **{name: getattr(options, name) for name in own},
    )
    if config.host not in ("127.0.0.1", "localhost", "::1") and config.token_env is None:
        print(f"rlsys: warning: {config.host} without --token-env: whoever reaches it may search", file=sys.stderr)
    with Bars() as bars:
        serve(config, say=lambda text: print(f"rlsys: {text}", flush=True), progress=bars)
