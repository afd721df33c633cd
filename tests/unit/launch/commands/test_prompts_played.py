"""What a model without a stage of its own would play is looked at before any engine starts, as a run's is."""

from pathlib import Path

import pytest

from launch.cli import run
from launch.driver.run import engines
from learners.scratch import build
from rlsys.config.model import ScratchModel

NO_TOOLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
NATIVE = "{name: tools, tools: [{function: envs.problems.errands.price}], train_tasks: 8, held_out_tasks: 8}"
SMALL = ScratchModel(hidden_size=32, intermediate_size=32, num_layers=1, num_heads=1, num_kv_heads=1)


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "worlds/calculator", f"eval.sets={{priced: {{env: {NATIVE}, reward: {{name: answer}}}}}}"],
        ["generate", "{config}", "--output={output}"],
    ],
)
def test_a_template_that_shows_no_tools_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("engines were started")

    monkeypatch.setattr(engines, "on_engines", start)
    model, config = tmp_path / "model", tmp_path / "config.yaml"
    build(model, SMALL, ["What is 1 + 2?"] * 20, [], 1024, 0)
    (model / "chat_template.jinja").write_text(NO_TOOLS)
    config.write_text(
        f"name: priced\nenv: {NATIVE}\nreward: {{name: answer}}\nstages: [{{name: play, kind: generate}}]\n"
    )
    filled = [word.replace("{config}", str(config)).replace("{output}", str(tmp_path / "out.jsonl")) for word in words]
    assert run([*filled, f"model.path={model}"]) == 2
    assert "env.protocol=hermes" in capsys.readouterr().err
