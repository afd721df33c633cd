"""`engine.vllm`: names of vLLM's own list are passed on last, and nothing that rlsys relies on can be changed there."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from actors import vllm_arguments
from actors.engine_arguments import engine_arguments
from actors.specs import make_engine_spec
from actors.vllm_arguments import OWN, known_arguments
from launch.config.compose import compose
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES, resolve
from tests.refused import refused


def test_vllms_list_is_read_without_importing_it() -> None:
    assert {"max_num_batched_tokens", "kv_cache_dtype", "quantization", "enable_log_requests"} <= known_arguments()
    assert OWN.keys() <= known_arguments()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("max_num_batched_token", "did you mean 'max_num_batched_tokens'"),
        ("max_model_len", "say engine.max_model_len"),
        ("logprobs_mode", "rlsys relies on"),
    ],
)
def test_what_is_not_vllms_or_ours_is_refused(given: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        compose("quickstart", [f"engine.vllm.{given}=1"])


def test_without_vllm_only_our_own_names_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_arguments, "find_spec", lambda name: None)
    assert known_arguments.__wrapped__() == frozenset()
    monkeypatch.setattr(vllm_arguments, "known_arguments", known_arguments.__wrapped__)
    compose("quickstart", ["engine.vllm.max_num_batched_token=1"])
    with refused("engine.vllm.logprobs_mode", says="rlsys relies on"):
        compose("quickstart", ["engine.vllm.logprobs_mode=1"])


def test_what_the_user_says_is_passed_to_vllm_beside_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(AsyncEngineArgs=lambda **options: passed.update(options)))
    recipe, device = compose("quickstart", ["engine.vllm={max_num_batched_tokens: 4096}"]).recipe, DEVICES["cpu"]
    spec = make_engine_spec(
        resolve(recipe, device).engine, device, model_path="m", dtype="auto", seed=1, threads=1, fp32_head=False
    )
    engine_arguments(spec)
    assert passed["max_num_batched_tokens"] == 4096
    assert passed["logprobs_mode"] == "processed_logprobs" and passed["model"] == "m"
    ours = passed.keys() - {"max_num_batched_tokens", "block_size", "enable_chunked_prefill"}
    assert ours <= OWN.keys(), "all that rlsys sets is refused from the user"
