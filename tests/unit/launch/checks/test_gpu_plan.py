"""`--dry-run` for GPUs on a machine that has none: every rank and engine is shown, what cannot fit is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from actors.specs import make_engine_spec
from launch.checks import machine
from launch.checks.gpu_memory import shape_of
from launch.checks.gpu_plan import gpu_plan, host_bytes, plan_engine, shared_cache_mb
from launch.checks.known_models import KNOWN
from launch.cli import run
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from rlsys.system.device import DEVICES, resolve_run
from tests.makers.made import trained
from tests.refused import refused

BIG = ["model.path=Qwen/Qwen2.5-32B", "learner.zero_stage=3"]
DATA: list[str] = []  # overrides that name some problems, in the place of those that the recipes name
RECIPES = sorted((CONFIGS / "gpu").glob("*.yaml"))


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model is here."""
    for name, first in (("train", 0), ("held_out", 100)):
        lines = [json.dumps({"question": f"What is {first + index} + 1?", "answer": "1"}) for index in range(64)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(machine, "DRIVERS", ())  # no GPU: this machine's disk and RAM are not the run's
    DATA[:] = [f"env.data={tmp_path / 'train.jsonl'}", f"env.eval_data={tmp_path / 'held_out.jsonl'}"]


def dry(capsys: pytest.CaptureFixture[str], config: str, *overrides: str) -> tuple[int, str, str]:
    code = run(["train", config, "--dry-run", *(DATA if "gpu/" in config else []), *overrides])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_for_gpus_fits_and_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = dry(capsys, str(path))
    assert code == 0
    memory = [line.split(maxsplit=3)[3].split() for line in out.splitlines() if "memory (GPU)" in line]
    assert [line[0] for line in memory[2:]] == ["rank", "engine", "/dev/shm", "reading", "host"]
    assert memory[2][2] == memory[3][2] == "80"
    assert "gradient_checkpointing: true" in out and "enforce_eager: false" in out


def rows_of(out: str) -> dict[str, str]:
    """The rows of the table, with one space between words."""
    lines = [" ".join(line.split()[3:]) for line in out.splitlines() if "memory (GPU)" in line]
    return {line.split()[0]: line for line in lines}


def test_the_comment_of_a_recipe_is_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    row = "11.5 activations of a row of 16384 tokens"
    rows = rows_of(dry(capsys, "gpu/qwen2.5-7b-8xa100")[1])
    assert rows["rank"].startswith(f"rank 60.2 80 15.2 weights + 15.2 gradients + 18.3 optimizer + {row} (5 ranks")
    assert rows["engine"].startswith(
        "engine 68.0 80 15.2 weights + 2.2 one step + 50.6 KV cache (3 engines; room for 882,"
    )
    assert "121.8 a checkpoint" in rows["host"]  # 7.6 G x (12 + 2 + 2): all ranks are on that node
    two = rows_of(dry(capsys, "gpu/qwen2.5-7b-16xa100")[1])
    assert two["rank"].startswith(f"rank 45.0 80 15.2 weights + 9.1 gradients + 9.1 optimizer + {row} (10 ranks")
    short = rows_of(dry(capsys, "gpu/qwen2.5-7b-16xa100-short")[1])
    assert short["rank"].startswith(f"rank 42.4 80 15.2 weights + 8.1 gradients + 7.6 optimizer + {row} (12 ranks")
    shared = rows_of(dry(capsys, "gpu/qwen2.5-7b-8xa100-64k")[1])
    part = "11.5 activations of 1/4 of a row of 65536 tokens"
    assert shared["rank"].startswith(f"rank 67.8 80 15.2 weights + 18.2 gradients + 22.8 optimizer + {part} (4 ranks")
    code, out, err = dry(capsys, "gpu/qwen2.5-7b-8xa100-64k", "learner.sequence_parallel=1")
    whole = "33.5 activations of a row of 65536 tokens"
    assert (code, rows_of(out)["rank"].partition(whole)[1]) == (2, whole) and "rank 89.8" in rows_of(out)["rank"]
    row_32b = "21.3 activations of a row of 16384 tokens"
    engine = "engines on 4 cards each; room for 774,"
    parts = "engine 68.0 80 16.4 weights + 0.9 one step + 50.7 KV cache"
    four = rows_of(dry(capsys, "gpu/qwen2.5-32b-32xa100")[1])
    assert four["rank"].startswith(f"rank 54.3 80 6.8 weights + 6.6 gradients + 19.7 optimizer + {row_32b} (20 ranks")
    assert four["engine"].startswith(f"{parts} (3 {engine}")
    away = rows_of(dry(capsys, "gpu/qwen2.5-32b-16xa100")[1])
    assert away["rank"].startswith(f"rank 36.9 80 11.7 weights + 3.9 gradients + 0.0 optimizer + {row_32b} (8 ranks")
    host = "host 1,114.0 524.2 offloaded + 458.7 a checkpoint + 131.1 versions (on a node with 8 ranks"
    assert away["engine"].startswith(f"{parts} (2 {engine}") and away["host"].startswith(host)
    instead = rows_of(
        dry(capsys, "gpu/qwen2.5-32b-16xa100", "learner.ranks=12", "rollout.workers=1", "learner.offload=none")[1]
    )
    assert instead["rank"].startswith("rank 74.0 80") and "offloaded" not in instead["host"]


def test_a_recipe_without_its_problems_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = dry(capsys, "gpu/qwen2.5-7b-8xa100", "env.data=/nothing/there.jsonl")
    assert (code, err.count("\n")) == (2, 1) and "/nothing/there.jsonl: cannot be read" in err
    assert "15.2 weights" in out
    assert all("data: data/" in path.read_text() or "extends: qwen2.5-7b" in path.read_text() for path in RECIPES)


def test_what_a_node_keeps_in_ram_is_refused_past_it() -> None:
    config = compose("gpu/qwen2.5-32b-16xa100", [])
    full = resolve_run(config, DEVICES["cuda"]).stages[0].config
    for ram, fits in ((None, True), (1200e9, True), (1000e9, False)):
        plan = gpu_plan(full, [trained(full)], DEVICES["cuda"], None, ram)
        assert (plan.problem is None) == fits
    assert plan.problem is not None and "keep 1114 GB in its RAM of 1000 GB: try ranks on more nodes" in plan.problem
    on_disk = replace(full, cluster=replace(full.cluster, weights_dir="/local/weights"))
    assert gpu_plan(on_disk, [trained(on_disk)], DEVICES["cuda"], None, 1000e9).problem is None  # 983 GB
    size = host_bytes(full, [full], DEVICES["cuda"], None)
    assert size == pytest.approx((16 + 14) * 32.76e9 / 8, rel=1e-3)
    assert host_bytes(full, [full], DEVICES["cpu"], None) == 0


def test_judges_of_evaluation_sets_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    judged = "eval.sets.judged={reward: {name: judged, judge: {model: some/judge, gpus: 2}}}"
    _, out, _ = dry(capsys, "gpu/qwen2.5-7b-8xa100", judged)
    assert "3 engines x 1 + 5 ranks + 2 of services = 10" in out


@pytest.mark.parametrize(
    ("keys", "advised"),
    [
        (["learner.ranks=4", "cluster.gpu_memory_gb=40"], "learner.sequence_parallel=4"),
        (["learner.ranks=4", "cluster.gpu_memory_gb=18", "engine.max_model_len=16384"], "learner.sequence_parallel=2"),
        (["learner.ranks=2", "model.path=Qwen/Qwen3-8B", "cluster.gpu_memory_gb=30"],
         "learner.ranks=8 learner.sequence_parallel=8"),
    ],
)  # fmt: skip
def test_sharing_a_row_is_advised_where_nothing_else_helps(keys: list[str], advised: str) -> None:
    """Each step of the ladder before it is taken already."""
    more = ["learner.zero_stage=3", "learner.offload=optimizer", "engine.max_model_len=131072"]
    config = compose("gpu/qwen2.5-7b-8xa100", [*DATA, *more, *keys])
    full = resolve_run(config, DEVICES["cuda"]).stages[0].config
    problem = gpu_plan(full, [trained(full)], DEVICES["cuda"], None).problem
    assert problem is not None and f"try {advised}" in problem
    taken = compose("gpu/qwen2.5-7b-8xa100", [*DATA, *more, *keys, *problem.partition("try ")[2].split()])
    full = resolve_run(taken, DEVICES["cuda"]).stages[0].config
    assert gpu_plan(full, [trained(full)], DEVICES["cuda"], None).problem != problem  # a rank fits now
    assert "a learner rank" not in str(gpu_plan(full, [trained(full)], DEVICES["cuda"], None).problem)


def test_the_context_that_is_advised_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """A card that holds the weights, and 20,000 tokens in the place of 65,536: nothing but a shorter context helps."""
    config = compose(
        "gpu/qwen2.5-7b-8xa100", [*DATA, "engine.max_model_len=65536", "engine.gpu_memory_utilization=0.92"]
    )
    full = resolve_run(config, DEVICES["cuda"]).stages[0].config
    card = 22.0
    for _ in range(2):
        shape = shape_of(KNOWN["Qwen/Qwen2.5-7B"])
        assert shape is not None
        _, problem = plan_engine(replace(shape, heads=1), full, "bfloat16", card)
        if problem is None:
            break
        key, _, tokens = problem.rpartition("try ")[2].partition("=")
        assert key == "engine.max_model_len" and int(tokens) % 1024 == 0
        longer = replace(full, engine=replace(full.engine, max_model_len=int(tokens) + 1024))
        assert plan_engine(replace(shape, heads=1), longer, "bfloat16", card)[1] is not None  # it is the longest
        full = replace(full, engine=replace(full.engine, max_model_len=int(tokens)))
    assert problem is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["learner.ranks=1"], "needs about 182 GB of a GPU's 80 (cluster.gpu_memory_gb): try learner."),
        (["model.gradient_checkpointing=false"], "try model.gradient_checkpointing=true"),
        (["learner.zero_stage=1"], "try learner.zero_stage=2"),
        (["algorithm.kl_coef=0.01", "learner.ranks=4"], "try learner.offload_reference=true"),
        (["learner.ranks=1", "model.gradient_checkpointing=false"], "model.gradient_checkpointing=true and"),
        (["engine.gpu_memory_utilization=0.2"], "try engine.gpu_memory_utilization=0.92"),
        ([*BIG, "learner.ranks=16", "cluster.gpu_memory_gb=70"], "try engine.tensor_parallel=2"),
        ([*BIG, "learner.ranks=8"], "try learner.ranks=16"),
        (["cluster.gpu_memory_gb=24"], "a learner rank needs"),
    ],
)  # fmt: skip
def test_what_cannot_fit_is_refused_with_the_key_to_change(
    changes: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = dry(capsys, "gpu/qwen2.5-7b-8xa100", *changes)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert said in err
    assert "memory (GPU)" in out  # the arithmetic is shown before it is refused


def test_the_key_that_is_proposed_helps(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["learner.ranks=1", "model.gradient_checkpointing=false"]
    for _ in range(3):
        code, _, err = dry(capsys, "gpu/qwen2.5-7b-8xa100", *changes)
        if code == 0:
            break
        changes += err.strip().rsplit("try ", 1)[1].split(" and ")
    assert code == 0, err


def test_a_model_that_is_not_here_cannot_be_counted(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = dry(capsys, "gpu/qwen2.5-7b-8xa100", "model.path=nobody/nothing")
    assert code == 0
    (report,) = [line for line in out.splitlines() if "memory (GPU)" in line]
    assert "unknown: model.path='nobody/nothing' is not on this machine, nor can its hub be asked" in report


def test_on_a_cpu_nothing_of_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = dry(capsys, "quickstart", "cluster.device=cpu")
    assert "memory (CPU)" in out and "memory (GPU)" not in out
    assert "cpu: model.gradient_checkpointing=false, engine.enforce_eager=true, rollout.threads=1" in out


ONE_GPU = ["model.lora.rank=32", "cluster.placement=shared", "learner.ranks=1", "rollout.workers=1"]


def test_a_rank_and_an_engine_on_one_gpu_fit_with_an_adapter_or_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = "gpu/qwen2.5-7b-8xa100"
    code, out, _ = dry(capsys, recipe, *ONE_GPU, "engine.gpu_memory_utilization=0.4")
    assert code == 0 and "an engine and a rank on each of 1, at the same time = 1" in out
    assert "0.2 adapter" in rows_of(out)["rank"] and "0.2 adapter" in rows_of(out)["engine"]
    code, _, err = dry(capsys, recipe, *ONE_GPU, "engine.gpu_memory_utilization=0.85")
    assert code == 2 and "do not fit on one GPU of 80 GB" in err
    share = float(err.rpartition("engine.gpu_memory_utilization=")[2])
    assert 0.4 < share < 0.7
    assert dry(capsys, recipe, *ONE_GPU, f"engine.gpu_memory_utilization={share}")[0] == 0
    code, _, err = dry(capsys, recipe, *ONE_GPU[1:], "engine.gpu_memory_utilization=0.4")
    assert code == 2 and "of a GPU's 80" in err  # with all weights trained


def test_an_engine_that_shares_its_gpu_gets_the_cache_that_was_planned() -> None:
    """0.4 x 80 GB - 15.2 of weights - 0.16 of the adapter's buffers - 2.2 of a step: about 14.4 GB."""
    keys = [*DATA, *ONE_GPU, "engine.gpu_memory_utilization=0.4"]
    recipe = resolve_run(compose("gpu/qwen2.5-7b-8xa100", keys), DEVICES["cuda"]).recipe
    cache = shared_cache_mb(recipe, DEVICES["cuda"], None)
    assert cache is not None and 14.2e9 < cache * 2**20 < 14.7e9
    assert (
        make_engine_spec(
            recipe.engine, DEVICES["cuda"], model_path="m", dtype="auto", seed=0, threads=1, gpu_cache_mb=cache
        ).kv_cache_mb
        == cache
    )
    assert shared_cache_mb(recipe, DEVICES["cpu"], None) is None
    unknown = replace(recipe, cluster=replace(recipe.cluster, gpu_memory_gb=None))
    with refused("cluster.gpu_memory_gb", says="no GPU to ask"):
        shared_cache_mb(unknown, DEVICES["cuda"], None)
    full = replace(recipe, engine=replace(recipe.engine, gpu_memory_utilization=0.15))
    with refused("engine.gpu_memory_utilization", found=0.15):
        shared_cache_mb(full, DEVICES["cuda"], None)
    alone = replace(recipe, cluster=replace(recipe.cluster, placement="split"))
    assert shared_cache_mb(alone, DEVICES["cuda"], None) is None


def test_a_reference_under_an_adapter_takes_no_memory_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is the run's first model, and the adapter stands on what a stage before has made of it."""
    keys = ["algorithm.kl_coef=0.01"]
    _, whole, _ = dry(capsys, "gpu/qwen2.5-7b-8xa100", *keys)
    _, adapted, _ = dry(capsys, "gpu/qwen2.5-7b-8xa100", *keys, "model.lora.rank=8")
    assert " reference" in rows_of(whole)["rank"] and " reference" not in rows_of(adapted)["rank"]
    keys = [*DATA, *keys, "model.lora.rank=8", "learner.reference=run"]
    rl = resolve_run(compose("gpu/qwen2.5-7b-8xa100", keys), DEVICES["cuda"]).stages[0].config
    taught = replace(
        rl, model=replace(rl.model, lora=replace(rl.model.lora, rank=0)), algorithm=replace(rl.algorithm, kl_coef=0.0)
    )
    for training, counted in (([trained(rl)], False), ([trained(taught, "sft"), trained(rl)], True)):
        fullest = replace(rl, learner=replace(rl.learner, tokens_per_row=200_000))
        rows = gpu_plan(rl, [*training[:-1], trained(fullest)], DEVICES["cuda"], None, None).rows
        assert ("reference" in dict(next(row for row in rows if row.name == "rank").parts)) == counted
