"""The Grafana board, the alerts and the page of metrics: made from their tables, in PromQL, over what a run exports."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from launch.driver.observe.exported import EXPORTED
from tests.paths import ROOT

NAME = re.compile(r"\bray_\w+")
OF_RAY = {  # its own metrics of a node
    "ray_node_gpus_utilization",
    "ray_node_mem_used",
    "ray_node_disk_free",
    "ray_node_disk_usage",
}
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"


def load_make() -> Any:
    spec = importlib.util.spec_from_file_location("board", ROOT / "deploy" / "grafana" / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["board"] = module  # where its dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


make = load_make()
QUERIES = [query for row in make.PANELS.values() for panel in row for query, _ in panel.queries]


def alerts() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def test_the_committed_board_and_page_are_those_of_the_tables() -> None:
    assert json.loads(make.BOARD.read_text()) == make.make_board(), "run python deploy/grafana/make.py"
    assert make.PAGE.read_text() == make.make_page(), "run python deploy/grafana/make.py"


@pytest.mark.parametrize("expression", [*QUERIES, *alerts().values()])
def test_every_expression_is_promql(expression: str) -> None:
    promql_parser.parse(expression.replace("$window", "30m"))


def test_a_bracket_that_is_missing_is_no_promql() -> None:
    with pytest.raises(ValueError):
        promql_parser.parse(QUERIES[0][:-1])


def test_the_board_shows_what_is_exported_and_all_of_it() -> None:
    names = {name for query in QUERIES for name in NAME.findall(query)}
    assert names - OF_RAY == {metric.exported for metric in EXPORTED}


def test_an_alert_reads_what_is_exported() -> None:
    names = {name for expression in alerts().values() for name in NAME.findall(expression)}
    assert names - OF_RAY <= {metric.exported for metric in EXPORTED} and len(alerts()) == 4


def test_every_expression_tells_runs_apart_and_joins_the_processes_of_one() -> None:
    """A run that was continued has a series of each process: what is not aggregated is drawn twice."""
    of_runs = [query for query in QUERIES if "ray_rlsys_" in query]
    assert all(query.count(" by (run") == query.count("ray_rlsys_") == query.count('run=~"$run"') for query in of_runs)


def test_no_two_panels_lie_upon_each_other() -> None:
    places = [panel["gridPos"] for panel in make.make_board()["panels"]]
    cells = [
        (column, row)
        for place in places
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(column for column, _ in cells) < make.WIDTH


STEADY = {  # a run whose steps take 60 s, sampled each minute
    'ray_rlsys_step_seconds{run="r"}': "60x240",
    'ray_rlsys_last_step_timestamp_seconds{run="r"}': "0+60x60 3600x180",  # its last step ends after an hour
    'ray_rlsys_last_step_timestamp_seconds{run="new"}': "0x240",  # never takes one
    'ray_rlsys_engines_lost{run="r"}': "0x60 1x180",
    'ray_rlsys_failures_total{run="r", kind="infra"}': "0+5x120 600+7x120",
    'ray_rlsys_episodes_total{run="r"}': "0+64x240",
    'ray_node_disk_free{instance="n"}': "6x60 4x180",
    'ray_node_disk_usage{instance="n"}': "94x60 96x180",
}
FIRES = {  # (alert, of what): minutes at which it does not fire, and those at which it does
    ("RlsysNoStep", "r"): ((30, 59, 69), (80, 200)),
    ("RlsysNoStep", "new"): ((30, 60), (80,)),
    ("RlsysEngineLost", "r"): ((30, 65), (75,)),
    ("RlsysEpisodesFail", "r"): ((60, 119), (180,)),  # 5 of 64 are 8 %, 7 of 64 are 11 %
    ("RlsysDiskFull", "n"): ((59, 62), (70,)),
}


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    shutil.copy(RULES, tmp_path)

    def case(alert: str, of: str, minute: int, fires: bool) -> dict[str, Any]:
        labels = f'instance="{of}"' if alert == "RlsysDiskFull" else f'run="{of}"'
        firing = f'count(ALERTS{{alertname="{alert}", {labels}, alertstate="firing"}})'
        samples = [{"labels": "{}", "value": 1}] if fires else []
        return {"expr": firing, "eval_time": f"{minute}m", "exp_samples": samples}

    cases = [case(*name, at, fires) for name, times in FIRES.items() for fires in (False, True) for at in times[fires]]
    series = [{"series": name, "values": values} for name, values in STEADY.items()]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": cases}
    suite = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(suite))
    result = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    result = subprocess.run(
        ["promtool", "check", "config", str(RULES.with_name("prometheus.yml"))], capture_output=True, text=True
    )
    assert result.returncode == 0 and "4 rules found" in result.stdout, result.stderr
