"""Every time, size, level and count that follows from a model's size fits three runs: a 7B on 8 cards, a 32B on 32, and
SmolLM2 on two cores. Arithmetic alone. A number that fits a toy and not these fails here (`TOYS`).

What the three do (of configs/gpu by the comments there; SmolLM2 as seen on two cores):

                                                   7B       32B    SmolLM2
    parameters                                   7.6e9    32.8e9    1.35e8
    an update of 1,024 answers of 8k tokens      745 s     824 s      25 s  (a whole step of 32 answers)
    the rollouts of a step                       666 s     847 s      25 s
    tokens a second of one answer, seats full       32        26        10
    the longest answer, in tokens               14,336    14,336       144
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from actors import judge, renderer
from actors.weights import check
from launch.checks import deadlines as derived
from launch.checks import gpu_memory, gpu_plan, model_size
from launch.checks.deadlines import start_of_engine, start_of_rank
from launch.config.compose import compose
from launch.driver.checkpoints.stop_time import stop_deadline_s
from launch.driver.evaluation.limits import evaluation_deadline
from launch.driver.evaluation.sets import plays_of
from launch.driver.incidents import collect
from launch.driver.observe import thresholds
from launch.driver.observe.phases import Phase, PhaseWatch
from launch.driver.observe.signs import SIGNS, Proof
from launch.driver.run import first_delivery, written
from launch.run_dir import lines
from launch.tools.report import at_end, kept, page
from learners import leaving
from learners.meeting import collective_timeout_s
from rlsys import deadlines, mismatch
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.system import patience
from rlsys.system.device import DEVICES, Device, require_resolved, resolve_run

HOUR, ENTROPY, ROUNDING = 3600.0, 0.3, 0.049  # nats a token: of a tuned model; of bfloat16 on SmolLM2 (reviews of it)
Three = float | tuple[float, float, float]  # the same in all cases, or of each
RECIPES = ("gpu/qwen2.5-7b-8xa100", "gpu/qwen2.5-32b-32xa100", "smollm2")


@dataclass(frozen=True)
class Case:
    """One of the three runs, resolved."""

    config: RunConfig
    device: Device
    step_s: float  # of the update or of the rollouts, whichever take longer
    answer: int  # tokens, usually

    @property
    def rl(self) -> RecipeConfig:
        return [stage.config for stage in self.config.stages if stage.kind == "rl"][-1]

    @property
    def size(self) -> int:
        """Bytes of its model."""
        return model_size.model_bytes(self.rl, self.device)

    @property
    def vocab(self) -> int:
        shape = model_size.policy_shape(self.rl)
        assert shape is not None
        return shape.vocab

    @property
    def episodes(self) -> int:
        return self.rl.loop.groups_per_step * self.rl.loop.group_size

    @property
    def line(self) -> float:
        """Bytes of an episode in trajectories/."""
        return written.PER_EPISODE + self.answer * (written.PER_SAMPLED + written.PER_LOGPROB)

    def steps_until(self, hint: str, share: float = 1.0) -> int:
        """Steps until a hint is certain, where this share of the episodes is evidence for it."""
        proof = SIGNS[hint].proof
        counted = math.inf if proof.episodes is None else math.ceil(proof.episodes / (share * self.episodes))
        return int(min(counted, math.inf if proof.steps is None else proof.steps))


def episode_s(case: Case) -> float:
    return derived.attempt_s(case.rl).value


def evaluation_s(case: Case) -> float:
    config = replace(case.rl, eval=replace(case.rl.eval, every=20))
    return evaluation_deadline(config, plays_of(config)).value


def wait_s(case: Case) -> float:
    """After which the first wait for rollouts is called a stall."""
    incidents, first = case.rl.incidents, Phase(name="wait_rollout", stage="rl", since_s=0.0, usual_s=None, known=0)
    limit_s = case.rl.learner.update_timeout_s
    return PhaseWatch(incidents.stall_factor, incidents.stall_floor_s, deadline_s=limit_s).limit_s(first)


def between_checkpoints_s(case: Case) -> float:
    every, every_s = case.rl.checkpoint.every or math.inf, case.rl.checkpoint.every_s or math.inf
    return min(every * case.step_s, every_s + case.step_s)


def page_mb(case: Case) -> float:
    room = page.ROOM
    assert room is not None
    return (room.most if room.in_bytes else room.most * case.line * kept.OF_PAGE) / 1e6


def step_mb(case: Case) -> float:
    """Of a step's file of episodes, before compression."""
    settings = case.rl.trajectories
    return min(settings.most_bytes, min(settings.keep or math.inf, case.episodes) * case.line) / 1e6


