"""What each kind of stage takes: composed, refused in one line, and read back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run as rlsys
from launch.commands.train import refuse_fewer_steps
from launch.config.compose import compose, to_yaml
from launch.config.extend import has_more_steps, refuse_other_config
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.run.run import Run
from launch.driver.stages import STAGES
from launch.driver.stages.base import Stage, StageKeys, maker_of, needs_engines, stage_of
from launch.driver.stages.supervised import make_sample
from launch.driver.stages.train import arithmetic
from learners.algorithms import ALGORITHMS
from learners.algorithms.dpo import DPOConfig
from learners.algorithms.sft import SFTConfig
from rlsys.choices import choose
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, RunFailed
from tests.makers.made import jsonl
from tests.refused import refused
from tests.unit.launch.driver.stages import test_rl as driver
from tests.unit.launch.driver.stages.test_judge import PLAYED

SFT = "{name: a, kind: sft, steps: 2}"
GENERATE = "{name: tries, kind: generate, generate: {samples: 8}}"
JUDGE = "{name: judged, kind: judge, data: tries, reward: {name: swirl, judged_by: rules}}"
IN_PYTHON = JUDGE.replace("rules}", "rules}, env: {name: python_math}")
BY_RULES = "{name: tries, kind: generate, reward: {name: swirl, judged_by: rules}}"
DPO = "{name: b, kind: dpo, data: tries, epochs: 2}"


def composed(tmp_path: Path, *stages: str, head: str = "", overrides: tuple[str, ...] = ()) -> Any:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"env: {{name: calculator, train_tasks: 16}}\n{head}\nstages: [{', '.join(stages)}]\n")
    return compose(str(path), list(overrides))


def test_each_kind_has_its_algorithm_and_reads_back(tmp_path: Path) -> None:
    config = composed(
        tmp_path, SFT, GENERATE, DPO, "{name: c, kind: sft, data: tries, steps: 3}", head="algorithm: {name: rloo}"
    )
    sft, tries, dpo, again = config.stages
    assert isinstance(sft.config.algorithm, SFTConfig)
    assert isinstance(dpo.config.algorithm, DPOConfig)
    assert (tries.steps, tries.config.generate.samples) == (0, 8)
    assert (dpo.steps, dpo.epochs, dpo.data) == (0, 2.0, "tries")
    assert (maker_of(config, dpo), maker_of(config, again), maker_of(config, sft)) == (tries, tries, None)
    assert [needs_engines(config, stage) for stage in config.stages] == [False, True, True, True]
    (tmp_path / "again.yaml").write_text(to_yaml(config))
    assert compose(str(tmp_path / "again.yaml"), []) == config
    text = "\n".join(arithmetic(config)[0])
    assert "trajectories = 16 tasks x 8 = 128" in text
    assert "steps = 2 epochs x examples / 32, rounded up" in text


def test_states_of_an_earlier_stage_are_trained_on(tmp_path: Path) -> None:
    judge = JUDGE.replace("rules", "rules, outcome: exact")
    steps = "{name: s, kind: stepwise, data: judged, epochs: 2, verdicts: {keep: process}}"
    config = composed(tmp_path, GENERATE, judge, steps)
    tries, judged, stepwise = config.stages
    assert (maker_of(config, judged), maker_of(config, stepwise)) == (tries, judged)
    assert (stepwise.config.algorithm.name, stepwise.steps, stepwise.epochs) == ("swirl", 0, 2.0)
    text = "\n".join(arithmetic(config)[0])
    assert "states = of what stage judged leaves: known when it is over, verdicts.keep=process" in text
    assert "verdicts = every step of tries, by rules, answers by exact" in text


def test_epochs_over_the_states_of_a_file_are_steps(tmp_path: Path) -> None:
    jsonl(tmp_path / "judged.jsonl", PLAYED)  # of four states
    stage = f"{{name: s, kind: stepwise, data: {tmp_path / 'judged.jsonl'}, epochs: 3, loop: {{groups_per_step: 5}}}}"
    config = composed(tmp_path, stage)
    assert config.stages[0].steps == 3
    assert any("states = 4 of" in line for line in arithmetic(config)[0])


def test_epochs_over_a_file_are_steps(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    jsonl(pairs, [{"prompt": f"{n}?", "chosen": "yes", "rejected": "no"} for n in "abcde"])
    dpo = f"{{name: b, kind: dpo, data: {pairs}, epochs: 3, loop: {{groups_per_step: 4}}}}"
    config = composed(tmp_path, dpo)
    assert (config.stages[0].steps, config.stages[0].epochs) == (4, None)  # 3 x 5 / 4, rounded up
    assert not needs_engines(config, config.stages[0])
    config = composed(tmp_path, dpo, overrides=("eval.every=1", "eval.share=0.4"))
    assert config.stages[0].steps == 3  # 2 of the 5 are held out
    assert any(f"examples = 3 of {pairs}, 2 more held out" in line for line in arithmetic(config)[0])
    pairs.unlink()
    with refused(where="pairs.jsonl", says="cannot be read"):
        composed(tmp_path, dpo)
    assert composed(tmp_path, dpo.replace("epochs: 3", "steps: 3")).stages[0].steps == 3  # as rlsys eval reads it later


@pytest.mark.parametrize(
    ("stages", "line"),
    [
        (["{kind: sfft, steps: 1}"], f"kind='sfft': expected one of {', '.join(STAGES)} (did you mean 'sft'?)"),
        ([SFT, "{name: t, kind: generate, steps: 3}"], "stages.t.steps=3: a generate stage plays every training task"),
        (["{name: a/b, kind: sft, steps: 1, learner: {optimizer: run}}"], "name='a/b': expected letters"),
        (["{name: ../../x, kind: rl, steps: 1}"], "name='../../x': expected letters"),
        (["{name: .., kind: eval}"], "name='..': expected letters"),
        (['{name: "a\\e[2J", kind: generate}'], r"name='a\x1b[2J': expected letters"),
        (
            [SFT, "{name: r, kind: rl, steps: 1, algorithm: {name: ppo}, learner: {optimizer: run}}"],
            "stages.r: learner.optimizer='run': the optimizer of stage a has no critic, and this one has",
        ),
        (["{name: d, kind: dpo, steps: 1}"], "stages.d: a dpo stage without data"),
        (
            [GENERATE, "{name: r, kind: rl, steps: 1, data: tries}"],
            "stages.r.data='tries': an rl stage plays env's tasks",
        ),
        ([GENERATE, "{name: d, kind: dpo, steps: 1, data: trys}"], "the generate stages before it (tries) nor a file"),
        ([GENERATE, "{name: d, kind: dpo, steps: 1, data: trys}"], "did you mean 'tries'?"),
        (["{name: d, kind: dpo, steps: 1, data: tries}", GENERATE], "neither a generate stage before it nor a file"),
        ([GENERATE, "{name: d, kind: dpo, data: tries}"], "stages.d: expected exactly one of steps and epochs"),
        (
            [GENERATE, "{name: d, kind: dpo, data: tries, steps: 1, epochs: 1}"],
            "expected exactly one of steps and epochs",
        ),
        (
            [GENERATE, "{name: d, kind: dpo, data: tries, epochs: -1}"],
            "stages.d.epochs=-1: expected a number, 0 or more",
        ),
        (
            [GENERATE, "{name: d, kind: dpo, data: 3, epochs: 1}"],
            "stages.d.data=3: expected the name of a generate stage",
        ),
        (
            [GENERATE, "{name: d, kind: dpo, data: tries, steps: 1, algorithm: {name: grpo}}"],
            "expected 'dpo' in a dpo stage",
        ),
        (
            [GENERATE, "{name: d, kind: dpo, data: tries, steps: 1, eval: {every: 2}, learner: {reference: run}}"],
            "stages.d: learner.reference='run': ",
        ),
        (
            ["{name: t, kind: generate, generate: {keep: some}}"],
            "generate.keep='some': expected one of all, best, correct",
        ),
        (["{name: s, kind: stepwise, steps: 2}"], "stages.s.data=None: expected the name of a judge or generate stage"),
        (
            [GENERATE, "{name: s, kind: stepwise, data: tries, steps: 2, curriculum: {name: difficulty}}"],
            "stages.s: curriculum.name='difficulty': expected uniform: states have no levels",
        ),
        (
            [GENERATE, "{name: s, kind: stepwise, data: tries, steps: 2, env: {name: search_qa, protocol: research}}"],
            "stages.s: the tools of protocol research answer inside of the model's turn, where no state ends",
        ),
        (
            ["{name: s, kind: stepwise, data: x.jsonl, steps: 2, env: {name: search_qa, protocol: iter_retgen}}"],
            "stages.s: the tools of protocol iter_retgen start new contexts, where no state ends",
        ),
        ([GENERATE, "{name: j, kind: judge, data: tries}"], "stages.j: reward.name='answer': expected swirl"),
        ([GENERATE, "{name: j, kind: judge, data: tries, steps: 3}"], "stages.j.steps=3: a judge stage judges every"),
        (
            [GENERATE, "{name: s, kind: stepwise, data: tries, steps: 2, verdicts: {keep: process}}"],
            "stages.s.data='tries' with verdicts.keep=process, verdicts.equal=False: nobody judged these trajectories",
        ),
        (
            [GENERATE, JUDGE, "{name: s, kind: sft, data: judged, steps: 2, verdicts: {equal: true}}"],
            "stages.s: verdicts.keep=none, verdicts.equal=True: expected stages.judged.reward.outcome",
        ),
        (
            [GENERATE, JUDGE, "{name: d, kind: dpo, data: judged, steps: 2}"],
            "stages.d.data='judged': a judge stage makes no pairs, expected 'tries'",
        ),
        (
            [GENERATE, "{name: d, kind: dpo, data: tries, steps: 2, verdicts: {keep: process}}"],
            "stages.d.data='tries' with verdicts.keep=process, verdicts.equal=False: a pair has no verdicts",
        ),
        (
            [BY_RULES, "{name: s, kind: sft, data: tries, steps: 2, verdicts: {keep: outcome}}"],
            "stages.s: verdicts.keep=outcome, verdicts.equal=False: expected stages.tries.reward.outcome",
        ),
        ([GENERATE, IN_PYTHON], "stages.judged: reward.judged_by='rules' reads the calls of swirl and swirl_math"),
        (["{name: j, kind: judge, data: {a.jsonl: 3}}"], "expected the name of a generate stage, or a path"),
        (["{name: t, kind: generate, generate: {per_task: 0}}"], "generate.per_task=0: expected at least 1, or null"),
    ],
)
def test_what_a_kind_has_no_use_for_is_one_clear_line(tmp_path: Path, stages: list[str], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        composed(tmp_path, *stages)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_punished_length_is_one_that_can_be_reached() -> None:
    reward = ["reward.overlong_buffer=32", "reward.max_length=200"]
    turns = "rollout.max_turn_tokens=50"  # of 4
    assert compose("quickstart", [*reward, turns, "rollout.max_response_tokens=200"])
    with refused("reward.max_length", found=200, expected="rollout.max_response_tokens=199"):
        compose("quickstart", [*reward, turns, "rollout.max_response_tokens=199"])
    with refused("reward.max_length", says="at most rollout.max_turn_tokens=49"):
        compose("quickstart", [*reward, "rollout.max_turn_tokens=49"])


@pytest.mark.parametrize("kind", ["cosine", "classic"])
def test_every_reward_with_a_limit_is_held_to_it(kind: str) -> None:
    sums = ["reward.max_length=161", f"reward.kind={kind}"]
    with refused("reward.max_length", where="stages.rl", found=161):
        compose("worlds/sums", sums)
    assert compose("worlds/sums", [*sums, "rollout.max_turn_tokens=161"])
    with refused("reward.max_length", found=513, expected="engine.max_model_len=512"):
        compose("worlds/python", ["reward.max_length=513"])  # as many messages as the window holds
    assert compose("worlds/sums", ["reward.kind=base_model", "reward.max_length=14336"])  # looks at no length


def test_a_reward_that_is_written_for_another_way_of_calling_is_refused() -> None:
    few = ["env.train_tasks=8", "env.held_out_tasks=8"]
    with refused(
        "reward.name", where="stages.rl", found="research", expected="the protocol research, or another reward"
    ):
        compose("worlds/python", [*few, "reward.name=research"])
    assert compose("worlds/python", [*few, "reward.name=judged"])  # reads the answer alone
    with refused("reward.name", expected="the protocol icrl, or another reward.tool"):
        compose("worlds/python", [*few, "reward.name=icrl"])
    assert compose("worlds/python", [*few, "reward.name=icrl", "reward.tool=code"])


def test_how_a_judge_is_asked_needs_a_judge(capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["env.train_tasks=64", "env.held_out_tasks=8", "reward.judge.max_tokens=100"]
    with refused("reward.judge.max_tokens", where="stages.rl", found=100):
        compose("worlds/sums", overrides)
    assert compose("worlds/sums", [*overrides, "reward.judge.model=judge"])
    assert rlsys(["train", "worlds/sums", *overrides[:2], "reward.name=swirl", "--dry-run"]) == 2
    assert "reward.name='swirl': it asks a judge" in capsys.readouterr().err


def test_token_streams_need_an_algorithm_that_reads_them() -> None:
    stream, few = "reward.repetition_penalty=-0.05", ["env.train_tasks=64", "env.held_out_tasks=8"]
    instead = "reward.repetition_penalty=0, or algorithm.name=ppo or reinforce_pp"
    for name in ("grpo", "rloo", "swirl"):
        with refused("reward.name", where="stages.rl", found="long_cot", expected=instead, says=name):
            compose("worlds/sums", [*few, stream, f"algorithm.name={name}"])
    for name in ("ppo", "reinforce_pp"):
        assert compose("worlds/sums", [*few, stream, f"algorithm.name={name}"])
    for kind in ("classic", "base_model"):  # they come without
        assert compose("worlds/sums", [*few, f"reward.kind={kind}", "reward.repetition_penalty=null"])
    with refused("reward.name", says="token stream 'repetition'"):
        compose("worlds/sums", [*few, "reward.repetition_penalty=null"])


def test_a_run_that_was_begun_before_a_rule_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "step-000001").mkdir(parents=True)
    begun = to_yaml(compose("worlds/sums", [])).replace("repetition_penalty: 0.0", "repetition_penalty: -0.05")
    (run / "config.yaml").write_text(begun)
    with refused("reward.name", says="token stream"):
        compose(str(run / "config.yaml"), [])
    refuse_other_config(run, compose("worlds/sums", []), DriverState())


def test_one_critic_and_two_discounts_need_a_lambda_of_one() -> None:
    ppo = ["algorithm.name=ppo", "algorithm.lam=0.95"]
    few = ["env.train_tasks=64", "env.held_out_tasks=8"]
    assert compose("quickstart", ppo)
    assert compose("worlds/sums", [*ppo, *few, "reward.repetition_penalty=0"])
    assert compose("worlds/sums", [*ppo, *few, "reward.kind=base_model"])  # as section 5 has it
    with refused("algorithm.lam", where="stages.rl", found=0.95):
        compose("worlds/sums", [*ppo, *few, "reward.repetition_penalty=null"])


def test_a_run_goes_on_with_the_examples_that_it_began_with(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    jsonl(path, [{"prompt": f"{n}?", "chosen": "a", "rejected": "b"} for n in range(9)])
    dpo = f"{{name: b, kind: dpo, data: {path}, steps: 3, eval: {{every: 2}}}}"
    run = tmp_path / "run"
    (run / "checkpoints" / "step-000001").mkdir(parents=True)
    (run / "config.yaml").write_text(to_yaml(composed(tmp_path, dpo)))
    refuse_other_config(run, composed(tmp_path, dpo, overrides=("eval.every=3", "learner.lr=0.1")), DriverState())
    for key in ("share=0.5", "tasks=3"):
        with pytest.raises(BadInput, match=rf"it was begun with stages.b.eval.{key.split('=')[0]}="):
            refuse_other_config(run, composed(tmp_path, dpo, overrides=(f"eval.{key}",)), DriverState())


def test_what_a_stage_stands_for_may_not_change_in_its_middle(tmp_path: Path) -> None:
    rl = "{name: a, kind: rl, steps: 3, loop: {groups_per_step: 4, group_size: 4}}"
    run = tmp_path / "run"
    (run / "checkpoints" / "step-000001").mkdir(parents=True)
    (run / "config.yaml").write_text(to_yaml(composed(tmp_path, rl)))
    fine = composed(tmp_path, rl, overrides=("algorithm.clip_low=0.1", "learner.lr=0.1"))
    refuse_other_config(run, fine, DriverState(stage_step=1))
    for override, difference in (
        ("algorithm.name=gspo", "stages.a.algorithm.name='grpo', not 'gspo'"),
        ("loop.group_size=8", "stages.a.loop.group_size=4, not 8"),
    ):
        other = composed(tmp_path, rl, overrides=(override,))
        refuse_other_config(run, other, DriverState())  # the stage is yet to begin
        with pytest.raises(BadInput, match=rf"it was begun with {difference}: choose another directory$"):
            refuse_other_config(run, other, DriverState(stage_step=1))


def test_a_finished_run_that_gets_more_steps_is_the_one_that_it_was(tmp_path: Path) -> None:
    templates = "{{name: a, kind: sft, steps: {}}}", "{{name: b, kind: rl, steps: {}, loop: {{groups_per_step: 4}}}}"

    def stages(first: int, last: int, *overrides: str) -> RunConfig:
        return composed(tmp_path, templates[0].format(first), templates[1].format(last), overrides=overrides)

    run, finished = tmp_path / "run", DriverState(step=5, stage_index=2)
    (run / "checkpoints" / "step-000005").mkdir(parents=True)
    (run / "config.yaml").write_text(to_yaml(stages(2, 3)))
    refuse_other_config(run, stages(2, 6, "learner.lr=0.1"), finished)
    for override in ("loop.group_size=2", "curriculum.name=difficulty", "algorithm.name=rloo"):
        key = override.partition("=")[0]
        with pytest.raises(BadInput, match=rf"it was begun with stages.b.{key}="):
            refuse_other_config(run, stages(2, 6, override), finished)
    for others, difference in ((stages(4, 6), "stages.a.steps=2, not 4"), (stages(2, 2), "stages.b.steps=3, not 2")):
        with pytest.raises(BadInput, match=difference):
            refuse_other_config(run, others, finished)
    refuse_other_config(run, stages(4, 6), DriverState(step=1, stage_step=1))  # both are yet to end


@pytest.mark.parametrize(("steps", "prompts", "least"), [(5, 0, 6), (6, 0, 0), (7, 8, 8), (8, 8, 0), (8, 9, 9)])
def test_what_has_been_begun_fits_into_the_steps_that_are_left(
    tmp_path: Path, steps: int, prompts: int, least: int
) -> None:
    """After six steps of four prompts each, with some more of them open."""
    rl = f"{{name: a, kind: rl, steps: {steps}, loop: {{groups_per_step: 4}}}}"
    (stage,) = composed(tmp_path, rl).stages
    state = DriverState(step=6, stage_step=6, open_sequences=list(range(24, 24 + prompts)))
    if not least:
        refuse_fewer_steps(stage, state)
        return
    with refused("stages.a.steps", expected=f"at least {least}"):
        refuse_fewer_steps(stage, state)


def test_checkpoints_without_their_configuration_are_not_continued(tmp_path: Path) -> None:
    config = composed(tmp_path, "{name: a, kind: sft, steps: 3}")
    run = tmp_path / "run"
    refuse_other_config(run, config, DriverState())
    (run / "checkpoints" / "step-000001").mkdir(parents=True)
    with refused(where="config.yaml", says="restore it"):
        refuse_other_config(run, config, DriverState())


def test_an_algorithm_that_a_kind_has_nothing_for_is_refused() -> None:
    recipe = compose("quickstart", []).recipe
    for name in ALGORITHMS:
        of_name = replace(recipe, algorithm=choose("algorithm", ALGORITHMS, name).schema())
        for kind in ("sft", "dpo"):  # demonstrations have no rewards to learn from, and only one takes pairs
            if name != kind:
                with refused("algorithm.name", where="stages.a", found=name, expected=f"'{kind}'"):
                    stage_of(kind).check("stages.a", StageKeys(kind=kind, data="f.jsonl"), of_name)
    with refused("algorithm.name", where="stages.rl", found="dpo"):
        compose("quickstart", ["stages.rl.algorithm.name=dpo"])  # pairs would be of answers to different questions
    with refused("algorithm.name", where="stages.sft", found="rloo"):
        compose("quickstart", ["stages.sft.algorithm.name=rloo"])


def test_a_reward_that_a_list_of_names_would_earn_is_for_evaluation() -> None:
    own = ["reward.name=summary", "reward.kind=wikidyk"]
    with refused(where="stages.rl", says="reward.kind='wikidyk' without a"):
        compose("quickstart", own)
    compose("quickstart", [*own, "reward.judge.model=m", "reward.judge.endpoint=http://127.0.0.1:1/v1"])
    compose("quickstart", ["reward.name=summary", "reward.kind=strategyqa"])


# -- a kind of one's own ----------------------------------------------------------------------------------------------


class Drill(Stage):
    """Says the right token, over and over: `[7, 1]`, of which the 1 is learned."""

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        if head.data is not None:
            raise BadInput(f"{where}.data: a drill knows what to say")

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        return [*super().arithmetic(config, stage), "drills = always the same"]

    async def run(self, run: Run, stage: StageConfig) -> None:
        from launch.driver.stages.supervised import Prepared, train_steps

        samples = [make_sample((7, 1), (0, 1))] * stage.config.loop.groups_per_step
        await run.begin_stage(stage)
        await train_steps(run, stage, lambda _: Prepared(samples))


DRILL = "stages: [{name: warm, kind: drill, epochs: 1}, {name: rl, kind: rl, steps: 3}]\n"


@pytest.fixture
def _drill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAGES, "drill", f"{__name__}.Drill")


@pytest.mark.usefixtures("_drill")
def test_a_new_kind_is_composed_and_its_arithmetic_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(driver.HEAD + DRILL)
    assert rlsys(["train", str(path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "warm (drill)              tasks = 4 steps x 4 = 16 (1.00 epochs of 16; " in out
    assert "warm (drill)              drills = always the same" in out
    assert rlsys(["train", str(path), "--dry-run", "stages.warm.data=x.jsonl"]) == 2
    assert "stages.warm.data: a drill knows what to say" in capsys.readouterr().err
    assert rlsys(["train", str(path), "--dry-run", "stages.warm.kind=dril"]) == 2
    assert f"expected one of {', '.join(STAGES)} (did you mean 'drill'?)" in capsys.readouterr().err


@pytest.mark.usefixtures("_drill")
def test_a_new_kind_trains_and_is_resumed(tmp_path: Path) -> None:
    stopped = driver.play(
        tmp_path, stages=DRILL, on_row=lambda run, row: run.tasks.stop.set() if row["step"] == 3 else None
    )
    assert stopped.error is not None and stopped.run.state.stage_step == 3
    outcome = driver.play(tmp_path, stages=DRILL)
    assert outcome.error is None and outcome.run.state.step == 7
    logged = driver.rows(tmp_path)
    assert [(row["stage"], row["stage_step"]) for row in logged] == [
        *(("warm", step) for step in (1, 2, 3, 4)),
        *(("rl", step) for step in (1, 2, 3)),
    ]
    for row in logged:  # one unit in every kind of stage
        assert row["tokens/trained_per_s"] == pytest.approx(row["tokens/trained"] / row["time/step"])
        assert row["tokens/packed_per_s"] == pytest.approx(row["tokens/packed"] / row["time/step"])
    assert (logged[0]["tokens/trained"], logged[0]["tokens/packed"]) == (4, 8)
    assert outcome.run.state.eval_before["greedy"] == 1.0  # what rl begins with is what was drilled


class Evaluated(Drill):
    """It is killed in what follows its last step."""

    async def run(self, run: Run, stage: StageConfig) -> None:
        await super().run(run, stage)
        raise RunFailed("killed")


def test_the_last_supervised_step_is_saved_before_what_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, dict[str, Any]]] = []
    for kind in (Evaluated, Drill):
        monkeypatch.setitem(STAGES, "drill", f"{__name__}.{kind.__name__}")
        outcome = driver.play(tmp_path, stages=DRILL, on_row=lambda run, row: taken.append((run.journal.lineage, row)))
        if kind is Evaluated:
            assert str(outcome.error) == "killed"
            newest = outcome.run.dir.newest()
            assert newest is not None and newest.name == "step-000004"
    assert outcome.error is None
    assert [row["stage"] for lineage, row in taken if lineage == 1] == ["rl"] * 3


def test_data_that_cannot_be_read_are_found_before_a_run_starts(tmp_path: Path) -> None:
    config = composed(tmp_path, "{name: a, kind: sft, steps: 2, data: /no/such.jsonl}")
    (stage,) = config.stages
    with refused(where="such.jsonl", says="cannot be read"):
        stage_of(stage.kind).ready(config, stage)


@pytest.mark.parametrize(("before", "now"), [("epochs: 2", "steps: 5"), ("steps: 5", "epochs: 2")])
def test_a_stage_whose_length_was_in_epochs_is_not_extended(tmp_path: Path, before: str, now: str) -> None:
    """Its steps follow from data: neither of the two numbers says how many more there are."""
    learns = "{name: learn, kind: sft, data: tries, "
    (tmp_path / "config.yaml").write_text(to_yaml(composed(tmp_path, GENERATE, learns + before + "}")))
    assert not has_more_steps(DriverState(), tmp_path, composed(tmp_path, GENERATE, learns + now + "}"))
