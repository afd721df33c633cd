"""`rlsys config`: every key has a meaning, the page is the reference, and what is asked for is explained."""

from pathlib import Path

import pytest

from launch.cli import run
from launch.commands.config import fill_page
from launch.config.compose import TABLES
from launch.config.keys import choice_keys, known_names, reference
from tests.paths import ROOT


def test_every_key_has_a_meaning_and_stands_in_the_reference() -> None:
    sections = reference(TABLES)
    keys = [key for section in sections for key in section.keys]
    assert [key.name for key in keys if not key.meaning or not key.kind] == []
    assert {key.name for key in keys} == set(known_names(TABLES, {}))
    assert len({section.title for section in sections}) == len(sections)


def test_the_page_is_what_the_command_writes() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert fill_page(page, reference(TABLES)) == page, "run `rlsys config --page docs/configuration.md`"


def test_a_key_says_what_it_is() -> None:
    keys = {key.name: key for key in choice_keys("algorithm", TABLES["algorithm"], "rloo")}
    reduction = keys["algorithm.reduction"]
    assert reduction.kind.startswith("one of token_mean, ") and reduction.default == "sequence_sum"
    assert reduction.meaning.startswith("Reduction of token losses")  # of the class that it inherits
    assert (keys["algorithm.kl_clamp"].kind, keys["algorithm.kl_clamp"].default) == ("a number or null", "10.0")


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        ([], ["# learner\n", "learner.lr ", "stages.NAME.epochs", "reward.judge.endpoint"]),
        (["learner.lr"], ["learner.lr: a number; default 1e-06\n    Learning rate", "Elsewhere: learning_rate"]),
        (["loop"], ["loop.groups_per_step: a whole number; default 32", "loop.max_failed_share"]),
        (["num_generations"], ["loop.group_size: a whole number; default 8"]),
        (["tensor_parallel_size"], ["engine.tensor_parallel"]),
        (["temperature"], ["rollout.temperature: a number; default 1.0", "eval.temperature: "]),  # the end of ours
        (
            ["epsilon_high"],  # grpo has a default of its own
            ["# algorithm.name: ppo, reinforce_pp\nalgorithm.clip_high: a number; default 0.2\n", "default 0.28\n"],
        ),
        (["pipeline_parallel_size"], ["learner.ranks, learner.zero_stage"]),
        (["answer"], ["# reward.name=answer\n", "reward.overlong_buffer"]),
        (
            ["quickstart"],
            ["rollout.max_turn_tokens = 32 (default 64)", "# stage rl: rl, 45 steps", "env.instruction = ''"],
        ),
    ],
)
def test_what_is_asked_for_is_explained(argv: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", *argv]) == 0
    out = capsys.readouterr().out
    assert [part for part in parts if part not in out] == []


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["learnr.lr"], "no key 'learnr.lr' (did you mean 'learner.lr'?)"),
        (["zzz"], "'zzz' is no key, and no config 'zzz'"),
        (["--page", "README.md"], "--page: expected a page with"),
    ],
)
def test_what_is_neither_is_one_line(argv: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", *argv]) == 2
    assert line in capsys.readouterr().err


def test_a_page_keeps_what_stands_around_the_marks(tmp_path: Path) -> None:
    page = "before\n<!-- rlsys config --page -->stale<!-- end -->\nafter\n"
    sections = reference(TABLES)
    once = fill_page(page, sections)
    assert once.startswith("before\n") and once.endswith("<!-- end -->\nafter\n") and "-->stale<" not in once
    assert fill_page(once, sections) == once
