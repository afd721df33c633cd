"""From configuration to actors: the only place that constructs them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.env_worker import EnvWorkerSpec
from actors.judge import JudgeServiceConfig, start_judge
from actors.placement import ResourceRequest
from actors.pool import RolloutPool
from actors.reference import ReferenceServiceConfig, check_reference, start_reference
from actors.scoring import ScoringSpec
from actors.services import Services, ServiceSpec, check_world, start_world
from actors.specs import engine_environment, make_engine_spec, openmp
from actors.weights.distributor import DistributorOptions, WeightDistributor
from actors.worker import WorkerSpec
from actors.worker_registry import PoolOptions
from envs import make_world
from envs.rewards import judge_config_of
from envs.services.secrets import secret_variables
from launch.checks import model_size, preflight
from launch.checks.deadlines import load_deadline, shortest_episode_s, start_of_engine, start_of_rank
from launch.checks.gpu_plan import reference_share, shared_cache_mb
from launch.checks.model_size import other_model_bytes
from launch.checks.models import whole_path
from launch.checks.packaged import find_packaged
from launch.checks.teachers import served_to
from learners.group import GroupOptions, LearnerGroup, rank_specs
from learners.meeting import RankSpec, collective_timeout_s
from learners.rope import copy_scaled
from rlsys.adapters import read_adapter
from rlsys.alternating_cards import AlternatingCards
from rlsys.choices import custom_folders
from rlsys.config.cluster import SECRET, ClusterConfig
from rlsys.config.learner import LearnerConfig
from rlsys.config.model import LoraConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.system.device import Device, dtype_of, gpu_env, require_resolved, resolve
from rlsys.system.served import REFERENCE_SERVICE
from rlsys.system.weight_folder import WeightFolder

# What every actor inherits from the driver's environment on the nodes of a cluster: names, and how names begin.
PASSED_ON = ("RLSYS_OWNER", "HF_HUB_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "WANDB_MODE",
             "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TRITON_CACHE_DIR")  # fmt: skip
FAMILIES = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "GLOO_", "VLLM_")
SECRETS = ("HF_TOKEN",)  # these too, but not where Ray would write them into a log
ROOT = str(Path(__file__).resolve().parents[3])


def environment(cluster: ClusterConfig, more: dict[str, str]) -> dict[str, str]:
    """Variables of every actor's process, and `more`. No secrets: Ray writes them into its logs."""
    names = (name for name in os.environ if name in PASSED_ON or name.startswith(FAMILIES))
    passed = {name: os.environ[name] for name in names if not SECRET.search(name)}
    folders = custom_folders()  # environments and rewards of the user's own may lie there
    if folders:
        passed["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), ROOT, *folders]))
    variables = passed | {"TOKENIZERS_PARALLELISM": "false"} | more | cluster.env
    if "PYTHONPATH" in cluster.env and "PYTHONPATH" in passed:
        variables["PYTHONPATH"] = os.pathsep.join([cluster.env["PYTHONPATH"], passed["PYTHONPATH"]])
    return variables


def resolved_model_path(recipe: RecipeConfig) -> str | None:
    """A local folder by its whole path, since actors work elsewhere; a hub name as it is; None for a scratch model."""
    return None if recipe.model.path is None else whole_path(recipe.model.path)


def services(recipes: Sequence[RecipeConfig], trained: Sequence[RecipeConfig] = ()) -> Services:
    """The tool services and judges of these stages, not yet started.

    trained: those in which a learner trains, whose reference model may have an engine of its own.
    """
    specs = [spec for recipe in recipes for spec in list_services(recipe)]
    asking = served_to(trained)
    specs += [] if asking is None else [reference_service(asking)]
    size = max((other_model_bytes(model) for spec in specs for model in spec.models), default=0)
    timeout_s = max((load_deadline(recipe.rollout.start_timeout_s, size).value for recipe in recipes), default=0.0)
    return Services(
        specs,
        env_vars=environment(recipes[0].cluster if recipes else ClusterConfig(), {}),
        secrets=secrets_of(recipes),
        start_timeout_s=timeout_s,
        run=recipes[0].name if recipes else "",
        host=recipes[0].cluster.service_host if recipes else None,
    )


def list_services(recipe: RecipeConfig) -> Iterator[ServiceSpec]:
    """The servers that a recipe's environment and its reward ask for."""
    world = make_world(recipe.env)
    if world.service:
        yield ServiceSpec(
            name=world.service,
            config=recipe.env,
            start=start_world,
            check=check_world,
            gpus=world.service_gpus,
            threads=world.service_threads,
        )
    judge_service = judge(recipe)
    if judge_service is not None:
        yield ServiceSpec(
            name=judge_service.judge.server,
            config=judge_service,
            start=start_judge,
            check=preflight.check_judge,
            gpus=judge_service.judge.gpus,
            threads=judge_service.threads,
            models=(str(judge_service.judge.model),),
        )


def reference_service(recipe: RecipeConfig) -> ServiceSpec:
    """The engine of `learner.serve_reference`, of a stage with it."""
    learner = recipe.learner
    config = ReferenceServiceConfig(
        model=whole_path(learner.reference),
        max_model_len=recipe.engine.max_model_len,
        engine=replace(recipe.engine, gpu_memory_utilization=reference_share(recipe)),
        device=recipe.cluster.device,
        dtype=recipe.model.dtype,
        fp32_head=recipe.model.fp32_head,
        gpus=learner.reference_gpus,
        threads=recipe.rollout.threads,
    )
    return ServiceSpec(
        name=REFERENCE_SERVICE,
        config=config,
        start=start_reference,
        check=check_reference,
        gpus=learner.reference_gpus,
        threads=recipe.rollout.threads,
        models=(config.model,),
        lower="learner.reference_gpus or rollout.threads",
    )


def judge(recipe: RecipeConfig) -> JudgeServiceConfig | None:
    """The judge that the run itself serves: of a reward that names a model and no address."""
    config = judge_config_of(recipe.reward)
    if config is None or not config.server:
        return None
    threads = config.threads or recipe.rollout.threads
    if config.model is not None and find_packaged(config.model) is not None:
        config = replace(config, model=whole_path(config.model))  # its engine knows folders and names of the hub
    return JudgeServiceConfig(judge=config, device=recipe.cluster.device, threads=threads)


def secrets_of(recipes: Sequence[RecipeConfig]) -> dict[str, str]:
    """The variables that a configuration names, and the hub's, for actors on other nodes. Their values stand in no file
    of the run."""
    names = {name for recipe in recipes for part in (recipe.env, recipe.reward) for name in secret_variables(part)}
    return {name: os.environ[name] for name in sorted({*names, *SECRETS}) if name in os.environ}


def distributor(recipe: RecipeConfig, weights: WeightFolder) -> WeightDistributor:
    """What brings a version to where engines read it; not yet started."""
    options = DistributorOptions(
        env_vars=environment(recipe.cluster, gpu_env(0)),
        start_timeout_s=load_deadline(recipe.rollout.start_timeout_s, 0).value,
        fetch_timeout_s=recipe.loop.publish_deadline_s,
        run=recipe.name,
        host=recipe.cluster.service_host,
    )
    return WeightDistributor(weights, options)


def pool(
    recipe: RecipeConfig,
    device: Device,
    model_path: str,
    service_token: str,
    secrets: dict[str, str],
    weights: WeightFolder | None = None,
    playing: Sequence[RecipeConfig] = (),
    cards: AlternatingCards | None = None,
) -> RolloutPool:
    """Every rollout worker of a recipe, not yet started.

    weights: of a run that has a learner. playing: the stages whose episodes it plays, where they are not the recipe's.
    cards: the GPUs that the learner's ranks use too.
    """
    rollout, threads = recipe.rollout, require_resolved(recipe.rollout.threads)
    start_s, (base, lora, adapter) = start_of_engine(recipe, device).value, split_adapter(model_path, recipe)
    cache_mb = shared_cache_mb(recipe, device, model_size.parameters(recipe))
    specs = [
        WorkerSpec(
            name=f"rollout:{index}",
            engine=make_engine_spec(
                recipe.engine,
                device,
                model_path=base,
                lora=lora,
                adapter=adapter,
                dtype=recipe.model.dtype,
                fp32_head=recipe.model.fp32_head,
                seed=derive_seed(recipe.seed, "engine", index),
                threads=threads,
                running_kv=recipe.loop.running_kv,
                gpu_cache_mb=cache_mb,
                sleeps=recipe.cluster.placement == "sleep",
            ),
            run_seed=recipe.seed,
            scoring=scoring(recipe),
            stall_s=rollout.call_timeout_s,
            block_s=block_s(recipe, playing),
            start_timeout_s=start_s,
            secrets={**secrets, SERVICE_TOKEN: service_token},
        )
        for index in range(rollout.workers)
    ]
    gpus = gpus_each(recipe, device) * recipe.engine.tensor_parallel
    options = PoolOptions(
        cpus=threads,
        gpus=gpus,
        env_vars=environment(recipe.cluster, engine_environment(threads) | gpu_env(gpus)),
        start_timeout_s=start_s,
        call_timeout_s=rollout.call_timeout_s,
        in_flight=require_resolved(rollout.in_flight),
        infra_attempts=rollout.infra_attempts,
        min_workers=rollout.min_workers,
        placement_timeout_s=recipe.cluster.placement_timeout_s,
        run=recipe.name,
        publish_deadline_s=recipe.loop.publish_deadline_s,
    )
    carrier = distributor(recipe, weights) if weights is not None else None
    return RolloutPool(specs, options, distributor=carrier, cards=cards)


def split_adapter(model_path: str, recipe: RecipeConfig) -> tuple[str, LoraConfig | None, str]:
    """(base, LoRA, folder of the adapter) that an engine starts with. Of a checkpoint with an adapter all three are its
    own; else the model itself, the recipe's LoRA, whose weights are published, or None, and ""."""
    adapter = read_adapter(model_path)
    if adapter is None:
        return model_path, recipe.model.lora if recipe.model.lora.rank else None, ""
    return adapter.base, LoraConfig(rank=adapter.rank, alpha=adapter.alpha, targets=adapter.targets), model_path


def scoring(recipe: RecipeConfig) -> ScoringSpec:
    rollout = recipe.rollout
    return ScoringSpec(grader_workers=rollout.grader_workers, grader_deadline_s=rollout.grader_deadline_s)


def block_s(recipe: RecipeConfig, playing: Sequence[RecipeConfig] = ()) -> float:
    """An episode that blocks the others is found before their own deadlines end them, in every stage that plays."""
    return min(recipe.rollout.block_timeout_s, shortest_episode_s(playing or [recipe]) / 2)


def teacher_worlds(
    recipe: RecipeConfig, playing: Sequence[RecipeConfig] = (), worker: str = "teacher"
) -> EnvWorkerSpec:
    """Where the environments run of episodes that a teacher plays, or another model at an address."""
    blocked_s, timeout_s = block_s(recipe, playing), load_deadline(recipe.rollout.start_timeout_s, 0).value
    return EnvWorkerSpec(worker=worker, scoring=scoring(recipe), block_s=blocked_s, start_timeout_s=timeout_s)


def gpus_each(recipe: RecipeConfig, device: Device) -> float:
    """Of a learner rank, and of an engine for each process that it is divided among."""
    return device.gpus_per_actor * (1.0 if recipe.cluster.placement == "split" else 0.5)


def rank_needs(recipe: RecipeConfig, device: Device) -> list[ResourceRequest]:
    """What the learner's ranks ask of the cluster; where engines use their GPUs in turn, a bundle for each GPU, since
    Ray divides those of a larger one by numbers alone."""
    config, in_turn = recipe.learner, recipe.cluster.placement == "sleep"
    gpus = device.gpus_per_actor if in_turn else gpus_each(recipe, device)
    request = ResourceRequest(
        what="learner rank", cpus=config.threads or 1, gpus=gpus, lower="learner.ranks", gathers=not in_turn
    )
    return [request] * config.ranks


def engine_needs(recipe: RecipeConfig, services: Services, device: Device) -> list[ResourceRequest]:
    """What the rollout workers ask of it, and after them the services."""
    rollout, ways = resolve(recipe, device).rollout, recipe.engine.tensor_parallel
    gpus, lower = gpus_each(recipe, device) * ways, "rollout.workers, rollout.threads or engine.tensor_parallel"
    worker = ResourceRequest(what="rollout worker", cpus=require_resolved(rollout.threads), gpus=gpus, lower=lower)
    return [worker] * rollout.workers + services.needs(on_gpus=bool(device.gpus_per_actor))


def needs_of_run(recipe: RecipeConfig, services: Services | None, device: Device) -> list[ResourceRequest]:
    """Of ranks, rollout workers and services. services: None where nothing is played."""
    ranks = rank_needs(recipe, device)
    if services is None:
        return ranks
    engines = engine_needs(recipe, services, device)
    if recipe.cluster.placement != "sleep":
        return ranks + engines
    pairs = [
        replace(rank, what="learner rank and rollout worker", cpus=rank.cpus + engine.cpus)
        for rank, engine in zip(ranks, engines, strict=False)
    ]
    return pairs + engines[len(ranks) :]


def places_of_run(recipe: RecipeConfig, places: Sequence[Any]) -> list[Any]:
    """One for each rank, rollout worker and service, of those that `needs_of_run` has got."""
    ranks = recipe.learner.ranks
    return [*places[:ranks], *(places if recipe.cluster.placement == "sleep" else places[ranks:])]


def learner(
    recipe: RecipeConfig,
    device: Device,
    dumps: Path | None = None,
    teachers: Sequence[str] = (),
    update_forecast_s: float | None = None,
    cards: AlternatingCards | None = None,
) -> LearnerGroup:
    """Every learner rank of a recipe, not yet started. dumps: where NCCL's flight recorder writes, if it has to.
    teachers: models that the ranks load besides. cards: the GPUs that engines use too."""
    config = recipe.learner
    gpus = gpus_each(recipe, device)
    env_vars = learner_environment(config, device) | gpu_env(gpus)
    if dumps is not None and device.dist_backend == "nccl" and config.ranks > 1:
        dumps.mkdir(exist_ok=True)
        env_vars |= {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_FR_DUMP_TEMP_FILE": str(dumps / "rank-")}
    first = RankSpec(
        rank=0,
        world_size=config.ranks,
        master_addr="",
        master_port=0,
        device=device,
        dtype=dtype_of(recipe.model.dtype, device),
        gradient_checkpointing=require_resolved(recipe.model.gradient_checkpointing),
        fp32_head=recipe.model.fp32_head,
        seed=derive_seed(recipe.seed, "learner"),
        collective_timeout_s=collective_timeout_s(config.update_timeout_s),
    )
    options = GroupOptions(
        cpus=config.threads or 1,
        gpus=gpus,
        env_vars=environment(recipe.cluster, env_vars),
        start_timeout_s=start_of_rank(recipe, device, teachers).value,
        call_timeout_s=config.update_timeout_s,
        ping_timeout_s=config.ping_timeout_s,
        placement_timeout_s=recipe.cluster.placement_timeout_s,
        max_restarts=config.max_restarts,
        run=recipe.name,
        update_forecast_s=update_forecast_s,
    )
    return LearnerGroup(rank_specs(first, config.ranks), options, secrets_of([]), cards=cards)


def learner_environment(config: LearnerConfig, device: Device) -> dict[str, str]:
    """Variables that must stand before torch is imported."""
    cores = len(os.sched_getaffinity(0)) if device.torch_device == "cpu" else 1
    threads = config.threads or max(1, cores // config.ranks)
    # Rows differ in length: fixed segments would leave gaps that no later row fits into.
    grown = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"} if device.torch_device == "cuda" else {}
    is_set = "PYTORCH_ALLOC_CONF" in os.environ or "PYTORCH_CUDA_ALLOC_CONF" in os.environ
    return {**openmp(threads), "DS_ACCELERATOR": device.torch_device, **({} if is_set else grown)}


def build_scratch_model(recipe: RecipeConfig, folder: Path) -> None:
    """The policy that a recipe without `model.path` starts from: random weights, own tokenizer."""
    from learners.scratch import build  # transformers behind it

    world = make_world(recipe.env)
    texts = list(world.texts(4096))
    if not texts:
        raise BadInput(
            "it has no text to build a tokenizer from", key="env.name", found=recipe.env.name, expected="model.path"
        )
    build(
        folder,
        recipe.model.scratch,
        texts=texts,
        tags=world.tags,
        max_positions=recipe.engine.max_model_len,
        seed=derive_seed(recipe.seed, "scratch"),
    )
    copy_scaled(str(folder), recipe.learner.rope_theta_scale, folder)  # here, so that engines read it too
