"""The policy: a transformers causal language model that gives log-probabilities of packed rows.

Shapes: T tokens of a row, N of them with a log-probability to compute, H hidden size, V vocabulary.
The [T, V] logits are never held: the language-model head runs on the positions that the loss needs, a chunk at a time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from learners import attention, lora, partitioned
from learners.compiled import compile_layers, compiled
from learners.kernels import Product, linear, product_of, use_fused_norms, use_onednn, widen
from learners.own_head import own_product
from learners.proofs import examine_head, require_packing, require_shared_rows
from learners.rope import scale_rope
from learners.rows import own_outputs, row_inputs
from learners.sequence_parallel import SequenceGroup
from rlsys.adapters import Adapter
from rlsys.errors import BadInput

REFUSALS = (OSError, ValueError, KeyError, SafetensorError, pickle.UnpicklingError)  # of a model, by transformers

DropoutField = tuple[type[PreTrainedConfig], str]
# `chosen_logprobs`: (logits [N, V], targets [N], temperature, entropy_gradient) -> (logp_N, entropy_N)
LogProbs = Callable[[torch.Tensor, torch.Tensor, float, bool], tuple[torch.Tensor, torch.Tensor]]


class PolicyModel(nn.Module):
    """Wraps a model in `self.model`, whose parameters keep their Hugging Face names.

    Raises BadInput where one sample of a packed row sees another, a head cannot be computed apart, or ranks cannot
    share a row (`learners.proofs`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        own_dropout: Mapping[DropoutField, float] | None = None,
        *,
        dtype: torch.dtype | None = None,
        group: SequenceGroup | None = None,
    ) -> None:
        """dtype: of the weights outside of the learner, in engines and checkpoints; None: as they are here. group: the
        ranks that share each row."""
        super().__init__()
        self.model = model
        self.dtype = dtype or model.dtype
        self.narrow = self.dtype != model.dtype
        self.own_dropout = dict(own_dropout or {})
        self.adapter: Adapter | None = None  # that is trained in its place: `take_adapter`
        require_packing(model)
        if group is not None:
            require_shared_rows(model, group)
        self.linear_head, self.hidden_size = examine_head(model)
        self.compute_logprobs = chosen_logprobs

    def take_adapter(self, adapter: Adapter, seed: int, folder: str | None = None) -> None:
        """Freeze the weights and train an adapter: a new one, or that of a folder."""
        lora.inject(self.model, adapter, seed)
        if folder is not None:
            lora.load_adapter(self.model, folder)
        use_onednn(self, narrow=self.narrow)
        self.adapter = adapter

    def compile_parts(self, backend: str = "inductor") -> None:
        """Layers and log-probabilities, from the next pass on."""
        compile_layers(self.model, backend)
        self.compute_logprobs = compiled(chosen_logprobs, backend)

    def own_config(self) -> PreTrainedConfig:
        """The configuration to save: the model's own, with the dropout that the learner turned off put back."""
        config = deepcopy(self.model.config)
        for part in _nested_configs(config):
            for (kind, name), value in self.own_dropout.items():
                if type(part) is kind:
                    setattr(part, name, value)
        return config

    def forward(
        self,
        token_ids: torch.Tensor,
        position_ids: torch.Tensor,
        cu_seqlens: torch.Tensor,
        temperature: float,
        logit_chunk: int,
        needed_T: torch.Tensor | None = None,
        entropy_gradient: bool = False,
        group: SequenceGroup | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(logp, entropy), each [T] float32, of token t given the earlier tokens of its sample.

        token_ids, position_ids: [T] int64. cu_seqlens: [S+1] int32. needed_T: [T] bool, where to compute (everywhere).
        Zero at each sample's first token and where not needed. Entropy is in nats, with a gradient where asked for.
        group: the ranks that share the row. Each gives the whole of it, gets all values, and computes its part.
        """
        num_tokens = token_ids.numel()
        wanted_T = torch.ones_like(token_ids, dtype=torch.bool) if needed_T is None else needed_T.clone()
        wanted_T[cu_seqlens[:-1].long().clamp(max=num_tokens - 1)] = False
        inputs = row_inputs(self.model, token_ids, position_ids, cu_seqlens, group)
        targets_N, places_N = own_outputs(inputs, wanted_T.nonzero().squeeze(1))
        hidden_UH = self.model.base_model(**inputs).last_hidden_state[0]
        head = self.model.get_output_embeddings()
        product = product_of(head)
        logp_N, entropy_N = head_logprobs(
            hidden_UH.index_select(0, places_N),
            head.weight,
            head.bias,
            token_ids[targets_N],
            temperature=temperature,
            chunk=logit_chunk,
            entropy_gradient=entropy_gradient,
            product=product if self.linear_head else own_product(self.model, product),
            compute=self.compute_logprobs,
        )
        zeros_T = logp_N.new_zeros(num_tokens)
        values = zeros_T.index_copy(0, targets_N, logp_N), zeros_T.index_copy(0, targets_N, entropy_N)
        return values if group is None else (group.add_up(values[0]), group.add_up(values[1]))


def chosen_logprobs(
    logits_NV: torch.Tensor, targets_N: torch.Tensor, temperature: float, entropy_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logp_N, entropy_N) float32: log-probabilities of the targets, and the entropy at each position, in nats."""
    logits_NV = logits_NV.float()
    logp_NV = (logits_NV if temperature == 1.0 else logits_NV / temperature).log_softmax(-1)
    logp_N = logp_NV.gather(1, targets_N[:, None]).squeeze(1)  # first: a recomputation ends with what a gradient needs
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy_N = -torch.linalg.vecdot(logp_NV.exp(), logp_NV)
    return logp_N, entropy_N


def head_logprobs(
    hidden_NH: torch.Tensor,
    weight_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    targets_N: torch.Tensor,
    *,
    temperature: float,
    chunk: int,
    entropy_gradient: bool = False,
    product: Product = linear,
    compute: LogProbs = chosen_logprobs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logp_N, entropy_N) float32; logits of at most `chunk` positions exist at once, in the backward pass as well.

    compute: `chosen_logprobs`, or what computes the same.
    """

    def part(hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return compute(product(hidden, weight_VH, bias_V), targets, temperature, entropy_gradient)

    if hidden_NH.shape[0] <= chunk:  # also when nothing is needed: the graph must still reach every parameter
        return part(hidden_NH, targets_N)
    parts = [
        checkpoint(part, hidden, targets, use_reentrant=False, preserve_rng_state=False)
        for hidden, targets in zip(hidden_NH.split(chunk), targets_N.split(chunk), strict=True)
    ]
    return torch.cat([logp for logp, _ in parts]), torch.cat([entropy for _, entropy in parts])


class CriticModel(nn.Module):
    """The policy's own architecture and weights below a head with one output, which starts at zero (elsewhere
    `value_model`, `critic_model`)."""

    def __init__(self, policy: PolicyModel) -> None:
        """Takes the policy's transformer over: the policy model given here is not used any further."""
        super().__init__()
        self.model = policy.model.base_model
        self.head = nn.Linear(policy.hidden_size, 1, dtype=policy.model.dtype, device=policy.model.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self,
        token_ids: torch.Tensor,
        position_ids: torch.Tensor,
        cu_seqlens: torch.Tensor,
        needed_T: torch.Tensor,
        group: SequenceGroup | None = None,
    ) -> torch.Tensor:
        """[T] float32: at t the value of the state in which token t is chosen, from the tokens before it.

        As the policy's: token_ids, position_ids [T], cu_seqlens [S+1]; zero at each sample's first token and where
        not needed.
        """
        wanted_T = needed_T.clone()
        wanted_T[cu_seqlens[:-1].long()] = False
        inputs = row_inputs(self.model, token_ids, position_ids, cu_seqlens, group)
        targets_N, places_N = own_outputs(inputs, wanted_T.nonzero().squeeze(1))
        hidden_UH = self.model(**inputs).last_hidden_state[0]
        values_N = self.head(hidden_UH.index_select(0, places_N)).squeeze(-1).float()
        values_T: torch.Tensor = values_N.new_zeros(token_ids.numel()).index_copy(0, targets_N, values_N)
        return values_T if group is None else group.add_up(values_T)


