"""A model folder is data: nothing that lies in it runs (docs/trust.md)."""

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from learners import partitioned
from learners.policy import load_policy
from tests.refused import refused


class Code:
    """What a pickle runs when it is read."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


def pickled(folder: Path, trace: Path) -> None:
    """Weights in the old format, one of them a pickle of something else."""
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    LlamaConfig(vocab_size=8, **shape).save_pretrained(folder)
    torch.save({"model.embed_tokens.weight": Code(trace)}, folder / "pytorch_model.bin")


def with_classes_of_its_own(folder: Path, trace: Path) -> None:
    classes = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": classes}))
    (folder / "mine.py").write_text(f"open({str(trace)!r}, 'w')\n")


@pytest.mark.parametrize("write", [pickled, with_classes_of_its_own])
def test_code_in_a_model_folder_does_not_run(write, tmp_path: Path, monkeypatch) -> None:
    folder, trace = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    write(folder, trace)
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # transformers would ask at the terminal
    with refused(says="transformers cannot load it"):
        load_policy(str(folder), dtype="float32", attention_key="packed_sdpa")
    assert not trace.exists()


def test_under_zero_3_the_first_rank_reads_the_weights_and_the_others_have_none(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hollow: list[tuple[torch.dtype, str]] = []
    parted: list[tuple[object, object]] = []
    other = load_policy(str(source), dtype="float32", attention_key="packed_sdpa").model

    def hollowed(config: object, dtype: torch.dtype, key: str) -> object:
        hollow.append((dtype, key))
        return other

    monkeypatch.setattr(partitioned, "hollow", hollowed)
    monkeypatch.setattr(partitioned, "partition", lambda model, *args: parted.append(args))
    for rank, expected in ((0, []), (1, [(torch.float32, "packed_sdpa")])):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        policy = load_policy(str(source), dtype="float32", attention_key="packed_sdpa", device="cpu", zero_3={"a": 1})
        assert hollow == expected and (policy.model is other) == bool(rank)
    assert parted == [({"a": 1}, "cpu")] * 2
