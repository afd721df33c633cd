"""The numbers of an update by hand, whatever ranks and rows there are. The update is the real one; its models look
log-probabilities and values up by token, and its ranks are threads that meet where real ones would."""

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from learners import update
from learners.algorithms.base import PROXIMAL
from learners.algorithms.ppo import PPO, PPOConfig
from learners.flops import row_flops
from learners.group import merge_reports
from learners.leaving import RowGate
from learners.policy import PolicyModel
from learners.stage import Models, Stage
from rlsys.batch import UpdateReport
from rlsys.config.learner import LearnerConfig
from rlsys.metrics import Max, Mean, Metric, Sum, values
from rlsys.types import Sample
from tests.makers import made
from tests.makers.made import make_shards

VERSION = 3
RATIOS = {2: 1.0, 3: 1.5, 4: 0.5, 6: 1.05, 7: 0.95}  # policy over behaviour, by token
VALUES = {2: 0.5, 3: 0.0, 4: 0.25, 6: 1.0, 7: 2.0}
LOGP = [-0.1 * token for token in range(8)]
CONFIG = PPOConfig(kl_coef=0.1, kl_in="loss", kl_kind="k3", normalize_advantages=False)
LAYOUTS = [(1, 1000), (1, 1), (2, 1), (2, 1000)]  # ranks, tokens_per_row: one row, three, two and one, one and none
LOG2 = math.log(2)


def sample(token_ids: tuple[int, ...], sampled: int, reward: float, version: int) -> Sample:
    mask = (0,) * (len(token_ids) - sampled) + (1,) * sampled
    logprobs = [LOGP[token] - math.log(RATIOS[token]) for token in token_ids[-sampled:]]
    return made.sample(mask, token_ids=token_ids, logprobs=logprobs, versions=version, reward=reward)


SAMPLES = [sample((1, 2, 3), 2, 1.0, VERSION), sample((1, 4), 1, 0.0, VERSION), sample((1, 5, 6, 7), 2, 2.0, 2)]
BROKEN = replace(SAMPLES[1], behavior_logprobs=(0.0, math.nan))


