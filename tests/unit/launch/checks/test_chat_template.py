"""A chat template of one's own lies in the folder that a model is played and trained from."""

import json
import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from actors.renderer import ChatRenderer
from envs.tasks.prompts import Prompt
from launch.checks.chat_template import FILE, copy_with_template, has_template, read_template
from launch.cli import run
from launch.config.compose import compose
from launch.driver.run.engines import model_or_scratch
from launch.driver.run.record import data_files
from launch.driver.run.wire import build_scratch_model
from rlsys.config.model import ModelConfig
from rlsys.errors import BadInput
from rlsys.types import Message, Task
from tests.makers.played import tokenizer_in

OWN = "{% for m in messages %}Q: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}A {{ mood }}{% endif %}"
FEW = ["env.train_tasks=8", "env.held_out_tasks=8", "engine.max_model_len=512"]
ASKED = [Message(role="user", content="4 + 4?")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_in(tmp_path_factory.mktemp("tokenizer"), ["4 + 4 is 8."] * 20, ())


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "own.jinja"
    path.write_text(OWN)
    return path


def test_every_program_that_loads_the_folder_has_the_template(model: Path, template: Path, tmp_path: Path) -> None:
    own, before = ModelConfig(chat_template=str(template)), (model / FILE).read_bytes()
    folder = copy_with_template(str(model), own, tmp_path / "made")
    assert AutoTokenizer.from_pretrained(folder).chat_template == OWN and has_template(folder, OWN)
    assert {path.name for path in Path(folder).iterdir()} == {path.name for path in model.iterdir()}
    assert copy_with_template(folder, own, tmp_path / "again") == folder
    assert copy_with_template(str(model), ModelConfig(), tmp_path / "again") == str(model)
    assert (model / FILE).read_bytes() == before and ChatRenderer(folder).decode(
        ChatRenderer(folder).under({"mood": "calm"}).prompt_ids(ASKED)
    ) == ("Q: 4 + 4?\nA calm")


def test_a_byte_order_mark_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_bytes(b"\xef\xbb\xbf" + OWN.encode())
    assert read_template(ModelConfig(chat_template=str(tmp_path / "own.jinja"))) == OWN
    (tmp_path / "own.md").write_bytes(b"\xef\xbb\xbfSolve {question}")
    assert Prompt(str(tmp_path / "own.md")).fill(Task(task_id="t", question="4 + 4?")) == "Solve 4 + 4?"


def test_it_stands_before_the_one_in_the_tokenizers_config(model: Path, template: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    older.mkdir()
    for file in model.iterdir():
        if file.name != FILE:
            (older / file.name).write_bytes(file.read_bytes())
    config = json.loads((older / "tokenizer_config.json").read_text()) | {"chat_template": "older"}
    (older / "tokenizer_config.json").write_text(json.dumps(config))
    folder = copy_with_template(str(older), ModelConfig(chat_template=str(template)), tmp_path / "made")
    assert AutoTokenizer.from_pretrained(folder).chat_template == OWN


def test_what_is_evaluated_has_it_too(model: Path, template: Path) -> None:
    recipe = compose("quickstart", [f"model.chat_template={template}"]).recipe
    with model_or_scratch(recipe, str(model), None) as folder:
        assert folder != str(model) and has_template(folder, OWN)
    with model_or_scratch(compose("quickstart", []).recipe, str(model), None) as folder:
        assert folder == str(model)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="model.chat_template='none.jinja'"):
        copy_with_template("m", ModelConfig(chat_template="none.jinja"), Path("made"))


def test_its_digest_is_kept_with_those_of_the_data(template: Path) -> None:
    text = f"model: {{path: m, chat_template: {template}}}\n"
    assert list(data_files(text).values()) == [[template]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scratch") / "model"
    build_scratch_model(compose("quickstart", FEW).recipe, folder)
    return folder


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["env.template_args={mood: calm}"], ""),
        (["env.template_args.mood=calm", "stages.sft.env.template_args.tone=dry"], "tone='dry'.*never reads"),
        (["env.template_args.mood=calm", "eval.sets.mine.env.template_args.tone=dry"], "tone='dry'.*never reads"),
        (["env.template_args={tools: []}"], "env.template_args.tools.*sets it"),
    ],
)
def test_a_dry_run_refuses_what_the_template_does_not_take(
    whole: Path, template: Path, keys: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "quickstart", "--dry-run", f"model.path={whole}", f"model.chat_template={template}", *FEW]
    code = run([*command, *keys])
    output = capsys.readouterr()
    assert code == (2 if said else 0), output.err
    if said:
        assert re.search(said, output.err) and output.err.count("\n") == 1
    else:
        assert "chat template: the file of model.chat_template" in output.out and "A calm" in output.out


def test_a_dry_run_shows_the_end_of_what_is_trained(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = {"role": "user", "content": "4 + 4?"}
    sides = {side: [{"role": "assistant", "content": side}] for side in ("chosen", "rejected")}
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"prompt": [message], **sides}) + "\n")
    (tmp_path / "answers.jsonl").write_text(json.dumps({"messages": [message, *sides["chosen"]]}) + "\n")
    recipe = {
        "extends": "quickstart",
        "name": "shown",
        "model": {"path": str(whole)},
        "stages": [
            {"name": "given", "kind": "sft", "steps": 1, "data": str(tmp_path / "answers.jsonl")},
            {"name": "sft", "kind": "sft", "steps": 1},
            {"name": "dpo", "kind": "dpo", "steps": 1, "data": str(tmp_path / "pairs.jsonl")}
            | {"algorithm": {"name": "dpo"}},
        ],
    }
    (tmp_path / "shown.yaml").write_text(json.dumps(recipe))
    assert run(["train", str(tmp_path / "shown.yaml"), "--dry-run", *FEW]) == 0
    lines = [line.partition("prompts")[2].strip() for line in capsys.readouterr().out.splitlines()]
    at = [lines.index(line) for line in lines if line.startswith("trained in ")]
    assert [lines[place].split()[2] for place in at] == ["given:", "sft:", "dpo:", "dpo:"]
    for place, text in zip(at, ("chosen", "", "chosen", "rejected"), strict=True):
        context, trained = lines[place + 1], next(line for line in lines[place + 1 :] if line.startswith("trained |"))
        assert context.startswith("shown") and (not text or trained == f"trained | {text}<|im_end|>")


def test_a_file_that_is_not_there_is_refused_by_a_dry_run_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "quickstart", "model.chat_template=/nowhere.jinja", "--dry-run"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "model.chat_template" in line and "/nowhere.jinja" in line
