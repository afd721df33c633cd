"""What a service alone is made with: its options' defaults are those of its configuration."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

import envs.services.retriever.service
from actors.judge import JudgeServiceConfig
from envs.services.judge.config import JudgeConfig
from envs.services.judge.server import JudgeServerConfig
from envs.services.retriever.config import RetrieverConfig, RetrieverServerConfig
from launch.commands.serve import SERVICES
from launch.commands.services import judge_service_config
from launch.commands.shared import config_from_options


def parsed(service: str, *options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    SERVICES[service][2](parser)
    return parser.parse_args(options)


def served(monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    """What the retriever's server is made with."""
    configs: list[Any] = []
    monkeypatch.setattr(envs.services.retriever.service, "serve", lambda config, **_: configs.append(config))
    SERVICES["retriever"][3](parsed("retriever", *options))
    (config,) = configs
    return config


def test_a_retriever_without_options_is_what_its_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch, "--corpus", "wiki.jsonl") == RetrieverServerConfig(corpus="wiki.jsonl")


def test_the_options_of_a_retriever_reach_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--corpus", "c", "--port", "0", "--topk", "5", "--max-queue", "9", "--max-batch", "7", "--cache-mb", "0"]
    options += ["--retriever", "hybrid", "--query-tokens", "32", "--nprobe", "3", "--ef-search", "4", "--k1", "0.9"]
    config = served(monkeypatch, *options)
    assert (config.port, config.topk, config.max_queue, config.max_batch, config.cache_mb) == (0, 5, 9, 7, 0)
    assert config.max_queries == 9  # more could never be served
    expected = RetrieverConfig(kind="hybrid", query_tokens=32, nprobe=3, ef_search=4, k1=0.9)
    assert config.retriever == expected


def test_a_judge_without_options_is_what_its_configuration_says() -> None:
    options = parsed("judge", "--model", "m")
    assert (options.host, options.port) == ("127.0.0.1", 8100)
    assert config_from_options(JudgeServerConfig, options) == JudgeServerConfig()
    judge, usual = config_from_options(JudgeConfig, options), JudgeConfig(model="m")
    assert judge.outage_s == 60.0  # a script waits for less than a run
    assert (judge.deadline_s, judge.max_concurrent, judge.max_tokens) == (
        usual.deadline_s,
        usual.max_concurrent,
        usual.max_tokens,
    )
    assert (options.max_model_len, options.kv_cache_mb, options.threads) == (16384, 2048, 2)


def test_a_judge_of_the_command_has_the_engine_of_a_runs_own() -> None:
    options = parsed("judge", "--model", "m")
    ours, usual = judge_service_config(options, judge=config_from_options(JudgeConfig, options)), JudgeServiceConfig()
    assert ours.engine == usual.engine and (ours.device, ours.dtype) == (usual.device, usual.dtype)
