"""Hints for keys that do not exist: other systems' names, other sections, other spellings."""

import pytest

from launch.config.compose import TABLES, compose
from launch.config.keys import known_names
from launch.config.layers import find_config
from launch.config.synonyms import load_synonyms, suggest_key
from learners.algorithms.grpo import GRPOConfig
from rlsys.errors import BadInput

KNOWN = known_names(TABLES, {})
ABSENT, SILENT = "absent", "silent"  # a sentence what to do instead; no hint at all, rather than a wrong one
# Keys of veRL's ppo_trainer.yaml and its DAPO recipe, and where they lead.
VERL = {
    "actor_rollout_ref.actor.optim.lr": "learner.lr",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "learner.warmup_steps",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "learner.warmup_ratio",
    "actor_rollout_ref.actor.optim.min_lr_ratio": "learner.final_lr_ratio",
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "learner.schedule",
    "actor_rollout_ref.actor.optim.weight_decay": "learner.weight_decay",
    "actor_rollout_ref.actor.optim.betas": "learner.betas",
    "actor_rollout_ref.actor.optim.optimizer": ABSENT,
    "actor_rollout_ref.actor.optim.num_cycles": SILENT,
    "actor_rollout_ref.actor.fsdp_config.param_offload": "learner.offload",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload": "learner.offload",
    "actor_rollout_ref.actor.fsdp_config.fsdp_size": ABSENT,
    "actor_rollout_ref.actor.ppo_mini_batch_size": "algorithm.minibatches",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "learner.tokens_per_row",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": "learner.tokens_per_row",
    "actor_rollout_ref.actor.use_dynamic_bsz": ABSENT,
    "actor_rollout_ref.actor.clip_ratio": "algorithm.clip_low",
    "actor_rollout_ref.actor.clip_ratio_high": "algorithm.clip_high",
    "actor_rollout_ref.actor.clip_ratio_c": "algorithm.dual_clip",
    "actor_rollout_ref.actor.loss_agg_mode": "algorithm.reduction",
    "actor_rollout_ref.actor.entropy_coeff": "algorithm.entropy_coef",
    "actor_rollout_ref.actor.entropy_checkpointing": SILENT,
    "actor_rollout_ref.actor.use_kl_loss": "algorithm.kl_coef",
    "actor_rollout_ref.actor.kl_loss_coef": "algorithm.kl_coef",
    "actor_rollout_ref.actor.kl_loss_type": "algorithm.kl_kind",
    "actor_rollout_ref.actor.ppo_epochs": "algorithm.epochs",
    "actor_rollout_ref.actor.grad_clip": "learner.clip_grad",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": "learner.sequence_parallel",
    "actor_rollout_ref.actor.checkpoint.async_save": SILENT,
    "actor_rollout_ref.actor.router_replay.mode": SILENT,
    "actor_rollout_ref.ref.fsdp_config.param_offload": "learner.offload_reference",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "learner.tokens_per_row",
    "actor_rollout_ref.rollout.name": ABSENT,
    "actor_rollout_ref.rollout.temperature": "rollout.temperature",
    "actor_rollout_ref.rollout.top_k": ABSENT,
    "actor_rollout_ref.rollout.top_p": "rollout.top_p",
    "actor_rollout_ref.rollout.response_length": "rollout.max_response_tokens",
    "actor_rollout_ref.rollout.gpu_memory_utilization": "engine.gpu_memory_utilization",
    "actor_rollout_ref.rollout.free_cache_engine": "cluster.placement",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "engine.tensor_parallel",
    "actor_rollout_ref.rollout.max_num_batched_tokens": "engine.vllm",
    "actor_rollout_ref.rollout.max_num_seqs": "engine.max_num_seqs",
    "actor_rollout_ref.rollout.load_format": ABSENT,
    "actor_rollout_ref.rollout.mtp": SILENT,
    "actor_rollout_ref.rollout.n": "loop.group_size",
    "actor_rollout_ref.rollout.val_kwargs.do_sample": "eval.greedy",
    "actor_rollout_ref.rollout.val_kwargs.n": "eval.samples",
    "actor_rollout_ref.rollout.val_kwargs.top_k": ABSENT,
    "actor_rollout_ref.rollout.multi_turn.enable": ABSENT,
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": "env.max_turns",
    "actor_rollout_ref.rollout.multi_turn.max_tool_response_length": "env.max_reply_tokens",
    "actor_rollout_ref.rollout.agent.custom_async_server.path": SILENT,
    "actor_rollout_ref.rollout.prometheus.file": SILENT,
    "actor_rollout_ref.model.path": "model.path",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "model.gradient_checkpointing",
    "actor_rollout_ref.model.lora_rank": "model.lora.rank",
    "actor_rollout_ref.model.trust_remote_code": ABSENT,
    "actor_rollout_ref.nccl_timeout": ABSENT,
    "critic.optim.lr": "learner.critic_lr",
    "critic.model.path": ABSENT,
    "critic.cliprange_value": "algorithm.value_clip",
    "data.train_files": "env.data",
    "data.val_files": "env.eval_data",
    "data.train_max_samples": "env.data_tasks",
    "data.train_batch_size": "loop.groups_per_step",
    "data.val_batch_size": "eval.concurrency",
    "data.max_prompt_length": "window.prompt",
    "data.max_response_length": "rollout.max_response_tokens",
    "data.shuffle": ABSENT,
    "data.filter_overlong_prompts": ABSENT,
    "data.truncation": ABSENT,
    "data.custom_cls.path": ABSENT,
    "reward_model.enable": ABSENT,
    "reward_model.model.path": ABSENT,
    "reward_model.micro_batch_size_per_gpu": ABSENT,
    "reward_model.reward_manager": "reward.name",
    "reward_model.overlong_buffer.len": "reward.overlong_buffer",
    "reward_model.overlong_buffer.penalty_factor": "reward.overlong_penalty",
    "custom_reward_function.path": "reward.functions",
    "algorithm.adv_estimator": "algorithm.name",
    "algorithm.gamma": "algorithm.discount",
    "algorithm.norm_adv_by_std_in_grpo": "algorithm.normalize_std",
    "algorithm.use_kl_in_reward": "algorithm.kl_in",
    "algorithm.kl_penalty": "algorithm.kl_kind",
    "algorithm.kl_ctrl.kl_coef": "algorithm.kl_coef",
    "algorithm.kl_ctrl.target_kl": ABSENT,
    "algorithm.rollout_correction.rollout_is": "algorithm.is_correction",
    "algorithm.rollout_correction.rollout_is_threshold": "algorithm.is_cap",
    "algorithm.rollout_correction.loss_type": SILENT,
    "algorithm.filter_groups.enable": "loop.oversample",
    "algorithm.filter_groups.metric": ABSENT,
    "trainer.balance_batch": ABSENT,
    "trainer.total_epochs": "stages.NAME.epochs",
    "trainer.total_training_steps": "stages.NAME.steps",
    "trainer.project_name": "wandb.project",
    "trainer.experiment_name": "name",
    "trainer.logger": "tracker",
    "trainer.log_val_generations": "wandb.samples",
    "trainer.nnodes": ABSENT,
    "trainer.n_gpus_per_node": "learner.ranks",
    "trainer.save_freq": "checkpoint.every",
    "trainer.test_freq": "eval.every",
    "trainer.val_before_train": ABSENT,
    "trainer.val_only": ABSENT,
    "trainer.resume_mode": ABSENT,
    "trainer.critic_warmup": ABSENT,
    "trainer.default_local_dir": ABSENT,
    "trainer.max_actor_ckpt_to_keep": "checkpoint.keep",
    "trainer.device": "cluster.device",
    "global_profiler.tool": ABSENT,
    "async_training.staleness_threshold": "loop.max_policy_lag",
    "async_training.partial_rollout": ABSENT,
}
TRL = {
    "learning_rate": "learner.lr",
    "per_device_train_batch_size": "learner.tokens_per_row",
    "gradient_accumulation_steps": ABSENT,
    "generation_batch_size": "loop.groups_per_step",
    "steps_per_generation": ABSENT,
    "num_generations": "loop.group_size",
    "num_generations_eval": "eval.samples",
    "num_iterations": "algorithm.epochs",
    "max_completion_length": "rollout.max_turn_tokens",
    "max_tool_calling_iterations": "env.max_turns",
    "temperature": "rollout.temperature",
    "top_k": ABSENT,
    "min_p": ABSENT,
    "repetition_penalty": ABSENT,
    "generation_kwargs": ABSENT,
    "use_vllm": ABSENT,
    "vllm_mode": "cluster.placement",
    "vllm_server_host": ABSENT,
    "vllm_gpu_memory_utilization": "engine.gpu_memory_utilization",
    "vllm_max_model_length": "engine.max_model_len",
    "vllm_tensor_parallel_size": "engine.tensor_parallel",
    "vllm_importance_sampling_correction": "algorithm.is_correction",
    "vllm_importance_sampling_mode": "algorithm.is_correction",
    "vllm_importance_sampling_cap": "algorithm.is_cap",
    "vllm_importance_sampling_clip_min": "algorithm.is_floor",
    "beta": "algorithm.kl_coef",
    "epsilon": "algorithm.clip_low",
    "epsilon_high": "algorithm.clip_high",
    "delta": "algorithm.dual_clip",
    "importance_sampling_level": "algorithm.ratio_level",
    "reward_funcs": "reward.functions",
    "reward_weights": "reward.functions",
    "scale_rewards": "algorithm.normalize_std",
    "loss_type": "algorithm.reduction",
    "mask_truncated_completions": "algorithm.truncated",
    "sync_ref_model": ABSENT,
    "ref_model_mixup_alpha": ABSENT,
    "top_entropy_quantile": ABSENT,
    "cast_lm_head_to_fp32": "model.fp32_head",
    "log_completions": ABSENT,
    "num_completions_to_print": "wandb.samples",
    "model_init_kwargs": SILENT,
    "disable_dropout": ABSENT,
    "report_to": "tracker",
    "tensorboard": "tracker",
    "output_dir": "name",
    "bf16": "model.dtype",
    "fp16": ABSENT,
    "logging_steps": ABSENT,
    "save_steps": "checkpoint.every",
    "save_strategy": "checkpoint.every",
    "save_total_limit": "checkpoint.keep",
    "load_best_model_at_end": "checkpoint.best",
    "eval_strategy": "eval.every",
    "per_device_eval_batch_size": "eval.concurrency",
    "max_grad_norm": "learner.clip_grad",
    "max_steps": "stages.NAME.steps",
    "num_train_epochs": "stages.NAME.epochs",
    "optim": ABSENT,
    "adam_beta1": "learner.betas",
    "lr_scheduler_kwargs": SILENT,
    "gradient_checkpointing_kwargs": SILENT,
    "auto_find_batch_size": SILENT,
    "deepspeed": ABSENT,
    "resume_from_checkpoint": ABSENT,
    "push_to_hub": ABSENT,
    "use_peft": "model.lora.rank",
    "attn_implementation": ABSENT,
}
OPENRLHF = {
    "pretrain": "model.path",
    "critic_pretrain": ABSENT,
    "reward_pretrain": ABSENT,
    "remote_rm_url": ABSENT,
    "actor_learning_rate": "learner.lr",
    "critic_learning_rate": "learner.critic_lr",
    "l2": "learner.weight_decay",
    "micro_train_batch_size": "learner.tokens_per_row",
    "micro_rollout_batch_size": ABSENT,
    "train_batch_size": "loop.groups_per_step",
    "rollout_batch_size": "loop.groups_per_step",
    "n_samples_per_prompt": "loop.group_size",
    "max_epochs": "algorithm.epochs",
    "num_episodes": "stages.NAME.epochs",
    "prompt_max_len": "window.prompt",
    "generate_max_len": "rollout.max_turn_tokens",
    "eps_clip": "algorithm.clip_low",
    "eps_clip_low_high": "algorithm.clip_low",
    "lambd": "algorithm.lam",
    "init_kl_coef": "algorithm.kl_coef",
    "kl_target": ABSENT,
    "kl_estimator": "algorithm.kl_kind",
    "no_advantage_std_norm": "algorithm.normalize_std",
    "reward_clip_range": "algorithm.reward_clip",
    "policy_loss_type": "algorithm.name",
    "ptx_coef": ABSENT,
    "freezing_actor_steps": ABSENT,
    "actor_num_gpus_per_node": "learner.ranks",
    "actor_num_nodes": ABSENT,
    "ref_num_gpus_per_node": ABSENT,
    "colocate_all_models": "cluster.placement",
    "vllm_num_engines": "rollout.workers",
    "vllm.num_engines": "rollout.workers",
    "vllm_sync_backend": ABSENT,
    "packing_samples": ABSENT,
    "ring_attn_size": ABSENT,
    "zpg": ABSENT,
    "adam_offload": "learner.offload",
    "ref_reward_offload": "learner.offload_reference",
    "async_train": ABSENT,
    "async_queue_size": "loop.max_policy_lag",
    "dynamic_filtering": "loop.oversample",
    "use_wandb": "wandb.mode",
    "wandb_org": "wandb.entity",
    "use_tensorboard": "tracker",
    "eval.steps": "eval.every",
    "max_ckpt_num": "checkpoint.keep",
    "max_ckpt_mem": SILENT,
    "ckpt.path": ABSENT,
    "logger.wandb.project": "wandb.project",
    "data.max_len": "engine.max_model_len",
    "ds.lora.rank": "model.lora.rank",
}


