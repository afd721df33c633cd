"""All stages of a recipe: checked, computed through, and gone through in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from actors.renderer import ChatRenderer
from envs import make_world
from launch.checks import cpu_memory, hub, model_size, models, preflight, prompts
from launch.checks.agents import try_agents
from launch.checks.chat_template import read_template
from launch.checks.gpu_plan import GpuPlan, gpu_plan
from launch.checks.known_models import KNOWN
from launch.checks.machine import expected_device, is_local, runs_elsewhere
from launch.checks.memory_table import format_rows
from launch.checks.model_size import TEACHER, teacher_parameters
from launch.checks.own_functions import try_functions_of
from launch.checks.packaged import PACKAGED
from launch.checks.service_needs import ServiceNeed, check_needs, of_reference, service_needs
from launch.checks.teachers import check_teachers, served_to, teachers_of
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.evaluation.report import describe_plan
from launch.driver.evaluation.sets import plays_of, recipes_of
from launch.driver.observe.episode_signs import NOTHING
from launch.driver.observe.health import Finding
from launch.driver.observe.trackers.table import check_trackers
from launch.driver.run.run import Run, health
from launch.driver.run.saving import checkpoint, restore, wait_written
from launch.driver.stages.base import list_training, needs_engines, recipes_with_rollouts, scored_recipes, stage_of
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, LearnerLost, RunFailed
from rlsys.rollout import template_args_of
from rlsys.system.device import DEVICES, Device, describe_filled_keys, require_device, resolve_run


def check(config: RunConfig, say: Callable[[str], None]) -> None:
    """What can be known before anything is written or started. Raises BadInput; `say` gets what may be too slow."""
    recipe = config.recipe
    make_world(recipe.env)
    check_trackers(recipe)
    preflight.check(recipe, learner=True, stages=list_training(config))
    check_offload(config)
    if any(needs_engines(config, stage) for stage in config.stages) and is_local(recipe.cluster):
        preflight.check_weights_room(recipe, expected_device(recipe.cluster))
    for stage in config.stages:
        check_stage(config, stage)
    stages = [stage.config for stage in config.stages]
    if recipe.model.path is None:
        check_teachers(stages, None, "")  # their tokens are compared once the policy's tokenizer is built
    else:
        path = models.whole_path(recipe.model.path)
        renderer = ChatRenderer(path, template=read_template(recipe.model))
        check_evaluated(renderer, config)
        prompts.prompt_lines(renderer, path, _playing(config), config=config)
        check_teachers(stages, renderer.tokenizer, f"model.path={recipe.model.path!r}")
        preflight.check_model(recipe.model.path, learner=True, ask=False)  # of a hub name: config.json lies here now
        models.check_window(recipe, recipe.model.path, learner=True)
    check_gpus(config)
    check_services(config, say)


def _playing(config: RunConfig) -> list[RecipeConfig]:
    """The stages whose prompts are rendered: those that play, and supervised ones on the world's demonstrations."""
    recipes = [stage.config for stage in config.stages if needs_engines(config, stage) or stage.data is None]
    return [env_recipe for recipe in recipes for env_recipe in recipe.by_env.values()]


def _prompts(config: RunConfig) -> list[str]:
    """The lines of `--dry-run`."""
    path = config.recipe.model.path
    if path is None:
        return ["known once the policy and its tokenizer are built from nothing: the run says it"]
    folder = path if Path(path).is_dir() else hub.find_cached(path)
    if folder is None:
        away = "" if path in KNOWN and path not in PACKAGED else hub.explain_missing(path)
        return [f"not known before the model is on this machine{away and f'; {path}: {away}'}"]
    renderer = ChatRenderer(str(folder), template=read_template(config.recipe.model))
    check_evaluated(renderer, config)
    lines = prompts.prompt_lines(renderer, str(folder), _playing(config), config=config)
    for stage in config.stages:
        for sample in stage_of(stage.kind).example(config, stage, renderer):
            lines += prompts.sample_lines(renderer, stage.name, sample)
    return lines


