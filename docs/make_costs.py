"""Writes the table of costs of docs/recipes.md, of every recipe for GPUs: `python docs/make_costs.py`.

Seconds are the planner's. What a recipe leaves to its data, and how long answers are, is assumed here, in one place.
"""

import os
import re
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launch.commands.config import fill_between
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from launch.driver.stages.base import needs_engines
from launch.driver.stages.train import gpus_of_services
from launch.tools.plan.plan import time_recipe
from launch.tools.plan.schedule import Timed
from launch.tools.plan.split import split_of
from rlsys.config.recipe import RunConfig, StageConfig

PAGE = Path(__file__).parent / "recipes.md"
BEGIN, END = "<!-- python docs/make_costs.py -->", "<!-- end of costs -->"
HEAD = ("recipe", "GPUs", "tokens an answer", "GPU-hours", "of them", "at the limit", "besides")
PAPERS = ("research", "icrl", "graph_rl", "swirl", "long_cot")
SMALL = re.compile("tiny|smollm2")  # trained on two cores
MODELS = runpy.run_path(str(Path(__file__).with_name("served_models.py")))["served_models"]()


@dataclass(frozen=True)
class Assumed:
    """examples: that a stage with `epochs` over what an earlier stage makes goes through in one. tries: tasks of a
    generate stage that names no number. The recipe says how long answers are: `about.answer_tokens`."""

    examples: int = 0
    tries: int = 0


STATES = 3  # of a trajectory of SWiRL
ASSUMED = {  # by the longest beginning of a recipe's name
    "": Assumed(),
    "icrl": Assumed(examples=25_000),  # half of 10,000 x 5 answers are right
    "graph_rl": Assumed(examples=1000, tries=1000),
    "swirl": Assumed(examples=25_600 * STATES, tries=10_000),  # half of 50,000 trajectories pass the filter
    "swirl/ablations/sft": Assumed(examples=25_600, tries=10_000),
    "swirl/ablations/gsm8k": Assumed(examples=19_100 * STATES, tries=7473),
    "long_cot": Assumed(examples=200_000),  # of 240,000 answers of the teacher
}
os.environ.setdefault("SERPER_KEY", "none")  # of live-web: nobody is asked here, but a key has to be there
VERDICT_TOKENS = 1000  # of a question to SWiRL's judge; and of its answer, thoughts included


@dataclass(frozen=True)
class Cost:
    """hours: of each stage that has any, with all GPUs of the run held. at_limit: every answer as long as allowed."""

    gpus: int
    tokens: int
    hours: Mapping[str, float]
    at_limit: float
    verdicts: int  # of a judge at an address
    judge: str

    def cells(self) -> tuple[str, ...]:
        parts = {name: self.gpus * hours for name, hours in self.hours.items()}
        if not parts:
            return (str(self.gpus), "", "evaluation alone", "", "", self.besides)
        each = ", ".join(f"{name} {rounded(part)}" for name, part in parts.items()) if len(parts) > 1 else ""
        total, limit = rounded(sum(parts.values())), rounded(self.gpus * self.at_limit)
        return (str(self.gpus), f"{self.tokens:,}", total, each, limit, self.besides)

    @property
    def besides(self) -> str:
        if not self.verdicts:
            return ""
        prices = MODELS[self.judge].prices
        assert prices is not None, self.judge
        dollars = self.verdicts * VERDICT_TOKENS * sum(prices) / 1e6
        return f"{rounded(self.verdicts)} verdicts of `{self.judge}`: {rounded(dollars)} USD"


def rounded(number: float) -> str:
    """Two digits: no more is known."""
    digits = len(str(int(number))) - 2
    return f"{round(number, -digits) if digits > 0 else round(number):,.0f}"


def recipes() -> list[str]:
    """For GPUs: all files of the papers but the miniatures, their settings, and SmolLM2's."""
    names = [
        name
        for paper in PAPERS
        for path in [CONFIGS / paper / "paper.yaml", *sorted((CONFIGS / paper).rglob("*.yaml"))]
        if not SMALL.search(name := str(path.relative_to(CONFIGS).with_suffix("").as_posix()))
    ]
    return [name.removesuffix("/paper") for name in dict.fromkeys(names)]


