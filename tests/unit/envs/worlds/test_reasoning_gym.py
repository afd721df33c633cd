"""envs.worlds.reasoning_gym without the library: families, shares, files, answers that no scorer is asked about."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.problems.procedural import entries
from envs.problems.procedural.families import BALANCED, COMPARED, FAMILIES, GRAMMARS, LEFT_OUT, check_family, compare
from envs.problems.procedural.tasks import FamilyConfig, plan_parts, scorer_request, share_out, take_turns
from envs.rewards.reasoning_gym import ReasoningGymReward, ReasoningGymRewardConfig
from envs.tasks.prompts import ExamplesConfig
from envs.tools.gym_scorer import GymScorer, How, Scored
from envs.tools.sandbox import Execution, Outcome, SandboxConfig
from envs.worlds.reasoning_gym import ReasoningGymConfig, ReasoningGymWorld
from rlsys.types import EpisodeEnd, Message, Task, Transcript
from tests.makers.made import jsonl
from tests.paths import ROOT
from tests.refused import refused

HOSTILE = (
    "__import__('os').system('touch x')",
    "open('x', 'w')",
    "().__class__.__base__",
    "x.diff(x)",
    "exit()",
    "lambda: 0",
    "[c for c in [1]]",
    "print(1)",
    'f"{1}"',
    "x:=1",
    "1..real",
    "x.E",
    "1.E",
    "x .C",
    "exp.x",
    "nan",
)


def entry(question: str, answer: str | None, family: str = "gcd") -> dict[str, Any]:
    return {"question": question, "answer": answer, "metadata": {"source_dataset": family}}


def world_of(tmp_path: Path, *given: dict[str, Any], **keys: Any) -> ReasoningGymWorld:
    data = jsonl(tmp_path / "entries.jsonl", given)
    return ReasoningGymWorld(ReasoningGymConfig(data=data, held_out_tasks=1, instruction="", **keys))


def test_a_hundred_families_are_offered_and_each_other_one_has_a_reason() -> None:
    assert len(FAMILIES) == 97 and not FAMILIES.keys() & LEFT_OUT.keys() and all(LEFT_OUT.values())
    assert GRAMMARS.keys() | set(COMPARED.split()) <= FAMILIES.keys()
    with refused("env.families", says="accepts 0 for every problem"):
        check_family("coin_flip")
    with refused("env.families", says="premise"):
        check_family("propositional_logic")
    with refused("env.families", found="chainsum", expected="chain_sum"):
        ReasoningGymConfig(families={"chainsum": FamilyConfig()})
    with refused("env.families"):
        ReasoningGymConfig(families={"gcd": FamilyConfig(weight=0)})


@pytest.mark.parametrize("name", GRAMMARS)
def test_what_a_scorer_would_execute_is_text_in_which_no_code_can_stand(name: str) -> None:
    grammar = GRAMMARS[name]
    assert [text for text in HOSTILE if grammar.fullmatch(text)] == []


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "12",
        "x",
        "E",
        "'A'  ",
        "'A' , ",
        "  ",
        "x  ",
        "1.1",
        "1. ",
        ".1 ",
        "1.",
        ".1",
        "exp ",
        "1 ",
        "Q _ ",
        "[[",
        "3.0 - ",
    ],
)
def test_a_grammar_is_read_in_one_pass(name: str, piece: str) -> None:
    """Not a time: with a pattern that goes back, one of these would take longer than there is."""
    for opening in ("", "["):
        assert not GRAMMARS[name].fullmatch(opening + piece * (8000 // len(piece)) + "!")


def test_answers_as_they_are_asked_for_are_within_their_grammars() -> None:
    for name, text in {
        "binary_matrix": "0 1\n1 2",
        "complex_arithmetic": "3.0 - 2.0i",
        "countdown": "93 - (5*12) + 7",
        "n_queens": "Q _ _ _\n_ _ Q _",
        "polynomial_multiplication": "-6*x**4 + 3.5*x*y - 2",
        "simple_integration": "x**3/3 - 5*log(x) + C",
        "simple_integration ": ".5*x**2 + 1.*x + 2.25",
        "spiral_matrix": "[1, 2, 3]",
        "string_insertion": "DDABCDEA",
        "string_insertion ": "['D', 'A' , \"B\"]",
    }.items():
        assert GRAMMARS[name.strip()].fullmatch(text), name


@pytest.mark.parametrize("text", ["2 ** 3", "9**9**9", "7 // 2", "(1 + 2)\n* 3 //4", "1 * * 2"])
def test_countdown_takes_no_powers_and_no_whole_division(text: str) -> None:
    """Python has them, the game has not; a power of powers would keep the scorer until its deadline."""
    assert not GRAMMARS["countdown"].fullmatch(text) and GRAMMARS["countdown"].fullmatch("(1 + 2)\n* 3 / 4")


def test_a_family_without_a_scorer_compares() -> None:
    assert [compare(text, "12") for text in ("12", "1", "", "x12y", "012")] == [1.0, 0.0, 0.0, 0.5, 2 / 3]
    assert compare("", "") == 1.0 and compare("x", "") == 0.0


def test_shares_add_up_and_every_beginning_has_its_part_of_each() -> None:
    assert (
        share_out(10, [1, 1, 2]) == [2, 3, 5]
        and share_out(7, [1, 1, 1]) == [2, 3, 2]
        and share_out(1, [1, 1]) == [0, 1]
    )
    families = {"gcd": FamilyConfig(weight=3, levels=[0, 2]), "lcm": FamilyConfig(), "maze": FamilyConfig(weight=0)}
    parts = plan_parts(families, 40, 8)
    assert [(part.name, part.train, part.held_out) for part in parts] == [
        ("gcd 0", 15, 3), ("gcd 2", 15, 3), ("lcm", 10, 2),
    ]  # fmt: skip
    assert [part.name for part in plan_parts({}, 4, 1)] == ["chain_sum"]
    a, b = ([Task(task_id=f"{name}{at}", question="") for at in range(count)] for name, count in (("a", 4), ("b", 2)))
    assert [task.task_id for task in take_turns([a, b])] == ["a0", "b0", "a1", "a2", "b1", "a3"]


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"weight": -1}, "env.families: weight"),
        ({"levels": [0, 0]}, "env.families: levels"),
        ({"options": {"seed": 3}}, "env.families: options"),
    ],
)
def test_settings_of_a_family_are_checked(keys: dict[str, Any], key: str) -> None:
    with refused(key):
        FamilyConfig(**keys)


def test_an_answer_of_a_family_without_a_scorer_is_scored_without_the_sandbox(tmp_path: Path) -> None:
    world = world_of(tmp_path, entry("gcd of 4, 6", "2"), entry("gcd of 9, 6", "3"))
    reward = ReasoningGymReward(ReasoningGymRewardConfig(partial=0.2))
    for text, end, score, value in (
        ("<answer>2</answer>", EpisodeEnd.ANSWERED, 1.0, 1.1),
        ("so <answer> 2 </answer>", EpisodeEnd.ANSWERED, 1.0, 1.1),
        ("<answer>20</answer>", EpisodeEnd.ANSWERED, 0.5, 0.2),  # a tenth for the form, a fifth of 0.5
        ("<answer>7</answer>", EpisodeEnd.ANSWERED, 0.0, 0.1),
        ("2", EpisodeEnd.MALFORMED, 0.0, 0.0),
    ):
        task = next(task for task in world.tasks("all") if task.answers == ("2",))
        env = world.env(task)
        step = asyncio.run(env.step(text, turns_left=0))
        state = env.final_state()
        assert (step.end, state["score"]) == (end, score)
        wrote = (Message(role="assistant", content=text),)
        assert reward(Transcript(task=task, messages=wrote, state=state)).value == pytest.approx(value)


def test_the_reward_needs_the_score_of_the_environment() -> None:
    task, wrote = Task(task_id="t", question="q"), (Message(role="assistant", content="<answer>2</answer>"),)
    reward = ReasoningGymReward(ReasoningGymRewardConfig())
    with refused('"state"', where="t"):
        reward(Transcript(task=task, messages=wrote))
    assert reward(Transcript(task=task, messages=wrote, correct=True)).value == 1.0
    right = {"score": 1.0, "how": "scorer"}
    assert reward(Transcript(task=task, messages=wrote, state=right, truncated=True)).value == 0.0
    near = {"score": 0.99, "how": "scorer"}  # one cell of a hundred is wrong
    assert reward(Transcript(task=task, messages=wrote, state=near)).parts["correct"] == 0.0
    assert ReasoningGymRewardConfig().env_problem(ReasoningGymConfig()) == ""
    assert ReasoningGymRewardConfig().env_problem(object()) != ""


def test_answers_outside_of_the_grammar_are_counted(tmp_path: Path) -> None:
    world = world_of(tmp_path, *[entry(f"matrix {n}", f"{n} 2 3", "spiral_matrix") for n in range(2)])
    task = world.tasks("train")[0]
    metrics = {}
    for text in ("none", task.answers[0]):
        step = asyncio.run(world.env(task).step(f"<answer>{text}</answer>", turns_left=0))
        metrics[text] = dict(step.metrics)
    outside, right = metrics.values()
    assert outside == {"score": 0.0, "grammar": 1.0, "unscorable": 0.0}
    assert right == {"score": 1.0, "grammar": 0.0, "unscorable": 0.0}


def test_text_outside_of_its_grammar_reaches_no_scorer() -> None:
    """No sandbox is started: it could not be, in this event loop, without its preloaded module."""
    scorer = GymScorer(SandboxConfig(preload=["nosuchmodule"]))
    request = {"family": "spiral_matrix", "level": None, "options": {}, "entry": entry("q", "1 2 3")}
    for text, scored in (
        ("1 2 3", Scored(1.0, How.COMPARED)),
        ("__import__('os')", Scored(0.0, How.GRAMMAR)),
        ("1 " * 5000, Scored(0.0, How.GRAMMAR)),
    ):
        assert asyncio.run(scorer.score(request, text)) == scored


def test_demonstrations_are_answers_and_the_wrong_ones_of_the_same_family(tmp_path: Path) -> None:
    problems = [entry(f"gcd {n}", str(n)) for n in range(9)] + [entry("colour this", None, "graph_color")]
    problems += [entry(f"lcm {n}", f"l{n}", "lcm") for n in range(9)]
    world = world_of(tmp_path, *problems, demo_error_rate=1.0)
    tasks = {task.record["family"]: task for task in world.tasks("all")}
    with refused(where=tasks["graph_color"].task_id):
        world.demonstration(tasks["graph_color"], 0)
    texts = {world.demonstration(tasks["lcm"], seed).messages[-1].content for seed in range(30)}
    assert len(texts) > 3 and all(text.startswith("<answer>l") for text in texts)


def test_examples_are_other_problems_of_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every problem the same ones, but for itself; without any the prompt is the problem alone."""
    made = [Task(task_id=letter, question=f"{letter}?", answers=(letter,), record={}) for letter in "abc"]
    monkeypatch.setattr("envs.worlds.reasoning_gym.make_tasks", lambda *_: (made, made[:1]))
    shown = ExamplesConfig(count=2, layout="turns")
    world = ReasoningGymWorld(ReasoningGymConfig(instruction="Say.", demonstrations=shown))
    prompts = [[turn.content for turn in world.env(task).first_messages()] for task in (made[0], made[2])]
    a, b, c = ([f"{letter}?\nSay.", f"<answer>{letter}</answer>"] for letter in "abc")
    assert prompts == [[*b, *c, a[0]], [*a, *b, c[0]]]
    with refused("env.instruction", says="Example Solution:"):  # a turn would end there
        told = ReasoningGymConfig(instruction="As after Example Solution: above.", demonstrations=shown)
        ReasoningGymWorld(told).env(made[0])
    alone = ReasoningGymWorld(ReasoningGymConfig(instruction="Say."))
    assert [turn.content for turn in alone.env(made[0]).first_messages()] == ["a?\nSay."]