class Meeting:
    """A collective of threads."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self._barrier = threading.Barrier(num_ranks, timeout=60)
        self._given: list[list[float]] = [[]] * num_ranks

    def reduce(self, rank: int, numbers: Sequence[float], how: Callable[[tuple[float, ...]], float]) -> list[float]:
        self._given[rank] = list(numbers)
        self._barrier.wait()
        result = [how(column) for column in zip(*self._given, strict=True)]
        self._barrier.wait()
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStage(Stage):
    rank: int
    meeting: Meeting

    def all_reduce(self, numbers: list[float], how: Any) -> list[float]:
        summed = how == torch.distributed.ReduceOp.SUM
        return self.meeting.reduce(self.rank, numbers, math.fsum if summed else max)


class Engine:
    """A table of one number for each token, trained as DeepSpeed would: a step needs a finite gradient on all ranks."""

    def __init__(self, table: Sequence[float], rank: int, meeting: Meeting, is_critic: bool = False) -> None:
        self.table = torch.tensor(table, requires_grad=True)
        self.optimizer = SimpleNamespace(param_groups=[{}])
        self._rank, self._meeting, self._is_critic = rank, meeting, is_critic

    def __call__(self, token_ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor, *given: Any):
        needed = given[0] if self._is_critic else given[2]
        numbers = torch.where(needed, self.table[token_ids], 0.0)
        return numbers if self._is_critic else (numbers, torch.where(needed, token_ids / 10, 0.0))

    def backward(self, loss: torch.Tensor, scale_wrt_gas: bool) -> None:
        loss.backward()

    def step(self) -> None:
        whole = self._meeting.reduce(self._rank, self.table.grad.tolist(), sum)
        self._norm = math.hypot(*whole) / self._meeting.num_ranks
        self.table.grad = None

    def was_step_applied(self) -> bool:
        return math.isfinite(self._norm)

    def get_global_grad_norm(self) -> float:
        return self._norm


def policy() -> PolicyModel:
    config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    return PolicyModel(LlamaForCausalLM(config))


POLICY = policy()


def reports(ranks: int, tokens_per_row: int, samples: Sequence[Sample] = SAMPLES, **changes: Any) -> list[UpdateReport]:
    """Of each rank. changes: of the algorithm, its `needs` among them, the learner, the batch (`denominators`)."""
    minibatches, needs = changes.get("minibatches", 1), changes.pop("needs", frozenset())
    denominators = changes.pop("denominators", None)
    learner = LearnerConfig(behavior=changes.pop("behavior", "engine"))

    class Asking(PPO):
        def __init__(self, config: PPOConfig) -> None:
            super().__init__(config)
            self.needs |= needs

    meeting = Meeting(ranks)
    shards = make_shards(samples, tokens_per_row, VERSION, ranks, minibatches=minibatches)
    shards = [replace(shard, denominators=denominators or shard.denominators) for shard in shards]

    def run(rank: int) -> UpdateReport:
        critic = [VALUES.get(token, 0.0) for token in range(8)]
        # log(policy / reference) is log 2 for tokens 2 and 3, and 0 for the others
        before = Engine([x - LOG2 * (token in (2, 3)) for token, x in enumerate(LOGP)], rank, meeting)
        models = Models(
            policy=POLICY,
            policy_engine=Engine(LOGP, rank, meeting),
            critic_engine=Engine(critic, rank, meeting, is_critic=True),
            reference=SimpleNamespace(ready=lambda: nullcontext(before)),  # type: ignore[arg-type]
        )
        stage = ThreadStage(
            models=models, learner=learner, algorithm=Asking(replace(CONFIG, **changes)), temperature=1.0,
            total_steps=10, torch_device=torch.device("cpu"), dtype="float32", world_size=ranks,
            rank=rank, meeting=meeting,
        )  # fmt: skip
        gate = RowGate()
        report = update.run_update(stage, shards[rank], step=0, gate=gate)
        assert gate.rows[0] == gate.rows[1] > 0  # every pass over every row was counted, and was known before
        return report

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))


def kinds(metrics: dict[str, Metric]) -> dict[type, set[str]]:
    return {kind: {name for name, metric in metrics.items() if type(metric) is kind} for kind in (Mean, Max, Sum)}


@pytest.mark.parametrize(("ranks", "tokens_per_row"), LAYOUTS)
def test_the_metrics_by_hand(ranks: int, tokens_per_row: int) -> None:
    report = merge_reports(reports(ranks, tokens_per_row))
    metrics = values(report.metrics)
    # advantages are returns less values: 0.5, 1, -0.25, 1, 0; bounds 0.8 and 1.2 take hold of tokens 3 and 4
    assert (
        report.applied
        and metrics["learner/steps"] == 1
        and metrics["learner/skipped"] == metrics["critic/skipped"] == 0
    )
    expected = {
        "clip/high": 1 / 5,
        "clip/low": 1 / 5,
        "ratio/mean": 1.0,
        "ratio/outside_0.1": 2 / 5,
        "kl/behavior": sum(ratio - 1 - math.log(ratio) for ratio in RATIOS.values()) / 5,
        "kl/reference": 2 * (0.5 + LOG2 - 1) / 5,
        "entropy/mean": (2 + 3 + 4 + 6 + 7) / 10 / 5,
        "advantage/mean": 0.45,
        "advantage/std": math.sqrt(0.26),
        "value/mean": 3.75 / 5,
        "value/error": 2.3125 / 5,
        # returns 1, 1, 0, 2, 2 have variance 0.56, what the critic leaves of them 0.26
        "value/explained_variance": 1 - 0.26 / 0.56,
        "mismatch/mean": (0.0 + math.log(1.5) + LOG2) / 3,  # of tokens 2, 3 and 4: the others are older
        "mismatch/max": LOG2,
        "mismatch/outside_0.1": 2 / 3,
        "mismatch/depth_0_1k": (0.0 + math.log(1.5) + LOG2) / 3,
        "loss/policy": -(0.5 + 1.2 - 0.2 + 1.05) / 5,
        "loss/kl": 0.1 * 2 * (0.5 + LOG2 - 1) / 5,
        "loss/value": 0.5 * 2.3125 / 5,
        "learner/grad_norm": math.hypot((0.1 * 0.5 - 0.5) / 5, 0.1 * 0.5 / 5, 1.05 / 5),  # 3 is clipped, its KL is not
        "critic/grad_norm": math.hypot(0.5, 1.0, 0.25, 1.0) / 5,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert metrics["loss/total"] == pytest.approx(expected["loss/policy"] + expected["loss/kl"], rel=1e-5)
    num_rows = 1 if tokens_per_row == 1000 else 3
    padding = math.ceil(num_rows / ranks) * ranks - num_rows
    assert (metrics["learner/rows"], metrics["learner/padding_rows"]) == (num_rows + padding, padding)
    assert metrics["learner/tokens"] == 9 + 2 * padding
    assert metrics["learner/tokens_shared"] == (2 if num_rows == 1 else 0)  # samples of a row begin alike
    assert metrics["tokens/useful_share"] == pytest.approx(5 / (9 + 2 * padding))
    by_kind = kinds(report.metrics)
    assert all(name in by_kind[Sum] for name in expected if name.startswith("loss/"))
    shares = {name for name in expected if name.split("/")[0] in ("clip", "ratio", "kl", "entropy", "mismatch")}
    assert shares - {"mismatch/max"} <= by_kind[Mean]
    assert {name for name in metrics if name.startswith(("time/", "memory/"))} <= by_kind[Max]


@pytest.mark.parametrize(("ranks", "tokens_per_row"), LAYOUTS)
def test_speed_memory_and_phases_of_the_ranks_become_those_of_all(
    ranks: int, tokens_per_row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "matmul_peak", lambda device, dtype: 1e9)
    of_ranks = reports(ranks, tokens_per_row, minibatches=2, epochs=2)
    metrics = values(merge_reports(of_ranks).metrics)
    shards = make_shards(SAMPLES, tokens_per_row, VERSION, ranks, minibatches=2)
    rates = []
    for rank, report in enumerate(of_ranks):
        own = values(report.metrics)
        training_s = own["time/learner_forward_backward"] + own["time/learner_optimizer"]
        flops = 2 * sum(row_flops(POLICY, row) for row in shards[rank].rows)
        assert own["learner/flops_per_s"] == pytest.approx(flops / training_s)
        rates.append(flops / training_s)
        assert own["learner/tokens_per_s"] == pytest.approx(own["learner/tokens"] / report.seconds)
    assert metrics["learner/flops_per_s"] == pytest.approx(sum(rates))
    assert metrics["learner/mfu"] == pytest.approx(sum(rates) / ranks / 1e9)
    assert metrics["learner/tokens_per_s"] == pytest.approx(
        sum(values(report.metrics)["learner/tokens_per_s"] for report in of_ranks)
    )
    phases = ("align", "reference", "values", "credit", "forward_backward", "optimizer")
    for phase in (*phases, "critic_forward_backward", "critic_optimizer"):
        seconds = [values(report.metrics)[f"time/learner_{phase}"] for report in of_ranks]
        assert 0 < max(seconds) == metrics[f"time/learner_{phase}"]
    for report in of_ranks:
        spent = [metric.value for name, metric in report.metrics.items() if name.startswith("time/")]
        assert sum(spent) <= report.seconds
    # the kernel's own account of the peak, which nothing frees
    assert metrics["memory/learner_rss_peak_mb"] >= psutil.Process().memory_info().rss / 2**20 * 0.9


def test_a_cpu_has_a_rate_and_no_share_of_a_peak() -> None:
    metrics = values(merge_reports(reports(1, 1000)).metrics)
    assert metrics["learner/flops_per_s"] > 0 and "learner/mfu" not in metrics


def test_a_card_says_how_much_of_it_was_taken_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    (shard,) = make_shards(SAMPLES, 1000, VERSION, 1)
    cuda = torch.device("cuda")
    phases: Any = SimpleNamespace(seconds={"forward_backward": 1.5, "optimizer": 0.5, "credit": 9.0})
    stage: Any = SimpleNamespace(
        torch_device=cuda, algorithm=SimpleNamespace(epochs=3), models=SimpleNamespace(policy=POLICY), dtype="bfloat16",
        group=None,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 << 20)
    monkeypatch.setattr(
        update, "matmul_peak", lambda device, dtype: 100.0 if (device, dtype) == (cuda, "bfloat16") else 0
    )
    monkeypatch.setattr(update, "row_flops", lambda policy, row: 40.0)
    monkeypatch.setattr(update, "sheet_peak", lambda device: 200.0)
    metrics = values(update.work_metrics(stage, shard.rows, phases, 4.0))
    assert (metrics["memory/learner_gpu_peak_mb"], metrics["learner/flops_per_s"]) == (3.0, 3 * 40 / 2)
    assert (metrics["learner/mfu"], metrics["learner/tokens_per_s"]) == (0.6, 9 / 4)
    assert metrics["learner/mfu_datasheet"] == 0.3
    assert metrics["time/learner_credit"] == 9.0 and "learner/tokens_shared" not in metrics
    stage.group = SimpleNamespace(size=4)  # ranks that share the rows: each had a quarter of the work
    assert values(update.work_metrics(stage, shard.rows, phases, 4.0))["learner/mfu"] == 0.6 / 4
    phases.seconds = {"credit": 9.0}
    assert "learner/flops_per_s" not in values(update.work_metrics(stage, shard.rows, phases, 4.0))  # no step was made


@pytest.mark.parametrize(("ranks", "tokens_per_row"), LAYOUTS)
def test_a_skipped_step_says_so_and_shows_no_part_of_its_numbers(ranks: int, tokens_per_row: int) -> None:
    """The engine's log-probability of one token is no number: of two ranks, one had nothing but sound rows."""
    of_ranks = reports(ranks, tokens_per_row, [SAMPLES[0], BROKEN, SAMPLES[2]])
    report = merge_reports(of_ranks)
    metrics = values(report.metrics)
    assert not report.applied
    assert (metrics["learner/steps"], metrics["learner/skipped"], metrics["critic/skipped"]) == (1, 1, 0)
    for name in metrics:
        assert not name.startswith(("clip/", "ratio/", "kl/", "mismatch/", "entropy/")), name
        assert name not in ("loss/policy", "loss/total", "loss/kl", "learner/grad_norm"), name
    assert metrics["value/explained_variance"] == pytest.approx(1 - 0.26 / 0.56)  # the critic's rows were sound
    assert metrics["loss/value"] == pytest.approx(0.5 * 2.3125 / 5)
    assert metrics["learner/not_finite"] == 0
    assert all(math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(("ranks", "tokens_per_row"), LAYOUTS)
def test_a_pass_with_a_number_missing_on_one_rank_is_not_shown_as_the_others_mean(
    ranks: int, tokens_per_row: int
) -> None:
    options = {"behavior": "learner", "is_correction": "tis", "needs": frozenset({PROXIMAL})}
    sound = values(merge_reports(reports(ranks, tokens_per_row, **options)).metrics)
    assert sound["mismatch/max"] == pytest.approx(LOG2) and sound["learner/not_finite"] == 0
    broken = values(merge_reports(reports(ranks, tokens_per_row, [SAMPLES[0], BROKEN, SAMPLES[2]], **options)).metrics)
    assert "mismatch/mean" not in broken and "mismatch/max" not in broken
    assert broken["learner/not_finite"] == 5  # mean, max, and the one of its depth, its turn and its sample's versions


@pytest.mark.parametrize(("ranks", "tokens_per_row"), LAYOUTS)
def test_the_steps_that_were_taken_are_shown_without_the_one_that_was_not(ranks: int, tokens_per_row: int) -> None:
    report = merge_reports(reports(ranks, tokens_per_row, [SAMPLES[0], BROKEN], minibatches=2, epochs=2))
    metrics = values(report.metrics)
    assert report.applied and (metrics["learner/steps"], metrics["learner/skipped"]) == (4, 2)
    assert metrics["ratio/mean"] == pytest.approx((1.0 + 1.5) / 2) and metrics["clip/high"] == 0.5
    assert metrics["loss/policy"] == pytest.approx(-(0.5 + 1.2) / 2)


def test_a_minibatch_without_weight_takes_no_step_and_the_next_one_does() -> None:
    report = merge_reports(reports(1, 1000, minibatches=2, denominators=(0.0, 2.0)))
    assert report.applied and values(report.metrics)["learner/steps"] == 1
