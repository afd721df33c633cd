"""What config.json and the headers of safetensors files tell: which models can be trained, their sizes and division."""

from __future__ import annotations

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from launch.checks import hub, models
from launch.checks.gpu_memory import shape_of
from launch.checks.known_models import KNOWN, SHAPES, named_shape
from launch.checks.models import (
    REFUSED,
    SIGNS,
    TRAINED,
    WEIGHTS_INDEX,
    check_architecture,
    check_window,
    describe_untried,
    load_model_config,
    parameters_in,
)
from launch.cli import run
from launch.config import compose
from launch.config.layers import CONFIGS
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from tests.makers.played import tokenizer_in
from tests.refused import refused

# Parameters as the hub shows them beside each model's files.
COUNTED = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "google/gemma-2-2b-it": 2_614_341_888,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-2-27b-it": 27_227_128_320,
}


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
        check_architecture(config, "model.path='m'", learner=True)
    assert str(caught.value).startswith("model.path='m': ") and part in str(caught.value)
    check_architecture(config, "model.path='m'", learner=False)


@pytest.mark.parametrize(
    "config", [{"model_type": "t5"}, {"model_type": "bert"}, {"model_type": "new", "is_encoder_decoder": True}, {}]
)
def test_what_does_not_continue_text_is_not_played_either(config: dict[str, Any]) -> None:
    for learner in (True, False):
        with pytest.raises(BadInput, match="causal language model|continues text"):
            check_architecture(config, "model.path='m'", learner=learner)


def test_the_others_are_let_through_and_new_ones_are_called_so() -> None:
    for kind in TRAINED:
        config = {"model_type": kind, "attn_logit_softcapping": 50.0, "num_experts": 0}
        check_architecture(config, "model.path='m'", learner=True)
        assert describe_untried(config) == []
    check_architecture({"model_type": "new"}, "model.path='m'", learner=True)
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


@pytest.mark.parametrize("name", COUNTED)
def test_the_table_gives_the_parameters_that_are_published(name: str) -> None:
    shape = shape_of(KNOWN[name])
    assert shape is not None and shape.parameters == pytest.approx(COUNTED[name], rel=1e-4)


def test_a_size_means_a_known_model() -> None:
    assert named_shape("7B") == "Qwen/Qwen2.5-7B" and named_shape("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"
    assert set(SHAPES.values()) <= KNOWN.keys()
    for size, name in SHAPES.items():
        shape = shape_of(KNOWN[name])
        assert shape is not None and shape.parameters / 1e9 == pytest.approx(float(size[:-1]), rel=0.25)
    with pytest.raises(BadInput):
        named_shape("7c")
    with pytest.raises(BadInput, match="did you mean '8b'") as caught:
        named_shape("9z")
    assert len(str(caught.value)) < 200


def test_every_policy_that_a_recipe_names_is_in_the_table() -> None:
    named = set()
    for path in CONFIGS.rglob("*.yaml"):
        model = (yaml.safe_load(path.read_text()) or {}).get("model") or {}
        if isinstance(model.get("path"), str) and model["path"].count("/") == 1:
            named.add(model["path"])
    assert "Qwen/Qwen2.5-7B" in named and named <= KNOWN.keys()


def test_a_tied_head_is_counted_once_where_config_json_is_silent() -> None:
    gemma = {key: value for key, value in KNOWN["google/gemma-2-9b-it"].items() if key != "tie_word_embeddings"}
    assert shape_of(gemma) == shape_of(KNOWN["google/gemma-2-9b-it"])


def test_a_window_beyond_the_positions_of_the_policy_is_refused_unless_they_are_lengthened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 256}))
    keys, longer = [f"model.path={tmp_path}", "rollout.max_turn_tokens=64"], "learner.rope_theta_scale=10"
    fits, over = (compose.compose("quickstart", [*keys, f"engine.max_model_len={size}"]).recipe for size in (256, 257))
    for learner in (True, False):
        check_window(fits, str(tmp_path), learner=learner)
        with refused("engine.max_model_len", found=257, says="256 positions"):
            check_window(over, str(tmp_path), learner=learner)
    check_window(over, None, learner=True)
    scaled = compose.compose("quickstart", [*keys, "engine.max_model_len=512", longer]).recipe
    check_window(scaled, str(tmp_path), learner=True)
    with refused("engine.max_model_len"):  # what is only played stays as it is
        check_window(scaled, str(tmp_path), learner=False)
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    check_window(over, str(tmp_path), learner=True)


