"""Every benchmark starts: its options are read, and what it builds of the project is what the project has."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import math
import os
import pkgutil
import random
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import psutil
import pytest

from launch.config.compose import compose
from launch.driver.run.first_delivery import make_long_probe, make_probe
from launch.driver.run.weight_sync import WeightSync
from rlsys.probe import Probe, ProbeValues
from rlsys.system.device import RoundingUnits
from rlsys.system.weight_folder import WeightManifest
from tests.makers import made
from tests.paths import ROOT

FOLDER = ROOT / "benchmarks"
PARTS = {"coin", "report", "study", "usage", "http_load", "scripted"}  # of other benchmarks
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in PARTS)
STUDIES = {  # and what reads a run that has ended
    "curriculum": "curriculum.curve",
    "lag": "lag.measure",
    "graph_rl": "graph_rl.numbers",
    "graph_rl_misread": "graph_rl_misread.numbers",
    "graph_rl_paths": "graph_rl_paths.numbers",
    "long_cot": "long_cot.numbers",
    "long_cot_rechecks": "long_cot.numbers",
    "long_cot_tries": "long_cot_tries.numbers",
    "research_controls": "research_controls.numbers",
    "swirl": "swirl.numbers",
    "swirl_controls": "swirl.numbers",
    "learning": "learning.numbers",
}


@pytest.fixture(autouse=True)
def beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def called(pattern: str, *files: str) -> set[str]:
    """The methods of an actor that these files call."""
    return {name for file in files for name in re.findall(pattern, (ROOT / file).read_text())} - {"__ray_call__"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_options_are_read(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert not ended.value.code and "--json" in capsys.readouterr().out


def test_the_scripted_worker_has_what_a_pool_calls() -> None:
    from actors.worker import RolloutWorker

    methods = called(r"handle\.(\w+)\.(?:remote|options)", "actors/pool.py", "actors/weights/publisher.py")
    assert {"start", "run_group", "load_weights", "connect"} <= methods
    agree(load("scripted").ScriptedWorker, RolloutWorker, methods)


def test_what_a_soak_takes_the_time_of_is_there() -> None:
    assert all(callable(pkgutil.resolve_name(place)) for place in load("soak").GUARDS)


def test_the_scripted_worker_says_what_a_worker_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = load("scripted")
    script = scripted.Script(tokens=8, failing=0.5)
    monkeypatch.setenv(scripted.SCRIPT, json.dumps(asdict(script)))
    spec = scripted.make_run(script, tmp_path).pool.workers[0].spec

    async def play() -> None:
        worker = scripted.ScriptedWorker(spec)
        status = await worker.start()
        await worker.load_weights(WeightManifest(version=3), ((1, 2),))
        assert (status.version, (await worker.ping()).version) == (0, 3)
        summaries, group = await worker.run_group(made.ticket(), None)
        assert len(group.trajectories) == len(summaries) == scripted.GROUP

    asyncio.run(play())


def test_the_scripted_rank_has_what_a_group_calls_and_touches_no_model() -> None:
    from learners.actor import LearnerActor

    scripted = load("scripted").ScriptedRank
    methods = called(r"rank\.(\w+)\.remote", "learners/group.py")
    assert {"start", "snapshot", "write", "export"} <= methods
    agree(scripted, LearnerActor, methods)
    for name in methods:
        assert not re.search(r"self\.(rank|_snapshot)\b", inspect.getsource(getattr(scripted, name))), name


def test_the_engine_of_the_canary_takes_what_a_run_delivers(tmp_path: Path) -> None:
    """Whatever a run asks of a pool and its publisher, this one has too."""
    place = tmp_path / "version" / "bucket"
    place.parent.mkdir()

    class Learner:
        node_ids = ()

        async def export(self, folder: Any, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
            values = [[-1.0] * (len(ids) - 1) for ids in probe.samples]
            manifest = WeightManifest(version=version, places=(str(place),))
            return manifest, ProbeValues(logprobs=values, rounded=values)

    class Engine:
        async def load(self, manifest: WeightManifest) -> None:
            assert manifest.places == (str(place),)

        async def prompt_logprobs(self, ids: Sequence[int]) -> list[float]:
            return [-1.5] * (len(ids) - 1)

    pool = load("canary").OneEngine(engine=Engine(), folder=tmp_path)
    sync = WeightSync(cast("Any", Learner()), pool, RoundingUnits(products=2**-8, rest=2**-8))
    sync.probe = ((1, 2, 3), (4, 5))

    async def deliver() -> None:
        await sync.publish(await sync.export(1))

    asyncio.run(deliver())
    assert [check.gap_mean for _, check in pool.checks] == [0.5] and sync.gap["mismatch/probe_mean"] == 0.5


def agree(scripted: type, real: type, methods: set[str]) -> None:
    public = {name for name, entry in vars(scripted).items() if inspect.isfunction(entry) and not name.startswith("_")}
    for name in methods:
        assert callable(getattr(scripted, name, None)), f"{scripted.__name__} lacks {name}"
    for name in public & methods:
        ours, theirs = (list(inspect.signature(getattr(cls, name)).parameters) for cls in (scripted, real))
        assert len(ours) == len(theirs), f"{name}{ours}, expected {theirs}"


def test_the_scripted_driver_builds_its_run(tmp_path: Path) -> None:
    scripted = load("scripted")
    run = scripted.make_run(scripted.Script(groups=1, tokens=8, steps=1, keep=0), tmp_path)
    assert make_probe(run), "what engine and learner are compared on"
    assert len(make_long_probe(run)) == 4096
    assert run.learner.num_ranks == 1 and run.config.stages[0].steps == 1


def test_the_page_shows_the_scripted_sweep_and_the_simulation_still_says_the_same(tmp_path: Path) -> None:
    asynchrony, page = load("asynchrony"), (ROOT / "docs" / "how-to" / "choose-a-lag.md").read_text()
    results = json.loads(asynchrony.RESULTS.read_text())
    with load("report").Report(argparse.Namespace(json=tmp_path / "told.json")) as report:
        asynchrony.tell(report, results)
    output = json.loads((tmp_path / "told.json").read_text())
    for row in output["tables"][0]["rows"]:
        assert f"| {' | '.join(map(load('report').text, row))} |" in page
    assert output["notes"][0] in page
    script = asynchrony.DEFAULT
    for name, variant in asynchrony.scripts_of(script).items():
        assert asynchrony.middle(asynchrony.predict(variant), script) == pytest.approx(
            results["points"][name]["predicted_s"]
        )


def test_a_buffer_that_breaks_the_rule_joins_the_results_under_their_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asynchrony, results = load("asynchrony"), tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["asynchrony", "--smallest", "--variant", "discarding", "--results", str(results)])
    with pytest.raises(SystemExit, match="no results"):
        asynchrony.main()
    with monkeypatch.context() as patch, pytest.raises(SystemExit, match="2"):  # nothing is measured to be thrown away
        patch.setattr(sys, "argv", ["asynchrony", "--draw", "--variant", "discarding", "--results", str(results)])
        asynchrony.main()
    published = json.loads(asynchrony.RESULTS.read_text())
    results.write_text(json.dumps(published))
    played = []

    def measure(script: Any, variant: type) -> dict[str, Any]:
        played.append((script, variant))
        return published["variants"]["discarding"] | {"left_out": 7}

    monkeypatch.setattr(asynchrony, "measure", measure)
    monkeypatch.setattr(asynchrony, "start_ray", lambda cpus: None)
    asynchrony.main()
    assert played == [(replace(asynchrony.DEFAULT, lag=1, steps=240), asynchrony.Discarding)]
    stored = json.loads(results.read_text())
    assert stored["variants"].pop("discarding")["left_out"] == 7
    published["variants"].pop("discarding")
    assert stored == published
    assert "| first-come |" in capsys.readouterr().out


def test_all_of_them_are_run_together_or_left_out_with_a_reason() -> None:
    everything = load("everything")
    together = [bench.name for bench in everything.BENCHES]
    assert sorted([*together, *everything.OTHERS, "everything"]) == SCRIPTS


@pytest.mark.parametrize("name", ["plan", "fuzz", "agents"])
def test_a_figure_is_taken_from_what_the_script_wrote(name: str, tmp_path: Path) -> None:
    everything = load("everything")
    bench = next(bench for bench in everything.BENCHES if bench.name == name)
    shortest = {"fuzz": ("--seconds", "0.1"), "agents": ("--episodes", "2")}
    bench = replace(bench, arguments=shortest.get(name, bench.arguments))
    assert everything.measure(bench, tmp_path, again=False)
    tables = json.loads((tmp_path / f"{name}.json").read_text())["tables"]
    assert all(figure.take(tables) for figure in bench.figures)


def test_what_fails_is_told_and_what_is_done_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = load("everything")
    rates = everything.Figure(
        "two to one", everything.ratio(everything.cell("b", "rate"), everything.cell("a", "rate"))
    )
    slow = everything.Bench("graphs", ("--seconds", "no number"), (rates,))
    products = everything.Bench("products", ("--nonsense",), (rates,))
    (tmp_path / "products.json").write_text(
        json.dumps(
            {
                "tables": [{"columns": ["what", "rate"], "rows": [["a", 2.0], ["b", 5.0]]}],
                "measured": {"commit": "0ld", "load": "7.5 before", "processor": "another, 2 cores"},
            }
        )
    )
    monkeypatch.setattr(everything, "BENCHES", (slow, products))
    options = argparse.Namespace(out=tmp_path, only=["graphs", "products"], again=False, json=None)
    assert everything.run(options) == 1
    assert "no number" in (tmp_path / "graphs.log").read_text()
    rows = json.loads((tmp_path / "all.json").read_text())["tables"][1]["rows"]
    kept_from = "kept: commit 0ld, load 7.5 before, another, 2 cores"
    assert rows == [["graphs", "failed", None, None], ["products", "two to one", "2.50", kept_from]]


def test_what_is_measured_is_kept_with_its_commit_and_its_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = load("everything")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "quick.py").write_text(
        "import sys; open(sys.argv[sys.argv.index('--json') + 1], 'w').write('{\"tables\": []}')"
    )
    monkeypatch.setattr(everything, "ROOT", tmp_path)
    monkeypatch.setattr(everything, "describe_machine", lambda: {"commit": "abc", "load": "0.1 before", "memory": "1"})
    bench = everything.Bench("quick", (), ())
    assert everything.measure(bench, tmp_path, again=False) > 0
    assert everything.measure(bench, tmp_path, again=False) == 0
    report = json.loads((tmp_path / "quick.json").read_text())
    assert report["measured"] == everything.describe_machine()
    assert everything.origin_of(report) == "kept: commit abc, load 0.1 before, processor unknown"
    assert everything.origin_of({}) == "kept: commit unknown, load unknown, processor unknown"


def test_what_a_script_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends in order, and one that does not listen."""
    everything = load("everything")
    monkeypatch.setattr(everything, "END_S", 2.0)
    trains = "import pathlib, signal, sys, time\n"
    trains += "def end(*_):\n    pathlib.Path('ended').touch()\n    sys.exit(143)\n"
    trains += "signal.signal(signal.SIGTERM, end)\npathlib.Path('up').touch()\ntime.sleep(600)\n"
    deaf = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    deaf += "pathlib.Path('deaf').touch(); time.sleep(600)"
    script = "import subprocess, sys, time\n"
    script += "print(*[subprocess.Popen([sys.executable, '-c', code]).pid for code in sys.argv[1:]], flush=True)\n"
    script += "time.sleep(600)\n"
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", script, trains, deaf], stdout=log, start_new_session=True)
        while not ((tmp_path / "up").exists() and (tmp_path / "deaf").exists()):
            time.sleep(0.05)
        everything.end_group(process)
    pids = [int(pid) for pid in (tmp_path / "log").read_text().split()]
    assert len(pids) == 2 and not [pid for pid in pids if lives(pid)]
    assert (tmp_path / "ended").exists()


