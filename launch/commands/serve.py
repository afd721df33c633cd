"""`rlsys serve`: a service alone.

The judge hosts its model (vLLM) or stands in front of an endpoint. The retriever is for any client of
Search-R1's or ReSearch's protocol. The policy is a trained model behind OpenAI's chat completions and responses.
"""

from __future__ import annotations

import argparse

from envs.services.judge.config import JudgeConfig
from envs.services.retriever.config import RetrieverConfig, RetrieverServerConfig
from envs.services.secrets import read_secret
from launch.checks.preflight import check_model_folder
from launch.commands.services import (
    add_engine_options,
    add_judge_options,
    add_retriever_options,
    judge_service_config,
)
from launch.commands.shared import add_address, config_from_options, warn_if_open
from launch.driver.observe.progress import Bar

HELP = "serve a trained model, the retriever or the judge"
EXAMPLES = """examples:
  rlsys serve policy runs/mine                            a run's model, for people and their agents
  rlsys serve retriever --corpus wiki.jsonl --port 8000   the retrieval service alone
  rlsys serve judge --model ./my-judge                    the judge alone, or --endpoint URL --model NAME
"""
POLICY_HELP = "answer POST /v1/chat/completions and /v1/responses with the model of a run, a checkpoint or a folder"
POLICY_EXAMPLES = """examples:
  rlsys serve policy runs/mine                                          its newest checkpoint, on 127.0.0.1:8200
  rlsys serve policy runs/mine@best --port 0
  POLICY_TOKEN=... rlsys serve policy Qwen/Qwen2.5-7B-Instruct --host 0.0.0.0 --token-env POLICY_TOKEN
  OPENAI_BASE_URL=http://127.0.0.1:8200/v1 OPENAI_API_KEY=any python my_agent.py
"""
JUDGE_HELP = "give verdicts: POST /judge and /judge_batch"
JUDGE_EXAMPLES = """examples:
  rlsys serve judge --model Qwen/Qwen2.5-7B-Instruct                    vLLM in this process, on 127.0.0.1:8100
  rlsys serve judge --endpoint https://host/v1 --model NAME --key-env JUDGE_KEY --rpm 500 --cache judge.sqlite
  rlsys serve judge --endpoint http://127.0.0.1:8000/v1 --model NAME --prompts my-prompts
  curl -s localhost:8100/judge -H 'content-type: application/json' \\
    -d '{"kind": "outcome_math", "fields": {"question": "2 + 3?", "answers": "5", "answer": "5.0"}}'
"""
RETRIEVER_HELP = "answer Search-R1's /retrieve and ReSearch's /search and /batch_search"
RETRIEVER_EXAMPLES = """examples:
  rlsys serve retriever --corpus wiki.jsonl                             BM25, built in memory, on 127.0.0.1:8000
  rlsys serve retriever --corpus wiki.jsonl --retriever dense --encoder minilm
  rlsys serve retriever --corpus wiki-18.jsonl --retriever hybrid --index indexes/wiki-18 --encoder e5
  RETRIEVER_TOKEN=... rlsys serve retriever --corpus wiki.jsonl --host 0.0.0.0 --token-env RETRIEVER_TOKEN
  curl -s localhost:8000/retrieve -H 'content-type: application/json' -d '{"queries": ["who ruled Lotharingia?"]}'
"""


def add_judge(command: argparse.ArgumentParser) -> None:
    add_judge_options(command)
    add_address(command, port=8100)
    inside = "waiting and running questions, more get 503 (default: %(default)s)"
    command.add_argument("--max-queue", type=int, default=1024, metavar="N", help=inside)


def serve_judge(options: argparse.Namespace) -> None:
    if options.endpoint is None:
        check_model_folder(options.model, "--model")

    from actors.judge import make_service  # torch and the HTTP server behind these three
    from envs.services.http import serve_until_signal
    from envs.services.judge.server import JudgeServerConfig

    server = config_from_options(
        JudgeServerConfig, options, max_batch=min(JudgeServerConfig.max_batch, options.max_queue)
    )
    config = judge_service_config(options, judge=config_from_options(JudgeConfig, options), server=server)
    token = read_secret("--token-env", options.token_env)
    warn_if_open(options.host, options.token_env)
    service = make_service(config, host=options.host, port=options.port, token=token)

    def started(url: str) -> None:
        backend = options.endpoint or "vLLM"
        print(
            f"rlsys: judge ({options.model}, {backend}) on {url}: POST /judge /judge_batch, GET /health /metrics",
            flush=True,
        )

    serve_until_signal(service, started)


def add_policy(command: argparse.ArgumentParser) -> None:
    model = "run directory (its newest checkpoint; @best: its best), checkpoint, model folder or hub name"
    command.add_argument("model", metavar="MODEL", help=model)
    add_address(command, port=8200)
    seats = "completions sampled at the same time (default: %(default)s)"
    command.add_argument("--max-num-seqs", type=int, default=64, metavar="N", help=seats)
    add_engine_options(command)


def serve_policy(options: argparse.Namespace) -> None:
    from launch.commands.policy import serve  # torch, Ray and the HTTP server behind it: the help goes without

    serve(options)


def add_retriever(command: argparse.ArgumentParser) -> None:
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


def serve_retriever(options: argparse.Namespace) -> None:
    from envs.services.retriever.service import serve  # the HTTP server behind it: the help goes without

    most = min(RetrieverServerConfig.max_queries, options.max_queue)
    retriever = config_from_options(RetrieverConfig, options)
    config = config_from_options(RetrieverServerConfig, options, retriever=retriever, max_queries=most)
    warn_if_open(config.host, config.token_env)
    with Bar() as show:
        serve(config, say=lambda text: print(f"rlsys: {text}", flush=True), progress=show)


SERVICES = {
    "policy": (POLICY_HELP, POLICY_EXAMPLES, add_policy, serve_policy),
    "retriever": (RETRIEVER_HELP, RETRIEVER_EXAMPLES, add_retriever, serve_retriever),
    "judge": (JUDGE_HELP, JUDGE_EXAMPLES, add_judge, serve_judge),
}


def add(parser: argparse.ArgumentParser) -> None:
    services = parser.add_subparsers(dest="served", metavar="SERVICE", required=True)
    for name, (text, examples, add_options, _) in SERVICES.items():
        add_options(services.add_parser(name, help=text, description=text, epilog=examples))


def run(options: argparse.Namespace) -> int:
    *_, serve_one = SERVICES[options.served]
    serve_one(options)
    return 0
