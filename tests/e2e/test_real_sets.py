"""Graph-RL's evaluation from its own file: nine sets of a checkpoint, summarised by a model behind an endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from launch.config.layers import CONFIGS
from tests.e2e.runs import left_behind, rlsys
from tests.fakes.judge_endpoint import scripted
from tests.makers.real_sets import write_real_sets

TINY = """extends: paper.yaml
name: graph_rl-tiny-eval
model: {path: null, dtype: auto}
cluster: {device: cpu, gpu_memory_gb: null}
engine: {max_num_seqs: 16, kv_cache_mb: 128}
rollout: {workers: 1, max_turn_tokens: 16}
learner: {ranks: 1, zero_stage: 1, offload: none}
env: {system: "", instruction: ""}
"""


def summarise(prompt: str) -> str:
    """The printed prompts, each answered as its own says: right for every task here, but of no plan."""
    if "**A/B/C/D/UNKNOWN**" in prompt:
        return "**B**"
    if "stepA->stepB" in prompt:
        return "step1->step0"
    if 'either "VALID" or "INVALID"' in prompt:
        return "INVALID"
    return "VALID" if '"VALID", "INVALID" or "UNKNOWN"' in prompt else "YES"


@pytest.mark.slow
def test_nine_sets_with_a_summariser_and_against_zero_shot(tmp_path: Path) -> None:
    write_real_sets(tmp_path)
    paper = (CONFIGS / "graph_rl" / "paper.yaml").read_text()
    (tmp_path / "paper.yaml").write_text(paper.replace("data/graph_rl", f"{tmp_path}/data/graph_rl"))
    (tmp_path / "tiny.yaml").write_text(TINY)
    tiny, before, after = (str(tmp_path / name) for name in ("tiny.yaml", "zero.json", "ours.json"))
    zero = rlsys("eval", tiny, "--output", before)
    assert zero.code == 0, zero.output[-3000:]
    with scripted(summarise) as judge:
        keys = [f"eval.judge.endpoint={judge.url}", "eval.judge.model=m"]
        result = rlsys("eval", tiny, "--output", after, "--against", before, *keys)
        assert result.code == 0, result.output[-3000:]
        prompts = [request["messages"][0]["content"] for request in judge.asked]
    assert any(text.startswith("The following paragraph is the answer to the question.") for text in prompts)
    report: dict[str, Any] = json.loads(Path(after).read_text())
    numbers = {name.removesuffix("/greedy"): play["metrics"] for name, play in report["plays"].items()}
    assert len(numbers) == 9 and report["failures"] == dict.fromkeys(report["plays"], 0)
    right = {name: numbers[name]["accuracy"]["value"] for name in ("strategyqa", "crosswords", "wikidyk_r")}
    assert right == dict.fromkeys(right, 1.0)
    assert numbers["proscript"]["constraints_pooled"] == numbers["proscript"]["accuracy"] | {"count": 2.0}
    assert numbers["blocks_plan"]["accuracy"]["value"] == 0 and "by_rules" in numbers["blocks_plan"]
    assert "by_rules" not in numbers["wikidyk_f"]  # of which no summary is asked
    assert report["plays"]["blocks_verify/greedy"]["episodes_by_value"] == {"4": 2}
    assert report["plays"]["strategyqa/greedy"]["paper"] == {"accuracy": 0.704}
    assert report["groups"]["real/greedy"]["sets"] == 8
    assert "real/greedy  mean" in result.output and f"against {before}: strategyqa/greedy 1.000" in result.output
    assert rlsys("compare", before, after).code == 0
    assert left_behind() == []
