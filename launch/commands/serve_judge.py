"""`rlsys serve judge`: the judge alone, with a model of its own (vLLM) or in front of an endpoint."""

from __future__ import annotations

import argparse
from typing import Any

from launch.commands.address import add_address, warn_if_open

HELP = "give verdicts: POST /judge and /judge_batch"
EXAMPLES = """examples:
  rlsys serve judge --model Qwen/Qwen2.5-7B-Instruct                    vLLM in this process, on 127.0.0.1:8100
  rlsys serve judge --endpoint https://host/v1 --model NAME --key-env JUDGE_KEY --rpm 500 --cache judge.sqlite
  rlsys serve judge --endpoint http://127.0.0.1:8000/v1 --model NAME --prompts my-prompts
  curl -s localhost:8100/judge -H 'content-type: application/json' \\
    -d '{"kind": "outcome_math", "fields": {"question": "2 + 3?", "answers": "5", "answer": "5.0"}}'
"""


def add(command: argparse.ArgumentParser) -> None:
    add_judge_options(command)
    add_address(command, port=8100)
    command.add_argument(
        "--max-queue", type=int, default=1024, help="questions inside, then 503 (default: %(default)s)"
    )


def add_judge_options(command: argparse.ArgumentParser) -> None:
    """Those that `serve judge` and `judge-errors` share."""
    command.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible, such as https://host/v1")
    command.add_argument(
        "--model", metavar="M", help="its name at the endpoint; without one, a folder or hub name for vLLM"
    )
    command.add_argument("--key-env", metavar="NAME", help="environment variable that holds the endpoint's key")
    command.add_argument("--prompts", metavar="DIR", help="your own prompts, named after their kind: process.md, ..")
    command.add_argument("--cache", metavar="F", help="SQLite file that keeps the answers")
    command.add_argument("--rpm", type=int, metavar="N", help="requests per minute at most (default: no limit)")
    command.add_argument("--concurrency", type=int, default=32, help="questions under way (default: %(default)s)")
    command.add_argument("--max-tokens", type=int, metavar="N", help="of an answer (default: the kind's)")
    command.add_argument(
        "--deadline", type=float, default=120.0, metavar="S", help="of one attempt (default: %(default)g)"
    )
    command.add_argument(
        "--outage", type=float, default=60.0, metavar="S", help="wait so long for a judge that is away (%(default)g)"
    )
    engine = command.add_argument_group("vLLM")
    engine.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    engine.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="default: %(default)s")
    engine.add_argument("--max-model-len", type=int, default=16384, metavar="N", help="tokens (default: %(default)s)")
    engine.add_argument("--kv-cache-mb", type=int, default=2048, metavar="N", help="on a CPU (default: %(default)s)")
    engine.add_argument("--gpu-memory-utilization", type=float, default=0.85, help="default: %(default)s")
    engine.add_argument("--threads", type=int, default=2, metavar="N", help="on a CPU (default: %(default)s)")


def judge_config(options: argparse.Namespace, **more: Any) -> Any:
    """The JudgeConfig that the options mean."""
    from envs.services.judge.config import JudgeConfig

    return JudgeConfig(
        endpoint=options.endpoint,
        model=options.model,
        key_env=options.key_env,
        prompts=options.prompts,
        cache_file=options.cache,
        requests_per_minute=options.rpm,
        max_concurrent=options.concurrency,
        max_tokens=options.max_tokens,
        deadline_s=options.deadline,
        outage_s=options.outage,
        **more,
    )


def service_config(options: argparse.Namespace, judge: Any, **more: Any) -> Any:
    """The JudgeServiceConfig that the options mean."""
    import torch

    from actors.judge import JudgeServiceConfig
    from rlsys.config import EngineConfig

    device: Any = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    engine = EngineConfig(
        max_model_len=options.max_model_len,
        max_num_seqs=options.concurrency,
        kv_cache_mb=options.kv_cache_mb,
        gpu_memory_utilization=options.gpu_memory_utilization,
    )
    return JudgeServiceConfig(
        judge=judge, engine=engine, device=device, dtype=options.dtype, threads=options.threads, **more
    )


def run(options: argparse.Namespace) -> int:
    from actors.judge import START_S, make_service
    from envs.services.http import serve_until_signal
    from envs.services.judge.server import JudgeServerConfig
    from envs.services.secrets import read_secret

    server = JudgeServerConfig(max_queue=options.max_queue, max_batch=min(256, options.max_queue))
    config = service_config(options, judge_config(options), server=server)
    token = read_secret("--token-env", options.token_env)
    warn_if_open(options.host, options.token_env)
    service = make_service(config, host=options.host, port=options.port, token=token)

    def started(url: str) -> None:
        what = options.endpoint or "vLLM"
        print(f"rlsys: judge ({options.model}, {what}) on {url}: POST /judge /judge_batch, GET /health", flush=True)

    serve_until_signal("judge", service, lambda: service.start(START_S), started)
