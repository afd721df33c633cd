"""How a line about bad input reads, whole: the other tests look at what it is about (tests/refused.py)."""

import pickle
import threading
from collections.abc import Callable

import pytest

from envs.tasks.files import text_field
from launch.config.compose import compose
from rlsys.errors import BadInput, differences, nearest, require
from rlsys.examples import read_answer
from rlsys.jsonl import json_object
from rlsys.transcripts import read_transcript

EMPTY = {"prompt": [], "messages": "x"}
QUICKSTART = [
    ("learner.lr=0", "config: learner.lr=0.0: expected above 0"),
    ("learner.lr=abc", "command line: learner.lr='abc': expected a number"),
    ("learner.lr=.inf", "command line: learner.lr=inf: expected a finite number"),
    ("learner.lrr=1", "command line: learner.lrr: unknown key (did you mean 'learner.lr'?)"),
    ("learner.zero_stage=4", "command line: learner.zero_stage=4: expected one of 1, 2, 3"),
    ("seed=x", "command line: seed='x': expected a whole number"),
    ("lonely", "command line: 'lonely', expected key=value"),
    ("env=calculator", "command line: env='calculator': expected keys and values, such as env.name=calculator"),
    ("stages.zz.steps=3", "command line: no stage 'zz': the stages are sft, rl"),
    ("stages.rl.nope=1", "command line: stages.rl: nope: unknown key (`rlsys config` lists the keys)"),
    (
        "stages=null",
        "command line: 'stages=null', expected stages.NAME.key=value, or stages.NAME=null to leave a stage out",
    ),
    (
        "stages.sft.curriculum.name=difficulty",
        "quickstart: stages.sft: curriculum.name has no effect in a stage of kind sft, expected "
        "stages.rl.curriculum.name",
    ),
    (
        "algorithm.name=gppo",
        "command line: algorithm.name='gppo': expected one of grpo, ppo, reinforce_pp, rloo, gspo, swirl, opd, dpo, "
        "sft, or module.Class (did you mean 'ppo'?)",
    ),
    (
        "env.name=hockey",
        "command line: env.name='hockey': expected one of calculator, search_qa, python_math, questions, pairs, "
        "prompts, reasoning_gym, games, graph, tools, blocksworld, agent, or module.Class",
    ),
    ("cluster.device=gpu", "command line: cluster.device='gpu': expected one of auto, cpu, cuda"),
    (
        "curriculum.name=easy_first",
        "command line: curriculum.name='easy_first': expected one of uniform, mixed, difficulty, staged",
    ),
    (
        "model.path=${HOME}",
        "command line: model.path: ${..} is not looked up: write the value, and of a key or token the name of its "
        "variable (key_env, token_env; docs/trust.md)",
    ),
    (
        "cluster.env.WANDB_API_KEY=abc",
        "config: cluster.env.WANDB_API_KEY: Ray writes these into its logs; export the variable on every node, or name "
        "it in a key_env (value not shown)",
    ),
    ("loop.max_policy_lag=-1", "config: loop.max_policy_lag=-1: expected 0 or more"),
    (
        "loop.group_size=1",
        "quickstart: stages.rl: loop.group_size=1: expected at least 2 with algorithm.name='grpo', which compares "
        "siblings",
    ),
    (
        "rollout.top_p=0.8",
        "quickstart: stages.rl: rollout.top_p=0.8: expected 1 in an rl stage, where the engine's log-probabilities "
        "would be of the cut distribution and the learner's of the whole one",
    ),
    (
        "reward.name=icrl",
        "quickstart: stages.rl: reward.name='icrl': it looks for results in <information>, which the tool of "
        "env.name='calculator' does not write (protocol swirl_math), expected the protocol icrl, or "
        "another reward.tool",
    ),
    (
        "engine.vllm.max_model_lenn=3",
        "engine.vllm.max_model_lenn: no argument of vLLM's (did you mean 'max_model_len'?)",
    ),
    (
        "eval.sets.a.nope=1",
        "command line: eval.sets.a.nope: unknown key (`rlsys config eval.sets.a` lists the keys)",
    ),
]


@pytest.mark.parametrize(("override", "line"), QUICKSTART, ids=[override for override, _ in QUICKSTART])
def test_the_line_about_an_override(override: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("quickstart", [override])
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("refuse", "line"),
    [
        (lambda: json_object(b"{", "a.jsonl line 3"), "a.jsonl line 3: not JSON (Expecting property name enclosed in"),
        (lambda: json_object(b"[]", "a.jsonl line 3"), "a.jsonl line 3: a list, expected a JSON object"),
        (lambda: text_field({}, "question", "a.jsonl line 3"), 'a.jsonl line 3: no "question"'),
        (
            lambda: text_field({"question": []}, "question", "a.jsonl line 3"),
            'a.jsonl line 3: "question" is a list, expected a text',
        ),
        (lambda: read_transcript(b"{}", lambda text: ()), 'this line: no "task"'),
        (
            lambda: read_answer(EMPTY, "f line 3"),
            'f line 3: "prompt" is an empty list, expected a text or a list',
        ),
        (lambda: require(False, "--tasks", 0, "at least 1"), "--tasks 0: expected at least 1"),
    ],
)
def test_the_line_about_data_and_options(refuse: Callable[[], object], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        refuse()
    assert str(caught.value).startswith(line)


def test_the_parts_of_a_line() -> None:
    error = BadInput("too small", where="b.yaml", key="learner.lr", found=0.0, expected="above 0")
    assert str(error) == "b.yaml: learner.lr=0.0: too small, expected above 0"
    outer = BadInput(error, where="stages.rl")
    assert str(outer) == "stages.rl: b.yaml: learner.lr=0.0: too small, expected above 0"
    assert (outer.where, outer.key, outer.found, outer.expected) == ("stages.rl", "learner.lr", 0.0, "above 0")
    assert str(BadInput(key="cluster.scratch_dir", found=None, expected="a folder")).startswith(
        "cluster.scratch_dir=None: "
    )


def test_a_name_that_was_meant_and_what_differs() -> None:
    assert nearest("lern", ["learner", "loop"]) == " (did you mean 'learner'?)"
    assert nearest("zz", ["learner", "loop"]) == " (known: learner, loop)"
    assert differences({"seed": 1, "a": 2}, {"seed": 2, "a": 2}) == "seed=1, not 2"


def test_a_refusal_travels_between_processes_whole() -> None:
    unusual = BadInput(key="k", found=threading.Lock())
    assert str(pickle.loads(pickle.dumps(unusual))) == str(unusual)
    copy = pickle.loads(pickle.dumps(BadInput("r", where="w", key="k", found=(1, 2), expected="e")))
    assert (str(copy), copy.where, copy.key, copy.found, copy.expected) == (
        "w: k=(1, 2): r, expected e",
        "w",
        "k",
        (1, 2),
        "e",
    )