def test_examples_for_problems_of_a_file_are_from_a_file_too() -> None:
    with refused("env.demonstrations.file", says="made-up problems"):
        ReasoningGymConfig(data="entries.jsonl", demonstrations=ExamplesConfig(count=1))
    with refused("env.demonstrations.file", says="made-up problems"):  # or a held-out one is shown, and solved
        ReasoningGymConfig(eval_data="entries.jsonl", demonstrations=ExamplesConfig(count=1))
    with refused("env.demonstrations.layout", says="is a chat"):
        ReasoningGymConfig(demonstrations=ExamplesConfig(layout="text"))


def test_a_wrong_demonstration_is_never_right_by_chance(tmp_path: Path) -> None:
    """Four problems in five have the same answer, as in families with few different ones."""
    problems = [entry(f"gcd {n}", "5" if n % 5 else str(n)) for n in range(50)]
    world = world_of(tmp_path, *problems, demo_error_rate=1.0)
    for task in world.tasks("train"):
        answers = {world.demonstration(task, seed).messages[-1].content for seed in range(40)}
        assert world.write_answer(task.answers[0]) not in answers and len(answers) > 1
    uniform = world_of(tmp_path, *[entry(f"gcd {n}", "5") for n in range(4)], demo_error_rate=1.0)
    assert uniform.demonstration(uniform.tasks("train")[0], 0).messages[-1].content == "<answer>5</answer>"


