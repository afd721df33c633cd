"""What the config asks for, and everything that is found: on this machine, or on every node of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from envs import make_world
from envs.tools.sandbox import SandboxConfig
from launch.checks import model_size, preflight
from launch.checks.gpu_memory import VERSIONS_IN_MEMORY
from launch.checks.machine import expected_device
from launch.data.makers import with_maker
from launch.driver.checkpoints.disk_space import check_disk, nearest_folder, room_for
from launch.driver.evaluation.sets import recipes_of
from launch.driver.observe.trackers.wandb_tracker import wandb_mode
from launch.driver.run import wire
from launch.driver.run.nodes import NodeRequirements
from launch.driver.stages.base import needs_engines
from launch.tools.doctor.facts import ClusterFacts, NodeFacts, Wanted
from launch.tools.doctor.probe import Request, collect, read_all
from rlsys.config.cluster import ClusterConfig
from rlsys.config.output import WandbConfig
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.system.device import Device, gpu_env

LOCAL = "this machine"
ROOM_BYTES = 256 * 2**20  # of /dev/shm: a file of the carrier's, the same of another node, an object of Ray's store


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to look at."""

    config: RunConfig | None
    name: str | None  # of the config
    run_dir: str | None
    seconds: float  # of each look
    playing: tuple[RecipeConfig, ...] = ()  # of which the environments could be made here
    runs_code: bool = False  # whether any of their environments has a sandbox
    unread: tuple[str, ...] = ()  # why others could not: their data, in one line each

    @property
    def cluster(self) -> ClusterConfig:
        return self.config.recipe.cluster if self.config is not None else ClusterConfig()


def make_plan(config: RunConfig | None, name: str | None, run_dir: str | None, seconds: float) -> Plan:
    playing: list[RecipeConfig] = []
    if config is not None:
        stages = [stage for stage in config.stages if needs_engines(config, stage)]
        for recipe in (recipe for stage in stages for recipe in recipes_of(stage.config)):
            playing += [recipe] * (recipe not in playing)
    makers = {str(number): partial(make_world, recipe.env) for number, recipe in enumerate(playing)}
    worlds, failed = read_all(makers, seconds)  # which reads their tasks
    return Plan(
        config=config,
        name=name,
        run_dir=run_dir,
        seconds=seconds,
        playing=tuple(playing[int(number)] for number in sorted(worlds, key=int)),
        runs_code=any(_runs_code(recipe.env) for recipe in playing),
        unread=tuple(dict.fromkeys(map(with_maker, failed.values()))),
    )


def examine_here(plan: Plan) -> tuple[ClusterFacts, Wanted]:
    """This machine alone, without Ray."""
    device = expected_device(plan.cluster)
    requirements = requirements_of(plan, device)
    facts = collect(make_request(plan, device, local=True), plan.seconds)
    return replace(driver_facts(plan, device), names=(LOCAL,), nodes=(facts,)), requirements


def examine_cluster(plan: Plan, address: str, doing: Callable[[str], None]) -> tuple[ClusterFacts, Wanted]:
    """Every node of a running cluster. Raises BadInput where none answers at the address."""
    from launch.driver.run.cluster import connect  # Ray behind it: a look at this machine goes without

    doing("joining the cluster")
    device = connect(replace(plan.cluster, address=address), lambda _: [])
    return asyncio.run(_examine_nodes(plan, device, doing)), requirements_of(plan, device)


