"""What `rlsys serve retriever` and `rlsys index` share: their options, and how a build shows where it is."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any


def add_retriever_options(command: argparse.ArgumentParser) -> None:
    """Those that `serve retriever` and `index` share."""
    command.add_argument(
        "--corpus", metavar="F.jsonl", required=True, help='JSON lines: {"id", "contents"} or {"id", "title", "text"}'
    )
    command.add_argument(
        "--retriever", choices=("bm25", "dense", "hybrid"), default="bm25", help="default: %(default)s"
    )
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


class Bars:
    """A progress bar on a terminal; a line every ten seconds in a log: an `index.Progress`."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""
        self._last_line = time.monotonic()

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __call__(self, what: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self._show(what, done, total)
        elif time.monotonic() - self._last_line >= 10.0:
            self._last_line = time.monotonic()
            print(f"rlsys: {what} {done:,}/{total:,}", file=sys.stderr, flush=True)

    def _show(self, what: str, done: int, total: int) -> None:
        from tqdm import tqdm

        if self._bar is None or what != self._what:
            self._close()
            # initial: where a resumed build starts, so that the time left is of this one's speed
            self._bar, self._what = tqdm(total=total, initial=done, desc=what, unit=" passages", leave=False), what
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