def test_a_script_that_takes_too_long_has_no_exit_code(tmp_path: Path) -> None:
    everything = load("everything")
    with (tmp_path / "log").open("w") as log:
        assert everything.run_script([sys.executable, "-c", "import time; time.sleep(600)"], log, 0.5) is None
        assert everything.run_script([sys.executable, "-c", "raise SystemExit(3)"], log, 60.0) == 3


def lives(pid: int) -> bool:
    """One that is gone may wait for whoever reaps it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_growth_is_told_from_noise() -> None:
    soak, draw = load("soak"), random.Random(0)
    noisy = [{"s": float(at), "flat": 100 + draw.random(), "grows": 100 + at / 30 + draw.random()} for at in range(600)]
    assert soak.fit(noisy, "flat")["verdict"] == "flat"
    fit = soak.fit(noisy, "grows")
    assert fit["verdict"] == "grows" and fit["interval"][0] < 15 < fit["interval"][1]  # 450 s of 1/30 a second


def test_the_learner_builds_its_batch_and_its_algorithms() -> None:
    learner = load("learner")
    batch = learner.make(argparse.Namespace(tokens=50, row=256, vocab=64))
    assert batch.num_tokens >= 50 and all(make() for make in learner.ALGORITHMS.values())


def test_the_comparison_with_trl_composes_its_recipe(tmp_path: Path) -> None:
    trl = load("trl")
    for model, folder in ((None, "made"), (Path("/shared/model"), "given")):
        (tmp_path / folder).mkdir()
        trl.prepare(argparse.Namespace(steps=1, seed=0, model=model), tmp_path / folder)
        for reward in trl.REWARDS:
            stage = compose(str(tmp_path / folder / f"{reward}.yaml"), []).stages[0]
            assert stage.steps == 1 and stage.config.model.path == str(model or tmp_path / folder / "model")
            assert list(stage.config.reward.functions) == [f"benchmarks.trl.{reward}"]  # both sides have this one alone


def test_the_rewards_of_the_comparison_with_trl() -> None:
    trl = load("trl")
    completions = [[{"role": "assistant", "content": text}] for text in ("12 + 30 = 42", "42 or 43", "none")]
    assert trl.right(completions, ["42", "42", "42"]) == [1.0, 0.0, 0.0]
    assert trl.brief(completions, ["42", "42", "42"]) == pytest.approx([1 - 0.012, -0.008, -0.004])
    assert trl.letters(completions)[2] == 0.25


def test_the_comparison_with_trl_counts_a_whole_tree_and_keeps_the_callers_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trl, usage = load("trl"), load("usage")
    holds = "held = bytearray(60_000_000); print(flush=True); input()"
    shell = ["sh", "-c", f"'{sys.executable}' -c '{holds}'; true"]  # the memory is a child's
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        seconds: dict[int, float] = {}
        assert 0.06e9 < usage.look_at_tree(process.pid, seconds) < 0.2e9 and len(seconds) == 2
        process.communicate(b"\n")
    assert usage.look_at_tree(process.pid, seconds) == 0 and len(seconds) == 2
    with pytest.raises(subprocess.CalledProcessError):
        usage.use(["false"], {}, ".")
    looks = usage.Usage([(100.0, 0.0, 5_000_000_000), (110.0, 10.0, 1_000_000_000), (120.0, 30.0, 7_000_000_000)])
    # Processor seconds: 5 until 105, 20 until 115, for two steps.
    assert trl.used(looks, [101.0, 105.0, 110.0, 115.0]) == {"steps_gb": 1.0, "peak_gb": 7.0, "processor_s": 7.5}
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert trl.path_with(Path("/a"), Path("/b"))["PYTHONPATH"] == "/a:/b:/mine"
    monkeypatch.delenv("PYTHONPATH")
    assert trl.path_with(Path("/a"))["PYTHONPATH"] == "/a"


def test_a_command_whose_benchmark_is_ended_ends_with_all_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage, processes = load("usage"), list[psutil.Process]()

    def interrupted(pid: int, seconds: dict[int, float]) -> int:
        while len(psutil.Process(pid).children()) < 2:
            pass
        processes.extend((psutil.Process(pid), *psutil.Process(pid).children()))
        raise KeyboardInterrupt

    monkeypatch.setattr(usage, "look_at_tree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        usage.use(["sh", "-c", "sleep 600 & sleep 600 & wait"], {"PATH": os.environ["PATH"]}, str(tmp_path))
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert len(processes) == 3 and not alive


def test_rows_of_another_model_or_seed_are_no_rows_of_this_one(tmp_path: Path) -> None:
    starts = load("starts")
    options = argparse.Namespace(
        model=tmp_path / "smol", seed=0, tasks=50, dtype="float32", rows=tmp_path / "rows.json", worlds=["swirl"]
    )
    rows = {"swirl-chat": {"asked": {"model": "smol", "seed": 0, "tasks": 50, "dtype": "float32"}}}
    assert starts.missing({}, options) == ["swirl"] and starts.missing(rows, options) == []
    for key, value in {"model": tmp_path / "large", "seed": 1, "tasks": 100, "dtype": "bfloat16"}.items():
        with pytest.raises(SystemExit, match="rows.json"):
            starts.missing(rows, argparse.Namespace(**{**vars(options), key: value}))
    assert starts.missing(rows, argparse.Namespace(**{**vars(options), "model": None, "seed": 1})) == []


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_composes_each_of_its_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, configs = load(name), []

    def train(config: str, folder: Path, changes: list[str]) -> None:
        configs.append(compose(config, changes))

    count_runs: Callable[..., dict[str, Any]] = lambda *_: {"made": len(configs)}  # noqa: E731
    monkeypatch.setattr(module.study, "train", train)
    monkeypatch.setattr(STUDIES[name], count_runs)
    arms = module.play_seed(0, tmp_path) if hasattr(module, "play_seed") else module.play(1, tmp_path)
    assert len(arms) >= 2
    assert configs and all(config.stages for config in configs)


def test_faults_are_compared_with_a_run_without_them() -> None:
    faults = load("faults")
    calm = {"code": 0, "wall_s": 90.0, "accuracy": 0.5}
    arms = {"0 %": calm, "10 %": calm | {"wall_s": 100.0}, "1 %": calm | {"code": 1}}
    assert faults.effective(arms, 10) == 0.9 and math.isnan(faults.effective(arms, 1))
    assert math.isnan(faults.effective(arms, 5))
    assert faults.interval(0.5, 100) == "0.500 [0.404, 0.596]"
    hit = {"code": 0, "costs": [{"hit": True}, {"hit": False}]}
    assert faults.kills({"driver": hit}) == 1 and faults.kills({"driver": hit | {"code": 1}}) == 0


def test_steps_that_were_taken_again_are_those_with_two_seals(tmp_path: Path) -> None:
    rows = [{"step": step, "time/step": 2.0, "time/wait_rollout": 0.5} for step in (1, 2, 3)]
    rows[1]["time/checkpoint"] = 0.25
    seals = [{"event": "seal", "name": f"metrics.jsonl {step}", "digest": ""} for step in (1, 2, 3, 2, 3)]
    for name, lines in (("metrics", rows), ("journal", seals)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    repeated = load("faults").repeated_step_costs(tmp_path)
    assert repeated == {"steps": 2, "seconds": 4.0, "wait_s": 1.0, "checkpoint_s": 0.25}
