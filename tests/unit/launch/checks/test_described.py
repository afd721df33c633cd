"""A model's sizes are known from its name: from a table, from the hub, from what was downloaded."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from launch.checks import hub
from launch.checks.described import KNOWN, load_model_config
from launch.checks.gpu_memory import shape_of
from launch.config.layers import CONFIGS

# Parameters as the hub shows them beside each model's files.
COUNTED = {
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "google/gemma-2-2b-it": 2_614_341_888,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-2-27b-it": 27_227_128_320,
}


@pytest.mark.parametrize("name", COUNTED)
def test_the_table_gives_the_parameters_that_are_published(name: str) -> None:
    shape = shape_of(KNOWN[name])
    assert shape is not None and shape.parameters == pytest.approx(COUNTED[name], rel=1e-4)


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


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv(hub.OFFLINE, "0")
    hub.fetched_config.cache_clear()


def test_another_name_is_asked_of_the_hub_and_a_download_comes_first(
    online: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            found = self.path == "/some/model/resolve/main/config.json"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(b'{"model_type": "qwen2", "hidden_size": 7}' if found else b"no")

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
    monkeypatch.setattr(hub, "_unreachable", lambda: pytest.fail("the hub was asked"))
    assert load_model_config("nobody/nothing") is None
    assert load_model_config("Qwen/Qwen2.5-7B") == KNOWN["Qwen/Qwen2.5-7B"]
