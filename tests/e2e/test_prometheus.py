"""A real Prometheus scrapes a real run, and every expression of the board answers; two trackers get the same rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from launch.driver.observe.exported import EXPORTED
from tests import wandb_file
from tests.e2e.learner_cases import free_port
from tests.e2e.runs import ROOT
from tests.unit.test_board import QUERIES, RULES, alerts

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SHORT = [
    "stages.sft.steps=10",
    "stages.rl.steps=8",
    "eval.tasks=20",
    "tracker=[wandb,tensorboard]",
    "wandb.mode=offline",
]
ONLY_WITH_GPUS = "ray_node_gpus_utilization"


@contextmanager
def prometheus(folder: Path, targets: Path) -> Iterator[str]:
    """Its address, with the committed configuration but the place of Ray's file and the intervals."""
    config = yaml.safe_load(RULES.with_name("prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["file_sd_configs"] = [{"files": [str(targets)], "refresh_interval": "1s"}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(RULES, folder)
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        yield f"http://{address}/api/v1"
    finally:
        process.terminate()
        process.wait(60)


def ask(api: str, path: str, **parameters: Any) -> Any:
    with urllib.request.urlopen(f"{api}/{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
        return json.load(answer)["data"]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, float, float, Path]]:
    """(address of a Prometheus, start and end of the run that it has scraped, its directory)"""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: Debian's package prometheus has it")
    folder = tmp_path_factory.mktemp("prometheus")
    root = Path(tempfile.mkdtemp(dir="/tmp"))  # Ray's sockets lie below it, whose names may not be long
    fast = {"RAY_TMPDIR": str(root), "RAY_metrics_report_interval_ms": "1000"}
    with prometheus(folder, root / "ray" / "prom_metrics_service_discovery.json") as api:
        started = time.time()
        dashboard = f"cluster.dashboard_port={free_port()}"
        result = subprocess.run(
            [sys.executable, "-m", "launch", "train", "quickstart", *SHORT, dashboard, "--run-dir", str(folder / "q1")],
            cwd=ROOT, env={**os.environ, **fast}, capture_output=True, text=True, timeout=1200,
        )  # fmt: skip
        assert result.returncode == 0, result.stdout + result.stderr
        yield api, started, time.time(), folder / "q1"
    with suppress(OSError):
        shutil.rmtree(root)


def test_what_is_exported_is_the_table(scraped: tuple[str, float, float, Path]) -> None:
    api, started, ended, _ = scraped
    series = ask(api, "series", **{"match[]": '{__name__=~"ray_rlsys_.+"}', "start": started, "end": ended})
    assert {labels["__name__"] for labels in series} == {metric.exported for metric in EXPORTED}
    assert {labels["run"] for labels in series} == {"q1"}  # the run directory
    assert len(series) <= sum(metric.series for metric in EXPORTED)


def test_every_expression_answers(scraped: tuple[str, float, float, Path]) -> None:
    api, started, ended, _ = scraped
    expressions = [query.replace("$run", "q1").replace("$window", "30s") for query in QUERIES]
    silent = []
    for expression in expressions:
        curves = ask(api, "query_range", query=expression, start=started, end=ended, step=2)["result"]
        numbers = [float(value) for curve in curves for _, value in curve["values"]]
        if not [number for number in numbers if number == number]:
            silent.append(expression)
    assert [query for query in silent if ONLY_WITH_GPUS not in query] == []


def test_a_healthy_run_raises_no_alert(scraped: tuple[str, float, float, Path]) -> None:
    api, started, ended, _ = scraped
    rules = ask(api, "rules")["groups"][0]["rules"]
    assert {rule["name"]: rule["health"] for rule in rules} == dict.fromkeys(alerts(), "ok")
    firing = ask(api, "query_range", query='ALERTS{alertstate="firing"}', start=started, end=ended, step=2)
    assert [alert["metric"]["alertname"] for alert in firing["result"] if "run" in alert["metric"]] == []


def test_two_trackers_have_every_step_of_the_run(scraped: tuple[str, float, float, Path]) -> None:
    steps, folder = list(range(1, 19)), scraped[-1]
    assert [row["step"] for row in wandb_file.rows(folder) if "time/step" in row] == steps
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"tensors": 0, "scalars": 0}).Reload()
    assert [event.step for event in events.Scalars("time/step")] == steps
    assert "reward/mean" in events.Tags()["scalars"] and "samples/text_summary" in events.Tags()["tensors"]
