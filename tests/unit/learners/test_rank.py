"""What a rank keeps from call to call, with engines that are only named: DeepSpeed has tests in tests/ray."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from learners import rank
from learners.meeting import RankSpec
from learners.rank import LearnerRank
from learners.snapshot import Snapshot
from learners.stage import Stage
from rlsys.config.learner import LearnerConfig
from rlsys.system.device import DEVICES

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR", "LOCAL_RANK", "LOCAL_SIZE")
SPEC = RankSpec(
    rank=2, world_size=5, master_addr="10.0.0.1", master_port=4321, device=DEVICES["cpu"], dtype="float32",
    gradient_checkpointing=False, seed=11, collective_timeout_s=90.0,
)  # fmt: skip


@pytest.fixture
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In DeepSpeed's place. `joined`: what each process group was made with."""
    joined: list[dict[str, Any]] = []
    module, ops = ModuleType("deepspeed"), ModuleType("deepspeed.ops")
    vars(ops)["__compatible_ops__"] = {}
    vars(module).update(ops=ops, init_distributed=lambda **options: joined.append(options), joined=joined)
    monkeypatch.setitem(sys.modules, "deepspeed", module)
    monkeypatch.setitem(sys.modules, "deepspeed.ops", ops)
    for name in VARIABLES:
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    return module


