"""`rlsys serve judge`: the judge alone, with a model of its own (vLLM) or in front of an endpoint."""

from __future__ import annotations

import argparse

from envs.services.judge.config import JudgeConfig
from envs.services.secrets import read_secret
from launch.checks.preflight import check_model_folder
from launch.commands.services import add_judge_options, judge_service_config
from launch.commands.shared import add_address, chosen, warn_if_open

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
    inside = "waiting and running questions, more get 503 (default: %(default)s)"
    command.add_argument("--max-queue", type=int, default=1024, metavar="N", help=inside)


def run(options: argparse.Namespace) -> int:
    if options.endpoint is None:
        check_model_folder(options.model, "--model")

    from actors.judge import make_service  # torch and the HTTP server behind these three
    from envs.services.http import serve_until_signal
    from envs.services.judge.server import JudgeServerConfig

    server = chosen(JudgeServerConfig, options, max_batch=min(JudgeServerConfig.max_batch, options.max_queue))
    config = judge_service_config(options, judge=chosen(JudgeConfig, options), server=server)
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
