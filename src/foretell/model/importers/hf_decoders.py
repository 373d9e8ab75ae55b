"""The decoder language models of Hugging Face: which family each type is, and where its fields are.

Defaults are those of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.model.importers.hf_fields import (
    TORCH,
    Config,
    Kind,
    Source,
    activation,
    count,
    fixed,
    flag,
    layers,
    maybe,
    number,
    word,
)
from foretell.model.zoo.deepseek import DeepSeek
from foretell.model.zoo.gpt import Gpt
from foretell.model.zoo.llama import Llama
from foretell.model.zoo.mixture import Mixture

Fields = Mapping[str, Source]

HEADS = ("ForCausalLM", "LMHeadModel")
SIDE_BY_SIDE = (
    "attention and feed-forward run side by side in this model; the graph has them one after the other: "
    "the same weights and matrix work, slightly more kept for the backward pass"
)


def _sizes(**default: int) -> dict[str, Source]:
    """The fields that nearly all files spell the same way."""
    keys = {"hidden": "hidden_size", "heads": "num_attention_heads", "ffn": "intermediate_size", "vocab": "vocab_size"}
    found = {field: count(keys[field], default=value) for field, value in default.items() if field in keys}
    return {"layers": layers("num_hidden_layers", default=default["layers"]), **found}


def _rotary_features(key: str, default: float) -> Source:
    """How many features of a head turn with the position, given as a share."""

    def read(config: Config) -> int:
        hidden = count("hidden_size", default=6144)(config)
        heads = count("num_attention_heads", default=64)(config)
        share = number(key, default=default)(config)
        features = int((maybe("head_dim")(config) or hidden // heads) * share)
        if not 0.0 < share <= 1.0 or features < 2:
            raise config.bad(key, f"{key} is {share}: {features} features of a head turn", fix=f"{default}")
        return features

    return read


def _learned_rows(positions: Source, before: int = 0) -> Source:
    """Rows of the position table beyond those that a sequence uses."""
    return lambda config: positions(config) - config.seq + before


# GPT-2 and those built like it

_GPT2_POSITIONS = count("n_positions", "max_position_embeddings", default=1024)
_GPT2: Fields = {
    "layers": layers("n_layer", "num_hidden_layers", default=12),
    "hidden": count("n_embd", "hidden_size", default=768),
    "heads": count("n_head", "num_attention_heads", default=12),
    "ffn": maybe("n_inner"),
    "vocab": count("vocab_size", default=50257),
    "position_offset": _learned_rows(_GPT2_POSITIONS),
    "activation": activation("activation_function", default="gelu_new"),
    "tied": flag("tie_word_embeddings", default=True),
}


def _shared_by_all(config: Config) -> int:
    """One key and value head for all queries, or one each (0)."""
    return 1 if flag("multi_query", default=True)(config) else 0


_OPT_POSITIONS = count("max_position_embeddings", default=2048)
_OPT: Fields = {
    **_sizes(layers=12, hidden=768, heads=12, vocab=50272),
    "ffn": count("ffn_dim", default=3072),
    "position_offset": _learned_rows(_OPT_POSITIONS, before=2),
    "activation": activation("activation_function", default="relu"),
    "tied": flag("tie_word_embeddings", default=True),
    "bias": flag("enable_bias", default=True),
}
_BLOOM: Fields = {
    "layers": layers("n_layer", "num_hidden_layers", default=2),
    "hidden": count("hidden_size", "n_embed", default=64),
    "heads": count("n_head", "num_attention_heads", default=8),
    "vocab": count("vocab_size", default=250880),
    "positions": fixed("alibi"),
    "attention": fixed("efficient"),
    "embedding_norm": fixed(True),
    "tied": flag("tie_word_embeddings", default=True),
}
_NEOX: Fields = {
    **_sizes(layers=44, hidden=6144, heads=64, ffn=24576, vocab=50432),
    "positions": fixed("rotary"),
    "rotary_dim": _rotary_features("rotary_pct", 0.25),
    "activation": activation("hidden_act", default="gelu"),
    "tied": flag("tie_word_embeddings", default=False),
}
_NEMOTRON: Fields = {
    **_sizes(layers=32, hidden=6144, heads=48, ffn=24576, vocab=256000),
    "kv_heads": maybe("num_key_value_heads"),
    "head_dim": maybe("head_dim"),
    "positions": fixed("rotary"),
    "rotary_dim": _rotary_features("partial_rotary_factor", 0.5),
    "activation": activation("hidden_act", default="relu2"),
    "tied": flag("tie_word_embeddings", default=False),
    "bias": flag("attention_bias", default=False),
}
_STARCODER2: Fields = {
    **_sizes(layers=30, hidden=3072, heads=24, ffn=12288, vocab=49152),
    "kv_heads": maybe("num_key_value_heads", default=2),
    "positions": fixed("rotary"),
    "activation": activation("hidden_act", default="gelu_pytorch_tanh"),
    "tied": flag("tie_word_embeddings", default=True),
    "bias": flag("use_bias", default=True),
}


def _opt_projection(config: Config) -> None:
    """opt-350m alone has an embedding of another width than its layers."""
    width, hidden = maybe("word_embed_proj_dim")(config), count("hidden_size", default=768)(config)
    if width not in (0, hidden):
        what = f"word_embed_proj_dim is {width} beside a hidden_size of {hidden}, and no family of the zoo has that"
        raise config.bad("word_embed_proj_dim", what, fix=TORCH)


def _side_by_side(config: Config) -> None:
    if flag("use_parallel_residual", default=True)(config):
        config.warn(SIDE_BY_SIDE)


def _window_left_out(config: Config) -> None:
    window = maybe("sliding_window")(config)
    if 0 < window < config.seq:
        config.warn(f"the window of {window} tokens is counted as full attention")


def _one_bias(config: Config) -> None:
    of_attention, of_ffn = (flag(key, default=False)(config) for key in ("attention_bias", "mlp_bias"))
    if of_attention != of_ffn:
        config.warn(f"mlp_bias is {of_ffn} and attention_bias {of_attention}: both are taken as {of_attention}")


def _falcon_keys(config: Config) -> int:
    if flag("new_decoder_architecture", default=False)(config):
        return maybe("num_kv_heads", "n_head_kv")(config)
    return _shared_by_all(config)


def _falcon_norms(config: Config) -> None:
    """One norm for attention and feed-forward together (as in falcon-7b) is not in the zoo."""
    new = flag("new_decoder_architecture", default=False)(config)
    norms = maybe("num_ln_in_parallel_attn")(config) or (2 if new else 1)
    if flag("parallel_attn", default=True)(config):
        if norms != 2:
            what = "attention and feed-forward share one norm in this model, and no family of the zoo has that"
            raise config.bad("parallel_attn", what, fix=TORCH)
        config.warn(SIDE_BY_SIDE)


_FALCON: Fields = {
    "layers": layers("num_hidden_layers", "n_layer", default=32),
    "hidden": count("hidden_size", "n_embed", default=4544),
    "heads": count("num_attention_heads", "n_head", default=71),
    "kv_heads": _falcon_keys,
    "ffn": maybe("ffn_hidden_size"),
    "vocab": count("vocab_size", default=65024),
    "positions": lambda config: "alibi" if flag("alibi", default=False)(config) else "rotary",
    "activation": activation("activation", default="gelu"),
    "tied": flag("tie_word_embeddings", default=True),
    "bias": flag("bias", default=False),
}

# Llama and those built like it


def _llama(tied: bool = False, kv_heads: int = 0, head_dim: int = 0, **default: int) -> Fields:
    return {
        **_sizes(**default),
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


def _deepseek(method: str, score: str, groups: tuple[int, int], tied: bool, **default: int) -> Fields:
    chosen = word("topk_method", default=method)

    def grouped(key: str, usual: int, alone: int = 1) -> Source:
        """A number of groups; one where experts are chosen from all at once."""
        return lambda config: alone if chosen(config) == "greedy" else maybe(key, default=usual)(config) or alone

    return {
        **_sizes(**default),
        "tied": flag("tie_word_embeddings", default=tied),
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
    "greedy", "softmax", (0, 0), False, layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000, first_dense=0,
    experts=64, expert_ffn=1407, shared_experts=2,
)  # fmt: skip
_DEEPSEEK_V3 = _deepseek(
    "noaux_tc", "sigmoid", (8, 4), False, layers=61, hidden=7168, heads=128, ffn=18432, vocab=129280, first_dense=3,
    experts=256, expert_ffn=2048, shared_experts=1, top_k=8,
)  # fmt: skip


_NO_CROSS = {"add_cross_attention": (False,)}
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
_SECOND_TOKEN = {"num_nextn_predict_layers": ((0,), "the extra layer that predicts a second token is left out")}
_DENSE = ("intermediate_size",)
_GROUPS = ("head_dim", "n_group", "num_key_value_heads", "qk_head_dim", "topk_group")


def _positions(default: int, key: str = "max_position_embeddings") -> Source:
    return count(key, default=default)


_KINDS = {
    "gpt2": Kind(Gpt, _GPT2, _GPT2_POSITIONS, learned=True, only=_NO_CROSS),
    "gpt_bigcode": Kind(
        Gpt,
        {**_GPT2, "kv_heads": _shared_by_all},
        _GPT2_POSITIONS,
        learned=True,
        only=_NO_CROSS,
    ),
    "opt": Kind(
        Gpt,
        _OPT,
        _OPT_POSITIONS,
        learned=True,
        only={"do_layer_norm_before": (True,), "layer_norm_elementwise_affine": (True,)},
        checks=(_opt_projection,),
    ),
    "bloom": Kind(Gpt, _BLOOM, _positions(2048, "seq_length")),
    "gpt_neox": Kind(
        Gpt,
        _NEOX,
        _positions(2048),
        only={"attention_bias": (True,)},
        checks=(_side_by_side,),
        said=("rotary_emb_base",),
    ),
    "nemotron": Kind(Gpt, _NEMOTRON, _positions(4096), checks=(_one_bias,)),
    "starcoder2": Kind(
        Gpt,
        _STARCODER2,
        _positions(4096),
        checks=(_window_left_out,),
        said=("mlp_type", "norm_type"),
    ),
    "falcon": Kind(Gpt, _FALCON, _positions(2048), checks=(_falcon_norms,)),
    "llama": Kind(Llama, _LLAMA, _positions(2048), noted={**_BIASES, **_SILU}),
    "mistral": Kind(
        Llama, {**_MISTRAL, "window": maybe("sliding_window", default=4096)}, _positions(131072), noted=_SILU
    ),
    "qwen2": Kind(Llama, _QWEN2, _positions(32768), noted=_SILU),
    "qwen3": Kind(Llama, _QWEN3, _positions(32768), noted={**_BIASES, **_SILU}),
    "phi3": Kind(
        Llama,
        {**_PHI3, "window": maybe("sliding_window")},
        _positions(4096),
        noted={**_SILU, "partial_rotary_factor": ((1.0,), "all features of a head turn with the position here")},
    ),
    "gemma": Kind(
        Llama,
        _GEMMA,
        _positions(8192),
        noted={"attention_bias": _BIASES["attention_bias"]},
        remarks=("the GELU of Gemma's gate is counted as SiLU, and the scaling of its embedding left out",),
        said=("hidden_act", "hidden_activation"),
    ),
    "mixtral": Kind(Mixture, _MIXTRAL, _positions(131072), noted=_SILU),
    "qwen2_moe": Kind(Mixture, _QWEN2_MOE, _positions(32768), only=_EVERY_LAYER, noted=_SILU, said=_DENSE),
    "qwen3_moe": Kind(
        Mixture, _QWEN3_MOE, _positions(32768), only=_EVERY_LAYER, noted={**_BIASES, **_SILU}, said=_DENSE
    ),
    "deepseek_v2": Kind(DeepSeek, _DEEPSEEK_V2, _positions(2048), only=_LATENT, noted=_SILU, said=_GROUPS),
    "deepseek_v3": Kind(
        DeepSeek, _DEEPSEEK_V3, _positions(4096), only=_LATENT, noted={**_SILU, **_SECOND_TOKEN}, said=_GROUPS
    ),
}
KINDS = {name: kind._replace(heads=HEADS) for name, kind in _KINDS.items()}
