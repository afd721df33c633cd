"""Generated trajectories: what is kept, what makes a pair, and a file that goes on after any kill."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from envs.rewards.answer import AnswerRewardConfig
from launch.cli import run
from launch.config.compose import compose
from launch.driver.stages.generate import generate_missing, identify_play, plan_of, weights_of
from launch.driver.stages.store import Counts, TrajectoryStore, pairs_path, store_path, write_out
from launch.driver.stages.supervised import samples_of
from launch.driver.stages.trajectories import group_record, pair_of, select_trajectories, weights_id
from rlsys.config.generate import GenerateConfig, TeacherConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.examples import read_answer, read_pair
from rlsys.records import GroupRecord, TrajectoryRecord, to_json
from rlsys.types import Failure, FailureKind, Group, Message, Reward, Task, Ticket, Trajectory, Turn
from tests.fakes.parts import BanditPool
from tests.makers import made
from tests.refused import refused

BROKEN = Failure(kind=FailureKind.TIMEOUT, where="episode", detail="late")
REWARD = AnswerRewardConfig()


def turn(context: Sequence[int], sampled: Sequence[int]) -> Turn:
    return made.turn(context, sampled, version=3)


def trajectory(sibling: int, reward: float | None, says: str = "", turns: tuple[Turn, ...] = ()) -> Trajectory:
    reply = Message(role="assistant", content=says or f"it is {sibling}")
    return made.trajectory(
        *(turns or [turn([1, 2], [5, 6])]),
        sibling=sibling,
        messages=(Message(role="user", content="2 + 3?"), reply),
        reward=BROKEN if reward is None else Reward(value=reward, parts={"correct": float(reward >= 1)}),
        num_prompt=1,
    )


def entry(*trajectories: Trajectory, sequence: int = 0) -> GroupRecord:
    return group_record(made.group(made.ticket(sequence, task=made.TASK), *trajectories), "vocabulary-1")


def siblings(records: list[TrajectoryRecord]) -> list[int]:
    return [record.sibling for record in records]


def line(record: Any) -> dict[str, Any]:
    """As it stands in a file."""
    read: dict[str, Any] = json.loads(json.dumps(to_json(record)))
    return read


def test_filters() -> None:
    played = entry(
        trajectory(0, 0.1), trajectory(1, 1.1), trajectory(2, None), trajectory(3, 1.0), trajectory(4, 1.1),
        trajectory(5, 1.1, says="it is 1"),  # the same text as an earlier one
    )  # fmt: skip

    def keeping(**changes: Any) -> list[int]:
        return siblings(select_trajectories(played, GenerateConfig(**changes), REWARD))

    assert keeping() == [0, 1, 3, 4]  # neither the failure nor the repetition
    assert keeping(keep="correct") == [1, 3, 4]
    assert keeping(keep="best") == [1, 4]
    assert keeping(keep="best", per_task=1) == [1]
    assert keeping(per_task=3) == [1, 3, 4]
    assert keeping(min_reward=1.05) == keeping(min_reward=1.1) == [1, 4]
    assert keeping(keep="best", min_reward=2.0) == []


def test_pairs_are_best_against_worst_without_ties() -> None:
    pair = pair_of(
        entry(trajectory(0, 0.5), trajectory(1, 1.0), trajectory(2, None), trajectory(3, 0.1), trajectory(4, 1.0))
    )
    assert pair is not None
    pair = line(pair)
    assert (pair["chosen_reward"], pair["rejected_reward"], pair["task_id"]) == (1.0, 0.1, "t:1")
    assert pair["prompt"] == [{"role": "user", "content": "2 + 3?"}]
    assert pair["chosen"] == [{"role": "assistant", "content": "it is 1"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "it is 3"}]
    assert pair_of(entry(trajectory(0, 1.0), trajectory(1, 1.0), trajectory(2, None))) is None
    assert pair_of(entry(trajectory(0, 1.0), trajectory(1, None))) is None
    assert pair_of(entry(trajectory(0, None))) is None
    wavering = entry(trajectory(0, 0.2, says="the same"), trajectory(1, 0.9, says="the same"))
    assert pair_of(wavering) is None  # of one text no judge's two opinions make a preference
    rewritten = (turn([1, 2], [5]), turn([1, 3], [6]))  # the context changed: two samples, no one likelihood
    assert pair_of(entry(trajectory(0, 1.0, turns=rewritten), trajectory(1, 0.0))) is None


def test_what_was_sampled_is_what_is_trained(tmp_path: Path) -> None:
    two_turns = (turn([1, 2], [5, 6]), turn([1, 2, 5, 6, 9, 9], [7]))
    record = line(select_trajectories(entry(trajectory(0, 1.0, turns=two_turns)), GenerateConfig(), REWARD)[0])
    assert record["samples"] == [{"token_ids": [1, 2, 5, 6, 9, 9, 7], "sampled": [[2, 4], [6, 7]]}]
    assert record["task"] == {"source": "hand", "task_id": "t:1", "question": "2 + 3?", "answers": ["5"]}
    assert record["weight_versions"] == [[[3, 0, 2]], [[3, 0, 1]]]
    example = read_answer(record, "line 1")
    ((sample,),) = samples_of(example, None, "vocabulary-1", ())  # type: ignore[arg-type]  # nothing is tokenised
    assert made.ids_and_mask(sample) == ((1, 2, 5, 6, 9, 9, 7), (0, 0, 1, 1, 0, 0, 1))


def test_an_answer_that_is_only_an_end_is_an_answer() -> None:
    silent = replace(
        trajectory(0, 0.0, turns=(turn([1, 2], [9]),)),
        messages=(Message(role="user", content="2 + 3?"), Message(role="assistant", content="")),
    )
    played = entry(silent, trajectory(1, 1.0))
    (record,) = select_trajectories(entry(silent), GenerateConfig(), REWARD)
    ((sample,),) = samples_of(read_answer(line(record), "line 1"), None, "vocabulary-1", ())  # type: ignore[arg-type]
    assert made.ids_and_mask(sample) == ((1, 2, 9), (0, 0, 1))
    pair = pair_of(played)
    assert pair is not None
    assert read_pair(line(pair), "line 1").answers[1].samples[0].token_ids == (1, 2, 9)


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_torn_line_is_played_again_and_another_policy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.played.jsonl"
    played = TrajectoryStore(path, {"weights": "step 4", "generate.samples": 2})
    for sequence in (2, 0, 1):
        played.add(entry(trajectory(0, 1.0), sequence=sequence))
    with refused(says="another process is writing it"):
        TrajectoryStore(path, {})
    played.close()
    path.write_bytes(path.read_bytes()[:-7])
    played = TrajectoryStore(path, {"weights": "step 4", "generate.samples": 2})
    assert [sequence in played for sequence in range(4)] == [True, False, True, False]
    played.add(entry(trajectory(0, 0.5, says="\ud800"), sequence=1))  # half a surrogate pair is no reason to stop
    assert [group.sequence for group in played.groups(3)] == [0, 1, 2]
    assert [group.sequence for group in played.groups(2)] == [0, 1]
    played.close()
    with refused(says="begun with generate.samples=2, not"):
        TrajectoryStore(path, {"weights": "step 4", "generate.samples": 8})
    for end in ("\n", ""):  # nor is another's only line taken for one that a kill tore
        path.write_text('{"question": "somebody else\'s"}' + end)
        with refused(says='line 1: no "begun_with"'):
            TrajectoryStore(path, {})
        assert "somebody" in path.read_text()
    path.write_text('{"begun_wi')
    TrajectoryStore(path, {"weights": "step 4"}).close()
    assert path.read_text() == '{"begun_with": {"weights": "step 4"}}\n'
    path.write_text('{"begun_with": {}}\n{"sequence": 3}\n')
    with refused(where="line 2", says='no "sequence" with its'):
        TrajectoryStore(path, {})


def test_weights_are_known_by_what_they_are(tmp_path: Path) -> None:
    zeros = bytes(2**22)  # longer than what is read of it
    files = [("model.safetensors", zeros), ("config.json", b"{}")]
    files += [("model.safetensors", b"x" + zeros[1:]), ("model.safetensors", zeros[1:] + b"x"), ("config.json", b"{ }")]
    ids = []
    for name, content in files:
        (tmp_path / name).write_bytes(content)
        ids.append(weights_id(str(tmp_path)))
    assert len(set(ids)) == len(files)
    assert weights_id(str(tmp_path)) == ids[-1]
    assert weights_id("an/id") != weights_id("another/id")


def test_a_teacher_is_known_by_how_it_is_led() -> None:
    own = TeacherConfig(endpoint="https://h/v1", model="big", constructs=True, prompts="mine")
    assert weights_of(own) == "the teacher big, led through 40 actions at most with the prompts of mine"
    others = {weights_of(replace(own, **key)) for key in ({"prompts": None}, {"max_steps": 9}, {"constructs": False})}
    assert len({weights_of(own), *others}) == 4


class Stopped(Exception): ...


def test_what_is_played_is_not_played_again(tmp_path: Path) -> None:
    recipe = compose("quickstart", ["env.train_tasks=24", "generate.samples=4", "generate.concurrency=8"]).recipe
    tasks = [Task(task_id=f"t:{n}", question=f"{n}?", answers=("1",)) for n in range(24)]
    output = tmp_path / "a.jsonl"

    async def go(pool: BanditPool, count: Any) -> None:
        played = TrajectoryStore(store_path(output), identify_play(recipe, "w", "v"))
        quiet = {"say": lambda self, text: lines.append(text), "doing": lambda *_: None, "count": staticmethod(count)}
        progress = type("Quiet", (), quiet)()
        try:
            await generate_missing(pool, tasks, plan_of(recipe, "generate"), recipe, played, "v", progress)  # type: ignore[arg-type]
            counts.append(write_out(played, output, recipe, len(tasks)))
        finally:
            played.close()

    counts: list[Counts] = []
    lines: list[str] = []
    starts: list[int] = []

    class Counting(BanditPool):
        async def group(self, ticket: Ticket, *args: Any, **kwargs: Any) -> Group:
            group = await super().group(ticket, *args, **kwargs)
            starts.append(ticket.sequence)
            return group

    def stop_after_nine(done: int, total: int) -> None:
        if done == 9:
            raise Stopped

    with pytest.raises(Stopped):
        asyncio.run(go(Counting(), stop_after_nine))
    assert not output.exists()
    asyncio.run(go(Counting(fail=lambda ticket: ticket.sequence == 20), lambda *_: None))
    assert sorted(starts) == list(range(24))
    assert "9 of them already" in lines[-1]
    assert (counts[0].tasks, counts[0].trajectories, counts[0].ungraded_tasks) == (23, 92, 1)
    assert len(output.read_text().splitlines()) == counts[0].kept > 23  # two texts at most per task
    pairs = [json.loads(line) for line in pairs_path(output).read_text().splitlines()]
    assert len(pairs) == counts[0].pairs > 0
    assert all(pair["chosen_reward"] > pair["rejected_reward"] for pair in pairs)
    before = output.read_bytes()

    asyncio.run(go(Counting(fail=lambda ticket: True), lambda *_: None))  # one that fails for good stops no filter
    assert counts[1] == counts[0]
    assert starts[24:] == [20]

    asyncio.run(go(Counting(), lambda *_: None))  # the one that could not be graded is tried again
    assert starts[25:] == [20]
    assert [json.loads(line)["sequence"] for line in output.read_text().splitlines()] != []
    assert len(output.read_bytes()) > len(before)

    with pytest.raises(RunFailed, match=r"64 of 64 trajectories failed .*; the first: infra in fake: it died"):
        output = tmp_path / "b.jsonl"
        asyncio.run(go(Counting(fail=lambda ticket: True), lambda *_: None))
    with pytest.raises(RunFailed, match="96 of 96 trajectories failed"):  # and not an empty file
        asyncio.run(go(Counting(fail=lambda ticket: True), lambda *_: None))


# -- a reward that does not say what counts as solved ------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SilentConfig:
    name: str = ""


class SilentReward:
    def __init__(self, config: SilentConfig) -> None: ...


SILENT = f"reward.name={__name__}.SilentReward"


def test_correct_cannot_be_kept_where_nobody_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("extends: quickstart\nstages: [{name: tries, kind: generate, generate: {keep: correct}}]\n")
    line = "stages.tries: generate.keep='correct': the class of .*SilentReward' has no `solved_by`.*generate.keep=best"
    with pytest.raises(BadInput, match=line):
        compose(str(recipe), [SILENT])
    assert compose(str(recipe), [SILENT, "generate.keep=best"]).stages[0].config.generate.keep == "best"
    output = str(tmp_path / "a.jsonl")
    assert run(["generate", "quickstart", "--output", output, "--keep", "correct", SILENT]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and "generate.keep='correct': the class of" in err


def test_nothing_is_counted_as_solved_where_nobody_says_what_is(tmp_path: Path) -> None:
    counts = []
    for overrides in ([], [SILENT]):
        recipe = compose("quickstart", overrides).recipe
        played = TrajectoryStore(tmp_path / f"{len(overrides)}.played.jsonl", {})
        played.add(entry(trajectory(0, 1.0), trajectory(1, 0.5), trajectory(2, None)))
        counts.append(write_out(played, tmp_path / "out.jsonl", recipe, 1))
        played.close()
    explicit, silent = counts
    assert (explicit.solved, "1 solved, 1 failed" in explicit.describe(), explicit.tokens) == (1, True, 6)
    assert (silent.solved, "solved" in silent.describe(), "solved" in silent.row()) == (None, False, False)
    assert "mean reward 0.750, 1 failed" in silent.describe()


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_command_that_cannot_write_says_so_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine.jsonl", "my.pairs.jsonl"):
        (tmp_path / name).write_text("{}\n")
    for argv, part in (
        ([], "required: --output"),
        (["--output", str(tmp_path / "no" / "a.jsonl")], "expected a file in a folder that exists"),
        (["--output", str(tmp_path / "mine.jsonl")], "no mine.played.jsonl to continue from"),
        (["--output", str(tmp_path / "my.jsonl")], "there is a file my.pairs.jsonl already"),
        (
            ["--output", str(tmp_path / "a.jsonl"), "--keep", "good"],
            "generate.keep='good': expected one of all, best, correct",
        ),
        (["--output", str(tmp_path / "a.jsonl"), "--samples", "0"], "generate.samples=0: expected at least 1"),
        (["--output", str(tmp_path / "a.jsonl"), "--checkpoint", "/no/where"], "no such folder"),
    ):
        assert run(["generate", "quickstart", *argv]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert part in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.jsonl", "my.pairs.jsonl"]
