"""The options that `rlsys serve retriever` and `rlsys index` share."""

from __future__ import annotations

import argparse
from typing import Any


def add_retriever_options(command: argparse.ArgumentParser) -> None:
    from envs.services.retriever.config import KINDS

    command.add_argument(
        "--corpus", metavar="F.jsonl", required=True, help='JSON lines: {"id", "contents"} or {"id", "title", "text"}'
    )
    command.add_argument("--retriever", choices=tuple(KINDS), default="bm25", help="default: %(default)s")
    command.add_argument(
        "--encoder", metavar="M", default="e5", help="e5, minilm, a folder or a hub name (default: %(default)s)"
    )
    command.add_argument(
        "--faiss", metavar="KEY", default="Flat", help="Flat, HNSW32, IVF4096,PQ64, .. (default: %(default)s)"
    )
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    command.add_argument(
        "--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="of the encoder (default: %(default)s)"
    )
    command.add_argument("--threads", type=int, metavar="N", help="of the encoder and faiss (default: every core)")


def retriever_config(options: argparse.Namespace) -> Any:
    """The RetrieverConfig that the options mean."""
    from envs.services.retriever.config import RetrieverConfig

    shared = ("index", "encoder", "faiss", "device", "dtype", "threads", "nprobe", "ef_search")
    given = {name: getattr(options, name) for name in shared if name in options}
    return RetrieverConfig(kind=options.retriever, **given)
