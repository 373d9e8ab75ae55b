"""nanotron: one YAML file, with the model, the parallelism and the tokens of a step.

Field names: nanotron main of 2026-04 (2411b02), src/nanotron/config/{config,parallelism_config,models_config}.py.
Ranks lie as (ep, pp, dp, cp, tp), the last innermost: src/nanotron/parallel/context.py.
"""

from __future__ import annotations

import shlex

from foretell.dialects._dialect import Dialect
from foretell.dialects._formats import YAML
from foretell.dialects._recipe import Recipe
from foretell.dialects._table import Document, Figures, Formula, KeyChoice, Same

MEBI = 2**20

_MODEL = "model.model_config"


_SIZES = {
    f"{_MODEL}.num_hidden_layers": "layers",
    f"{_MODEL}.hidden_size": "hidden",
    f"{_MODEL}.num_attention_heads": "heads",
    f"{_MODEL}.num_key_value_heads": "kv_heads",
    f"{_MODEL}.intermediate_size": "ffn",
    f"{_MODEL}.vocab_size": "vocab",
    f"{_MODEL}.tie_word_embeddings": "tied",
    f"{_MODEL}.rope_theta": "theta",
}

USUAL_BUCKET = 25
"""ddp_bucket_cap_mb where a file does not say it."""


def _sizes(recipe: Recipe) -> Document:
    shape = recipe.shape
    if shape is None or shape.family != "llama" or shape.qk_norm or shape.qkv_bias:
        return {}
    sizes = {key: getattr(recipe.shape, size) for key, size in _SIZES.items()}
    return sizes | {f"{_MODEL}.max_position_embeddings": recipe.sequence}


def _shape(document: Document) -> Figures:
    """Llama only: other configurations have experts, biases or norms that these sizes do not tell."""
    if not document.get(f"{_MODEL}.is_llama_config") or any(f"{_MODEL}.moe" in key for key in document):
        return {}
    return {f"shape.{size}": document.get(key) for key, size in _SIZES.items()}


