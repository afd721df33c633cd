"""The judge stage: every step and every answer once, on disk as they come; a judge that is down is no verdict."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.scoring import RewardService, ScoringSpec
from envs.papers.swirl.reward import SwirlRewardConfig
from envs.services.judge.config import JudgeConfig
from envs.services.stats import ToolStats
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.observe.health import Finding
from launch.driver.stages.judge import (
    Verdict,
    counts_of,
    identify_judging,
    judge_missing,
    note_unread,
    trajectories,
    write_out,
)
from launch.driver.stages.store import LineStore
from rlsys.config.loop import LoopConfig
from rlsys.errors import RunFailed
from rlsys.jsonl import decode
from tests.fakes.judge_endpoint import scripted
from tests.makers.made import jsonl, records
from tests.refused import refused


def line(task: str, *said: str) -> dict[str, Any]:
    talk = [{"role": "user" if at % 2 else "assistant", "content": text} for at, text in enumerate(said)]
    return {
        "task": {"task_id": task, "question": f"{task}?", "answers": ["Bo"]},
        "sequence": 0,
        "sibling": 0,
        "prompt": [{"role": "user", "content": f"{task}?"}],
        "messages": talk,
        "end": "answered",
        "truncated": False,
        "reward": 0.0,
        "num_tokens": 3,
        "weight_versions": [],
    }


PLAYED = [
    line("a", "<search_query>q</search_query>", "q -> r", "<answer>Bo</answer>"),
    line("b", "<answer>Al</answer>"),
    line("c", "nothing"),
]


def says(prompt: str) -> Any:
    if "answer key" in prompt:
        return "YES" if "Bo\n~~~" in prompt else "NO"
    return "It does not help. BAD" if "nothing" in prompt else "GOOD"


class Judging:
    """One process of the stage."""

    def __init__(self, tmp_path: Path, url: str, share: float = 0.5, outage_s: float = 60.0) -> None:
        patience = {"attempts": 1, "backoff_s": 0.01, "outage_s": outage_s, "breaker_failures": 99}
        judge = JudgeConfig(endpoint=url, model="m", **patience)  # type: ignore[arg-type]
        reward = SwirlRewardConfig(outcome="outcome_search", judge=judge)
        recipe = SimpleNamespace(reward=reward, loop=LoopConfig(max_failed_share=share))
        self.stage: Any = SimpleNamespace(name="judged", config=recipe)
        self.said: list[str] = []
        self.quiet: Any = SimpleNamespace(doing=str, count=lambda *_: None)
        self.source, self.path = tmp_path / "tries.jsonl", tmp_path / "judged.verdicts.jsonl"
        jsonl(self.source, PLAYED)
        self.found: dict[int, Verdict] = {}

    def __call__(self) -> dict[int, Verdict]:
        def known(record: dict[str, Any], where: str, place: int) -> None:
            self.found[record["line"]] = decode(Verdict, record)

        async def work() -> None:
            service = RewardService(ScoringSpec(grader_workers=1, grader_deadline_s=5.0))
            store = LineStore(self.path, {"data": "tries"}, known, what="a judge stage")
            try:
                await judge_missing(
                    self.stage, self.source, service, store, self.found, self.quiet, begin=self.said.append
                )
            finally:
                store.close()
                await service.close()

        asyncio.run(work())
        return self.found


def test_every_step_and_every_answer_is_judged_once(tmp_path: Path) -> None:
    with scripted(says) as endpoint:
        verdicts = Judging(tmp_path, endpoint.url)()
        assert {number: (verdict.judgements, verdict.correct) for number, verdict in verdicts.items()} == {
            1: (("GOOD", "GOOD"), True),
            2: (("GOOD",), False),
            3: (("It does not help. BAD",), False),  # nobody is asked about an answer that is none
        }
        assert len(endpoint.asked) == 6
        output = tmp_path / "judged.jsonl"
        counts = write_out(tmp_path / "tries.jsonl", output, verdicts)
        assert [counts.sets[name] for name in ("none", "process", "outcome", "both")] == [3, 2, 1, 1]
        assert counts.process_labels == pytest.approx(2 / 3, abs=1e-4)
        judged = records(output)
        assert [(record["judgements"], record["correct"]) for record in judged][0] == (["GOOD", "GOOD"], True)
        assert judged[1]["messages"] == PLAYED[1]["messages"]


def test_a_killed_stage_asks_for_what_is_missing(tmp_path: Path) -> None:
    with scripted(says) as endpoint:
        Judging(tmp_path, endpoint.url)()
        path = tmp_path / "judged.verdicts.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:3]) + lines[3][:9])  # torn
        lost = json.loads(lines[3])["line"]
        before = len(endpoint.asked)
        assert set(Judging(tmp_path, endpoint.url)()) == {1, 2, 3}
        assert len(endpoint.asked) - before == {1: 3, 2: 2, 3: 1}[lost]
        with refused(says="it was begun with data='tries'"):
            LineStore(path, {"data": "others"}, lambda *_: None, what="a judge stage")


def test_another_judge_judges_again_what_came_with_judgements(tmp_path: Path) -> None:
    judged = [PLAYED[0] | {"judgements": ["old: BAD", "old: BAD"], "correct": False}, *PLAYED[1:]]
    with scripted(says) as endpoint:
        stage = Judging(tmp_path, endpoint.url)
        jsonl(stage.source, judged)
        verdicts = stage()
        assert (verdicts[1].judgements, verdicts[1].correct, len(endpoint.asked)) == (("GOOD", "GOOD"), True, 6)
    assert "1 came with judgements, none of which are taken over" in stage.said[0]


def test_where_nobody_is_named_to_judge_judgements_are_taken_over(tmp_path: Path) -> None:
    stage = Judging(tmp_path, "http://127.0.0.1:1", share=1.0)
    stage.stage.config.reward = SwirlRewardConfig(outcome="exact")
    jsonl(stage.source, [PLAYED[0] | {"judgements": ["old: BAD", "GOOD"]}, PLAYED[1]])
    verdicts = stage()
    assert {number: (verdict.judgements, verdict.correct) for number, verdict in verdicts.items()} == {
        1: (("old: BAD", "GOOD"), True)
    }
    assert "1 came with judgements, which are taken over: reward.judge names nobody" in stage.said[0]


def test_a_judge_that_is_down_is_a_typed_failure_and_no_bad_step(tmp_path: Path) -> None:
    with scripted(lambda prompt: 400 if "c?" in prompt else says(prompt)) as endpoint:
        assert set(Judging(tmp_path, endpoint.url)()) == {1, 2}
    gone = Judging(tmp_path, endpoint.url, share=0.0, outage_s=0.3)
    with pytest.raises(
        RunFailed, match=r"1 of 3 trajectories to judge failed .*; the first: infra in judge: no answer"
    ):
        gone()
    assert set(gone.found) == {1, 2}  # and nothing is lost


def test_a_judge_that_is_down_ends_the_stage_before_all_were_asked_about(tmp_path: Path) -> None:
    with scripted(lambda _: 404) as endpoint:
        down = Judging(tmp_path, endpoint.url, outage_s=0.3)
        jsonl(down.source, [line(f"t{number}", "nothing") for number in range(200)])
        with pytest.raises(RunFailed, match="64 of 64 trajectories to judge failed"):
            down()
        assert len(endpoint.asked) < 200 and not down.found


def test_no_trajectories_are_bad_input(tmp_path: Path) -> None:
    jsonl(tmp_path / "f.jsonl", [{"prompt": "2 + 3?", "response": "5"}])
    with refused(where="f.jsonl line 1", says="not a trajectory"):
        list(trajectories(tmp_path / "f.jsonl"))


def test_verdicts_go_on_where_the_run_directory_was_moved(tmp_path: Path) -> None:
    stage: Any = SimpleNamespace(name="judged", data="tries", config=SimpleNamespace(reward=SwirlRewardConfig()))
    begun = []
    for folder in (tmp_path / "here", tmp_path / "there"):
        folder.mkdir()
        jsonl(folder / "tries.jsonl", PLAYED)
        begun.append(identify_judging(stage, folder / "tries.jsonl"))
    assert begun[0] == begun[1] and begun[0]["reward.outcome"] is None
    jsonl(tmp_path / "there" / "tries.jsonl", PLAYED[1:])
    assert identify_judging(stage, tmp_path / "there" / "tries.jsonl") != begun[0]
    with pytest.raises(RunFailed, match=r"stages.judged: .*/gone.jsonl is missing"):
        identify_judging(stage, tmp_path / "gone.jsonl")


def test_counts_follow_from_verdicts() -> None:
    sound = Verdict(line=1, judgements=("GOOD", "GOOD", "BAD"), correct=True)
    counts = counts_of(3, [sound, replace(sound, line=2, judgements=("GOOD",))])
    assert counts.sets == {"none": 2, "process": 1, "outcome": 2, "both": 1}
    assert (counts.failed, counts.steps, counts.process_labels) == (1, 4, 0.8333)
    assert counts.row() == {"trajectories": 3, "failed": 1, "steps": 4, **counts.sets, "process_labels": 0.8333}


@pytest.mark.parametrize(("unparsable", "signs"), [(5, ["unread"]), (4, [])])
def test_verdicts_that_cannot_be_read_are_a_finding_of_the_run(unparsable: int, signs: list[str]) -> None:
    stats = ToolStats(calls=100, errors={"unparsable": unparsable})
    service: Any = SimpleNamespace(tool_stats=lambda: {"judge": stats})
    noted: list[str] = []
    run: Any = SimpleNamespace(state=DriverState(), note=lambda kind, text, sign: noted.append(sign))
    stage: Any = SimpleNamespace(name="judged")
    note_unread(run, stage, service)
    assert noted == [finding["what"] for finding in run.state.health] == signs
    assert all(Finding(**finding).stage == "judged" for finding in run.state.health)
