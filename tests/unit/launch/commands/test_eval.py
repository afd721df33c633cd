"""An evaluation never plays what the checkpoint was trained on."""

import asyncio
import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from envs.worlds.calculator import CalculatorConfig
from launch.cli import run
from launch.commands.eval import dry_run, find_training_data, first_question, play, plays_to_play, split_to_evaluate
from launch.config.compose import compose, to_yaml
from launch.driver.evaluation.transcripts import Transcripts
from launch.driver.observe.progress import Progress
from rlsys import choices
from rlsys.config.served import ServedConfig
from rlsys.errors import RunFailed
from rlsys.rollout import RolloutPlan
from rlsys.types import Failure, FailureKind, Group, Reward, Ticket
from tests.makers import made

GENERATED = CalculatorConfig()
FILE = CalculatorConfig(data="train.jsonl")


def test_only_a_file_that_the_checkpoint_has_not_seen_is_played_whole() -> None:
    assert split_to_evaluate(GENERATED, None) == "held_out"
    assert split_to_evaluate(replace(GENERATED, held_out_tasks=50), None) == "held_out"  # still its own world
    assert split_to_evaluate(GENERATED, "other.jsonl") == "held_out"
    assert split_to_evaluate(FILE, "other.jsonl") == "all"
    assert split_to_evaluate(FILE, None) == "all"
    assert split_to_evaluate(FILE, "train.jsonl") == "held_out"
    assert split_to_evaluate(replace(FILE, data="./train.jsonl"), "train.jsonl") == "held_out"
    assert split_to_evaluate(replace(FILE, eval_data="test.jsonl"), None) == "held_out"