def test_entries_are_read_in_the_form_of_the_library(tmp_path: Path) -> None:
    packed = {**entry("q?", "1"), "metadata": json.dumps({"source_dataset": "gcd"})}  # as a hub's table has it
    world = world_of(tmp_path, packed, entry("lcm?", "6", "lcm"))
    rows = {(task.question, task.answers, world.level(task)) for task in world.tasks("all")}
    assert rows == {("q?", ("1",), "gcd"), ("lcm?", ("6",), "lcm")}
    for bad in ({**entry("q?", "1"), "metadata": "{"}, {"question": "q?", "answer": "1"}, entry("q?", "1", "puzzle24")):
        with refused(where="entries.jsonl line 1"):
            world_of(tmp_path, bad)


def test_settings_of_a_file_are_not_those_of_the_scorer(tmp_path: Path) -> None:
    """Columns that a user's own script has added, under names that tasks of ours have."""
    foreign = {"difficulty": 3, "options": {"max_terms": 10**9}}
    world = world_of(tmp_path, *[{**entry(f"q{n}?", "1", "chain_sum"), **foreign} for n in range(2)])
    task = world.tasks("train")[0]
    assert world.level(task) == "chain_sum"
    request = scorer_request(task)
    assert (request["family"], request["level"], request["options"], request["entry"]["answer"]) == (
        "chain_sum",
        None,
        {},
        "1",
    )


