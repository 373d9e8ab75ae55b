"""Mamba-2, Nemotron-H, Qwen3-Next and Jamba: where their fields are, as transformers has them."""

from __future__ import annotations

from typing import Any

from foretell.model.importers.hf_fields import (
    CAUSAL,
    TORCH,
    Config,
    Fields,
    HfModelType,
    count,
    flag,
    layers,
    maybe,
    number,
    positions,
    shown,
    usual_sizes,
)
from foretell.model.importers.hf_recent import every_nth, turning
from foretell.model.zoo.jamba import Jamba
from foretell.model.zoo.mamba2 import Mamba2
from foretell.model.zoo.nemotron_h import NemotronH
from foretell.model.zoo.qwen3_next import Qwen3Next

_HEADS = count("num_heads", default=128)


def _expand(config: Config) -> int:
    """How many times the hidden features the heads have, which a file says twice."""
    expand = count("expand", default=2)(config)
    hidden, features = count("hidden_size", default=4096)(config), count("head_dim", default=64)(config)
    if expand * hidden != _HEADS(config) * features:
        what = f"num_heads={_HEADS(config)} of head_dim={features} are not expand={expand} times hidden_size={hidden}"
        raise config.bad("num_heads", what, fix=f"num_heads={max(1, expand * hidden // features)}")
    return expand


_MAMBA2: Fields = {
    "layers": layers("num_hidden_layers", default=64),
    "hidden": count("hidden_size", default=4096),
    "vocab": count("vocab_size", default=32768),
    "tied": flag("tie_word_embeddings", default=False),
    "expand": _expand,
    "head_dim": count("head_dim", default=64),
    "state": count("state_size", default=128),
    "groups": count("n_groups", default=8),
    "taps": count("conv_kernel", default=4),
    "chunk": count("chunk_size", default=256),
}

LETTERS = {"mamba": "M", "linear_attention": "M", "mlp": "-", "attention": "*", "full_attention": "*"}


def _pattern(config: Config) -> str:
    """The order of the layers: letters in older files, a list of words in newer ones."""
    key, said = config.get("hybrid_override_pattern")
    _, listed = config.get("layers_block_type")
    if isinstance(listed, list) and listed:
        words: list[Any] = listed  # pyright: ignore[reportUnknownVariableType]
        key, said = "layers_block_type", "".join(LETTERS.get(str(word), "?") for word in words)
    if said is None:
        return NemotronH().pattern
    if not isinstance(said, str) or not said or set(said) - set(LETTERS.values()):
        what = f"{key} is {shown(said if listed is None else listed)}: layers that no family of the zoo has"
        raise config.bad(key, what, fix=f"mamba, mlp and attention alone; {TORCH}")
    return said


def _depth(config: Config) -> int:
    _, said = config.get("num_hidden_layers")
    return len(_pattern(config)) if said is None else layers("num_hidden_layers", default=52)(config)


_NEMOTRON_H: Fields = {
    "layers": _depth,
    "pattern": _pattern,
    "hidden": count("hidden_size", default=4096),
    "heads": count("num_attention_heads", default=32),
    "kv_heads": count("num_key_value_heads", default=8),
    "head_dim": maybe("head_dim", "attention_head_dim", default=128),
    "ffn": count("intermediate_size", default=21504),
    "vocab": count("vocab_size", default=131072),
    "tied": flag("tie_word_embeddings", default=False),
    "scan_heads": count("mamba_num_heads", default=128),
    "scan_head_dim": count("mamba_head_dim", default=64),
    "state": count("ssm_state_size", default=128),
    "groups": count("n_groups", default=8),
    "taps": count("conv_kernel", default=4),
    "chunk": count("chunk_size", default=128),
}

_BARE = {"use_bias": (False,), "use_conv_bias": (True,), "mamba_proj_bias": (False,), "mlp_bias": (False,)}
_STEPS = (
    "time_step_rank",
    "time_step_min",
    "time_step_max",
    "time_step_limit",
    "time_step_floor",
    "rms_norm",
    "time_step_scale",
)
_SAID = (
    "time_step_init_scheme",
    "residual_in_fp32",
    "norm_before_gate",
    "expand",
    "rescale_prenorm_residual",
    "use_mamba_kernels",
)
_EXPERTS = (
    "n_routed_experts", "n_shared_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size",
    "moe_latent_size", "moe_shared_expert_overlap", "num_experts_per_tok", "routed_scaling_factor", "n_group",
    "topk_group", "norm_topk_prob", "num_nextn_predict_layers", "mtp_layers_block_type",
)  # fmt: skip
_OTHERS = ("mamba_hidden_act", "mamba_ssm_cache_dtype", "num_logits_to_keep", "max_position_embeddings")