def check_evaluated(renderer: ChatRenderer, config: RunConfig) -> None:
    """Raises BadInput for arguments that the chat template does not take, of evaluations too."""
    for stage in config.stages:
        for recipe in recipes_of(stage.config):
            renderer.under(template_args_of(recipe.env))


def check_offload(config: RunConfig) -> None:
    """What a learner on a CPU has no use for. Where another machine has the last word, it is asked again there."""
    device = expected_device(config.recipe.cluster)
    if is_local(config.recipe.cluster) or config.recipe.cluster.device != "auto":
        for stage in config.stages:
            require_device(stage.config.learner, device)


def check_stage(config: RunConfig, stage: StageConfig) -> None:
    """Whether it can play and evaluate, and has something to train on. Raises BadInput."""
    from launch.driver.run import nodes  # Ray behind it: a dry run goes without

    kind = stage_of(stage.kind)
    if needs_engines(config, stage):
        for played in recipes_of(stage.config):
            nodes.check_rollouts(played)
        if not kind.makes_data:
            describe_plan(plays_of(stage.config))  # reads every set: what it lacks is not to be found hours later
    kind.ready(config, stage)


def check_gpus(config: RunConfig) -> None:
    """Raises BadInput where a rank or an engine cannot fit on its GPU."""
    plan = _gpu_plan(config)
    if plan is not None and plan.problem is not None:
        raise BadInput(plan.problem)


def _gpu_plan(config: RunConfig) -> GpuPlan | None:
    """None on CPUs."""
    device = expected_device(config.recipe.cluster)
    if not device.gpus_per_actor:
        return None
    full = resolve_run(config, device)
    cluster = full.recipe.cluster
    ram = psutil.virtual_memory().total if is_local(cluster) and not runs_elsewhere(cluster, device) else None
    return gpu_plan(full.recipe, list_training(full), device, model_size.parameters(full.recipe), ram)


def arithmetic(config: RunConfig) -> tuple[list[str], BadInput | None]:
    """The numbers that follow from others, and how. Why those of a stage are not known: its data may be missing."""
    preflight.check_model(config.recipe.model.path, learner=True, ask=False)
    read_template(config.recipe.model)
    models.check_partition(config.recipe, config.recipe.model.path, learner=True)
    models.check_window(config.recipe, config.recipe.model.path, learner=True)
    count = model_size.parameters(config.recipe)
    folder = Path(config.recipe.model.path or "")
    exact = config.recipe.model.path is None or folder.is_dir()
    size = "" if count is None else f"{count:,}" if exact else f"{count / 1e9:.2f} G, by config.json"
    lines = [f"{'parameters':<25} {size}"] if size else []
    if (folder / "config.json").is_file():
        lines += models.describe_untried(models.read_model_config(folder, f"model.path={str(folder)!r}"))
    adapter = model_size.describe_adapter(config, count, expected_device(config.recipe.cluster))
    lines += [f"{'adapter':<25} {line}" for line in adapter]
    problem: BadInput | None = None
    for stage in config.stages:
        try:
            if needs_engines(config, stage):
                for played in recipes_of(stage.config):
                    preflight.check_judging(played)
                try_agents(played.env for played in recipes_of(stage.config))
            stage_of(stage.kind).ready(config, stage)
            try_functions_of(scored_recipes(config, stage))
            facts = stage_of(stage.kind).arithmetic(config, stage)
        except BadInput as error:
            problem = problem or error  # it is raised at the end, and said there alone
            facts = [f"not known: {error if str(error) != str(problem) else 'the error at the end says why'}"]
        lines += [f"{stage.name + ' (' + stage.kind + ')':<25} {fact}" for fact in facts]
    for teacher in teachers_of(stage.config for stage in config.stages):
        preflight.check_model(teacher, learner=True, ask=False, key=TEACHER)
        counted = teacher_parameters(teacher)
        lines.append(f"{'teacher':<25} {teacher}" + ("" if counted is None else f", {counted:,} parameters"))
    lines += [f"{'prompts':<25} {line}" for line in (_prompts(config) if problem is None else [])]
    lines.append(f"{'device':<25} {describe_filled_keys(config.recipe, expected_device(config.recipe.cluster))}")
    lines.append(f"{'devices (GPU)':<25} {_devices(config)}")
    needs = services_of(config, expected_device(config.recipe.cluster))
    lines += [f"{'service':<25} {need.describe()}" for need in needs]
    plan = _gpu_plan(config)
    if plan is not None:
        driver = cpu_memory.driver_row(config.recipe)
        lines += [f"{'memory (GPU)':<25} {line}" for line in plan.lines]
        return [*lines, f"{'memory (driver)':<25} {driver.needed / 1e9:.1f} GB = {driver.made_of('GB')}"], problem
    memory, _ = cpu_memory.memory_plan(config.recipe, learner=True, stages=list_training(config))
    return lines + [f"{'memory (CPU)':<25} {line}" for line in format_rows(memory, "MiB")], problem


