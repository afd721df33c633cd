"""What other systems call our keys (TRL, veRL, OpenRLHF, prime-rl), and the key that somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

# Ours: theirs. A dotted name stands for the end of a longer one, `rollout.n` for `actor_rollout_ref.rollout.n`.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "name": ("run_name", "experiment_name", "exp_name", "output_dir"),
    "seed": ("random_seed", "data_seed"),
    "model.path": ("model_name_or_path", "model_path", "model_name", "pretrain", "base_model"),
    "model.dtype": ("torch_dtype", "bf16", "precision"),
    "model.gradient_checkpointing": ("enable_gradient_checkpointing", "activation_checkpointing"),
    "env.data": ("train_files", "dataset_name", "prompt_data", "dataset", "train_data"),
    "env.data_split": ("dataset_train_split", "prompt_split"),
    "env.eval_data": ("val_files", "eval_dataset", "test_data", "val_data"),
    "env.max_turns": ("max_assistant_turns", "max_tool_calling_iterations", "max_steps_per_episode"),
    "reward.name": ("reward_funcs", "reward_fn", "reward_manager", "custom_reward_function"),
    "algorithm.name": ("adv_estimator", "advantage_estimator", "algo"),
    "algorithm.reduction": ("loss_agg_mode", "loss_type"),
    "algorithm.epochs": ("ppo_epochs", "num_ppo_epochs", "num_iterations", "max_epochs"),
    "algorithm.minibatches": ("ppo_mini_batch_size", "num_mini_batches", "mini_batch_size"),
    "algorithm.kl_coef": ("kl_loss_coef", "init_kl_coef", "use_kl_loss", "kl_beta"),
    "algorithm.kl_kind": ("kl_estimator", "kl_loss_type", "kl_penalty"),
    "algorithm.kl_in": ("use_kl_in_reward",),
    "algorithm.entropy_coef": ("entropy_coeff", "entropy_loss_coef", "ent_coef"),
    "algorithm.clip_low": ("epsilon", "clip_ratio", "clip_ratio_low", "eps_clip", "cliprange", "clip_range"),
    "algorithm.clip_high": ("epsilon_high", "clip_ratio_high", "eps_clip_high"),
    "algorithm.dual_clip": ("clip_ratio_c", "delta"),
    "algorithm.value_clip": ("cliprange_value", "value_clip_range"),
    "algorithm.normalize_std": ("scale_rewards", "norm_adv_by_std_in_grpo"),
    "algorithm.ratio_level": ("importance_sampling_level",),
    "algorithm.is_correction": ("vllm_importance_sampling_correction", "rollout_is", "enable_vllm_is_correction"),
    "algorithm.is_cap": ("vllm_importance_sampling_cap", "tis_imp_ratio_cap", "rollout_is_threshold"),
    "algorithm.lam": ("gae_lambda", "lambd", "lambda"),
    "algorithm.discount": ("gamma",),
    "algorithm.reward_clip": ("reward_clip_range", "clip_reward_range"),
    "engine.max_model_len": ("max_length", "max_seq_len", "max_seq_length", "seq_len", "max_len", "context_length"),
    "engine.max_num_seqs": ("max_running_requests", "max_concurrent_requests"),
    "engine.gpu_memory_utilization": ("vllm_gpu_memory_utilization", "mem_fraction_static"),
    "engine.tensor_parallel": (
        "tensor_parallel_size",
        "tensor_model_parallel_size",
        "vllm_tensor_parallel_size",
        "tp",
        "tp_size",
    ),
    "engine.prefix_cache": ("enable_prefix_caching", "enable_prefix_cache"),
    "engine.enforce_eager": ("vllm_enforce_eager", "use_cuda_graph"),
    "rollout.workers": ("vllm_num_engines", "num_rollout_workers", "num_workers", "data_parallel_size"),
    "window.prompt": ("max_prompt_length", "prompt_max_len", "max_prompt_tokens"),
    "rollout.max_turn_tokens": ("max_completion_length", "max_new_tokens", "generate_max_len", "max_tokens"),
    "rollout.max_response_tokens": ("max_response_length", "response_length"),
    "learner.lr": ("learning_rate", "actor_learning_rate", "actor_lr"),
    "learner.critic_lr": ("critic_learning_rate", "value_lr"),
    "learner.schedule": ("lr_scheduler_type", "lr_scheduler", "lr_decay_style", "warmup_style"),
    "learner.warmup_steps": ("lr_warmup_steps", "num_warmup_steps"),
    "learner.warmup_ratio": ("lr_warmup_ratio", "lr_warmup_steps_ratio"),
    "learner.final_lr_ratio": ("min_lr_ratio", "min_lr"),
    "learner.betas": ("adam_betas", "adam_beta1", "adam_beta2"),
    "learner.clip_grad": ("max_grad_norm", "max_norm", "grad_clip", "gradient_clipping", "clip_grad_norm"),
    "learner.ranks": ("n_gpus_per_node", "actor_num_gpus_per_node", "num_gpus", "num_processes", "world_size"),
    "learner.zero_stage": ("zero", "deepspeed_stage"),
    "learner.offload": ("optimizer_offload", "param_offload", "adam_offload", "offload_optimizer"),
    "learner.offload_reference": ("ref_offload", "offload_ref", "ref_reward_offload"),
    "learner.behavior": ("use_rollout_log_probs",),
    "learner.tokens_per_row": (
        "per_device_train_batch_size",
        "micro_train_batch_size",
        "micro_batch_size",
        "ppo_micro_batch_size_per_gpu",
        "ppo_max_token_len_per_gpu",
        "gradient_accumulation_steps",
    ),
    "loop.group_size": ("num_generations", "n_samples_per_prompt", "rollouts_per_example", "rollout.n", "num_samples"),
    "loop.groups_per_step": ("batch_size", "train_batch_size", "rollout_batch_size", "generation_batch_size"),
    "loop.max_policy_lag": ("async_level", "max_async_level", "max_staleness", "staleness_threshold"),
    "eval.tasks": ("val_batch_size", "num_eval_samples", "max_eval_samples"),
    "eval.samples": ("eval_n_samples_per_prompt", "val_kwargs.n"),
    "eval.temperature": ("eval_temperature", "val_kwargs.temperature"),
    "eval.every": ("eval_steps", "test_freq", "eval_interval", "eval_strategy"),
    "generate.samples": ("best_of_n", "n_samples"),
    "checkpoint.every": ("save_steps", "save_freq", "save_interval", "ckpt_interval"),
    "checkpoint.keep": ("save_total_limit", "max_actor_ckpt_to_keep", "max_ckpt_num"),
    "cluster.address": ("ray_address",),
    "cluster.device": ("device", "use_cpu"),
    "wandb.project": ("project_name", "wandb_project"),
    "wandb.mode": ("report_to", "logger", "use_wandb"),
    "stages.NAME.steps": ("steps", "max_steps", "total_training_steps", "total_steps", "num_steps"),
    "stages.NAME.epochs": ("epochs", "num_train_epochs", "total_epochs", "num_episodes"),
}
# What people ask for and rlsys does not have, with what there is.
ABSENT: Mapping[str, str] = {
    **dict.fromkeys(
        ("pipeline_parallel_size", "context_parallel_size", "ring_attn_size", "ulysses_sequence_parallel_size"),
        "ranks divide weights and data alone: learner.ranks, learner.zero_stage",
    ),
    **dict.fromkeys(
        ("lora", "lora_rank", "lora_r", "lora_alpha", "lora_dropout", "use_lora", "use_peft", "load_in_4bit"),
        "there is no such thing here: all weights are trained",
    ),
    **dict.fromkeys(
        ("use_vllm", "vllm_mode", "rollout_backend"),
        "there is no such choice here: vLLM plays, on engines of its own beside the learner's GPUs",
    ),
    **dict.fromkeys(
        ("tensorboard", "tensorboard_dir", "use_tensorboard"),
        "there is none here: rows go to the run directory (`rlsys analyse` draws them) and to wandb (wandb.mode)",
    ),
    **dict.fromkeys(("logging_steps", "log_interval", "log_freq"), "there is no such key here: each step has its row"),
}
# What means one thing in one algorithm and another in the next.
SEVERAL: Mapping[str, tuple[str, ...]] = {"beta": ("algorithm.kl_coef", "algorithm.beta")}
ALIKE = 0.6  # how much two names must have in common
NEARLY = 0.75  # and how much across sections
MOST = 4  # keys that one line names


def meant(key: str, known: Iterable[str]) -> str:
    """The end of an error line about a key that is none: ` (did you mean 'learner.lr'?)`. Empty where nobody can tell.

    known: the full names of the keys that there are. Looked at in this order: what other systems call it, its last part
    in other places, names spelled alike beside it, then anywhere.
    """
    names = list(dict.fromkeys(known))
    parts = key.split(".")
    ends = [".".join(parts[start:]).casefold().replace("-", "_") for start in range(len(parts))]
    for end in ends:
        if end in ABSENT:
            return f": {ABSENT[end]}"
    for end in ends:
        several = [ours for ours in SEVERAL.get(end, ()) if ours in names]
        if several and key not in several:
            return _question(several)
    theirs = {name: ours for ours, others in SYNONYMS.items() for name in others if ours in names}
    for end in ends:
        if end in theirs:
            return _question([theirs[end]])
    elsewhere = [name for name in names if name.rpartition(".")[2] == parts[-1] and not name.startswith("eval.sets.")]
    if elsewhere:
        return _question(elsewhere[:MOST])
    section = key.rpartition(".")[0]
    beside = [name for name in names if name.rpartition(".")[0] == section]
    anywhere = {name.rpartition(".")[2]: ours for name, ours in theirs.items()}
    # In a section that there is, a word out of another has to be nearly the same to be what was meant.
    for group, alike in ((_by_last(beside), ALIKE), (anywhere | _by_last(names), NEARLY if beside else ALIKE)):
        close = difflib.get_close_matches(ends[-1][:80], group, n=1, cutoff=alike)
        if close:
            return _question([group[close[0]]])
    return ""


def _by_last(names: list[str]) -> dict[str, str]:
    return {name.rpartition(".")[2]: name for name in reversed(names)}


def _question(names: list[str]) -> str:
    quoted = [repr(name) for name in names]
    return f" (did you mean {', '.join(quoted[:-1])}{' or ' * (len(quoted) > 1)}{quoted[-1]}?)"
