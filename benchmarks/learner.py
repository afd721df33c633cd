"""Learner against a plain PyTorch loop on the same packed rows: `python benchmarks/learner.py [--zero 3] ...`.

The plain loop has the same model and attention, whole logits, torch's AdamW and clipping: no DeepSpeed, no chunks, no
metrics. Both take turns, a step each, and medians are compared, so that a busy machine disturbs both alike. Prints
tokens per second, where the learner's time goes, peak memory, and on a GPU the share of its measured matmul peak.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from report import Report, parser

from learners.algorithms.base import Algorithm
from learners.algorithms.grpo import GRPO, GRPOConfig
from learners.algorithms.ppo import PPO, PPOConfig
from learners.algorithms.sft import SFT, SFTConfig
from learners.attention import first_usable
from learners.flops import matmul_peak, row_flops
from learners.meeting import RankSpec
from learners.policy import PolicyModel, load_policy
from learners.rank import LearnerRank
from learners.rows import output_positions, row_inputs
from learners.zero import parameter_groups
from rlsys.batch import Batch, MicroBatch, build_batch
from rlsys.config.learner import LearnerConfig
from rlsys.metrics import values
from rlsys.plan import plan_samples
from rlsys.system.device import DEVICES
from rlsys.types import Sample

ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "grpo": lambda: GRPO(GRPOConfig()),
    "ppo": lambda: PPO(PPOConfig(kl_coef=0.01)),
    "sft": lambda: SFT(SFTConfig()),
}


def save_model(folder: str, options: argparse.Namespace) -> None:
    """The head has about the share of the weights that it has in a model of 1.5 B with 150,000 tokens."""
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=options.vocab,
        hidden_size=options.hidden,
        intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        num_key_value_heads=max(1, options.hidden // 128),
        head_dim=64,
        tie_word_embeddings=False,
        dtype=options.dtype,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def make(options: argparse.Namespace) -> Batch:
    """Responses of very different lengths behind prompts of about a quarter of the tokens."""
    draw = random.Random(0)
    samples, tokens = [], 0
    while tokens < options.tokens:
        prompt, sampled = draw.randint(20, 120), min(int(draw.lognormvariate(5.0, 0.7)) + 1, options.row // 2)
        length = prompt + sampled
        mask = np.arange(length) >= prompt
        samples.append(
            Sample(
                token_ids=np.array([draw.randrange(options.vocab) for _ in range(length)], np.int32),
                loss_mask=mask,
                behavior_logprobs=np.where(mask, -9.0, 0.0).astype(np.float32),
                advantages=np.where(mask, draw.gauss(0, 1), 0.0).astype(np.float32),
                versions=np.where(mask, 0, -1).astype(np.int32),
                reward=draw.random(),
            )
        )
        tokens += length
    plan = plan_samples(samples, options.row, version=0)
    return build_batch(plan, plan.sources)


class PlainLoop:
    def __init__(self, policy: PolicyModel, learner: LearnerConfig) -> None:
        self.model = policy.model
        self.learner = learner
        groups = parameter_groups(policy, learner.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, lr=learner.lr, betas=learner.betas, fused=True)

    def step(self, batch: Batch) -> None:
        for row in batch.rows:
            self._backward(row, batch.denominators[0])
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.learner.clip_grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()

    def _backward(self, row: MicroBatch, denominator: float) -> None:
        device = self.model.device
        ids, mask = row.token_ids.to(device), row.loss_mask.to(device)
        inputs = row_inputs(self.model, ids, row.position_ids.to(device), row.cu_seqlens.to(device))
        hidden = self.model.base_model(**inputs).last_hidden_state[0]
        index = mask.nonzero().squeeze(1)
        logp = self.model.get_output_embeddings()(hidden[output_positions(inputs, index - 1)]).float().log_softmax(-1)
        logp = logp.gather(1, ids[index, None]).squeeze(1)
        advantages, behavior = row.advantages.to(device)[index], row.behavior_logprobs.to(device)[index]
        ratio = (logp - behavior).exp()
        (-torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages).sum() / denominator).backward()


def timed(step: Callable[[Batch], object], batch: Batch) -> tuple[Any, float, float]:
    """(what it gave, wall seconds, seconds of the processor): a neighbour on the machine lengthens only the first."""
    started, busy = time.perf_counter(), time.process_time()
    result = step(batch)
    return result, time.perf_counter() - started, time.process_time() - busy


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--device", choices=list(DEVICES), default="cpu")
    cli.add_argument("--dtype", default="float32")
    cli.add_argument("--zero", type=int, choices=(1, 2, 3), default=2)
    cli.add_argument("--algorithm", choices=sorted(ALGORITHMS), default="grpo")
    cli.add_argument("--hidden", type=int, default=256, help="a multiple of 128")
    cli.add_argument("--layers", type=int, default=8)
    cli.add_argument("--vocab", type=int, default=4096)
    cli.add_argument("--tokens", type=int, default=6_000, help="of a batch")
    cli.add_argument("--row", type=int, default=2048, help="tokens of a row")
    cli.add_argument("--steps", type=int, default=5)
    cli.add_argument("--compile", action="store_true", help="the learner's layers, by torch; on a GPU")
    cli.add_argument("--recompute", action="store_true", help="activations of the learner, as on GPUs by default")
    cli.add_argument("--threads", type=int, default=os.cpu_count())
    options = cli.parse_args()
    if options.compile and options.device == "cpu":
        cli.error("--compile is of a GPU: --device cuda")
    torch.set_num_threads(options.threads)
    learner = LearnerConfig(
        zero_stage=options.zero, tokens_per_row=options.row, threads=options.threads, compile=options.compile
    )
    algorithm = ALGORITHMS[options.algorithm]()
    batch = make(options)
    device = DEVICES[options.device]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec = RankSpec(
        rank=0, world_size=1, master_addr="127.0.0.1", master_port=port, device=device, dtype=options.dtype,
        gradient_checkpointing=options.recompute, seed=0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder, options)
        rank = LearnerRank(spec)
        rank.begin(folder, learner, algorithm, 100, 1.0)
        key = first_usable(device.attention, getattr(torch, spec.held_dtype))
        policy = load_policy(
            folder, dtype=options.dtype, held=spec.held_dtype, attention_key=key, device=rank.torch_device
        )
        plain = PlainLoop(policy, learner)
    plain_s, learner_s, busy, reports = [], [], [], []
    for turn in range(options.steps + 1):
        _, of_plain, plain_busy = timed(plain.step, batch)
        report, of_learner, learner_busy = timed(rank.update, batch)
        if turn:  # the first one warms up
            plain_s.append(of_plain)
            learner_s.append(of_learner)
            busy.append(plain_busy / learner_busy)
            reports.append(values(report.metrics))
    show(options, batch, policy, plain_s, learner_s, busy, reports, rank)
    rank.close()


def show(
    options: argparse.Namespace,
    batch: Batch,
    policy: PolicyModel,
    plain_s: list[float],
    learner_s: list[float],
    busy: list[float],
    reports: list[dict[str, float]],
    rank: LearnerRank,
) -> None:
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    tokens, useful = batch.num_tokens, batch.denominators[0]
    ratios = [a / b for a, b in zip(plain_s, learner_s, strict=True)]
    total = median(learner_s)
    flops = sum(row_flops(policy, row) for row in batch.rows)
    peak = matmul_peak(rank.torch_device, options.dtype)
    with Report(options) as report:
        report.head("run", "plain tokens/s", "learner tokens/s", "ratio", "of processor time")
        name = f"{options.algorithm}, ZeRO-{options.zero}"
        report.row(name, tokens / median(plain_s), tokens / total, median(ratios), median(busy))
        report.head("phase of an update", "share")
        phases = {name for metrics in reports for name in metrics if name.startswith("time/learner_")}
        shares = {name: median(metrics[name] for metrics in reports) / total for name in phases}
        for name, share in sorted(shares.items(), key=lambda pair: -pair[1]):
            report.row(name.removeprefix("time/learner_"), share)
        report.row("the rest", 1 - sum(shares.values()))
        if peak is not None:
            report.head("share of the matmul peak", "learner", "plain loop")
            mfu = median(metrics["learner/mfu"] for metrics in reports)
            report.row(f"of {peak / 1e12:.0f} TFLOP/s", mfu, flops / median(plain_s) / peak)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        report.note(
            f"{parameters / 1e6:.1f} M parameters, vocabulary {options.vocab}, {options.dtype} on {options.device}, "
            f"{options.threads} threads; {len(batch.rows)} rows, {tokens} tokens, {useful} in the loss; pairs of "
            f"steps {min(ratios):.2f} to {max(ratios):.2f}; peak memory of the process {memory:,.0f} MiB"
        )


if __name__ == "__main__":
    main()
