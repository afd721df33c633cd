"""`rlsys serve judge`: the judge alone, with a model of its own (vLLM) or in front of an endpoint."""

from __future__ import annotations

import argparse
from typing import Any

from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import Judge, open_judge
from envs.services.secrets import read_secret
from launch.checks.preflight import check_model_folder
from launch.commands.shared import add_address, chosen, warn_if_open
from rlsys.config.engine import EngineConfig

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
    inside = "questions inside, then 503 (default: %(default)s)"
    command.add_argument("--max-queue", type=int, default=1024, metavar="N", help=inside)


def add_judge_options(command: argparse.ArgumentParser) -> None:
    """Those that `serve judge` and `judge-errors` share, named like the fields of their configs."""
    add = command.add_argument
    add("--endpoint", metavar="URL", help="OpenAI-compatible, such as https://host/v1")
    add("--model", metavar="M", help="its name at the endpoint; without one, a folder or hub name for vLLM")
    add("--key-env", metavar="NAME", help="environment variable that holds the endpoint's key")
    add("--plain-http", action="store_true", help="send that key over plain http to another machine too")
    add("--prompts", metavar="DIR", help="your own prompts, named after their kind: process.md, ..")
    add("--cache", dest="cache_file", metavar="F", help="SQLite file that keeps the answers")
    rpm = "requests per minute at most (default: no limit)"
    add("--rpm", dest="requests_per_minute", type=int, metavar="N", help=rpm)
    add(
        "--concurrency",
        dest="max_concurrent",
        type=int,
        default=32,
        metavar="N",
        help="questions under way (default: %(default)s)",
    )
    add("--max-tokens", type=int, metavar="N", help="of an answer (default: the kind's)")
    deadline, outage = (
        "of one attempt (default: %(default)g)",
        "wait so long for a judge that is away (default: %(default)g)",
    )
    add("--deadline", dest="deadline_s", type=float, default=120.0, metavar="S", help=deadline)
    add("--outage", dest="outage_s", type=float, default=60.0, metavar="S", help=outage)
    add = command.add_argument_group("vLLM").add_argument
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: %(default)s")
    add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="default: %(default)s")
    add("--max-model-len", type=int, default=16384, metavar="N", help="tokens (default: %(default)s)")
    add("--kv-cache-mb", type=int, default=2048, metavar="N", help="on a CPU (default: %(default)s)")
    add("--gpu-memory-utilization", type=float, default=0.85, metavar="SHARE", help="default: %(default)s")
    add("--threads", type=int, default=2, metavar="N", help="on a CPU (default: %(default)s)")


def service_config(options: argparse.Namespace, **more: Any) -> Any:
    """The JudgeServiceConfig that the options mean."""
    from actors.judge import JudgeServiceConfig  # torch and the HTTP server behind it: the help goes without

    engine = chosen(EngineConfig, options, max_num_seqs=options.max_concurrent)
    return chosen(JudgeServiceConfig, options, engine=engine, **more)


async def opened_judge(options: argparse.Namespace, config: Any) -> Any:
    """The judge of a JudgeConfig: at its address, or of a model that vLLM serves in this process."""
    if config.endpoint is None and config.service is None:
        from actors.judge import EngineChat, engine_spec  # torch behind it: an endpoint needs none

        return Judge(await EngineChat.start(engine_spec(service_config(options, judge=config), config.model)), config)

    return open_judge(config)


def run(options: argparse.Namespace) -> int:
    if options.endpoint is None:
        check_model_folder(options.model, "--model")

    from actors.judge import make_service  # torch and the HTTP server behind these three
    from envs.services.http import serve_until_signal
    from envs.services.judge.server import JudgeServerConfig

    server = chosen(JudgeServerConfig, options, max_batch=min(JudgeServerConfig.max_batch, options.max_queue))
    config = service_config(options, judge=chosen(JudgeConfig, options), server=server)
    token = read_secret("--token-env", options.token_env)
    warn_if_open(options.host, options.token_env)
    service = make_service(config, host=options.host, port=options.port, token=token)

    def started(url: str) -> None:
        what = options.endpoint or "vLLM"
        print(
            f"rlsys: judge ({options.model}, {what}) on {url}: POST /judge /judge_batch, GET /health /metrics",
            flush=True,
        )

    serve_until_signal(service, started)
