"""Options of the judge and of the retriever, which several commands take, and what they mean."""

from __future__ import annotations

import argparse
from typing import Any

from envs.services.judge.judge import Judge, open_judge
from envs.services.retriever.config import KINDS
from launch.commands.shared import config_from_options
from rlsys.config.engine import EngineConfig


def add_retriever_options(command: argparse.ArgumentParser) -> None:
    """Options of a retriever, named like the fields of its config."""
    add = command.add_argument
    lines = 'JSON lines: {"id", "contents"} or {"id", "title", "text"}'
    add("--corpus", metavar="F.jsonl", required=True, help=lines)
    add("--retriever", dest="kind", choices=tuple(KINDS), default="bm25", help="kind of ranking (default: %(default)s)")
    add("--encoder", metavar="M", default="e5", help="e5, minilm, a folder or a hub name (default: %(default)s)")
    add("--k1", type=float, default=1.5, help="k1 of BM25; Pyserini's is 0.9 (default: %(default)s)")
    add("--b", type=float, default=0.75, help="b of BM25; Pyserini's is 0.4 (default: %(default)s)")
    add("--faiss", metavar="KEY", default="Flat", help="index: Flat, HNSW32, IVF4096,PQ64, .. (default: %(default)s)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    dtypes = ("auto", "float32", "bfloat16")
    add("--dtype", choices=dtypes, default="auto", help="number format of the encoder (default: %(default)s)")
    add("--threads", type=int, metavar="N", help="CPU threads of the encoder and faiss (default: every core)")


def add_judge_options(command: argparse.ArgumentParser) -> None:
    """Options of a judge, named like the fields of its configs."""
    add = command.add_argument
    add("--endpoint", metavar="URL", help="address of an OpenAI-compatible API, such as https://host/v1")
    add("--model", metavar="M", help="its name at the endpoint; without one, a folder or hub name for vLLM")
    add("--key-env", metavar="NAME", help="environment variable with the API key of the endpoint")
    add("--plain-http", action="store_true", help="allow the key to be sent over plain http to another machine")
    add("--prompts", metavar="DIR", help="folder with your own prompts, named after their kind: process.md, ..")
    add("--cache", dest="cache_file", metavar="F", help="SQLite file that keeps the answers")
    rpm = "largest number of requests per minute (default: no limit)"
    add("--rpm", dest="requests_per_minute", type=int, metavar="N", help=rpm)
    inside = "number of questions in flight (default: %(default)s)"
    add("--concurrency", dest="max_concurrent", type=int, default=32, metavar="N", help=inside)
    add("--max-tokens", type=int, metavar="N", help="token limit of an answer (default: the kind's)")
    deadline = "timeout of one attempt, seconds (default: %(default)g)"
    add("--deadline", dest="deadline_s", type=float, default=120.0, metavar="S", help=deadline)
    outage = "seconds to wait during an outage of the judge (default: %(default)g)"
    add("--outage", dest="outage_s", type=float, default=60.0, metavar="S", help=outage)
    add_engine_options(command)


def add_engine_options(command: argparse.ArgumentParser) -> None:
    """Of a model that vLLM serves in this process."""
    add = command.add_argument_group("vLLM").add_argument
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="default: %(default)s")
    add("--max-model-len", type=int, default=16384, metavar="N", help="context window, tokens (default: %(default)s)")
    add("--kv-cache-mb", type=int, default=2048, metavar="N", help="KV cache on a CPU, MiB (default: %(default)s)")
    add("--gpu-memory-utilization", type=float, default=0.85, metavar="SHARE", help="share (default: %(default)s)")
    add("--threads", type=int, default=2, metavar="N", help="CPU threads (default: %(default)s)")


def judge_service_config(options: argparse.Namespace, **more: Any) -> Any:
    """The JudgeServiceConfig that the options mean."""
    from actors.judge import JudgeServiceConfig  # torch and the HTTP server behind it: the help goes without

    engine = config_from_options(EngineConfig, options, max_num_seqs=options.max_concurrent)
    return config_from_options(JudgeServiceConfig, options, engine=engine, **more)


async def start_judge(options: argparse.Namespace, config: Any) -> Any:
    """The judge of a JudgeConfig: at its address, or of a model that vLLM serves in this process."""
    if config.endpoint is None and config.service is None:
        from actors.judge import EngineChat, engine_spec  # torch behind it: an endpoint needs none

        spec = engine_spec(judge_service_config(options, judge=config), config.model)
        return Judge(await EngineChat.start(spec), config)
    return open_judge(config)
