"""Mamba-2 and Nemotron-H: where their fields are, as transformers has them."""

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
    shown,
)
from foretell.model.zoo.mamba2 import Mamba2
from foretell.model.zoo.nemotron_h import NemotronH

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
}  # fmt: skip
