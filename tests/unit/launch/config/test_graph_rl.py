"""Graph-RL's files hold the paper's numbers: the tables beside them are by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from envs import make_world
from launch.cli import run
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from launch.data.sets import SETS
from launch.driver.evaluation.sets import plays_of
from tests.makers.real_sets import write_real_sets
from tests.unit.launch.config.test_papers import downloaded, value

__all__ = ["downloaded"]  # a fixture

GRAPH_RL = {  # section 3.2 and appendix B; clip and KL are the library's, lengths, groups and batch are not stated
    "model.path": "Qwen/Qwen2.5-7B-Instruct",
    "reward.kind": "process",
    "reward.preset": "appendix",
    "env.encoding": "incident",
    "env.demo_think": "none",  # NLGift's targets, as they are
    "env.system": "You are a helpful assistant. Please answer strictly according to the question.",
    "learner.lr": 5e-7,
    "learner.betas": (0.9, 0.999),  # veRL's defaults, as is the next
    "learner.weight_decay": 0.01,
    "algorithm.clip_low": 0.2,
    "algorithm.clip_high": 0.2,
    "algorithm.kl_coef": 0.001,
    "algorithm.kl_kind": "k3",
    "algorithm.entropy_coef": 0.001,
    "eval.tasks": 1000,
}
REAL = (
    "strategyqa",
    "crosswords",
    "wikidyk_r",
    "wikidyk_f",
    "explagraphs",
    "proscript",
    "blocks_plan",
    "blocks_verify",
)
# Tables 1 and 2, Qwen2.5-7B-Instruct: graphs, then the eight of REAL; 3: after SFT on so many real examples.
GRAPH_RL_RESULTS: dict[str, list[float]] = {
    "paper": [0.972, 0.704, 0.492, 0.065, 0.486, 0.870, 0.605, 0.104, 0.408],
    "ablations/zero-shot": [0.360, 0.702, 0.504, 0.067, 0.431, 0.829, 0.592, 0.114, 0.450],
    "ablations/sft": [0.700, 0.615, 0.268, 0.069, 0.531, 0.668, 0.488, 0.226, 0.706],
    "ablations/grpo-solution": [0.950, 0.717, 0.523, 0.056, 0.374, 0.831, 0.521, 0.140, 0.482],
    "ablations/dpo-process": [0.329],
    "ablations/dpo-solution": [0.342],
    "ablations/sft-grpo-process": [0.967, 0.619, 0.248, 0.066, 0.512, 0.679, 0.347, 0.192, 0.686],
    "ablations/sft-grpo-solution": [0.805, 0.612, 0.232, 0.070, 0.535, 0.743, 0.465, 0.182, 0.720],
    "ablations/sft-dpo-process": [0.694, 0.622, 0.280, 0.070, 0.534, 0.689, 0.483, 0.202, 0.734],
    "ablations/sft-dpo-solution": [0.698, 0.624, 0.277, 0.067, 0.534, 0.690, 0.482, 0.192, 0.730],
}
# The lower halves of both, Llama-3.1-8B-Instruct.
LLAMA_RESULTS: dict[str, list[float]] = {
    "ablations/llama": [0.932, 0.709, 0.509, 0.083, 0.310, 0.837, 0.336, 0.170, 0.724],
    "ablations/llama-zero-shot": [0.232, 0.722, 0.508, 0.077, 0.297, 0.832, 0.554, 0.074, 0.562],
    "ablations/llama-sft": [0.738, 0.624, 0.296, 0.061, 0.195, 0.740, 0.460, 0.202, 0.660],
    "ablations/llama-grpo-solution": [0.817, 0.695, 0.506, 0.081, 0.593, 0.848, 0.258, 0.052, 0.704],
    "ablations/llama-dpo-process": [0.310],
    "ablations/llama-dpo-solution": [0.349],
    "ablations/llama-sft-grpo-process": [0.935, 0.658, 0.377, 0.077, 0.319, 0.700, 0.373, 0.370, 0.380],
    "ablations/llama-sft-grpo-solution": [0.592, 0.655, 0.313, 0.147, 0.360, 0.657, 0.404, 0.262, 0.690],
    "ablations/llama-sft-dpo-process": [0.789, 0.624, 0.326, 0.072, 0.229, 0.754, 0.451, 0.304, 0.556],
    "ablations/llama-sft-dpo-solution": [0.785, 0.615, 0.321, 0.066, 0.227, 0.748, 0.457, 0.272, 0.558],
}
STOPPED = ("llama", "llama-grpo-solution", "llama-sft-grpo-solution")  # appendix C: after about 3.2 epochs
MIXED = {300: (0.742, 0.449, 0.066, 0.641, 0.907, 0.638), 1200: (0.661, 0.645, 0.072, 0.648, 0.922, 0.757)}
MIXED |= {6000: (0.671, 0.791, 0.092, 0.676, 0.936, 0.789)}


def test_graph_rl_holds_its_numbers() -> None:
    config = compose("graph_rl", [])
    assert {key: value(config, key) for key in GRAPH_RL} == GRAPH_RL
    assert set(config.recipe.about.data) <= SETS.keys()
    assert [(stage.kind, stage.steps * 32) for stage in config.stages] == [("rl", 8 * 1000)]
    table = {name: eval_set.group for name, eval_set in value(config, "eval.sets").items()}
    assert table == {"graphs": "synthetic"} | dict.fromkeys(REAL, "real")


def figures(name: str) -> dict[str, float | None]:
    """As a file itself has them."""
    content = yaml.safe_load((CONFIGS / "graph_rl" / f"{name}.yaml").read_text())
    dotted = {key.removeprefix("eval.sets."): value for key, value in content.items() if key.startswith("eval.sets.")}
    sets = content.get("eval", {}).get("sets", {}) | dotted
    return {set_name: value for set_name, entry in sets.items() for value in entry["paper"].values()}


def test_each_setting_of_graph_rl_shows_its_own_figures() -> None:
    for name, row in GRAPH_RL_RESULTS.items():
        results = dict(zip(("graphs", *REAL), row, strict=False))
        assert figures(name) == dict.fromkeys(("graphs", *REAL)) | results, name
    for size, mixed in MIXED.items():
        others = dict.fromkeys(("graphs", "blocks_plan", "blocks_verify"))
        assert figures(f"ablations/real-sft-{size}") == others | dict(zip(REAL, mixed, strict=False))
        (sft, rl) = yaml.safe_load((CONFIGS / "graph_rl" / f"ablations/real-sft-{size}.yaml").read_text())["stages"]
        assert (sft["steps"], rl["steps"], sft["data"][-9:]) == (-(-3 * size // 16), 250, f"{size}.jsonl"[-9:])


@pytest.mark.parametrize("name", ["ablations/sft-grpo-process", "ablations/sft-dpo-solution"])
def test_supervised_stages_have_the_optimizer_of_their_library(name: str) -> None:
    for stage in compose(f"graph_rl/{name}", []).stages:
        learner = stage.config.learner
        if stage.kind in ("sft", "dpo"):  # TRL takes the defaults of transformers' TrainingArguments
            assert (learner.schedule, learner.final_lr_ratio) == ("linear", 0.0)
            assert (learner.betas, learner.weight_decay) == ((0.9, 0.999), 0.0)
        if stage.kind == "rl":
            assert (learner.schedule, learner.weight_decay) == ("constant", 0.01)


def test_each_setting_of_llama_shows_its_own_figures_and_stops_where_the_paper_stops() -> None:
    for name, row in LLAMA_RESULTS.items():
        content = yaml.safe_load((CONFIGS / "graph_rl" / f"{name}.yaml").read_text())
        assert content["model"] == {"path": "meta-llama/Llama-3.1-8B-Instruct"}
        extended = name.removeprefix("ablations/llama").removeprefix("-")
        assert content["extends"] == (f"{extended}.yaml" if extended else "../paper.yaml")
        assert figures(name) == dict(zip(("graphs", *REAL), row, strict=False)), name
        stopped = [stage["steps"] for stage in content.get("stages", ()) if stage["kind"] == "rl"]
        assert stopped == ([100] if name.removeprefix("ablations/") in STOPPED else []), name
    sets = compose("graph_rl/ablations/llama-dpo-process", []).recipe.eval.sets
    assert {name for name, eval_set in sets.items() if set(eval_set.paper.values()) != {None}} == {
        "graphs"
    }  # as it extends


def test_graph_rl_prefers_what_it_sampled() -> None:
    sft, tries, dpo = compose("graph_rl/ablations/sft-dpo-solution", []).stages
    assert (sft.config.learner.lr, sft.steps, dpo.config.learner.lr, dpo.epochs) == (1e-5, -(-3 * 1000 // 16), 1e-6, 8)
    assert (tries.config.generate.temperature, tries.config.generate.samples) == (0.9, 5)
    assert (dpo.config.algorithm.beta, dpo.config.reward.kind, sft.config.env.demo_error_rate) == (0.1, "solution", 0)
    assert plays_of(dpo.config)["graphs/greedy"].of.recipe.reward.kind == "process"  # of all settings the same


def test_graph_rl_fits_on_the_papers_gpus_and_plays_ten_sets(
    downloaded: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(downloaded)
    write_real_sets(downloaded)
    code = run(["train", "graph_rl", "--dry-run", "eval.judge.endpoint=http://127.0.0.1:1/v1", "eval.judge.model=m"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, ""), err
    assert " = 16\n" in out and out.count("of 40") >= 2
    assert "before, after and 0 during training, 18 episodes each" in out


def test_training_on_made_up_graphs_needs_no_file_and_has_no_figure_of_the_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "graph_rl/ablations/generated", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "\n#   missing" not in out and "at 2,048 tokens an answer, all as long as allowed" in out
    # As in the table of docs/recipes.md:
    assert re.search(r"\d+ s at about.answer_tokens=1,500: 250 steps are 4\d GPU-hours", out)
    sets = compose("graph_rl/ablations/generated", []).stages[-1].config.eval.sets
    assert list(sets) == ["graphs"] and set(sets["graphs"].paper.values()) == {None}
    asked = [
        "train",
        "graph_rl/ablations/generated",
        "--dry-run",
        "eval.judge.endpoint=http://h/v1",
        "eval.judge.model=j",
    ]
    assert run(asked) == 2
    assert "no reward of eval.sets asks a judge" in capsys.readouterr().err


def test_the_miniature_on_paths_has_96_problems_and_holds_none_of_them_out() -> None:
    """As its page says: up to the names of the nodes."""

    def shape(question: str) -> str:
        names: dict[str, str] = {}
        return re.sub(r"\b[Nn]ode ([A-Z])\b", lambda node: names.setdefault(node[1], str(len(names))), question)

    world = make_world(compose("graph_rl/ablations/tiny-paths", []).recipe.env)
    trained, held_out = ([shape(task.question) for task in world.tasks(split)] for split in ("train", "held_out"))
    assert (len(trained), len(set(trained))) == (8192, 96) and set(held_out) <= set(trained)


@pytest.mark.parametrize("name", ["tiny", "ablations/tiny-paths"])
def test_the_arms_of_a_miniature_are_taught_the_same(name: str) -> None:
    """DPO and GRPO begin with the same three stages, so that one teaching serves both."""
    other = f"ablations/{Path(name).name}-dpo"
    first, second = (compose(f"graph_rl/{recipe}", ["name=same"]).stages for recipe in (name, other))
    assert [stage.name for stage in first] == ["read", "reader", "spoilt", "rl"]
    assert first[:3] == second[:3]


def test_on_shortest_paths_dpo_takes_as_many_steps_as_grpo() -> None:
    names = ("ablations/tiny-paths", "ablations/tiny-paths-dpo")
    grpo, dpo = (compose(f"graph_rl/{name}", []).stages[-1] for name in names)
    assert grpo.steps == dpo.steps
