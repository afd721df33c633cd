"""What vLLM sampled, as a record of ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from actors.specs import EngineFailed
from rlsys.types import Completion, TurnStop, VersionSpan


def completion(output: Any) -> Completion:
    """vLLM's CompletionOutput as ours. Raises EngineFailed where a token lacks its log-probability or version."""
    flat = output.logprobs
    logprobs = np.asarray([flat.logprobs[start] for start in flat.start_indices], np.float32)
    spans = tuple(VersionSpan(version=int(s.version), start=s.start, end=s.end) for s in output.weight_versions or ())
    edges = [0] + [span.end for span in spans]
    length = len(output.token_ids)
    if [span.start for span in spans] != edges[:-1] or not edges[-1] == length == len(logprobs):
        raise EngineFailed(f"{length} tokens came with {len(logprobs)} log-probabilities and versions {spans}")
    ids = np.asarray(output.token_ids, np.int32)
    return Completion(token_ids=ids, logprobs=logprobs, spans=spans, stop=_turn_stop(output), text=output.text)


def _turn_stop(output: Any) -> TurnStop:
    match output.finish_reason:
        case "stop":  # the reason is the stop string, or another end token's id, or None for the tokenizer's own
            return TurnStop.STOP if isinstance(output.stop_reason, str) else TurnStop.EOS
        case "length":
            return TurnStop.LENGTH
        case "abort":
            return TurnStop.ABORT
    raise EngineFailed(f"a request ended with {output.finish_reason!r}")