def led_to(hint: str) -> str:
    """The first key that a hint names."""
    return hint.split("'")[1] if hint.startswith(" (did you mean") else ABSENT if hint else SILENT


def test_every_target_is_a_key_and_no_name_leads_to_two() -> None:
    table = load_synonyms()
    assert [ours for ours in table.equivalents if ours not in KNOWN] == []
    assert [ours for several in table.several.values() for ours in several if ours not in KNOWN] == []
    equivalents = [name for others in table.equivalents.values() for name in others]
    theirs = [*equivalents, *table.several, *table.absent, *table.unrelated]
    assert sorted(theirs) == sorted(set(theirs))
    assert [name for name in theirs if name in KNOWN or name != name.casefold()] == []
    assert [name for name in table.notes if name not in equivalents] == []


@pytest.mark.parametrize("names", [VERL, TRL, OPENRLHF], ids=["verl", "trl", "openrlhf"])
def test_no_key_of_another_system_leads_to_a_wrong_one(names: dict[str, str]) -> None:
    assert {name: led_to(suggest_key(name, KNOWN)) for name in names} == names


def test_a_sentence_for_what_is_absent_names_keys_that_there_are() -> None:
    words = [word.strip("`,;:()") for sentence in load_synonyms().absent.values() for word in sentence.split()]
    ours = [
        word.partition("=")[0] for word in words if word.partition(".")[0] in {name.split(".")[0] for name in KNOWN}
    ]
    assert [
        name
        for name in ours
        if "." in name and name not in KNOWN and not any(key.startswith(f"{name}.") for key in KNOWN)
    ] == []


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("learner.learning_rate", " (did you mean 'learner.lr'?)"),
        ("lr", " (did you mean 'learner.lr'?)"),
        ("beta", " (did you mean 'algorithm.kl_coef' or 'algorithm.beta'?)"),
        ("algorithm.beta", " (did you mean 'algorithm.kl_coef'?)"),
        ("reward.nope", ""),  # no reward has a key like it: not 'wandb.notes'
        ("num_generation", " (did you mean 'loop.group_size'?)"),
        ("kl_coef", " (did you mean 'algorithm.kl_coef'?)"),
        ("engine.tensor_parallel_size", " (did you mean 'engine.tensor_parallel'?)"),
        (
            "temperature",
            " (did you mean 'rollout.temperature', 'eval.temperature' or 'generate.temperature'?)",
        ),
        ("engine.groups_per_stop", " (did you mean 'loop.groups_per_step'?)"),
        ("quux", ""),
    ],
)
def test_what_was_meant(typed: str, hint: str) -> None:
    assert suggest_key(typed, KNOWN) == hint