@pytest.fixture
def learner(deepspeed: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A rank in the middle of a stage. `loaded`: what was loaded into which engine."""
    models = SimpleNamespace(policy_engine="policy", critic_engine="critic", destroy=lambda: None)
    monkeypatch.setattr(rank, "load_models", lambda *_: models)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    state = torch.get_rng_state()
    member: Any = LearnerRank(SPEC)
    member.begin("m", LearnerConfig(), SimpleNamespace(needs=frozenset()), 9, 1.0)
    member.loaded, read_as_data = [], list[Path]()

    @contextmanager
    def as_data(folder: Path) -> Iterator[None]:
        read_as_data.append(folder)
        yield
        read_as_data.pop()

    def load(engine: str, folder: Path, tag: str, **how: Any) -> dict[str, Any]:
        assert read_as_data == [folder]
        member.loaded.append((engine, tag))
        return {"step": 7, "rng": torch.Generator().manual_seed(5).get_state()}

    monkeypatch.setattr(rank, "as_data", as_data)
    monkeypatch.setattr(rank.zero, "load", load)
    monkeypatch.setattr(rank.layouts, "other_division", lambda folder, layout: None)
    monkeypatch.setattr(rank.layouts, "layout_of", lambda *_: {})
    member.step = 2
    yield member
    torch.set_rng_state(state)


@pytest.mark.parametrize("alone", [False, True])
def test_optimizers_of_the_stage_before_leave_schedule_and_draws_to_this_stage(
    learner: Any, alone: bool, tmp_path: Path
) -> None:
    before = torch.get_rng_state()
    learner.load(tmp_path, optimizers_alone=alone)
    assert [engine for engine, _ in learner.loaded] == ["policy", "critic"] and len(set(learner.loaded)) == 2
    assert learner.step == (2 if alone else 7)
    assert torch.equal(torch.get_rng_state(), before) == alone


def test_a_step_that_was_skipped_leaves_the_schedule_where_it_was(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    reports = iter([SimpleNamespace(applied=3), SimpleNamespace(applied=0), SimpleNamespace(applied=1)])

    def update(stage: Any, batch: str, step: int, gate: Any) -> Any:
        seen.append(step)
        return next(reports)

    monkeypatch.setattr(rank, "run_update", update)
    assert [learner.update("batch").applied for _ in range(3)] == [3, 0, 1]
    assert (seen, learner.step) == ([2, 5, 5], 6)


@pytest.mark.parametrize("set_before", [None, "3"])
def test_a_rank_tells_deepspeed_who_it_is_and_how_long_it_waits(
    set_before: str | None, deepspeed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if set_before is not None:
        monkeypatch.setenv("LOCAL_RANK", set_before)
    LearnerRank(SPEC)
    values = ("2", "5", "10.0.0.1", "4321", "cpu", set_before or "0", "1")
    assert tuple(os.environ[name] for name in VARIABLES) == values
    assert [(options["dist_backend"], options["timeout"]) for options in deepspeed.joined] == [
        ("gloo", timedelta(seconds=90))
    ]
    assert deepspeed.ops.__compatible_ops__ == {"deepspeed_shm_comm": False}


def test_a_stage_begins_with_draws_and_threads_of_its_own_after_the_one_before_is_closed(
    learner: Any, deepspeed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    def close() -> None:
        done.append("closed")

    learner.stage.models.destroy = close
    monkeypatch.setattr(torch, "set_num_threads", done.append)
    monkeypatch.setattr(rank.gc, "collect", lambda: done.append("freed"))
    monkeypatch.setattr(rank, "load_models", lambda *args: SimpleNamespace(given=args, destroy=close))
    algorithm: Any = SimpleNamespace(needs=frozenset({"reference"}))
    for threads, reference in ((2, "first"), (None, None)):
        learner.begin("m", LearnerConfig(threads=threads), algorithm, 9, 0.5, reference)
        path, loading, needs, reference_path, *rest = learner.stage.models.given
        assert (path, needs, reference_path, rest) == ("m", algorithm.needs, reference or "m", [None, None])
        assert loading.torch_device == learner.torch_device and torch.initial_seed() == 11
        stage = learner.stage
        assert (learner.step, stage.total_steps, stage.temperature, stage.world_size) == (0, 9, 0.5, 5)
    assert done == ["closed", "freed", 2, "closed", "freed", 3]
    left: list[None] = []
    deepspeed.comm = SimpleNamespace(destroy_process_group=lambda: left.append(None))
    learner.close()
    assert done[6:] == ["closed", "freed"] and left == [None]
    with pytest.raises(RuntimeError):
        _ = learner.stage


class Scored:
    """A model that knows the weights as one number: the log-probability of a token is it times the token."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def __call__(self, ids: torch.Tensor, positions: Any, bounds: Any, temperature: float, chunk: int) -> Any:
        assert temperature == 1.0 and chunk == 5
        self.rows.append(ids.tolist())
        return -0.5 * ids, None


@pytest.mark.parametrize("others", [1, 4])
def test_log_probabilities_are_of_every_token_but_the_first_in_rows_of_bounded_length(
    learner: Any, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows here; where another rank has four, this one makes two passes more, whose result nobody reads."""
    monkeypatch.setattr(Stage, "max_over_ranks", lambda _, counts: [max(count, float(others)) for count in counts])
    learner.begin("m", LearnerConfig(tokens_per_row=5, logit_chunk=5), SimpleNamespace(needs=frozenset()), 9, 1.0)
    learner.stage.models.policy_engine = scored = Scored()
    result = learner.logprobs([[1, 2, 3], [], [4, 5], [6], [7, 8]])
    assert result == [[-1.0, -1.5], [], [-2.5], [], [-4.0]]
    assert scored.rows == [[0, 0]] * (others - 2) + [[1, 2, 3, 4, 5], [6, 7, 8]]
    scored.rows.clear()
    assert learner.logprobs([]) == [] and len(scored.rows) == others  # a rank without a share


def test_before_a_stage_there_is_nothing_to_train(deepspeed: Any) -> None:
    with pytest.raises(RuntimeError):
        LearnerRank(SPEC).update("batch")  # type: ignore[arg-type]


class Saving:
    def __init__(self, name: str, saved: list[Any]) -> None:
        self.name, self.saved = name, saved

    def save_checkpoint(self, folder: str, **given: Any) -> None:
        assert Path(folder).is_dir() and not given.pop("save_latest")
        self.saved.append((self.name, folder, given))


def test_a_checkpoint_has_every_engine_and_the_first_rank_says_of_what_layout_it_is(
    learner: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(rank, "saving_into", lambda into, engine: nullcontext(engine))
    policy, critic = Saving("policy", saved), Saving("critic", saved)
    for number, other in ((0, critic), (1, None)):
        learner.spec = replace(SPEC, rank=number)
        learner.stage.models.policy_engine, learner.stage.models.critic_engine = policy, other
        snapshot = Snapshot()
        learner.save(tmp_path / str(number) / "learner", snapshot)
        assert not (tmp_path / str(number) / "learner" / "layout.json").exists()  # it is written beside training
        snapshot.write()
    assert [(name, Path(folder).parent.name) for name, folder, _ in saved] == [
        ("policy", "0"),
        ("critic", "0"),
        ("policy", "1"),
    ]
    (first, second, _) = (options for *_, options in saved)
    assert first["client_state"]["step"] == 2 and torch.equal(first["client_state"]["rng"], torch.get_rng_state())
    assert first["tag"] != second["tag"] and "client_state" not in second
    assert [(tmp_path / name / "learner" / "layout.json").exists() for name in "01"] == [True, False]
