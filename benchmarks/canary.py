"""What the proofs of a delivery see, and how often they refuse a good engine: `python benchmarks/canary.py MODEL ...`.

One real engine and one real learner rank of MODEL (a folder; `scratch`: the quickstart's policy), in one process:
* good engines: start-up canaries and deliveries of true weights, over prompts, noises and roundings;
* stale tensors: the engine gets the canary's weights but for one tensor, which it has from before;
* broken engines: what is wrong in them is on one side of the comparison alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from report import Report, parser

from actors.engine import Engine
from actors.renderer import ChatRenderer
from actors.specs import make_engine_spec
from actors.weights.check import LoadCheck, WeightUpdate, measure
from actors.worker import LoadResult
from envs import make_world
from launch.config.compose import compose
from launch.driver.run import wire
from launch.driver.run.first_delivery import PROBE_TOKENS, cut_probe, long_probe_length
from launch.driver.run.weight_sync import WeightSync
from learners.algorithms.sft import SFT, SFTConfig
from learners.export import Weight, export_version, perturb_weights, weights
from learners.meeting import RankSpec
from learners.rank import LearnerRank
from rlsys.config.learner import LearnerConfig
from rlsys.probe import Probe, ProbeValues
from rlsys.rollout import tool_offer_of
from rlsys.system.device import DEVICES, resolve, rounding_units
from rlsys.system.weight_folder import WeightFolder, WeightManifest

# Where prompts come from. The last has prompts of a dozen tokens.
WORLDS = {"quickstart": (), "worlds/sums": (), "research/tiny": (), "worlds/blocksworld": (), "worlds/graph": (),
          "smollm2": ("env.demonstrations.count=0",)}  # fmt: skip


@dataclass
class OneLearner:
    """As `LearnerGroup`, of one rank in this process."""

    rank: LearnerRank
    node_ids: tuple[str, ...] = ()
    probe: Probe = field(init=False)  # of the latest version

    async def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return self.rank.logprobs(token_ids)

    async def measure(self, probe: Probe) -> ProbeValues:
        return self.rank.measure(probe)

    async def export(self, folder: WeightFolder, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        self.probe = probe
        return self.rank.export(folder, version, probe)


@dataclass
class OneEngine:
    """As a pool and its publisher. A refusal is kept, and ends nothing."""

    engine: Engine
    folder: WeightFolder
    carried: tuple[int, float] = (0, 0.0)
    checks: list[tuple[WeightUpdate, LoadCheck]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # never set: nothing is lost here

    @property
    def publisher(self) -> OneEngine:
        return self

    async def folder_on(self, nodes: Any) -> WeightFolder:
        return self.folder

    async def publish(self, update: WeightUpdate) -> list[LoadCheck]:
        await self.engine.load(update.published)
        logprobs = tuple([tuple(await self.engine.prompt_logprobs(ids)) for ids in update.probe])
        check = measure(LoadResult(version=update.version, seconds=0.0, probe_logprobs=logprobs), update)
        self.checks.append((update, check))
        shutil.rmtree(Path(update.published.places[0]).parent)
        return [check]


def prompts_of(path: str, draw: random.Random, windows: int) -> list[list[tuple[int, ...]]]:
    """For each of so many deliveries, a list of prompts of one world, in random order."""
    renderer, pools = ChatRenderer(path), []
    for name, changes in WORLDS.items():
        world = make_world(compose(name, changes).recipe.env)
        envs = [world.env(task) for task in world.tasks("held_out")[:64]]
        pools.append([tuple(renderer.prompt_ids(env.first_messages(), tool_offer_of(env))) for env in envs])
    return [
        draw.sample(pools[number % len(pools)], k=min(64, len(pools[number % len(pools)]))) for number in range(windows)
    ]


@contextmanager
def temporarily_changed(change: Callable[[], object], items: list[Weight]) -> Iterator[None]:
    originals = [item.tensor.detach().clone() for item in items]
    with torch.no_grad():
        change()
        yield
        for item, tensor in zip(items, originals, strict=True):
            item.tensor.copy_(tensor)


@dataclass
class Bench:
    rank: LearnerRank
    learner: OneLearner
    pool: OneEngine
    sync: WeightSync
    prompts: list[list[tuple[int, ...]]]
    length: int
    version: int = 0

    def take(self, number: int) -> tuple[int, ...]:
        """Probe of these prompts; returns the long one."""
        prompts = self.prompts[number]
        self.sync.probe = cut_probe(prompts, PROBE_TOKENS)
        return tuple(token for ids in prompts for token in ids)[: self.length]

    async def deliver(self, long: tuple[int, ...]) -> tuple[WeightUpdate, LoadCheck]:
        self.version += 1
        await self.sync.publish(await self.sync.export(self.version, long=long))
        return self.pool.checks[-1]

    async def try_good(self, count: int, long_every: int, report: Report) -> None:
        report.head("good engines", "checks", "refused", "gap of limit, mean", "most", "limit", "noise at last")
        rows: dict[str, list[tuple[WeightUpdate, LoadCheck]]] = {"true weights": [], "canary": []}
        noises: dict[str, float] = {}
        for number in range(count):
            long = self.take(number)
            await self.sync.canary()
            noises["canary"] = self.learner.probe.noise
            rows["canary"].append(self.pool.checks[-1])
            if number % 10 == 9:
                print(f"{number + 1} of {count}", file=sys.stderr)
            rows["true weights"].append(await self.deliver(long if number % long_every == 0 else ()))
        for name, checks in rows.items():
            shares = [check.gap_mean / update.limit for update, check in checks]
            limits = [update.limit for update, _ in checks]
            refused = sum(bool(check.refusal) for _, check in checks)
            mean, limit = sum(shares) / len(shares), sum(limits) / len(limits)
            report.row(name, len(checks), refused, mean, max(shares), limit, noises.get(name))

    async def try_stale(self, step: int, report: Report) -> None:
        self.take(0)
        model = self.rank.stage.models.policy.model
        await self.sync.canary()
        update, good = self.pool.checks[-1]
        noise, seed = self.learner.probe.noise, self.learner.probe.seed
        items = weights(model)
        originals = [item.tensor.detach().clone() for item in items]
        caught = bytes_caught = tried = bytes_tried = 0
        missed: list[str] = []
        with perturb_weights(model, noise, 1.0, seed):
            for number in range(0, len(items), step):
                item = items[number]
                with temporarily_changed(partial(item.tensor.copy_, originals[number]), [item]):
                    check = await self._load_as_it_is(update)
                tried, bytes_tried = tried + 1, bytes_tried + item.num_bytes
                if check.refusal:
                    caught, bytes_caught = caught + 1, bytes_caught + item.num_bytes
                else:
                    missed.append(f"{item.names[0]} {check.gap_mean:.3g}")
        report.head("stale", "tensors", "caught", "share", "share of bytes", "good gap", "limit", "noise")
        report.row(
            "one at a time",
            tried,
            caught,
            caught / tried,
            bytes_caught / bytes_tried,
            good.gap_mean,
            update.limit,
            noise,
        )
        report.note(f"missed: {', '.join(missed[:400]) or 'none'}")

    async def _load_as_it_is(self, update: WeightUpdate) -> LoadCheck:
        """The learner's weights as they are now, compared with what they should be."""
        policy = self.rank.stage.models.policy
        published = export_version(policy.model, self.pool.folder, -1000, rank=0, num_ranks=1, dtype=policy.dtype)
        return (await self.pool.publish(replace(update, published=published)))[0]

    async def try_broken(self, report: Report) -> None:
        long, model = self.take(0), self.rank.stage.models.policy.model
        update, good = await self.deliver(long)
        report.head("broken engine", "gap", "limit", "refused because")
        report.row("none", good.gap_mean, update.limit, good.refusal)
        for name, items, change in breaks(model):
            with temporarily_changed(change, items):
                check = await self._load_as_it_is(update)
            report.row(name, check.gap_mean, update.limit, check.refusal or "PASSED")