def _any_length(config: Config) -> int:
    """Scans have no longest sequence; a file may speak of one all the same."""
    return maybe("max_position_embeddings")(config) or 1_000_000


_QWEN3_NEXT: Fields = {
    **usual_sizes(layers=48, hidden=2048, heads=16, vocab=151936),
    "kv_heads": maybe("num_key_value_heads", default=2),
    "head_dim": maybe("head_dim", default=256),
    "rotary_dim": turning(0.25, 256),
    "theta": number("rope_theta", default=10000.0),
    "tied": flag("tie_word_embeddings", default=False),
    "qkv_bias": flag("attention_bias", default=False),
    "global_every": every_nth("layer_types", 4, lambda item: item == "full_attention", "full_attention_interval"),
    "ffn": count("moe_intermediate_size", default=512),
    "experts": count("num_experts", "num_local_experts", default=512),
    "top_k": count("num_experts_per_tok", default=10),
    "normalized": flag("norm_topk_prob", default=True),
    "shared_ffn": maybe("shared_expert_intermediate_size", default=512),
    "rule_heads": count("linear_num_value_heads", default=32),
    "rule_keys": count("linear_num_key_heads", default=16),
    "rule_head_dim": count("linear_value_head_dim", default=128),
    "rule_key_dim": count("linear_key_head_dim", default=128),
    "taps": count("linear_conv_kernel_dim", default=4),
}

_FFN = count("intermediate_size", default=14336)


def _with_experts(config: Config) -> int:
    """Every how manieth layer has experts: the zoo has them in the last of so many."""
    period = count("expert_layer_period", default=2)(config)
    offset = maybe("expert_layer_offset", default=1)(config)
    if offset != period - 1:
        what = f"expert_layer_offset is {offset} of {period} layers, and the zoo's last of them has experts"
        raise config.bad("expert_layer_offset", what, fix=f"{period - 1}; {TORCH}")
    return period


_JAMBA: Fields = {
    **usual_sizes(layers=32, hidden=4096, heads=32, ffn=14336, vocab=65536),
    "kv_heads": maybe("num_key_value_heads", default=8),
    "tied": flag("tie_word_embeddings", default=False),
    "experts": count("num_experts", "num_local_experts", default=16),
    "top_k": count("num_experts_per_tok", default=2),
    "every": _with_experts,
    "dense_ffn": lambda config: _FFN(config) if _with_experts(config) > 1 else 0,
    "period": count("attn_layer_period", default=8),
    "offset": maybe("attn_layer_offset", default=4),
    "expand": count("mamba_expand", default=2),
    "state": count("mamba_d_state", default=16),
    "rank": lambda config: 0 if config.get("mamba_dt_rank")[1] == "auto" else maybe("mamba_dt_rank")(config),
    "taps": count("mamba_d_conv", default=4),
}

KINDS = {
    "mamba2": HfModelType(
        Mamba2, _MAMBA2, _any_length, heads=CAUSAL, only=_BARE, noted={"hidden_act": (("silu",), "counted as SiLU")},
        said=(*_STEPS, *_SAID, "intermediate_size", "layers_block_type", "layer_types"),
    ),
    "nemotron_h": HfModelType(
        NemotronH, _NEMOTRON_H, _any_length, heads=CAUSAL,
        only={**_BARE, "mlp_hidden_act": ("relu2",), "attention_bias": (False,), "sliding_window": ()},
        said=(*_STEPS, *_SAID, *_EXPERTS, *_OTHERS, "hidden_dropout"),
    ),
    "qwen3_next": HfModelType(
        Qwen3Next, _QWEN3_NEXT, positions(32768), heads=CAUSAL, noted={"hidden_act": (("silu",), "counted as SiLU")},
        only={"decoder_sparse_step": (1,), "mlp_only_layers": ([],)},
        said=("intermediate_size", "partial_rotary_factor", "num_nextn_predict_layers"),
    ),
    "jamba": HfModelType(
        Jamba, _JAMBA, positions(262144), heads=CAUSAL, noted={"hidden_act": (("silu",), "counted as SiLU")},
        only={"mamba_conv_bias": (True,), "mamba_proj_bias": (False,), "sliding_window": ()},
        said=("use_mamba_kernels", "num_logits_to_keep", "mamba_inner_layernorms", "use_associative_scan",
              "use_mambapy", "layers_block_type"),
    ),
}  # fmt: skip
