"""`rlsys serve policy`, with all that it loads."""

from __future__ import annotations

import argparse
from pathlib import Path

from actors.alone import spec_alone
from actors.policy import make_policy_service
from envs.services.http import serve_until_signal
from envs.services.secrets import read_secret
from launch.checks.preflight import check_model_folder
from launch.commands.shared import config_from_options, warn_if_open
from launch.driver.checkpoints.model_card import read_template_args
from launch.driver.run.engines import resolve_folder
from rlsys.config.engine import EngineConfig


def serve(options: argparse.Namespace) -> None:
    """Until a signal. Raises BadInput."""
    folder = resolve_folder(options.model)
    check_model_folder(folder, "MODEL")
    token = read_secret("--token-env", options.token_env)
    warn_if_open(options.host, options.token_env)
    engine = config_from_options(EngineConfig, options)
    spec = spec_alone(engine, folder, device=options.device, dtype=options.dtype, threads=options.threads)
    args = (read_template_args(Path(folder)) or {}).get("", {})  # of a model that was trained with several: none
    place = {"host": options.host, "port": options.port, "token": token, "arrive_s": options.arrive_s}
    service = make_policy_service(spec, options.model, template_args=args, **place)

    def started(url: str) -> None:
        print(f"rlsys: {folder} on {url}/v1: POST /chat/completions /responses, GET /models", flush=True)

    serve_until_signal(service, started)