def beside_scores_gb(case: Case) -> float:
    """What a teacher's engine leaves of a card to the scores of prompts."""
    share = gpu_memory.scoring_share(case.vocab, gpu_memory.PREFILL_TOKENS, 80e9, gpu_plan.VLLM_SHARE)
    return (1 - share) * 80


def pick(of: Three, at: int) -> float:
    return of[at] if isinstance(of, tuple) else of


@dataclass(frozen=True)
class Row:
    what: str
    gives: Callable[[Case], float]
    value: Three  # what it gives in the three cases
    least: Three  # what each of them needs
    most: Three
    why: str  # of least; of most

    def fits(self, at: int, case: Case) -> bool:
        return pick(self.least, at) <= self.gives(case) <= pick(self.most, at)


# fmt: off
TABLE = (
    # -- seconds -----------------------------------------------------------------------------------------------------
    Row("episode", episode_s, (1792, 1792, 600), (448, 551, 15), 2 * HOUR,
        "the longest answer at the rate of a full engine; a hang is found the same day"),
    Row("hung group", lambda case: deadlines.hung_s(episode_s(case), start_of_engine(case.rl, case.device).value).value,
        (3584, 3584, 1200), (1792, 1792, 600), 2 * HOUR, "an episode's time; it holds up a step"),
    Row("evaluation", evaluation_s, (5376, 5376, 2400), (1146, 1417, 300), 3 * HOUR,
        "two waves of 448 or 551 s after 8k tokens of those under way; a few steps later it is of another model"),
    Row("start of an engine", lambda case: start_of_engine(case.rl, case.device).value, (757, 2266, 308),
        (392, 895, 63), 3 * HOUR, "its bytes at 100 MB/s, and 240 s to compile, 60 on CPUs"),
    Row("start of a rank", lambda case: start_of_rank(case.rl, case.device).value, (1214, 4232, 316),
        (365, 1371, 65), 3 * HOUR, "policy and reference at 100 MB/s, and 60 s"),
    Row("start of a judge", lambda case: judge.START_S, 6300, (757, 2266, 308), 3 * HOUR,
        "one as large as the policy has the time that an engine has"),
    Row("download", lambda case: deadlines.download_s(case.size).value, (3346, 13405, 354), (152, 655, 3), 6 * HOUR,
        "its bytes at 100 MB/s"),
    Row("delivery", lambda case: max(case.rl.loop.publish_deadline_s, deadlines.moved_s(case.size)),
        (457, 1966, 60), (152, 655, 3), HOUR, "its bytes at 100 MB/s; it holds up a step"),
    Row("update", lambda case: case.rl.learner.update_timeout_s, (3600, 3600, 1800), (1490, 1648, 50), 2 * HOUR,
        "twice what is expected (deadlines.SOON)"),
    Row("collective", lambda case: collective_timeout_s(case.rl.learner.update_timeout_s), (3540, 3540, 1740),
        (745, 824, 25), (3599, 3599, 1799), "an update; it ends before the call around it"),
    Row("held rank", lambda case: leaving.HELD * case.rl.learner.ping_timeout_s, 300, 240, 600,
        "the slowest answer to a ping, and the driver's word"),
    Row("first update", lambda case: patience.first_limit_s(case.rl.learner.update_timeout_s), (1200, 1200, 600),
        (745, 824, 25), (1800, 1800, 900), "an honest one is no stall; said long before it fails"),
    Row("first wait", wait_s, (1200, 1200, 600), (666, 847, 25), (1800, 1800, 900), "the same"),
    Row("stop", lambda case: stop_deadline_s(case.config, case.device), (300, 1280, 90), (187, 640, 42), HOUR,
        "the row in progress, and copying and writing 122, 459 and 2.2 GB"),
    Row("between checkpoints", between_checkpoints_s, (2545, 2647, 500), 300, HOUR, "what a lost machine costs"),
    Row("report", lambda case: at_end.END_S, 60, (22, 22, 1), 120, "twice the 11 s of 205,000 episodes of 8k tokens"),
    Row("answer of a teacher", lambda case: case.rl.generate.teacher.deadline_s, 600, (448, 551, 15), HOUR,
        "one as slow as the policy"),
    # -- bytes -------------------------------------------------------------------------------------------------------
    Row("page, MB", page_mb, 20, (1, 1, 0.1), 25, "a group of 8; what a browser opens at once"),
    Row("episodes of a step, MB", step_mb, (52.4, 52.4, 0.11), (1, 1, 0.01), 60, "a group; 12 GB in 200 steps"),
    Row("longest line, MB", lambda case: lines.LONGEST / 1e6, 67, (0.25, 0.25, 0.02), 256, "a window of tokens"),
    Row("chunk of logits, GB", lambda case: case.rl.learner.logit_chunk * case.vocab * 20 / 1e9, (3.1, 3.1, 1.0),
        0.1, (8, 8, 2), "products that fill the device; a tenth of a card, and of 24 GB"),
    Row("left to scores, GB", beside_scores_gb, 6.4, (4.6, 4.6, 2.5), 16,
        "2,048 tokens x vocabulary x 10 bytes, and 1.5; the rest of a teacher's card is its cache"),
    Row("cached replies, MB", lambda case: renderer.CACHED_BYTES * case.rl.rollout.workers / 1e6, (101, 101, 34),
        1, 1000, "what a world says itself; all workers on one node"),
    Row("Ray's store, MB", lambda case: require_resolved(case.config.recipe.cluster.object_store_mb), (8192, 8192, 256),
        (772, 772, 3), (32768, 32768, 1024), "two steps at 46 bytes a token"),
    # -- tokens and counts -------------------------------------------------------------------------------------------
    Row("evaluated at once", lambda case: derived.evaluated_at_once(case.rl, [case.rl]), (384, 384, 40),
        (384, 384, 32), (768, 768, 64), "every seat; more only wait"),
    Row("generated at once", lambda case: derived.generated_at_once(case.rl), (384, 384, 40), (384, 384, 32),
        (768, 768, 64), "the same"),
    Row("long probe", lambda case: first_delivery.long_probe_length(case.rl.engine.max_model_len, case.vocab),
        (4096, 4096, 767), (2048, 2048, 512), (4096, 4096, 767), "where people train; the window, and a row"),
    Row("row of the learner", lambda case: require_resolved(case.rl.learner.tokens_per_row), (16384, 16384, 2048),
        (16384, 16384, 768), 65536, "the window: no sample has a row of its own"),
    Row("depths of mismatch", lambda case: mismatch.DEPTHS[-1], 65536, (16384, 16384, 768), 2**20, "the window"),
    Row("stacks", lambda case: collect.MOST_STACKS, 64, (13, 40, 4), 256, "ranks, workers, engines' processes, driver"),
    # -- levels, nats and shares -------------------------------------------------------------------------------------
    Row("gap of a delivery", lambda case: check.allowed_gap(ROUNDING), 0.098, 1.3 * ROUNDING, 0.284,
        "a good engine in bfloat16; a RoPE base ten times as large on one side"),
    Row("gap in training", lambda case: thresholds.MISMATCH["bfloat16"], 0.1, ROUNDING, 0.284, "the same"),
    Row("cut off", lambda case: thresholds.CUT, 0.2, 0.05, 0.5,
        "a tail; half of a thinking model's under 4,096 tokens"),
    Row("drifted", lambda case: max(thresholds.DRIFTED * ENTROPY, thresholds.DRIFTED_LEAST), 0.6, 0.31, 1.0,
        "SmolLM2's run that learned; a language forgotten"),
    Row("collapsed", lambda case: thresholds.COLLAPSED * ENTROPY, 0.03, 0.02, 0.1,
        "0.03 nats end learning, 0.1 do not"),
    Row("steps until cut off", lambda case: case.steps_until("cut", 0.5), (1, 1, 7), 1, (1, 1, 12),
        "one step of 1,024; SmolLM2's whole stage"),
    Row("steps until a hint", lambda case: case.steps_until("time_limit"), (1, 1, 3), 1, (1, 1, 3),
        "one step of 1,024"),
)
# fmt: on