def breaks(model: Any) -> Iterator[tuple[str, list[Weight], Callable[[], object]]]:
    """Engines with one fault each: in the weights of the middle layer, or in the arithmetic, imitated by weights."""
    at = model.config.num_hidden_layers // 2
    items = {item.names[0]: item for item in weights(model)}

    def of(part: str, layer: int = at) -> Weight:
        return items[f"model.layers.{layer}.{part}.weight"]

    yield "a layer without attention", [of("self_attn.o_proj")], lambda: of("self_attn.o_proj").tensor.zero_()
    yield "a layer without its MLP", [of("mlp.down_proj")], lambda: of("mlp.down_proj").tensor.zero_()
    donor = of("self_attn.k_proj", at - 1)
    yield "another layer's k_proj", [of("self_attn.k_proj")], lambda: of("self_attn.k_proj").tensor.copy_(donor.tensor)
    norm = of("input_layernorm")
    yield "a norm of ones", [norm], lambda: norm.tensor.fill_(1.0)


def with_rope(path: str, change: dict[str, Any], folder: Path) -> str:
    """The same model with other positions."""
    shutil.copytree(path, folder)
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {"rope_theta": config["rope_theta"], "rope_type": "default"}
    scale = change.pop("times", 1.0)
    config["rope_parameters"] = {**rope, **change, "rope_theta": rope["rope_theta"] * scale}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def begin(rank: LearnerRank, path: str) -> None:
    rank.begin(path, LearnerConfig(zero_stage=1, tokens_per_row=4096), SFT(SFTConfig()), 1, 1.0)


