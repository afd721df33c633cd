"""reasoning-gym for real: what its process makes, and its scorers in the sandbox under answers that attack them."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from envs.problems.procedural.entries import PROGRAM, Part, make_entries
from envs.problems.procedural.families import FAMILIES
from envs.problems.procedural.tasks import FamilyConfig
from envs.tasks.splits import is_held_out
from envs.tools.gym_scorer import GymScorer, How, Scored
from envs.tools.sandbox import SandboxConfig
from envs.worlds.reasoning_gym import ReasoningGymConfig, ReasoningGymWorld
from tests.e2e.runs import rlsys
from tests.makers.made import records
from tests.paths import ROOT
from tests.refused import refused
from tests.sandboxed import run_closing

T = TypeVar("T")
SANDBOX = SandboxConfig(workers=1, timeout_s=5.0)

# Of these the library makes other problems under another PYTHONHASHSEED, and of list_functions in every process.
HASHED = ("isomorphic_strings", "list_functions", "polynomial_multiplication", "ransom_note", "word_ladder")
PRINT = """
import json, sys
from envs.problems.procedural.entries import PROGRAM, Part, make_entries
print(json.dumps(make_entries([Part(family=name, train=2, held_out=1) for name in sys.argv[1:]], 3)))
"""
WRONG = ("", "zzz not an answer", "0", "1", "-1", "nan", "inf", "1e999", "[]", "{}", "[[0]]", "True", "no", "1/0", "x")


def in_scorer(plan: Callable[[GymScorer], Awaitable[T]], sandbox: SandboxConfig = SANDBOX) -> T:
    return run_closing(lambda: GymScorer(sandbox), plan)


def asked(family: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"family": family, "level": None, "options": {}, "entry": entry}


def test_problems_are_the_same_in_two_processes_with_different_hash_seeds() -> None:
    outputs = []
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PRINT, *HASHED]
        outputs.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert outputs[0] == outputs[1] and all(len(held_out) == 1 for _, held_out in json.loads(outputs[0]))


def test_the_two_sides_have_no_question_in_common_whatever_seed_and_count() -> None:
    parts = [Part(family="gcd", level=level, train=train, held_out=60) for level, train in ((0, 80), (None, 500))]
    for seed in (0, 1):
        for part, (train, held_out) in zip(parts, make_entries(parts, seed), strict=True):
            asked_for = [entry["question"] for entry in train], [entry["question"] for entry in held_out]
            assert tuple(len(set(side)) for side in asked_for) == (part.train, part.held_out)
            assert not any(map(is_held_out, asked_for[0])) and all(map(is_held_out, asked_for[1]))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (Part(family="gcd", level=99, train=1), "the highest level is 3"),
        (Part(family="gcd", options={"no_such": 1}, train=1), "no_such"),
        (Part(family="count_bits", options={"min_n": 1, "max_n": 3}, train=50), "different training"),
    ],
)
def test_what_a_family_does_not_take_is_said(part: Part, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.problems.procedural.entries.FRUITLESS", 1)
    with refused(f"env.families.{part.family}", says=says):
        make_entries([part], 0)


def test_levels_of_the_curriculum_are_levels_of_the_environment() -> None:
    families = {"chain_sum": FamilyConfig(levels=[0, 2]), "lcm": FamilyConfig()}
    world = ReasoningGymWorld(ReasoningGymConfig(families=families, train_tasks=40, held_out_tasks=4))
    tasks = world.tasks("train")
    assert len({task.task_id for task in world.tasks("all")}) == 44
    assert not any("level" in task.record for task in tasks)  # `eval.by=level` asks the environment only then
    assert {task.record["difficulty"] for task in tasks} == {0, 2, None}
    assert sorted(map(world.level, tasks[:4])) == ["chain_sum 0", "chain_sum 2", "lcm", "lcm"]
    terms = {level: [task.question.count(" + ") + task.question.count(" - ") + 1 for task in tasks
                     if world.level(task) == level] for level in ("chain_sum 0", "chain_sum 2")}  # fmt: skip
    assert max(terms["chain_sum 0"]) < max(terms["chain_sum 2"])
    assert world.demonstration(tasks[0], 0).messages[-1].content == f"<answer>{tasks[0].answers[0]}</answer>"


def test_no_level_has_the_settings_of_the_one_below() -> None:
    """Of all families; and the page says how many levels each has."""
    program, page = runpy.run_path(PROGRAM), (ROOT / "docs" / "environments" / "reasoning-gym.md").read_text()
    fields, highest = program["curriculum_fields"], program["highest_level"]
    table = dict(re.findall(r"[|,] (\w+) (\d+|–)(?=,| \|)", page))
    assert table.keys() == FAMILIES.keys()
    for name in FAMILIES:
        if table[name] == "–":
            with pytest.raises(ValueError, match="no levels"):
                highest(name)
            continue
        assert int(table[name]) == highest(name) + 1, name
        settings = [fields(name, level) for level in range(highest(name) + 1)]
        assert all(lower != upper for lower, upper in pairwise(settings)), name
        with pytest.raises(ValueError, match=f"highest level is {highest(name)}"):
            fields(name, highest(name) + 1)


def test_hostile_answers_cost_their_own_score_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the grammars too: what a scorer executes finds no file, no network, and ends."""
    mark = tmp_path / "mark"
    matrix = {"question": "q", "answer": "1 2 3", "metadata": {}}
    target = {"question": "q", "answer": "1 + 2", "metadata": {"numbers": [1, 2], "target": 3}}
    number = {"question": "q", "answer": "2 × 3", "metadata": {"factors": [2, 3]}}
    attacks = [
        f"[open({str(mark)!r}, 'w').write('x')]",
        f"[__import__('os').system('touch {mark}')]",
        "[__import__('socket').create_connection(('127.0.0.1', 22))]",
        "[print('1.0')]",
        "[__import__('os').write(1, b'not a score')]",
    ]

    async def attack(scorer: GymScorer) -> None:
        assert await scorer.score(asked("spiral_matrix", matrix), attacks[0]) == Scored(0.0, How.GRAMMAR)
        monkeypatch.setattr("envs.tools.gym_scorer.FAMILIES", dict.fromkeys(FAMILIES, FAMILIES["chain_sum"]))
        for text in attacks:
            assert (await scorer.score(asked("spiral_matrix", matrix), text)).value == 0.0
        for family, entry, text in (
            ("countdown", target, "9**9**9**9"),  # hangs
            ("prime_factorization", number, "none"),  # raises
            ("spiral_matrix", matrix, "[1] * 10**9"),  # fills the memory
        ):
            scored = await scorer.score(asked(family, entry), text)
            assert scored.value == 0.0 and scored.how in (How.UNSCORABLE, How.SCORER)
        assert await scorer.score(asked("countdown", target), "2 + 1") == Scored(1.0, How.SCORER)
        assert (await scorer.score(asked("spiral_matrix", matrix), "[1, 2, 3]")).value == pytest.approx(0.1)
        assert scorer.stats()["scorer"].errors[How.UNSCORABLE] >= 2

    in_scorer(attack, SandboxConfig(workers=1, timeout_s=2.0))
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_family_gives_its_own_answer_one_and_others_less() -> None:
    """Four problems of each: the task's answer, another task's, and what is no answer at all."""
    names = list(FAMILIES)
    by_family = dict(zip(names, make_entries([Part(family=name, train=4) for name in names], 5), strict=True))
    library_score = runpy.run_path(PROGRAM)["score"]  # of the library's answers, which are no policy's
    right = {
        (name, library_score({**asked(name, entry), "answer": entry["answer"]}))
        for name, (entries, _) in by_family.items()
        for entry in entries
        if entry["answer"]
    }
    assert {name: score for name, score in right if score < 1} == {}

    def library_scored(name: str, entry: Mapping[str, Any], text: str) -> Scored:
        try:
            return Scored(min(max(library_score({**asked(name, entry), "answer": text}), 0.0), 1.0), How.SCORER)
        except Exception:
            return Scored(0.0, How.UNSCORABLE)

    async def compare(scorer: GymScorer) -> list[tuple[str, Scored, Scored]]:
        """The answer and a space, which is not the answer word for word: what the sandbox gives it, and what we do."""
        triples = []
        for name, (entries, _) in by_family.items():
            if not FAMILIES[name].compares and entries[0]["answer"]:
                text = entries[0]["answer"] + " "
                triples.append(
                    (name, await scorer.score(asked(name, entries[0]), text), library_scored(name, entries[0], text))
                )
        return triples

    async def judge(scorer: GymScorer) -> list[str]:
        lenient: list[str] = []
        for name, (entries, _) in by_family.items():
            for text in () if FAMILIES[name].compares else (*WRONG, *[entry["answer"] or "" for entry in entries[:1]]):
                scores = [(await scorer.score(asked(name, entry), text)).value for entry in entries]
                accepted = sum(score > 0.999 for score in scores)
                if accepted > max(2, sum(entry["answer"] == text for entry in entries)):
                    lenient.append(f"{name} accepts {text!r} for {accepted} of {len(entries)} problems")
        return lenient

    comparisons = in_scorer(compare, SandboxConfig(workers=2, timeout_s=10.0))
    assert [triple for triple in comparisons if triple[1] != triple[2]] == []
    assert sum(sandbox_score == Scored(1.0, How.SCORER) for _, sandbox_score, _ in comparisons) > len(comparisons) / 2
    assert in_scorer(judge, SandboxConfig(workers=2, timeout_s=10.0)) == []


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_sampled_answers_become_right_by_the_scorers_scores(tmp_path: Path) -> None:
    """In five seeds of the study sampled accuracy of aiw rose by 0.34 or more, to 0.84 or more, and greedy stayed."""
    entry = {"question": "q", "answer": "1 + 2", "metadata": {"numbers": [1, 2], "target": 3}}
    in_scorer(lambda scorer: scorer.score(asked("countdown", entry), "2 + 1"))  # skips where there is no sandbox
    seed = ["seed=101", "env.seed=101"]  # none of the study's
    result = rlsys("train", "worlds/reasoning_gym", "--run-dir", str(tmp_path / "run"), *seed, deadline_s=1200)
    assert result.code == 0, result.output[-3000:]
    lines = records(tmp_path / "run" / "evaluations.jsonl")
    before, after = (
        next(line for line in lines if (line["stage"], line["when"]) == ("rl", when)) for when in ("before", "after")
    )
    aiw, family = (f"accuracy_by_level/{name} 0" for name in ("aiw", "family_relationships"))
    assert after[f"sampled/{aiw}"] > max(before[f"sampled/{aiw}"] + 0.2, 0.7)
    assert after[f"sampled/{family}"] > before[f"sampled/{family}"]
    assert after[f"greedy/{aiw}"] > before[f"greedy/{aiw}"] - 0.1
