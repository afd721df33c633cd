"""SWiRL with a language model as judge of steps and of answers, at a real address: judged once, then trained."""

from pathlib import Path

import pytest

from tests.e2e.runs import left_behind, rlsys, rows, summary, trajectories
from tests.fakes.judge_endpoint import scripted
from tests.makers.made import records

RECIPE = """extends: swirl/tiny
name: swirl-judged
reward:
  {name: swirl, judged_by: judge, outcome: outcome_search, judge: {endpoint: URL, model: m, key_env: JUDGE_KEY}}
verdicts: {keep: process, equal: false}
eval: {tasks: 4, samples: 1, greedy: false}
stages:
  - {name: sft, kind: sft, steps: 60, loop: {groups_per_step: 16}, learner: {lr: 3.0e-3}}
  - {name: tries, kind: generate, generate: {samples: 2, temperature: 1.0, tasks: 16}, reward: {name: answer}}
  - {name: judged, kind: judge, data: tries}
  - {name: swirl, kind: stepwise, data: judged, steps: 2, loop: {groups_per_step: 4, group_size: 4}}
"""
KEY = "sk-very-secret-key"


def say(prompt: str) -> str:
    """A verdict by the length of what is judged: an answer differs from a step by its question."""
    if "The answer key says:" in prompt:
        return "It is the same.\nYES" if len(prompt) % 3 else "It is another.\nNO"
    return "It may help.\nGOOD" if len(prompt) % 4 else "It does not help.\nBAD"


@pytest.mark.slow
def test_a_language_model_judges_the_steps_that_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    run = tmp_path / "run"
    with scripted(say) as endpoint:
        (tmp_path / "judged.yaml").write_text(RECIPE.replace("URL", f'"{endpoint.url}"'))
        result = rlsys("train", str(tmp_path / "judged.yaml"), "--run-dir", str(run))
        prompts = [request["messages"][0]["content"] for request in endpoint.asked]
    assert result.code == 0, result.output[-3000:]
    judged = records(run / "generated" / "judged.jsonl")
    assert judged and all(text.split()[-1] in ("GOOD", "BAD") for t in judged for text in t["judgements"])
    for record in judged:
        assert len(record["judgements"]) == sum(message["role"] == "assistant" for message in record["messages"])
    counts = summary(run)["generated"]["judged"]
    all_good = [all(text.endswith("GOOD") for text in t["judgements"]) for t in judged]
    assert counts["process"] == sum(all_good) and 0 < sum(all_good) < len(all_good)
    assert {t["correct"] for t in judged} >= {True}
    trained = [row for row in rows(run) if row["stage"] == "swirl"]
    assert len(trained) == 2
    fresh = [t for t in trajectories(run) if t.get("judgements")]
    assert fresh and all(t["reward"] == float(t["judgements"][0].endswith("GOOD")) for t in fresh)
    steps = {text for text in prompts if "The answer key says:" not in text}
    assert len(steps) > len(judged) and set(endpoint.keys) == {f"Bearer {KEY}"}
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert left_behind() == []
