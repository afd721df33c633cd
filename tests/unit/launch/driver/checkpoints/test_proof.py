"""What a resume and an audit ask of the models that checkpoints stand on."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.driver.checkpoints.beginning import keep_base_model
from launch.driver.checkpoints.checkpoint import Damaged, DriverState
from launch.driver.checkpoints.proof import compare_checkpoint, compare_models, read_book
from launch.driver.run.parts import seal_model
from launch.driver.run.rundir import RunDir
from rlsys.errors import BadInput
from rlsys.journal import Journal
from tests.makers.run_directory import seal_again
from tests.refused import refused

WEIGHTS = "model.safetensors"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """With a policy that it has built, a checkpoint, and that kept as a base."""
    directory = RunDir(tmp_path / "run")
    journal = Journal(directory.journal)
    (directory.path / "model").mkdir()
    (directory.path / "model" / WEIGHTS).write_bytes(b"first" * 9)
    seal_model(directory, journal)
    folder = directory.begin_checkpoint(3)
    (folder / "hf").mkdir()
    (folder / "hf" / WEIGHTS).write_bytes(b"later" * 9)
    (folder / "hf" / "README.md").write_text("a card")
    final = directory.commit_checkpoint(folder, DriverState(step=3, mark=journal.mark), 2, seal=journal.seal)
    assert final is not None
    base = keep_base_model(directory.path, final / "hf")
    journal.seal(f"bases/{base.name}", base.name)
    journal.close()
    return directory


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def test_what_was_written_is_taken(run: RunDir) -> None:
    newest = run.newest()
    assert newest is not None and run.verify(newest, print)
    (base,) = (run.path / "bases").iterdir()
    (base / "README.md").unlink()  # for people: they may write in it
    assert run.verify(newest, print)


@pytest.mark.parametrize(
    "edit",
    [
        lambda model: flip(model / WEIGHTS),
        lambda model: (model / WEIGHTS).unlink(),
        lambda model: (model / "adapter_config.json").write_text("{}"),
        shutil.rmtree,
        lambda model: model.rename(model.with_name("step-000003")),
    ],
    ids=["flipped", "less", "more", "removed", "renamed"],
)
@pytest.mark.parametrize("pattern", ["model", "bases/*"])
def test_a_model_under_a_checkpoint_is_compared_before_anything_is_trained_on_it(
    run: RunDir, pattern: str, edit: Callable[[Path], None]
) -> None:
    (model,) = run.path.glob(pattern)
    weights = model / WEIGHTS
    content = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(content)  # a file of its own
    edit(model)
    newest = run.newest()
    assert newest is not None
    with pytest.raises(Damaged, match=str(model)):
        compare_models(run.path, read_book(run.journal), print)
    with refused(says=f"{model}: damaged"):
        run.verify(newest, print)


def test_a_best_model_stays_when_its_step_is_taken_again(run: RunDir) -> None:
    newest = run.newest()
    assert newest is not None
    best = Path(shutil.copytree(newest, newest.with_name("best-step-000003")))
    seal_again(run.path, "checkpoints/step-000003", "0" * 16)
    assert compare_checkpoint(best, read_book(run.journal), print)
    with refused(says="not those that journal.jsonl has sealed"):
        run.verify(newest, print)


def test_a_row_of_the_journal_that_was_changed_proves_nothing(run: RunDir) -> None:
    newest = run.newest()
    run.journal.write_text(run.journal.read_text().replace('"name": "model"', '"name": "mode1"'))
    assert newest is not None
    with pytest.raises(BadInput, match="journal.jsonl line 2"):
        run.verify(newest, print)


def test_a_checkpoint_under_another_name_is_named_with_the_one_to_use(run: RunDir) -> None:
    newest = run.newest()
    assert newest is not None
    later = Path(shutil.copytree(newest, newest.with_name("step-000009")))
    with refused(says="--resume-from step-000003"):
        run.verify(later, print)
