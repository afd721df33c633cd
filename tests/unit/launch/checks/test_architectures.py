"""Which models can be trained: from config.json alone, the same in the page and in the tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from launch.checks.architectures import REFUSED, SIGNS, TRAINED, check, describe_untried
from launch.cli import run
from rlsys.errors import BadInput
from tests.played import tokenizer_in


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"model_type": "mixtral"}, "a mixture of experts"),
        ({"model_type": "new_moe", "n_routed_experts": 64}, "a new_moe model cannot be trained: a mixture of experts"),
        ({"model_type": "new", "attention_chunk_size": 8192}, "cut into chunks"),
        ({"model_type": "qwen2", "quantization_config": {"bits": 4}}, "quantised"),
        ({"model_type": "qwen2_5_vl", "vision_config": {}}, "pictures"),
        ({"model_type": "mamba"}, "recurrent"),
    ],
)
def test_what_cannot_be_trained_is_named_and_can_be_played(config: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInput) as caught:
        check(config, "model.path='m'", learner=True)
    assert str(caught.value).startswith("model.path='m': ") and part in str(caught.value)
    check(config, "model.path='m'", learner=False)


@pytest.mark.parametrize(
    "config", [{"model_type": "t5"}, {"model_type": "bert"}, {"model_type": "new", "is_encoder_decoder": True}, {}]
)
def test_what_does_not_continue_text_is_not_played_either(config: dict[str, Any]) -> None:
    for learner in (True, False):
        with pytest.raises(BadInput, match="causal language model|continues text"):
            check(config, "model.path='m'", learner=learner)


def test_the_others_are_let_through_and_new_ones_are_called_so() -> None:
    for kind in TRAINED:
        config = {"model_type": kind, "attn_logit_softcapping": 50.0, "num_experts": 0}
        check(config, "model.path='m'", learner=True)
        assert describe_untried(config) == []
    check({"model_type": "new"}, "model.path='m'", learner=True)
    assert "new: not tried" in describe_untried({"model_type": "new"})[0]


def test_what_is_refused_by_name_is_refused_by_its_signs_too() -> None:
    assert {reason for _, reason in SIGNS} >= set(REFUSED.values()) - {REFUSED["mamba"], REFUSED["bloom"]}


def test_a_model_is_refused_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral"}))
    (tmp_path / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(60)
    (tmp_path / "model.safetensors").write_bytes(whole)
    for dry in (["--dry-run"], ["--run-dir", str(tmp_path / "run")]):
        assert run(["train", "quickstart", f"model.path={tmp_path}", *dry]) == 2
        assert "a mixtral model cannot be trained: a mixture of experts" in capsys.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    assert run(["eval", "quickstart", "--checkpoint", str(tmp_path)]) == 2
    assert "a t5 model cannot be played" in capsys.readouterr().err
    tokenizer_in(tmp_path, ["1 + 2 = 3"], ["<math_exp>"])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "some_llm"}))
    assert run(["train", "quickstart", f"model.path={tmp_path}", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "parameters                15\n" in out and "some_llm: not tried" in out
    (tmp_path / "model.safetensors").write_bytes(whole[:-1])
    assert run(["train", "quickstart", f"model.path={tmp_path}", "--dry-run"]) == 2
    assert f"model.safetensors ({len(whole) - 1} bytes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
