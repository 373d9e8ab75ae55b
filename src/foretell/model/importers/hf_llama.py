"""Llama, its mixtures of experts, DeepSeek: which family each type of Hugging Face is, and where its fields are.

Defaults are those of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.model.importers.hf_fields import (
    CAUSAL,
    Config,
    Fields,
    HfModelType,
    Source,
    count,
    fixed,
    flag,
    maybe,
    number,
    positions,
    usual_sizes,
    word,
)
from foretell.model.zoo.deepseek import DeepSeek
from foretell.model.zoo.llama import Llama
from foretell.model.zoo.mixture import Mixture


def _llama(tied: bool = False, kv_heads: int = 0, head_dim: int = 0, **default: int) -> Fields:
    return {
        **usual_sizes(**default),
        "kv_heads": maybe("num_key_value_heads", default=kv_heads),
        "head_dim": maybe("head_dim", default=head_dim),
        "tied": flag("tie_word_embeddings", default=tied),
        "theta": number("rope_theta", default=10000.0),
        "qkv_bias": flag("attention_bias", default=False),
    }


def _late_window(config: Config) -> int:
    """Qwen's window, which only layers from `max_window_layers` on have."""
    if not flag("use_sliding_window", default=False)(config):
        return 0
    window = maybe("sliding_window", default=4096)(config)
    first = maybe("max_window_layers", default=28)(config)
    if 0 < window < config.seq and first:
        config.warn(f"the window of {window} tokens in layers from {first} on is counted as full attention")
        return 0
    return window


_LLAMA = _llama(layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000)
_MISTRAL = _llama(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000)
_QWEN2 = {
    **_llama(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=22016, vocab=151936),
    "qkv_bias": fixed(True),
    "window": _late_window,
}
_QWEN3 = {
    **_llama(layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn=22016, vocab=151936),
    "qk_norm": fixed(True),
    "window": _late_window,
}
_GEMMA = _llama(True, 16, 256, layers=28, hidden=3072, heads=16, ffn=24576, vocab=256000)
_PHI3 = _llama(layers=32, hidden=3072, heads=32, ffn=8192, vocab=32064)

_QWEN2_MOE: Fields = {
    **_llama(layers=24, hidden=2048, heads=16, kv_heads=16, vocab=151936),
    "qkv_bias": flag("qkv_bias", default=True),
    "window": _late_window,
    "ffn": count("moe_intermediate_size", default=1408),
    "experts": count("num_experts", "num_local_experts", default=60),
    "top_k": count("num_experts_per_tok", default=4),
    "normalized": flag("norm_topk_prob", default=False),
    "shared_ffn": count("shared_expert_intermediate_size", default=5632),
    "shared_gate": fixed(True),
}
_QWEN3_MOE: Fields = {
    **_llama(layers=24, hidden=2048, heads=32, kv_heads=4, vocab=151936),
    "qk_norm": fixed(True),
    "window": _late_window,
    "ffn": count("moe_intermediate_size", default=768),
    "experts": count("num_experts", "num_local_experts", default=128),
    "top_k": count("num_experts_per_tok", default=8),
    "normalized": flag("norm_topk_prob", default=False),
}
_MIXTRAL: Fields = {
    **_MISTRAL,
    "window": maybe("sliding_window"),
    "experts": count("num_local_experts", "num_experts", default=8),
    "top_k": count("num_experts_per_tok", default=2),
}


def _deepseek(method: str, score: str, groups: tuple[int, int], **default: int) -> Fields:
    chosen = word("topk_method", default=method)

    def grouped(key: str, usual: int, alone: int = 1) -> Source:
        """A number of groups; one where experts are chosen from all at once."""
        return lambda config: alone if chosen(config) == "greedy" else maybe(key, default=usual)(config) or alone

    return {
        **usual_sizes(**default),
        "tied": flag("tie_word_embeddings", default=False),
        "theta": number("rope_theta", default=10000.0),
        "query_rank": maybe("q_lora_rank", default=1536),
        "kv_rank": count("kv_lora_rank", default=512),
        "head_dim": count("qk_nope_head_dim", default=128),
        "rotary_dim": count("qk_rope_head_dim", default=64),
        "value_dim": count("v_head_dim", default=128),
        "first_dense": maybe("first_k_dense_replace", default=default["first_dense"]),
        "experts": count("n_routed_experts", "num_experts", default=default["experts"]),
        "top_k": count("num_experts_per_tok", default=default.get("top_k")),
        "expert_ffn": count("moe_intermediate_size", default=default["expert_ffn"]),
        "shared_experts": maybe("n_shared_experts", default=default["shared_experts"]),
        "score": word("scoring_func", default=score),
        "normalized": flag("norm_topk_prob", default=method == "noaux_tc"),
        "routing_scale": number("routed_scaling_factor", default=2.5 if method == "noaux_tc" else 1.0),
        "groups": grouped("n_group", groups[0]),
        "top_groups": grouped("topk_group", groups[1]),
        "group_best": lambda config: 2 if chosen(config) == "noaux_tc" else 1,
        "corrected": lambda config: chosen(config) == "noaux_tc",
    }