def _bucket(recipe: Recipe) -> Document:
    return {"model.ddp_bucket_cap_mb": -(-recipe.bucket // MEBI)} if recipe.bucket else {}


def _bucket_bytes(document: Document) -> Figures:
    size = int(document.get("model.ddp_bucket_cap_mb", USUAL_BUCKET))
    return {"bucket": 0 if size == USUAL_BUCKET else size * MEBI}


_FREE = """
    checkpoints.* data_stages* general.* logging.* lighteval* tokenizer.* profiler* s3_upload* metrics_logging*
    tokens.train_steps tokens.limit_* tokens.val_check_interval optimizer.clip_grad optimizer.learning_rate_scheduler.*
    optimizer.optimizer_factory.adam_* optimizer.optimizer_factory.torch_adam_is_fused
    optimizer.optimizer_factory.name=adam[wW]
    optimizer.weight_decay* optimizer.adam_* optimizer.torch_adam_is_fused data.*
    model.init_method* model.make_vocab_size_divisible_by
    model.model_config.*_token_id model.model_config.hidden_act=silu model.model_config.initializer_range
    model.model_config.is_llama_config model.model_config.is_qwen2_config model.model_config.pretraining_tp
    model.model_config.rms_norm_eps model.model_config.rope_interleaved model.model_config.rope_scaling
    model.model_config.use_cache model.model_config._* model.model_config.z_loss_*
    parallelism.tp_linear_async_communication parallelism.tp_recompute_allgather
"""
"""Keys that change no cost; all others that no table has are told."""


def _fixed(recipe: Recipe) -> Document:
    """What a file needs besides: a short trial run, to be changed to one's own data and learning rate."""
    return {
        "general.project": "foretell",
        "general.run": "trial",
        "general.seed": 42,
        "model.init_method.std": 0.02,
        f"{_MODEL}.is_llama_config": True,
        f"{_MODEL}.hidden_act": "silu",
        f"{_MODEL}.rms_norm_eps": 1e-5,
        "tokenizer.tokenizer_name_or_path": "gpt2",
        "tokens.train_steps": 100,
        "tokens.limit_val_batches": 0,
        "tokens.limit_test_batches": 0,
        "tokens.val_check_interval": -1,
        "optimizer.optimizer_factory.name": "adamW",
        "optimizer.optimizer_factory.adam_beta1": 0.9,
        "optimizer.optimizer_factory.adam_beta2": 0.95,
        "optimizer.optimizer_factory.adam_eps": 1.0e-8,
        "optimizer.optimizer_factory.torch_adam_is_fused": True,
        "optimizer.clip_grad": 1.0,
        "optimizer.weight_decay": 0.01,
        "optimizer.learning_rate_scheduler.learning_rate": 3.0e-4,
        "optimizer.learning_rate_scheduler.lr_warmup_steps": 10,
        "optimizer.learning_rate_scheduler.lr_warmup_style": "linear",
        "optimizer.learning_rate_scheduler.lr_decay_style": "cosine",
        "optimizer.learning_rate_scheduler.min_decay_lr": 3.0e-5,
        "checkpoints.checkpoint_interval": 1000,
        "checkpoints.checkpoints_path": "checkpoints",
        "data_stages": [
            {"name": "stage", "start_training_step": 1, "data": {"dataset": None, "num_loading_workers": 1, "seed": 42}}
        ],
        "logging.log_level": "info",
        "logging.iteration_step_info_interval": 1,
    }


DIALECT = Dialect(
    name="nanotron",
    summary="nanotron's YAML: parallelism, tokens, model_config",
    version="nanotron main, 2026-04 (2411b02)",
    trainer=lambda recipe: "nanotron",
    format=YAML,
    file="nanotron.yaml",
    table=(
        Same("parallelism.dp", "data"),
        Same("parallelism.tp", "tensor", 1),
        Same("parallelism.pp", "pipeline", 1),
        Same("parallelism.context_parallel_size", "context", 1, told=False),
        # its expert ranks are an axis of their own, outside the pipeline, which no plan has
        KeyChoice("experts", {1: {"parallelism.expert_parallel_size": 1}}, default=1),
        KeyChoice(
            "schedule",
            {"1f1b": {"parallelism.pp_engine": "1f1b"}, "gpipe": {"parallelism.pp_engine": "afab"}},
            default="gpipe",
        ),
        KeyChoice(
            "sequence_parallel",
            {True: {"parallelism.tp_mode": "REDUCE_SCATTER"}, False: {"parallelism.tp_mode": "ALL_REDUCE"}},
            default=False,
        ),
        KeyChoice(
            "recompute",
            {"none": {"parallelism.recompute_layer": False}, "block": {"parallelism.recompute_layer": True}},
            default="none",
        ),
        KeyChoice(
            "storage", {"replicated": {"optimizer.zero_stage": 0}, "zero1": {"optimizer.zero_stage": 1}}, "replicated"
        ),
        KeyChoice(
            "precision",
            {
                "bf16": {"model.dtype": "bfloat16", "optimizer.accumulate_grad_in_fp32": True},
                "bf16:pure": {"model.dtype": "bfloat16", "optimizer.accumulate_grad_in_fp32": False},
                "fp32": {"model.dtype": "float32", "optimizer.accumulate_grad_in_fp32": False},
            },
            default="bf16",
            also=(("fp32", {"model.dtype": "float32"}), ("bf16", {"optimizer.accumulate_grad_in_fp32": True})),
        ),
        Formula(("model.ddp_bucket_cap_mb",), _bucket, _bucket_bytes),
        Same("tokens.micro_batch_size", "micro_batch"),
        Same("tokens.batch_accumulation_per_replica", "microbatches", 1),
        Same("tokens.sequence_length", "sequence"),
        Formula((*_SIZES, f"{_MODEL}.max_position_embeddings"), _sizes, _shape),
    ),
    free=tuple(_FREE.split()),
    fixed=_fixed,
    command=lambda document, file: ["run_train.py", f"--config-file {shlex.quote(file)}"],
)