def _devices(config: RunConfig) -> str:
    """GPUs that the run's processes take where there are any."""
    recipe = config.recipe
    playing = any(needs_engines(config, stage) for stage in config.stages)
    workers, ways, ranks = recipe.rollout.workers if playing else 0, recipe.engine.tensor_parallel, recipe.learner.ranks
    served = gpus_of_services(config)
    more = f" + {served} of services" if served else ""
    if recipe.cluster.placement != "split" and workers:
        together = "at the same time" if recipe.cluster.placement == "shared" else "in turn"
        return f"an engine and a rank on each of {ranks}, {together}{more} = {ranks + served}"
    return f"{workers} engines x {ways} + {ranks} ranks{more} = {workers * ways + ranks + served}"


def gpus_of_services(config: RunConfig) -> int:
    """Of the judges and retrievers that the run starts by itself, where there are any."""
    return sum(need.gpus for need in services_of(config, DEVICES["cuda"]))


def services_of(config: RunConfig, device: Device) -> list[ServiceNeed]:
    """The judges, retrievers and reference that the run starts by itself. Raises BadInput where its stages want
    different references."""
    playing = [stage.config for stage in config.stages if needs_engines(config, stage)]
    needs = service_needs([recipe for stage in playing for recipe in recipes_of(stage)], device)
    asking = served_to(recipes_with_rollouts(config))
    return needs if asking is None else [*needs, of_reference(asking, device)]


def check_services(config: RunConfig, say: Callable[[str], None]) -> None:
    """Say which may be too slow. Raises BadInput for one that cannot keep up, or that its GPUs cannot hold."""
    check_needs(services_of(config, expected_device(config.recipe.cluster)), say)


def has_trained_nothing(state: DriverState) -> bool:
    """Steps were taken, and not one of them moved a weight: such a run is at its end and not done."""
    return state.step > 0 and state.trained == 0


def why_nothing(found: Iterable[Finding]) -> list[str]:
    """Of a run that trained nothing: the reason that each stage has for it, and what to try."""
    return list(dict.fromkeys(finding.says.removeprefix(NOTHING) for finding in found if finding.what == "untrained"))


async def train(run: Run) -> None:
    """Each stage begins with the weights of the one before; a resumed run enters the stage that it was in."""
    lost: LearnerLost | None = None
    while lost is not None or run.state.stage_index < len(run.config.stages):
        try:
            if lost is not None:
                await restore(run, lost)
            lost = None
            if run.state.stage_index < len(run.config.stages):
                await _run_stage(run)
        except LearnerLost as error:
            lost = error
    state = run.state
    if has_trained_nothing(state):
        raise RunFailed(": ".join([f"none of the {state.step} steps trained anything", *why_nothing(health(run))]))


async def _run_stage(run: Run) -> None:
    """The next stage, to the checkpoint that the one after it begins with."""
    started = time.monotonic()
    run.enter_stage()
    stage = run.active.stage
    await stage_of(stage.kind).run(run, stage)
    await run.tasks.cancel_background()
    run.end_stage(time.monotonic() - started)
    await checkpoint(run, stage)
    await run.tasks.until(wait_written(run))
