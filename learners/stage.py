"""What a rank works with from one `begin` to the next: the models, a stage's settings and its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from learners import zero
from learners.algorithms.base import REFERENCE, VALUES, Algorithm
from learners.attention import FLASH, first_usable
from learners.lora import AdapterReference, reference_folder
from learners.meeting import RankSpec
from learners.policy import CriticModel, PolicyModel, load_policy
from learners.sequence_parallel import SequenceGroup
from learners.served_reference import ServedReference
from rlsys.adapters import AdapterStart
from rlsys.batch import MicroBatch
from rlsys.config.learner import LearnerConfig
from rlsys.system.served import ReferenceAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How the models of a stage are loaded, whichever they are."""

    learner: LearnerConfig
    spec: RankSpec
    torch_device: torch.device
    group: SequenceGroup | None = None  # the ranks that share each row

    def policy(self, path: str, *, frozen: bool = False) -> PolicyModel:
        """On a device, or under ZeRO-3 this rank's part of it. frozen: it will not be trained."""
        zero_3 = None
        if self.learner.zero_stage == 3:
            away = self.learner.offload_reference if frozen else self.learner.offload == "all"
            zero_3 = zero.stage_3_config(self.spec.held_dtype, offload=away)
        return load_policy(
            path,
            dtype=self.spec.dtype,
            held=self.spec.held_dtype,
            attention_key=self._attention_key(),
            gradient_checkpointing=self.spec.gradient_checkpointing,
            compiled=self.learner.compile,
            fp32_head=self.spec.fp32_head,
            rope_theta_scale=self.learner.rope_theta_scale,
            device=self.torch_device,
            zero_3=zero_3,
            group=self.group,
        )

    def _attention_key(self) -> str:
        keys = [key for key in self.spec.device.attention if key != FLASH or self.group is None]
        return first_usable(keys, getattr(torch, self.spec.held_dtype))


class Reference:
    """The frozen model that the policy is compared with.

    A plain module, or under ZeRO-3 partitioned over the ranks: there every rank must make the same passes.
    """

    def __init__(self, path: str, loading: Loading) -> None:
        self._away = loading.learner.offload_reference and loading.learner.zero_stage != 3
        self._torch_device = loading.torch_device
        # Proved on the device that it is asked on: its attention may need it (`require_packing`).
        policy = loading.policy(path, frozen=True)
        policy.requires_grad_(False).eval()
        if self._away:
            policy.to("cpu")
        self._engine: Any = None
        if loading.learner.zero_stage == 3:
            self._engine = zero.frozen(policy, loading.learner, dtype=loading.spec.held_dtype)
        self.policy = policy

    def return_to_card(self) -> None:
        """Back to the device, where it belongs there."""
        if not self._away:
            self.policy.to(self._torch_device)

    @contextmanager
    def ready(self) -> Iterator[Any]:
        """The model to call, on the device: brought there and taken back where it is offloaded."""
        if self._away:
            self.policy.to(self._torch_device)
        try:
            yield self._engine or self.policy
        finally:
            if self._away:
                self.policy.to("cpu")

    def destroy(self) -> None:
        if self._engine is not None:
            self._engine.destroy()


@dataclass(slots=True, kw_only=True)
class Models:
    policy: PolicyModel
    policy_engine: Any
    critic_engine: Any | None
    reference: Reference | AdapterReference | ServedReference | None

    def engines(self) -> list[Any]:
        """Of the models that are trained."""
        return [engine for engine in (self.policy_engine, self.critic_engine) if engine is not None]

    def leave_card(self) -> None:
        """Weights, masters, moments and gradients go to host memory (`cluster.placement=sleep`). May be repeated."""
        for engine in self.engines():
            zero.leave_card(engine)
        if isinstance(self.reference, Reference):
            self.reference.policy.to("cpu")

    def return_to_card(self) -> None:
        """Every number is where it was. May be repeated, from wherever it broke off."""
        for engine in self.engines():
            engine.reload_states()
        if isinstance(self.reference, Reference):
            self.reference.return_to_card()

    def destroy(self) -> None:
        self.policy_engine.destroy()
        if self.critic_engine is not None:
            self.critic_engine.destroy()
        if self.reference is not None:
            self.reference.destroy()


def load_models(
    path: str,
    loading: Loading,
    needs: frozenset[str],
    reference_path: str,
    start: AdapterStart | None = None,
    served: ReferenceAddress | None = None,
) -> Models:
    """Policy and critic start from `path`. start: of an adapter on it that is trained in its place. served: the
    reference has an engine of its own. Raises BadInput for what cannot be loaded."""
    learner, device, dtype = loading.learner, loading.spec.device, loading.spec.held_dtype
    policy = loading.policy(path)
    if start is not None:
        policy.take_adapter(start.adapter, loading.spec.seed, start.folder)
    policy_engine = zero.make_engine(policy, learner, device, dtype=dtype, lr=learner.lr)
    critic_engine = None
    if VALUES in needs:
        critic_engine = zero.make_engine(
            CriticModel(loading.policy(path)), learner, device, dtype=dtype, lr=learner.critic_lr
        )
    return Models(
        policy=policy,
        policy_engine=policy_engine,
        critic_engine=critic_engine,
        reference=_reference(policy, reference_path, loading, start, served) if REFERENCE in needs else None,
    )


def _reference(
    policy: PolicyModel, path: str, loading: Loading, start: AdapterStart | None, served: ReferenceAddress | None
) -> Reference | AdapterReference | ServedReference:
    if served is not None:
        return ServedReference(served, loading.learner.update_timeout_s / 2)
    if start is not None:
        same, folder = reference_folder(path, start.adapter)
        if same:
            return AdapterReference(policy, folder, loading.torch_device)
    return Reference(path, loading)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    models: Models
    learner: LearnerConfig
    algorithm: Algorithm
    temperature: float
    total_steps: int
    torch_device: torch.device
    dtype: str
    world_size: int
    group: SequenceGroup | None = None  # the ranks that share each row of this one

    def sum_over_ranks(self, numbers: list[float]) -> list[float]:
        """Each number summed over all ranks, of those that share rows once. A collective: every rank calls, with as
        many numbers."""
        if self.group is not None and self.group.place:
            numbers = [0.0] * len(numbers)
        return self.all_reduce(numbers, torch.distributed.ReduceOp.SUM)

    def max_over_ranks(self, numbers: list[float]) -> list[float]:
        return self.all_reduce(numbers, torch.distributed.ReduceOp.MAX)

    def all_reduce(self, numbers: list[float], how: Any) -> list[float]:
        if self.world_size == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.torch_device)
        torch.distributed.all_reduce(tensor, op=how)
        result: list[float] = tensor.tolist()
        return result


class Phases:
    """Seconds by phase. On a GPU a phase ends when its kernels have."""

    def __init__(self, torch_device: torch.device) -> None:
        self._torch_device = torch_device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self._torch_device.type == "cuda":
            torch.cuda.synchronize(self._torch_device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def to_device(row: MicroBatch, device: torch.device) -> MicroBatch:
    """The row with its tensors on a device; the row itself where that is the host."""
    if device.type == "cpu":
        return row
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(row)}
    moved: dict[str, Any] = {name: value.to(device) for name, value in values.items() if torch.is_tensor(value)}
    return replace(row, **moved)