@pytest.mark.parametrize(
    ("typed", "ours", "unit"),
    [
        ("ppo_mini_batch_size", "algorithm.minibatches", "a number of minibatches"),
        ("per_device_train_batch_size", "learner.tokens_per_row", "a number of tokens"),
        ("train_batch_size", "loop.groups_per_step", "a number of groups"),
        ("min_lr", "learner.final_lr_ratio", "a share of learner.lr"),
        ("no_advantage_std_norm", "algorithm.normalize_std", "the opposite switch"),
        ("staleness_threshold", "loop.max_policy_lag", "a number of versions"),
    ],
)
def test_a_hint_says_where_the_unit_differs(typed: str, ours: str, unit: str) -> None:
    assert suggest_key(typed, KNOWN).startswith(f" (did you mean '{ours}'? Here it is {unit}")
    assert f"{typed} (here {unit}" in load_synonyms().elsewhere(ours) or f"{typed}, " in load_synonyms().elsewhere(ours)


def test_a_key_of_another_algorithm_is_not_proposed() -> None:
    known = known_names(TABLES, {"algorithm": GRPOConfig})
    assert suggest_key("algorithm.gamma", known) == "" and "discount" in suggest_key("algorithm.gamma", KNOWN)
    assert suggest_key("critic.cliprange_value", known) == "" and "'algorithm.kl_coef'?" in suggest_key(
        "algorithm.beta", known
    )


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("trainer.total_epochs=3", "trainer.total_epochs: unknown key (did you mean 'stages.NAME.epochs'?)"),
        (
            "algorithm.clip_ratio_high=0.1",
            "algorithm.clip_ratio_high: unknown key (did you mean 'algorithm.clip_high'?)",
        ),
        ("quux=1", "quux: unknown key (`rlsys config` lists the keys)"),
        ("learner.quux=1", "learner.quux: unknown key (`rlsys config learner` lists the keys)"),
    ],
)
def test_an_error_says_it(override: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("quickstart", [override])
    assert str(caught.value) == f"command line: {line}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("answer", "; a config picks it with reward.name=answer"), ("sums", " (did you mean 'worlds/sums'?)")],
)
def test_a_name_of_a_table_is_no_config_and_is_said_to_be_one(name: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_config(name)
    assert str(caught.value).endswith(f"under configs/{hint}")
