"""A damaged checkpoint is found before anything is trained on it, and the one before it is offered."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from launch.driver.checkpoints import checkpoint as checkpoints
from launch.driver.checkpoints.checkpoint import Damaged, DriverState, file_digests, read_digests, read_state, verify
from launch.driver.run.engines import find_checkpoint
from launch.driver.run.rundir import RunDir
from rlsys.errors import BadInput
from tests.refused import refused

MODEL, OPTIMIZER = "hf/model.safetensors", "learner/state/optim_states.pt"
CONTENT = {MODEL: save({"a": torch.zeros(300)}), "hf/config.json": b'{"model_type": "qwen3"}' + b" " * 300}
FILES = (MODEL, "hf/config.json", "hf/tokenizer.json", OPTIMIZER)


def made(tmp_path: Path) -> RunDir:
    """A run directory with two checkpoints."""
    run = RunDir(tmp_path / "run")
    for step in (100, 160):
        folder = run.begin_checkpoint(step)
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(CONTENT.get(name, f"{name} of {step}".encode() * 50))
        run.commit_checkpoint(folder, DriverState(step=step, mark=3 * step, eval_before={"greedy": 0.25}), keep=2)
    return run


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def opened(run: RunDir) -> None:
    """As `rlsys train` does."""
    newest = run.newest()
    assert newest is not None
    run.load_state(newest)
    run.verify(newest, print)


@pytest.mark.parametrize("name", [*FILES, "driver.json"])
@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda path: path.write_bytes(path.read_bytes()[:40]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.unlink(),
    ],
    ids=["a flipped bit", "cut", "longer", "missing"],
)
def test_any_damage_is_one_line_that_names_the_file_and_the_older_one(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    run = made(tmp_path)
    opened(run)
    damaged = run.path / "checkpoints" / "step-000160" / name
    damage(damaged)
    with pytest.raises(BadInput) as caught:
        opened(run)
    line = str(caught.value)
    assert line.startswith(str(damaged))
    assert line.endswith("--resume-from step-000100")
    assert "\n" not in line
    older = run.checkpoint_named("step-000100")
    assert run.load_state(older).mark == 300
    assert run.verify(older, print)


def test_no_flipped_bit_of_the_drivers_part_is_read(tmp_path: Path) -> None:
    folder = made(tmp_path).checkpoint_named("step-000160")
    whole = (folder / "driver.json").read_bytes()
    for place in range(0, len(whole), 7):
        (folder / "driver.json").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(Damaged):
            read_state(folder)


def test_a_file_in_the_place_of_a_checkpoint(tmp_path: Path) -> None:
    run = made(tmp_path)
    (run.path / "checkpoints" / "step-000200").write_text("")
    with refused(says="step-000200: damaged: expected the"):
        opened(run)


def test_the_first_checkpoint_has_none_to_go_back_to(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.commit_checkpoint(run.begin_checkpoint(5), DriverState(step=5), keep=2)
    (tmp_path / "checkpoints" / "step-000005" / "driver.json").write_text("[]")
    with refused(says="driver.json: a list, expected a"):
        opened(run)


def test_a_checkpoint_without_digests_is_taken_as_it_is(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    folder = run.begin_checkpoint(7)
    state = DriverState(step=7, reward_last=0.5, publish_s=[0.25])
    (folder / "driver.json").write_text(json.dumps(asdict(state), indent=1))
    saved = folder.rename(folder.with_name("step-000007"))
    assert run.load_state(saved) == state
    assert not run.verify(saved, print)
    run.renew_checkpoint(saved, DriverState(step=7, stage_index=1))  # its weights are still compared with nothing
    assert run.load_state(saved).stage_index == 1
    assert not run.verify(saved, print)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"stepp": 1}, "unknown key 'stepp'"),
        ({"step": "7"}, "step is a text, expected a number"),
        ({"reward_first": []}, "reward_first is a list, expected a number"),
        ({"restarts": None}, "restarts is null, expected an object"),
    ],
)
def test_without_digests_what_does_not_fit_is_still_named(tmp_path: Path, change: dict[str, object], line: str) -> None:
    (tmp_path / "driver.json").write_text(json.dumps(asdict(DriverState()) | change))
    with pytest.raises(Damaged, match=f"driver.json: .*{line}"):
        read_state(tmp_path)


def test_a_renewed_checkpoint_keeps_the_digests_of_its_weights(tmp_path: Path) -> None:
    run = made(tmp_path)
    newest = run.checkpoint_named("step-000160")
    before = read_digests(newest)
    run.renew_checkpoint(newest, DriverState(step=160, stage_index=1))
    assert run.load_state(newest).stage_index == 1
    assert read_digests(newest) == before == file_digests(newest)
    flip(newest / OPTIMIZER)
    with pytest.raises(BadInput, match=OPTIMIZER):
        run.verify(newest, print)


def test_newer_checkpoints_are_set_aside_and_kept(tmp_path: Path) -> None:
    run = made(tmp_path)
    with refused("--resume-from", says="step-000010: no such checkpoint in"):
        run.checkpoint_named("step-000010")
    older = run.checkpoint_named("step-000100")
    assert [path.name for path in run.set_aside_after(older)] == ["aside-step-000160"]
    assert run.newest() == older
    assert run.set_aside_after(older) == []
    for n in (160, 200):  # trained again, and gone back from again
        run.commit_checkpoint(run.begin_checkpoint(n), DriverState(step=n), keep=9)
    assert [path.name for path in run.set_aside_after(older)] == ["aside1-step-000160", "aside-step-000200"]
    assert (run.path / "checkpoints" / "aside-step-000160" / MODEL).is_file()
    assert run.begin_checkpoint(101).is_dir()
    assert len(list((run.path / "checkpoints").glob("aside*"))) == 3


def test_an_evaluation_looks_at_the_model_alone(tmp_path: Path) -> None:
    from launch.config.compose import compose

    recipe = compose("quickstart", []).recipe
    run = made(tmp_path)
    newest = run.checkpoint_named("step-000160")
    for path in (run.path, newest, newest / "hf"):
        assert find_checkpoint(recipe, str(path)) == str((newest / "hf").resolve())
    flip(newest / OPTIMIZER)  # no evaluation reads it
    find_checkpoint(recipe, str(run.path))
    flip(newest / MODEL)
    for path in (run.path, newest, newest / "hf"):
        offer = f"{newest / MODEL}: damaged: .*; the one before it is --checkpoint .*/step-000100$"
        with pytest.raises(BadInput, match=offer):
            find_checkpoint(recipe, str(path))
    aside = newest.rename(newest.with_name(f"aside-{newest.name}"))
    with refused(says="aside-step-000160/hf/model.safetensors"):
        find_checkpoint(recipe, str(aside))
    aside.rename(newest)
    (newest / "hf" / "config.json").unlink()
    with refused(says="step-000160/hf/config.json"):
        find_checkpoint(recipe, str(run.path))  # and the older one is not played in its name
    assert find_checkpoint(recipe, str(run.checkpoint_named("step-000100"))) is not None


def test_much_to_compare_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    folder = made(tmp_path).checkpoint_named("step-000160")
    verify(folder, lines.append)
    assert lines == []
    monkeypatch.setattr(checkpoints, "LONG_BYTES", 1000)
    monkeypatch.setattr(checkpoints, "SAY_EVERY_S", -1.0)
    verify(folder, lines.append)
    assert lines[0].startswith("comparing 0.0 GB of step-000160")
    assert len(lines) == 1 + len(FILES)


def test_the_seconds_of_publications_take_a_bounded_place_and_all_are_counted() -> None:
    state = DriverState(publish_s=[0.5] * 3000)  # of an older checkpoint
    for seconds in range(1500):
        state.add_publish(float(seconds))
    assert (state.published, len(state.publish_s)) == (4500, 1000)
    assert (state.publish_s[0], state.publish_s[-1]) == (500.0, 1499.0)
