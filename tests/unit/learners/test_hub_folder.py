"""The learner's weights as a folder of the hub's kind: what transformers reads back, in one file or several."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GenerationConfig

from learners.hub_folder import INDEX, SHARD_BYTES, copy_hf, gather_places
from learners.policy import PolicyModel, load_policy
from learners.snapshot import Snapshot


def load(source: Path) -> PolicyModel:
    return load_policy(str(source), dtype="float32", attention_key="packed_sdpa")


def save(policy: PolicyModel, folder: Path, tokenizer_from: str, shard_bytes: int = SHARD_BYTES) -> None:
    snapshot = Snapshot()
    copy_hf(policy, folder, tokenizer_from, snapshot, rank=0, num_ranks=1, shard_bytes=shard_bytes)
    snapshot.write()


def test_a_saved_folder_loads_in_transformers_and_does_not_repeat_a_tied_head(source, tmp_path) -> None:
    policy = load(source)
    model = policy.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    for name in ("runs/a", "runs/b/hf", "hf"):  # a folder that is there, one below what is not, and a plain one
        save(policy, tmp_path / name, str(source))
        assert (tmp_path / name / "config.json").is_file()
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())
    stored = load_file(tmp_path / "hf" / "model.safetensors")
    assert ("lm_head.weight" in stored) == (not model.config.tie_word_embeddings)
    assert again.config.architectures == ["Qwen3ForCausalLM"]
    assert (tmp_path / "hf" / "tokenizer.json").read_text() == '{"not": "read here"}'


def test_what_transformers_never_saves_is_in_no_file(source, tmp_path) -> None:
    policy = load(source)
    name = "model.norm.weight"
    policy.model._keys_to_ignore_on_save = [name]
    save(policy, tmp_path / "hf", str(source))
    stored = load_file(tmp_path / "hf" / "model.safetensors")
    assert name not in stored and "model.embed_tokens.weight" in stored


def test_others_may_read_the_weights_where_they_may_read_the_rest(source, tmp_path) -> None:
    save(load(source), tmp_path / "hf", str(source))
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "hf").iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]


def test_a_saved_folder_keeps_a_generation_config_that_transformers_would_not_write(source, tmp_path) -> None:
    text = '{"eos_token_id": [7, 8], "temperature": 0.6, "top_p": 0.95}'  # no do_sample: refused by save_pretrained
    (source / "generation_config.json").write_text(text)
    policy = load(source)
    save(policy, tmp_path / "hf", str(source))
    assert (tmp_path / "hf" / "generation_config.json").read_text() == text
    assert policy.model.generation_config.temperature == 0.6


def test_a_folder_without_a_generation_config_gets_one_with_its_end_and_pad_tokens(source, tmp_path) -> None:
    (source / "generation_config.json").unlink()
    policy = load(source)
    policy.model.generation_config = GenerationConfig(eos_token_id=[7, 8], pad_token_id=9, temperature=0.6)
    save(policy, tmp_path / "hf", str(source))
    written = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    del written["transformers_version"]
    assert written == {"eos_token_id": [7, 8], "pad_token_id": 9}


def test_a_saved_config_is_that_of_the_source(source, tmp_path) -> None:
    config = json.loads((source / "config.json").read_text()) | {"attention_dropout": 0.25}
    (source / "config.json").write_text(json.dumps(config))
    policy = load(source)
    save(policy, tmp_path / "hf", str(source))
    assert json.loads((tmp_path / "hf" / "config.json").read_text()) == config
    assert policy.model.config.attention_dropout == 0.0


def test_several_files_have_an_index_that_transformers_follows(source, tmp_path) -> None:
    policy = load(source)
    save(policy, tmp_path / "hf", str(source), shard_bytes=10_000)
    files = sorted(file.name for file in (tmp_path / "hf").glob("*.safetensors"))
    assert len(files) > 2 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "hf" / INDEX).read_text())
    stored = [load_file(tmp_path / "hf" / file) for file in files]
    assert index["weight_map"] == {name: file for file, part in zip(files, stored, strict=True) for name in part}
    assert index["metadata"]["total_size"] == sum(4 * tensor.numel() for part in stored for tensor in part.values())
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in policy.model.state_dict().items())


def test_the_index_names_the_filesgather_places(monkeypatch) -> None:
    def gather(shares: list, own: object) -> None:
        shares[:] = [({"a": "1"}, 10), own]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert gather_places({"b": "2"}, 5, 2) == ({"a": "1", "b": "2"}, 15)
    assert gather_places({"b": "2"}, 5, 1) == ({"b": "2"}, 5)
