"""ReSearch's main table: its policies and its baselines, each set with both of the paper's figures."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from envs.worlds.search import SearchQAWorld
from envs.worlds.search_config import SearchQAConfig
from launch.config.compose import compose
from launch.driver.evaluation.sets import plays_of
from rlsys.types import Task

WHO = Task(task_id="q", question="Who built it?")
SETS = ("hotpotqa", "2wiki", "musique", "bamboogle")
JUDGED = {  # exact match and judge in percent, by file and by way of asking
    ("research", ""): "43.52/63.62 47.59/54.22 22.30/33.43 42.40/54.40",
    ("research/ablations/7b-base", ""): "40.57/60.26 44.67/50.06 21.68/32.19 43.20/54.40",
    ("research/ablations/printed-prompt", ""): "43.52/63.62 47.59/54.22 22.30/33.43 42.40/54.40",
    ("research/ablations/printed-prompt-base", ""): "40.57/60.26 44.67/50.06 21.68/32.19 43.20/54.40",
    ("research/ablations/32b-base", ""): "42.77/64.27 38.52/45.59 26.40/37.57 54.40/66.40",
    ("research/ablations/32b", ""): "46.73/67.70 44.90/50.30 26.40/38.56 56.80/67.20",
    ("research/ablations/baselines", "direct-"): "19.18/30.64 25.76/27.87 3.76/10.38 10.40/22.40",
    ("research/ablations/baselines", "rag-"): "31.90/49.59 25.78/29.52 6.21/12.78 20.80/32.00",
    ("research/ablations/baselines", "iter_retgen-"): "34.36/52.22 27.92/31.86 8.69/16.14 21.60/35.20",
    ("research/ablations/baselines", "ircot-"): "30.33/52.06 21.57/30.65 6.99/14.19 24.80/36.80",
    ("research/ablations/baselines-32b", "direct-"): "24.63/38.26 27.23/29.68 6.12/14.23 18.40/29.60",
    ("research/ablations/baselines-32b", "rag-"): "36.46/55.73 30.38/34.87 9.27/15.97 23.20/40.80",
    ("research/ablations/baselines-32b", "iter_retgen-"): "39.81/58.80 33.64/38.22 12.49/20.11 29.60/44.80",
    ("research/ablations/baselines-32b", "ircot-"): "28.44/55.44 13.53/29.50 7.82/18.20 31.20/47.20",
}


@pytest.mark.parametrize("file", sorted({file for file, _ in JUDGED}))
def test_each_set_of_research_has_the_papers_exact_match_and_judge(file: str) -> None:
    stage = compose(file, []).stages[-1]
    assert stage.config.eval.tasks >= 12_576 and stage.config.eval.greedy and stage.config.eval.samples == 0
    sets, trained, plays = stage.config.eval.sets, stage.config.reward, plays_of(stage.config)
    for way, figures in ((way, figures) for (of, way), figures in JUDGED.items() if of == file):
        for name, pair in zip(SETS, figures.split(), strict=True):
            exact, judge = (float(number) / 100 for number in pair.split("/"))
            eval_set = sets[f"{way}{name}"]
            assert eval_set.paper == pytest.approx({"exact_match": exact, "part/judge": judge})
            protocol = {"protocol": way.removesuffix("-")} if way else {}
            assert eval_set.env == protocol | {"eval_data": f"data/research/eval/{name}.jsonl"}
            assert eval_set.group == (way.removesuffix("-") or "multi_hop")  # whose mean is the table's last column
            reward = eval_set.reward or asdict(trained)
            assert (reward["name"], reward["answer"]) == ("judged", "boxed")
            assert plays[f"{way}{name}/greedy"].of.recipe.reward.judge.server == "judge Qwen/Qwen2.5-7B-Instruct"


# Of the authors' file: how a template begins, and its length in characters without the question.
PRINTED = {
    "printed-prompt": ("You are a helpful assistant that can solve the given question step by step", "instruct", 928),
    "printed-prompt-base": ("A conversation between User and Assistant. The user asks a question, and", "base", 917),
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_printed_template_and_ours_differ_in_their_words_alone(name: str) -> None:
    begins, template, length = PRINTED[name]
    config, plain = (
        compose(f"research/ablations/{name}", []),
        {"instruct": "research", "base": "research/ablations/7b-base"},
    )
    env = config.recipe.env
    assert env.instruction.startswith(begins) and len(env.instruction) == length
    assert "<answer> The final answer is \\[ \\boxed{answer here} \\] </answer>. In the last part" in env.instruction
    assert replace(env, instruction=None) == compose(plain[template], []).recipe.env
    (*_, last) = SearchQAWorld(SearchQAConfig(template=template, instruction=env.instruction)).env(WHO).first_messages()
    assert last.content.endswith(
        "latex format. User: Who built it?. Assistant:" if template == "base" else "Who built it?"
    )


def test_the_miniature_has_the_papers_loss_reward_and_protocol() -> None:
    paper, tiny = (
        next(stage.config for stage in compose(name, []).stages if stage.kind == "rl")
        for name in ("research", "research/tiny")
    )
    assert (tiny.algorithm, tiny.reward, tiny.env.protocol) == (paper.algorithm, paper.reward, paper.env.protocol)
    assert tiny.env.knowledge.hops == 2 and tiny.env.demo_error_rate >= 0.9