_DEEPSEEK_V2 = _deepseek(
    "greedy", "softmax", (0, 0), layers=32, hidden=4096, heads=32, ffn=11008, vocab=102400, first_dense=0,
    experts=64, expert_ffn=1407, shared_experts=2,
)  # fmt: skip
_DEEPSEEK_V3 = _deepseek(
    "noaux_tc", "sigmoid", (8, 4), layers=61, hidden=7168, heads=128, ffn=18432, vocab=129280, first_dense=3,
    experts=256, expert_ffn=2048, shared_experts=1, top_k=8,
)  # fmt: skip

_DEEPSEEK_V32: Fields = {
    **_DEEPSEEK_V3,
    "index_heads": count("index_n_heads", default=64),
    "index_dim": count("index_head_dim", default=128),
    "index_top_k": count("index_topk", default=2048),
    "attention": fixed("sparse"),
}

_BIASES = {
    "attention_bias": ((False,), "the bias of attention's output layer is left out"),
    "mlp_bias": ((False,), "the biases of the feed-forward are left out"),
}
_SILU = {"hidden_act": (("silu", "swish"), "the gate is counted as SiLU")}
_EVERY_LAYER: Mapping[str, tuple[Any, ...]] = {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)}
_LATENT = {
    "moe_layer_freq": (1,),
    "topk_method": ("greedy", "group_limited_greedy", "noaux_tc"),
    "attention_bias": (False,),
}
_SECOND_TOKEN = {
    "num_nextn_predict_layers": (
        (0,),
        "the extra layer that predicts a second token is left out, as in transformers; deepseek-v3:mtp=1 has it",
    )
}
_DENSE = ("intermediate_size",)
_GROUPS = ("head_dim", "n_group", "num_key_value_heads", "qk_head_dim", "topk_group")

_KINDS = {
    "llama": HfModelType(Llama, _LLAMA, positions(2048), noted={**_BIASES, **_SILU}),
    "mistral": HfModelType(
        Llama, {**_MISTRAL, "window": maybe("sliding_window", default=4096)}, positions(131072), noted=_SILU
    ),
    "qwen2": HfModelType(Llama, _QWEN2, positions(32768), noted=_SILU),
    "qwen3": HfModelType(Llama, _QWEN3, positions(32768), noted={**_BIASES, **_SILU}),
    "phi3": HfModelType(
        Llama,
        {**_PHI3, "window": maybe("sliding_window")},
        positions(4096),
        noted={**_SILU, "partial_rotary_factor": ((1.0,), "all features of a head turn with the position here")},
    ),
    "gemma": HfModelType(
        Llama,
        _GEMMA,
        positions(8192),
        noted={"attention_bias": _BIASES["attention_bias"]},
        remarks=("the GELU of Gemma's gate is counted as SiLU, and the scaling of its embedding left out",),
        said=("hidden_act", "hidden_activation"),
    ),
    "mixtral": HfModelType(Mixture, _MIXTRAL, positions(131072), noted=_SILU),
    "qwen2_moe": HfModelType(Mixture, _QWEN2_MOE, positions(32768), only=_EVERY_LAYER, noted=_SILU, said=_DENSE),
    "qwen3_moe": HfModelType(
        Mixture, _QWEN3_MOE, positions(32768), only=_EVERY_LAYER, noted={**_BIASES, **_SILU}, said=_DENSE
    ),
    "deepseek_v2": HfModelType(DeepSeek, _DEEPSEEK_V2, positions(2048), only=_LATENT, noted=_SILU, said=_GROUPS),
    "deepseek_v3": HfModelType(
        DeepSeek, _DEEPSEEK_V3, positions(4096), only=_LATENT, noted={**_SILU, **_SECOND_TOKEN}, said=_GROUPS
    ),
    "deepseek_v32": HfModelType(
        DeepSeek, _DEEPSEEK_V32, positions(163840), only=_LATENT, noted={**_SILU, **_SECOND_TOKEN},
        said=(*_GROUPS, "mlp_layer_types", "layer_types"),
        remarks=("what chooses places has no gradient, and its own loss is left out",),
    ),
}  # fmt: skip
KINDS = {name: kind._replace(heads=CAUSAL) for name, kind in _KINDS.items()}