@pytest.mark.parametrize(
    ("overrides", "data"),
    [
        ([], None),
        (["env.data=a.jsonl"], "a.jsonl"),
        (["stages.rl.env.data=b.jsonl"], "b.jsonl"),
        (["env.data=a.jsonl", "stages.rl.env.data=null"], None),
        (["stages.sft.env.data=c.jsonl"], None),
    ],
)
def test_what_a_checkpoint_was_trained_on_is_what_its_last_stage_read(
    overrides: list[str], data: str | None, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoints" / "step-000001" / "hf"
    checkpoint.mkdir(parents=True)
    assert find_training_data(str(checkpoint)) is None
    (tmp_path / "config.yaml").write_text(to_yaml(compose("quickstart", overrides)))
    assert find_training_data(str(checkpoint)) == data


def test_a_configuration_that_lies_around_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub name has this folder among its parents; a model may lie below anybody's config.yaml."""
    (tmp_path / "config.yaml").write_text("env: {data: a.jsonl}\n")
    (tmp_path / "models" / "small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_training_data("owner/name") is None
    assert find_training_data("models/small") is None
    assert find_training_data(str(tmp_path / "models" / "small")) is None
    (tmp_path / "checkpoints").mkdir()
    assert find_training_data("owner/name") is None


def test_somebody_else_s_run_imports_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "checkpoints" / "model").mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("env: {name: theirs.World, data: a.jsonl}\nstages: [{kind: rl, steps: 1}]\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert find_training_data(str(tmp_path / "checkpoints" / "model")) == "a.jsonl"
    assert not (tmp_path / "ran").exists()
    assert str(tmp_path) not in choices.search_paths  # nor would an actor look there for a module of the user's own


SERVED = ["eval", "worlds/sums", "eval.tasks=3", "--dry-run"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--model", "big"], "--model big: expected --endpoint with it"),
        (["--rpm", "5"], "--rpm 5: expected --endpoint with it"),
        (["--deadline", "5"], "--deadline 5.0: expected --endpoint with it"),
        (["--outage", "5"], "--outage 5.0: expected --endpoint with it"),
        (["--limit-key", "max_tokens"], "--limit-key max_tokens: expected --endpoint with it"),
        (["--plain-http"], "--plain-http True: expected --endpoint with it"),
        (["--endpoint", "https://h/v1"], "--model None: expected a name with --endpoint"),
        (["--endpoint", "https://me:pw@h/v1", "--model", "big"], "without a password"),
        (["--endpoint", "https://h/v1", "--model", "big", "--omit", "seeds"], "--omit seeds: expected some of"),
        (["--endpoint", "https://h/v1", "--model", "big", "--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (["--endpoint", "http://far/v1", "--model", "big", "--key-env", "HOME"], "--plain-http, mends it"),
        (["--endpoint", "https://h/v1", "--model", "big", "--deadline", "0"], "--deadline 0.0: expected above 0"),
        (["--endpoint", "https://h/v1", "--model", "big", "--rpm", "0"], "--rpm 0: expected at least 1"),
        (["--endpoint", "https://h/v1", "--model", "big", "--outage", "0"], "--outage 0.0: expected above 0"),
        (
            ["--endpoint", "https://h/v1", "--model", "big", "--rpm", "2", "--outage", "30"],
            "--outage 30.0: expected above 30",
        ),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused(
    options: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*SERVED, *options]) == 2
    err = capsys.readouterr().err
    assert part in err and "pw" not in err.replace("password", "")


def test_a_dry_run_counts_the_answers(capsys: pytest.CaptureFixture[str]) -> None:
    config = compose("worlds/calculator", ["eval.tasks=3", "eval.samples=2", "eval.seeds=2"])
    with Progress(since=0.0) as progress:
        assert dry_run(plays_to_play(config.recipe, None), "big at https://h/v1", progress) == 0
    output = "".join(capsys.readouterr())
    assert "big at https://h/v1 would play 3 held-out tasks" in output
    assert "greedy = 3 tasks x 1 x 1 seeds = 3, of at most 12 messages: 36 answers" in output
    assert "sampled = 3 tasks x 2 x 2 seeds = 12, of at most 12 messages: 144 answers" in output


class Fails:
    """A model at an address of whose episodes the first 10 succeed, and then none."""

    def __init__(self) -> None:
        self.played = 0

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: object) -> Group:
        self.played += 1
        failure = Failure(kind=FailureKind.INFRA, where="endpoint", detail="gone")
        outcome = Reward(value=1.0, parts={}) if self.played <= 10 else failure
        return Group(
            ticket=ticket, trajectories=(made.trajectory(task=ticket.task, reward=outcome),), worker="endpoint"
        )


@pytest.mark.parametrize(("limit", "early", "played"), [(0.5, True, 64), (0.9, True, 70), (0.5, False, 70)])
def test_too_many_failures_end_it_once_they_say_something(
    limit: float, early: bool, played: int, tmp_path: Path
) -> None:
    """54 of 64 is 84 %; before the 64th episode no share says anything."""
    keys = ["eval.tasks=70", "eval.samples=0", "eval.concurrency=1", f"loop.max_failed_share={limit}"]
    recipe = compose("worlds/sums", keys).recipe
    plays, pool = plays_to_play(recipe, None), Fails()
    transcripts = Transcripts(tmp_path / "t", {}, {"greedy": 1})
    with Progress(since=0.0) as progress, contextlib.closing(transcripts):
        ends = pytest.raises(RunFailed, match="54 of 64") if played == 64 else contextlib.nullcontext()
        with ends:
            play(recipe, plays, transcripts, progress, lambda work: asyncio.run(work(pool)), served=early)
    assert pool.played == played


def test_how_a_model_at_an_address_was_asked_stands_in_the_result() -> None:
    options = {"endpoint": "https://h/v1", "model": "big", "limit_key": "max_completion_tokens"}
    first, second = (ServedConfig(**options, omit=omit) for omit in (("top_p", "stop"), ("stop", "top_p", "stop")))
    assert first.identity == second.identity
    assert first.asked == {"limit_key": "max_completion_tokens", "omit": ["stop", "top_p"]}


def test_the_first_question_is_sampled_as_an_episode() -> None:
    config = compose("worlds/calculator", ["eval.temperature=0.7", "eval.top_p=0.9", "rollout.max_turn_tokens=33"])
    served = ServedConfig(endpoint="https://h/v1", model="big")
    question = first_question(served, plays_to_play(config.recipe, None)).question
    assert (question.temperature, question.top_p, question.seed, question.max_tokens) == (0.7, 0.9, 1, 33)
    config = compose("worlds/sums", ["eval.samples=0"])
    question = first_question(served, plays_to_play(config.recipe, None)).question
    assert (question.temperature, question.top_p, question.seed) == (0.0, 1.0, 0)