@pytest.mark.parametrize("answer", [12, 0.5, True, ["1"]])
def test_an_answer_that_is_no_text_is_refused(tmp_path: Path, answer: Any) -> None:
    """It would be a task without an answer, which no demonstration shows."""
    with refused('"answer"', where="entries.jsonl line 2"):
        world_of(tmp_path, entry("q?", None), entry("p?", answer))


def test_the_page_names_every_family_and_why_the_others_are_left_out() -> None:
    page = (ROOT / "docs" / "environments" / "reasoning-gym.md").read_text()
    offered, _, left_out = page.partition("## The families")[2].partition("Left out")
    assert [name for name in FAMILIES if f" {name} " not in offered] == []
    assert [name for name in LEFT_OUT if f"`{name}`" not in left_out] == []


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise RuntimeError('broken')", "broken"),
        ("import sys, time\nsys.stderr.write('slow')\ntime.sleep(60)", "not done"),
        ("import time\nprint('{\"entries\": [', end='', flush=True)\ntime.sleep(60)", "not done"),
        ("print('an answer of 42')", "an answer of 42"),
        ("import os\nos._exit(9)", "ended"),
    ],
)
def test_a_generator_that_dies_or_hangs_is_said(
    program: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_program(program, tmp_path, monkeypatch)
    monkeypatch.setattr(entries, "DEADLINE_S", 0.2 if "sleep" in program else 60.0)
    with refused("env.families.gcd", says=why):
        # More than a pipe holds: who has ended has not read it, and what it said is read all the same.
        entries.make_entries([entries.Part(family="gcd", train=1, options={"note": "." * 2**20})], 0)


def test_held_out_problems_of_a_file_are_not_made_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a family with few problems there might be none to hold out."""
    requests: list[entries.Part] = []

    def make(parts: Sequence[entries.Part], seed: int) -> list[tuple[list[Any], list[Any]]]:
        requests.extend(parts)
        return [([entry(f"made {n}", "1") for n in range(part.train)], []) for part in parts]

    monkeypatch.setattr("envs.problems.procedural.tasks.make_entries", make)
    path = jsonl(tmp_path / "test.jsonl", [entry("asked?", "2")])
    families = {"gcd": FamilyConfig(levels=[0, 1])}
    world = ReasoningGymWorld(ReasoningGymConfig(families=families, train_tasks=6, eval_data=path))
    assert [(part.name, part.train, part.held_out) for part in requests] == [("gcd 0", 3, 0), ("gcd 1", 3, 0)]
    assert [task.question for task in world.tasks("held_out")] == ["asked?"]


def test_without_the_library_one_line_says_how_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(says="reasoning-gym is not installed", expected="C compiler"):
        entries.find_library()


ANSWERS = """
import json, sys
for line in sys.stdin:
    made = [{"question": f"q{n}", "answer": "1", "metadata": {}} for n in range(json.loads(line)["count"])]
    print(json.dumps({"entries": made}), flush=True)
"""


def with_program(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(text)
    monkeypatch.setattr(entries, "PROGRAM", str(tmp_path / "program.py"))


def test_what_one_level_leaves_over_another_may_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 questions that both levels make, eight go to each."""
    with_program(ANSWERS, tmp_path, monkeypatch)
    parts = [entries.Part(family="gcd", level=level, train=8) for level in (0, 1)]
    (first, _), (second, _) = entries.make_entries(parts, 0)
    questions = [entry["question"] for entry in (*first, *second)]
    assert len(set(questions)) == len(questions) == 16 and set(questions) < {f"q{n}" for n in range(30)}


def test_a_generator_that_warns_a_lot_is_not_stopped_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte, which no pipe holds."""
    monkeypatch.setattr(entries, "DEADLINE_S", 60.0)
    with_program("import sys\nsys.stderr.write('warning: it is late\\n' * 50_000)\n" + ANSWERS, tmp_path, monkeypatch)
    ((train, _),) = entries.make_entries([entries.Part(family="gcd", train=8)], 0)
    assert len(train) == 8


def test_a_limit_that_an_answer_met_is_tried_again_and_a_score_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time the machine was busy: that is no property of the answer."""
    ends = [("", Outcome.TIMEOUT), ("0.5", Outcome.OK), ("0.9", Outcome.OK)]
    ran: list[str] = []

    class Busy:
        def __init__(self, *_: object) -> None: ...

        async def run(self, code: str) -> Execution:
            ran.append(code)
            text, outcome = ends[len(ran) - 1]
            return Execution(text=text, outcome=outcome, seconds=1.0)

    monkeypatch.setattr("envs.tools.gym_scorer.PythonTool", Busy)
    scorer = GymScorer(SandboxConfig())
    request = {"family": "chain_sum", "level": None, "options": {}, "entry": entry("q", "12")}
    scores = [asyncio.run(scorer.score(request, "13")) for _ in range(3)]
    assert scores == [Scored(0.0, How.UNSCORABLE), Scored(0.5, How.SCORER), Scored(0.5, How.SCORER)] and len(ran) == 2


MOSTLY_ONE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    numbers = range(asked["count"])
    made = [{"question": f"{asked['seed']} {n}", "answer": "1" if n % 8 else "0", "metadata": {}} for n in numbers]
    print(json.dumps({"entries": made}), flush=True)
"""


def test_no_answer_has_more_than_its_share_in_any_beginning_of_a_balanced_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One problem in eight has another answer; a longer list only continues a shorter one."""
    with_program(MOSTLY_ONE, tmp_path, monkeypatch)
    draws = [
        entries.make_entries([entries.Part(family="circuit_logic", train=count, held_out=10)], 0)[0]
        for count in (10, 25)
    ]
    for side in draws[1]:
        for end in range(1, len(side) + 1):
            ones = sum(entry["answer"] == "1" for entry in side[:end])
            assert ones <= -(-end // 2) and end - ones <= -(-end // 2)
    assert (draws[1][0][:10], draws[1][1]) == draws[0] and len(draws[1][0]) == 25


def test_a_family_whose_problems_all_have_one_answer_is_no_endless_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_program(MOSTLY_ONE.replace('"1" if n % 8 else "0"', '"1"'), tmp_path, monkeypatch)
    with refused("env.families.circuit_logic", says="1 different training"):
        entries.make_entries([entries.Part(family="circuit_logic", train=10)], 0)


def test_families_that_are_balanced_are_offered_and_said_on_the_page() -> None:
    page = (ROOT / "docs" / "environments" / "reasoning-gym.md").read_text().partition("## One answer")[2]
    assert BALANCED.keys() <= FAMILIES.keys() and all(0 < most < 1 for most in BALANCED.values())
    assert [name for name, most in BALANCED.items() if f"`{name}` {most:.2g}" not in page] == []
