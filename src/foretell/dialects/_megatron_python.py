"""What recipes of Megatron-Bridge and NeMo have in common: precision as a value that Megatron-Core is given, and keys
that change no cost.

Looked up in Megatron-Bridge main of 2026-08 (067f987), training/mixed_precision.py, and NeMo main of 2025-09 (8cfedd7),
lightning/pytorch/plugins/mixed_precision.py.
"""

from __future__ import annotations

from typing import Final

from foretell.dialects._python import CALLED
from foretell.dialects._table import NOTES, Document, Figures
from foretell.errors import BadInput

RECIPES: Final = {
    "bf16_mixed": "bf16",
    "fp16_mixed": "fp16",
    "bf16_with_fp8_delayed_scaling_mixed": "fp8",
    "bf16_with_fp8_current_scaling_mixed": "fp8",
    "bf16_with_fp8_mixed": "fp8",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
"""Recipes of precision by their names, and plans' words for them."""

NEAR: Final = {
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8",
    "nemotron_h_bf16_with_fp8_current_scaling_mixed": "fp8",
    "nanov2_bf16_with_fp8_current_scaling_mixed": "fp8",
}
"""Those that come close: some layers stay in bf16, or scales are of blocks."""


def precision(document: Document, key: str) -> Figures:
    """The precision under a key: the name of a recipe, a call of it, or the fields that it returns."""
    fields = f"{key}.0." if f"{key}.0.{CALLED}" in document else f"{key}."  # a list with one
    called = str(document.get(f"{fields}{CALLED}", "")).rpartition(".")[2]
    said = document.get(f"{key}.0") if called.startswith("get_") else document.get(key)
    name = said if isinstance(said, str) and "[" not in said else called
    if name.endswith(("MixedPrecisionConfig", "MegatronMixedPrecision")):
        return _by_fields(document, fields)
    if name in NEAR:
        return {"precision": NEAR[name], NOTES: (f"{name}: some layers or scales differ; taken as fp8 throughout",)}
    if name and name not in RECIPES:
        raise BadInput(f"{key} is {name}: no plan has a word for it", fix=", ".join(RECIPES))
    return {"precision": RECIPES.get(name, "bf16")}


def _by_fields(document: Document, fields: str) -> Figures:
    half = "fp16" if document.get(f"{fields}fp16") or document.get(f"{fields}precision") == "16-mixed" else "bf16"
    low, recipe = document.get(f"{fields}fp8"), str(document.get(f"{fields}fp8_recipe", "delayed"))
    if document.get(f"{fields}fp4"):
        return {"precision": "nvfp4"}
    if not low:
        return {"precision": half}
    ends = document.get(f"{fields}first_last_layers_bf16")
    notes = [f"{fields}first_last_layers_bf16: layers at both ends stay in {half}; taken as fp8"] if ends else []
    notes += [f"{fields}fp8_recipe {recipe}: taken as fp8 with a scale a tensor"] if recipe == "blockwise" else []
    return {"precision": "mxfp8" if recipe == "mxfp8" else "fp8"} | ({NOTES: tuple(notes)} if notes else {})


def free(*tables: str) -> tuple[str, ...]:
    """Keys of a model's or a strategy's table that change no cost, under these tables."""
    return tuple(f"{table}.{word}" for table in tables for word in _FREE.split())


_FREE: Final = """
    transformer_impl pipeline_dtype params_dtype autocast_dtype bf16 fp16 seq_length init_method* load_weights
    attention_backend cross_entropy_loss_fusion cross_entropy_fusion_impl apply_rope_fusion bias_*_fusion
    masked_softmax_fusion gradient_accumulation_fusion persist_layer_norm attention_softmax_in_fp32 *_dropout
    apply_query_key_layer_scaling calculate_per_token_loss deterministic_mode make_vocab_size_divisible_by
    cuda_graph_impl=none cuda_graph_scope cuda_graph_warmup_steps perform_initialization use_te_rng_tracker
    layernorm_epsilon layernorm_zero_centered_gamma rotary_* moe_aux_loss_coeff moe_router_dtype moe_router_fusion
    moe_router_load_balancing_type moe_router_enable_expert_bias moe_router_score_function
    moe_router_topk_scaling_factor moe_router_bias_update_rate moe_z_loss_coeff moe_router_pre_softmax
    moe_router_padding_for_fp8 moe_router_force_load_balancing moe_grouped_gemm moe_permute_fusion
    moe_token_dispatcher_type=alltoall moe_token_dispatcher_type=flex moe_flex_dispatcher_backend
    moe_*_num_sms mtp_loss_scaling_factor use_transformer_engine_full_layer_spec vocab_size should_pad_vocab
    check_for_nan_in_grad average_in_collective check_for_large_grads align_param_gather pad_buckets_for_high_nccl*
    gradient_as_bucket_view ckpt_* save_ckpt_format fsdp=None _pipeline_model_parallel_layout_builder is_hybrid_model
    hidden_size num_layers num_attention_heads ffn_hidden_size kv_channels num_query_groups
"""