@dataclass(frozen=True)
class Toy:
    """A number that was sized on a toy (shared/reviews/toys.md), and the row that refuses it."""

    row: str
    keys: tuple[str, ...] = ()
    put: Any = None  # module or mapping, name, value


TOYS = (
    Toy("episode", ("rollout.episode_timeout_s=300",)),
    Toy("hung group", put=(deadlines, "HUNG", 45.0)),
    Toy("evaluation", ("eval.deadline_s=900",)),
    Toy("evaluated at once", ("eval.concurrency=256",)),
    Toy("generated at once", ("generate.concurrency=256",)),
    Toy("start of an engine", ("rollout.start_timeout_s=300",)),
    Toy("start of a rank", ("learner.start_timeout_s=300",)),
    Toy("start of a judge", put=(judge, "START_S", 600.0)),
    Toy("delivery", put=(deadlines, "PATIENCE", 0.0)),
    Toy("first update", put=(patience, "OF_DEADLINE", 60)),
    Toy("first wait", put=(patience, "OF_DEADLINE", 60)),
    Toy("stop", ("checkpoint.stop_deadline_s=30",)),
    Toy("between checkpoints", ("checkpoint.every_s=null",)),
    Toy("page, MB", put=(page, "ROOM", kept.Room(10_000))),
    Toy("episodes of a step, MB", ("trajectories.keep_mb=1000",)),
    Toy("chunk of logits, GB", ("learner.logit_chunk=16384",)),
    Toy("cached replies, MB", put=(renderer, "CACHED_BYTES", 1_600_000_000)),
    Toy("long probe", put=(first_delivery, "LONG_TOKENS", 64)),
    Toy("gap of a delivery", put=(check, "LEAST_LIMIT", 0.5)),
    Toy("gap in training", put=(thresholds.MISMATCH, "bfloat16", 0.5)),
    Toy("cut off", put=(thresholds, "CUT", 0.9)),
    Toy("drifted", put=(thresholds, "DRIFTED_LEAST", 3.0)),
    Toy("collapsed", put=(thresholds, "COLLAPSED", 0.02)),
    Toy("steps until cut off", put=(SIGNS, "cut", replace(SIGNS["cut"], proof=Proof(episodes=None)))),
)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Problems in the place of the GPU recipes' own; no model is here, and nothing asks a hub for one."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    problems = [json.dumps({"question": f"What is {number} + 1?", "answer": "1"}) for number in range(800)]
    (tmp_path / "train.jsonl").write_text("\n".join(problems[:400]))
    (tmp_path / "held_out.jsonl").write_text("\n".join(problems[400:]))
    return [f"env.data={tmp_path / 'train.jsonl'}", f"env.eval_data={tmp_path / 'held_out.jsonl'}"]


