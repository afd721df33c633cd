"""One rank of the learner: a plain class that runs in a Ray actor, under torchrun or in a bare process.

Every rank gets every call, in the same order, with the same number of rows: DeepSpeed's collectives hang otherwise.
DeepSpeed is imported where it is needed: it looks for its accelerator as soon as it is.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch

from learners import layout as layouts
from learners import zero
from learners.algorithms.base import Algorithm
from learners.export import export_version, perturb_weights
from learners.hub_folder import copy_hf
from learners.leaving import RowGate
from learners.meeting import RankSpec, measure_gbps
from learners.rounding import round_again
from learners.rows import pack_ids
from learners.sequence_parallel import SequenceGroup, make_sequence_group
from learners.served_reference import ServedReference
from learners.snapshot import Snapshot, as_data, saving_into
from learners.stage import Loading, Stage, load_models
from learners.update import dummy_pass, run_update
from rlsys.adapters import Adapter, AdapterStart
from rlsys.batch import Batch, UpdateReport
from rlsys.config.learner import LearnerConfig
from rlsys.plan import consecutive
from rlsys.probe import Probe, ProbeValues
from rlsys.system.device import Device, require_device, require_resolved, resolve_learner
from rlsys.system.served import ReferenceAddress
from rlsys.system.weight_folder import WeightFolder, WeightManifest

FREED_S = 30.0  # in which the memory of a process that was killed is free
_CHECKPOINT_TAG = "state"
_CRITIC_TAG = "critic"


def leave_op_unbuilt(device: Device) -> None:
    """On a CPU this op would be compiled at start-up; a killed build leaves a lock that hangs every later start.

    On GPUs nothing asks for it, and this list is made by looking at every op for a compiler of CUDA's.
    """
    if device.torch_device != "cpu":
        return
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class LearnerRank:
    def __init__(self, spec: RankSpec) -> None:
        self.spec = spec
        self._stage: Stage | None = None
        self._adapter: Adapter | None = None  # that the stage trains
        self._group: SequenceGroup | None = None  # the ranks that share each row
        self._threads = torch.get_num_threads()  # as the environment says
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

        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        leave_op_unbuilt(spec.device)
        self.torch_device = torch.device(spec.device.torch_device)
        if self.torch_device.type == "cuda":
            self.torch_device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.torch_device)
        timeout = timedelta(seconds=spec.collective_timeout_s)
        deepspeed.init_distributed(dist_backend=spec.device.dist_backend, timeout=timeout, verbose=False)

    def measure_gbps(self) -> float:
        """As `learners.meeting` measures it."""
        return measure_gbps(self.torch_device)

    def begin(
        self,
        model_path: str,
        learner: LearnerConfig,
        algorithm: Algorithm,
        total_steps: int,
        temperature: float,
        reference_path: str | None = None,
        start: AdapterStart | None = None,
        served: ReferenceAddress | None = None,
    ) -> None:
        """A stage begins: weights from a Hugging Face folder or hub name, fresh optimizers and schedule.

        reference_path: of the frozen reference; None: the weights that this begins with, which in the middle of a stage
        are not those that it began with. start: of an adapter on them, which is trained in their place. served: where
        the reference is, if it has an engine of its own. Raises BadInput for what does not fit this device or cannot be
        loaded.
        """
        learner = resolve_learner(learner, self.spec.device)
        require_device(learner, self.spec.device)
        self._destroy_models()
        torch.set_num_threads(learner.threads or self._threads)
        torch.manual_seed(self.spec.seed)
        if self._group is None:  # one for all stages: on a GPU it has buffers of its own
            timeout = timedelta(seconds=self.spec.collective_timeout_s)
            self._group = make_sequence_group(learner.sequence_parallel, timeout)
        loading = Loading(learner=learner, spec=self.spec, torch_device=self.torch_device, group=self._group)
        loaded = load_models(model_path, loading, algorithm.needs, reference_path or model_path, start, served)
        self._stage = Stage(
            models=loaded,
            learner=learner,
            algorithm=algorithm,
            temperature=temperature,
            total_steps=total_steps,
            torch_device=self.torch_device,
            dtype=self.spec.dtype,
            world_size=self.spec.world_size,
            group=self._group,
        )
        self._adapter = start.adapter if start is not None else None
        self.step = 0

    def connect(self, served: ReferenceAddress) -> None:
        """The reference's engine was started again, and may be elsewhere."""
        reference = self._stage.models.reference if self._stage is not None else None
        if isinstance(reference, ServedReference):
            reference.connect(served)

    def leave_card(self) -> None:
        """The GPU is others' until `return_to_card`: models, optimizers and gradients go to host memory."""
        if self._stage is not None:
            self._stage.models.leave_card()
        if self.torch_device.type == "cuda":  # what links were measured with, too
            torch.cuda.empty_cache()

    def return_to_card(self) -> None:
        """Where an engine was killed, the driver needs a moment to free what it had."""
        until = time.monotonic() + FREED_S
        while self._stage is not None:
            try:
                return self._stage.models.return_to_card()
            except torch.OutOfMemoryError:
                if time.monotonic() > until:
                    raise
            time.sleep(1.0)

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            raise RuntimeError("no stage has begun on this learner rank")
        return self._stage

    def update(self, batch: Batch, gate: RowGate | None = None) -> UpdateReport:
        """One update over the rows of this rank: an optimizer step for each epoch and minibatch of the algorithm.

        gate: by which another thread may have it left, on all ranks alike: UpdateLeft. Raises ValueError for a batch
        without rows. Steps whose gradient is not finite are skipped and counted; an update without any other leaves the
        schedule where it was.
        """
        report = run_update(self.stage, batch, self.step, gate or RowGate())
        self.step += report.applied  # the same on all ranks: the norm that decides is of the whole gradient
        return report

    @torch.no_grad()
    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of each list's tokens but the first, under the current weights at temperature 1.

        The lists of this rank, which shares them with no other. Where another has more rows, passes whose result nobody
        reads make up for it, so that all ranks do the same collectives (docs/laws.md, law 7).
        """
        learner, engine = self.stage.learner, self.stage.models.policy_engine
        values: list[list[float]] = []
        size = require_resolved(learner.tokens_per_row) // learner.sequence_parallel
        rows = consecutive([list(ids) for ids in token_ids if ids], len, max(1, size))
        (most,) = self.stage.max_over_ranks([float(len(rows))])
        for _ in range(int(most) - len(rows)):
            dummy_pass(self.stage)
        for samples in rows:
            row = pack_ids(samples, self.torch_device)
            logp_T, _ = engine(*row, 1.0, learner.logit_chunk)
            values.extend(part.tolist()[1:] for part in logp_T.cpu().split([len(ids) for ids in samples]))
        logp_rows = iter(values)
        return [next(logp_rows) if ids else [] for ids in token_ids]

    def close(self) -> None:
        """Leave the process group; for processes that live on."""
        import deepspeed

        self._destroy_models()
        deepspeed.comm.destroy_process_group()

    def export(
        self, folder: WeightFolder, version: int, probe: Probe | None = None
    ) -> tuple[WeightManifest, ProbeValues]:
        """Send the weights, with the probe's noise, as `version`. Returns what this rank sent, and what the
        probe's samples get under it; the noise goes without a trace."""
        spec, policy = self.spec, self.stage.models.policy
        with self._probe_noise(probe):
            share = export_version(
                policy.model, folder, version, rank=spec.rank, num_ranks=spec.world_size, dtype=policy.dtype
            )
            values = self._probe_values(probe) if probe is not None else ProbeValues(logprobs=(), rounded=())
            return replace(share, adapter=self._adapter), values

    def measure(self, probe: Probe) -> ProbeValues:
        """What `export` gives for the probe, and nothing is sent."""
        with self._probe_noise(probe):
            return self._probe_values(probe)

    def _probe_values(self, probe: Probe) -> ProbeValues:
        """Both of layers as they are written (`learner.compile`): rounding alone is to lie between them."""
        with torch.compiler.set_stance("force_eager"):
            logprobs = self.logprobs(probe.samples)
            with round_again(self.stage.models.policy.model, probe.units, probe.seed):
                return ProbeValues(logprobs=logprobs, rounded=self.logprobs(probe.samples))

    def _probe_noise(self, probe: Probe | None) -> AbstractContextManager[None]:
        if probe is None or not probe.noise:
            return nullcontext()
        scaling = self._adapter.scaling if self._adapter is not None else 1.0
        return perturb_weights(self.stage.models.policy.model, probe.noise, scaling, probe.seed)

    def save_hf(self, folder: Path, tokenizer_from: str, into: Snapshot) -> None:
        """A Hugging Face folder, with the tokenizer of another one: not of the folder given to `begin`, which may be
        a checkpoint that is gone by now. Copied now, there when `into.write()` has returned on every rank."""
        policy = self.stage.models.policy
        copy_hf(policy, folder, tokenizer_from, into, rank=self.spec.rank, num_ranks=self.spec.world_size)

    def save(self, folder: Path, into: Snapshot) -> None:
        """Weights, optimizers, schedule and random state, to continue from.

        Copied now, there when `into.write()` has returned on every rank.
        """
        loaded, layout = self.stage.models, self._layout()
        state = {"step": self.step, "rng": torch.get_rng_state(), **layout}
        folder.mkdir(parents=True, exist_ok=True)
        with saving_into(into, loaded.policy_engine) as engine:
            # The model under an adapter stays where it is.
            more = {} if self._adapter is None else {"exclude_frozen_parameters": True}
            engine.save_checkpoint(str(folder), tag=_CHECKPOINT_TAG, client_state=state, save_latest=False, **more)
        if loaded.critic_engine is not None:
            with saving_into(into, loaded.critic_engine) as engine:
                engine.save_checkpoint(str(folder), tag=_CRITIC_TAG, save_latest=False)
        if self.spec.rank == 0:
            into.then(partial((folder / layouts.FILE).write_text, json.dumps(layout)))

    def load(self, folder: Path, *, optimizers_alone: bool = False) -> None:
        """Resume, after `begin` with the same stage. Raises BadInput when the folder does not fit this learner.

        The number of ranks and the ZeRO stage may be others than those that it was saved with. optimizers_alone: of the
        stage before, whose weights these are; the schedule stays this stage's own.
        """
        divided = layouts.other_division(folder, self._layout())
        loaded = self.stage.models
        with as_data(folder):
            full_model = self._adapter is None
            state = zero.load(loaded.policy_engine, folder, _CHECKPOINT_TAG, frozen_too=full_model, divided=divided)
            if loaded.critic_engine is not None:
                zero.load(loaded.critic_engine, folder, _CRITIC_TAG, divided=divided)
        if optimizers_alone:
            return
        self.step = state["step"]
        torch.set_rng_state(state["rng"].cpu())

    def _layout(self) -> dict[str, Any]:
        stage, lora = self.stage, self._adapter.rank if self._adapter is not None else 0
        return layouts.layout_of(stage.learner, stage.algorithm, self.spec.world_size, lora)

    def _destroy_models(self) -> None:
        if self._stage is None:
            return
        self._stage.models.destroy()
        self._stage = None
        gc.collect()  # DeepSpeed's hooks make cycles, and the next stage needs the memory
        if self.torch_device.type == "cuda":
            torch.cuda.empty_cache()