async def play(options: argparse.Namespace, report: Report, folder: Path) -> None:
    device, path = DEVICES[options.device], options.model
    recipe = resolve(compose("quickstart", ()).recipe, device)
    if path == "scratch":
        path = str(folder / "scratch")
        wire.build_scratch_model(recipe, Path(path))
    recipe = replace(recipe, model=replace(recipe.model, path=path, dtype=options.dtype))
    window = options.window or recipe.engine.max_model_len
    engine = replace(recipe.engine, max_model_len=window, max_num_seqs=8, kv_cache_mb=512)
    spec = make_engine_spec(engine, device, model_path=path, dtype=options.dtype, seed=0, threads=2)
    # First: the rank's variables would make the engine a part of its group.
    pool = OneEngine(await Engine.start(spec), WeightFolder.open("canary", folder))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rank = LearnerRank(
        RankSpec(
            rank=0, world_size=1, master_addr="127.0.0.1", master_port=port, device=device, dtype=options.dtype,
            gradient_checkpointing=False, seed=0,
        )
    )  # fmt: skip
    begin(rank, path)
    draw, tokens = random.Random(options.seed), len(ChatRenderer(path).tokenizer)
    try:
        learner = OneLearner(rank)
        sync = WeightSync(learner, pool, rounding_units(recipe, device))  # type: ignore[arg-type]
        count = max(options.good, 1)
        bench = Bench(rank, learner, pool, sync, prompts_of(path, draw, count), long_probe_length(window, tokens))
        if options.good:
            await bench.try_good(options.good, options.long_every, report)
        if options.broken:
            await bench.try_broken(report)
            for name, change in (
                ("RoPE base x 10", {"times": 10.0}),
                ("RoPE x 1.25", {"rope_type": "linear", "factor": 1.25}),
            ):
                begin(rank, with_rope(path, dict(change), folder / name.replace(" ", "-")))
                update, check = await bench.deliver(bench.take(0))
                report.row(name, check.gap_mean, update.limit, check.refusal or "PASSED")
        if options.stale:
            begin(rank, path)
            await bench.try_stale(options.stale, report)
    finally:
        pool.engine.stop()


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("model", help="a Hugging Face folder, or scratch")
    cli.add_argument("--device", choices=list(DEVICES), default="cpu")
    cli.add_argument("--dtype", default="bfloat16")
    cli.add_argument("--window", type=int, help="engine.max_model_len; default: the quickstart's")
    cli.add_argument("--good", type=int, default=5, help="canaries and true deliveries of a good engine")
    cli.add_argument("--long-every", type=int, default=5, help="deliveries of which one has the long sample too")
    cli.add_argument("--broken", action="store_true", help="try the broken engines")
    cli.add_argument("--stale", type=int, default=0, help="leave every so-manieth tensor stale; 0: none")
    cli.add_argument("--seed", type=int, default=0)
    options = cli.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Report(options) as report:
        asyncio.run(play(options, report, Path(folder)))


if __name__ == "__main__":
    main()
