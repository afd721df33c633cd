"""Write the golden curves anew: python -m tests.golden.regenerate

To be run when an algorithm is meant to train differently, and never to make a test pass that was not understood.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from learners.algorithms import ALGORITHMS, make_algorithm
from rlsys.choices import choose
from tests.golden.tiny import Select, best_and_worst, best_only, curve, value_only

FOLDER = Path(__file__).parent

# file name -> algorithm and what differs from its defaults, chosen so that every option has a part in some curve
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {"kl_coef": 0.01, "entropy_coef": 0.001, "dual_clip": 3.0, "epochs": 2}),
    "grpo_dr": ("grpo", {"normalize_std": False, "reduction": "constant", "clip_high": 0.2}),
    "grpo_printed": ("grpo", {"ratio_level": "sequence", "reduction": "sequence_mean", "kl_coef": 0.01}),
    "grpo_group_total": ("grpo", {"reduction": "group_total", "is_correction": "mis", "is_floor": 0.5}),
    "ppo": (
        "ppo",
        {"epochs": 2, "minibatches": 2, "kl_coef": 0.01, "is_correction": "decoupled", "reduction": "sequence_mean"},
    ),
    "ppo_gae": (
        "ppo",
        {"kl_in": "loss", "kl_kind": "k2", "kl_coef": 0.01, "lam": 0.9, "discount": 0.95, "reward_clip": 0.8},
    ),
    "reinforce_pp": ("reinforce_pp", {"clip_low": 0.1, "clip_high": 0.1, "kl_coef": 0.01}),
    "reinforce_pp_baseline": ("reinforce_pp", {"group_baseline": True, "is_correction": "tis", "epochs": 2}),
    "rloo": ("rloo", {}),
    "gspo": ("gspo", {"minibatches": 2, "clip_low": 0.01, "clip_high": 0.02}),
    "swirl": ("swirl", {"kl_coef": 0.05, "is_level": "geometric"}),
    "opd": ("opd", {"advantage_clip": 1.5, "is_level": "geometric"}),
    "dpo": ("dpo", {}),
    "sft": ("sft", {}),
}

SELECT: Mapping[str, Select] = {"dpo": best_and_worst, "sft": best_only, "ppo_gae": value_only}


def build(case: str) -> dict[str, Any]:
    """The curve of one case, with what makes it readable on its own."""
    name, options = CASES[case]
    torch.set_num_threads(1)
    algorithm = make_algorithm(choose("algorithm", ALGORITHMS, name).schema(name=name, **options))
    curves = curve(algorithm, SELECT.get(case, lambda groups: groups), samples_per_unit=2 if name == "dpo" else 1)
    return {"algorithm": {"name": name, **options}} | {key: numbers for key, numbers in curves.items() if numbers}


def main() -> None:
    for case in CASES:
        path = FOLDER / f"{case}.json"
        built = build(case)
        rounded = {
            key: [float(f"{number:.9g}") for number in value] if isinstance(value, list) else value
            for key, value in built.items()
        }
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in rounded.items())
        path.write_text(f"{{\n{lines}\n}}\n")
        print(f"{path.name}: even {built['even'][0]:.3f} -> {built['even'][-1]:.3f}")


if __name__ == "__main__":
    main()