async def _examine_nodes(plan: Plan, device: Device, doing: Callable[[str], None]) -> ClusterFacts:
    from launch.tools.doctor import cluster  # Ray behind it

    doing("looking at every node")
    nodes = cluster.list_nodes()
    knocked = await cluster.check_ports(nodes)
    cut_off = {reach.target: reach for reach in knocked if reach.state != "reached"}
    env_vars, secret_env = wire.environment(plan.cluster, gpu_env(0)), wire.secrets_of(plan.playing)
    probes = [cluster.start_probe(node, env_vars, secret_env) for node in nodes if node.name not in cut_off]
    with cluster.closing(probes):
        request = make_request(plan, device, local=False)
        answers = await asyncio.gather(*(cluster.ask_facts(probe, request, plan.seconds) for probe in probes))
        facts = [answer for answer in answers if isinstance(answer, NodeFacts)]
        lost = {probe.name: answer for probe, answer in zip(probes, answers, strict=True) if isinstance(answer, str)}
        alive = [probe for probe in probes if probe.name not in lost]
        unshared = None
        if plan.run_dir is not None and len(nodes) > 1:
            doing("looking at the shared folder")
            unshared = await _sharing(plan, alive)
        measured = cluster.Measured(reaches=tuple(cut_off.values()))
        if len(alive) > 1:
            doing("measuring what lies between the nodes")
            room = all(map(has_room, facts))
            measured = await cluster.measure(alive, plan.cluster.weights_dir, plan.seconds, room=room)
            measured = replace(measured, reaches=measured.reaches + tuple(cut_off.values()))
        await cluster.close(alive)
    return replace(
        driver_facts(plan, device),
        names=tuple(node.name for node in nodes),
        nodes=tuple(facts),
        lost=lost,
        network=len(nodes) > 1,
        unshared=unshared,
        reaches=measured.reaches,
        stored=measured.stored,
        transfers=measured.transfers,
        collective=measured.collective,
    )


def has_room(node: NodeFacts) -> bool:
    """Whether a node's memory holds what is sent for a measurement."""
    return node.memory is not None and node.memory.free > ROOM_BYTES and not (node.needs or {}).get("weights")


async def _sharing(plan: Plan, probes: Sequence[Any]) -> dict[str, str]:
    from launch.tools.doctor import cluster  # Ray behind it

    assert plan.run_dir is not None
    folder = nearest_folder(Path(plan.run_dir))
    try:
        return await cluster.check_sharing(folder, f"--run-dir {folder}", probes, plan.seconds + cluster.CLOSE_S)
    except BadInput as error:
        return {probes[0].name: str(error)} if probes else {}


def make_request(plan: Plan, device: Device, *, local: bool) -> Request:
    return Request(
        address=LOCAL,
        local=local,
        weights_dir=plan.cluster.weights_dir,
        disk=str(Path(plan.run_dir or ".").resolve()),
        needs=needs_of(plan, device),
    )


def needs_of(plan: Plan, device: Device) -> dict[str, NodeRequirements]:
    """By kind, so that each has a line of its own. Any node may get any part."""
    if plan.config is None:
        return {}
    recipe = plan.config.recipe
    needs = {"worlds": NodeRequirements(playing=tuple(recipe for recipe in plan.playing if not _runs_code(recipe.env)))}
    if (path := wire.resolved_model_path(recipe)) is not None:
        needs["model"] = NodeRequirements(models=(("model.path", path),))
    if serving := tuple(spec for recipe in plan.playing for spec in wire.list_services(recipe)):
        needs["services"] = NodeRequirements(serving=serving)
    if (size := model_size.weights_bytes(recipe, device)) is not None:
        needs["weights"] = NodeRequirements(
            weights=(recipe.cluster.weights_dir, size, model_size.store_bytes(recipe, device))
        )
    return needs


def requirements_of(plan: Plan, device: Device) -> Wanted:
    if plan.config is None:
        return Wanted(run_dir=plan.run_dir)
    size = model_size.weights_bytes(plan.config.recipe, device)
    return Wanted(
        config=plan.name,
        run_dir=plan.run_dir,
        weights=None if size is None else size // VERSIONS_IN_MEMORY,
        deadline_s=plan.config.recipe.loop.publish_deadline_s,
        sandbox=plan.runs_code,
        device=plan.cluster.device,
    )


def _runs_code(env: Any) -> bool:
    """Whether an environment has a sandbox, whose walls have a look of their own."""
    return is_dataclass(env) and any(isinstance(getattr(env, field.name), SandboxConfig) for field in fields(env))


def driver_facts(plan: Plan, device: Device) -> ClusterFacts:
    """What the driver alone reads: its data, its disk, its settings."""
    disk = ""
    if plan.config is not None:
        try:
            check_disk(room_for(plan.config, device), Path(plan.run_dir or f"runs/{plan.config.recipe.name}"))
        except (BadInput, RunFailed) as error:
            disk = str(error)
    port = ""
    try:
        preflight.check_port(plan.cluster.dashboard_port)
    except BadInput as error:
        port = str(error)
    wandb = wandb_mode(plan.config.recipe.wandb if plan.config is not None else WandbConfig())
    return ClusterFacts(names=(), nodes=(), disk=disk, data=plan.unread, dashboard_port=port, wandb=wandb)