def assumed_for(recipe: str) -> Assumed:
    return ASSUMED[max((name for name in ASSUMED if recipe.startswith(name)), key=len)]


def cost_of(recipe: str) -> Cost:
    config, assumed = compose(recipe, []), assumed_for(recipe)
    split, engines = split_of(config.recipe), any(needs_engines(config, stage) for stage in config.stages)
    timings = list(time_stages(config, assumed))
    tries = assumed.tries * config.recipe.generate.samples
    actions = [stage for stage in config.stages if stage.kind == "stepwise"]
    judging = [stage for stage in config.stages if stage.kind == "judge"]
    verdicts = tries * (STATES + 1) if judging else 0
    verdicts += sum(steps_of(stage, assumed) * answers_of(stage) for stage in actions)
    return Cost(
        gpus=gpus_of_services(config) + (split.gpus if engines else split.ranks),
        tokens=timings[-1].tokens if timings else 0,
        hours={timing.stage: timing.hours for timing in timings},
        at_limit=sum(timing.at_limit for timing in timings),
        verdicts=verdicts,
        judge=judging[-1].config.reward.judge.model if judging else "",
    )


@dataclass(frozen=True)
class Timing:
    """tokens: of an answer, no more than the stage allows. at_limit: hours if every answer has as many as it allows."""

    stage: str
    hours: float
    at_limit: float
    tokens: int = 0


def time_stages(config: RunConfig, assumed: Assumed) -> Iterator[Timing]:
    """Of all but evaluations, each as if it were one of rl: what is played takes the engines' time of its step, what is
    imitated the learner's, and the verdicts on a set what the judge's limit lets through."""
    for stage in config.stages:
        if stage.kind == "judge":
            per_minute = stage.config.reward.judge.requests_per_minute
            hours = assumed.tries * config.recipe.generate.samples * (STATES + 1) / per_minute / 60
            yield Timing(stage.name, hours, hours)
        elif stage.kind != "eval" and not (stage.kind == "generate" and stage.config.generate.teacher.given):
            alone, about = replace(config, stages=(as_rl(stage),)), config.recipe.about
            longest = time_recipe(alone)
            assert longest is not None and about.answer_tokens is not None, stage.name
            imitates = stage.kind in ("sft", "dpo")  # answers that this stage's limits did not end
            tokens = about.answer_tokens if imitates else min(about.answer_tokens, round(longest.answers.packed))
            usual = time_recipe(alone, tokens, about.prefill_tokens)
            assert usual is not None, stage.name
            hours, most = (hours_of(stage, assumed, timed) for timed in (usual, longest))
            yield Timing(stage.name, hours, max(hours, most), tokens)


def hours_of(stage: StageConfig, assumed: Assumed, timed: Timed) -> float:
    forecast = timed.forecast
    if stage.kind == "generate":
        played = (stage.config.generate.tasks or assumed.tries) * stage.config.generate.samples
        return played * timed.answers.mean_tokens / (stage.config.rollout.workers * forecast.rate) / 3600
    seconds = forecast.update_s if stage.kind in ("sft", "dpo") else forecast.seconds
    return steps_of(stage, assumed) * seconds / 3600


def as_rl(stage: StageConfig) -> StageConfig:
    """One example of an sft stage, two of a pair, are answers of a step."""
    sizes = {"sft": 1, "dpo": 2}
    loop = stage.config.loop
    config = replace(stage.config, loop=replace(loop, group_size=sizes.get(stage.kind, loop.group_size)))
    return replace(stage, kind="rl", config=config)


def steps_of(stage: StageConfig, assumed: Assumed) -> int:
    if stage.epochs is None:
        return stage.steps
    return round(stage.epochs * assumed.examples / stage.config.loop.groups_per_step)


def answers_of(stage: StageConfig) -> int:
    return stage.config.loop.groups_per_step * stage.config.loop.group_size


def make_rows(names: list[str]) -> dict[str, tuple[str, ...]]:
    return {name: cost_of(name).cells() for name in names}


def make_table() -> str:
    """Recipes that cost the same share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cells in make_rows(recipes()).items():
        alike.setdefault((name.partition("/")[0], *cells), []).append(name)
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    for (_, *cells), names in alike.items():
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(fill_between(PAGE.read_text(), BEGIN, END, make_table()))


if __name__ == "__main__":
    main()