def test_a_window_in_which_the_angles_of_a_row_follow_from_its_longest_sample_is_not_trained(tmp_path: Path) -> None:
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 512, "factor": 8.0}
    config = {"model_type": "phi3", "max_position_embeddings": 4096, "rope_parameters": rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    fits, over = (
        compose.compose("quickstart", [f"model.path={tmp_path}", f"engine.max_model_len={size}"]).recipe
        for size in (512, 513)
    )
    check_window(fits, str(tmp_path), learner=True)
    check_window(over, str(tmp_path), learner=False)
    with refused("engine.max_model_len", found=513, says="longrope"):
        check_window(over, str(tmp_path), learner=True)


@pytest.mark.parametrize("name", ["rope", "qwen-classic"])
def test_the_recipe_with_a_longer_window_than_its_models_starts_by_its_rope_alone(name: str) -> None:
    path = "Qwen/Qwen2.5-Math-7B"
    recipe = compose.compose(f"long_cot/ablations/{name}", []).recipe
    assert recipe.engine.max_model_len > 4096
    check_window(recipe, path, learner=True)
    with refused("engine.max_model_len", says="4096 positions"):
        check_window(
            compose.compose(f"long_cot/ablations/{name}", ["learner.rope_theta_scale=1"]).recipe, path, learner=True
        )


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv(hub.OFFLINE, "0")
    hub.fetch_config.cache_clear()


def test_another_name_is_asked_of_the_hub_and_a_download_comes_first(
    online: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            is_config = self.path == "/some/model/resolve/main/config.json"
            self.send_response(200 if is_config else 404)
            self.end_headers()
            self.wfile.write(b'{"model_type": "qwen2", "hidden_size": 7}' if is_config else b"no")

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            assert load_model_config("some/model") == {"model_type": "qwen2", "hidden_size": 7}
            assert load_model_config("other/model") is None
            folder = tmp_path / "hub" / "models--some--model" / "snapshots" / "abc"
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps({"hidden_size": 8}))
            assert load_model_config("some/model") == {"hidden_size": 8}
        finally:
            server.shutdown()


def test_offline_nothing_is_asked(online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hub.OFFLINE, "1")
    monkeypatch.setattr(hub.urllib.request, "urlopen", lambda *_, **__: pytest.fail("the hub was asked"))
    assert load_model_config("nobody/nothing") is None
    assert load_model_config("Qwen/Qwen2.5-7B") == KNOWN["Qwen/Qwen2.5-7B"]


@pytest.mark.parametrize(("heads", "kv_heads", "inner", "ways"), [(4, 2, 384, 4), (6, 2, 384, 2), (28, 4, 18944, 2)])
def test_partitions_of_whole_heads_are_fine(heads: int, kv_heads: int, inner: int, ways: int, tmp_path: Path) -> None:
    models.check_partition(divided(tmp_path, heads, kv_heads, inner, ways), str(tmp_path))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "inner", "ways", "said"),
    [
        (4, 2, 384, 3, "=3: expected a divisor of the model's 4 attention heads"),
        (12, 4, 384, 6, "a divisor or multiple of its 4 key-value heads"),
        (4, 2, 386, 4, "=4: expected a divisor of the model's intermediate_size=386"),
    ],
)
def test_partitions_that_would_cut_a_head_are_refused(
    heads: int, kv_heads: int, inner: int, ways: int, said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=said):
        models.check_partition(divided(tmp_path, heads, kv_heads, inner, ways), str(tmp_path))


def test_ranks_that_share_a_row_have_whole_heads(tmp_path: Path) -> None:
    recipe = divided(tmp_path, 6, 1, 384, 1)
    for sharing, fits in ((2, True), (3, True), (4, False)):
        shared = replace(recipe, learner=replace(recipe.learner, ranks=12, sequence_parallel=sharing))
        if fits:
            models.check_partition(shared, str(tmp_path), learner=True)
            continue
        with pytest.raises(
            BadInput, match="learner.sequence_parallel=4: expected a divisor of the model's 6 attention"
        ):
            models.check_partition(shared, str(tmp_path), learner=True)


def divided(folder: Path, heads: int, kv_heads: int, inner: int, ways: int) -> RecipeConfig:
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": inner}
    (folder / "config.json").write_text(json.dumps(sizes))
    return compose.compose("quickstart", [f"model.path={folder}", f"engine.tensor_parallel={ways}"]).recipe


def test_what_is_not_here_is_left_to_the_engine(tmp_path: Path) -> None:
    config = divided(tmp_path, 4, 2, 384, 3)
    models.check_partition(config, "nobody/never-fetched")
    (tmp_path / "config.json").write_text(json.dumps({"n_head": 4}))
    models.check_partition(config, str(tmp_path))
    with pytest.raises(BadInput, match="the model's 4 attention heads"):
        models.check_partition(config, None)  # the scratch model's


def save(path: Path, **shapes: list[int]) -> bytes:
    import torch
    from safetensors.torch import save_file

    save_file({name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}, path)
    return path.read_bytes()


def test_parameters_are_counted_over_all_files(tmp_path: Path) -> None:
    assert parameters_in(tmp_path, "m") is None
    save(tmp_path / "a.safetensors", wide=[7, 3], bias=[5], scalar=[])
    save(tmp_path / "b.safetensors", more=[2, 2, 2])
    assert parameters_in(tmp_path, "m") == 21 + 5 + 1 + 8
    save(tmp_path / "model.safetensors", wide=[2, 2])  # the others are the same weights in another cut
    assert parameters_in(tmp_path, "m") == 4
    (tmp_path / WEIGHTS_INDEX).write_text(json.dumps({"weight_map": {"more": "b.safetensors"}}))
    assert parameters_in(tmp_path, "m") == 8


def test_what_is_not_whole_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    whole = save(path, w=[4, 4])
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    damaged = json.dumps({"w": {"dtype": "BF16", "shape": [4, 4]}}).encode()
    for content in (whole[:-1], whole + b"x", whole[:20], b"", pointer, len(damaged).to_bytes(8, "little") + damaged):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="no whole safetensors file") as caught:
            parameters_in(tmp_path, "model.path='m'")
        assert "model.path='m': model.safetensors" in str(caught.value)


def test_a_shard_that_the_index_names_has_to_be_there(tmp_path: Path) -> None:
    save(tmp_path / "model-00001-of-00002.safetensors", w=[4, 4])
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    (tmp_path / WEIGHTS_INDEX).write_text(json.dumps({"weight_map": {"w": names[0], "v": names[1]}}))
    with pytest.raises(BadInput, match=f"{names[1]} is missing, which {WEIGHTS_INDEX} names"):
        parameters_in(tmp_path, "m")
    (tmp_path / WEIGHTS_INDEX).write_text("{}")
    with pytest.raises(BadInput, match="not readable"):
        parameters_in(tmp_path, "m")
