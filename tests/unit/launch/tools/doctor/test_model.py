"""`rlsys check MODEL`: what is said of a model before a run is planned with it."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from transformers import GenerationMixin

from launch.cli import run
from learners.scratch import build
from rlsys.config.model import ScratchModel

SHAPE = ScratchModel(hidden_size=64, intermediate_size=128, num_layers=2, num_heads=4, num_kv_heads=2, vocab_size=300)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checked") / "model"
    build(folder, SHAPE, ["What is 2 + 3?"] * 9, [], max_positions=256, seed=0)
    return folder


def check(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, str], str]:
    code = run(["check", *argv])
    out, err = capsys.readouterr()
    return code, {line[:15].strip(): line[16:] for line in out.splitlines() if line[:1] != "["}, err


def test_a_model_whose_weights_are_here_is_proved_and_writes_a_turn(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, err = check(capsys, str(model))
    assert code == 0 and said["verdict"].endswith(f"model.path={model}")
    assert said["architecture"].startswith("qwen3, 0 M parameters, 256 positions")
    assert said["end of turn"] == "<|im_end|>; sampling stops at <|im_end|>"
    assert said["packed rows"].startswith("proved") and said["head"] == "plain"
    assert said["one turn"].startswith("'What is 2 + 3?' -> ") and "tokens" in said["one turn"]
    assert "of 80 GB" in said["memory, GPU"] and "a rank" in said["memory, CPU"]


def test_without_its_weights_the_files_say_what_they_can(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GenerationMixin, "generate", None)  # nothing is loaded
    code, said, _ = check(capsys, str(model), "--no-weights")
    assert code == 0 and said["weights"] == "not loaded (--no-weights)" and "one turn" not in said
    copy = Path(shutil.copytree(model, tmp_path / "thinks"))
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    template += "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}{% endif %}{% endif %}"
    (copy / "chat_template.jinja").write_text(template)
    code, said, _ = check(capsys, str(copy), "--no-weights")
    assert said["thinking"] == "env.template_args={enable_thinking: false} turns it off"
    assert "env.protocol=hermes" in said["tools"]


def test_what_cannot_be_trained_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "encoder"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "bert", "architectures": ["BertModel"]}))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    large = Path(shutil.copytree(model, tmp_path / "large"))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=2**30, available=2**30))
    code, said, err = check(capsys, str(large), "--no-weights")
    assert code == 2 and "verdict" not in said and "an engine and a rank need" in err and "of the 1 GB here" in err
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (large / "config.json").write_text(json.dumps({name: config[name] for name in ("model_type", "architectures")}))
    code, said, _ = check(capsys, str(large), "--no-weights")
    assert code == 0 and "of sizes that are not known" in said["memory, GPU"]
    for path, line in (
        (str(copy), "a bert model cannot be trained"),
        ("nobody/never-fetched", "not downloaded before"),
    ):
        code, said, err = check(capsys, path)
        assert (code, said, err.count("\n")) == (2, {}, 1) and line in err