def cases(data: list[str], *keys: str) -> Iterator[Case]:
    devices, steps, answers = (DEVICES["cuda"], DEVICES["cuda"], DEVICES["cpu"]), (745, 847, 25), (8192, 8192, 144)
    for name, device, step_s, answer in zip(RECIPES, devices, steps, answers, strict=True):
        config = compose(name, [*(data if device.gpus_per_actor else ()), *keys])
        yield Case(resolve_run(config, device), device, step_s, answer)


def test_each_number_fits_all_three_runs(data: list[str]) -> None:
    for at, case in enumerate(cases(data)):
        actual = {row.what: row.gives(case) for row in TABLE}
        assert actual == pytest.approx({row.what: pick(row.value, at) for row in TABLE}, rel=0.02), (
            case.config.recipe.name
        )
        assert [row.what for row in TABLE if not row.fits(at, case)] == [], case.config.recipe.name


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.row)
def test_a_toys_number_is_refused(toy: Toy, data: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if toy.put is not None:
        where, name, value = toy.put
        patch = monkeypatch.setitem if isinstance(where, dict) else monkeypatch.setattr
        patch(where, name, value)
    (row,) = (row for row in TABLE if row.what == toy.row)
    fits = [row.fits(at, case) for at, case in enumerate(cases(data, *toy.keys))]
    assert not all(fits) and not fits[0]  # the 7B at least
