"""What a low-rank adapter is besides its numbers, as `adapter_config.json` says it: peft's format, which vLLM reads.

An adapter's folder also has config.json and tokenizer of the model that it stands on, so that it says by itself how
long a context is and how prompts are written; the weights of that model it does not have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlsys.config.model import LoraConfig
from rlsys.errors import BadInput
from rlsys.jsonl import json_object

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODEL = "model"  # in a run directory: the policy that it built from nothing, on which an adapter may stand too
BASES = "bases"  # in a run directory: models that a stage with all weights trained made, and adapters stand on
# In parameters' names: peft's layers, and what peft's files have in front of a module's name.
MARKS, PREFIX = (".lora_A.", ".lora_B."), "base_model.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Adapter(base="Qwen/Qwen3-1.7B", rank=16, alpha=32.0, targets=("q_proj", "v_proj"))"""

    base: str  # the model that it stands on: a folder or hub name
    rank: int
    alpha: float
    targets: tuple[str, ...]

    @classmethod
    def on(cls, base: str, lora: LoraConfig) -> Adapter:
        return cls(base=base, rank=lora.rank, alpha=lora.alpha, targets=tuple(sorted(lora.targets)))

    @property
    def scaling(self) -> float:
        return self.alpha / self.rank

    def peft_config(self) -> dict[str, Any]:
        """The content of `adapter_config.json`."""
        return {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.base,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "target_modules": sorted(self.targets),
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "init_lora_weights": True,
            "modules_to_save": None,
            "use_rslora": False,
            "use_dora": False,
        }

    def write(self, folder: Path) -> None:
        (folder / CONFIG).write_text(json.dumps(self.peft_config(), indent=2) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStart:
    """What a stage that trains an adapter begins with: a new one, or the one that is saved in a folder."""

    adapter: Adapter
    folder: str | None = None


def read_adapter(folder: str | Path) -> Adapter | None:
    """The adapter of a folder; None where it holds none, a whole model for example. Raises BadInput for one that says
    too little, or whose kind is not ours."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        return None
    config = json_object(path.read_bytes(), str(path))
    rank, alpha, targets = config.get("r"), config.get("lora_alpha"), config.get("target_modules")
    base = config.get("base_model_name_or_path")
    valid_targets = isinstance(targets, list) and all(isinstance(target, str) for target in targets)
    plain = isinstance(rank, int) and rank > 0 and isinstance(alpha, (int, float)) and valid_targets
    if not plain or not isinstance(base, str) or not base:
        expected = "numbers r and lora_alpha, a list of target_modules, and base_model_name_or_path"
        raise BadInput("no adapter that can be read", where=path, expected=expected)
    for key in ("use_rslora", "use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias"):
        if config.get(key):
            raise BadInput("an adapter of another kind", where=path, key=f'"{key}"', expected="plain LoRA")
    lora = Adapter(base=base, rank=rank, alpha=float(alpha), targets=tuple(sorted(targets)))  # type: ignore[arg-type]
    return replace(lora, base=_relocated_base(Path(folder), base))


def _relocated_base(folder: Path, base: str) -> str:
    """Where the model lies now, of a run directory that was moved with its adapters and what they stand on."""
    name = Path(base).name
    if Path(base).is_absolute() and not Path(base).is_dir():
        for parent in folder.resolve().parents:
            candidate = parent / BASES / name
            if candidate.is_dir():
                return str(candidate)
            # A kept base has a name that no other weights have. This one has not: only a run's own folder is meant.
            if name == MODEL and (parent / "checkpoints").is_dir() and (parent / MODEL / "config.json").is_file():
                return str(parent / MODEL)
    return base


def is_adapter_name(name: str) -> bool:
    """Whether a parameter of the learner's model is an adapter's."""
    return any(mark in name for mark in MARKS)


def file_name(name: str) -> str:
    """What peft's files call it: "model.layers.0.mlp.up_proj.lora_A.default.weight" is
    "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"."""
    return PREFIX + name.replace(".default.", ".")
