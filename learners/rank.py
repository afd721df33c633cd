"""One rank of the learner: a plain class that runs in a Ray actor, under torchrun or in a bare process.

Every rank gets every call, in the same order, with the same number of rows: DeepSpeed's collectives hang otherwise.
DeepSpeed and transformers are imported where they are needed, so that a driver may know `RankSpec` without them.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from rlsys.config import LearnerConfig
from rlsys.device import Device
from rlsys.errors import BadInput
from rlsys.losses import mismatch_metrics
from rlsys.metrics import Max, Mean, Metric, Metrics, Sum, merge
from rlsys.types import Batch, Row, UpdateReport
from rlsys.weights import Manifest

if TYPE_CHECKING:
    from learners.algorithms.base import Algorithm
    from learners.policy import PolicyModel

# The caller's deadline ends a call that hangs and names it; the process group must not do so first, with less to say.
_COLLECTIVE_TIMEOUT = timedelta(days=1)
_CHECKPOINT_TAG = "state"
_LAYOUT_FILE = "layout.json"
# Noise of the start-up canary, relative to each tensor: moves log-probabilities by whole nats, and leaves them finite.
PERTURBATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """Who this rank is and where its group meets."""

    rank: int
    world_size: int
    master_addr: str
    master_port: int
    device: Device
    dtype: str
    gradient_checkpointing: bool
    seed: int


def lr_at(
    step: int,
    *,
    lr: float,
    schedule: Literal["constant", "cosine"],
    warmup_steps: int,
    total_steps: int,
    final_lr_ratio: float,
) -> float:
    """The learning rate of update `step` (from 0): linear warm-up to `lr`, then constant or a cosine to the last step.

    lr_at(0, lr=1.0, warmup_steps=4, ...) is 0.25. The cosine is at lr * final_lr_ratio in step total_steps - 1.
    """
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    if schedule == "constant":
        return lr
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - 1 - warmup_steps))
    return lr * (final_lr_ratio + (1 - final_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2)


class LearnerRank:
    def __init__(self, spec: RankSpec) -> None:
        self.spec = spec
        self._engine: Any = None
        os.environ.update(
            RANK=str(spec.rank),
            WORLD_SIZE=str(spec.world_size),
            MASTER_ADDR=spec.master_addr,
            MASTER_PORT=str(spec.master_port),
            DS_ACCELERATOR=spec.device.torch_device,
        )
        # Without LOCAL_RANK DeepSpeed asks MPI. torchrun sets it; under Ray each actor sees its own GPU as number 0.
        os.environ.setdefault("LOCAL_RANK", "0")
        os.environ.setdefault("LOCAL_SIZE", "1")
        import deepspeed
        import deepspeed.ops

        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        # On a CPU this op would be compiled at start-up; a killed build leaves a lock that hangs every later start.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self.torch_device = torch.device(spec.device.torch_device)
        if self.torch_device.type == "cuda":
            self.torch_device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.torch_device)
        deepspeed.init_distributed(dist_backend=spec.device.dist_backend, timeout=_COLLECTIVE_TIMEOUT, verbose=False)

    # -- a stage ------------------------------------------------------------------------------------------------------

    def begin(
        self, model_path: str, learner: LearnerConfig, algorithm: Algorithm, total_steps: int, temperature: float
    ) -> None:
        """A stage begins: weights from a Hugging Face folder or hub name, a fresh optimizer and schedule."""
        import deepspeed

        from learners.policy import load_policy

        self._destroy_engine()
        torch.set_num_threads(learner.threads)
        torch.manual_seed(self.spec.seed)
        policy = load_policy(
            model_path,
            dtype=self.spec.dtype,
            attention_key=self.spec.device.attention,
            gradient_checkpointing=self.spec.gradient_checkpointing,
            device=self.torch_device,
        )
        if learner.zero_stage == 3 and policy.linear_head:
            # The head's weight is used outside of its own module, which is where stage 3 would gather it.
            for parameter in policy.model.get_output_embeddings().parameters():
                deepspeed.zero.register_external_parameter(policy, parameter)
        optimizer = torch.optim.AdamW(
            parameter_groups(policy, learner.weight_decay),
            lr=learner.lr,
            betas=learner.betas,
            fused=self.spec.device.fused_optimizer,
        )
        self._engine, _, _, _ = deepspeed.initialize(
            model=policy, optimizer=optimizer, config=self._deepspeed_config(learner, policy)
        )
        self._policy: PolicyModel = policy
        self._learner = learner
        self._algorithm = algorithm
        self._total_steps = total_steps
        self._temperature = temperature
        self.step = 0

    def update(self, batch: Batch) -> UpdateReport:
        """One optimizer step over the rows of this rank. The counts of `batch` are those of all ranks together."""
        started = time.perf_counter()
        self._require_equal_rows(len(batch.rows))
        engine, learner = self._engine, self._learner
        lr = lr_at(
            self.step,
            lr=learner.lr,
            schedule=learner.schedule,
            warmup_steps=learner.warmup_steps,
            total_steps=self._total_steps,
            final_lr_ratio=learner.final_lr_ratio,
        )
        for group in engine.optimizer.param_groups:
            group["lr"] = lr
        metrics: list[Metrics] = []
        for row in batch.rows:
            metrics.append(self._backward(row, float(batch.num_loss_tokens), batch.version))
        step_started = time.perf_counter()
        engine.step()
        applied = bool(engine.was_step_applied())
        self.step += 1
        ended = time.perf_counter()
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        metrics.append(
            {
                "learner/grad_norm": Max(float(engine.get_global_grad_norm())),
                "learner/lr": Max(lr),
                "learner/tokens": Sum(float(batch.num_tokens)),
                "learner/rows": Sum(float(len(batch.rows))),
                "learner/skipped": Max(float(not applied)),
                "learner/optimizer_s": Max(ended - step_started),
                "memory/learner_rss_peak_mb": Max(peak_mb),
            }
        )
        if self.torch_device.type == "cuda":
            metrics.append({"memory/learner_gpu_peak_mb": Max(torch.cuda.max_memory_allocated() / 2**20)})
        return UpdateReport(applied=applied, metrics=_finite(merge(metrics)), seconds=ended - started)

    def _backward(self, row: Row, denominator: float, version: int) -> Metrics:
        """Adds one row's gradient. The one place that undoes DeepSpeed's averages over ranks and over micro-batches."""
        row = _to(row, self.torch_device)
        logp_T, entropy_T = self._engine(
            row.token_ids,
            row.position_ids,
            row.cu_seqlens,
            self._temperature,
            self._learner.logit_chunk,
            row.loss_mask > 0,
        )
        out = self._algorithm.loss(logp_T, entropy_T, row, denominator=denominator)
        self._engine.backward(out.loss * self.spec.world_size, scale_wrt_gas=False)
        gap = mismatch_metrics(logp_T.detach(), row, version)
        return {**out.metrics, **gap, "loss/total": Sum(out.loss.item())}

    @torch.no_grad()
    def score(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of each list's tokens but the first, under the current weights at temperature 1."""
        from learners.policy import pack_ids

        values: list[list[float]] = []
        for samples in _packed([list(ids) for ids in token_ids if ids], self._learner.tokens_per_row):
            row = pack_ids(samples, self.torch_device)
            logp_T, _ = self._engine(*row, 1.0, self._learner.logit_chunk)
            values.extend(part.tolist()[1:] for part in logp_T.cpu().split([len(ids) for ids in samples]))
        scored = iter(values)
        return [next(scored) if ids else [] for ids in token_ids]

    def close(self) -> None:
        """Leave the process group; for processes that live on."""
        import deepspeed

        self._destroy_engine()
        deepspeed.comm.destroy_process_group()

    # -- weights out --------------------------------------------------------------------------------------------------

    def export(self, folder: Path, version: int) -> Manifest | None:
        """Publish the weights as `folder`/v000017; rank 0 writes and returns the manifest."""
        from learners.export import export_version

        return export_version(self._policy.model, folder, version, writer=self.spec.rank == 0)

    def score_perturbed(self, token_ids: Sequence[Sequence[int]], folder: Path, version: int) -> list[list[float]]:
        """Publish visibly perturbed weights as `version`, score under them, put the true ones back bit for bit."""
        from learners.export import perturbed

        with perturbed(self._policy.model, PERTURBATION):
            self.export(folder, version)
            return self.score(token_ids)

    def save_hf(self, folder: Path, tokenizer_from: str) -> None:
        """A Hugging Face folder, with the tokenizer of another one: not of the folder given to `begin`, which may be
        a checkpoint that is gone by now."""
        from learners.export import save_hf

        save_hf(self._policy, folder, tokenizer_from, writer=self.spec.rank == 0)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Weights, optimizer, schedule and random state, to continue from. Whole only when every rank has returned."""
        layout = {"world_size": self.spec.world_size, "zero_stage": self._learner.zero_stage}
        state = {"step": self.step, "rng": torch.get_rng_state(), **layout}
        folder.mkdir(parents=True, exist_ok=True)
        self._engine.save_checkpoint(str(folder), tag=_CHECKPOINT_TAG, client_state=state, save_latest=False)
        if self.spec.rank == 0:
            (folder / _LAYOUT_FILE).write_text(json.dumps(layout))

    def load(self, folder: Path) -> None:
        """After `begin` with the same stage. Raises BadInput when the folder does not fit this learner."""
        if not (folder / _LAYOUT_FILE).is_file():
            raise BadInput(f"{folder}: not a learner checkpoint ({_LAYOUT_FILE} is missing)")
        saved = json.loads((folder / _LAYOUT_FILE).read_text())
        for key, ours in (("world_size", self.spec.world_size), ("zero_stage", self._learner.zero_stage)):
            if saved[key] != ours:
                config_key = {"world_size": "learner.ranks"}.get(key, f"learner.{key}")
                raise BadInput(f"{folder}: saved with {config_key}={saved[key]}, expected {ours}")
        _, state = self._engine.load_checkpoint(str(folder), tag=_CHECKPOINT_TAG)
        self.step = state["step"]
        torch.set_rng_state(state["rng"].cpu())

    # -- inside -------------------------------------------------------------------------------------------------------

    def _deepspeed_config(self, learner: LearnerConfig, policy: PolicyModel) -> dict[str, Any]:
        num_parameters = sum(parameter.numel() for parameter in policy.parameters())
        return {
            "train_micro_batch_size_per_gpu": 1,  # DeepSpeed wants a number; our rows are packed
            "gradient_accumulation_steps": 1,
            "managed_gradient_accumulation": False,  # step() ends the accumulation, whatever the number of rows
            "gradient_clipping": learner.clip_grad,
            "bf16": {"enabled": self.spec.dtype == "bfloat16"},
            "steps_per_print": None,
            "zero_optimization": {
                "stage": learner.zero_stage,
                # stage 1 refuses overlap together with unmanaged accumulation
                "overlap_comm": self.spec.device.overlap_comm and learner.zero_stage >= 2,
                "contiguous_gradients": True,
                # the default reserves a gigabyte for the smallest model
                "reduce_bucket_size": min(num_parameters, 200_000_000),
                "allgather_bucket_size": min(num_parameters, 200_000_000),
            },
        }

    def _require_equal_rows(self, num_rows: int) -> None:
        """An error with a reason instead of a collective that never ends."""
        if self.spec.world_size == 1:
            return
        counts = torch.tensor([num_rows, -num_rows], device=self.torch_device)
        torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.MAX)
        most, least = counts[0].item(), -counts[1].item()
        if most != least:
            raise ValueError(f"ranks got between {least} and {most} rows: expected the same number on each")

    def _destroy_engine(self) -> None:
        if self._engine is None:
            return
        self._engine.destroy()
        self._engine = None
        del self._policy
        gc.collect()  # DeepSpeed's hooks make cycles, and the next stage needs the memory
        if self.torch_device.type == "cuda":
            torch.cuda.empty_cache()


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay on matrices only: norms and biases keep their scale."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def _packed(samples: list[list[int]], tokens_per_row: int) -> list[list[list[int]]]:
    """Samples in order, as many to a row as fit."""
    rows: list[list[list[int]]] = []
    size = 0
    for ids in samples:
        if not rows or size + len(ids) > tokens_per_row:
            rows.append([])
            size = 0
        rows[-1].append(ids)
        size += len(ids)
    return rows


def _to(row: Row, device: torch.device) -> Row:
    if device.type == "cpu":
        return row
    return replace(row, **{name: getattr(row, name).to(device) for name in Row.__dataclass_fields__})


def _finite(metrics: dict[str, Metric]) -> dict[str, Metric]:
    """Without what is not a number: a skipped step says so by `applied`, and strict JSON readers refuse nan."""
    return {
        name: metric
        for name, metric in metrics.items()
        if math.isfinite(metric.total if isinstance(metric, Mean) else metric.value)
    }