def load_policy(
    path: str,
    *,
    dtype: str,
    attention_key: str,
    gradient_checkpointing: bool = False,
    compiled: bool = False,
    fp32_head: bool = False,
    held: str | None = None,
    rope_theta_scale: float = 1.0,
    device: torch.device | str = "cpu",
    zero_3: Mapping[str, Any] | None = None,
    group: SequenceGroup | None = None,
) -> PolicyModel:
    """Load a hub name or a local folder. attention_key: one that `attention.first_usable` chose.

    dtype: of the weights outside of the learner. held: of those in it, where that is another; then products are narrow.
    compiled: layers and log-probabilities, by torch.
    zero_3: DeepSpeed's configuration, to keep only this rank's part of the model; then every rank calls, as it does
    with a group of ranks that share each row.
    Raises BadInput for what transformers cannot load and for attention that packed rows would get wrong.
    """
    attention.register()
    disable_progress_bar()
    torch_dtype: torch.dtype = getattr(torch, held or dtype)
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        _refuse_chunked_attention(config, path)
        scale_rope(config, rope_theta_scale, path)
        own_dropout = _turn_dropout_off(config)
        if zero_3 is not None and torch.distributed.get_rank() != 0:
            model = partitioned.hollow(config, torch_dtype, attention_key)
        else:
            model = AutoModelForCausalLM.from_pretrained(
                path, config=config, dtype=torch_dtype, attn_implementation=attention_key, trust_remote_code=False
            )
    except REFUSALS as error:  # fault boundary
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise BadInput(f"model {path}: transformers cannot load it for {attention_key}: {reason}") from error
    if gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if zero_3 is None:
        model.to(device)
    else:
        partitioned.partition(model, zero_3, device)
    with partitioned.whole_in_forward(model):
        policy = PolicyModel(model, own_dropout, dtype=getattr(torch, dtype), group=group).train()
    use_onednn(policy, narrow=policy.narrow)
    use_fused_norms(policy)
    if fp32_head or policy.narrow:
        widen(model.get_output_embeddings())
    if compiled:
        policy.compile_parts()
    return policy


def _nested_configs(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """A configuration and those inside it (of the text half of a multimodal model, say)."""
    yield config
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            yield from _nested_configs(value)


def _turn_dropout_off(config: PreTrainedConfig) -> dict[DropoutField, float]:
    """Set every dropout probability to 0 and return the former values: the engine samples without dropout, so the
    learner must score without it. To be called before the model is built, whose modules copy the values."""
    probabilities: dict[DropoutField, float] = {}
    for part in _nested_configs(config):
        for name, value in list(vars(part).items()):
            if "drop" in name and isinstance(value, (int, float)) and not isinstance(value, bool) and value:
                probabilities[type(part), name] = value
                setattr(part, name, type(value)(0))
    return probabilities


def _refuse_chunked_attention(config: PreTrainedConfig, path: str) -> None:
    chunk = getattr(config.get_text_config(), "attention_chunk_size", None)
    if chunk is not None:
        raise BadInput(
            f"config.json has attention_chunk_size={chunk}",
            where=f"model {path}",
            expected="none, for chunks would be counted from the start of a packed row and not of each sample",
        )
