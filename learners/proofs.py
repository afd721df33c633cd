"""What a model has to show when it is loaded: packed samples stay apart, and what its head computes.

Pretrained models have channels of ten thousands that a later layer takes back, and so they amplify rounding, each by as
much as its weights say: no gap is held against a constant. In rows of one shape a sample whose neighbours change keeps
every bit, whatever the weights are. So what trained once cannot fail later, and a leak in one layer of many is found
however small it is. A sample alone makes a row of another shape: how far rounding carries the model is measured on the
model itself, with the same weights.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from learners.own_head import own_product
from learners.rounding import round_again
from learners.rows import output_positions, own_outputs, pack_ids, row_inputs
from rlsys.errors import BadInput
from rlsys.experts import has_experts
from rlsys.system.device import RoundingUnits

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from learners.sequence_parallel import SequenceGroup

log = logging.getLogger("rlsys.learner")

# Tokens of the sample that is looked at, of the one before it and of the one after it. The first two are padded into
# one call of attention. Tables of positions have 64 rows and more.
LENGTHS = (15, 16, 9)
# How often its own rounding, by bytes of a number, a sample may be from what it is alone. SmolLM2 with up to 20 % of
# noise in its weights, sums made in another order: 0.7 to 2.1 in float32, where what is wrong is 10^5 away, and 0.3 in
# bfloat16, whose sums are float32.
ROUNDINGS = {4: 30.0, 2: 3.0}
NOISES = 2  # passes with noise of one bit: the larger gap counts
# Of two passes over one row, where a kernel sums in no fixed order.
_UNSTEADY = 10.0
# Larger than any soft cap, so that capped logits of the probe are others in every number format.
_PROBE_LOGIT = 8192.0
Samples = Sequence[Sequence[int]]
Hook = Callable[[nn.Module, Any, Any], Any]  # after a module: (module, inputs, output)


@torch.no_grad()
def examine_head(model: PreTrainedModel) -> tuple[bool, int]:
    """(whether logits are `lm_head(last_hidden_state)` with nothing between or after, the hidden size).

    Both to the bit: what goes into the head is what came out of the layers in that pass, what comes out are logits.
    Raises BadInput where they are not, and do not follow from those states by what the model does around its head.
    """
    tensors: dict[str, torch.Tensor] = {}

    def enlarge(_module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        tensors["input"] = inputs[0]
        tensors["output"] = output * (_PROBE_LOGIT / output.abs().max().clamp(min=1e-12))
        return tensors["output"]

    head, inputs = model.get_output_embeddings(), _short_row(model)
    with _with_hooks([head] if type(head) is nn.Linear else [], enlarge):
        hidden, logits = _head_pass(model, inputs)
    if hidden is None:  # OPT calls what is inside its base model
        hidden = model.base_model(**inputs)[0]
    plain = "input" in tensors and torch.equal(tensors["input"], hidden)
    linear = plain and torch.equal(logits, tensors["output"].to(logits.dtype))
    if not linear:
        _require_own_head(model, inputs)
    return linear, hidden.shape[-1]


def _require_own_head(model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
    hidden, expected = _head_pass(model, inputs)
    head = model.get_output_embeddings()
    product = own_product(model, lambda hidden, _weight, _bias: head(hidden))
    if hidden is None or not torch.equal(product(hidden[0], head.weight, None), expected[0]):
        raise BadInput(
            f"model {type(model).__name__}: its logits do not follow from the hidden states below its head alone",
            expected="an architecture whose head can be computed a few tokens at a time",
        )


def _short_row(model: PreTrainedModel) -> dict[str, Any]:
    return row_inputs(model, *pack_ids([_sample_ids(model, LENGTHS[0], 0)], model.device))


def _head_pass(model: PreTrainedModel, inputs: Mapping[str, Any]) -> tuple[torch.Tensor | None, torch.Tensor]:
    """(hidden states [1, T, H] below the head, logits [1, T, V]); None where the model does not call its base model."""
    hidden_states: list[torch.Tensor] = []
    with _with_hooks([model.base_model], lambda _module, _inputs, output: hidden_states.append(output[0])):
        logits: torch.Tensor = model(**inputs).logits
    return hidden_states[0] if hidden_states else None, logits


@torch.no_grad()
def require_packing(model: PreTrainedModel) -> None:
    """Raise BadInput where a sample of a row changes with its neighbours, or is not what it would be alone.

    Always the same passes, since under ZeRO-3 every rank takes part in each.
    """
    size, before, after = LENGTHS
    sample = _sample_ids(model, size, 0)
    row, shifted_row = (
        [_sample_ids(model, before, 1, shift), sample, _sample_ids(model, after, 2, shift)] for shift in (False, True)
    )
    plain = _hidden(model, row)
    _require_finite(model, float(plain.abs().max()))
    with _hook_innermost(model, _even_out):
        first_pass, second_pass = ([_hidden(model, samples) for samples in (row, shifted_row)] for _ in range(2))
    routed = has_experts(model.config.get_text_config().to_dict())  # an expert's product is of all samples' tokens
    leak = min(_gap(*first_pass), _gap(*second_pass))
    unsteady = max(map(_gap, first_pass, second_pass))  # of two passes over the very same row: 0 for most kernels
    _require_finite(model, unsteady)
    if leak > _UNSTEADY * unsteady and not routed:
        _refuse(model, f"samples packed in one row see each other (relative gap {leak:.1e}, expected none)")
    if _output_sums(model, row, stretched=True) == _output_sums(model, row, stretched=False):
        _refuse(model, "it does not read position_ids, which begin again with each sample of a packed row")
    apart, noise = _gap(_hidden(model, [sample], at=0), plain), _rounding_of(model, lambda: _hidden(model, row), plain)
    _require_finite(model, noise)
    if routed and (leak := _gap(_hidden(model, shifted_row), plain)) > ROUNDINGS[model.dtype.itemsize] * noise:
        _refuse(model, f"samples packed in one row see each other (relative gap {leak:.1e}, of rounding {noise:.1e})")
    if apart > ROUNDINGS[model.dtype.itemsize] * noise:
        problem = f"a sample of a packed row is not what it is alone (relative gap {apart:.1e}"
        _refuse(model, f"{problem}, of rounding {noise:.1e})")


def _rounding_of(model: PreTrainedModel, compute: Callable[[], torch.Tensor], plain: torch.Tensor) -> float:
    """How far one bit of noise in the weights carries what is computed from `plain`."""
    bit, noise = torch.finfo(model.dtype).eps, 0.0
    for seed in range(NOISES):
        with round_again(model, RoundingUnits(products=bit, rest=bit), seed):
            noise = max(noise, _gap(compute(), plain))
    return noise


@torch.no_grad()
def require_shared_rows(model: PreTrainedModel, group: SequenceGroup) -> None:
    """Raise BadInput, on all ranks of the group, where a row that they share is not what it is on one of them.

    A layer that mixes tokens in another way than by attention would see a part of the row alone.
    """
    row = pack_ids([_sample_ids(model, length, seed) for seed, length in enumerate(LENGTHS)], model.device)
    whole, shared = row_inputs(model, *row), row_inputs(model, *row, group)
    after_N, places_N = own_outputs(shared, torch.arange(1, 1 + sum(LENGTHS), device=model.device))

    def compute(inputs: Mapping[str, Any], places: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = model.base_model(**inputs).last_hidden_state[0, places]
        return hidden

    own_N = output_positions(whole, after_N - 1)
    plain = compute(whole, own_N)
    gap, noise = _gap(compute(shared, places_N), plain), _rounding_of(model, lambda: compute(whole, own_N), plain)
    differs = len(places_N) > 0 and gap > ROUNDINGS[model.dtype.itemsize] * noise
    if group.add_up(torch.tensor([float(differs)], device=model.device)) > 0:
        raise BadInput(
            f"{type(model).__name__} mixes the tokens of a row elsewhere than in its attention",
            key="learner.sequence_parallel", found=group.size, expected="1 for this model",
        )  # fmt: skip


def _require_finite(model: PreTrainedModel, size: float) -> None:
    if not math.isfinite(size):
        _refuse(model, "it gives numbers that are not finite")


def _refuse(model: PreTrainedModel, problem: str) -> None:
    raise BadInput(f"model {type(model).__name__}: {problem}")


def _gap(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """[tokens, H] each. The mean over tokens of the difference's size, relative to that of what is expected; infinite
    where it is no number."""
    actual, expected = actual.float(), expected.float()
    gap = float(((actual - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=1e-30)).mean())
    return math.inf if math.isnan(gap) else gap


def _sample_ids(model: PreTrainedModel, length: int, seed: int, shift: bool = False) -> list[int]:
    """Ids of a sample, other ones for another; shifted, each is another. No two begin alike: else they are computed
    once (`attention.find_shared_starts`), in rows of another shape."""
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(vocabulary, (length,), generator=torch.Generator().manual_seed(seed))
    ids[0] = 2 * seed + 1
    return [int(token) for token in (ids + shift) % vocabulary]


def _hidden(model: PreTrainedModel, samples: Samples, *, at: int = 1) -> torch.Tensor:
    """[tokens, H] what the model makes of one of these samples, side by side in a row."""
    token_ids, position_ids, cu_seqlens = pack_ids(samples, model.device)
    inputs, bounds = row_inputs(model, token_ids, position_ids, cu_seqlens), cu_seqlens.tolist()
    tokens = torch.arange(*bounds[at : at + 2])
    hidden: torch.Tensor = model.base_model(**inputs).last_hidden_state[0, output_positions(inputs, tokens)]
    return hidden


def _even_out(_module: nn.Module, _inputs: Any, output: Any) -> Any:
    """On a logarithmic scale no channel is massive and no token draws all attention: a leak that goes through one is
    as large as any other. What keeps to its own sample does so with this function in between, too."""
    if not torch.is_tensor(output) or not output.is_floating_point():
        return output
    return output.sign() * output.abs().log1p()


def _output_sums(model: PreTrainedModel, samples: Samples, *, stretched: bool) -> list[float]:
    """Of what each of the innermost modules gives. stretched: at positions 0, 2, 4 ... of each sample: angles and
    learned positions are then others, also where weights are too small for a difference to reach the end."""
    sums: list[float] = []

    def add(_module: nn.Module, _inputs: Any, output: Any) -> None:
        parts = output if isinstance(output, tuple) else (output,)
        sums.extend(float(part.double().sum()) for part in parts if torch.is_tensor(part))

    token_ids, position_ids, cu_seqlens = pack_ids(samples, model.device)
    with _hook_innermost(model, add):
        model.base_model(**row_inputs(model, token_ids, position_ids * (1 + stretched), cu_seqlens))
    return sums


def _hook_innermost(model: PreTrainedModel, hook: Hook) -> AbstractContextManager[None]:
    return _with_hooks([module for module in model.modules() if not any(True for _ in module.children())], hook)


@contextmanager
def _with_hooks(modules: Iterable[nn.Module], hook: Hook) -> Iterator[None]:
    hooks = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()
