"""What an engine is built from that a service starts for itself: no run has resolved its configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from actors.specs import EngineSpec, make_engine_spec
from rlsys.config.engine import EngineConfig
from rlsys.deadlines import start_s
from rlsys.positions import positions_of
from rlsys.system.device import choose, resolve_engine

# Of a model of 100 billion parameters in bfloat16, which fills most of a node. In a run the deadline of its own size,
# around this one, ends a start that hangs.
START_S = start_s(200 * 10**9).value


def spec_alone(
    engine: EngineConfig, model: str, *, device: str, dtype: str, threads: int | None, gpus: int = 0
) -> EngineSpec:
    """On the device of this process, with a window that is no longer than the model's own. gpus: for which it was given
    room; threads None: the device's."""
    chosen = choose(device, torch.cuda.device_count())
    ways = max(engine.tensor_parallel, gpus * chosen.gpus_per_actor)
    window = min(engine.max_model_len, longest_context(model) or engine.max_model_len)
    return make_engine_spec(
        replace(resolve_engine(engine, chosen), tensor_parallel=ways, max_model_len=window),
        chosen,
        model_path=str(Path(model).resolve()) if Path(model).is_dir() else model,
        dtype=dtype,
        seed=0,
        threads=threads or chosen.engine_threads,
    )


def longest_context(model: str) -> int | None:
    """Tokens that the model was made for: vLLM refuses a longer context. None where its configuration does not say."""
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(model)
    except OSError:  # no such model: opening its tokenizer reports that in one line
        return None
    return positions_of(config)
